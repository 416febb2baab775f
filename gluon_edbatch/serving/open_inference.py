"""The Open Inference Protocol: requests and answers as JSON with binary data, and as gRPC.

The specification is KServe's "Open Inference Protocol" v2; binary data is Triton's extension of it.
"""

import struct
from math import isfinite, prod
from typing import Any, NamedTuple, Optional

import numpy as np
from pydantic import BaseModel, Field, NonNegativeInt, ValidationError
from pydantic_core import to_json
from tritonclient.grpc.service_pb2 import ModelInferResponse
from tritonclient.utils import (
    deserialize_bytes_tensor,
    serialize_byte_tensor,
    triton_to_np_dtype,
)

_NAMES = 'BOOL UINT8 UINT16 UINT32 UINT64 INT8 INT16 INT32 INT64 FP16 FP32 FP64'
DTYPES = {name: np.dtype(triton_to_np_dtype(name)) for name in _NAMES.split()}
HEADER_LENGTH = 'inference-header-content-length'
_KINDS = {'b': 'b', 'i': 'iu', 'u': 'iu', 'f': 'iuf'}  # of numbers that are one of such a kind


class RequestError(Exception):
    """A request is not answered: the `status` of HTTP, and the message."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


class Tensor(NamedTuple):
    """An input or an output.

    Its `data` are an array of its shape or, if the datatype is ``BYTES``, a list of its elements
    as str or bytes, in row-major order.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: Any


class Inference(NamedTuple):
    """A request for results of samples.

    `deadline` is seconds from now. `outputs` has the outputs that are asked for, and which of them
    are to be binary data; all are wanted where it is empty, as `is_raw` says.
    """

    id: str
    inputs: list[Tensor]
    deadline: Optional[float]
    outputs: dict[str, bool]
    is_raw: bool

    def wanted(self, outputs: list[Tensor]) -> list[tuple[Tensor, bool]]:
        """The outputs that are asked for, and whether as binary data."""
        names = {each.name: each for each in outputs}
        for name in self.outputs:
            if name not in names:
                raise RequestError(400, f'the outputs are {", ".join(names)}, not {name}')
        asked = self.outputs or dict.fromkeys(names, self.is_raw)
        return [(names[name], raw) for name, raw in asked.items()]


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


def from_http(body: bytes, header_length: Optional[str]) -> Inference:
    """The request that a body holds: JSON, which is `header_length` bytes if that is said, and the
    binary data of inputs whose parameters have ``binary_data_size``.

    Raises
    ------
    RequestError
        If it is none.
    """
    end = len(body)
    if header_length is not None:
        if not header_length.isdecimal() or int(header_length) > end:
            raise RequestError(400, f'{HEADER_LENGTH} is not a length within the body')
        end = int(header_length)
    try:
        request = _JsonRequest.model_validate_json(body[:end])
    except ValidationError as error:
        raise RequestError(400, first_fault(error)) from None
    raw, inputs = memoryview(body)[end:], []
    for each in request.inputs:
        size = each.parameters.get('binary_data_size')
        data: Any = each.data
        if size is not None:
            if type(size) is not int or not 0 <= size <= len(raw):
                raise RequestError(400, f'input {each.name}: binary_data_size is beyond the body')
            data, raw = raw[:size], raw[size:]
        inputs.append(_tensor(each.name, each.datatype, tuple(each.shape), data))
    is_raw = request.parameters.get('binary_data_output') is True
    outputs = {
        each.name: each.parameters.get('binary_data', is_raw) is True for each in request.outputs
    }
    return Inference(request.id, inputs, _deadline(request.parameters), outputs, is_raw)


def to_http(model: str, request: Inference, outputs: list[Tensor]) -> tuple[dict[str, str], bytes]:
    """Headers and body of an answer."""
    described, behind = [], []
    for each, raw in request.wanted(outputs):
        entry: dict[str, Any] = {'name': each.name, 'datatype': each.datatype, 'shape': each.shape}
        if raw:
            behind.append(_raw(each))
            entry['parameters'] = {'binary_data_size': len(behind[-1])}
        else:
            entry['data'] = each.data if each.datatype == 'BYTES' else each.data.ravel().tolist()
        described.append(entry)
    answer = {'model_name': model, 'model_version': '1', 'id': request.id, 'outputs': described}
    text = to_json(answer, inf_nan_mode='constants')
    if not behind:
        return {'content-type': 'application/json'}, text
    headers = {'content-type': 'application/octet-stream', HEADER_LENGTH: str(len(text))}
    return headers, b''.join([text, *behind])


