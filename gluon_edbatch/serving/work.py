"""Refuses requests over HTTP before anything is done for them, where more come than can be done."""

from time import monotonic
from typing import Any, Dict

from .expectation import Expectation
from .requests import PATIENCE

_FEW = 64  # requests on their way that are never too many


class BoundedWork:
    """Answers 503 at once where what is on its way would take longer than a second.

    An engine refuses what its queue has no room for, but what a server does for a request before
    and after, in its event loop and on the way to a worker, may be more than what the engine does:
    requests then wait there, and nobody counts them.

    Parameters
    ----------
    app : ASGI application
    """

    def __init__(self, app: Any):
        self._app, self._open, self._ended = app, 0, 0.0
        self._expectation = Expectation()

    async def __call__(self, scope: Dict[str, Any], receive: Any, send: Any) -> None:
        """See ASGI."""
        if scope['type'] != 'http' or not scope['path'].endswith('/infer'):
            await self._app(scope, receive, send)
            return
        if self._open >= _FEW and self._expectation.seconds(self._open + 1) > PATIENCE:
            what = f'{self._open} requests are on their way, as many as can be done in a second'
            await answer(send, 503, f'{what}: try again later')
            return
        if not self._open:
            self._ended = monotonic()
        self._open += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._open -= 1
            now = monotonic()
            if self._open:
                self._expectation.note_round(1, now - self._ended)
            self._ended = now


async def answer(send: Any, status: int, what: str) -> None:
    """An error, after which the connection is closed: a body that was not read may follow."""
    headers = [(b'content-type', b'application/json'), (b'connection', b'close')]
    await send({'type': 'http.response.start', 'status': status, 'headers': headers})
    await send({'type': 'http.response.body', 'body': f'{{"error": "{what}"}}'.encode()})
