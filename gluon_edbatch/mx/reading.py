"""Small arrays of the host read at once by MXNet's C functions: a copy would be an operator.

The compiled ``calls.py`` uses the C form (``reading.pxd``, ``reading.h``) and never runs `read`.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from struct import pack
from typing import Optional

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call, get_last_ffi_error
from mxnet.ndarray import NDArray

from .arrays import dtype_number, handle_slot
from .modes import modes

_NAMES = 'StorageType', 'Context', 'DType', 'Shape', 'Data'
_CPU, _DENSE = 1, 0
_DTYPES = 'float32', 'float64', 'float16', 'uint8', 'int32', 'int8', 'int64', 'bool'
_SIZES = {dtype_number(dtype): np.dtype(dtype).itemsize for dtype in _DTYPES}
_PROBED = 16  # words of an NDArray in C++, which has more
_ENTRY = 24  # bytes of a place on the tape: a node, and which of its outputs


def read(array: NDArray, most: int, node_at: int) -> Optional[tuple[bytes, bytes, bytes]]:
    """What an array holds when the engine has computed it; does not count as a touch.

    Gives bytes for its shape, dtype and device, its contents, and its place on autograd's tape
    (empty if on none). Gives None for arrays of `most` elements or more, empty and sparse ones,
    those on other devices, and if `node_at`, which `node_offset` found, is -1.
    """
    if node_at < 0:
        return None
    handle = handle_slot.__get__(array)
    stype, ctx, number, dtype = (ctypes.c_int() for _ in range(4))
    ndim, shape, data = ctypes.c_int(), ctypes.POINTER(ctypes.c_int)(), ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetStorageType(handle, ctypes.byref(stype)))
    check_call(_LIB.MXNDArrayGetContext(handle, ctypes.byref(ctx), ctypes.byref(number)))
    check_call(_LIB.MXNDArrayGetDType(handle, ctypes.byref(dtype)))
    check_call(_LIB.MXNDArrayGetShape(handle, ctypes.byref(ndim), ctypes.byref(shape)))
    if (stype.value, ctx.value) != (_DENSE, _CPU) or ndim.value <= 0 or dtype.value not in _SIZES:
        return None
    dims = shape[: ndim.value]
    size = int(np.prod(dims))
    if not 0 < size < most:
        return None
    check_call(_LIB.MXNDArrayWaitToRead(handle))
    check_call(_LIB.MXNDArrayGetData(handle, ctypes.byref(data)))
    if not data.value:
        return None
    entry = ctypes.string_at(handle.value + node_at, _ENTRY)
    kind = pack(f'{2 + len(dims)}i', number.value, dtype.value, *dims)
    return (
        kind,
        ctypes.string_at(data.value, size * _SIZES[dtype.value]),
        entry if any(entry[:8]) else b'',
    )


def contents(array: np.ndarray) -> Optional[bytes]:
    """What a NumPy array is and holds, for `holds`; None where its elements do not lie one behind
    the other."""
    if not array.flags.c_contiguous:
        return None
    return repr((array.shape, array.dtype.str)).encode() + array.tobytes()


def holds(array: np.ndarray, held: bytes) -> bool:
    """Whether `contents` would give that."""
    return contents(array) == held


def prepare(handle, where: Sequence[int], failed) -> None:
    """Tell the C form where things are (see `IN_C`)."""


_FUNCTIONS = [getattr(_LIB, f'MXNDArrayGet{name}') for name in _NAMES] + [_LIB.MXNDArrayWaitToRead]
# Where handles are, and MXNet's functions that `read` calls, as ``reading.h`` wants them.
IN_C = (
    handle_slot,
    [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in _FUNCTIONS],
    get_last_ffi_error,
)


@cache
def node_offset() -> int:
    """Where in an NDArray's memory its place on autograd's tape stands; -1 if that is not found.

    It is where an array has zero unless it is marked or computed from one that is.
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
