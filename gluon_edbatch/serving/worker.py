"""A worker process: evaluates the calls that the listening process sends over a socket."""

import asyncio
import gc
import json
import os
import pickle
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from traceback import format_exc
from typing import Any, Callable

import numpy as np
import uvloop
from pydantic_core import to_json

from ..errors import FolderError
from .open_inference import Answer, Call, RequestError, check_model, error, read, write
from .served_model import ServedModel


async def frames(reader: asyncio.StreamReader) -> AsyncIterator[Any]:
    """Yield the tuples that the other side sends, until it disconnects."""
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            length = int.from_bytes(await reader.readexactly(4), 'little')
            yield pickle.loads(await reader.readexactly(length))


def send(writer: asyncio.StreamWriter, *frame: Any) -> None:
    """Write a tuple: the length of its pickle in four bytes, then the pickle."""
    data = pickle.dumps(frame, 5)
    writer.write(len(data).to_bytes(4, 'little') + data)


class Handler:
    """Hold the models of a worker, and answer calls with them."""

    def __init__(self, folders: dict[str, Path], loaded: Sequence[str]):
        self._folders, self._changing = folders, asyncio.Lock()
        self._models = {name: ServedModel(name, folders[name]) for name in loaded}
        self.metadata = {name: each.metadata for name, each in self._models.items()}
        freeze()

    async def answer(self, call: Call, part: Callable[[Answer], Any]) -> Answer:
        """Return the answer to a call; `part` gets partial answers before it, if it streams."""
        try:
            if call.kind in ('load', 'unload'):
                return await self._change(call.kind, call.model)
            return await self._infer(call, part)
        except (RequestError, FolderError) as fault:
            return error(getattr(fault, 'status', 400), str(fault))
        except Exception:
            failed = error(500, 'this should not have happened: the log tells more')
            return failed._replace(traceback=format_exc())

    async def _infer(self, call: Call, part: Callable[[Answer], Any]) -> Answer:
        request = read(call)
        model = self._models[check_model(request.model, self._folders, self._models)]

        def emitted(sample: int, value: Any) -> None:
            outputs = {'sample': np.array([sample]), 'part': np.array([to_json(value)], object)}
            part(write(request, outputs, is_last=False))

        return write(request, await model.infer(request, emitted if call.streams else None))

    async def _change(self, kind: str, name: str) -> Answer:
        """Unload a model, or load its folder and replace the loaded one."""
        async with self._changing:
            new = None
            if kind == 'load':
                new = await asyncio.to_thread(ServedModel, name, self._folders[name])
            old = self._models.pop(name, None)
            if new is not None:
                self._models[name] = new
                freeze()
            if old is not None:  # it finishes accepted requests
                await asyncio.to_thread(old.close)
        return Answer(200, json.dumps(new and new.metadata).encode())


def freeze() -> None:
    """Collect garbage, then exempt all objects, such as MXNet's many, from later collections."""
    gc.collect()
    gc.freeze()


async def work(connection: socket.socket, folders: dict[str, Path], loaded: Sequence[str]) -> None:
    """Load models, then answer calls from a socket until the other side disconnects."""
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    tasks: dict[int, asyncio.Task[Answer]] = {}

    def done(number: int, task: 'asyncio.Task[Answer]') -> None:
        del tasks[number]
        if not task.cancelled():
            send(writer, number, task.result())

    try:
        handler = Handler(folders, loaded)
    except FolderError as fault:
        send(writer, 0, str(fault))
        return
    send(writer, 0, handler.metadata)
    async for number, call in frames(reader):
        if call is not None:
            part = partial(loop.call_soon_threadsafe, send, writer, number)
            tasks[number] = task = loop.create_task(handler.answer(call, part))
            task.add_done_callback(partial(done, number))
        elif number in tasks:
            tasks[number].cancel()


def main() -> None:
    """Run a worker; the command line has a socket, folders by model as JSON, and models to load."""
    for each in (signal.SIGINT, signal.SIGTERM):  # the listening process ends, and then this one
        signal.signal(each, signal.SIG_IGN)
    if hasattr(os, 'SCHED_BATCH'):  # the listening process has priority, to refuse at once
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    folders = {name: Path(folder) for name, folder in json.loads(sys.argv[2]).items()}
    uvloop.run(work(socket.socket(fileno=int(sys.argv[1])), folders, sys.argv[3:]))
