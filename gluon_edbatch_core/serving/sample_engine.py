"""The engine: one thread that evaluates the samples of many callers together."""

import asyncio
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import replace
from functools import partial
from itertools import cycle, islice
from time import monotonic, perf_counter
from typing import Any, Callable, Optional

from ..errors import DeadlineError, EngineClosedError
from .continuous_batching import ContinuousBatching
from .metrics import Metrics
from .requests import PATIENCE, LatencyEstimator, Request, RequestQueue

INTERVAL_S = 0.0005  # seconds that a thread runs Python while others wait
_lock = threading.Lock()
_intervals: list[float] = []  # to restore, for each open context of `short_gil_intervals`


class SampleEngine:
    """Evaluate the samples of many callers together, in one thread and in rounds.

    Samples that arrive during a round join the next one, or a later one if there are many. A sample
    leaves when it is done, and does not wait for the others.

    Parameters
    ----------
    new_batch : callable
        Makes an empty batch of samples that run together, as `ContinuousBatching` takes it.
    warm_up : sequence
        Samples that run, alone and together, before the first request is accepted.
    max_batch : int
        Samples that run together.
    max_queue : int, default 512
        Requests that may wait; more are refused at once.
    max_wait : float, default 1
        Seconds that the samples before a request may take, by how fast requests were done lately.
        If they take longer, a request without a deadline is refused at once.
    observe : callable, optional
        The engine's thread calls it with each name and value that it counts: an outcome and a
        number of requests, or a histogram of `Metrics` and the value added to it.

    Raises
    ------
    ValueError
        If a number is less than 1, or `max_wait` less than 0.
    """

    def __init__(
        self,
        new_batch: Callable[[], Any],
        warm_up: Sequence[Any],
        max_batch: int,
        max_queue: int = 512,
        max_wait: float = PATIENCE,
        observe: Optional[Callable[[str, float], None]] = None,
    ):
        at_least('max_batch', max_batch, 1)
        at_least('max_queue', max_queue, 1)
        at_least('max_wait', max_wait, 0)
        self._max_batch, self._warm_up = max_batch, list(warm_up)
        self._batches = ContinuousBatching(new_batch)
        self._estimator = LatencyEstimator()
        self._queue = RequestQueue(max_queue, self._estimator, max_wait)
        self._metrics, self._observe = Metrics(), observe or (lambda name, value: None)
        self._thread = threading.Thread(target=self._work, name='edb-engine', daemon=True)
        self._warm: Future[None] = Future()

    def submit(self, sample: Any, deadline: Optional[float] = None) -> 'asyncio.Future[Any]':
        """Submit a sample from asyncio: ``result = await engine.submit(sample)``.

        Parameters
        ----------
        sample : object
            The argument of `predict`. Do not change it until the result is there.
        deadline : float, optional
            Seconds from now. More urgent requests go first. The future raises `DeadlineError` once
            it has passed. A request without a deadline ranks as if it had one of 1 second, and is
            computed however long it waits.

        Returns
        -------
        asyncio.Future
            Has what `predict` returns, or the exception that it raises for this sample. Cancelling
            it, or the task that awaits it, removes the sample.

        Raises
        ------
        QueueFullError
            At once, if `max_queue` requests wait, or if the samples before it would take longer
            than its deadline, or than `max_wait` if it has none. Recent requests give the estimate.
        EngineClosedError
            If the engine has not started, or has been stopped.
        """
        return self.submit_all([sample], deadline)[0]

    def submit_all(
        self,
        samples: Sequence[Any],
        deadline: Optional[float] = None,
        part: Optional[Callable[[int, Any], None]] = None,
    ) -> 'list[asyncio.Future[Any]]':
        """Submit several samples from asyncio: the engine accepts all of them, or none.

        Parameters
        ----------
        samples : sequence
            Arguments of `predict`.
        deadline : float, optional
            See `submit`.
        part : callable, optional
            The engine's thread calls it with a sample's index and each value that `predict` passes
            to `gluon_edbatch.serving.emit` for that sample, before the result is there.

        Returns
        -------
        list of asyncio.Future
        """
        loop, now = asyncio.get_running_loop(), monotonic()
        requests = [Request(sample, loop.create_future(), now, deadline) for sample in samples]
        for number, request in enumerate(requests):
            request.part = part and partial(part, number)
        self._queue.put(requests)
        return [request.reply for request in requests]

    def future(self, sample: Any, deadline: Optional[float] = None) -> 'Future[Any]':
        """Submit a sample from any thread: ``result = engine.future(sample).result()``.

        Parameters
        ----------
        sample : object
            See `submit`.
        deadline : float, optional
            See `submit`.

        Returns
        -------
        concurrent.futures.Future
        """
        request = Request(sample, Future(), monotonic(), deadline)
        self._queue.put([request])
        return request.reply

    def update(self, change: Callable[[], Any]) -> 'Future[Any]':
        """Change the model while it serves, for example ``lambda: net.load_parameters(file)``. The
        change runs after all running samples and before all others. No sample sees both models.

        Parameters
        ----------
        change : callable
            A function without arguments; it runs in the engine's thread.

        Returns
        -------
        concurrent.futures.Future
            Has what `change` returns or raises; wait with ``await asyncio.wrap_future(...)``.
        """
        update = Request(change, Future(), 0.0, None)
        update.is_update = True
        self._queue.put([update])
        return update.reply

    def metrics(self) -> Metrics:
        """Return a copy of the metrics so far, with times in seconds. ``.prometheus()`` makes text
        for a scraper. Any thread may call this, also before the start and after the end."""
        queue, found = self._queue, deepcopy(self._metrics)
        found.outcomes['refused'] = queue.refused
        found.outcomes['cancelled'] += queue.cancelled
        return replace(found, queued=len(queue), running=len(self._batches))

    def start(self) -> None:
        """Start the engine's thread, warm up, then accept requests.

        Raises
        ------
        Exception
            The exception that `predict` raises for a sample of `warm_up`.
        """
        self._thread.start()
        self._warm.result()

    def stop(self) -> None:
        """Refuse new requests; accepted ones are still computed. The call returns at once. A signal
        handler may call it: ``loop.add_signal_handler(signal.SIGTERM, engine.stop)``."""
        self._queue.close()

    def close(self) -> None:
        """Refuse new requests, and wait until all accepted ones are done."""
        self.stop()
        if self._thread.ident is not None:
            self._thread.join()

    def __enter__(self) -> 'SampleEngine':
        self.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    async def __aenter__(self) -> 'SampleEngine':
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: Any) -> None:
        await asyncio.to_thread(self.close)

    def _work(self) -> None:
        failed: Optional[BaseException] = None
        try:
            self._get_warm()
            self._queue.open()
            self._warm.set_result(None)
            with short_gil_intervals():
                while self._step():
                    pass
        except BaseException as error:  # such as SystemExit, raised by the user's functions
            failed = error
        self._queue.close()
        self._batches.close()
        if failed is not None and not self._warm.done():
            self._warm.set_exception(failed)
        elif failed is not None:
            while self._queue.take(self._max_batch, 0):
                pass  # all of them are begun then
            for request in self._queue.begun:
                request.error = EngineClosedError(f'the engine ended by {failed!r}')
            self._answer(list(self._queue.begun))

    def _step(self) -> bool:
        """Run one round, or an update; return False once the queue is closed and empty."""
        batches, running = self._batches, len(self._batches)
        if not running and not len(self._queue):
            batches.close(only_empty=True)
        room = self._max_batch - running
        requests = self._queue.take(room, running) if batches.may_join else []
        if requests is None:
            return False
        if requests and requests[0].is_update:
            batches.close(only_empty=True)
            self._do_update(requests[0])
            return True
        begin, now = perf_counter(), monotonic()
        late: list[Request] = []
        wanted: list[Request] = []
        for request in requests:
            request.begun = now
            (late if request.is_given_up(now) else wanted).append(request)
        done = batches.admit(wanted)
        running = len(batches)
        if running:
            queued = len(self._queue)
            self._note('batch_size', running)
            self._observe('queued', queued)
            done += batches.round()
            seconds = perf_counter() - begin
            batches.note_round(seconds, joined=bool(wanted))
            if queued or 2 * running >= self._max_batch:  # smaller rounds do not show the capacity
                self._estimator.note_round(len(done), seconds)
        self._answer(late + done)
        return True

    def _do_update(self, update: Request) -> None:
        self._queue.begun.discard(update)
        if update.reply.set_running_or_notify_cancel():
            try:
                update.result = update.sample()
            except BaseException as error:
                update.error = error
            _reply([update])

    def _answer(self, done: list[Request]) -> None:
        """Count finished requests and set their futures; each event loop is woken once."""
        now = monotonic()
        by_loop: dict[Any, list[Request]] = defaultdict(list)
        self._queue.begun.difference_update(done)
        for request in done:
            if request.deadline < now and request.error is None:
                request.error = DeadlineError(
                    f'the deadline passed {1e3 * (now - request.deadline):.0f} ms ago, '
                    f'{1e3 * (now - request.arrived):.0f} ms after the request came'
                )
            reply = request.reply
            is_threads = isinstance(reply, Future)
            by_loop[None if is_threads else reply.get_loop()].append(request)
            if not (reply.set_running_or_notify_cancel() if is_threads else not reply.cancelled()):
                self._note('cancelled')
            elif request.error is not None:
                self._note('expired' if isinstance(request.error, DeadlineError) else 'failed')
            else:
                self._note('answered')
                self._note('waited', request.begun - request.arrived)
                self._note('evaluated', now - request.begun)
                self._note('total', now - request.arrived)
        _reply(by_loop.pop(None, []))  # after counting: who gets an answer may read the metrics
        for loop, requests in by_loop.items():
            with suppress(RuntimeError):  # the loop was closed: nobody waits
                loop.call_soon_threadsafe(_reply, requests)

    def _note(self, name: str, value: float = 1) -> None:
        self._metrics._note(name, value)
        self._observe(name, value)

    def _get_warm(self) -> None:
        """Run the warm-up samples: alone, in growing batches, and joining one by one."""
        if not self._warm_up:
            return
        most = self._max_batch
        for size in (*[1 << power for power in range((most - 1).bit_length())], most):
            self._run_to_end(size)
        self._run_to_end(most, together=False)
        self._run_to_end(most)
        self._end_learning()
        begin = perf_counter()
        self._run_to_end(most)
        self._estimator.note_round(most, perf_counter() - begin)
        self._batches.close(only_empty=True)

    def _end_learning(self) -> None:
        """End what the model learns while it warms up, before speed is measured."""

    def _run_to_end(self, size: int, together: bool = True) -> None:
        """Evaluate `size` warm-up samples; without `together`, one joins in each round."""
        samples = islice(cycle(self._warm_up), size)
        requests = [Request(sample, Future(), 0.0, None) for sample in samples]
        joining = size if together else 1
        while requests or len(self._batches):
            done = self._batches.admit(requests[:joining]) + self._batches.round()
            del requests[:joining]
            for request in done:
                if request.error is not None:
                    raise request.error


def at_least(name: str, value: float, least: float) -> None:
    """Raise ValueError if an argument of this name is less than it may be."""
    if not value >= least:
        raise ValueError(f'{name} is {least} or more, not {value}')


def _reply(requests: Sequence[Request]) -> None:
    for request in requests:
        if request.reply.done():  # it was cancelled
            continue
        if request.error is None:
            request.reply.set_result(request.result)
        else:
            request.reply.set_exception(request.error)


@contextmanager
def short_gil_intervals() -> Iterator[None]:
    """Lower Python's switch interval to `INTERVAL_S` while such a context is open.

    With Python's default, an event loop waits 5 ms for the GIL whenever the evaluating thread holds
    it, which is as long as the evaluation of a small batch.
    """
    with _lock:
        _intervals.append(sys.getswitchinterval())
        sys.setswitchinterval(min(_intervals[0], INTERVAL_S))
    try:
        yield
    finally:
        with _lock:
            sys.setswitchinterval(_intervals.pop())
