"""Functions in C of our own that are given MXNet's arrays, and some of its functions: they do
without its operators, or without its engine."""

import ctypes
from collections.abc import Sequence
from typing import Any, Callable, Optional

import numpy as np
from mxnet.base import _LIB, MXNetError, NDArrayHandle

_LONGEST_MESSAGE = 256
_Message = ctypes.c_char * _LONGEST_MESSAGE  # kept, as each type that ctypes makes is a cycle
_FUNCTIONS = (  # as ``src/mxnet_in_c.h`` wants them
    _LIB.MXNDArrayGetShape,
    _LIB.MXNDArrayGetData,
    _LIB.MXShallowCopyNDArray,
    _LIB.MXNDArrayFree,
    _LIB.MXEnginePushSyncND,
)
_IN_C = (ctypes.c_void_p * len(_FUNCTIONS))(
    *[ctypes.cast(function, ctypes.c_void_p) for function in _FUNCTIONS]
)


def call(
    function: Callable[..., int],
    words: np.ndarray,
    handles: Sequence[Optional[NDArrayHandle]],
    own: Any,
) -> int:
    """Call one of the functions of ``src/now.h`` and ``src/differentiation.h``.

    Parameters
    ----------
    function : callable
        As ctypes finds it.
    words : numpy.ndarray
        int64.
    handles : sequence of (NDArrayHandle or None)
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
    message = _Message()
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
