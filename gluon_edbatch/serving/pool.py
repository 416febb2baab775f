"""The processes that evaluate, as the process that listens has them."""

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
from .worker import Answer, Call, Channel, error, work

LOG = logging.getLogger('edb.serving')
_PAUSE = 1.0  # seconds after which a worker that does not start is tried again


class Worker:
    """One process, or one thread of this process."""

    def __init__(self, lost: Callable[['Worker'], None]):
        self._lost = lost
        self.calls: dict[int, Callable[[Answer], None]] = {}  # that are open, by number
        self.process: Optional[subprocess.Popen[bytes]] = None
        self.ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.channel = Channel(self._receive, self._end)

    async def start(self, folders: dict[str, Path], loaded: list[str], is_process: bool) -> Any:
        """Give metadata by model, when it is warm; raises FolderError."""
        ours, theirs = socket.socketpair()
        await asyncio.get_running_loop().create_unix_connection(lambda: self.channel, sock=ours)
        if is_process:
            texts = json.dumps({name: str(folder) for name, folder in folders.items()})
            number = theirs.fileno()
            begin = f'from {__package__}.worker import main; main()'
            command = [sys.executable, '-c', begin, str(number), texts, *loaded]
            self.process = subprocess.Popen(command, pass_fds=[number], stdin=subprocess.DEVNULL)
            theirs.close()
        else:
            run = lambda: uvloop.run(work(theirs, folders, loaded))  # noqa: E731
            threading.Thread(target=run, name='edb-worker', daemon=True).start()
        found = await self.ready
        if isinstance(found, str):
            raise FolderError(found)
        return found

    def _receive(self, number: int, what: Any) -> None:
        if not number:
            self.ready.set_result(what)
        elif number in self.calls:
            (self.calls.pop if what.is_last else self.calls.get)(number)(what)  # type: ignore

    def _end(self) -> None:
        """Its open requests are for the client to send again."""
        if not self.ready.done():
            self.ready.set_result('the worker ended while it started')
        calls, self.calls = self.calls, {}
        for receive in calls.values():
            receive(error(503, 'the worker ended: try again'))
        if self.process is not None:
            threading.Thread(target=self.process.wait, daemon=True).start()  # no zombie is left
        self._lost(self)


class Pool:
    """Workers, of which each has all models; one that ends is replaced."""

    def __init__(self, folders: dict[str, Path], count: int):
        self.folders, self._count = folders, count
        self.loaded = set(folders)  # what there is to be
        self.models: dict[str, Any] = {}  # metadata and an example by model, of those that are
        self._workers: list[Worker] = []
        self._number, self._is_open = 0, True
        self._starting: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()

    @property
    def is_ready(self) -> bool:
        """Whether all models are there, and somebody evaluates them."""
        return self.has_workers and self.models.keys() == self.folders.keys()

    @property
    def has_workers(self) -> bool:
        """Whether somebody evaluates."""
        return bool(self._workers)

    async def start(self) -> None:
        """Return when all are warm; raises FolderError."""
        await asyncio.gather(*[self._add() for _ in range(max(1, self._count))])

    async def _add(self) -> None:
        worker = Worker(self._lost)
        self.models = await worker.start(self.folders, sorted(self.loaded), self._count > 0)
        self._workers.append(worker)

    def _lost(self, worker: Worker) -> None:
        if worker in self._workers:
            self._workers.remove(worker)
            if self._is_open:
                LOG.error('a worker ended, and is replaced')
                task = asyncio.ensure_future(self._replace())
                self._starting.add(task)
                task.add_done_callback(self._starting.discard)

    async def _replace(self) -> None:
        while self._is_open:
            try:
                async with self._changing:
                    return await self._add()
            except FolderError as fault:
                LOG.error('a worker does not start: %s', fault)
                await asyncio.sleep(_PAUSE)

    async def ask(self, call: Call) -> Answer:
        """Answer a call by the worker that has the fewest."""
        if not self._workers:
            return error(503, 'no worker is there: try again')
        worker = min(self._workers, key=lambda each: len(each.calls))
        return await self._ask(worker, call)

    async def _ask(self, worker: Worker, call: Call) -> Answer:
        reply: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        number = self._send(worker, call, lambda what: reply.done() or reply.set_result(what))
        try:
            return await reply
        finally:
            self._forget(worker, number)

    async def stream(self, call: Call) -> AsyncIterator[Answer]:
        """Answer a call in parts."""
        if not self._workers:
            yield error(503, 'no worker is there: try again')
            return
        worker = min(self._workers, key=lambda each: len(each.calls))
        parts: asyncio.Queue[Answer] = asyncio.Queue()
        number, is_last = self._send(worker, call, parts.put_nowait), False
        try:
            while not is_last:
                part = await parts.get()
                is_last = part.is_last
                yield part
        finally:
            self._forget(worker, number)

    def _send(self, worker: Worker, call: Call, receive: Callable[[Answer], Any]) -> int:
        self._number += 1
        worker.calls[self._number] = receive
        worker.channel.send(self._number, call)
        return self._number

    def _forget(self, worker: Worker, number: int) -> None:
        if worker.calls.pop(number, None) is not None:  # nobody waits for it any more
            worker.channel.send(number, None)

    async def change(self, kind: str, name: str) -> Answer:
        """Load or unload a model in all workers."""
        if name not in self.folders:
            return error(404, f'there is no model {name[:100]}')
        async with self._changing:
            if kind == 'unload':
                self.loaded.discard(name)
                self.models.pop(name, None)
            call = Call(kind, name)
            answers = await asyncio.gather(*[self._ask(each, call) for each in self._workers])
            for answer in answers:
                if answer.status != 200:
                    return answer
            if kind == 'load' and answers:
                self.loaded.add(name)
                self.models[name] = json.loads(answers[0].body)
        return Answer(200)

    async def close(self) -> None:
        """End all workers: nothing is open."""
        self._is_open = False
        for worker in self._workers:
            worker.channel.transport.close()
