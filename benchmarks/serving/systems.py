"""The systems that are compared: the engine, and windows of whole requests over the same model."""

import asyncio
import threading
import time
from queue import Empty, Queue
from typing import Any, Callable

import gluon_edbatch as edb

from .models import Model

_WAITING = 450  # and on their way
_PATIENT = 60.0  # seconds: the engine refuses nobody who says so, however busy the machine is

__all__ = ['Window', 'throughput_of_engine', 'throughput_together']


class Window:
    """Batch whole requests: from the first one that waits, for some time or up to a number.

    Parameters
    ----------
    together : callable
        Returns the results of a list of samples.
    seconds : float
    size : int
    """

    def __init__(self, together: Callable[[list[Any]], list[Any]], seconds: float, size: int):
        self._together, self._seconds, self._size = together, seconds, size
        self._queue: Queue[Any] = Queue()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> 'Window':
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._queue.put(None)
        self._thread.join()

    def submit(self, sample: Any) -> 'asyncio.Future[Any]':
        """Return a future of the sample's result."""
        future = asyncio.get_running_loop().create_future()
        self._queue.put((sample, future))
        return future

    def _work(self) -> None:
        item = self._queue.get()
        while item is not None:
            batch, until = [item], time.monotonic() + self._seconds
            while len(batch) < self._size:
                try:
                    wait = until - time.monotonic()
                    item = self._queue.get(wait > 0, max(wait, 0))
                except Empty:
                    break
                if item is None:
                    break
                batch.append(item)
            results = self._together([each for each, _ in batch])
            futures = [future for _, future in batch]
            futures[0].get_loop().call_soon_threadsafe(_resolve, futures, results)
            item = item and self._queue.get()


def _resolve(futures: list[Any], results: list[Any]) -> None:
    for future, result in zip(futures, results):
        future.set_result(result)


def throughput_together(
    model: Model, seconds: float, size: int = 64, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return samples a second, one minibatch of `size` after the other."""
    done, begin = 0, clock()
    while clock() - begin < seconds:
        model.together([model.samples[(done + i) % len(model.samples)] for i in range(size)])
        done += size
    return done / (clock() - begin)


def throughput_of_engine(
    engine: edb.serving.Engine,
    samples: list[Any],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Return samples a second with more requests than fit: each finished one sends another."""
    done = sent = 0
    over = threading.Semaphore(0)
    begin = clock()

    def send() -> None:
        nonlocal sent
        sent += 1
        engine.future(samples[sent % len(samples)], _PATIENT).add_done_callback(count)

    def count(_: Any) -> None:
        nonlocal done
        done += 1
        if clock() - begin < seconds:
            send()
        else:
            over.release()

    for _ in range(_WAITING):
        send()
    for _ in range(_WAITING):
        over.acquire()
    return done / (clock() - begin)
