"""The pool of workers, as the listening process sees it."""

import asyncio
import json
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Callable, Optional

import uvloop

from ..errors import FolderError
from .open_inference import Answer, Call, error
from .worker import frames, send, work

LOG = logging.getLogger('edb.serving')
_PAUSE = 1.0  # seconds before a worker that failed to start is tried again
_BEGIN = f'from {__package__}.worker import main; main()'


class Worker:
    """Run a worker in a process, or in a thread of this one; `lost` is called when it ends."""

    def __init__(self, lost: Callable[['Worker'], None]):
        self._lost = lost
        self.calls: dict[int, Callable[[Answer], None]] = {}  # receivers of open calls, by number
        self.writer: Any = None

    async def start(self, folders: dict[str, Path], loaded: list[str], is_process: bool) -> Any:
        """Start the worker; return metadata by model when it is warm. Raises FolderError."""
        ours, theirs = socket.socketpair()
        reader, self.writer = await asyncio.open_unix_connection(sock=ours)
        ended: Callable[[], Any] = lambda: None  # noqa: E731
        if is_process:
            texts, number = json.dumps(folders, default=str), theirs.fileno()
            command = [sys.executable, '-c', _BEGIN, str(number), texts, *loaded]
            process = subprocess.Popen(command, pass_fds=[number], stdin=subprocess.DEVNULL)
            theirs.close()
            ended = process.wait
        else:
            run = lambda: uvloop.run(work(theirs, folders, loaded))  # noqa: E731
            threading.Thread(target=run, name='edb-worker', daemon=True).start()
        received, found = frames(reader), 'a worker ended while it started'
        async for first in received:
            found = first[1]
            break
        self._reading = asyncio.ensure_future(self._read(received, ended))
        if isinstance(found, str):
            raise FolderError(found)
        return found

    async def _read(self, received: AsyncIterator[Any], ended: Callable[[], Any]) -> None:
        """Pass answers on until the worker ends; then answer open requests with 503."""
        async for number, answer in received:
            if number in self.calls:
                self.calls[number](answer)
        self._lost(self)
        for receive in self.calls.values():
            receive(error(503, 'the worker ended: try again'))
        threading.Thread(target=ended, daemon=True).start()  # leaves no zombie


class WorkerPool:
    """Run workers that each have all models, and replace a worker that ends."""

    def __init__(self, folders: dict[str, Path], count: int):
        self.folders, self._count = folders, count
        self.models: dict[str, Any] = {}  # metadata of loaded models, by name
        self._loaded = set(folders)  # models that each worker should have
        self.workers: list[Worker] = []
        self._number, self._is_open, self._changing = 0, True, asyncio.Lock()
        self._starting: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Start all workers; return when they are warm. Raises FolderError."""
        await asyncio.gather(*[self._add() for _ in range(max(1, self._count))])

    async def _add(self) -> None:
        worker = Worker(self._lost)
        self.models = await worker.start(self.folders, sorted(self._loaded), self._count > 0)
        self.workers.append(worker)

    def _lost(self, worker: Worker) -> None:
        if worker in self.workers and self._is_open:
            LOG.error('a worker ended, and is replaced')
            task = asyncio.ensure_future(self._replace())
            self._starting.add(task)
            task.add_done_callback(self._starting.discard)
        self.workers = [each for each in self.workers if each is not worker]

    async def _replace(self) -> None:
        async with self._changing:
            while self._is_open:
                try:
                    await self._add()
                    break
                except FolderError as fault:
                    LOG.error('a worker does not start: %s', fault)
                    await asyncio.sleep(_PAUSE)

    async def ask(self, call: Call, worker: Optional[Worker] = None) -> AsyncIterator[Answer]:
        """Yield the parts of a worker's answer; by default ask the one with the fewest calls."""
        if not self.workers:
            yield error(503, 'no worker is there: try again')
            return
        worker = worker or min(self.workers, key=lambda each: len(each.calls))
        parts: asyncio.Queue[Answer] = asyncio.Queue()
        self._number += 1
        number, is_last = self._number, False
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

    async def change(self, kind: str, name: str) -> Answer:
        """Load or unload a model in all workers; return the first error, or status 200."""
        if name not in self.folders:
            return error(404, f'there is no model {name[:100]}')
        async with self._changing:
            if kind == 'unload':
                self._loaded.discard(name)
                self.models.pop(name, None)
            workers = [self._change(kind, name, each) for each in self.workers]
            for answer in await asyncio.gather(*workers):
                if answer.status != 200:
                    return answer
                if kind == 'load':
                    self._loaded.add(name)
                    self.models[name] = json.loads(answer.body)
        return Answer(200)

    async def _change(self, kind: str, name: str, worker: Worker) -> Answer:
        (answer,) = [each async for each in self.ask(Call(kind, name), worker)]
        return answer

    def close(self) -> None:
        """Disconnect all workers, which then end; no request may be open."""
        self._is_open = False
        for worker in self.workers:
            worker.writer.close()
