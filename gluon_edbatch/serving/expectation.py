"""How fast an engine is lately, and so how long a request that comes now would take."""

import math

_MEMORY_S = 1.0  # of evaluating, after which what was seen counts for a third
_ANSWERS = 16  # rounds with answers, the same


class Expectation:
    """An estimate of speed, told by those who do the work and asked by those who take requests."""

    def __init__(self) -> None:
        self._done = self._evaluated = 0.0  # requests, and in which seconds, lately
        self._seconds = 0.0  # of a request, once it has begun

    def note_round(self, done: int, seconds: float) -> None:
        """So many were done in this time, while there was more to do."""
        kept = math.exp(-seconds / _MEMORY_S)
        self._done = kept * self._done + done
        self._evaluated = kept * self._evaluated + seconds

    def note_answers(self, seconds: float) -> None:
        """Requests took so long in the mean, once they had begun."""
        self._seconds += (seconds - self._seconds) / _ANSWERS

    def work(self, requests: int) -> float:
        """Seconds until so many are done; 0 if nothing is known."""
        return requests * self._evaluated / self._done if self._done else 0.0

    def seconds(self, waiting: int) -> float:
        """Seconds of a request for which so many are before it; 0 if nothing is known."""
        return self.work(waiting) + self._seconds if self._done else 0.0
