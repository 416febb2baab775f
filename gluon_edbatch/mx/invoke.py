"""The function behind all of ``mx.nd``, and operators of MXNet's registry by their handles."""

import ctypes
from typing import Dict

from mxnet.base import _LIB, OpHandle, c_str, check_call, py_str
from mxnet.ndarray import register

INVOKE = register, '_imperative_invoke'  # where a scope puts its own (see `record.hooks`)
invoke = register._imperative_invoke
_handles: Dict[str, int] = {}
_names: Dict[int, str] = {}


def operator_handle(op: str) -> int:
    """MXNet's own handle of an operator."""
    handle = _handles.get(op)
    if handle is None:
        found = OpHandle()
        check_call(_LIB.NNGetOpHandle(c_str(op), ctypes.byref(found)))
        handle = _handles[op] = found.value
    return handle


def operator_name(handle: int) -> str:
    """The name that an operator has in graphs, whichever of its aliases the handle is of."""
    name = _names.get(handle)
    if name is None:
        text = ctypes.c_char_p()
        check_call(_LIB.MXSymbolGetAtomicSymbolName(OpHandle(handle), ctypes.byref(text)))
        name = _names[handle] = py_str(text.value)
    return name
