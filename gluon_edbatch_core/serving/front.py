"""The ASGI application behind HTTP: enforces limits, and passes requests to workers."""

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from ipaddress import ip_address
from time import monotonic
from typing import Any, Optional
from uuid import uuid4

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from pydantic_core import to_json
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from .open_inference import HEADER_LENGTH, Answer, Call, RequestError, check_model, error
from .requests import LatencyEstimator
from .worker_processes import LOG, WorkerPool

LEAST_OPEN = 32  # open requests that are never refused; from there on, speed is measured
IDLE = 60  # seconds that a connection stays open between requests
_LINGER = 1.0  # seconds in which a client can read why its connection ends, before it is closed
_PASSED_OVER = 8  # times `--max-bytes` are read of a body that is too long
_MODEL = re.compile('/v2/models/([^/]+)(?:/versions/([^/]+))?(?:/(infer|infer_stream|ready))?')
_CHANGE = re.compile('/v2/repository/models/([^/]+)/(load|unload)')
_ID = re.compile(r'[\w.:-]{1,100}', re.ASCII)
SERVER = {'name': 'gluon_edbatch', 'version': '1', 'extensions': ['binary_tensor_data']}
_PAGE = {
    'content-type': 'text/html; charset=utf-8',
    'content-security-policy': "default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; connect-src 'self'",
    'x-content-type-options': 'nosniff',
}
_ANSWERS = Counter('edb_answers', 'Requests by status.', ['protocol', 'status'])


