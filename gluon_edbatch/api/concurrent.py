"""Control flow that depends on computed values, for many samples at once.

What a sample does next may depend on numbers: a parser's next action, a search, an early exit. Its
function then waits for them (``yield`` or ``await``), which lets the other samples go on until they
wait, too; one evaluation serves all.
"""

from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, nullcontext
from inspect import (
    isasyncgen,
    iscoroutine,
    iscoroutinefunction,
    isgenerator,
    isgeneratorfunction,
)
from types import coroutine
from typing import Any, Callable, Optional

import numpy as np
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import RecordError, SampleError

from ..mx.parameters import context_of
from ..mx.run_ahead import last_under_way
from ..record.hooks import current_recording, local
from ..record.lazy import RAGGED, VALUES, LazyArray
from ..record.sample_greenlets import SuspendedSample, advance_all, advance_plain, recorded_by
from ..record.sites import Site, current_site, site_of
from ..record.stores import Arena, Store
from ..subgraph.structure import flatten, unflatten
from .eagerly import eagerly
from .functional import compute
from .suspended import Suspension, code_of, is_plain, without_reads


def run_concurrently(samples: Iterable[Any], fn: Callable[[Any], Any]) -> list[Any]:
    """Run `fn` on all samples concurrently; `fn` may wait for computed values on its way.

    The result is ``[fn(sample) for sample in samples]``. In a `batching` scope each sample runs
    until it waits for values. One evaluation then computes what all samples wait for, and they go
    on. The number of evaluations is the number of waits of the sample that waits most often.
    Outside a scope the samples run eagerly, one after the other, with the same results, which helps
    debugging.

    Under ``autograd.record()`` the lazy values of all rounds stay connected, and a loss may use
    them all. The NumPy arrays that a sample gets back have no gradient.

    Parameters
    ----------
    samples : iterable
        Arguments of `fn`, one for each call.
    fn : callable
        A generator function: ``scores = yield lazy`` waits for a value, or for nested lists, tuples
        and dicts of values. Or a coroutine function: ``scores = await edb.value(lazy)``. The answer
        has the same structure, with a separate NumPy array in place of each NDArray; anything else
        in it is returned unchanged. A bare ``yield`` (``await edb.value()``) waits for all that is
        recorded so far: use it after an encoder that all later steps read. Otherwise each
        evaluation computes only what some sample waits for. Generators delegate with ``yield
        from``, coroutines with ``await``. A plain function or model waits wherever it reads a
        value, if its code shows that no sample can see that they take turns; else the samples run
        one after the other, and ``scope.explain()`` says why. If `fn` is a method of a Block, eager
        calls convert numbers and NumPy arrays to NDArrays on the parameters' device.

    Returns
    -------
    list
        What `fn` returns for each sample, in the order of the samples. Lazy values in it stay lazy.

    Raises
    ------
    SampleError
        `fn` raised an exception, which is the cause of this one. All samples are closed. Of plain
        code, earlier samples finish first, and the first of all errors is raised.
    RecordError
        A sample waits inside a scope of autograd or `batching` that it has entered: the other
        samples would run in that scope.

    Examples
    --------
    >>> def parse(sentence):                              # one sentence
    ...     vectors, state = net.encode(sentence), Configuration(sentence)
    ...     yield                                         # the vectors of all sentences at once
    ...     while not state.done:
    ...         scores = yield net.score(vectors, state)  # (1, number of actions), now in NumPy
    ...         state.apply(scores[0].argmax())
    ...     return state.heads
    >>> with edb.batching():
    ...     heads = edb.run_concurrently(sentences, parse)
    """
    samples = list(samples)
    if current_recording() is not None:
        suspension = suspension_of(fn, [(sample,) for sample in samples])
        return run_samples(fn, samples, suspension=suspension)
    # Let blocks take numbers and NumPy arrays, as in a scope.
    owner = getattr(fn, '__self__', None)
    with eagerly(context_of(owner)) if local.eager is None else nullcontext():
        return [run_samples(fn, [sample], index)[0] for index, sample in enumerate(samples)]


