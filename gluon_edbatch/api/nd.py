"""``edb.nd.<op>``: any operator of MXNet's registry under its usual name, recorded in a scope.

Inside a scope Python numbers and NumPy arrays are accepted where ``mx.nd`` insists on NDArrays.
Outside, each function calls the one of ``mx.nd``.
"""

from collections.abc import Sequence
from typing import Any, Callable

import mxnet as mx
import numpy as np

from gluon_edbatch_core.errors import RecordError

from ..record.each import for_each, holds_each
from ..record.hooks import current_recording
from ..record.lazy import LazyArray
from ..record.recording import Recording
from ..record.refused import refused_operands
from ..record.sites import current_site


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith('__'):
        raise AttributeError(name)
    function = globals()[name] = _function(name)  # not to be asked again
    return function


def _function(name: str) -> Callable[..., Any]:
    original = getattr(mx.nd, name, None)
    if not callable(original) or isinstance(original, type):
        raise AttributeError(f'MXNet has no operator {name!r}')

    def with_lazy_arrays(*args: Any, **kwargs: Any) -> Any:
        if holds_each(args) or holds_each(kwargs.values()):
            return for_each(function, args, kwargs)
        recording = current_recording()
        arguments = _lazy(recording, [*args, *kwargs.values()])
        try:
            return original(*arguments[: len(args)], **dict(zip(kwargs, arguments[len(args) :])))
        except Exception as error:
            message = refused_operands(f'edb.nd.{name}', args, error)
            if message is None:
                raise
            raise RecordError(f'{message}\n  called at {current_site()}') from error

    def function(*args: Any, **kwargs: Any) -> Any:
        recording = current_recording()
        if recording is None:
            if holds_each(args) or holds_each(kwargs.values()):
                return for_each(original, args, kwargs)
            return original(*args, **kwargs)
        return recording.operation(with_lazy_arrays, args, kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = original.__doc__
    return function


def _lazy(recording: Recording, args: Sequence[Any]) -> list[Any]:
    """Convert NumPy arrays to values of the recording; an NDArray, too, if no argument is lazy yet,
    so that the operator is recorded."""
    if recording.runs_now(args):
        args = [
            recording.known_array(arg._store.spec, arg._store.given[arg._id])
            if arg.__class__ is LazyArray
            else arg
            for arg in args
        ]  # values like any other, whose operators are recorded
    args = [recording.values([arg])[0] if isinstance(arg, np.ndarray) else arg for arg in args]
    if not any(isinstance(arg, LazyArray) for arg in args):
        position = recording.sharing.data_among(args)
        if position is not None:
            (args[position],) = recording.values([args[position]])
    return args
