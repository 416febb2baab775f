"""Continuous batching: samples of a model join at each round, and leave when they are done.

A lane is one scope and the samples that record into it. New samples join the newest lane. A new
lane replaces it when its scope has recorded much, as a scope keeps what it records; the old lane's
samples end there. An empty lane stays while others arrive, as entering a scope costs time. If an
evaluation fails, any sample may be at fault. The lane's samples then begin again in two lanes of
half as many, until one is alone with its error.

Results older than the oldest running sample are dropped, unless the model keeps values from one
sample for the next, which shows when a lane ends. The first calls of new samples, such as an
encoder, may take long: they run beside the rounds of the others."""

import gc
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context
from functools import partial
from time import monotonic
from typing import Any, Callable, NamedTuple, Optional

from mxnet.base import MXNetError
from mxnet.ndarray import NDArray

from ..api.concurrent import AdvancingSample, contents_of, hand_over
from ..api.scope import lasting
from ..errors import BatchError, SampleError, StaleValueError, StepsError
from ..record.hooks import collect, current_recording
from ..schedule import Scheduler
from ..subgraph.options import CompileOptions
from ..subgraph.structure import flatten
from .requests import Request

# Limits of a scope, some 150 MB each: beyond them, new samples go to another lane.
MOST_CALLS = 100_000  # recorded calls that have results
MOST_CALLS_FORGOTTEN = 1_000_000  # all recorded calls
MOST_BYTES_GIVEN = 1 << 27
_MOST_CALLS_OVER = 5_000  # of a lane without samples: with more, a new scope costs less
_CALLS_OF_GARBAGE = 20_000  # recorded calls between two garbage collections
_OLDER = 8  # one in so many collections includes generation 1
_RESULTS = 8  # kept until it is known whether the model remembers values
_OF_ALL = (BatchError, StaleValueError, MXNetError)  # errors that another sample may have caused


class Lanes:
    """Hold the running samples of one model, in lanes; see `Engine` for the parameters."""

    def __init__(
        self,
        predict: Callable[[Any], Any],
        scheduler: Scheduler,
        options: CompileOptions,
        max_rounds: int,
    ):
        self.predict, self.max_rounds = predict, max_rounds
        self.scope = partial(lasting, scheduler, compile_options=options)
        self.waiter = ThreadPoolExecutor(1, 'edb-waiter')
        self._remembers: Optional[bool] = None  # whether values outlive their samples, if known
        self._results: list[Any] = []  # kept until then, as they may hold values
        self._lanes: list[Lane] = []
        self._newest: Optional[Lane] = None

    def __len__(self) -> int:
        return sum(map(len, self._lanes))

    @property
    def is_beginning(self) -> bool:
        """Return whether first calls of new samples still run beside the rounds of others."""
        return any([lane.is_beginning for lane in self._lanes])

    def admit(self, requests: Sequence[Request]) -> list[Request]:
        """Start samples in the newest lane; return the requests that are already finished."""
        done: list[Request] = []
        if requests:
            newest = self._newest
            if newest is None or newest.is_full or newest.is_outdated:
                newest = self._newest = self._add()
            self._admit(newest, requests, done)
        self._note_results(done)
        return done

    def round(self) -> list[Request]:
        """Run one round in each lane; return finished requests, with a result or an error."""
        done: list[Request] = []
        if self._newest is not None:
            self._newest.collect_garbage()
        is_only = sum([len(lane) > 0 for lane in self._lanes]) == 1
        nobody_goes_on = not any([lane.goes_on for lane in self._lanes])
        for lane in list(self._lanes):
            before = len(done)
            try:
                lane.run(lane.round, done, nobody_goes_on, is_only)
            except Exception as error:
                self._part(lane, error, done)
            self._note_results(done[before:])
            if not len(lane) and (lane is not self._newest or lane.calls > _MOST_CALLS_OVER):
                self._drop(lane)
        return done

    def _note_results(self, done: Sequence[Request]) -> None:
        if self._remembers is None:
            room = max(0, _RESULTS - len(self._results))
            self._results += [request.result for request in done[:room]]

    def rest(self) -> None:
        """Close the lanes without samples; call it when no request waits to join."""
        for lane in list(self._lanes):
            if not len(lane):
                self._drop(lane)

    def _admit(self, lane: 'Lane', requests: Sequence[Request], done: list[Request]) -> None:
        """Start requests in a lane; restart one alone if others may have made it fail."""
        for request in lane.run(lane.admit, requests, done):
            self._note_error(request.error)
            if len(requests) == 1 and not len(lane):
                done.append(request)
            else:
                request.error = None
                self._admit(self._add(), [request], done)

    def _part(self, lane: 'Lane', error: Exception, done: list[Request]) -> None:
        """Close a lane that failed; restart its samples in two lanes, or fail a single one."""
        requests = lane.close(error)
        self._note_error(error)
        if lane is self._newest:  # otherwise the next samples would run without a scope
            self._newest = None
        if len(requests) == 1:
            requests[0].error = error
            done += requests
            return
        half = len(requests) // 2
        for part in (requests[:half], requests[half:]):
            self._admit(self._add(), part, done)

    def _add(self) -> 'Lane':
        lane = Lane(self, self._remembers is False)
        self._lanes.append(lane)
        return lane

    def _note_error(self, error: Optional[BaseException]) -> None:
        if isinstance(error, StaleValueError):  # the model kept a value that was dropped
            self._remembers = True

    def _note_end(self, lane: 'Lane') -> None:
        """Note, when a lane ends, whether the model keeps values from one sample for the next."""
        if lane.has_readers:
            gc.collect(1)  # drop reference cycles, such as a recursive inner function
        if lane.has_readers is not None:
            self._remembers, self._results = self._remembers or lane.has_readers, []

    def _drop(self, lane: 'Lane') -> None:
        lane.close()
        self._lanes.remove(lane)
        self._note_end(lane)
        if lane is self._newest:
            self._newest = None

    def close(self) -> None:
        """Close all lanes, and the thread that waits for new samples' first calls."""
        for lane in list(self._lanes):
            self._drop(lane)
        self.waiter.shutdown()