@coroutine
def value(values: Any = None) -> Any:
    """Wait for values in a coroutine of `run_concurrently`: ``scores = await edb.value(lazy)``.

    Parameters
    ----------
    values : NDArray, or nested lists, tuples and dicts of them
        Anything else in it is handed through. By default, wait for all that is recorded so far.

    Returns
    -------
    The same structure with NumPy arrays.
    """
    return (yield values)


class AdvancingSample:
    """Hold the state of one sample of `run_concurrently`, and its index for error messages."""

    __slots__ = ('_fn', '_index', '_steps', 'suspended', 'wanted', 'result')

    def __init__(self, fn: Callable[[Any], Any], sample: Any, index: int, suspension: Any = None):
        self._fn, self._index = fn, index
        self.wanted: Any = None  # what it waits for
        self.result: Any = None  # what `fn` has returned
        self.suspended: Optional[SuspendedSample] = None  # if it is plain code
        if suspension is not None:
            self._steps: Any = SuspendedSample(suspension.of(fn), sample, suspension)
            self.suspended = self._steps
            return
        try:
            steps = fn(sample)
        except Exception as error:
            raise self.failed(error) from error
        self._steps = self._steps_of(steps)

    def _steps_of(self, steps: Any) -> Any:
        if isasyncgen(steps):
            raise TypeError(
                f'{_name(self._fn)} is an asynchronous generator; run_concurrently takes '
                f'generator functions (yield) or coroutine functions (await '
                f'edb.value(...)), not both in one'
            )
        return steps if _has_steps(steps) else _returned(steps)

    def follow(self, result: Any) -> bool:
        """Note what plain code has returned. If that waits explicitly, run it until it waits."""
        self.result, self.suspended = result, None
        if not _has_steps(result):
            return False
        self._steps = self._steps_of(result)
        return self.advance(None)

    def advance(self, answer: Any) -> bool:
        """Run the sample until it waits again; return False if it has finished."""
        if self.suspended is not None:
            return advance_plain(self, self.suspended, answer)
        recording = current_recording()
        mode = recording and recording.mode
        try:
            self.wanted = self._steps.send(answer)
        except StopIteration as stop:
            self.result = stop.value
            return False
        except Exception as error:
            raise self.failed(error) from error
        now = current_recording()
        if now is not recording or (recording and recording.mode != mode):
            raise RecordError(
                f'sample {self._index} waits for a value inside of a scope that it has entered '
                f'(autograd.record(), pause(), batching(), …), and the other samples would go on '
                f'in it; leave it before waiting\n  waits at {self._site()}'
            )
        return True

    def close(self) -> None:
        """Close the sample's generator or coroutine, if it has not finished."""
        self._steps.close()

    def failed(self, error: Exception) -> SampleError:
        """Return the error of this sample."""
        return SampleError(
            f'sample {self._index} failed in {_name(self._fn)}: {type(error).__name__}: {error}',
            self._index,
        )

    def _site(self) -> Site:
        steps = self._steps
        frame = getattr(steps, 'gi_frame' if isgenerator(steps) else 'cr_frame')
        return site_of(frame.f_code, frame.f_lasti)


def _has_steps(result: Any) -> bool:
    return isgenerator(result) or iscoroutine(result) or isasyncgen(result)


def _returned(result: Any) -> Generator[None, Any, Any]:
    """Return the result of a plain function as a generator that does not wait."""
    return result
    yield


def suspension_of(
    program: Callable[..., Any], samples: Sequence[tuple], among_others: bool = False
) -> Optional[Suspension]:
    """Return what decides whether samples, tuples of arguments, are suspended in plain code; None
    of functions that wait explicitly. `among_others` tells that other samples run, too."""
    if isgeneratorfunction(program) or iscoroutinefunction(program) or not is_plain(program):
        return None
    if not among_others and (
        len(samples) < 2 or current_recording() is None or code_of(program) in without_reads
    ):
        return None
    return Suspension(program, samples, among_others)


