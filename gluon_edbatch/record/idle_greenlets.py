"""Keep greenlets for samples. This module is never compiled: greenlet takes a greenlet without a
frame of Python for one that runs."""

import threading
from typing import Any, Optional

from greenlet import greenlet

_MOST_IDLE = 1024  # greenlets of a thread
OVER: Any = object()  # what a greenlet switches to its parent with, when its sample has finished


class SampleGreenlet(greenlet):
    """Run samples, one after the other: making a greenlet takes longer than reusing one."""

    __slots__ = ('fn', 'sample', 'result', 'error', 'contents')

    def __init__(self) -> None:
        super().__init__(self._work)
        self.fn: Any = None  # what runs the present sample
        self.sample = self.result = None
        self.error: Optional[BaseException] = None
        self.contents: Any = None  # reads values for it (see `LazyArray.asnumpy`)

    def _work(self) -> None:
        while True:
            try:  # here, where Python calls Python: what lies on C's stack is copied at each switch
                self.result = self.fn(self.sample)
            except BaseException as error:  # also an interrupt, which `send` raises
                self.error = error
            self.parent.switch(OVER)


class _Idle(threading.local):
    def __init__(self) -> None:
        self.workers: list[SampleGreenlet] = []


_idle = _Idle()


def new_worker() -> SampleGreenlet:
    """Return a greenlet that runs no sample."""
    return _idle.workers.pop() if _idle.workers else SampleGreenlet()


def take_result(worker: SampleGreenlet) -> tuple[Any, Optional[BaseException]]:
    """Return the result and the error of a sample that is over; keep its greenlet for another."""
    found = worker.result, worker.error
    worker.fn = worker.sample = worker.result = worker.error = worker.contents = None
    if worker and len(_idle.workers) < _MOST_IDLE:
        _idle.workers.append(worker)
    return found
