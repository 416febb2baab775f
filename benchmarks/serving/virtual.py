"""Compare engine and windows in processor time, on machines that others use, too.

Engine and windows run in one thread. Arrivals follow a clock that counts the processor time of this
process, and jumps while there is no request. There is no other process, socket or thread: the
figures show how the order of the work affects latencies, and nothing else.
"""

import gc
import time
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from queue import Queue
from typing import Any, Callable, Optional
from unittest.mock import patch

import numpy as np

import gluon_edbatch as edb
from gluon_edbatch_core.errors import QueueFullError
from gluon_edbatch_core.serving.requests import Request

from .models import Model
from .systems import throughput_together

__all__ = ['compare']


class Clock:
    """Count seconds of processor time, and skipped seconds."""

    def __init__(self) -> None:
        self._skipped = -time.process_time()

    def __call__(self) -> float:
        return time.process_time() + self._skipped

    def skip_to(self, when: float) -> None:
        """Skip to a time, as there is nothing to do until then."""
        self._skipped += max(0.0, when - self())


class Arrivals:
    """Requests that arrive at given times, each with a future that is awaited: whoever serves them
    pays for that.

    Attributes
    ----------
    latencies : numpy.ndarray
        Seconds by request; NaN for refused or late ones.
    late : int
        Number of late requests.
    come : int
        Number of requests so far.
    left : int
        Number of requests without an answer.
    """

    def __init__(self, times: np.ndarray):
        self.clock, self.times = Clock(), times
        self.latencies = np.full(len(times), np.nan)
        self.come, self.left, self.late = 0, len(times), 0

    def due(self) -> list[tuple[int, 'Future[Any]']]:
        """Return numbers and futures of requests that arrived since the last call."""
        first = self.come
        self.come = int(np.searchsorted(self.times, self.clock(), side='right'))
        return [(number, self._future(number)) for number in range(first, self.come)]

    def refused(self) -> None:
        """Note that a request was refused."""
        self.left -= 1

    def _future(self, number: int) -> 'Future[Any]':
        future: Future[Any] = Future()
        future.add_done_callback(partial(self._note, number))
        return future

    def _note(self, number: int, reply: 'Future[Any]') -> None:
        self.left -= 1
        if reply.exception() is None:
            self.latencies[number] = self.clock() - self.times[number]
        else:
            self.late += 1


def engine_latencies(engine: edb.serving.Engine, samples: list[Any], times: Any) -> np.ndarray:
    """Return latencies of requests at these times, by an engine that was made and not started."""
    return engine_arrivals(engine, samples, times).latencies


def engine_arrivals(
    engine: edb.serving.Engine, samples: list[Any], times: Any, deadline: Optional[float] = None
) -> Arrivals:
    """Return the outcome of requests at these times."""
    arrivals = Arrivals(times)
    clock, answered = arrivals.clock, engine._answer

    def come() -> None:
        for number, reply in arrivals.due():
            request = Request(samples[number % len(samples)], reply, times[number], deadline)
            try:
                engine._queue.put([request])
            except QueueFullError:
                arrivals.refused()

    def answer(done: list[Request]) -> None:
        come()  # while those that are done were on their way
        answered(done)

    with patch('gluon_edbatch_core.serving.sample_engine.monotonic', clock), \
            patch('gluon_edbatch.serving.scope_batch.monotonic', clock), \
            patch('gluon_edbatch_core.serving.sample_engine.perf_counter', clock), \
            patch.object(engine, '_answer', answer):  # fmt: skip
        while arrivals.left:
            come()
            if len(engine._queue) or len(engine._batches):
                engine._step()
            else:
                clock.skip_to(times[arrivals.come])
    return arrivals


def window_latencies(
    together: Callable[[list[Any]], list[Any]],
    samples: list[Any],
    times: Any,
    window: float,
    size: int,
) -> np.ndarray:
    """Return latencies of requests at these times, by windows of so many seconds and requests."""
    arrivals, first = Arrivals(times), 0
    clock = arrivals.clock
    queue: Queue[Any] = Queue()  # as between those who ask and a thread that evaluates
    while arrivals.left:
        clock.skip_to(times[first])
        until = max(clock(), times[first] + window)
        if first + size <= len(times):
            until = min(until, max(clock(), times[first + size - 1]))
        clock.skip_to(until)
        for come in arrivals.due():
            queue.put(come)
        batch = [queue.get_nowait() for _ in range(min(size, queue.qsize()))]
        results = together([samples[number % len(samples)] for number, _ in batch])
        for (_, reply), result in zip(batch, results):
            if reply.set_running_or_notify_cancel():
                reply.set_result(result)
        first += len(batch)
    return arrivals.latencies