def from_grpc(message: Any) -> Inference:
    """The request that a ModelInferRequest holds.

    Raises
    ------
    RequestError
        If it is none.
    """
    raw, inputs = message.raw_input_contents, []
    if len(raw) not in (0, len(message.inputs)) or not message.inputs:
        raise RequestError(400, f'{len(message.inputs)} inputs have {len(raw)} raw contents')
    for number, each in enumerate(message.inputs):
        fields = each.contents.ListFields()  # one of them, by the datatype
        data: Any = memoryview(raw[number]) if raw else list(fields[0][1]) if fields else []
        inputs.append(_tensor(each.name, each.datatype, tuple(each.shape), data))
    parameters = {
        name: getattr(value, value.WhichOneof('parameter_choice') or 'bool_param')
        for name, value in message.parameters.items()
    }
    outputs = {each.name: True for each in message.outputs}
    return Inference(message.id, inputs, _deadline(parameters), outputs, True)


def to_grpc(model: str, request: Inference, outputs: list[Tensor]) -> Any:
    """The ModelInferResponse, with raw contents, which all clients read."""
    answer = ModelInferResponse(model_name=model, model_version='1', id=request.id)
    for each, _ in request.wanted(outputs):
        answer.outputs.add(name=each.name, datatype=each.datatype, shape=each.shape)
        answer.raw_output_contents.append(_raw(each))
    return answer


def _tensor(name: str, datatype: str, shape: tuple[int, ...], data: Any) -> Tensor:
    """A tensor of a list, or of the binary data that a memoryview holds."""
    try:
        if datatype == 'BYTES':
            texts = deserialize_bytes_tensor(data) if isinstance(data, memoryview) else data
            if not all([isinstance(text, (str, bytes)) for text in texts]):
                raise ValueError('an element is no text')
            data, size = list(texts), len(texts)
        elif datatype not in DTYPES:
            raise ValueError(f'the datatype is one of BYTES, {", ".join(DTYPES)}')
        else:
            is_raw = isinstance(data, memoryview)
            data = np.frombuffer(data, DTYPES[datatype]) if is_raw else _numbers(data, datatype)
            size = data.size
    except (ValueError, TypeError, OverflowError, struct.error) as error:
        raise RequestError(400, f'input {name}: no {datatype[:20]}: {error}') from None
    if min(shape, default=0) < 0 or prod(shape) != size:
        fault = f'the shape {list(shape)} does not fit {size} elements'
        raise RequestError(400, f'input {name}: {fault}')
    return Tensor(name, datatype, shape, data if datatype == 'BYTES' else data.reshape(shape))


def _numbers(data: list[Any], datatype: str) -> Any:
    """The array of a list, nested or flat, without a change of a value's kind."""
    array, dtype = np.array(data), DTYPES[datatype]
    if array.size and array.dtype.kind not in _KINDS[dtype.kind]:
        raise ValueError('its elements are of another kind, or lists of different lengths')
    converted = array.astype(dtype)
    if dtype.kind in 'iu' and (converted != array).any():
        raise ValueError('an element is out of range')
    return converted


def _raw(tensor: Tensor) -> bytes:
    """The binary data of an output."""
    if tensor.datatype != 'BYTES':
        return bytes(np.ascontiguousarray(tensor.data).tobytes())
    return bytes(serialize_byte_tensor(np.array(tensor.data, object)).item())


def _deadline(parameters: dict[str, Any]) -> Optional[float]:
    deadline = parameters.get('deadline')
    if deadline is None:
        return None
    if type(deadline) not in (int, float) or not (deadline >= 0 and isfinite(deadline)):
        raise RequestError(400, 'the parameter deadline is a number of seconds from now')
    return float(deadline)


def first_fault(error: ValidationError) -> str:
    """What is wrong, and where, without what was sent."""
    found = error.errors(include_url=False, include_context=False, include_input=False)[0]
    return f'{found["msg"]} ({".".join(map(str, found["loc"])) or "all of it"})'[:300]
