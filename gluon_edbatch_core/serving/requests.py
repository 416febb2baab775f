"""The queue of requests: bounded, ordered by deadline, with load shedding."""

import heapq
import math
from collections.abc import Sequence
from itertools import count
from threading import Condition
from typing import Any, Callable, Optional

from ..errors import EngineClosedError, QueueFullError

PATIENCE = 1.0  # seconds; a request without a deadline ranks as if it had this one
GROUPS = 2  # if more wait than fit, they join once 1 / GROUPS of all places is free
_MEMORY_S = 1.0  # seconds of evaluation after which a round counts for 1 / e


class Request:
    """A sample to evaluate, and `reply`, the future of asyncio or threads for its result.

    Cancelling the reply gives the sample up. `arrived`, `deadline` and `begun` (the start of its
    evaluation) are times of the monotonic clock. `part` is called with each emitted value;
    `emitted` counts them. The sample of an update is a function that changes the model.
    """

    begun, emitted, is_update = 0.0, 0, False
    part: Optional[Callable[[Any], None]] = None
    result: Any = None
    error: Optional[BaseException] = None

    def __init__(self, sample: Any, reply: Any, arrived: float, deadline: Optional[float]):
        self.sample, self.reply, self.arrived = sample, reply, arrived
        self.deadline = math.inf if deadline is None else arrived + deadline

    @property
    def urgency(self) -> float:
        """Return the rank in the queue; the request with the least goes first."""
        return -math.inf if self.is_update else min(self.deadline, self.arrived + PATIENCE)

    def is_given_up(self, now: float) -> bool:
        """Return whether the deadline has passed or the caller has cancelled the reply."""
        return self.deadline < now or self.reply.cancelled()


class LatencyEstimator:
    """Estimate how long requests take, from rounds that were noted lately."""

    def __init__(self) -> None:
        self._done = self._evaluated = 0.0  # recent requests, and the seconds that they took

    def note_round(self, done: int, seconds: float) -> None:
        """Note that `done` requests finished in these seconds, while more were waiting."""
        kept = math.exp(-seconds / _MEMORY_S)
        self._done = kept * self._done + done
        self._evaluated = kept * self._evaluated + seconds

    def seconds(self, requests: int) -> float:
        """Return the estimated seconds until so many requests are done; 0 without data."""
        return requests * self._evaluated / self._done if self._done else 0.0


class RequestQueue:
    """Pass requests from callers, in any thread, to the one thread that evaluates."""

    def __init__(self, most: int, estimator: LatencyEstimator, max_wait: float = PATIENCE):
        self._most, self._estimator, self._max_wait = most, estimator, max_wait
        self.refused = self.cancelled = 0  # requests not accepted, and removed to make room
        self.begun: set[Request] = set()  # taken from the queue; who answers them removes them
        self._waiting: list[tuple[float, int, Request]] = []
        self._numbers, self._open, self._changed = count(), False, Condition()

    def open(self) -> None:
        """Accept requests from now on."""
        self._open = True

    def close(self) -> None:
        """Refuse requests from now on; those that wait are still evaluated."""
        with self._changed:
            self._open = False
            self._changed.notify_all()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, requests: Sequence[Request]) -> None:
        """Queue all of these requests, or none. Raises QueueFullError if too many would wait, or
        for too long; raises EngineClosedError if the queue is closed."""
        with self._changed:
            if not self._open:
                raise EngineClosedError(
                    'the engine takes no requests: it was not started (`with engine:`, '
                    '`async with engine:`), or was told to stop'
                )
            why = self._why_not(requests)
            if why is not None:
                self.refused += len(requests)
                raise QueueFullError(f'{why}: try again later')
            for request in requests:
                heapq.heappush(self._waiting, (request.urgency, next(self._numbers), request))
            self._changed.notify()

    def _why_not(self, requests: Sequence[Request]) -> Optional[str]:
        """Return why to refuse these requests, which share one deadline; None to accept."""
        if not requests or requests[0].is_update:
            return None
        if len(self._waiting) + len(requests) > self._most:
            wanted = [entry for entry in self._waiting if not entry[2].reply.cancelled()]
            self.cancelled += len(self._waiting) - len(wanted)
            heapq.heapify(wanted)
            self._waiting = wanted
        if len(self._waiting) + len(requests) > self._most:
            return (
                f'{len(self._waiting)} requests wait already, of {self._most} that may '
                f'(max_queue), and {len(requests)} more came'
            )
        first, ahead = requests[0], len(self._waiting)
        left, limit = self._max_wait, 'max_wait'
        if first.deadline < math.inf:
            ahead = sum([rank <= first.urgency for rank, _, _ in self._waiting])
            left, limit = first.deadline - first.arrived, 'deadline'
        before = ahead + len(self.begun)
        seconds = self._estimator.seconds(before)
        if seconds <= left:
            return None
        return (
            f'{before} requests are to be done before, which would take some {1e3 * seconds:.0f} '
            f'ms, and {1e3 * left:.0f} are waited for ({limit})'
        )

    def take(self, room: int, running: int) -> Optional[list[Request]]:
        """Remove and return the most urgent requests, at most `room`; if none is running, block
        until one arrives. An update is taken alone, when no sample is running. Return None once the
        queue is closed and empty."""
        with self._changed:
            while not running and not self._waiting:
                if not self._open:
                    return None
                self._changed.wait()
            number = len(self._waiting)
            if number and self._waiting[0][2].is_update:
                number = 0 if running else 1
            elif number > room:  # more arrive than leave: let them join in groups
                number = room if room * GROUPS >= room + running else 0
            taken = [heapq.heappop(self._waiting)[2] for _ in range(number)]
            self.begun.update(taken)
            return taken
