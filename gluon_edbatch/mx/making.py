"""Arrays made, cut and written by MXNet's functions, as Python; ``making.pxd`` says the same in C,
which the compiled ``fresh.py`` uses.
"""

import ctypes
from typing import Sequence, Tuple

import numpy as np
from mxnet.base import _LIB, NDArrayHandle, check_call, get_last_ffi_error, mx_uint
from mxnet.ndarray import NDArray
from mxnet.ndarray.ndarray import NDArrayBase


def empty(shape: Tuple[int, ...], device: int, number: int, late: bool, dtype: int) -> NDArray:
    """See `fresh.empty`."""
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
    """See `fresh.rows_of`."""
    handle = NDArrayHandle()
    check_call(_LIB.MXNDArraySlice(array.handle, begin, end, ctypes.byref(handle)))
    return NDArray(handle)


def write(array: NDArray, begin: int, rows: np.ndarray, dtype: int) -> bool:
    """See `fresh.write`; all is left to who asks."""
    return False


def prepare(array, handle, writable, where: Sequence[int], failed, handle_class) -> None:
    """Tell the C form where things are (see `IN_C`)."""


_NAMES = 'CreateEx', 'Slice', 'GetContext', 'GetDType', 'GetShape', 'GetData'
_FUNCTIONS = [getattr(_LIB, f'MXNDArray{name}') for name in _NAMES]
IN_C = (
    NDArray,
    NDArrayBase.handle,
    NDArrayBase.writable,
    [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in _FUNCTIONS],
    get_last_ffi_error,
    NDArrayHandle,
)
