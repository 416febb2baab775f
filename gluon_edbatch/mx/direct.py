"""Functions in C of our own that are given MXNet's arrays, called without its engine."""

import ctypes
from typing import Any, Callable, Sequence

import numpy as np
from mxnet.base import _LIB, MXNetError, NDArrayHandle, check_call

_LONGEST_MESSAGE = 256
_FUNCTIONS = _LIB.MXNDArrayGetShape, _LIB.MXNDArrayGetData  # as ``src/now.h`` wants them
_IN_C = (ctypes.c_void_p * len(_FUNCTIONS))(
    *[ctypes.cast(function, ctypes.c_void_p) for function in _FUNCTIONS]
)


def wait_to_read(handles: Sequence[NDArrayHandle]) -> None:
    """Wait for what was handed to the engine that writes these arrays: most often there is
    nothing."""
    for handle in handles:
        check_call(_LIB.MXNDArrayWaitToRead(handle))


def call(
    function: Callable[..., int], words: np.ndarray, handles: Sequence[NDArrayHandle], own: Any
) -> int:
    """Call one of the functions of ``src/now.h``.

    Parameters
    ----------
    function : callable
        As ctypes finds it.
    words : numpy.ndarray
        int64.
    handles : sequence of NDArrayHandle
    own : ctypes value
        An argument of its own.

    Returns
    -------
    int
        What it gives.

    Raises
    ------
    MXNetError
        If that is negative, with the function's message.
    """
    message = ctypes.create_string_buffer(_LONGEST_MESSAGE)
    result = function(
        _IN_C,
        ctypes.c_void_p(words.ctypes.data),
        ctypes.c_int64(len(words)),
        (NDArrayHandle * len(handles))(*handles),
        own,
        message,
        ctypes.c_int64(_LONGEST_MESSAGE),
    )
    if result < 0:
        raise MXNetError(f"gluon_edbatch's native operators: {message.value.decode()}")
    return result