class Connection(HttpToolsProtocol):
    """Serve an HTTP connection; end it if a request is late, or if too many are open."""

    most = 1000  # connections; more are answered 503 and closed
    seconds = 10.0  # in which a request has to arrive
    scope: Any
    _limit: Optional[asyncio.TimerHandle] = None  # while a request arrives
    _is_over = False

    def connection_made(self, transport: Any) -> None:
        """Wait for a request, or refuse the connection if too many are open. asyncio calls it."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            self._end(503, 'too many connections: try again later')
        else:
            self._begin()

    def data_received(self, data: bytes) -> None:
        """Parse bytes; if the connection is over, only read them. asyncio calls it."""
        if not self._is_over:
            self._begin()
            super().data_received(data)

    def connection_lost(self, exc: Optional[Exception]) -> None:
        """Stop the timer and cancel the open request. asyncio calls it."""
        self._stop()
        if self.scope is not None and 'task' in self.scope:
            self.scope['task'].cancel()
        super().connection_lost(exc)

    def on_message_complete(self) -> None:
        """Note that the whole request has arrived. httptools calls it."""
        super().on_message_complete()
        self._stop()

    def send_400_response(self, msg: str) -> None:
        """Answer 400 to malformed HTTP and close the connection. Uvicorn calls it."""
        self._end(400, 'this is no request of HTTP/1.1')

    def _begin(self) -> None:
        if self._limit is None:
            why = f'the request did not come within {self.seconds:g} seconds'
            self._limit = self.loop.call_later(self.seconds, self._end, 408, why)

    def _stop(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _end(self, status: int, why: str) -> None:
        """Tell the client why, unless another answer is under way, and close the connection. It is
        read for a moment more: a reset because of unread data would discard the answer."""
        self._stop()
        self._is_over = True
        cycle = self.cycle
        if cycle is None or not cycle.response_started or cycle.response_complete:
            answer = error(status, why)
            headers = [b'%s: %s\r\n' % each for each in _headers(answer, True)]
            self.transport.write(b''.join([STATUS_LINE[status], *headers, b'\r\n', answer.body]))
            self.transport.write_eof()
        if cycle is not None:
            cycle.disconnected = True  # the application can send no more
        self._limit = self.loop.call_later(_LINGER, self.transport.close)


class Front:
    """Answer HTTP requests as an ASGI application. `options` are those of the command line."""

    def __init__(self, pool: WorkerPool, options: Any):
        self.pool, self._options = pool, options
        self.open, self.is_draining = 0, False
        self._estimator, self._ended = LatencyEstimator(), 0.0

    def check_room(self) -> None:
        """Raise RequestError if the server ends, or if the open requests, at least `LEAST_OPEN`,
        would take longer than `--max-wait`, by how fast requests were done lately."""
        if self.is_draining:
            raise RequestError(503, 'the server ends: try elsewhere')
        seconds = self._estimator.seconds(self.open)
        if self.open >= LEAST_OPEN and seconds > self._options.max_wait:
            what = f'{self.open} requests are open, which takes some {1e3 * seconds:.0f} ms'
            raise RequestError(503, f'{what}: try again later')

    async def answers(self, call: Call) -> AsyncIterator[Answer]:
        """Yield a worker's answers to an inference request; raise RequestError without room."""
        with self.admitted():
            async for answer in self.pool.ask(call):
                yield answer

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Count a request as open inside the ``with``; raise RequestError if there is no room."""
        self.check_room()
        self.open += 1
        if self.open == LEAST_OPEN:
            self._ended = monotonic()
        try:
            yield
        finally:
            if self.open >= LEAST_OPEN:
                now = monotonic()
                self._estimator.note_round(1, now - self._ended)
                self._ended = now
            self.open -= 1

    def request_id(self, given: str) -> str:
        """Return the ID of a request: the client's if it is well-formed, else a new one."""
        return given if _ID.fullmatch(given) else uuid4().hex

    async def noted(
        self, protocol: str, what: str, name: str, answers: AsyncIterator[Answer]
    ) -> AsyncIterator[Answer]:
        """Pass the answers to a request on, the last of which may be a RequestError. Count their
        status, and log the request; the status is 499 if the client has gone."""
        begun, status = monotonic(), 499
        try:
            async for answer in answers:
                status = answer.status if answer.is_last else 499
                yield answer
        except RequestError as fault:
            status = fault.status
            yield error(status, str(fault))
        finally:
            _ANSWERS.labels(protocol, status).inc()
            level = logging.ERROR if status == 500 else logging.INFO
            if LOG.isEnabledFor(level):
                ms = round(1e3 * (monotonic() - begun), 1)
                fields = {'id': name, 'request': what[:200], 'status': status, 'ms': ms}
                LOG.log(level, ' '.join(map(str, fields.values())), extra={'fields': fields})

    def index(self) -> list[dict[str, str]]:
        """Return the name, version and state of every model."""
        states = {name: ('UNAVAILABLE', 'READY')[self.is_ready(name)] for name in self.pool.folders}
        return [{'name': name, 'version': '1', 'state': each} for name, each in states.items()]

    def is_ready(self, *names: str) -> bool:
        """Return whether the server takes requests for these models, by default for all."""
        are_there = set(names or self.pool.folders) <= self.pool.models.keys()
        return are_there and bool(self.pool.workers) and not self.is_draining

    def metadata(self, name: str, version: Optional[str]) -> dict[str, Any]:
        """Return the metadata of a model; raise RequestError if the model is not there."""
        check_model(f'{name}/{version or 1}', self.pool.folders, self.pool.models)
        found: dict[str, Any] = self.pool.models[name]
        return found

    async def change(self, kind: str, name: str) -> dict[str, Any]:
        """Load or unload a model; raise RequestError without `--model-control`."""
        if not self._options.model_control:
            raise RequestError(403, 'models are loaded and unloaded with --model-control only')
        await self.pool.change(kind, name)
        return {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one HTTP request. The ASGI server calls it."""
        headers, has_begun = dict(scope['headers']), False
        name = self.request_id(headers.get(b'x-request-id', b'').decode('latin-1'))
        what = f'{scope["method"]} {scope["raw_path"].decode("latin-1")}'
        scope['task'] = asyncio.current_task()
        answers = self.noted('http', what, name, self._answered(scope, headers, name, receive))
        with suppress(asyncio.CancelledError):  # the client has gone
            async for answer in answers:
                body, more = answer.body, not answer.is_last
                if not has_begun:
                    is_unread = answer.status != 200 and b'expect' in headers
                    ends = self.is_draining or is_unread or answer.status == 413
                    fields = [*_headers(answer, ends), (b'x-request-id', name.encode())]
                    start = {'type': 'http.response.start', 'headers': fields}
                    await send({**start, 'status': answer.status})
                    has_begun = True
                elif answer.status != 200:  # parts were sent already
                    body = b'event: error\ndata: %s\n\n' % body
                await send({'type': 'http.response.body', 'body': body, 'more_body': more})
        del scope['task']

    async def _answered(
        self, scope: Any, headers: dict[bytes, bytes], name: str, receive: Any
    ) -> AsyncIterator[Answer]:
        self._check(scope, headers)
        model, is_post = _MODEL.fullmatch(scope['path']), scope['method'] == 'POST'
        if model is None or model[3] not in ('infer', 'infer_stream'):
            yield await self._other(scope['path'], model, is_post)
            return
        if not is_post:
            raise RequestError(405, 'requests for results are POST')
        self.metadata(model[1], model[2])
        self.check_room()  # a request that is still arriving does not count as open
        length = headers.get(HEADER_LENGTH.encode(), b'').decode('latin-1') or None
        streams = model[3] == 'infer_stream' or headers.get(b'accept') == b'text/event-stream'
        body = await self._body(receive)
        call = Call('http', f'{model[1]}/1', name, body, length, streams)
        async for answer in self.answers(call):
            yield answer

    def _check(self, scope: Any, headers: dict[bytes, bytes]) -> None:
        """Refuse foreign hosts and origins, compressed bodies, and models at the metrics' port."""
        is_aside = scope['server'][1] == self._options.metrics_port
        if is_aside and not scope['path'].startswith(('/metrics', '/v2/health/')):
            raise RequestError(404, 'this port has /metrics and /v2/health')
        allowed = self._options.allowed_host
        host, origin = (headers.get(each, b'').decode('latin-1') for each in (b'host', b'origin'))
        if host and not _is_local(host) and re.sub(r':\d+$', '', host) not in allowed:
            raise RequestError(403, 'this host is not served: see --allowed-host')
        if origin and origin.partition('://')[2] not in (host, *allowed):
            raise RequestError(403, 'pages of other origins are not served')
        if headers.get(b'content-encoding', b'identity') != b'identity':
            raise RequestError(415, 'bodies are not to be compressed')

    async def _other(self, path: str, model: Optional[re.Match[str]], is_post: bool) -> Answer:
        if path == '/metrics':
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
            return Answer(200, generate_latest(registry), {'content-type': 'text/plain'})
        if path == '/v2/health/live':
            return Answer(200)
        if path == '/v2/health/ready':
            return Answer(200) if self.is_ready() else error(503, 'not all models are there')
        if self.is_draining:
            return error(503, 'the server ends: try elsewhere')
        if path == '/v2/repository/index' and is_post:
            return Answer(200, to_json(self.index()))
        if (change := _CHANGE.fullmatch(path)) and is_post:
            return Answer(200, to_json(await self.change(change[2], change[1])))
        if path.rstrip('/') == '/v2':
            return Answer(200, to_json(SERVER))
        if model:
            found = self.metadata(model[1], model[2])
            return Answer(200) if model[3] else Answer(200, to_json(found))
        pages = [folder / 'page.html' for folder in self.pool.folders.values()]
        page = next((each for each in pages if each.is_file()), None)
        if path == '/' and page is not None:
            return Answer(200, page.read_bytes(), _PAGE)
        return error(404, 'there is nothing here: see the Open Inference Protocol')

    async def _body(self, receive: Any) -> bytes:
        """Return the body of a request; raise RequestError if it is too long. The rest of a long
        body is read up to a limit, so that a client that is still sending hears the answer."""
        parts, size, more, most = [], 0, True, self._options.max_bytes
        while more and size <= _PASSED_OVER * most:
            message = await receive()
            if message['type'] != 'http.request':
                raise asyncio.CancelledError
            size, more = size + len(message['body']), message['more_body']
            if size <= most:
                parts.append(message['body'])
        if size > most:
            raise RequestError(413, f'the body is longer than {most} bytes')
        return b''.join(parts)


def _headers(answer: Answer, ends: bool) -> list[tuple[bytes, bytes]]:
    headers = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
    if answer.is_last:
        headers.append((b'content-length', b'%d' % len(answer.body)))
    if answer.status == 503:
        headers.append((b'retry-after', b'1'))
    if ends:
        headers.append((b'connection', b'close'))
    return headers


@lru_cache(1000)
def _is_local(host: str) -> bool:
    """Return whether a host is localhost or an IP address, which DNS rebinding cannot use."""
    name = re.sub(r':\d+$', '', host)
    with suppress(ValueError):
        return name == 'localhost' or bool(ip_address(name.strip('[]')))
    return False
