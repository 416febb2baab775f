"""When a request comes to an engine that has too much to do."""

import math
from typing import Optional

from .expectation import Expectation

_LITTLE = 0.5  # of what may be before a request: at a load that is too high it is never so little


class Overload:
    """Tells whether what is before a request would take too long.

    A burst is none: who comes to an engine that has little to do, and who comes soon after, has a
    list, and waits for it; or more came by chance, or the machine was slow, for a moment. As many
    may be on their way until there is little to do again: who sends another one for each that was
    answered is never refused. A load that is too high is known by coming whatever becomes of it, so
    each refusal takes one of these places away.

    Parameters
    ----------
    expectation : Expectation
        Of how long it takes, and what is too long.
    """

    def __init__(self, expectation: Expectation):
        self._expectation = expectation
        self._since, self._places = -math.inf, 0

    def refused(self, before: int, count: int, now: float) -> Optional[float]:
        """The seconds that those before `count` requests would take, if these are to be refused."""
        seconds, patience = self._expectation.work(before), self._expectation.patience
        if seconds <= _LITTLE * patience:
            self._since, self._places = now, 0
        if seconds <= patience or now - self._since <= patience:
            self._places = max(self._places, before + count)
        elif before + count > self._places:
            self._places -= count
            return seconds
        return None
