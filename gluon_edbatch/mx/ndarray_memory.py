"""Functions of MXNet's C API for small arrays of the host; ``ndarray_memory.h`` is the C form.

A copy of a small array would be an operator, so `read` reads it inline.
"""

import ctypes
from functools import cache
from struct import pack
from typing import Any, Optional, Union

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, NDArrayHandle, check_call, get_last_ffi_error, mx_uint
from mxnet.ndarray import NDArray
from mxnet.ndarray.ndarray import _DTYPE_NP_TO_MX, NDArrayBase

from .modes import modes

_DTYPES = np.float32, np.float64, np.float16, np.uint8, np.int32, np.int8, np.int64, np.bool_
_PROBED = 16  # words of an NDArray in C++, which has more
_ENTRY = 24  # bytes of a place on the tape: a node, and which of its outputs


def empty(shape: tuple[int, ...], device: int, number: int, late: bool, dtype: int) -> NDArray:
    """Return an uninitialised array."""
    handle = NDArrayHandle()
    check_call(
        _LIB.MXNDArrayCreateEx(
            (mx_uint * len(shape))(*shape),
            len(shape),
            device,
            number,
            late,
            dtype,
            ctypes.byref(handle),
        )
    )
    return NDArray(handle)


def rows_of(array: NDArray, begin: int, end: int) -> NDArray:
    """Return the view ``array[begin:end]``."""
    handle = NDArrayHandle()
    check_call(_LIB.MXNDArraySlice(array.handle, begin, end, ctypes.byref(handle)))
    return NDArray(handle)


def write(array: NDArray, begin: int, rows: np.ndarray, dtype: int) -> bool:
    """Return False: this form writes nothing (see `arrays.write`)."""
    return False


def wait(handles: list[NDArrayHandle]) -> None:
    """Wait until the engine has written these arrays."""
    for handle in handles:
        check_call(_LIB.MXNDArrayWaitToRead(handle))


def run(address: int, words: np.ndarray, handles: list[Any]) -> Union[bool, str]:
    """Call a native function (see `arrays.run_native`); return the message if it failed."""
    message = _Message()
    result = _RUN(address)(
        _FOR_RUNS,
        words.ctypes.data,
        len(words),
        (NDArrayHandle * len(handles))(*handles),
        len(handles),
        message,
        _LONGEST_MESSAGE,
    )
    return message.value.decode() if result < 0 else bool(result)


def read(array: NDArray, most: int, node_at: int) -> Optional[tuple[bytes, bytes, bytes]]:
    """Return an array's contents once the engine has computed it; the mutation guard sees no read.

    The result has bytes for shape, dtype and device; contents; and place on autograd's tape (empty
    if on none). It is None for arrays of `most` elements or more, empty or sparse ones, arrays on
    other devices, and if `node_at`, from `node_offset`, is -1.
    """
    handle = NDArrayBase.handle.__get__(array)
    same = NDArrayHandle()
    check_call(_LIB.MXShallowCopyNDArray(handle, ctypes.byref(same)))
    alias = NDArray(same)
    if (
        node_at < 0
        or (alias.stype, alias.context.device_type) != ('default', 'cpu')
        or alias.dtype not in _DTYPES
        or not alias.shape
        or not 0 < alias.size < most
    ):
        return None
    values = alias.asnumpy()
    entry = ctypes.string_at(handle.value + node_at, _ENTRY)
    kind = alias.context.device_id, _DTYPE_NP_TO_MX[alias.dtype], *alias.shape
    return pack(f'{len(kind)}i', *kind), values.tobytes(), entry if any(entry[:8]) else b''


def holds(array: np.ndarray, copy: np.ndarray) -> bool:
    """Return whether an array has the shape, dtype and contents of a copy."""
    is_alike = array.dtype == copy.dtype and array.shape == copy.shape
    return is_alike and array.tobytes() == copy.tobytes()


def prepare(given: tuple) -> None:
    """Do nothing. The C form gets `IN_C` here."""


_NAMES = 'CreateEx Slice GetStorageType GetContext GetDType WaitToRead GetShape GetData'.split()
_FUNCTIONS = [getattr(_LIB, f'MXNDArray{name}') for name in _NAMES]
_FUNCTIONS += [_LIB.MXShallowCopyNDArray, _LIB.MXNDArrayFree, _LIB.MXEnginePushSyncND]
IN_C: Any = (
    NDArray,
    NDArrayBase.handle,
    NDArrayBase.writable,
    [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in _FUNCTIONS],
    get_last_ffi_error,
    NDArrayHandle,
)
_LONGEST_MESSAGE = 256
_Message = ctypes.c_char * _LONGEST_MESSAGE  # kept: ctypes would make it anew at each call
_FOR_RUNS = (ctypes.c_void_p * 5)(*IN_C[3][6:])  # see ``MXNetInC``
_TYPES = 'int void_p void_p int64 void_p int64 char_p int64'.split()
_RUN = ctypes.CFUNCTYPE(*[getattr(ctypes, f'c_{name}') for name in _TYPES])


@cache
def node_offset() -> int:
    """Return the offset in an NDArray's memory of its place on autograd's tape; -1 if not found.

    The word there is zero unless the array is marked, or computed from a marked one.
    """
    array, other = mx.nd.ones((1, 8)), mx.nd.ones((2, 3, 2))
    mx.nd.waitall()
    before = _words(array)
    array.attach_grad()
    changed = np.flatnonzero(before != _words(array))
    with modes(recording=True):
        computed = array * 2
    mx.nd.waitall()
    place = changed[0] if len(changed) else 0
    on_tape = [_words(each)[place] for each in (array, computed)]
    on_none = [before[place]] + [_words(each)[place] for each in (other, computed.detach())]
    return 8 * int(place) if len(changed) and all(on_tape) and not any(on_none) else -1


def _words(array: NDArray) -> np.ndarray:
    return np.frombuffer(ctypes.string_at(array.handle, 8 * _PROBED), np.uint64)
