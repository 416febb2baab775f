"""When a request comes to an engine that has too much to do."""

import math
from typing import Optional

from .expectation import Expectation

_LITTLE = 0.5  # of what may be before a request


class Overload:
    """Tells whether what is before a request would take too long.

    A burst is not overload: who comes to an idle engine, or soon after, has a list and waits for
    it. Where there was little to do just now, more came by chance, or the machine was slow. That
    does not hold where others were refused just now: under too high a load there is little to do,
    too, whenever many are answered together.

    As many as in a burst may be on their way until there is nothing to do again: who sends another
    one for each that was answered is never refused. A load that is too high comes whatever becomes
    of it, so each refusal takes one of these places away."""

    def __init__(self, expectation: Expectation):
        self._expectation = expectation
        self._idle = self._eased = -math.inf  # when there was nothing to do, and little
        self._last_refusal = -math.inf
        self._places = 0

    def refused(self, before: int, count: int, now: float) -> Optional[float]:
        """The seconds that those before `count` requests would take, if these are to be refused."""
        seconds, patience = self._expectation.work(before), self._expectation.patience
        little = _LITTLE * patience
        if not before:
            self._idle, self._places = now, 0
        if seconds <= little and now - self._last_refusal > patience:
            self._eased = now
        is_burst = now - self._idle <= patience or now - self._eased <= little
        if seconds <= patience or is_burst:
            self._places = max(self._places, before + count)
        elif before + count > self._places:
            self._places -= count
            self._last_refusal = now
            return seconds
        return None
