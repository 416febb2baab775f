"""Arrays by their handles: aliases, memory and gradients, unseen by `mutation_guard`.

Cython compiles this module by ``arrays.pxd`` where there is a compiler.
"""

import ctypes
import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Callable, Optional

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, MXNetError, NDArrayHandle, check_call
from mxnet.ndarray import NDArray
from mxnet.ndarray.ndarray import (
    _DTYPE_NP_TO_MX,
    _STORAGE_TYPE_ID_TO_STR,
    NDArrayBase,
    _new_alloc_handle,
)

from . import ndarray_memory
from .invoke import invoke, operator_handle
from .modes import modes
from .ndarray_memory import IN_C

ndarray_memory.prepare(IN_C)
_one_at_a_time = threading.RLock()

_LARGEST = 2**31 - 1  # elements of an array, but in some builds
DTYPE_NUMBERS = {np.dtype(kind): number for kind, number in _DTYPE_NP_TO_MX.items() if kind}
handle_slot = NDArrayBase.handle  # the slot itself, which GuardedArray shadows
# The handle of an array without a touch, for a use that neither reads nor writes the array.
raw_handle: Callable[[NDArray], NDArrayHandle] = handle_slot.__get__
copy_into = mx.nd._internal._copyto  # ``copyto`` looks at both handles first


def detached(array: NDArray) -> NDArray:
    """Return a new NDArray on the same memory that no tape knows; does not count as a touch."""
    handle = NDArrayHandle()
    check_call(_LIB.MXNDArrayDetach(raw_handle(array), ctypes.byref(handle)))
    return NDArray(handle)


def alias(array: NDArray, cls: type = NDArray) -> NDArray:
    """Return a new NDArray object for the same array, on a tape, too; does not count as a touch."""
    handle = NDArrayHandle()
    check_call(_LIB.MXShallowCopyNDArray(raw_handle(array), ctypes.byref(handle)))
    return cls(handle)


def set_rows(array: NDArray, index: NDArray, rows: NDArray) -> None:
    """Write rows of an array, by their numbers, each of which occurs once."""
    scatter = mx.nd._internal._scatter_set_nd
    scatter(array, rows, index.reshape((1, -1)), shape=array.shape, out=array)


def keep_on_tape(array: NDArray) -> NDArray:
    """Make an array's tape keep its numbers, and return the array. Otherwise MXNet ends the process
    if a loss depends on it by operators without a gradient only."""
    with modes(recording=True):
        invoke(operator_handle('shape_array'), [array], [], [], None, False, False)
    return array


def reshaped(array: NDArray, shape: Sequence[int]) -> NDArray:
    """Return the view ``array.reshape(shape)`` six times as fast; taped if autograd records."""
    handle, axes = NDArrayHandle(), (ctypes.c_int64 * len(shape))(*shape)
    check_call(_LIB.MXNDArrayReshape64(array.handle, len(shape), axes, False, ctypes.byref(handle)))
    return NDArray(handle)


def concatenated(arrays: Sequence[NDArray]) -> NDArray:
    """Return the concatenated rows of arrays; MXNet's own `concat` takes no truth values."""
    if arrays[0].dtype != np.bool_:
        return mx.nd.concat(*arrays, dim=0)
    return mx.nd.concat(*[array.astype(np.uint8) for array in arrays], dim=0).astype(np.bool_)


def as_numpy(array: NDArray, shape: Sequence[int]) -> NDArray:
    """Return the same array as an ``mx.np`` array; without axes if `shape` has none."""
    array = alias(array, mx.np.ndarray)
    if shape:
        return array
    with modes(recording=True):
        return mx.np.reshape(array, ())


def new_array(values: Any, ctx: Optional[mx.Context], dtype: Any) -> NDArray:
    """Return a new array with these values, an ``mx.np`` array in NumPy mode."""
    make = mx.np.array if mx.util.is_np_array() else mx.nd.array
    return make(values, ctx=ctx, dtype=dtype)


def empty(shape: Sequence[int], dtype: Any, ctx: mx.Context, late: bool = True) -> NDArray:
    """Return an uninitialised array; `late` allocates its memory at the first write."""
    if math.prod(shape) > _LARGEST:
        return NDArray(_new_alloc_handle(tuple(shape), ctx, late, dtype))
    number = dtype_number(dtype)
    return ndarray_memory.empty(tuple(shape), ctx.device_typeid, ctx.device_id, late, number)


def rows_of(array, begin, end):
    """Return the view ``array[begin:end]``, on a tape if autograd records."""
    return ndarray_memory.rows_of(array, begin, end)


def copy_of_rows(array: NDArray, begin: int, end: int) -> NDArray:
    """Return ``mx.nd.slice_axis(array, 0, begin, end)`` in half the time; taped if autograd
    records."""
    names, numbers = ['axis', 'begin', 'end'], [0, begin, end]
    return invoke(operator_handle('slice_axis'), [array], names, numbers, None, False, False)


def write(array, begin, rows, dtype):
    """Copy rows, whose dtype is MXNet's number, to an array's rows from `begin` on. Return False,
    and do nothing, if they do not fit or the array is not in host memory."""
    return ndarray_memory.write(array, begin, rows, dtype)


def wait_for(handles):
    """Wait until the engine has written these arrays."""
    ndarray_memory.wait(handles)


def run_native(address, words, handles):
    """Call a function of ``execute/native/src/calls_from_python.h`` at an address, with int64 words
    and handles of arrays (or None). Raise `MXNetError` with its message if it fails."""
    result = ndarray_memory.run(address, words, handles)
    if type(result) is str:
        raise MXNetError(f"gluon_edbatch's native operators: {result}")
    return result


def gradient_stype(array: NDArray) -> Optional[str]:
    """Return ``array.grad.stype`` without a touch, and faster; None without a gradient."""
    handle, stype = NDArrayHandle(), ctypes.c_int()
    check_call(_LIB.MXNDArrayGetGrad(raw_handle(array), ctypes.byref(handle)))
    if not handle.value:
        return None
    check_call(_LIB.MXNDArrayGetStorageType(handle, ctypes.byref(stype)))
    check_call(_LIB.MXNDArrayFree(handle))
    return _STORAGE_TYPE_ID_TO_STR[stype.value]


def dtype_number(dtype: Any) -> int:
    """Return MXNet's number for a dtype."""
    return DTYPE_NUMBERS[np.dtype(dtype)]


@contextmanager
def values_read() -> Iterator[list[NDArray]]:
    """Collect the arrays that this thread reads inside the ``with``, by ``asnumpy`` or ``if``."""
    read: list[NDArray] = []
    thread, asnumpy = threading.get_ident(), NDArray.asnumpy

    def noting(self: NDArray) -> np.ndarray:
        if threading.get_ident() == thread:
            read.append(self)
        return asnumpy(self)

    with _one_at_a_time:
        NDArray.asnumpy = noting
        try:
            yield read
        finally:
            NDArray.asnumpy = asnumpy
