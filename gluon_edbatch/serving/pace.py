"""Latency estimates, the pace at which samples join, and the switch interval of threads."""

import math
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

_MEMORY_S = 1.0  # seconds of evaluation after which a round counts for 1 / e
_ANSWERS = 16  # rounds with answers after which an answer counts for some 1 / e
SHARE = 0.5  # of the seconds of a round with joining, for rounds without, before the next
_LATELY = 3  # rounds with joining, of which the shortest counts
INTERVAL_S = 0.0005  # seconds that a thread runs Python while others wait
_lock = threading.Lock()
_intervals: list[float] = []  # to restore, for each open context of `short_intervals`


class Expectation:
    """Estimate how long requests take, from rounds and answers that were noted lately."""

    def __init__(self) -> None:
        self._done = self._evaluated = 0.0  # recent requests, and the seconds that they took
        self._seconds = 0.0  # from the start of a request to its answer, on average

    def note_round(self, done: int, seconds: float) -> None:
        """Note that `done` requests finished in these seconds, while more were waiting."""
        kept = math.exp(-seconds / _MEMORY_S)
        self._done = kept * self._done + done
        self._evaluated = kept * self._evaluated + seconds

    def note_answers(self, seconds: float) -> None:
        """Note the mean seconds from the start of requests to their answers."""
        self._seconds += (seconds - self._seconds) / _ANSWERS

    def work(self, requests: int) -> float:
        """Return the estimated seconds until so many requests are done; 0 without data."""
        return requests * self._evaluated / self._done if self._done else 0.0

    def seconds(self, waiting: int) -> float:
        """Return the estimated seconds of a request behind so many others; 0 without data."""
        return self.work(waiting) + self._seconds if self._done else 0.0


class Pace:
    """Decide in which rounds new samples join the running ones.

    A sample's first step, such as an encoder, may take much longer than later steps, and all others
    wait for it. After a round in which samples joined, rounds without joining therefore get a share
    of its seconds. If joining is expensive, samples thus join in larger groups.
    """

    def __init__(self) -> None:
        self._joining: deque[float] = deque([0.0], maxlen=_LATELY)
        self._since = 0.0

    def may_join(self, running: int) -> bool:
        """Return whether new samples may join now, with `running` samples on their way."""
        return not running or self._since >= SHARE * min(self._joining)

    def note(self, seconds: float, joined: bool, is_beginning: bool = False) -> None:
        """Note the seconds of a round, and whether samples joined in it. `is_beginning` says that
        first calls of samples that joined earlier ran beside it."""
        if joined:
            self._joining.append(seconds)
            self._since = 0.0
        elif is_beginning:
            self._joining[-1] += seconds
        else:
            self._since += seconds


@contextmanager
def short_intervals() -> Iterator[None]:
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
