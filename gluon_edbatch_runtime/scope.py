"""``with batching():`` and functions on values, with the interface of ``gluon_edbatch``."""

import gc
from collections.abc import Sequence
from contextvars import Token
from typing import Any, Optional, Union

import numpy as np

from gluon_edbatch_core.branching.pytree import flatten, unflatten
from gluon_edbatch_core.errors import RecordError
from gluon_edbatch_core.graph.graph import Graph
from gluon_edbatch_core.schedule import Schedule, Scheduler, get_scheduler

from .calls import CURRENT, Ragged, Value, new_ragged, plain_ragged, recorded, store_of
from .forms import concat_form
from .recording import Recording


class batching:
    """Record calls of cells, and run them in batches when a value is read.

    Leaving the scope runs nothing. If an exception leaves it, its values cannot be read.

    Parameters
    ----------
    scheduler : str or Scheduler, optional
        Which calls run together, as in ``gluon_edbatch``; by default the bundle's policy.
    """

    def __init__(self, scheduler: Union[str, Scheduler, None] = None):
        self._recording = Recording(None if scheduler is None else get_scheduler(scheduler))
        self._token: Optional[Token] = None

    def __enter__(self) -> 'batching':
        if self._token is not None:
            raise RuntimeError('a batching scope records once; make a new one')
        self._token = CURRENT.set(self._recording)
        # Thousands of values that all live would be looked at again and again. Where scopes of
        # several threads overlap, the first that leaves begins collecting again.
        self._collecting = gc.isenabled()
        gc.disable()
        return self

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> None:
        assert self._token is not None
        if self._collecting:
            gc.enable()
        CURRENT.reset(self._token)
        self._recording.void = error is not None

    def schedules(self) -> list[tuple[Graph, Schedule]]:
        """Return the graph and the schedule of each evaluation so far."""
        return list(self._recording.evaluations)

    @property
    def batches(self) -> int:
        """Return how many batches ran so far."""
        return sum(len(schedule) for _, schedule in self._recording.evaluations)


def forward(values: Any) -> Any:
    """Evaluate values together; calls that they do not need are not run.

    Parameters
    ----------
    values : Value, or nested lists and tuples and dicts of them

    Returns
    -------
    The same structure with arrays.
    """
    leaves: list[Any] = []
    template = flatten(values, (Value, np.ndarray), leaves)
    wanted: dict = {}
    for value in leaves:
        if not isinstance(value, Value) or value.number < 0:
            continue
        if not value.log.locations.known(value.number):
            wanted.setdefault(value.log, []).append(value.number)
    for log, numbers in wanted.items():
        log.evaluate(numbers)
    arrays = [leaf.asnumpy() if isinstance(leaf, Value) else np.asarray(leaf) for leaf in leaves]
    return unflatten(template, iter(arrays))


def stack(values: Sequence[Any]) -> np.ndarray:
    """Evaluate values together; return them as one array with a new first axis."""
    return np.stack(forward(list(values)))


def concat(values: Sequence[Any]) -> Any:
    """Concatenate the rows of values.

    In the scope of one of the values, the result is a value; else it is an array.
    """
    values, log = list(values), CURRENT.get()
    if not values:
        raise RecordError('concat() of no values')
    if log is None or not any(isinstance(value, Value) and value.log is log for value in values):
        return np.concatenate(forward(values))
    ragged = plain_ragged(log, values)
    if ragged is not None:  # most often
        return recorded(log, concat_form(ragged.store, len(values) * ragged.store.rows), (ragged,))
    own = [log.value(value) for value in values]
    if len({value.store.arena for value in own}) > 1:
        shapes = ', '.join(sorted({str(value.store) for value in own}))
        raise RecordError(f'values of different kinds cannot be put together: {shapes}')
    form = concat_form(own[0].store, sum([value.store.rows for value in own]))
    rows = new_ragged(log, own[0].store, [value.number for value in own])
    return recorded(log, form, (rows,))


def ragged(
    values: Sequence[Any], shape: Optional[tuple[int, ...]] = None, dtype: Any = np.float32
) -> Ragged:
    """Return any number of values of one shape as one argument of a cell, in scopes and outside.

    Parameters
    ----------
    values : sequence of Value or numpy.ndarray
    shape : tuple of int, optional
        Shape of a value; needed if there may be none.
    dtype
        Dtype of a value; used if there are none.
    """
    log = CURRENT.get() or Recording()  # outside of scopes, an argument of a call that runs eagerly
    found = plain_ragged(log, values)
    if found is None:
        own = [log.value(value) for value in values]
        found = plain_ragged(log, own)
        if found is None:
            stores = {value.store for value in own}
            raise RecordError(f'ragged() needs values of one shape and dtype, got {stores}')
    if found.store is None and shape is not None:
        found.store = store_of(tuple(shape[1:]), dtype, shape[0])
    return found
