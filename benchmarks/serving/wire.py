"""Let a served process and its load talk over a local socket: a line of JSON with the
configuration, then requests of eight bytes and replies of five."""

import asyncio
import json
import struct
from collections.abc import Sequence
from functools import partial
from typing import Any, Callable, NamedTuple, Optional

from gluon_edbatch_core.errors import DeadlineError, QueueFullError

__all__ = ['ANSWERED', 'FAILED', 'LATE', 'REFUSED', 'REPLY', 'REQUEST', 'Configuration', 'answer']

REQUEST, REPLY = struct.Struct('<II'), struct.Struct('<IB')
ANSWERED, REFUSED, LATE, FAILED = range(4)


class Configuration(NamedTuple):
    """What to serve with: ``engine``, with a deadline for all requests or none, or ``window``, of
    so many milliseconds and requests. ``offline`` and ``throughput`` measure in the process itself,
    for so many seconds."""

    system: str
    window: float = 0
    size: int = 64
    seconds: float = 1
    deadline: Optional[float] = None  # seconds

    def line(self) -> bytes:
        """The configuration as it is sent."""
        return json.dumps(self._asdict()).encode() + b'\n'


async def answer(
    submit: Callable[[Any], 'asyncio.Future[Any]'],
    samples: Sequence[Any],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Reply to requests until there are no more; results of one moment are one message."""
    loop = asyncio.get_running_loop()
    over, replies = loop.create_future(), bytearray()
    waiting, is_end, rest = 0, False, b''

    def flush() -> None:
        writer.write(bytes(replies))
        replies.clear()
        if not waiting and is_end:
            over.set_result(None)

    def note(number: int, status: int) -> None:
        nonlocal waiting
        waiting -= 1
        if not replies:
            loop.call_soon(flush)
        replies.extend(REPLY.pack(number, status))

    def finished(number: int, future: 'asyncio.Future[Any]') -> None:
        error = None if future.cancelled() else future.exception()
        if isinstance(error, DeadlineError):
            note(number, LATE)
        else:
            note(number, FAILED if future.cancelled() or error else ANSWERED)

    while not is_end:
        read = await reader.read(1 << 14)
        is_end, rest = not read, rest + read
        whole = len(rest) // REQUEST.size * REQUEST.size
        for number, sample in REQUEST.iter_unpack(rest[:whole]):
            waiting += 1
            try:
                future = submit(samples[sample % len(samples)])
            except QueueFullError:
                note(number, REFUSED)
            else:
                future.add_done_callback(partial(finished, number))
        rest = rest[whole:]
    if waiting or replies:
        await over
    await writer.drain()