def run_samples(
    fn: Callable[[Any], Any],
    samples: Sequence[Any],
    first: int = 0,
    suspension: Optional[Suspension] = None,
) -> list[Any]:
    """Advance samples together until all finish, and return their results; `first` numbers one."""
    recording, failed = current_recording(), None
    read_before = 0 if recording is None else len(recording.evaluator.forced)
    with ExitStack() as stack:
        running = []
        for index, sample in enumerate(samples, first):
            running.append(AdvancingSample(fn, sample, index, suspension))
            stack.callback(running[-1].close)
        waiting, answers = running, [None] * len(running)
        while waiting:
            waiting, suspended, error = _advanced(waiting, answers, suspension is not None)
            failed = error or failed
            answers = _answers(waiting, suspended)
    if failed is not None:
        raise failed
    if recording is not None:
        evaluator = recording.evaluator
        if suspension is not None:
            suspension.note_reads()
        elif len(evaluator.forced) > read_before:
            without_reads.discard(code_of(fn))
        if suspension is not None and suspension.why:
            for site in evaluator.forced[read_before:]:
                evaluator.reasons[site] = f'samples ran one after the other: {suspension.why}'
        else:
            evaluator.rounds.add(current_site())
    return [sample.result for sample in running]


def _advanced(
    samples: Sequence[AdvancingSample], answers: Sequence[Any], in_order: bool
) -> tuple[list[AdvancingSample], list[Any], Optional[SampleError]]:
    """Run samples until they wait again; return those that do, which of them are plain code, and
    the error of one. Samples behind that one are closed: they would not have run, if all run
    `in_order`."""
    waiting: list[AdvancingSample] = []
    suspended: list[Any] = []
    try:
        advance_all(samples, answers, waiting, suspended)
    except SampleError as error:
        if not in_order:
            raise
        return waiting, suspended, error
    return waiting, suspended, None


def answers_for(waiting: Sequence[Any]) -> list[Any]:
    """Evaluate what samples wait for, and return it with NumPy arrays in place of NDArrays."""
    return _answers(waiting, [sample.suspended for sample in waiting])


def _answers(waiting: Sequence[Any], suspended: Sequence[Any]) -> list[Any]:
    values = [sample.wanted for sample in waiting]
    are_computed = _flush_recorded(waiting, suspended)
    return _computed_arrays(values) if are_computed else contents_of(values)


def _flush_recorded(waiting: Sequence[Any], suspended: Sequence[Any]) -> bool:
    """If some samples are plain code, which cannot say what it will read next, evaluate all that
    they have recorded since they waited last, and what all samples wait for. Return whether all
    are."""
    recording = current_recording()
    if recording is None or not any(suspended):
        return False
    is_all_plain = None not in suspended
    ranges, others = recorded_by([each for each in suspended if each is not None])
    if not is_all_plain:
        others += [each.wanted for each, own in zip(waiting, suspended) if own is None]
    values = np.arange(*ranges[:2])
    if len(ranges) > 2 or others:
        more = [np.arange(*ranges[place : place + 2]) for place in range(2, len(ranges), 2)]
        given = np.array([each for some in others for each in _values_in(some)], np.int64)
        values = np.concatenate([values, *more, given])
    unknown = recording.locations.unknown(values)
    if len(unknown):
        recording.flush(unknown)
    return is_all_plain


def _values_in(wanted: Any) -> list[int]:
    """Return the numbers of the values of the present scope in a nested structure."""
    if wanted.__class__ in VALUES:
        return [wanted._id]
    recording, leaves = current_recording(), list[Any]()
    flatten(wanted, object, leaves)
    own = [
        each
        for each in leaves
        if isinstance(each, LazyArray)
        and 0 not in each.shape
        and each._store.recording is recording
    ]
    return [value for each in own for value in getattr(each, '_ids', (each._id,))]


def contents_of(values: list[Any]) -> list[Any]:
    """Evaluate nested values together and return them with NumPy arrays in place of NDArrays. None
    among the values asks for all that is recorded."""
    _flush_if_asked(values)
    if all([wanted.__class__ in VALUES for wanted in values]):  # one each, most often
        return _arrays_of(values)
    leaves: list[Any] = []
    template = flatten(values, object, leaves)
    return unflatten(template, iter(_arrays_of(leaves)))


