"""Measure how long the batches of an evaluation take, if a scope asks
(``batching(timing=True)``)."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Callable

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

_DOMAIN = mx.profiler.Domain('gluon_edbatch')


@contextmanager
def span(name: str) -> Iterator[None]:
    """Name what runs inside the ``with`` in MXNet's profiler, if the profiler is on."""
    task = _DOMAIN.new_task(name)
    task.start()
    try:
        yield
    finally:
        task.stop()


class Clock:
    """Measure the batches of one evaluation. Python waits for the engine at each step."""

    def __init__(self, batches: int):
        mx.nd.waitall()  # earlier failures are not attributed to these batches
        self._seconds = np.zeros(batches)
        self._laps: list[tuple[int, NDArray]] = []  # nanoseconds, from which batch on

    def run(self, first: int, step: Callable[[], None]) -> None:
        """Run and time a step from batch `first` on: one batch, unless it asks for `laps`."""
        mx.nd.waitall()
        known, begun = len(self._laps), time.perf_counter()
        step()
        mx.nd.waitall()
        if known == len(self._laps):
            self._seconds[first] = time.perf_counter() - begun

    def laps(self, first: int, last: int) -> NDArray:
        """Return an array where a run of batches `first` to before `last` adds nanoseconds."""
        laps = mx.nd.zeros((last - first,), mx.cpu(), 'int64')
        self._laps.append((first, laps))
        return laps

    def seconds(self) -> np.ndarray:
        """Return the seconds that each batch took."""
        for first, laps in self._laps:
            self._seconds[first : first + len(laps)] = 1e-9 * laps.asnumpy()
        return self._seconds
