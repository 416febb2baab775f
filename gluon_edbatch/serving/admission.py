"""Refuses requests before anything is done for them, where more come than can be done."""

import asyncio
import json
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any, Optional

from .expectation import Expectation, Overload
from .requests import PATIENCE

UNAVAILABLE, TOO_LATE = 503, 504
_ROUNDS = 4  # of the event loop for each that is taken; uvloop takes one connection in each
_UNREAD = 1 << 20  # bytes of a body that Uvicorn may pass over


class OneByOne:
    """Lets those who wait go on one by one, with rounds of the event loop between them, in which it
    takes connections, reads what has come, and refuses what is too much. Else all that came
    together, and were taken, would be prepared before anybody is answered.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future] = deque()
        self._goes_on = False

    async def turn(self) -> None:
        """Wait until all who came before have gone on."""
        loop = asyncio.get_running_loop()
        mine = loop.create_future()
        self._waiting.append(mine)
        if not self._goes_on:
            self._goes_on = True
            loop.call_soon(self._next, loop, 0)
        await mine

    def _next(self, loop: asyncio.AbstractEventLoop, rounds: int) -> None:
        if not rounds and self._let_one_go():
            rounds = _ROUNDS
        self._goes_on = rounds > 0
        if rounds:
            loop.call_soon(self._next, loop, rounds - 1)

    def _let_one_go(self) -> bool:
        while self._waiting:
            one = self._waiting.popleft()
            if not one.done():  # by being cancelled
                one.set_result(None)
                return True
        return False


class Admission:
    """Requests that are on their way in a process, by HTTP and gRPC.

    An engine refuses what its queue has no room for, but what a server does for a request before
    and after, in its event loop and on the way to a worker, may be more than what the engine does:
    requests then wait there, and nobody counts them.
    """

    def __init__(self) -> None:
        self._open, self._ended, self._is_alone = 0, 0.0, False
        self._expectation = Expectation(most=PATIENCE)
        self._overload = Overload(self._expectation)
        self._row = OneByOne()
        self.turn = self._row.turn  # of a request that is on its way

    def refusal(self) -> Optional[str]:
        """Why one more is not taken: what is on its way would take too long."""
        seconds = self._overload.refused(self._open, 1, monotonic())
        if seconds is None:
            return None
        what = f'{self._open} requests are on their way, which takes some {1e3 * seconds:.0f} ms'
        return f'{what}, and more come than can be done: try again later'

    @contextmanager
    def one_more(self) -> Iterator[list[bool]]:
        """While a request is on its way. Where the last of the list is not True, or an error comes,
        it was not done, and tells nothing of how long that takes."""
        begun = monotonic()
        self._is_alone = not self._open
        if self._is_alone:
            self._ended = begun
        self._open += 1
        done: list[bool] = [True]
        try:
            yield done
        except BaseException:
            done.append(False)
            raise
        finally:
            self._open -= 1
            if done[-1]:
                self._note(begun)

    def _note(self, begun: float) -> None:
        now = monotonic()
        if self._is_alone and not self._open:
            self._expectation.note_alone(now - begun)
        elif self._open and self._expectation.tells_speed(self._open, 1):
            self._expectation.note_round(1, now - self._ended)
        self._ended = now


class EarlyRefusal:
    """Answers 503 before a body is read, if it is short: the connection goes on behind it.
    It counts nobody: who sends slowly keeps no others out."""

    def __init__(self, app: Any, admission: Admission):
        self._app, self._admission = app, admission

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """See ASGI."""
        refusal = None
        if _asks(scope) and 0 < declared(scope) <= _UNREAD:
            refusal = self._admission.refusal()
        if refusal is None:
            await self._app(scope, receive, send)
        else:  # who asked whether to send the body does not send it now
            await answer(send, UNAVAILABLE, refusal, b'expect' in dict(scope['headers']))


class BoundedRequests(EarlyRefusal):
    """Answers 503 where too many requests are on their way, and counts those that are."""

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """See ASGI."""
        if not _asks(scope):
            await self._app(scope, receive, send)
            return
        refusal = self._admission.refusal()
        if refusal is not None:
            await answer(send, UNAVAILABLE, refusal)
            return
        with self._admission.one_more() as done:

            async def sent(message: dict[str, Any]) -> None:
                if message['type'] == 'http.response.start':
                    done.append(message['status'] < 400)
                await send(message)

            await self._admission.turn()
            await self._app(scope, receive, sent)


def _asks(scope: dict[str, Any]) -> bool:
    return scope['type'] == 'http' and scope['path'].endswith('/infer')


def declared(scope: dict[str, Any]) -> int:
    """How long a body is said to be; 0 if that is not said."""
    length = dict(scope['headers']).get(b'content-length', b'0')
    return int(length) if length.isdigit() else 0


async def answer(send: Any, status: int, what: str, ends: bool = False) -> None:
    """An error; after it the connection `ends`, where a body follows that nobody reads."""
    body = json.dumps({'error': what}).encode()
    await respond(send, status, body, [(b'connection', b'close')] if ends else [])


async def respond(
    send: Any, status: int, body: bytes, more: Sequence[tuple[bytes, bytes]] = ()
) -> None:
    """JSON, with more headers than are needed."""
    headers = [
        (b'content-type', b'application/json'),
        (b'content-length', str(len(body)).encode()),
        *more,
    ]
    await send({'type': 'http.response.start', 'status': status, 'headers': headers})
    await send({'type': 'http.response.body', 'body': body})


def log_only_faults() -> None:
    """Leave out of this process's logs that a request was refused, or too late: where that is,
    there is no time for tracebacks."""
    for name in ('mlserver.parallel', 'mlserver.grpc'):
        logging.getLogger(name).addFilter(_is_fault)


def _is_fault(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return getattr(error, 'status_code', None) not in (UNAVAILABLE, TOO_LATE)
