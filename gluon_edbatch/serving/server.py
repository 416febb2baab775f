"""MLServer around a folder: bodies of requests are bounded, and a signal lets it finish."""

import asyncio
import atexit
import gc
import os
import re
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Optional

from grpc import StatusCode
from mlserver import MLServer, Settings
from mlserver.cli.serve import load_settings
from mlserver.errors import MLServerError
from mlserver.grpc.utils import STATUS_CODE_MAPPING
from mlserver.types import InferenceRequest
from mlserver.utils import extract_headers, insert_headers
from pydantic import ValidationError
from starlette.middleware import Middleware

from .admission import (
    TOO_LATE,
    UNAVAILABLE,
    Admission,
    BoundedRequests,
    EarlyRefusal,
    answer,
    declared,
    log_only_faults,
    respond,
)

GRACE = 30.0  # seconds in which requests that were taken are to be done
# What MLServer has no code of gRPC for.
_CODES = {UNAVAILABLE: StatusCode.UNAVAILABLE, TOO_LATE: StatusCode.DEADLINE_EXCEEDED}
_MEASURED = 8  # requests
_PASSED_OVER = 8  # times the bytes that a body may have
_DEEPEST = 50
_PATH = re.compile('/v2/models/([^/]+)(?:/versions/([^/]+))?/infer')
_TEXT = re.compile(rb'"(?:[^"\\]+|\\.)*"?', re.DOTALL)
_NO_BRACKETS = re.compile(rb'[^\[\]{}]+')


class DrainingServer(MLServer):
    """Ends when what was taken is done: MLServer ends its workers first."""

    def __init__(self, settings: Settings, max_bytes: int):
        super().__init__(settings)
        self.failed = False
        self._stopping = False
        log_only_faults()
        self._admission = admission = Admission()
        app = self._rest_server._app
        app.user_middleware.append(Middleware(ShortWay, plane=self._data_plane))  # innermost
        app.add_middleware(BoundedRequests, admission=admission)
        self._grpc_server._data_plane = BoundedPlane(self._data_plane, admission)
        for status, code in _CODES.items():
            STATUS_CODE_MAPPING.setdefault(status, code)
        app.add_middleware(BoundedBody, max_bytes=max_bytes)
        app.add_middleware(EarlyRefusal, admission=admission)

    async def is_ready(self) -> bool:
        """Whether its models are."""
        models = list(await self._model_registry.get_models())
        return bool(models) and all([model.ready for model in models])

    async def measure(self, example: Any) -> None:
        """How long a request takes that is alone: how many are too many is known by that."""
        for model in await self._model_registry.get_models():
            for _ in range(_MEASURED):
                payload = InferenceRequest.model_validate(example)
                with self._admission.one_more():
                    await self._data_plane.infer(payload, model.name)

    async def stop(self, sig: Optional[int] = None) -> None:
        """Take no more requests, finish those that were taken, then end."""
        if self._stopping:
            return
        self._stopping, self.failed = True, sig is None
        await self._rest_server.stop(sig)
        uvicorn = self._rest_server._server
        until = asyncio.get_running_loop().time() + GRACE
        while uvicorn.server_state.tasks and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.02)
        uvicorn.force_exit = True
        await super().stop(sig)


class BoundedPlane:
    """MLServer's data plane for requests that come by gRPC: refuses what `BoundedRequests` does."""

    def __init__(self, plane: Any, admission: Admission):
        self._plane, self._admission = plane, admission

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plane, name)

    async def infer(self, *args: Any, **options: Any) -> Any:
        """See MLServer; raises its error with status 503 if too many requests are on their way."""
        refusal = self._admission.refusal()
        if refusal is not None:
            raise MLServerError(refusal, UNAVAILABLE)
        with self._admission.one_more():
            await self._admission.turn()
            return await self._plane.infer(*args, **options)


class ShortWay:
    """Answers as MLServer's route for inference does, in half of the time: pydantic reads and
    writes the JSON itself. What is not plain is left to that route: another path or type, and a
    body in which something is wrong. `app` has the routes, and gets bodies in one piece."""

    def __init__(self, app: Any, plane: Any):
        self._app, self._plane = app, plane

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """See ASGI."""
        path = _PATH.fullmatch(scope['path']) if _is_plain(scope) else None
        if path is None:
            await self._app(scope, receive, send)
            return
        messages = [await receive()]
        payload = _request(messages[0])
        if payload is None:

            async def received() -> Any:
                return messages.pop() if messages else await receive()

            await self._app(scope, received, send)
            return
        # By these MLServer's metrics know the path.
        scope['endpoint'], scope['router'] = self._plane.infer, scope['app'].router
        insert_headers(payload, {_text(name): _text(value) for name, value in scope['headers']})
        await self._infer(payload, path.groups(), send)

    async def _infer(self, payload: InferenceRequest, names: tuple[Any, ...], send: Any) -> None:
        try:
            response = await self._plane.infer(payload, *names)
        except MLServerError as error:
            await answer(send, error.status_code, str(error))
            return
        headers: list[tuple[bytes, bytes]] = [
            (name.lower().encode('latin-1'), value.encode('latin-1'))
            for name, value in (extract_headers(response) or {}).items()
        ]
        await respond(send, 200, response.model_dump_json().encode(), headers)


