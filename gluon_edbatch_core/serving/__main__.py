"""The command line: serve folders of models by REST and gRPC."""

import argparse
import asyncio
import json
import logging
import os
import resource
import shlex
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

from ..errors import FolderError
from .folder import name_of

DRAINING_S = 0.5  # seconds in which the ending server still listens, and refuses requests
GRACE_S = 30.0  # seconds in which accepted requests may finish
SPARE_FILES = 64  # open files that are kept for other uses than connections


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """Serve until SIGINT or SIGTERM arrives. Exits with one sentence if the server cannot start."""
    options = _options(arguments)
    _log(options)
    directory = tempfile.mkdtemp(prefix='edb-metrics-')  # where workers leave their counts
    try:
        folders = {name_of(folder): folder.resolve() for folder in options.folders}
        if len(folders) < len(options.folders):
            raise FolderError('two folders have the same name: see model-settings.json')
        os.environ['PROMETHEUS_MULTIPROC_DIR'] = directory
        import uvloop

        uvloop.run(serve(options, folders))
    except FolderError as error:
        sys.exit(f'serve: {error}')
    except ImportError as error:
        extras = 'serve,otel' if options.otel else 'serve'
        sys.exit(f"serve: the extra is missing: `pip install '.[{extras}]'` ({error})")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _options(arguments: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='python -m gluon_edbatch_core.serving', description=__doc__,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add('folders', type=Path, nargs='+', metavar='FOLDER',
        help='of a model: what edb.export wrote, or with a model.py')  # fmt: skip
    add('--host', default='127.0.0.1', help='where to listen')
    for name, default, what in (
        ('port', 8080, 'of REST and the page'),
        ('grpc-port', 8081, 'of gRPC'),
        ('metrics-port', 8082, 'of /metrics, which --port has as well; 0: none'),
        ('workers', 1, 'processes that evaluate; 0: the one that listens does'),
        ('max-bytes', 8 << 20, 'of the body of a request'),
        ('max-connections', 1000, 'that are open at a time'),
        ('max-wait', 0.1, 'seconds that open requests may take; more are refused'),
        ('timeout', 10.0, 'seconds in which a request has to arrive'),
    ):
        add(f'--{name}', type=type(default), default=default, metavar='N', help=what)
    add('--allowed-host', action='append', default=[], metavar='NAME',
        help='under which it is served, beside addresses and localhost')  # fmt: skip
    add('--model-control', action='store_true', help='load and unload models by requests')
    add('--log-format', choices=['text', 'json'], default='text')
    add('--otel', action='store_true', help='trace requests by OpenTelemetry, of the extra otel')
    add('--verbose', action='store_true', help='log each request')
    return parser.parse_args(arguments)


class _JsonFormatter(logging.Formatter):
    """Format each log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {'time': record.created, 'level': record.levelname, 'logger': record.name}
        fields.update(getattr(record, 'fields', None) or {'message': record.getMessage()})
        if record.exc_info:
            fields['traceback'] = self.formatException(record.exc_info)
        return json.dumps(fields)


def _log(options: argparse.Namespace) -> None:
    handler = logging.StreamHandler()
    if options.log_format == 'json':
        handler.setFormatter(_JsonFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], format='%(message)s', force=True)
    logging.getLogger('edb.serving').setLevel(logging.INFO if options.verbose else logging.WARNING)


def _bracketed(host: str) -> str:
    return f'[{host}]' if ':' in host else host


def _listen(host: str, port: int, option: str) -> socket.socket:
    try:
        family = socket.AF_INET6 if ':' in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=2048)
    except (OSError, OverflowError) as error:
        reason = getattr(error, 'strerror', None) or str(error)
        sys.exit(f'serve: {host}:{port}: cannot listen there: {reason} ({option})')


async def serve(options: argparse.Namespace, folders: dict[str, Path]) -> None:
    """Start workers, REST and gRPC, print when they are ready, and serve until a signal arrives."""
    import uvicorn

    from .front import IDLE, Connection, Front
    from .rpc import rpc_server
    from .worker_processes import WorkerPool, freeze

    loop, over = asyncio.get_running_loop(), asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, over.set)
    listeners = [_listen(options.host, options.port, '--port')]
    if options.metrics_port:
        listeners.append(_listen(options.host, options.metrics_port, '--metrics-port'))
    _listen(options.host, options.grpc_port, '--grpc-port').close()
    pool = WorkerPool(folders, options.workers)
    front = Front(pool, options)
    await pool.start()
    Connection.seconds = options.timeout
    Connection.most = _most_connections(options.max_connections)
    config = uvicorn.Config(
        _traced(front, options), http=Connection, lifespan='off', log_config=None, ws='none',
        access_log=False, proxy_headers=False, timeout_keep_alive=IDLE,
    )  # fmt: skip
    config.load()
    http = uvicorn.Server(config)
    http.lifespan = config.lifespan_class(config)
    await http.startup(listeners)
    rpc = rpc_server(front, options.max_bytes)
    rpc.add_insecure_port(f'{_bracketed(options.host)}:{options.grpc_port}')
    await rpc.start()
    freeze()
    print('\n'.join(_ready(options, pool)), flush=True)
    await over.wait()
    until = loop.time() + GRACE_S
    await _drain(front, listeners, http, until)
    await rpc.stop(max(0.0, until - loop.time()))
    pool.close()


async def _drain(front: Any, listeners: list[socket.socket], http: Any, until: float) -> None:
    """Refuse new requests, answer open ones, then close all connections."""
    loop, front.is_draining = asyncio.get_running_loop(), True
    await asyncio.sleep(DRAINING_S)
    while front.open and loop.time() < until:
        await asyncio.sleep(0.01)
    for listener in listeners:
        listener.listen(0)  # refuse new connections; answer those that wait to be accepted
    await asyncio.sleep(0.05)
    for server in http.servers:
        server.close()
    await asyncio.sleep(DRAINING_S)  # for requests on the connections that were accepted last
    http.config.timeout_graceful_shutdown = max(0.0, until - loop.time())
    await http.shutdown()


def _most_connections(asked: int) -> int:
    """Raise the limit of open files; return how many connections it allows, at most `asked`."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return asked if most < 0 else max(1, min(asked, (most - SPARE_FILES) // 2))


def _traced(app: Any, options: argparse.Namespace) -> Any:
    """Return the application, inside OpenTelemetry's middleware if `--otel` is set."""
    if not options.otel:
        return app
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
    from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    trace.set_tracer_provider(provider)
    return OpenTelemetryMiddleware(app)


def _ready(options: argparse.Namespace, pool: Any) -> list[str]:
    """Return the lines to print when the server is ready: addresses and example commands."""
    names, base = ', '.join(pool.folders), f'http://{_bracketed(options.host)}:{options.port}'
    port = options.metrics_port or options.port
    verb = 'is' if len(pool.folders) == 1 else 'are'
    lines = [f'serve: {names} {verb} ready at {base}, metrics at port {port}']
    for name, metadata in pool.models.items():
        example = metadata.get('parameters', {}).get('example')
        if example is not None:
            text = shlex.quote(json.dumps(request_of([example])))
            url = f'{base}/v2/models/{name}/infer'
            lines.append(f"curl -s {url} -H 'Content-Type: application/json' -d {text}")
    if any((folder / 'page.html').is_file() for folder in pool.folders.values()):
        lines.append(f'page: {base}/')
    return lines


def request_of(samples: Sequence[Any]) -> dict[str, Any]:
    """Return the body of an inference request for samples that are given as JSON values."""
    data = [json.dumps(each) for each in samples]
    tensor = {'name': 'samples', 'shape': [len(data)], 'datatype': 'BYTES', 'data': data}
    return {'inputs': [tensor]}


if __name__ == '__main__':
    main()
