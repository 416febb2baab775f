"""The Open Inference Protocol: requests and answers as JSON with binary data, and as gRPC.

The specification is KServe's "Open Inference Protocol" v2; binary data is Triton's extension of it.
Inputs and outputs are NumPy arrays. An array of datatype ``BYTES`` has dtype object, and texts.
"""

import struct
from collections.abc import Container, Iterable, Mapping
from math import isfinite, prod
from typing import Any, NamedTuple, Optional

import numpy as np
from google.protobuf.message import DecodeError
from pydantic import BaseModel, Field, NonNegativeInt, ValidationError
from pydantic_core import to_json
from tritonclient import utils
from tritonclient.grpc import service_pb2 as messages

_NAMES = 'BYTES BOOL UINT8 UINT16 UINT32 UINT64 INT8 INT16 INT32 INT64 FP16 FP32 FP64'
DTYPES = {name: np.dtype(utils.triton_to_np_dtype(name)) for name in _NAMES.split()}
DATATYPE_OF = {dtype: name for name, dtype in DTYPES.items()}
HEADER_LENGTH = 'inference-header-content-length'
_KINDS = {'b': 'b', 'i': 'iu', 'u': 'iu', 'f': 'iuf'}  # kinds of numbers that convert to each kind
_JSON = {'content-type': 'application/json'}
_EVENTS = {'content-type': 'text/event-stream', 'cache-control': 'no-store'}


