"""Workers: processes that evaluate the calls which the listening process sends over sockets."""

import asyncio
import gc
import json
import logging
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from traceback import format_exc
from typing import Any, Callable, Optional

import numpy as np
import uvloop
from pydantic_core import to_json

from ..errors import FolderError
from .open_inference import Answer, Call, RequestError, check_model, error, read, write
from .served_model import ServedModel

LOG = logging.getLogger('edb.serving')
_PAUSE = 1.0  # seconds before a worker that failed to start is tried again


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


def freeze() -> None:
    """Collect garbage, then exempt all objects, such as MXNet's many, from later collections."""
    gc.collect()
    gc.freeze()


async def work(connection: socket.socket, folders: dict[str, Path]) -> None:
    """Answer calls from a socket with models, until the other side disconnects."""
    loop, models = asyncio.get_running_loop(), dict[str, ServedModel]()
    reader, writer = await asyncio.open_unix_connection(sock=connection)
    tasks: dict[int, asyncio.Task[None]] = {}

    async def answer(number: int, call: Call) -> None:
        part = partial(loop.call_soon_threadsafe, send, writer, number)
        try:
            send(writer, number, await _answer(call, part, folders, models))
        finally:
            tasks.pop(number, None)

    async for number, call in frames(reader):
        if call is not None:
            tasks[number] = loop.create_task(answer(number, call))
        elif number in tasks:
            tasks.pop(number).cancel()  # also of a task that has not begun


async def _answer(
    call: Call, part: Callable[[Answer], Any], folders: dict[str, Path], models: dict[str, Any]
) -> Answer:
    """Return the answer to a call; `part` gets partial answers before it, if it streams."""

    def emitted(sample: int, value: Any) -> None:
        outputs = {'sample': np.array([sample]), 'part': np.array([to_json(value)], object)}
        part(write(request, outputs, is_last=False))

    try:
        if call.kind in ('load', 'unload'):
            new = None
            if call.kind == 'load':
                new = await asyncio.to_thread(ServedModel, call.model, folders[call.model])
            old = models.pop(call.model, None)
            if new is not None:
                models[call.model] = new
                freeze()
            if old is not None:  # it finishes accepted requests
                await asyncio.to_thread(old.close)
            return Answer(200, to_json(new and new.metadata))
        request = read(call)
        model = models[check_model(request.model, folders, models)]
        return write(request, await model.infer(request, emitted if call.streams else None))
    except (RequestError, FolderError) as fault:
        return error(getattr(fault, 'status', 400), str(fault))
    except Exception:
        failed = error(500, 'this should not have happened: the log tells more')
        return failed._replace(traceback=format_exc())


def main() -> None:
    """Run a worker; the command line has a socket, and folders by model as JSON."""
    for each in (signal.SIGINT, signal.SIGTERM):  # the listening process ends, and then this one
        signal.signal(each, signal.SIG_IGN)
    if hasattr(os, 'SCHED_BATCH'):  # the listening process has priority, to refuse at once
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    folders = {name: Path(folder) for name, folder in json.loads(sys.argv[2]).items()}
    uvloop.run(work(socket.socket(fileno=int(sys.argv[1])), folders))


@dataclass(eq=False)
class Worker:
    """A worker as the listening process sees it: a process, or a thread of this one."""

    writer: asyncio.StreamWriter
    process: Any  # kept, as the process would not outlive it
    calls: dict[int, Callable[[Answer], None]] = field(default_factory=dict)  # receivers, by number


class WorkerPool:
    """Run workers that each have all models, and replace a worker that ends."""

    def __init__(self, folders: dict[str, Path], processes: int):
        self.folders, self._processes = folders, processes
        self.models: dict[str, Any] = {}  # metadata of loaded models, by name
        self.workers: list[Worker] = []
        self._numbers, self._is_open, self._changing = count(), True, asyncio.Lock()
        self._watching: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start all workers; return when they are warm. Raises FolderError."""
        number = max(1, self._processes)
        await asyncio.gather(*[self._add(self.folders) for _ in range(number)])

    async def _begin(self, connection: socket.socket) -> Any:
        """Start a worker, which has not loaded a model yet; return its process, if it has one."""
        if not self._processes:
            run = lambda: uvloop.run(work(connection, self.folders))  # noqa: E731
            return threading.Thread(target=run, name='edb-worker', daemon=True).start()
        with connection:
            return await asyncio.create_subprocess_exec(
                sys.executable, '-c', f'from {__name__} import main; main()',
                str(connection.fileno()), json.dumps(self.folders, default=str),
                pass_fds=[connection.fileno()], stdin=asyncio.subprocess.DEVNULL,
            )  # fmt: skip

    async def _add(self, names: Iterable[str]) -> None:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        worker = Worker(writer, await self._begin(theirs))
        task = asyncio.ensure_future(self._watch(worker, reader))
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)
        try:
            for name in sorted(names):
                await self._change('load', name, worker)
        except RequestError as fault:
            worker.writer.close()
            raise FolderError(str(fault)) from None
        self.workers.append(worker)

    async def _watch(self, worker: Worker, reader: asyncio.StreamReader) -> None:
        """Pass a worker's answers on; when it ends, answer its open requests, and replace it."""
        async for number, answer in frames(reader):
            if number in worker.calls:
                worker.calls[number](answer)
        is_lost = worker in self.workers and self._is_open
        if is_lost:
            self.workers.remove(worker)
            LOG.error('a worker ended, and is replaced')
        for receive in worker.calls.values():
            receive(error(503, 'the worker ended: try again'))
        while is_lost and self._is_open:
            try:
                async with self._changing:
                    await self._add(self.models)
                return
            except FolderError as fault:
                LOG.error('a worker does not start: %s', fault)
                await asyncio.sleep(_PAUSE)

    async def ask(self, call: Call, worker: Optional[Worker] = None) -> AsyncIterator[Answer]:
        """Yield the parts of a worker's answer; by default ask the one with the fewest calls."""
        worker = worker or min(self.workers, key=lambda each: len(each.calls), default=None)
        if worker is None:
            raise RequestError(503, 'no worker is there: try again')
        parts: asyncio.Queue[Answer] = asyncio.Queue()
        number, is_last = next(self._numbers), False
        worker.calls[number] = parts.put_nowait
        send(worker.writer, number, call)
        try:
            while not is_last:
                part = await parts.get()
                is_last = part.is_last
                if part.traceback:
                    LOG.error('request %s failed: %s', call.id, part.traceback)
                yield part
        finally:
            del worker.calls[number]
            if not is_last and worker in self.workers:  # the caller has gone: cancel the call
                send(worker.writer, number, None)

    async def change(self, kind: str, name: str) -> None:
        """Load or unload a model in all workers; raise RequestError if one of them does not."""
        if name not in self.folders:
            raise RequestError(404, f'there is no model {name[:100]}')
        async with self._changing:
            if kind == 'unload':
                self.models.pop(name, None)
            await asyncio.gather(*[self._change(kind, name, each) for each in self.workers])

    async def _change(self, kind: str, name: str, worker: Worker) -> None:
        (answer,) = [each async for each in self.ask(Call(kind, name), worker)]
        found = json.loads(answer.body)
        if answer.status != 200:
            raise RequestError(answer.status, found['error'])
        if kind == 'load':
            self.models[name] = found

    def close(self) -> None:
        """Disconnect all workers, which then end; no request may be open."""
        self._is_open = False
        for worker in self.workers:
            worker.writer.close()
