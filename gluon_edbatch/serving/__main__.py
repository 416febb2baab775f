"""The command line: one folder, one MLServer around it."""

import argparse
import asyncio
import json
import shlex
import socket
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Optional

from ..errors import FolderError
from .folder import load_folder

PORTS = {'port': 8080, 'grpc_port': 8081, 'metrics_port': 8082}


class CommandError(Exception):
    """Something that the command line asks for is not to be had; told in one sentence."""


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Serve until a signal comes; gives the exit status."""
    options = _options(arguments)
    try:
        name, warm_up = _check(options)
    except (CommandError, FolderError) as error:
        print(f'serve: {error}', file=sys.stderr)
        return 1
    from mlserver.utils import install_uvloop_event_loop

    from .server import serve

    settings = {
        'host': options.host,
        'http_port': options.port,
        'grpc_port': options.grpc_port,
        'metrics_port': options.metrics_port,
        'parallel_workers': options.workers,
        'debug': options.verbose,
    }
    example = _example(warm_up)
    ready = _ready(options, name, example)
    install_uvloop_event_loop()
    return asyncio.run(serve(options.folder, settings, options.max_bytes, ready, example))


def _options(arguments: Optional[Sequence[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog='python -m gluon_edbatch.serving', description=__doc__)
    parser.add_argument(
        'folder', type=Path, help='of a model: model-settings.json, model.py and what that reads'
    )
    parser.add_argument(
        '--host', default='127.0.0.1', help='where to listen (default: %(default)s)'
    )
    for name, what in (
        ('port', 'of REST and the page'),
        ('grpc_port', 'of gRPC'),
        ('metrics_port', 'of /metrics for Prometheus'),
    ):
        parser.add_argument(
            f'--{name.replace("_", "-")}',
            type=int,
            default=PORTS[name],
            metavar='N',
            help=f'{what} (default: %(default)s)',
        )
    parser.add_argument(
        '--workers',
        type=_count,
        default=1,
        metavar='N',
        help='processes that evaluate, beside the one that listens; 0: none (default: %(default)s)',
    )
    parser.add_argument(
        '--max-bytes',
        type=_count,
        default=8 << 20,
        metavar='N',
        help='of the body of a request (default: %(default)s)',
    )
    parser.add_argument('--verbose', action='store_true', help='a line for each request')
    return parser.parse_args(arguments)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f'{text!r} is no number of 0 or more')
    return int(text)


def _check(options: argparse.Namespace) -> tuple[str, Sequence[Any]]:
    """That it can be served; gives the model's name, and what it warms up with."""
    settings, name = options.folder / 'model-settings.json', ''
    if not options.folder.is_dir():
        raise CommandError(f'{options.folder}: there is no such folder')
    try:
        name = json.loads(settings.read_text(encoding='utf-8'))['name']
    except FileNotFoundError:
        raise CommandError(
            f'{options.folder}: is no folder of a model, as it has no model-settings.json'
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f'{settings}: is damaged: {error!r}') from None
    try:
        import mlserver  # noqa: F401
    except ImportError:
        raise CommandError(
            "MLServer is not installed: `pip install '.[cpu,serve]'`, on Python 3.9 to 3.11"
        ) from None
    for port in PORTS:
        _check_port(options.host, getattr(options, port), f'--{port.replace("_", "-")}')
    return str(name), load_folder(options.folder).warm_up


def _check_port(host: str, port: int, option: str) -> None:
    try:
        with closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except (OSError, OverflowError) as error:
        reason = getattr(error, 'strerror', None) or str(error)
        raise CommandError(f'{host}:{port}: cannot listen there: {reason} ({option})') from None


def _ready(options: argparse.Namespace, name: str, example: Any) -> list[str]:
    """What to say when it is ready."""
    base = f'http://{options.host}:{options.port}'
    lines = [f'serve: {name} is ready at {base}, metrics at port {options.metrics_port}']
    if example is not None:
        lines.append(
            f"curl -s {base}/v2/models/{name}/infer -H 'Content-Type: application/json' "
            f'-d {shlex.quote(json.dumps(example))}'
        )
    if (options.folder / 'page.html').is_file():
        lines.append(f'page: {base}/')
    return lines


def request_of(samples: Sequence[Any]) -> dict[str, Any]:
    """The body of a request for some samples, as JSON has them."""
    data = [json.dumps(each) for each in samples]
    tensor = {'name': 'samples', 'shape': [len(data)], 'datatype': 'BYTES', 'data': data}
    return {'inputs': [tensor]}


def _example(warm_up: Sequence[Any]) -> Any:
    """The body of a request, if there is one to warm up with."""
    shortest = min(warm_up, key=lambda each: len(json.dumps(each)), default=None)
    return None if shortest is None else request_of([shortest])


if __name__ == '__main__':
    sys.exit(main())