def hand_over(waiting: Sequence[Any]) -> Optional[NDArray]:
    """Evaluate what samples wait for, without waiting for it. Return an array that is written when
    all is there; None if all is there already, or if calls ran one by one."""
    before, values = last_under_way(), [sample.wanted for sample in waiting]
    _flush_recorded(waiting, [sample.suspended for sample in waiting])
    _flush_if_asked(values)
    leaves: list[Any] = []
    flatten(values, object, leaves)
    compute(leaves)
    fence = last_under_way()
    return None if fence is before else fence


def _flush_if_asked(values: list[Any]) -> None:
    recording = current_recording()
    if recording is not None and any(wanted is None for wanted in values):
        recording.flush()


# Wanted values of one store in one arena: their positions among all, and their first rows.
_Wanted = tuple[Store, list[int], np.ndarray]


def _arrays_of(leaves: Sequence[Any]) -> list[Any]:
    """Evaluate NDArrays and return a list with NumPy arrays in place of them."""
    compute(leaves)
    return _computed_arrays(leaves)


def _computed_arrays(leaves: Sequence[Any]) -> list[Any]:
    """Return a list with NumPy arrays in place of computed values and other NDArrays."""
    found = list(leaves)
    by_store: dict[Store, list[int]] = {}
    ragged: dict[Store, list[int]] = {}
    for position, leaf in enumerate(leaves):
        if leaf.__class__ in VALUES and leaf._id >= 0:
            by_store.setdefault(leaf._store, []).append(position)
        elif leaf.__class__ in RAGGED and leaf._ids and not leaf._store.packed:
            ragged.setdefault(leaf._store, []).append(position)
        elif isinstance(leaf, NDArray):
            found[position] = leaf.asnumpy()
    for store, positions in ragged.items():
        _fetch_ragged(store, positions, found)
    pieces: dict[Arena, list[_Wanted]] = {}
    for store, positions in by_store.items():
        values = np.array([leaves[position]._id for position in positions])
        evaluations, begins = store.locations.evaluation[values], store.locations.row[values]
        for number in set(evaluations.tolist()):
            some = np.flatnonzero(evaluations == number)
            own, arena = [positions[place] for place in some.tolist()], store.arena(number)
            if isinstance(arena, Arena):
                pieces.setdefault(arena, []).append((store, own, begins[some]))
            else:
                for position in own:
                    found[position] = leaves[position].asnumpy()
    for arena, wanted in pieces.items():
        _fetch(arena, wanted, found)
    return found


def _fetch(arena: Arena, pieces: Sequence[_Wanted], found: list[Any]) -> None:
    """Copy values of one arena to NumPy with one copy of its rows. Rows between the values are
    copied along, which costs less than an operator that picks rows."""
    first = min([int(begins.min()) for _, _, begins in pieces])
    end = max([int(begins.max()) + store.spec.rows for store, _, begins in pieces])
    block = arena.raw._slice(first, end).asnumpy()
    for store, positions, begins in pieces:
        # Rows of their own, as a user may write into what is theirs: scores[0, illegal] = -inf.
        own = block[(begins - first)[:, None] + np.arange(store.spec.rows)]
        for position, array in zip(positions, own.reshape((len(positions), *store.shape))):
            found[position] = array


def _fetch_ragged(store: Store, positions: Sequence[int], found: list[Any]) -> None:
    """Copy ragged values, whose values have one row each, to NumPy with one copy of their rows."""
    ids, locations = (
        np.array([each for at in positions for each in found[at]._ids]),
        store.locations,
    )
    numbers = locations.evaluation[ids]
    arena = store.arenas.get(numbers.item(0)) if ids.min() >= 0 else None
    is_one = (numbers == numbers[0]).all() and (locations.rows[ids] == 1).all()
    if not is_one or not isinstance(arena, Arena):
        for at in positions:
            found[at] = found[at].asnumpy()
        return
    rows = locations.row[ids]
    first, end = int(rows.min()), int(rows.max()) + 1
    own, begin = arena.raw._slice(first, end).asnumpy()[rows - first], 0
    for at in positions:
        shape = found[at].shape
        found[at] = own[begin : begin + shape[1]].reshape(shape)
        begin += shape[1]


def _name(fn: Callable[[Any], Any]) -> str:
    return getattr(fn, '__qualname__', repr(fn))
