"""Call the function behind all of ``mx.nd``, and operators of MXNet's registry by their handles."""

import ctypes
import os
import re
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from mxnet.base import (
    _LIB,
    NDArrayHandle,
    OpHandle,
    c_str,
    c_str_array,
    check_call,
    mx_uint,
    py_str,
)
from mxnet.ndarray import register
from mxnet.symbol import register as symbol_register

INVOKE = register, '_imperative_invoke'  # where a scope puts its own (see `record.hooks`)
invoke = register._imperative_invoke
CREATE_SYMBOL = symbol_register, '_symbol_creator'  # the function behind all of ``mx.sym``
create_symbol = symbol_register._symbol_creator
_MOST_ITEMS = 128
# Kept types of arrays that MXNet makes for its library: each new one is a cycle for the collector.
_ARRAYS = [
    item * length
    for item in (
        *(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_int64, mx_uint),
        ctypes.CFUNCTYPE(ctypes.c_int),
    )
    for length in range(_MOST_ITEMS)
]

# Operators of libraries write shared arrays: two threads that call them together may deadlock.
_handing_over = threading.Lock()
os.register_at_fork(
    before=_handing_over.acquire,
    after_in_parent=_handing_over.release,
    after_in_child=_handing_over.release,
)


def load_operators(library: Path) -> None:
    """Add a library's operators to MXNet's registry, to run by name. ``mx.library.load`` takes
    longer, as it makes all functions of ``mx.nd`` again."""
    check_call(_LIB.MXLoadLib(c_str(str(library)), mx_uint(0)))


@cache
def operator_handle(op: str) -> int:
    """Return MXNet's handle of an operator."""
    handle = OpHandle()
    check_call(_LIB.NNGetOpHandle(c_str(op), ctypes.byref(handle)))
    return handle.value


def run_for_effect(op: str, handles: Sequence[NDArrayHandle], **attributes: str) -> None:
    """Run one of this package's operators for what it writes to arrays of these handles; its one
    result is dropped."""
    count, results = ctypes.c_int(0), ctypes.POINTER(NDArrayHandle)()
    handle, texts = operator_handle(op), [attributes.keys(), attributes.values()]
    with _handing_over:
        failed = _LIB.MXImperativeInvokeEx(
            ctypes.c_void_p(handle),
            len(handles),
            (NDArrayHandle * len(handles))(*handles),
            ctypes.byref(count),
            ctypes.byref(results),
            len(attributes),
            *map(c_str_array, texts),
            ctypes.byref(ctypes.POINTER(ctypes.c_int)()),
        )
    check_call(failed)
    check_call(_LIB.MXNDArrayFree(NDArrayHandle(results[0])))


@cache
def operator_name(handle: int) -> str:
    """Return the name that an operator has in graphs, for a handle of any of its aliases."""
    name = ctypes.c_char_p()
    check_call(_LIB.MXSymbolGetAtomicSymbolName(OpHandle(handle), ctypes.byref(name)))
    return py_str(name.value)


def count_attribute(op: str) -> str:
    """Return the attribute with the number of an operator's arrays; empty for most."""
    return _information(op)[0]


def attribute_default(op: str, attribute: str) -> str:
    """Return the default of an attribute; empty if it has none."""
    found = re.search("default='?([^',]*)", _information(op)[1].get(attribute, ''))
    return found.group(1) if found else ''


@cache
def _information(op: str) -> tuple[str, dict[str, str]]:
    """Return the attribute that counts arrays, and MXNet's documentation of each attribute."""
    texts, number = [ctypes.c_char_p() for _ in range(4)], mx_uint()
    lists = [ctypes.POINTER(ctypes.c_char_p)() for _ in range(3)]
    name, description, count, returned = texts
    check_call(
        _LIB.MXSymbolGetAtomicSymbolInfo(
            OpHandle(operator_handle(op)),
            ctypes.byref(name),
            ctypes.byref(description),
            ctypes.byref(number),
            *map(ctypes.byref, lists),
            ctypes.byref(count),
            ctypes.byref(returned),
        )
    )
    names, kinds, _ = lists
    about = {py_str(names[i]): py_str(kinds[i]) for i in range(number.value)}
    return py_str(count.value), about
