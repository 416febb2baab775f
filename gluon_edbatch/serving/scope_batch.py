"""Samples of a model that run together: they record into one scope, which they enter and leave.

Results older than the oldest running sample are dropped, unless the model keeps values from one
sample for the next, which shows when a scope is left. The first calls of new samples, such as an
encoder, may take long: they run beside the rounds of the others.
"""

import gc
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, Callable, Optional

from mxnet.base import MXNetError
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import BatchError, SampleError, StaleValueError, StepsError
from gluon_edbatch_core.schedule import Scheduler
from gluon_edbatch_core.serving.requests import Request

from ..api.concurrent import AdvancingSample, answers_for, hand_over, suspension_of
from ..api.scope import lasting
from ..record.hooks import collect, current_recording
from ..subgraph.options import CompileOptions
from ..subgraph.structure import flatten

# Limits of a scope, some 150 MB each: beyond them, new samples go to another one.
MOST_CALLS = 100_000  # recorded calls that have results
MOST_CALLS_FORGOTTEN = 1_000_000  # all recorded calls
MOST_BYTES_GIVEN = 1 << 27
_MOST_CALLS_OVER = 5_000  # of a scope without samples: with more, a new one costs less
_CALLS_OF_GARBAGE = 20_000  # recorded calls between two garbage collections
_OLDER = 8  # one in so many collections includes generation 1
_RESULTS = 8  # kept until it is known whether the model keeps values
_OF_ALL = (BatchError, StaleValueError, MXNetError)  # errors that another sample may have caused


@dataclass
class ScopedModel:
    """A model whose samples record into scopes, and what is known of it; see `Engine`."""

    predict: Callable[[Any], Any]
    scheduler: Scheduler
    options: CompileOptions
    max_rounds: int
    waiter: ThreadPoolExecutor = field(default_factory=partial(ThreadPoolExecutor, 1, 'edb-waiter'))
    keeps_values: Optional[bool] = None  # from one sample for the next, if known
    results: list[Any] = field(default_factory=list)  # kept until then, as they may hold values

    def note_end(self, scope: Any, has_failed: bool) -> None:
        """Note, when a scope was left, whether somebody still holds values of it. Nothing is known
        if that may be the traceback of an error."""
        if scope.has_readers and not has_failed:
            gc.collect(1)  # drop reference cycles, such as a recursive inner function
        if not (scope.has_readers and has_failed):
            self.keeps_values, self.results = self.keeps_values or scope.has_readers, []


