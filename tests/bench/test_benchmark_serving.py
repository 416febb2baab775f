"""benchmarks/serving/__main__.py measures what it says."""

import asyncio
import json
import sys
from contextlib import suppress
from itertools import count

import numpy as np

from benchmarks.serving import http, load, virtual
from benchmarks.serving.wire import ANSWERED, FAILED, LATE, REFUSED
from tests.support.processes import ROOT, run


def test_a_small_run(tmp_path):
    rows, picture = tmp_path / 'rows.jsonl', tmp_path / 'latency.png'
    options = '--models treelstm --seconds 0.2 --loads 0.1 0.2 --windows 0 --sizes 64 --rounds 1'
    done = run(
        [sys.executable, '-m', 'benchmarks.serving', *options.split()]
        + ['--json', rows, '--plot', picture],
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    assert [row['kind'] for row in found] == ['throughput', *['load'] * 7, 'bar', *['load'] * 2]
    assert {row['system'] for row in found if row['kind'] == 'load'} == {'engine', 'window'}
    assert all(row['failed'] == 0 for row in found if row['kind'] == 'load')
    overload = [row for row in found if row.get('load') == 2.0]
    assert [row['deadline'] for row in overload] == [None, found[2]['p99'] / 1e3]
    assert overload[0]['late'] == 0
    assert picture.read_bytes().startswith(b'\x89PNG')


def test_figures():
    latencies = np.array([0.001, 0.003, 0.5, 0.1, 0.2])
    statuses = np.array([ANSWERED, ANSWERED, REFUSED, FAILED, LATE])
    found = load._figures(latencies, statuses, 2.0)
    assert found['p50'] == 2.0 and found['refused_p99'] == 500.0
    assert found['refused'] == found['failed'] == found['late'] == 0.2
    assert found['answered_per_s'] == 1.0


def test_windows_of_requests(monkeypatch):
    """By a clock that goes on by a second for each minibatch."""

    class Seconds:
        now = 0.0

        def __call__(self):
            return self.now

        def skip_to(self, when):
            self.now = max(self.now, when)

    clock, batches = Seconds(), []
    monkeypatch.setattr(virtual, 'Clock', lambda: clock)

    def together(samples):
        batches.append(samples)
        clock.now += 1.0
        return samples

    times = np.array([0.0, 0.1, 0.3, 0.35, 5.0])
    latencies = virtual.window_latencies(together, list('abcde'), times, 0.2, 2)
    assert batches == [['a', 'b'], ['c', 'd'], ['e']]
    np.testing.assert_allclose(latencies, [1.1, 1.0, 1.8, 1.75, 1.2])


def test_requests_over_http():
    """From a server that refuses every third one, and answers in pieces."""
    numbers, ends = count(), []

    async def connected(reader, writer):
        ends.append(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b'\r\n\r\n')
                assert head.startswith(b'POST /any HTTP/1.1\r\n') and b'Content-Length: 7' in head
                assert await reader.readexactly(7) == b'{"a":1}'
                writer.write(
                    b'HTTP/1.1 200 OK\r\n' if next(numbers) % 3 else b'HTTP/1.1 503 No\r\n'
                )
                for piece in (b'content-length: 3\r\n', b'\r\na', b'bc'):
                    await writer.drain()
                    await asyncio.sleep(0)
                    writer.write(piece)
        writer.close()
        await writer.wait_closed()

    async def measured():
        server = await asyncio.start_server(connected, '127.0.0.1', 0)
        url = f'http://127.0.0.1:{server.sockets[0].getsockname()[1]}/any'
        found = await http._open(url, [b'{"a":1}'], 3000.0, 0.01)
        server.close()
        await asyncio.gather(*ends)
        return found

    found = asyncio.run(measured())
    assert {status: each['share'] for status, each in found.items()} == {
        'sent late': 1.0, 200: 0.667, 503: 0.333
    }  # fmt: skip
