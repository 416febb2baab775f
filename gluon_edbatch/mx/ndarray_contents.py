"""Read small arrays of the host inline by MXNet's C functions: a copy would be an operator.

The compiled ``calls.py`` uses ``ndarray_contents.h`` instead, and never runs `read`.
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
    """Return an array's contents once the engine has computed it; the mutation guard sees no read.

    The result has bytes for shape, dtype and device; contents; and place on autograd's tape (empty
    if on none). It is None for arrays of `most` elements or more, empty or sparse ones, arrays on
    other devices, and if `node_at`, from `node_offset`, is -1.
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
    """Return a NumPy array's shape, dtype and contents as bytes; None unless it is contiguous."""
    if not array.flags.c_contiguous:
        return None
    return repr((array.shape, array.dtype.str)).encode() + array.tobytes()


def holds(array: np.ndarray, held: bytes) -> bool:
    """Return whether `contents` would return `held` for an array."""
    return contents(array) == held


def prepare(handle, where: Sequence[int], failed) -> None:
    """Do nothing. The C form gets the addresses in `IN_C` here."""


_FUNCTIONS = [getattr(_LIB, f'MXNDArrayGet{name}') for name in _NAMES] + [_LIB.MXNDArrayWaitToRead]
# Where handles are, and MXNet's functions that `read` calls, as ``ndarray_contents.h`` wants them.
IN_C = (
    handle_slot,
    [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in _FUNCTIONS],
    get_last_ffi_error,
)


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
