"""What was asked for and waits: by deadline, no more than may wait, refused at once beyond that."""

import heapq
import math
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from threading import Condition
from typing import Any, Callable, Optional

from ..errors import EngineClosedError, QueueFullError
from .expectation import Expectation

PATIENCE = 1.0  # seconds; a request without a deadline is in the row as if that was its own
Part = Callable[[int, Any], None]  # takes the number of a sample, and what its evaluation emits
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
        """Those with less are first."""
        return min(self.deadline, self.arrived + PATIENCE)

    def is_given_up(self, now: float) -> bool:
        """Whether nobody waits for it any more."""
        return self.deadline < now or self.reply.cancelled()


class Update(Future):
    """Something to `do` while no request is evaluated; its result is the future's."""

    def __init__(self, do: Callable[[], Any]):
        super().__init__()
        self.do = do


class RequestQueue:
    """Between those who ask, in any thread, and the one thread that evaluates."""

    def __init__(self, most: int, expectation: Expectation, max_wait: float = PATIENCE):
        self._most, self._max_wait = most, max_wait
        self.refused = self.cancelled = 0  # requests not taken, and taken out to make room
        self._expectation = expectation
        self.begun: set[Request] = set()  # taken from here; who answers them leaves them out
        self._waiting: list[tuple[float, int, Request]] = []
        self._updates: deque[Update] = deque()
        self._number = 0
        self._changed = Condition()
        self._open = False

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
            if not requests:
                return
            if len(self._waiting) + len(requests) > self._most:
                self._leave_out_cancelled()
            if len(self._waiting) + len(requests) > self._most:
                self._refuse(
                    requests, f'{len(self._waiting)} requests wait already, of {self._most} that '
                    f'may (max_queue), and {len(requests)} more came'
                )  # fmt: skip
            if requests[0].deadline == math.inf:
                self._check_wait(requests)
            else:
                self._check_deadline(requests)
            for request in requests:
                self._number += 1
                heapq.heappush(self._waiting, (request.urgency, self._number, request))
            self._changed.notify()

    def _refuse(self, requests: Sequence[Request], why: str) -> None:
        self.refused += len(requests)
        raise QueueFullError(f'{why}: try again later')

    def _check_wait(self, requests: Sequence[Request]) -> None:
        """Refuse requests without a deadline where what is before them takes over `max_wait`."""
        before = len(self._waiting) + len(self.begun)
        seconds = self._expectation.work(before)
        if seconds > self._max_wait:
            self._refuse(
                requests, f'{before} requests are to be done before, which would take some '
                f'{1e3 * seconds:.0f} ms, and {1e3 * self._max_wait:.0f} are waited for (max_wait)'
            )  # fmt: skip

    def _check_deadline(self, requests: Sequence[Request]) -> None:
        """Of the last of these, which have the same. Where nobody waits the first is always taken:
        an estimate that is too long would never be corrected."""
        request, others = requests[0], len(requests) - 1
        left, expectation = request.deadline - request.arrived, self._expectation
        if not self._waiting or expectation.seconds(len(self._waiting) + others) <= left:
            return
        before = sum([entry[0] <= request.urgency for entry in self._waiting]) + others
        expected = expectation.seconds(before)
        if expected > left:
            self._refuse(
                requests, f'the deadline, {1e3 * left:.0f} ms from now, is not to be met: '
                f'{before} requests are to be done before, and it would take some '
                f'{1e3 * expected:.0f} ms'
            )  # fmt: skip

    def _leave_out_cancelled(self) -> None:
        left = [entry for entry in self._waiting if not entry[2].reply.cancelled()]
        self.cancelled += len(self._waiting) - len(left)
        heapq.heapify(left)
        self._waiting = left

    def put_update(self, update: Update) -> None:
        """The same of an update, which is done before requests that come later."""
        with self._changed:
            self._check_open()
            self._updates.append(update)
            self._changed.notify()

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
            taken = self._most_urgent(room, running)
            self.begun.update(taken)
            return taken

    def _most_urgent(self, room: int, running: int) -> list[Request]:
        count = len(self._waiting)
        if count > room:  # more come than leave: what each does first is done in groups
            count = room if room * GROUPS >= room + running else 0
        if count == len(self._waiting):  # sorting is faster than taking one by one
            taken, self._waiting = sorted(self._waiting), []
            return [entry[2] for entry in taken]
        return [heapq.heappop(self._waiting)[2] for _ in range(count)]

    def take_update(self) -> Optional[Update]:
        """The next one, if any waits."""
        with self._changed:
            return self._updates.popleft() if self._updates else None
