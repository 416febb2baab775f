"""Functions of MXNet's C API for ``ndarray_api.py``; ``ndarray_creation.h`` is the C form."""

import ctypes
from collections.abc import Sequence
from typing import Any, Union

import numpy as np
from mxnet.base import _LIB, NDArrayHandle, check_call, get_last_ffi_error, mx_uint
from mxnet.ndarray import NDArray
from mxnet.ndarray.ndarray import NDArrayBase


def empty(shape: tuple[int, ...], device: int, number: int, late: bool, dtype: int) -> NDArray:
    """Return an uninitialised array (see `ndarray_api.empty`)."""
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
    """Return the view ``array[begin:end]`` (see `ndarray_api.rows_of`)."""
    handle = NDArrayHandle()
    check_call(_LIB.MXNDArraySlice(array.handle, begin, end, ctypes.byref(handle)))
    return NDArray(handle)


def write(array: NDArray, begin: int, rows: np.ndarray, dtype: int) -> bool:
    """Return False: this form writes nothing (see `ndarray_api.write`)."""
    return False


def wait(handles: list[NDArrayHandle]) -> None:
    """Wait until the engine has written these arrays (see `ndarray_api.wait`)."""
    for handle in handles:
        check_call(_LIB.MXNDArrayWaitToRead(handle))


def run(address: int, words: np.ndarray, handles: list[Any]) -> Union[bool, str]:
    """Call a native function (see `ndarray_api.run`); return True, or the message if it failed."""
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


def prepare(array, handle, writable, where: Sequence[int], failed, handle_class) -> None:
    """Do nothing. The C form gets the addresses in `IN_C` here."""


_NAMES = 'CreateEx', 'Slice', 'GetContext', 'GetDType', 'WaitToRead', 'GetShape', 'GetData'
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
_FOR_RUNS = (ctypes.c_void_p * 5)(*IN_C[3][5:])  # see ``MXNetInC``
_TYPES = 'int void_p void_p int64 void_p int64 char_p int64'.split()
_RUN = ctypes.CFUNCTYPE(*[getattr(ctypes, f'c_{name}') for name in _TYPES])
