"""What was asked for and waits: by deadline, no more than may wait, refused at once beyond that."""

import heapq
import math
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from threading import Condition
from typing import Any, Callable, NamedTuple, Optional

from ..errors import EngineClosedError, QueueFullError
from .pace import Expectation

PATIENCE = 1.0  # seconds; a request without a deadline is in the row as if that was its own
GROUPS = 2  # of as many samples as may be on their way


class Request:
    """A sample that somebody waits for with `reply`, a future of asyncio or of threads.

    The reply is cancelled if they do not wait any more. `arrived`, `deadline` and `begun`, when
    evaluation began, are seconds of the clock. `part` takes each value that is emitted; `emitted`
    is how many it had.
    """

    __slots__ = ('sample', 'reply', 'arrived', 'deadline', 'begun', 'result', 'error', 'part',
                 'emitted')  # fmt: skip

    def __init__(self, sample: Any, reply: Any, arrived: float, deadline: Optional[float]):
        self.sample, self.reply, self.arrived = sample, reply, arrived
        self.deadline = math.inf if deadline is None else arrived + deadline
        self.begun, self.emitted = 0.0, 0
        self.part: Optional[Callable[[Any], None]] = None
        self.result: Any = None
        self.error: Optional[BaseException] = None

    @property
    def urgency(self) -> float:
        """Rank in the queue: the least is first."""
        return min(self.deadline, self.arrived + PATIENCE)

    def is_given_up(self, now: float) -> bool:
        """Whether nobody waits for it any more."""
        return self.deadline < now or self.reply.cancelled()


class Update(NamedTuple):
    """Something to `do` while no request is evaluated, and the future of its result."""

    do: Callable[[], Any]
    reply: 'Future[Any]'


class RequestQueue:
    """Between those who ask, in any thread, and the one thread that evaluates."""

    def __init__(self, most: int, expectation: Expectation, max_wait: float = PATIENCE):
        self._most, self._expectation, self._max_wait = most, expectation, max_wait
        self.refused = self.cancelled = 0  # requests not taken, and taken out to make room
        self.begun: set[Request] = set()  # taken from here; who answers them leaves them out
        self._waiting: list[tuple[float, int, Request]] = []
        self._updates: deque[Update] = deque()
        self._number, self._open, self._changed = 0, False, Condition()

    def open(self) -> None:
        """Take requests from now on."""
        self._open = True

    def close(self) -> None:
        """Take none any more; what waits is still to be done."""
        with self._changed:
            self._open = False
            self._changed.notify_all()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, requests: Sequence[Request]) -> None:
        """Let requests wait. Raises QueueFullError, and takes none of them, if too many would wait,
        or for too long; raises EngineClosedError if no requests are taken."""
        with self._changed:
            self._check_open()
            why = self._why_not(requests) if requests else None
            if why is not None:
                self.refused += len(requests)
                raise QueueFullError(f'{why}: try again later')
            for request in requests:
                self._number += 1
                heapq.heappush(self._waiting, (request.urgency, self._number, request))
            self._changed.notify()

    def _why_not(self, requests: Sequence[Request]) -> Optional[str]:
        """Why requests are refused, if they are; all of them have the same deadline."""
        if len(self._waiting) + len(requests) > self._most:
            self._leave_out_cancelled()
            if len(self._waiting) + len(requests) > self._most:
                return (
                    f'{len(self._waiting)} requests wait already, of {self._most} that may '
                    f'(max_queue), and {len(requests)} more came'
                )
        first, speed = requests[0], self._expectation
        if first.deadline == math.inf:
            before, left, limit = len(self._waiting) + len(self.begun), self._max_wait, 'max_wait'
            seconds = speed.work(before)
        elif self._waiting:
            before = sum([entry[0] <= first.urgency for entry in self._waiting]) + len(requests) - 1
            left, limit = first.deadline - first.arrived, 'deadline'
            seconds = speed.seconds(before)
        else:  # taken in any case: an estimate that is too long would never be corrected
            return None
        if seconds <= left:
            return None
        return (
            f'{before} requests are to be done before, which would take some {1e3 * seconds:.0f} '
            f'ms, and {1e3 * left:.0f} are waited for ({limit})'
        )

    def _leave_out_cancelled(self) -> None:
        left = [entry for entry in self._waiting if not entry[2].reply.cancelled()]
        self.cancelled += len(self._waiting) - len(left)
        heapq.heapify(left)
        self._waiting = left

    def put_update(self, do: Callable[[], Any]) -> 'Future[Any]':
        """Have something done before requests that come later; raises EngineClosedError."""
        with self._changed:
            self._check_open()
            self._updates.append(Update(do, Future()))
            self._changed.notify()
            return self._updates[-1].reply

    def _check_open(self) -> None:
        if not self._open:
            raise EngineClosedError(
                'the engine takes no requests: it was not started (`with engine:`, '
                '`async with engine:`), or was told to stop'
            )

    def take(self, room: int, running: int) -> Optional[list[Request]]:
        """The most urgent requests, no more than there is room for; waits for one, if none is
        running. None if there is nothing and never will be."""
        with self._changed:
            while not running and not self._waiting and not self._updates:
                if not self._open:
                    return None
                self._changed.wait()
            if self._updates:  # what is under way ends first, then the update, then the others
                return []
            count = len(self._waiting)
            if count > room:  # more come than leave: what each does first is done in groups
                count = room if room * GROUPS >= room + running else 0
            taken = [heapq.heappop(self._waiting)[2] for _ in range(count)]
            self.begun.update(taken)
            return taken

    def take_update(self) -> Optional[Update]:
        """The next one, if any waits."""
        with self._changed:
            return self._updates.popleft() if self._updates else None
