"""How fast an engine is, when samples join those on their way, and how long a thread runs."""

import math
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

_MEMORY_S = 1.0  # of evaluating, after which what was seen counts for a third
_ANSWERS = 16  # rounds with answers, the same
SHARE = 0.5  # of the seconds of a round in which samples joined, before others do
_LATELY = 3  # rounds of those, of which the shortest counts
INTERVAL_S = 0.0005  # for which a thread runs Python while others wait
_lock = threading.Lock()
_intervals: list[float] = []  # before each context of `short_intervals` that is open


class Expectation:
    """An estimate of speed, told by those who do the work and asked by those who take requests."""

    def __init__(self) -> None:
        self._done = self._evaluated = 0.0  # requests, and in which seconds, lately
        self._seconds = 0.0  # of a request, once it has begun

    def note_round(self, done: int, seconds: float) -> None:
        """Note that so many were done in this time, while there was more to do."""
        kept = math.exp(-seconds / _MEMORY_S)
        self._done = kept * self._done + done
        self._evaluated = kept * self._evaluated + seconds

    def note_answers(self, seconds: float) -> None:
        """Note the mean seconds that requests took once they had begun."""
        self._seconds += (seconds - self._seconds) / _ANSWERS

    def work(self, requests: int) -> float:
        """Seconds until so many are done; 0 if nothing is known."""
        return requests * self._evaluated / self._done if self._done else 0.0

    def seconds(self, waiting: int) -> float:
        """Seconds of a request for which so many are before it; 0 if nothing is known."""
        return self.work(waiting) + self._seconds if self._done else 0.0


class Pace:
    """Decides in which rounds samples join those on their way.

    What a sample does first, as an encoder, may take much longer than later steps, and all others
    wait for it. So rounds in which nobody joins get a share of the seconds of one in which somebody
    did. Where joining costs much, samples join in groups that are the larger the more come.
    """

    def __init__(self) -> None:
        self._joining: deque[float] = deque([0.0], maxlen=_LATELY)
        self._since = 0.0

    def may_join(self, running: int) -> bool:
        """Whether samples may join so many others now."""
        return not running or self._since >= SHARE * min(self._joining)

    def note(self, seconds: float, joined: bool, is_beginning: bool = False) -> None:
        """Note how long a round took, whether samples joined in it, and whether what those that
        joined before need first was computed beside it."""
        if joined:
            self._joining.append(seconds)
            self._since = 0.0
        elif is_beginning:
            self._joining[-1] += seconds
        else:
            self._since += seconds


@contextmanager
def short_intervals() -> Iterator[None]:
    """Let threads of this process take turns of `INTERVAL_S`, as long as such a context is open.

    By Python's default an event loop waits 5 ms for each turn that the evaluating thread leaves it,
    which is as long as the evaluation of a small batch.
    """
    with _lock:
        _intervals.append(sys.getswitchinterval())
        sys.setswitchinterval(min(_intervals[0], INTERVAL_S))
    try:
        yield
    finally:
        with _lock:
            sys.setswitchinterval(_intervals.pop())