class RequestError(Exception):
    """Raised to refuse a request: `status` is the HTTP status of the answer."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class Call(NamedTuple):
    """A call to a worker: an inference request (``http``, ``grpc``), ``load`` or ``unload``.

    `model` is a name, with a version for HTTP: ``name/1``. A gRPC request has both in its body.
    """

    kind: str
    model: str = ''
    id: str = ''
    body: bytes = b''
    header_length: Optional[str] = None
    streams: bool = False


class Answer(NamedTuple):
    """An answer to a call, or one of its parts; the last part has `is_last`."""

    status: int
    body: bytes = b'{}'
    headers: dict[str, str] = _JSON
    is_last: bool = True
    traceback: str = ''  # for the log


def error(status: int, message: str) -> Answer:
    """Return an answer with this HTTP status and the message as a JSON body."""
    return Answer(status, to_json({'error': message}))


class Inference(NamedTuple):
    """An inference request, decoded from the body of a call.

    `deadline` is in seconds from now. `outputs` maps requested outputs to whether they are sent as
    binary data. If it is empty, all outputs are sent, as binary data if `is_raw`.
    """

    call: Call
    model: str
    id: str
    inputs: dict[str, Any]
    deadline: Optional[float]
    outputs: dict[str, bool]
    is_raw: bool


class _Output(BaseModel):
    name: str
    parameters: dict[str, Any] = {}


class _Input(_Output):
    shape: list[NonNegativeInt]
    datatype: str
    data: list[Any] = []


class _JsonRequest(BaseModel):
    id: str = ''
    inputs: list[_Input] = Field(min_length=1)
    outputs: list[_Output] = []
    parameters: dict[str, Any] = {}


def check_model(model: str, known: Container[str], loaded: Container[str]) -> str:
    """Return the name in ``name/version``; raise RequestError if the model is not there."""
    name, _, version = model.rpartition('/')
    if name not in known or version != '1':
        raise RequestError(404, f'the model {model[:100]} does not exist')
    if name not in loaded:
        raise RequestError(503, f'the model {name} is not loaded now')
    return name


def read(call: Call) -> Inference:
    """Decode the inference request in a call; raise RequestError if it is malformed."""
    try:
        decoded = _from_http(call) if call.kind == 'http' else _from_grpc(call)
    except (ValidationError, DecodeError) as fault:
        raise RequestError(400, first_fault(fault)) from None
    model, name, inputs, parameters, outputs, is_raw = decoded
    arrays: dict[str, Any] = {}
    for each in inputs:
        if each[0] in arrays:
            raise RequestError(400, f'more than one input is named {each[0][:100]}')
        arrays[each[0]] = _array(*each)
    deadline = parameters.get('deadline')
    if deadline is not None and not (
        type(deadline) in (int, float) and deadline >= 0 and isfinite(deadline)
    ):
        raise RequestError(400, 'the parameter deadline is a number of seconds from now')
    return Inference(call, model, name or call.id, arrays, deadline, outputs, is_raw)


def write(request: Inference, outputs: Mapping[str, Any], is_last: bool = True) -> Answer:
    """Encode outputs as an answer: those requested, or all of them for a part before the last."""
    asked = (is_last and request.outputs) or dict.fromkeys(outputs, request.is_raw)
    for name in asked:
        if name not in outputs:
            raise RequestError(400, f'the outputs are {", ".join(outputs)}, not {name}')
    arrays = [(name, outputs[name], is_raw) for name, is_raw in asked.items()]
    return (_to_http if request.call.kind == 'http' else _to_grpc)(request, arrays, is_last)


def _from_http(call: Call) -> Any:
    """Decode an HTTP request: JSON of `header_length` bytes, by default the whole body. Binary data
    of inputs with the parameter ``binary_data_size`` follows the JSON."""
    length, end = call.header_length, len(call.body)
    if length is not None:
        if not length.isdecimal() or int(length) > end:
            raise RequestError(400, f'{HEADER_LENGTH} is not a length within the body')
        end = int(length)
    request = _JsonRequest.model_validate_json(call.body[:end])
    raw, inputs = memoryview(call.body)[end:], []
    for each in request.inputs:
        data: Any = each.data
        if (size := each.parameters.get('binary_data_size')) is not None:
            if type(size) is not int or not 0 <= size <= len(raw):
                raise RequestError(400, f'input {each.name}: binary_data_size is beyond the body')
            data, raw = raw[:size], raw[size:]
        inputs.append((each.name, each.datatype, tuple(each.shape), data))
    is_raw = request.parameters.get('binary_data_output') is True
    asked = [(each.name, each.parameters.get('binary_data', is_raw)) for each in request.outputs]
    outputs = {name: choice is True for name, choice in asked}
    return call.model, request.id, inputs, request.parameters, outputs, is_raw


def _from_grpc(call: Call) -> Any:
    message: Any = messages.ModelInferRequest.FromString(call.body)
    raw, inputs = message.raw_input_contents, []
    if len(raw) not in (0, len(message.inputs)) or not message.inputs:
        raise RequestError(400, f'{len(message.inputs)} inputs have {len(raw)} raw contents')
    for number, each in enumerate(message.inputs):
        fields = each.contents.ListFields()  # one of them, by the datatype
        data: Any = memoryview(raw[number]) if raw else list(fields[0][1]) if fields else []
        inputs.append((each.name, each.datatype, tuple(each.shape), data))
    parameters = {
        name: getattr(value, value.WhichOneof('parameter_choice') or 'bool_param')
        for name, value in message.parameters.items()
    }
    model = f'{message.model_name}/{message.model_version or 1}'
    outputs = {each.name: True for each in message.outputs}
    return model, message.id, inputs, parameters, outputs, True


def _to_http(request: Inference, arrays: Iterable[Any], is_last: bool) -> Answer:
    described, behind = [], []
    for name, array, is_raw in arrays:
        entry = {'name': name, 'datatype': DATATYPE_OF[array.dtype], 'shape': array.shape}
        if is_raw and not request.call.streams:
            behind.append(_raw(array))
            entry['parameters'] = {'binary_data_size': len(behind[-1])}
        else:
            entry['data'] = array.ravel().tolist()
        described.append(entry)
    model = request.model.partition('/')[0]
    answer = {'model_name': model, 'model_version': '1', 'id': request.id, 'outputs': described}
    text = to_json(answer, inf_nan_mode='constants')
    if request.call.streams:
        event = b'event: %s\ndata: %s\n\n' % (b'answer' if is_last else b'part', text)
        return Answer(200, event, _EVENTS, is_last)
    if not behind:
        return Answer(200, text)
    headers = {'content-type': 'application/octet-stream', HEADER_LENGTH: str(len(text))}
    return Answer(200, b''.join([text, *behind]), headers)


def _to_grpc(request: Inference, arrays: Iterable[Any], is_last: bool) -> Answer:
    """Encode outputs as a gRPC message with raw contents, which all clients read."""
    model = request.model.partition('/')[0]
    message: Any = messages.ModelInferResponse(model_name=model, model_version='1', id=request.id)
    for name, array, _ in arrays:
        message.outputs.add(name=name, datatype=DATATYPE_OF[array.dtype], shape=array.shape)
        message.raw_output_contents.append(_raw(array))
    if request.call.streams:
        message = messages.ModelStreamInferResponse(infer_response=message)
    return Answer(200, message.SerializeToString(), {}, is_last)


def _array(name: str, datatype: str, shape: tuple[int, ...], data: Any) -> Any:
    """Convert an input's data, a list or a memoryview of binary data, to an array."""
    try:
        if datatype not in DTYPES:
            raise ValueError(f'the datatype is one of {", ".join(DTYPES)}')
        if datatype == 'BYTES':
            is_raw = isinstance(data, memoryview)
            array = utils.deserialize_bytes_tensor(data) if is_raw else np.array(data, object)
            if not all([isinstance(text, (str, bytes)) for text in array.ravel()]):
                raise ValueError('an element is no text')
        elif isinstance(data, memoryview):
            array = np.frombuffer(data, DTYPES[datatype])
        else:
            array = _numbers(data, DTYPES[datatype])
        if min(shape, default=0) < 0 or prod(shape) != array.size:
            raise ValueError(f'the shape {list(shape)} does not fit {array.size} elements')
    except (ValueError, TypeError, OverflowError, struct.error) as fault:
        raise RequestError(400, f'input {name}: no {datatype[:20]}: {fault}') from None
    return array.reshape(shape)


def _numbers(data: list[Any], dtype: Any) -> Any:
    """Convert a list to an array; raise ValueError for numbers of a wrong kind or out of range."""
    array = np.array(data)
    if array.size and array.dtype.kind not in _KINDS[dtype.kind]:
        raise ValueError('its elements are of another kind, or lists of different lengths')
    converted = array.astype(dtype)
    if dtype.kind in 'iu' and (converted != array).any():
        raise ValueError('an element is out of range')
    return converted


def _raw(array: Any) -> bytes:
    """Encode an output array as the protocol's binary data."""
    is_text = array.dtype == object
    return bytes(utils.serialize_byte_tensor(array).item() if is_text else array.tobytes())


def first_fault(error: Exception) -> str:
    """Describe an error; of a validation, the first one and its place, without the data."""
    if not isinstance(error, ValidationError):
        return str(error)
    found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f'{found["msg"]} ({".".join(map(str, found["loc"])) or "all of it"})'[:300]