def _is_plain(scope: dict[str, Any]) -> bool:
    return (
        scope['type'] == 'http'
        and scope['method'] == 'POST'
        and dict(scope['headers']).get(b'content-type') == b'application/json'
    )


def _request(message: dict[str, Any]) -> Optional[InferenceRequest]:
    """None if it is none, or not all of it."""
    if message.get('more_body', message['type'] != 'http.request'):
        return None
    try:
        return InferenceRequest.model_validate_json(message['body'])
    except ValidationError:
        return None


def _text(header: bytes) -> str:
    return header.decode('latin-1')


class BoundedBody:
    """Answers 413 where the body of a request is too large, before it is read."""

    def __init__(self, app: Any, max_bytes: int):
        self._app, self._max_bytes = app, max_bytes

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """See ASGI."""
        if scope['type'] != 'http':
            await self._app(scope, receive, send)
            return
        body, more = [], scope['method'] in ('POST', 'PUT')
        size = declared(scope)
        while more and size <= self._max_bytes:
            message = await receive()
            if message['type'] != 'http.request':
                return
            body.append(message.get('body', b''))
            size, more = max(size, sum(map(len, body))), message.get('more_body', False)
        if size > self._max_bytes:
            await _pass_over(receive, more, _PASSED_OVER * self._max_bytes)
            await answer(send, 413, f'the body is longer than {self._max_bytes} bytes', True)
            return
        if dict(scope['headers']).get(b'content-encoding', b'identity') != b'identity':
            await answer(send, 415, 'bodies are not to be compressed')
            return
        if _is_deep(b''.join(body)):
            await answer(send, 422, f'the body is nested more than {_DEEPEST} levels deep')
            return
        whole = [{'type': 'http.request', 'body': b''.join(body), 'more_body': False}]

        async def received() -> Any:
            return whole.pop() if whole else await receive()

        await self._app(scope, received if body else receive, send)


def _is_deep(body: bytes) -> bool:
    """Whether JSON is nested so deep that it could not be handed to a worker. Texts in it, as
    samples are, may hold any brackets."""
    brackets = _NO_BRACKETS.sub(b'', _TEXT.sub(b'', body))
    depth = 0
    if len(brackets) > 2 * _DEEPEST:
        for bracket in brackets:
            depth += 1 if bracket in b'[{' else -1
            if depth > _DEEPEST:
                return True
    return False


async def _pass_over(receive: Any, more: bool, most: int) -> None:
    """What still comes, so that a client that is sending hears the answer; an endless one not."""
    while more and most > 0:
        message = await receive()
        most -= len(message.get('body', b''))
        more = message['type'] == 'http.request' and message.get('more_body', False)


async def serve(
    folder: Path, settings: dict[str, Any], max_bytes: int, ready: list[str], example: Any
) -> int:
    """Serve until a signal comes, and say when it is ready; gives the exit status. The example is
    the body of a request, or None."""
    made, models = await load_settings(str(folder))
    values = {**made.model_dump(), **settings}
    # Whoever asks for it in settings.json, or in the environment, gets it.
    values['gzip_enabled'] = made.gzip_enabled and 'gzip_enabled' in made.model_fields_set
    values['metrics_dir'] = _metrics_dir()
    server = DrainingServer(Settings(**values), max_bytes)
    telling = asyncio.ensure_future(_tell(server, ready, example))
    try:
        await server.start(models)
    finally:
        telling.cancel()
    return 1 if server.failed else 0


async def _tell(server: DrainingServer, ready: list[str], example: Any) -> None:
    while not await server.is_ready():
        await asyncio.sleep(0.05)
    if example is not None:
        with suppress(MLServerError):
            await server.measure(example)
    gc.collect()
    gc.freeze()  # or a collection walks through MXNet's half a million objects: 0.1 s
    print('\n'.join(ready), flush=True)


def _metrics_dir() -> str:
    """Where workers leave their counts; gone with the process."""
    directory, process = tempfile.mkdtemp(prefix='edb-metrics-'), os.getpid()

    def remove() -> None:
        if os.getpid() == process:
            shutil.rmtree(directory, ignore_errors=True)

    atexit.register(remove)
    return directory
