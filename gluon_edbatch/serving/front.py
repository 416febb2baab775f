"""The application that listens by HTTP: it keeps limits, and hands requests to workers."""

import asyncio
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from itertools import count
from time import monotonic
from typing import Any, Optional
from uuid import uuid4

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from pydantic_core import to_json
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from .expectation import Expectation
from .open_inference import HEADER_LENGTH, RequestError
from .pool import LOG, Pool
from .served_model import metric
from .worker import Answer, Call, error, event

LEAST_OPEN = 64  # requests that may be open however long they take
_BUSY = 16  # open requests, which tell how fast they can be done
SECONDS = 10.0  # for the headers of a request, and for its body
IDLE = 60.0  # seconds of a connection between requests
_REFUSED_S = 1.0  # for the headers of one that is too many
_PASSED_OVER = 8  # times the bytes that a body may have
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


class Connection(HttpToolsProtocol):
    """Ends where a request does not come in time, or its client is one too many."""

    most = soft_most = 1000  # connections: beyond the first nothing is read, beyond the second
    _limit: Optional[asyncio.TimerHandle] = None  # requests are refused

    def connection_made(self, transport: Any) -> None:
        """See asyncio."""
        super().connection_made(transport)
        self.is_too_many = len(self.connections) > self.soft_most
        if len(self.connections) > self.most:
            self._expire(error(503, 'too many connections: try again later'))
        else:
            self._begin(_REFUSED_S if self.is_too_many else SECONDS)

    def connection_lost(self, exc: Optional[Exception]) -> None:
        """See asyncio."""
        self._end()
        if self.scope is not None and 'gone' in self.scope:
            self.scope['gone']()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """See httptools."""
        super().on_message_begin()
        self._begin(_REFUSED_S if self.is_too_many else SECONDS)

    def on_headers_complete(self) -> None:
        """See httptools."""
        self._begin(SECONDS)
        self.scope['too_many'] = self.is_too_many
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """See httptools."""
        self._end()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """See Uvicorn."""
        self._expire(error(400, 'this is no request of HTTP/1.1'))

    def _begin(self, seconds: float) -> None:
        self._end()
        late = error(408, f'the request did not come within {seconds:g} seconds')
        self._limit = self.loop.call_later(seconds, self._expire, late)

    def _end(self) -> None:
        if self._limit is not None:
            self._limit.cancel()

    def _expire(self, answer: Answer) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
            headers = {**_headers(answer, True), 'content-length': str(len(answer.body))}
            lines = ''.join([f'{name}: {value}\r\n' for name, value in headers.items()])
            head = STATUS_LINE[answer.status] + lines.encode() + b'\r\n'
            self.transport.write(head + answer.body)
        self.transport.close()


