"""A process that evaluates: it answers what the process that listens hands to it over a socket."""

import asyncio
import gc
import json
import logging
import pickle
import signal
import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

import uvloop
from google.protobuf.message import DecodeError
from pydantic_core import to_json
from tritonclient.grpc.service_pb2 import ModelInferRequest, ModelStreamInferResponse

from ..errors import FolderError
from .open_inference import (
    RequestError, Tensor, from_grpc, from_http, to_grpc, to_http,
)  # fmt: skip
from .served_model import ServedModel

JSON = {'content-type': 'application/json'}


class Call(NamedTuple):
    """What is asked: ``http`` or ``grpc``, whose body is a request; ``load``; ``unload``."""

    kind: str
    model: str = ''
    id: str = ''
    body: bytes = b''
    header_length: Optional[str] = None
    streams: bool = False


class Answer(NamedTuple):
    """What is answered, in one part, or in several of which one is the last."""

    status: int
    body: bytes = b'{}'
    headers: dict[str, str] = JSON
    is_last: bool = True


def error(status: int, message: str) -> Answer:
    """The one form that errors have."""
    return Answer(status, to_json({'error': message}))


class Channel(asyncio.Protocol):
    """Frames over a socket, each its length and what pickle makes of a tuple. `receive` gets what
    is in them; `lost` is called at the end."""

    transport: Any = None

    def __init__(self, receive: Callable[..., None], lost: Callable[[], None]):
        self._receive, self._lost, self._rest = receive, lost, bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        self._rest += data
        begin = 0
        while len(self._rest) >= begin + 4:
            end = begin + 4 + int.from_bytes(self._rest[begin : begin + 4], 'little')
            if len(self._rest) < end:
                break
            frame, begin = pickle.loads(self._rest[begin + 4 : end]), end
            self._receive(*frame)
        del self._rest[:begin]

    def connection_lost(self, _: Optional[Exception]) -> None:
        """See asyncio."""
        self._lost()

    def send(self, *frame: Any) -> None:
        """Send a frame."""
        data = pickle.dumps(frame, 5)
        self.transport.write(len(data).to_bytes(4, 'little') + data)


class Handler:
    """The models of a process, and the calls that it answers."""

    def __init__(self, folders: dict[str, Path], loaded: Sequence[str]):
        self._folders, self._changing = folders, asyncio.Lock()
        self._models = {name: ServedModel(name, folders[name]) for name in loaded}
        freeze()

    def metadata(self) -> dict[str, Any]:
        """Metadata and an example by model."""
        return {name: (each.metadata, each.example) for name, each in self._models.items()}

    async def answer(self, call: Call, part: Callable[[Answer], None]) -> Answer:
        """Answer a call, after parts if it asks for them."""
        try:
            if call.kind in ('load', 'unload'):
                return await self._change(call)
            return await (self._http if call.kind == 'http' else self._grpc)(call, part)
        except RequestError as fault:
            return error(fault.status, str(fault))
        except Exception:
            logging.getLogger('edb.serving').exception('request %s failed', call.id)
            return error(500, 'this should not have happened: the log tells more')

    def _model(self, name: str, version: str) -> ServedModel:
        if name in self._models and version in ('', '1'):
            return self._models[name]
        if name in self._folders and version in ('', '1'):
            raise RequestError(503, f'the model {name} is not loaded now')
        raise RequestError(404, f'there is no model {name[:100]} of version {version[:20] or 1}')

    async def _http(self, call: Call, part: Callable[[Answer], None]) -> Answer:
        model = self._model(call.model, '')
        request = from_http(call.body, call.header_length)
        request = request._replace(id=request.id or call.id)

        def emitted(sample: int, value: Any) -> None:
            text = to_json({'id': request.id, 'sample': sample, 'part': value})
            part(Answer(200, event('part', text), is_last=False))

        outputs = await model.infer(request, emitted if call.streams else None)
        headers, body = to_http(model.name, request, outputs)
        return Answer(200, event('answer', body) if call.streams else body, headers)

    async def _grpc(self, call: Call, part: Callable[[Answer], None]) -> Answer:
        try:
            message = ModelInferRequest.FromString(call.body)
        except DecodeError:
            raise RequestError(400, 'the message is no ModelInferRequest') from None
        model = self._model(message.model_name, message.model_version)
        request = from_grpc(message)
        request = request._replace(id=request.id or call.id)

        def emitted(sample: int, value: Any) -> None:
            tensors = [Tensor('part', 'BYTES', (1,), [to_json(value)])]
            answer = to_grpc(model.name, request._replace(outputs={}), tensors)
            answer.parameters['sample'].int64_param = sample
            part(Answer(200, streamed(answer), is_last=False))

        outputs = await model.infer(request, emitted if call.streams else None)
        answer = to_grpc(model.name, request, outputs)
        return Answer(200, streamed(answer) if call.streams else answer.SerializeToString())

    async def _change(self, call: Call) -> Answer:
        """Load a model, beside the one that is loaded, or unload it."""
        async with self._changing:
            new, name = None, call.model
            try:
                if call.kind == 'load':
                    new = await asyncio.to_thread(ServedModel, name, self._folders[name])
            except FolderError as fault:
                raise RequestError(400, str(fault)) from None
            old = self._models.pop(name, None)
            if new is not None:
                self._models[name] = new
                freeze()
            if old is not None:  # which finishes what it took
                await asyncio.to_thread(old.close)
        return Answer(200, json.dumps(new and (new.metadata, new.example)).encode())


def event(name: str, data: bytes) -> bytes:
    """A server-sent event."""
    return b'event: %s\ndata: %s\n\n' % (name.encode(), data)


def streamed(answer: Any) -> bytes:
    """A message of a gRPC stream."""
    return bytes(ModelStreamInferResponse(infer_response=answer).SerializeToString())


def freeze() -> None:
    """Keep the garbage collector from walking through MXNet's half a million objects: 0.1 s."""
    gc.collect()
    gc.freeze()


async def work(connection: socket.socket, folders: dict[str, Path], loaded: Sequence[str]) -> None:
    """Answer calls until the other side is gone."""
    loop, tasks = asyncio.get_running_loop(), {}
    over = loop.create_future()

    def receive(number: int, call: Optional[Call]) -> None:
        if call is None:
            tasks[number].cancel() if number in tasks else None
            return
        send = partial(channel.send, number)
        part = partial(loop.call_soon_threadsafe, send)
        tasks[number] = task = loop.create_task(handler.answer(call, part))
        task.add_done_callback(partial(done, number))

    def done(number: int, task: 'asyncio.Task[Answer]') -> None:
        del tasks[number]
        if not task.cancelled():
            channel.send(number, task.result())

    channel = Channel(receive, lambda: over.done() or over.set_result(None))
    await loop.create_unix_connection(lambda: channel, sock=connection)
    try:
        handler = Handler(folders, loaded)
    except FolderError as fault:
        channel.send(0, str(fault))
    else:
        channel.send(0, handler.metadata())
        await over


def main() -> None:
    """Work as a process that was started with a socket and folders by model."""
    for each in (signal.SIGINT, signal.SIGTERM):  # the other side ends, and then this one
        signal.signal(each, signal.SIG_IGN)
    folders = {name: Path(folder) for name, folder in json.loads(sys.argv[2]).items()}
    uvloop.run(work(socket.socket(fileno=int(sys.argv[1])), folders, sys.argv[3:]))