class _Beginning(NamedTuple):
    """New samples whose first calls run beside the rounds of others, and their future."""

    samples: list['_OnItsWay']
    over: 'Future[None]'


class Lane:
    """A scope, entered in a context of its own, and the samples that share it."""

    def __init__(self, owner: Lanes, forgets: bool):
        self._owner, self._forgets, self._has_failed = owner, forgets, False
        self._collections = 0
        self.run, self._scope = Context().run, owner.scope()
        self.run(self._scope.__enter__)
        self._running: list[_OnItsWay] = []
        self._beginning: Optional[_Beginning] = None

    def __len__(self) -> int:
        beginning = self._beginning  # read once: other threads ask for metrics
        return len(self._running) + (len(beginning.samples) if beginning else 0)

    @property
    def is_beginning(self) -> bool:
        """Return whether first calls of new samples run beside the rounds of the others."""
        return self._beginning is not None

    @property
    def goes_on(self) -> bool:
        """Return whether a round can run without waiting for new samples' first calls."""
        return bool(self._running) or (self._beginning is not None and self._beginning.over.done())

    @property
    def calls(self) -> int:
        """Return how many calls the lane's scope has recorded."""
        return self._scope.calls_recorded

    @property
    def is_full(self) -> bool:
        """Return whether the scope holds so much that new samples go to another lane."""
        scope = self._scope
        return (
            scope.calls_kept > MOST_CALLS
            or scope.calls_recorded > MOST_CALLS_FORGOTTEN
            or scope.bytes_given() > MOST_BYTES_GIVEN
        )

    @property
    def is_outdated(self) -> bool:
        """Return whether the lane is empty and a parameter was written since calls read it."""
        return not len(self) and self.run(_touched)

    def collect_garbage(self) -> None:
        """Run Python's garbage collector if much was recorded since its last run. Open scopes pause
        automatic collection."""
        if self.calls > (self._collections + 1) * _CALLS_OF_GARBAGE:
            self._collections += 1
            collect(int(self._collections % _OLDER == 0))

    def admit(self, requests: Sequence[Request], done: list[Request]) -> list[Request]:
        """Run new samples until they wait for values, and append finished requests to `done`.
        Return the requests whose error another sample may have caused. Call it through `run`."""
        suspects: list[Request] = []
        before = self._scope.evaluations
        for request in requests:
            try:
                each = _OnItsWay(request, self._owner.predict, before)
                waits = each.advance(None)
            except Exception as error:
                request.error, self._has_failed = own_error(error), True
                (suspects if isinstance(request.error, _OF_ALL) else done).append(request)
                continue
            if waits:
                self._running.append(each)
            else:
                done.append(request)
        return suspects

    def round(self, done: list[Request], may_wait: bool, is_only: bool) -> None:
        """Evaluate what the samples wait for, advance them, and append finished requests to `done`.
        Call it through `run`. With `may_wait`, first calls of new samples are waited for. With
        `is_only`, no other lane has samples, so first calls may start beside the round."""
        now = monotonic()
        given_up = [each for each in self._running if each.request.is_given_up(now)]
        for each in given_up:
            each.close()
            self._running.remove(each)
            done.append(each.request)
        beginning = self._beginning
        if beginning is None and is_only:
            self._begin()
        elif beginning is not None and (may_wait or beginning.over.done()):
            self._running, self._beginning = self._running + beginning.samples, None
            beginning.over.result()
        running, answers = self._running, self._evaluated(is_only)
        if self._forgets:
            self._scope.forget(min([each.before for each in self._samples], default=0))
        self._running = []
        for place, (each, answer) in enumerate(zip(running, answers)):
            try:
                waits = each.advance(answer)
                if waits and each.rounds > self._owner.max_rounds:
                    each.close()
                    most = self._owner.max_rounds
                    raise StepsError(f'a sample waited for values {most} times')
            except Exception as error:
                if isinstance(own_error(error), _OF_ALL):
                    self._running += running[place:]
                    raise own_error(error) from None
                each.request.error, waits, self._has_failed = own_error(error), False, True
            if waits:
                self._running.append(each)
            else:
                done.append(each.request)

    def _evaluated(self, is_only: bool) -> list[Any]:
        """Evaluate what the samples wait for, and return it. With other lanes, wait for all calls:
        MXNet reports an error once, to the first that waits, and that must be this lane."""
        wanted = [each.wanted for each in self._running]
        if not is_only or any([each is None for each in wanted]):
            fence = hand_over(wanted)
            if fence is not None:
                fence.wait_to_read()
        return contents_of(wanted)

    def _begin(self) -> None:
        """Start the first calls of new samples, such as an encoder, beside the others' rounds. They
        run behind the calls that the other samples wait for."""
        joined = [each for each in self._running if each.rounds == 1]
        others = [each for each in self._running if each.rounds > 1]
        if not joined or not others:
            return
        hand_over([each.wanted for each in others])
        fence = hand_over([each.wanted for each in joined])
        if fence is not None:
            try:
                over = self._owner.waiter.submit(fence.wait_to_read)
            except RuntimeError:  # the interpreter ends and starts no threads: all samples wait
                return
            self._running, self._beginning = others, _Beginning(joined, over)

    def close(self, error: Optional[Exception] = None) -> list[Request]:
        """Close all samples and leave the scope; return the requests that were in it."""
        samples, self._has_failed = self._samples, self._has_failed or error is not None
        for each in samples:
            self.run(each.close)
        if self._beginning is not None and error is not None:
            self._beginning.over.exception()  # takes the error: restarted samples must not get it
        self._running, self._beginning = [], None
        self.run(self._scope.__exit__, error and type(error), error, None)
        return [each.request for each in samples]

    @property
    def _samples(self) -> list['_OnItsWay']:
        return self._running + (self._beginning.samples if self._beginning else [])

    @property
    def has_readers(self) -> Optional[bool]:
        """Return whether somebody still holds values of the closed lane; None if that may be the
        traceback of an error."""
        readers = self._scope.has_readers
        return None if readers and self._has_failed else readers


