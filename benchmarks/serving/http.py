"""Measure trees a second of a served folder over HTTP, by trees a request, beside the same server
with a model that returns zeros, and an engine without a server."""

import asyncio
import gc
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Optional
from urllib.parse import urlsplit

import numpy as np

__all__ = ['measure']

CLIENTS = 16, 64  # connections, each with one request at a time; few leave a server waiting
CONNECTIONS = 200  # kept for requests at times drawn beforehand; more are opened if all wait
MOST_TREES = 512  # on their way, the default of an engine's `max_queue`; more are refused
ZEROS = """
_load = load


def load(folder):
    import numpy

    return _load(folder)._replace(
        predict=lambda tree: numpy.zeros((1, 5), 'float32')
    )
"""


def measure(folder: Path, seconds: float, rounds: int) -> int:
    """Measure and print; return the exit status."""
    warm_up = json.loads((folder / 'warm_up.json').read_text(encoding='utf-8'))
    in_process = subprocess.run(
        [sys.executable, '-c', _IN_PROCESS, str(folder), str(seconds)],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    alone = float(in_process.stdout.splitlines()[-1])
    print(f'engine in process, {alone:.0f} trees a second', flush=True)
    with tempfile.TemporaryDirectory() as directory:
        zeros = Path(directory) / 'zeros'
        shutil.copytree(folder, zeros)
        with (zeros / 'model.py').open('a', encoding='utf-8') as file:
            file.write(ZEROS)
        with served(folder) as model, served(zeros) as empty:
            for size in (1, 4, 32):
                bodies = _bodies(warm_up, size)
                turns = [
                    [_largest_throughput(url, bodies, size, seconds) for url in (model, empty)]
                    for _ in range(rounds)
                ]
                speed, rival = (median(each) for each in zip(*turns))
                print(f'{size} trees a request: {speed * size:.0f} trees a second, '
                      f'{speed * size / alone:.2f} of the engine alone; {speed:.0f} requests, '
                      f'{speed / rival:.2f} of zeros ({rival:.0f})', flush=True)  # fmt: skip
            gc.collect()
            gc.freeze()  # the load is not to be late by collections of its own
            bodies = _bodies(warm_up, 4)
            most = 1.5 * _largest_throughput(model, bodies, 4, seconds)
            for _ in range(rounds):
                flood = asyncio.run(_open(model, bodies, most, seconds))
                rate = most * flood[200]['share']  # what is answered while too much comes
                p99 = {}
                for load in (0.9, 2.0):
                    found = asyncio.run(_open(model, bodies, load * rate, seconds))
                    p99[load] = found[200]['p99_ms']
                    print(f'{load} of {rate:.0f} requests, 4 trees each: {found}', flush=True)
                print(f'ratio of the 99th percentiles: {p99[2.0] / p99[0.9]:.2f}', flush=True)
    return 0


_IN_PROCESS = """
import json, sys, threading, time
from pathlib import Path
from pydantic import TypeAdapter
import gluon_edbatch as edb
from gluon_edbatch_core.serving.folder import load_folder

served = load_folder(Path(sys.argv[1]))
check = TypeAdapter(served.request).validate_json
samples = [served.read(check(json.dumps(each))) for each in served.warm_up]
with edb.serving.Engine(served.predict, warm_up=samples) as engine:
    done, begin, over = 0, time.perf_counter(), threading.Semaphore(0)
    def send():
        engine.future(samples[done % len(samples)]).add_done_callback(count)
    def count(_):
        global done
        done += 1
        send() if time.perf_counter() - begin < float(sys.argv[2]) else over.release()
    for _ in range(450):
        send()
    for _ in range(450):
        over.acquire()
    print(done / (time.perf_counter() - begin))
"""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Yield the address for requests."""
    sockets = [socket.socket() for _ in range(3)]
    for each in sockets:
        each.bind(('127.0.0.1', 0))
    ports = [str(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    options = ['--port', ports[0], '--grpc-port', ports[1], '--metrics-port', ports[2]]
    command = [sys.executable, '-m', 'gluon_edbatch.serving', str(folder), *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith('serve:'):
            if process.poll() is not None:
                raise SystemExit(f'{folder}: the server ended')
        reading = threading.Thread(target=process.stdout.read, daemon=True)
        reading.start()  # where nobody reads what it logs, it waits for ever
        name = json.loads((folder / 'model-settings.json').read_text(encoding='utf-8'))['name']
        try:
            yield f'http://127.0.0.1:{ports[0]}/v2/models/{name}/infer'
        finally:
            process.terminate()
            process.wait()
            reading.join()


def _bodies(samples: list[Any], size: int) -> list[bytes]:
    texts = [json.dumps(each) for each in samples]
    return [
        json.dumps(
            {
                'inputs': [
                    {
                        'name': 'samples',
                        'shape': [size],
                        'datatype': 'BYTES',
                        'data': [texts[(first + i) % len(texts)] for i in range(size)],
                    }
                ]
            }
        ).encode()
        for first in range(64)
    ]


class _Connection(asyncio.Protocol):
    """A kept connection, for one request at a time. It takes a third of the processor time of an
    aiohttp client, which the server needs if both are on the same processors."""

    def connection_made(self, transport: Any) -> None:
        self.transport, self._received = transport, b''
        self._status: Optional[asyncio.Future[int]] = None

    def ask(self, request: bytes) -> 'asyncio.Future[int]':
        """Send a request; the future has the status of its answer."""
        self._status = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return self._status

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, end, body = self._received.partition(b'\r\n\r\n')
        length = re.search(rb'content-length: (\d+)', head)
        if end and length and len(body) >= int(length[1]):
            self._received = b''
            self._status.set_result(int(head[9:12]))

    def connection_lost(self, exc: Optional[Exception]) -> None:
        if self._status and not self._status.done():
            self._status.set_exception(exc or ConnectionError('the server closed the connection'))


async def _connected(url: str, count: int) -> list[_Connection]:
    where, loop = urlsplit(url), asyncio.get_running_loop()
    made = [loop.create_connection(_Connection, where.hostname, where.port) for _ in range(count)]
    return [connection for _, connection in await asyncio.gather(*made)]


def _requests(url: str, bodies: list[bytes]) -> list[bytes]:
    where = urlsplit(url)
    head = f'POST {where.path} HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Type: application/json'
    return [f'{head}\r\nContent-Length: {len(body)}\r\n\r\n'.encode() + body for body in bodies]


def _largest_throughput(url: str, bodies: list[bytes], size: int, seconds: float) -> float:
    """Return requests a second, of `size` trees each."""
    counts = [clients for clients in CLIENTS if clients * size <= MOST_TREES]
    return max([asyncio.run(_closed(url, bodies, seconds, clients)) for clients in counts])


async def _closed(url: str, bodies: list[bytes], seconds: float, clients: int) -> float:
    """Return requests a second of `clients` clients, each of which waits for its answers."""
    done, requests = 0, _requests(url, bodies)
    connections, begin = await _connected(url, clients), time.monotonic()

    async def client(number: int, connection: _Connection) -> None:
        nonlocal done
        while time.monotonic() - begin < seconds:
            status = await connection.ask(requests[(number + done) % len(requests)])
            assert status in (200, 503), status
            if status == 200:
                done += 1
            else:
                await asyncio.sleep(0.01)
        connection.transport.close()

    await asyncio.gather(*[client(*each) for each in enumerate(connections)])
    return done / (time.monotonic() - begin)


async def _open(url: str, bodies: list[bytes], rate: float, seconds: float) -> dict[Any, Any]:
    """Return latency percentiles by status, for requests at times drawn beforehand, and percentiles
    of how late requests were sent, which is part of all."""
    random = np.random.RandomState(1)
    times = np.cumsum(random.exponential(1 / rate, int(rate * seconds)))
    found: dict[Any, list[float]] = {'sent late': []}
    requests, free = _requests(url, bodies), await _connected(url, CONNECTIONS)
    begin = time.monotonic()

    async def ask(number: int) -> None:
        connection = free.pop() if free else (await _connected(url, 1))[0]
        found['sent late'].append(time.monotonic() - begin - float(times[number]))
        status = await connection.ask(requests[number % len(requests)])
        free.append(connection)
        latency = time.monotonic() - begin - float(times[number])
        found.setdefault(status, []).append(latency)

    tasks = []
    for number, when in enumerate(times.tolist()):
        await asyncio.sleep(max(0.0, begin + when - time.monotonic()))
        tasks.append(asyncio.ensure_future(ask(number)))
    await asyncio.gather(*tasks)
    for connection in free:
        connection.transport.close()
    return {
        status: {
            'share': round(len(each) / len(times), 3),
            'p50_ms': round(1e3 * float(np.percentile(each, 50)), 1),
            'p99_ms': round(1e3 * float(np.percentile(each, 99)), 1),
        }
        for status, each in found.items()
    }
