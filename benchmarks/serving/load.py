"""Send requests at times that are drawn beforehand, whether or not earlier ones are answered: an
open loop.

Latencies count from the time drawn for a request, even if it is sent late because a process was
busy.
"""

import asyncio
import json
import time
from pathlib import Path

import numpy as np

from .wire import ANSWERED, LATE, REFUSED, REPLY, REQUEST, Configuration

__all__ = ['ask', 'run']


async def ask(path: Path, configuration: Configuration) -> float:
    """Return the figures that the serving process measures itself."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(configuration.line())
    found = float(json.loads(await reader.readline()))
    writer.close()
    return found


async def run(
    path: Path, configuration: Configuration, rate: float, seconds: float, seed: int
) -> dict[str, float]:
    """Send `rate` requests a second, as a Poisson process.

    Returns
    -------
    dict
        Latencies of answered requests in milliseconds by percentile; ``refused_p99``, that of
        refused ones; shares; answered requests a second.
    """
    random = np.random.RandomState(seed)
    times = np.cumsum(random.exponential(1 / rate, int(rate * seconds * 1.2) + 10))
    times = times[times < seconds]
    samples = random.randint(2**31, size=len(times))
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(configuration.line())
    begin = time.monotonic() + 0.1
    latencies, statuses = np.full(len(times), np.nan), np.zeros(len(times), int)
    receiving = asyncio.ensure_future(_receive(reader, begin + times, latencies, statuses))
    await _send(writer, begin + times, samples)
    await receiving
    writer.close()
    return _figures(latencies, statuses, seconds)


async def _send(writer: asyncio.StreamWriter, times: np.ndarray, samples: np.ndarray) -> None:
    number = 0
    while number < len(times):
        now = time.monotonic()
        due = int(np.searchsorted(times, now, side='right'))
        if due > number:
            requests: list[bytes] = [
                REQUEST.pack(each, int(samples[each])) for each in range(number, due)
            ]
            writer.write(b''.join(requests))
            number = due
        else:
            await asyncio.sleep(min(times[number] - now, 0.05))
    writer.write_eof()


async def _receive(
    reader: asyncio.StreamReader, times: np.ndarray, latencies: np.ndarray, statuses: np.ndarray
) -> None:
    rest = b''
    for_all = len(times)
    while for_all:
        rest += await reader.read(1 << 16)
        now, whole = time.monotonic(), len(rest) // REPLY.size * REPLY.size
        for number, status in REPLY.iter_unpack(rest[:whole]):
            latencies[number], statuses[number] = now - times[number], status
            for_all -= 1
        rest = rest[whole:]


def _figures(latencies: np.ndarray, statuses: np.ndarray, seconds: float) -> dict[str, float]:
    answered, refused = latencies[statuses == ANSWERED], latencies[statuses == REFUSED]
    found = {f'p{each}': _percentile(answered, each) for each in (50, 90, 99)}
    return {
        **found,
        'refused_p99': _percentile(refused, 99),
        'refused': len(refused) / len(latencies),
        'late': float(np.mean(statuses == LATE)),
        'failed': float(np.mean(~np.isin(statuses, (ANSWERED, REFUSED, LATE)))),
        'answered_per_s': len(answered) / seconds,
    }


def _percentile(latencies: np.ndarray, each: float) -> float:
    return float(1e3 * np.percentile(latencies, each)) if len(latencies) else float('nan')