def compare(
    model: Model,
    loads: Sequence[float],
    windows: Sequence[tuple[float, int]],
    requests: int,
    rounds: int,
) -> list[dict[str, Any]]:
    """Print percentiles of the engine and the best of windows (milliseconds, size) at loads, each
    the median of some rounds, in turns; return rows for a picture."""
    engine = edb.serving.Engine(model.predict, warm_up=model.samples[:64], max_queue=10**6)
    with patch('gluon_edbatch_core.serving.sample_engine.perf_counter', time.process_time):
        engine._get_warm()
    engine._queue.open()
    gc.collect()
    gc.freeze()
    for _ in range(4):
        throughput_together(model, 0.2)
    capacity = _capacity(engine, model)
    systems: dict[Any, Callable[[Any], np.ndarray]] = {
        (window, size): partial(
            window_latencies, model.together, model.samples, window=window / 1e3, size=size
        )
        for window, size in windows
    }
    systems['engine'] = partial(engine_latencies, engine, model.samples)
    rows = []
    for load in loads:
        turns: dict[Any, list[Any]] = {each: [] for each in systems}
        for seed in range(rounds):
            times = _times(load * capacity, requests, seed)
            for each, latencies_at in systems.items():
                turns[each].append(1e3 * np.nanpercentile(latencies_at(times), (50, 99)))
        found = {each: np.median(some, 0) for each, some in turns.items()}
        rows += _told(load, found.pop('engine'), found)
    times, last = _times(2 * capacity, requests, rounds), rows[-2 if windows else -1]['p99'] / 1e3
    for deadline in (None, last):
        _tell_overload(engine_arrivals(engine, model.samples, times, deadline), deadline)
    return rows


def _tell_overload(arrivals: Arrivals, deadline: Optional[float]) -> None:
    latencies, count = arrivals.latencies, len(arrivals.times)
    late, refused = arrivals.late / count, (np.isnan(latencies).sum() - arrivals.late) / count
    with_it = f'a deadline of {1e3 * deadline:.1f} ms' if deadline else 'no deadlines'
    p50, p99 = 1e3 * np.nanpercentile(latencies, (50, 99))
    print(f'twice the capacity, {with_it}: {refused:.0%} refused, {late:.1%} late, engine '
          f'p50 {p50:.1f}, p99 {p99:.1f} ms', flush=True)  # fmt: skip


def _capacity(engine: edb.serving.Engine, model: Model) -> float:
    """Return samples for a second of processor time, of all that arrive together; beside
    minibatches."""
    together = throughput_together(model, 3.0, 64, time.process_time)
    everything = np.zeros(2000)
    turns = [engine_latencies(engine, model.samples, everything).max() for _ in range(3)]
    capacity = len(everything) / float(np.median(turns))
    print(f'engine {capacity:.0f} samples for a second of processor time, minibatches of 64 '
          f'{together:.0f}: {capacity / together:.2f}', flush=True)  # fmt: skip
    return capacity


def _told(load: float, ours: Any, rivals: dict[Any, Any]) -> list[dict[str, Any]]:
    rows = [{'kind': 'load', 'load': load, 'name': 'engine', 'p50': ours[0], 'p99': ours[1]}]
    text = f'load {load}: engine p50 {ours[0]:.1f}, p99 {ours[1]:.1f} ms'
    if rivals:
        best = min(rivals, key=lambda each: rivals[each][1])
        theirs = rivals[best]
        rows.append({**rows[0], 'name': 'best window', 'p50': theirs[0], 'p99': theirs[1]})
        text += (
            f'; best window ({best[0]} ms, {best[1]}) {theirs[0]:.1f}, {theirs[1]:.1f}: '
            f'{ours[0] / theirs[0]:.2f}, {ours[1] / theirs[1]:.2f}'
        )
    print(text, flush=True)
    return rows


def _times(rate: float, requests: int, seed: int) -> np.ndarray:
    return np.cumsum(np.random.RandomState(seed).exponential(1 / rate, requests))