class Front:
    """What is answered by whom; see ASGI.

    Parameters
    ----------
    pool : Pool
    options : argparse.Namespace
        Of the command line.
    """

    def __init__(self, pool: Pool, options: Any):
        self.pool, self._options = pool, options
        self.open, self.is_draining = 0, False
        self._expectation, self._ended = Expectation(), 0.0
        self._ids, self._prefix = count(1), uuid4().hex[:12]
        self._answers = metric(
            Counter, 'edb_answers', 'Requests by status.', ['protocol', 'status']
        )
        self._answered: dict[tuple[str, int], Any] = {}

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """While a request is open: no more than are done while one may wait, and refused at once
        beyond that, or where the server ends. Raises RequestError."""
        if self.is_draining:
            raise RequestError(503, 'the server ends: try elsewhere')
        seconds = self._expectation.work(self.open)
        if self.open >= LEAST_OPEN and seconds > self._options.max_wait:
            what = f'{self.open} requests are open, which takes some {1e3 * seconds:.0f} ms'
            raise RequestError(503, f'{what}: try again later')
        self.open += 1
        if self.open == _BUSY:
            self._ended = monotonic()
        try:
            yield
        finally:
            if self.open >= _BUSY:
                now = monotonic()
                self._expectation.note_round(1, now - self._ended)
                self._ended = now
            self.open -= 1

    def request_id(self, given: str) -> str:
        """What a request is called in answers and logs."""
        return given if _ID.fullmatch(given) else f'{self._prefix}-{next(self._ids)}'

    def note(self, protocol: str, what: str, id: str, status: int, begun: float) -> None:  # noqa: A002
        """Count and log an answer."""
        key = protocol, status
        if key not in self._answered:
            self._answered[key] = self._answers.labels(*map(str, key))
        self._answered[key].inc()
        level = logging.ERROR if status == 500 else logging.INFO
        if LOG.isEnabledFor(level):
            ms = round(1e3 * (monotonic() - begun), 3)
            fields = {'id': id, 'request': what[:200], 'status': status, 'ms': ms}
            LOG.log(level, '%s %s %d %.1f ms', id, what[:200], status, ms, extra={'fields': fields})

    def index(self) -> list[dict[str, str]]:
        """Every model, and whether it is there."""
        return [
            {
                'name': name,
                'version': '1',
                'state': 'READY' if self.is_ready(name) else 'UNAVAILABLE',
            }
            for name in self.pool.folders
        ]

    def is_ready(self, name: str = '') -> bool:
        """Whether a model is there, or all of them are."""
        is_there = name in self.pool.models if name else self.pool.is_ready
        return is_there and self.pool.has_workers and not self.is_draining

    def metadata(self, name: str, version: str = '') -> dict[str, Any]:
        """Metadata of a model, or of the server if it has no name. Raises RequestError."""
        if not name:
            return SERVER
        if name not in self.pool.folders or version not in ('', '1'):
            raise RequestError(404, f'there is no model {name[:100]} of version {version or 1}')
        if name not in self.pool.models:
            raise RequestError(503, f'the model {name} is not loaded now')
        metadata: dict[str, Any] = self.pool.models[name][0]
        return metadata

    async def change(self, kind: str, name: str) -> Answer:
        """Load or unload a model. Raises RequestError."""
        if not self._options.model_control:
            raise RequestError(403, 'models are loaded and unloaded with --model-control only')
        return await self.pool.change(kind, name)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """See ASGI."""
        begun, headers = monotonic(), dict(scope['headers'])
        id = self.request_id(headers.get(b'x-request-id', b'').decode('latin-1'))  # noqa: A001
        what, task = f'{scope["method"]} {scope["path"]}', asyncio.current_task()
        try:
            self._check(scope, headers)
            if (call := self._call(scope, headers, id)) is None:
                answer = await self._other(scope)
            else:
                with self.admitted():
                    call = call._replace(body=await self._body(receive))
                    scope['gone'] = task.cancel
                    if call.streams:
                        status = await self._stream(call, send, id)
                        return self.note('http', what, id, status, begun)
                    answer = await self.pool.ask(call)
        except RequestError as fault:
            answer = error(fault.status, str(fault))
            if fault.status == 413:
                await self._pass_over(receive)
        except asyncio.CancelledError:  # nobody waits for it
            return
        scope.pop('gone', None)
        ends = self.is_draining or scope.get('too_many') or answer.status == 413
        ends = ends or b'expect' in headers and answer.status != 200
        self.note('http', what, id, answer.status, begun)
        await _send(send, answer, id, bool(ends))

    def _check(self, scope: Any, headers: dict[bytes, bytes]) -> None:
        """Refuse what browsers send for pages of others, and what is too much."""
        host = headers.get(b'host', b'').decode('latin-1')
        name = host.rpartition(':')[0] if re.search(r':\d+$', host) else host
        if host and not (name in self._options.allowed_host or _is_local(name)):
            raise RequestError(403, 'this host is not served: see --allowed-host')
        origin = headers.get(b'origin', b'').decode('latin-1')
        if origin and origin.partition('://')[2] not in (host, *self._options.allowed_host):
            raise RequestError(403, 'pages of other origins are not served')
        if scope.get('too_many'):
            raise RequestError(503, 'too many connections: try again later')
        length = headers.get(b'content-length', b'0')
        if len(length) > 18 or int(length) > self._options.max_bytes:
            raise self._too_long()
        if headers.get(b'content-encoding', b'identity') != b'identity':
            raise RequestError(415, 'bodies are not to be compressed')

    def _call(self, scope: Any, headers: dict[bytes, bytes], id: str) -> Optional[Call]:  # noqa: A002
        """The request for results, if it is one."""
        path = _MODEL.fullmatch(scope['path'])
        if path is None or not (path[3] or '').startswith('infer') or self._is_aside(scope):
            return None
        if scope['method'] != 'POST':
            raise RequestError(405, 'requests for results are POST')
        self.metadata(path[1], path[2] or '')
        length = headers.get(HEADER_LENGTH.encode())
        streams = path[3] == 'infer_stream' or headers.get(b'accept') == b'text/event-stream'
        return Call('http', path[1], id, b'', length and length.decode('latin-1'), streams)

    def _is_aside(self, scope: Any) -> bool:
        """Whether it came to the port that is for metrics only."""
        return self._options.metrics_port != 0 and scope['server'][1] == self._options.metrics_port

    async def _other(self, scope: Any) -> Answer:
        path, is_post = scope['path'], scope['method'] == 'POST'
        if path == '/metrics':
            registry = CollectorRegistry()
            MultiProcessCollector(registry)
            text = {'content-type': 'text/plain; version=0.0.4; charset=utf-8'}
            return Answer(200, generate_latest(registry), text)
        if path == '/v2/health/live':
            return Answer(200)
        if path == '/v2/health/ready':
            return Answer(200) if self.is_ready() else error(503, 'not all models are there')
        if self.is_draining:
            raise RequestError(503, 'the server ends: try elsewhere')
        if self._is_aside(scope):
            raise RequestError(404, 'this port has /metrics and /v2/health')
        if path == '/v2/repository/index' and is_post:
            return Answer(200, to_json(self.index()))
        if (change := _CHANGE.fullmatch(path)) and is_post:
            return await self.change(change[2], change[1])
        if path.rstrip('/') == '/v2':
            return Answer(200, to_json(SERVER))
        if model := _MODEL.fullmatch(path):
            found = self.metadata(model[1], model[2] or '')
            return Answer(200, to_json({} if model[3] else found))
        pages = [folder / 'page.html' for folder in self.pool.folders.values()]
        page = next((each for each in pages if each.is_file()), None)
        if path == '/' and page is not None:
            return Answer(200, page.read_bytes(), _PAGE)
        raise RequestError(404, 'there is nothing: see the Open Inference Protocol')

    def _too_long(self) -> RequestError:
        return RequestError(413, f'the body is longer than {self._options.max_bytes} bytes')

    async def _pass_over(self, receive: Any) -> None:
        """What still comes, so that a client that is sending hears the answer; not without end."""
        most, more = _PASSED_OVER * self._options.max_bytes, True
        while more and most > 0:
            message = await receive()
            most -= len(message.get('body', b''))
            more = message['type'] == 'http.request' and message['more_body']

    async def _body(self, receive: Any) -> bytes:
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message['type'] != 'http.request':
                raise asyncio.CancelledError
            parts.append(message['body'])
            size, more = size + len(parts[-1]), message['more_body']
            if size > self._options.max_bytes:
                raise self._too_long()
        return parts[0] if len(parts) == 1 else b''.join(parts)

    async def _stream(self, call: Call, send: Any, id: str) -> int:  # noqa: A002
        status = 0
        async for part in self.pool.stream(call):
            if part.status != 200 and not status:
                await _send(send, part, id, self.is_draining)
                return part.status
            if not status:
                headers = {'content-type': 'text/event-stream', 'cache-control': 'no-store'}
                await _start(send, Answer(200, b'', headers), id, self.is_draining)
            body = part.body if part.status == 200 else event('error', part.body)
            message = {'type': 'http.response.body', 'body': body, 'more_body': not part.is_last}
            await send(message)
            status = part.status
        return status


def _is_local(host: str) -> bool:
    """Whether a host is this machine by its address, which no page of others can have by a trick
    of names."""
    try:
        return host == 'localhost' or bool(ip_address(host.strip('[]')))
    except ValueError:
        return False


def _headers(answer: Answer, ends: bool, id: str = '') -> dict[str, str]:  # noqa: A002
    headers = {**answer.headers, 'x-request-id': id} if id else dict(answer.headers)
    if answer.status == 503:
        headers['retry-after'] = '1'
    if ends:
        headers['connection'] = 'close'
    return headers


async def _start(send: Any, answer: Answer, id: str, ends: bool, **more: str) -> None:  # noqa: A002
    headers = {**_headers(answer, ends, id), **more}
    pairs = [(name.encode(), value.encode('latin-1')) for name, value in headers.items()]
    await send({'type': 'http.response.start', 'status': answer.status, 'headers': pairs})


async def _send(send: Any, answer: Answer, id: str, ends: bool) -> None:  # noqa: A002
    await _start(send, answer, id, ends, **{'content-length': str(len(answer.body))})
    await send({'type': 'http.response.body', 'body': answer.body})
