"""A served process and its load talk over a socket of this machine: first a line of JSON that says
what to serve, then requests of eight bytes and replies of five."""

import asyncio
import json
import struct
from functools import partial
from typing import Any, NamedTuple

__all__ = ['ANSWERED', 'FAILED', 'REFUSED', 'REPLY', 'REQUEST', 'Configuration', 'answer']

REQUEST, REPLY = struct.Struct('<II'), struct.Struct('<IB')
ANSWERED, REFUSED, FAILED = range(3)


class Configuration(NamedTuple):
    """What to serve with: ``engine``; ``window``, of so many milliseconds and requests; or what is
    measured in the process itself, for so many seconds: ``offline``, ``throughput``."""

    system: str
    window: float = 0
    size: int = 64
    seconds: float = 1

    def line(self) -> bytes:
        """As it is sent."""
        return json.dumps(self._asdict()).encode() + b'\n'


async def answer(
    system: Any,
    refused: Any,
    samples: Any,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Reply to requests until there are no more."""
    loop, waiting = asyncio.get_running_loop(), set()
    over = loop.create_future()

    def write(number: int, status: int) -> None:
        writer.write(REPLY.pack(number, status))
        waiting.discard(number)
        if not waiting and reader.at_eof():
            over.set_result(None)

    def finished(number: int, future: Any) -> None:
        status = FAILED if future.cancelled() or future.exception() else ANSWERED
        loop.call_soon_threadsafe(write, number, status)

    while True:
        try:
            number, sample = REQUEST.unpack(await reader.readexactly(REQUEST.size))
        except asyncio.IncompleteReadError:
            break
        waiting.add(number)
        try:
            future = system.future(samples[sample % len(samples)])
        except refused:
            write(number, REFUSED)
            continue
        future.add_done_callback(partial(finished, number))
    if waiting:
        await over
    await writer.drain()
