"""How long a request that comes now is going to take, by what others took."""

import math

_MEMORY_S = 1.0  # of evaluating, after which what was seen counts for a third
_ANSWERS = 16  # rounds with answers, the same


class Expectation:
    """Estimates, told by the thread that evaluates and asked by those who take requests.

    Rather too short than too long: a request that is taken and comes late fails by its deadline, as
    it would have anyway, and one that is refused might have been in time. So speed is that of
    rounds beside which requests waited: others would say how many come, not how many can be done.
    """

    def __init__(self) -> None:
        self._done = self._evaluated = 0.0  # requests, and in which seconds, lately
        self._seconds = 0.0  # of a request, once it has begun

    def note_round(self, done: int, seconds: float) -> None:
        """So many were done by a round beside which others waited."""
        kept = math.exp(-seconds / _MEMORY_S)
        self._done = kept * self._done + done
        self._evaluated = kept * self._evaluated + seconds

    def note_answers(self, seconds: float) -> None:
        """Requests took so long in the mean, once they had begun."""
        self._seconds += (seconds - self._seconds) / _ANSWERS

    def seconds(self, waiting: int) -> float:
        """Of a request for which so many are before it."""
        done = self._done
        return waiting * self._evaluated / done + self._seconds if done else 0.0
