"""How long a request that comes now will take, by what others took; and if that is too long."""

import math
from collections.abc import Sequence
from typing import Optional

_MEMORY_S = 1.0  # of evaluating, after which what was seen counts for a third
_ANSWERS = 16  # rounds with answers, the same; and requests that were alone
_HIGH = 0.8  # of what can be done: a load at which hardly anybody is refused
_RARE = 0.01  # requests that may wait longer
_STEP = 0.2  # by which the margin changes where all take longer
_LITTLE = 0.5  # of what may be before a request
_WIDEST = 4.0  # margin: what came between once is no reason to refuse for long


class Expectation:
    """Estimates, told by the thread that evaluates and asked by those who take requests.

    `max_wait` are the seconds that may be before a request; without it `patience` finds them, and
    they are no more than `most`."""

    def __init__(self, max_wait: Optional[float] = None, most: float = math.inf) -> None:
        self._max_wait, self._most = max_wait, most
        self._done = self._evaluated = 0.0  # requests, and in which seconds, lately
        self._seconds = 0.0  # of a request, once it has begun
        self._alone = 0.0  # of a request beside which there is no other
        self.margin = 1.0  # times `seconds`, which a request rarely takes longer than

    def tells_speed(self, running: int, waiting: int) -> bool:
        """Whether a round with so many tells how many can be done, and not how many come: rounds
        of a half of what is borne, all of them, those beside which nobody waits as well."""
        borne = self._borne
        if borne == math.inf:
            return waiting > 0
        return 2 * self.work(running + waiting) >= min(borne, self.patience)

    def note_round(self, done: int, seconds: float) -> None:
        """So many were done by a round that `tells_speed`."""
        kept = math.exp(-seconds / _MEMORY_S)
        self._done = kept * self._done + done
        self._evaluated = kept * self._evaluated + seconds

    def note_answers(self, seconds: float) -> None:
        """Requests took so long in the mean, once they had begun."""
        self._seconds += (seconds - self._seconds) / _ANSWERS

    def note_alone(self, seconds: float) -> None:
        """A request took so long, while there was no other."""
        share = 1 / _ANSWERS if self._alone else 1.0
        self._alone += share * (seconds - self._alone)

    def note_totals(self, totals: Sequence[tuple[float, float]]) -> None:
        """Requests that were answered together took so long from when they came, and this long was
        expected then, without a margin: which grows until one of a hundred takes longer. What holds
        up one holds up those beside it, so they count as one."""
        longer = [seconds > self.margin * expected for seconds, expected in totals]
        margin = self.margin * math.exp(_STEP * (sum(longer) / len(longer) - _RARE))
        self.margin = min(max(1.0, margin), _WIDEST)

    def work(self, requests: int) -> float:
        """Seconds until so many are done; 0 if nothing is known."""
        return requests * self._evaluated / self._done if self._done else 0.0

    def seconds(self, waiting: int) -> float:
        """Of a request for which so many are before it."""
        return self.work(waiting) + self._seconds if self._done else 0.0

    @property
    def patience(self) -> float:
        """Seconds of work that may be before a request; infinite as long as nothing is known."""
        return min(self._borne, self._most) if self._max_wait is None else self._max_wait

    @property
    def _borne(self) -> float:
        """Rarely is more before a request where four fifths of what can be done are asked for.

        If n requests together take ``alone + n / speed``, and at a load they come as fast as they
        are done, that is ``alone / (1 - load)``. Who comes finds such a batch on its way and one
        that waits. And as they come by chance, there are more at times: at the 99th percentile, of
        a queue in which one is done after the other, ``ln(100) / (1 - load)`` requests.
        """
        if not self._done or not self._alone:
            return math.inf
        return (2 * self._alone - math.log(_RARE) * self.work(1)) / (1 - _HIGH)


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