class ScopeBatch:
    """A scope, entered in a context of its own, and the samples that share it."""

    def __init__(self, model: ScopedModel):
        self._model, self._forgets, self._has_failed = model, model.keeps_values is False, False
        self._collections, self._run_inside = 0, Context().run
        self._scope = lasting(model.scheduler, compile_options=model.options)
        self._run_inside(self._scope.__enter__)
        self._running: list[_OnItsWay] = []
        self._beginning: list[_OnItsWay] = []  # first calls run beside the rounds of the others
        self._over: Future[None] = Future()  # the end of these calls

    def __len__(self) -> int:
        return len(self._running) + len(self._beginning)

    @property
    def is_beginning(self) -> bool:
        """Return whether first calls of new samples run beside the rounds of the others."""
        return bool(self._beginning)

    @property
    def is_full(self) -> bool:
        """Return whether new samples need another scope: this one holds too much, or it has no
        samples and a new one costs less, or a parameter was written since calls read it."""
        scope = self._scope
        return (
            scope.calls_kept > MOST_CALLS
            or scope.calls_recorded > MOST_CALLS_FORGOTTEN
            or scope.bytes_given() > MOST_BYTES_GIVEN
            or (not len(self) and scope.calls_recorded > _MOST_CALLS_OVER)
            or (not len(self) and self._run_inside(_parameters_were_written))
        )

    def admit(self, requests: Sequence[Request], done: list[Request]) -> list[Request]:
        """Run new samples until they wait for values, and append finished requests to `done`.
        Return the requests whose error another sample may have caused."""
        suspects: list[Request] = []
        before, predict = self._scope.evaluations, self._model.predict
        suspension = suspension_of(predict, [(each.sample,) for each in requests], True)
        for request in requests:
            each = _OnItsWay(request, predict, before, suspension)
            try:
                self._run_inside(self._advance, each, None, done)
            except _OF_ALL as error:
                request.error = error
                self._note_error(error)
                suspects.append(request)
        return suspects

    def _advance(self, each: '_OnItsWay', answer: Any, done: list[Request]) -> None:
        """Run a sample until it waits again, or append its finished request to `done`. Raises an
        error that another sample may have caused."""
        request, most = each.request, self._model.max_rounds
        try:
            waits = each.advance(answer)
            if waits and each.rounds > most:
                each.steps.close()
                raise StepsError(f'a sample waited for values {most} times')
        except Exception as error:
            cause = error.__cause__  # the user's error, in a SampleError
            is_caused = isinstance(error, SampleError) and isinstance(cause, Exception)
            own: Any = cause if is_caused else error
            if isinstance(own, _OF_ALL):
                raise own from None
            request.error = own
            self._note_error(own)
            done.append(request)
            return
        if waits:
            self._running.append(each)
            return
        if self._model.keeps_values is None and len(self._model.results) < _RESULTS:
            self._model.results.append(request.result)
        done.append(request)

    def round(self, done: list[Request], is_only: bool) -> None:
        """Evaluate what the samples wait for, advance them, and append finished requests to `done`.
        With `is_only`, no other batch has samples, so first calls may run beside the round."""
        if self._scope.calls_recorded > (self._collections + 1) * _CALLS_OF_GARBAGE:
            self._collections += 1  # open scopes pause Python's automatic collection
            collect(int(self._collections % _OLDER == 0))
        now = monotonic()
        for each in [each for each in self._running if each.request.is_given_up(now)]:
            self._run_inside(each.steps.close)
            self._running.remove(each)
            done.append(each.request)
        if not self._beginning and is_only:
            self._run_inside(self._begin)
        elif self._beginning and (self._over.done() or not is_only or not self._running):
            self._running, self._beginning = self._running + self._beginning, []
            self._over.result()
        running, answers = self._running, self._run_inside(self._evaluated, is_only)
        if self._forgets:
            samples = running + self._beginning
            self._scope.forget(min([each.before for each in samples], default=0))
        self._running = []
        for place, (each, answer) in enumerate(zip(running, answers)):
            try:
                self._run_inside(self._advance, each, answer, done)
            except _OF_ALL:
                self._running += running[place:]
                raise

    def _note_error(self, error: Optional[Exception]) -> None:
        self._has_failed = self._has_failed or error is not None
        if isinstance(error, StaleValueError):  # the model kept a value that was dropped
            self._model.keeps_values = True

    def _evaluated(self, is_only: bool) -> list[Any]:
        """Evaluate what the samples wait for, and return it. With other batches, wait for all
        calls: MXNet reports an error once, to the first that waits, and that must be this batch."""
        running = self._running
        if not is_only or any([each.wanted is None for each in running]):
            fence = hand_over(running)
            if fence is not None:
                fence.wait_to_read()
        return answers_for(running)

    def _begin(self) -> None:
        """Start the first calls of new samples, such as an encoder, beside the others' rounds. They
        run behind the calls that the other samples wait for."""
        joined = [each for each in self._running if each.rounds == 1]
        others = [each for each in self._running if each.rounds > 1]
        if not joined or not others:
            return
        hand_over(others)
        fence = hand_over(joined)
        if fence is not None:
            with suppress(RuntimeError):  # the interpreter ends, starts no threads: all wait
                self._over = self._model.waiter.submit(fence.wait_to_read)
                self._running, self._beginning = others, joined

    def close(self, error: Optional[Exception] = None) -> list[Request]:
        """Close all samples and leave the scope; return the requests that were in it."""
        samples = self._running + self._beginning
        for each in samples:
            self._run_inside(each.steps.close)
        if self._beginning and error is not None:
            self._over.exception()  # takes the error: restarted samples must not get it
        self._running, self._beginning = [], []
        self._run_inside(self._scope.__exit__, error and type(error), error, None)
        self._note_error(error)
        self._model.note_end(self._scope, self._has_failed)
        return [each.request for each in samples]


def _parameters_were_written() -> bool:
    scope = current_recording()
    return scope is not None and scope.model.any_touched()


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


class _OnItsWay:
    """Run the sample of a request; after its last step, wait for the result as for other values."""

    def __init__(
        self, request: Request, predict: Callable[[Any], Any], before: int, suspension: Any
    ):
        self.request, self.before, self.rounds, self.emitted = request, before, 0, 0
        self._suspension = suspension
        self.steps: Any = None
        self.wanted: Any = None
        self._predict, self._ended = predict, False

    @property
    def suspended(self) -> Any:
        """See `AdvancingSample`."""
        return None if self._ended else self.steps.suspended

    def advance(self, answer: Any) -> bool:
        """Run the sample until it waits again; return False once its result is set."""
        self.rounds += 1
        if not self._ended:
            _local.sample = self
            try:
                if self.steps is None:
                    self.steps = AdvancingSample(
                        self._predict, self.request.sample, 0, self._suspension
                    )
                waits = self.steps.advance(answer)
            finally:
                _local.sample = None  # do not keep the sample alive
            self._ended, self.wanted = not waits, self.steps.wanted if waits else self.steps.result
            if waits or _has_arrays(self.wanted):
                return True
            answer = self.wanted
        self.request.result = answer
        return False


def _has_arrays(value: Any) -> bool:
    leaves: list[Any] = []
    flatten(value, object, leaves)
    return any([isinstance(leaf, NDArray) for leaf in leaves])
