"""Copy host memory to new arrays without waiting for the engine.

MXNet's own copy waits for a free thread of the engine. Nothing else uses a new array, so its memory
is written directly.
"""

import ctypes
from functools import partial
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.base import _LIB, check_call
from mxnet.ndarray import NDArray

from .arrays import DTYPE_NUMBERS, empty, write

allocated = partial(empty, late=False)  # its memory is allocated already, as `write_new` needs it


def upload(values: np.ndarray, ctx: mx.Context) -> NDArray:
    """Return a new array with these values, on a device."""
    array = allocated(values.shape, values.dtype, ctx)
    write_new(array, 0, values)
    return array


def write_new(array: NDArray, begin: int, rows: np.ndarray) -> None:
    """Write rows, from `begin` on, of an array of `allocated` that the engine has not used."""
    number = DTYPE_NUMBERS.get(rows.dtype)
    if number is not None and write(array, begin, rows, number):
        return
    if array.ctx.device_type != 'cpu':
        array._slice(begin, begin + len(rows))._sync_copyfrom(rows)
        return
    rows = np.ascontiguousarray(rows, array.dtype)
    if rows.shape[1:] != array.shape[1:] or not 0 <= begin <= len(array) - len(rows):
        raise ValueError(f'rows of {rows.shape} do not fit into {array.shape} at {begin}')
    if not rows.nbytes:
        return
    data: Any = ctypes.c_void_p()
    check_call(_LIB.MXNDArrayGetData(array.handle, ctypes.byref(data)))
    ctypes.memmove(data.value + begin * (rows.nbytes // len(rows)), rows.ctypes.data, rows.nbytes)
