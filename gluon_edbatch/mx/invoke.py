"""The function behind all of ``mx.nd``, and operators of MXNet's registry by their handles."""

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import Sequence

from mxnet.base import (
    _LIB,
    MXNetError,
    NDArrayHandle,
    OpHandle,
    c_str,
    c_str_array,
    check_call,
    mx_uint,
    py_str,
)
from mxnet.ndarray import register

INVOKE = register, '_imperative_invoke'  # where a scope puts its own (see `record.hooks`)
invoke = register._imperative_invoke
_MOST_ITEMS = 128
# Types of the arrays by which MXNet hands lists to its library. Where nobody holds one, ctypes
# makes it anew at each call, and it is a cycle that Python's garbage collector has to find.
_ARRAYS = [
    item * length
    for item in (
        *(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int64, mx_uint),
        ctypes.CFUNCTYPE(ctypes.c_int),
    )
    for length in range(_MOST_ITEMS)
]


def load_operators(library: Path) -> None:
    """Add the operators of a library to MXNet's registry. ``mx.library.load`` would then make all
    functions of ``mx.nd`` and ``mx.sym`` anew, which takes half a second; these run by their names.

    Raises
    ------
    MXNetError
        If it cannot be loaded.
    """
    check_call(_LIB.MXLoadLib(c_str(str(library)), mx_uint(0)))


def has_operator(op: str) -> bool:
    """Whether there is one of that name."""
    try:
        operator_handle(op)
    except MXNetError:
        return False
    return True


@lru_cache(maxsize=None)
def operator_handle(op: str) -> int:
    """MXNet's own handle of an operator."""
    handle = OpHandle()
    check_call(_LIB.NNGetOpHandle(c_str(op), ctypes.byref(handle)))
    return handle.value


def run_for_effect(op: str, handles: Sequence[NDArrayHandle], **attributes: str) -> None:
    """Run an operator for what it writes to the arrays of these handles; it has one result, which
    nobody needs."""
    count, results = ctypes.c_int(0), ctypes.POINTER(NDArrayHandle)()
    check_call(
        _LIB.MXImperativeInvokeEx(
            ctypes.c_void_p(operator_handle(op)),
            len(handles),
            (NDArrayHandle * len(handles))(*handles),
            ctypes.byref(count),
            ctypes.byref(results),
            len(attributes),
            c_str_array(attributes.keys()),
            c_str_array(attributes.values()),
            ctypes.byref(ctypes.POINTER(ctypes.c_int)()),
        )
    )
    check_call(_LIB.MXNDArrayFree(NDArrayHandle(results[0])))


@lru_cache(maxsize=None)
def operator_name(handle: int) -> str:
    """The name that an operator has in graphs, whichever of its aliases the handle is of."""
    name = ctypes.c_char_p()
    check_call(_LIB.MXSymbolGetAtomicSymbolName(OpHandle(handle), ctypes.byref(name)))
    return py_str(name.value)


@lru_cache(maxsize=None)
def count_attribute(op: str) -> str:
    """The attribute that says how many arrays an operator takes; empty for most."""
    texts = [ctypes.c_char_p() for _ in range(4)]
    lists = [ctypes.POINTER(ctypes.c_char_p)() for _ in range(3)]
    name, description, count, returned = texts
    check_call(
        _LIB.MXSymbolGetAtomicSymbolInfo(
            OpHandle(operator_handle(op)),
            ctypes.byref(name),
            ctypes.byref(description),
            ctypes.byref(mx_uint()),
            *map(ctypes.byref, lists),
            ctypes.byref(count),
            ctypes.byref(returned),
        )
    )
    return py_str(count.value)