def _touched() -> bool:
    scope = current_recording()
    return scope is not None and scope.model.any_touched()


def own_error(error: Exception) -> Exception:
    """Return the exception that the user's function raised, without a `SampleError` around it."""
    cause = error.__cause__
    return cause if isinstance(error, SampleError) and isinstance(cause, Exception) else error


_local = threading.local()  # whose `sample` is being advanced in this thread


def emit(value: Any) -> None:
    """Pass a part of a sample's answer to the caller, from within `predict`.

    Has no effect if the caller has not asked for parts, or outside an `Engine`.

    Parameters
    ----------
    value : object
        A computed value, such as a number or a NumPy array; not a lazy value.

    Examples
    --------
    >>> def predict(self, words):
    ...     for state in states:
    ...         scores = yield self.scores(state)
    ...         edb.serving.emit(int(scores.argmax()))
    """
    sample = getattr(_local, 'sample', None)
    if sample is not None and sample.request.part is not None:
        sample.emitted += 1
        if sample.emitted > sample.request.emitted:  # else a restarted sample repeats a part
            sample.request.emitted += 1
            sample.request.part(value)


class _OnItsWay(AdvancingSample):
    """Run the sample of a request; after its last step, wait for the result as for other values."""

    __slots__ = ('request', 'before', 'emitted', 'rounds', '_ended')

    def __init__(self, request: Request, predict: Callable[[Any], Any], before: int):
        self.request, self.before, self.rounds, self.emitted = request, before, 0, 0
        self._ended, _local.sample = False, self
        try:
            super().__init__(predict, request.sample, 0)
        finally:
            _local.sample = None  # do not keep the sample alive

    def advance(self, answer: Any) -> bool:
        """Run the sample until it waits again; return False once its result is set."""
        self.rounds += 1
        if self._ended:
            self.request.result = answer
            return False
        _local.sample = self
        try:
            if super().advance(answer):
                return True
        finally:
            _local.sample = None
        self._ended, self.wanted = True, self.result
        if _has_arrays(self.wanted):
            return True
        self.request.result = self.wanted
        return False


def _has_arrays(value: Any) -> bool:
    if isinstance(value, NDArray):
        return True
    leaves: list[Any] = []
    flatten(value, object, leaves)
    return any([isinstance(leaf, NDArray) for leaf in leaves])
