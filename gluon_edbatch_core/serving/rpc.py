"""The gRPC service beside the HTTP application: passes inference requests on without decoding."""

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Callable

import grpc
from google.protobuf.json_format import ParseDict
from tritonclient.grpc import service_pb2 as messages

from .front import IDLE, SERVER, Front
from .open_inference import Answer, Call, RequestError

_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT, 403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND, 503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}  # fmt: skip


def rpc_server(front: Front, max_bytes: int) -> Any:
    """Return a grpc.aio server of ``inference.GRPCInferenceService``, with the limits of `front`,
    which takes messages of up to `max_bytes`."""
    unary = grpc.unary_unary_rpc_method_handler
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
    methods = {}
    for name, give in plain.items():
        asked, made = (getattr(messages, name + kind) for kind in ('Request', 'Response'))
        give = partial(_plain, give, made)
        methods[name] = unary(give, asked.FromString, made.SerializeToString)
    methods['ModelInfer'] = unary(partial(_infer, front))
    methods['ModelStreamInfer'] = grpc.stream_stream_rpc_method_handler(partial(_stream, front))
    service = grpc.method_handlers_generic_handler('inference.GRPCInferenceService', methods)
    options = [
        ('grpc.max_receive_message_length', max_bytes), ('grpc.so_reuseport', 0),
        ('grpc.max_connection_idle_ms', 1000 * IDLE), ('grpc.max_send_message_length', -1),
    ]  # fmt: skip
    return grpc.aio.server(handlers=[service], options=options)


async def _plain(give: Callable[[Any], Any], made: Any, asked: Any, context: Any) -> Any:
    try:
        found = give(asked)
        found = found if isinstance(found, dict) else await found
        return ParseDict(found, made(), ignore_unknown_fields=True)
    except RequestError as fault:
        await context.abort(_CODES.get(fault.status, grpc.StatusCode.INTERNAL), str(fault))


async def _infer(front: Front, body: bytes, context: Any) -> bytes:
    name = _name(front, context)
    context.set_trailing_metadata((('x-request-id', name),))
    answers = front.answers(Call('grpc', id=name, body=body))
    (answer,) = [each async for each in front.noted('grpc', 'ModelInfer', name, answers)]
    if answer.status != 200:
        await context.abort(_CODES.get(answer.status, grpc.StatusCode.INTERNAL), _message(answer))
    return answer.body


async def _stream(front: Front, bodies: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
    """Answer the requests of a gRPC stream, one after the other."""
    name, number = _name(front, context), 0
    async for body in bodies:
        number += 1
        call = Call('grpc', id=f'{name}-{number}', body=body, streams=True)
        answers = front.answers(call)
        async for answer in front.noted('grpc', 'ModelStreamInfer', call.id, answers):
            failed = messages.ModelStreamInferResponse(error_message=_message(answer))
            yield answer.body if answer.status == 200 else failed.SerializeToString()


def _name(front: Front, context: Any) -> str:
    return front.request_id(dict(context.invocation_metadata()).get('x-request-id', ''))


def _message(answer: Answer) -> str:
    return '' if answer.status == 200 else str(json.loads(answer.body)['error'])
