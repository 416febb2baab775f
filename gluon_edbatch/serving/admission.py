"""Refuses requests before anything is done for them, where more come than can be done."""

from contextlib import contextmanager
from time import monotonic
from typing import Any, Dict, Iterator, Optional

from .expectation import Expectation
from .requests import PATIENCE

_FEW = 64  # requests on their way that are never too many
UNAVAILABLE = 503


class Admission:
    """Requests that are on their way in a process, by HTTP and gRPC.

    An engine refuses what its queue has no room for, but what a server does for a request before
    and after, in its event loop and on the way to a worker, may be more than what the engine does:
    requests then wait there, and nobody counts them.
    """

    def __init__(self) -> None:
        self._open, self._ended = 0, 0.0
        self._expectation = Expectation()

    def refusal(self) -> Optional[str]:
        """Why one more is not taken: what is on its way would take longer than a second."""
        if self._open < _FEW or self._expectation.seconds(self._open + 1) <= PATIENCE:
            return None
        what = f'{self._open} requests are on their way, as many as can be done in a second'
        return f'{what}: try again later'

    @contextmanager
    def one_more(self) -> Iterator[None]:
        """While a request is on its way."""
        if not self._open:
            self._ended = monotonic()
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
            now = monotonic()
            if self._open:
                self._expectation.note_round(1, now - self._ended)
            self._ended = now


class BoundedRequests:
    """Answers 503 at once where too many requests are on their way.

    Parameters
    ----------
    app : ASGI application
    admission : Admission
    """

    def __init__(self, app: Any, admission: Admission):
        self._app, self._admission = app, admission

    async def __call__(self, scope: Dict[str, Any], receive: Any, send: Any) -> None:
        """See ASGI."""
        if scope['type'] != 'http' or not scope['path'].endswith('/infer'):
            await self._app(scope, receive, send)
            return
        refusal = self._admission.refusal()
        if refusal is not None:
            await answer(send, UNAVAILABLE, refusal)
            return
        with self._admission.one_more():
            await self._app(scope, receive, send)


async def answer(send: Any, status: int, what: str) -> None:
    """An error, after which the connection is closed: a body that was not read may follow."""
    headers = [(b'content-type', b'application/json'), (b'connection', b'close')]
    await send({'type': 'http.response.start', 'status': status, 'headers': headers})
    await send({'type': 'http.response.body', 'body': f'{{"error": "{what}"}}'.encode()})
