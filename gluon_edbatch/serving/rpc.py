"""The service that listens by gRPC, beside the application: what it hands on it does not read."""

import json
from collections.abc import AsyncIterator
from functools import partial
from time import monotonic
from typing import Any, Callable

import grpc
from google.protobuf.json_format import ParseDict
from tritonclient.grpc import service_pb2 as messages

from .front import IDLE, SERVER, Front
from .open_inference import RequestError
from .worker import Answer, Call, error

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT, 403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND, 503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}  # fmt: skip


class Service:
    """The methods of ``inference.GRPCInferenceService`` that there are.

    Parameters
    ----------
    front : Front
        The application beside it, with which it shares limits.
    """

    def __init__(self, front: Front):
        self._front = front

    def server(self, max_bytes: int) -> Any:
        """A server of grpc.aio with these methods."""
        front = self._front
        plain: dict[str, Callable[[Any], Any]] = {
            'ServerLive': lambda _: {'live': True},
            'ServerReady': lambda _: {'ready': front.is_ready()},
            'ModelReady': lambda asked: {'ready': front.is_ready(asked.name)},
            'ServerMetadata': lambda _: SERVER,
            'ModelMetadata': lambda asked: front.metadata(asked.name, asked.version),
            'RepositoryIndex': lambda _: {'models': front.index()},
            'RepositoryModelLoad': lambda asked: front.change('load', asked.model_name),
            'RepositoryModelUnload': lambda asked: front.change('unload', asked.model_name),
        }
        methods = {
            name: grpc.unary_unary_rpc_method_handler(
                partial(self._plain, name, give),
                getattr(messages, f'{name}Request').FromString,
                lambda answer: answer.SerializeToString(),
            )
            for name, give in plain.items()
        }
        methods['ModelInfer'] = grpc.unary_unary_rpc_method_handler(self._infer)
        methods['ModelStreamInfer'] = grpc.stream_stream_rpc_method_handler(self._stream)
        service = grpc.method_handlers_generic_handler('inference.GRPCInferenceService', methods)
        options = [
            ('grpc.max_receive_message_length', max_bytes), ('grpc.so_reuseport', 0),
            ('grpc.max_connection_idle_ms', int(1e3 * IDLE)), ('grpc.max_send_message_length', -1),
        ]  # fmt: skip
        return grpc.aio.server(handlers=[service], options=options)

    async def _plain(self, name: str, give: Callable[[Any], Any], asked: Any, context: Any) -> Any:
        try:
            found = give(asked)
            if not isinstance(found, dict):
                answer = await found
                found = {}
                if answer.status != 200:
                    await self._fail(context, answer)
        except RequestError as fault:
            await self._fail(context, error(fault.status, str(fault)))
        answer = getattr(messages, f'{name}Response')()
        return ParseDict(found, answer, ignore_unknown_fields=True)

    async def _infer(self, body: bytes, context: Any) -> bytes:
        begun, id = monotonic(), self._id(context)  # noqa: A001
        try:
            with self._front.admitted():
                answer = await self._front.pool.ask(Call('grpc', id=id, body=body))
        except RequestError as fault:
            answer = error(fault.status, str(fault))
        self._front.note('grpc', 'ModelInfer', id, answer.status, begun)
        context.set_trailing_metadata((('x-request-id', id),))
        if answer.status != 200:
            await self._fail(context, answer)
        return answer.body

    async def _stream(self, bodies: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        """Answer the requests of a stream, one after the other."""
        id, number = self._id(context), 0  # noqa: A001
        async for body in bodies:
            number, begun = number + 1, monotonic()
            call = Call('grpc', id=f'{id}-{number}', body=body, streams=True)
            try:
                with self._front.admitted():
                    async for answer in self._front.pool.stream(call):
                        is_good = answer.status == 200
                        yield answer.body if is_good else _failed(answer)
            except RequestError as fault:
                answer = error(fault.status, str(fault))
                yield _failed(answer)
            self._front.note('grpc', 'ModelStreamInfer', call.id, answer.status, begun)

    def _id(self, context: Any) -> str:
        return self._front.request_id(dict(context.invocation_metadata()).get('x-request-id', ''))

    async def _fail(self, context: Any, answer: Answer) -> None:
        code = _CODES.get(answer.status, grpc.StatusCode.INTERNAL)
        await context.abort(code, json.loads(answer.body)['error'])


def _failed(answer: Answer) -> bytes:
    message = messages.ModelStreamInferResponse(error_message=json.loads(answer.body)['error'])
    return bytes(message.SerializeToString())
