"""Operators and CachedOps run without MXNet's Python between, as Python; ``running.pxd`` says the
same in C, which compiled modules use.

MXNet makes ctypes objects of each array, attribute and list, which takes as long as a small
operator. In C its functions are called as they are, and without the interpreter's lock, too.
"""

import ctypes
from typing import Any, List, Sequence

from mxnet.base import _LIB, NDArrayHandle, get_last_ffi_error
from mxnet.ndarray import NDArray
from mxnet.ndarray.ndarray import NDArrayBase
from mxnet.ndarray.sparse import _ndarray_cls

from .invoke import invoke


def run_cached(cached_op: Any, arrays: List[NDArray], cls: type) -> List[NDArray]:
    """What a CachedOp gives for these arrays; dense arrays are of class `cls`."""
    found = cached_op(*arrays)
    return _as(found if isinstance(found, list) else [found], cls)


def run_operator(
    handle: int,
    arrays: Sequence[NDArray],
    keys: List[str],
    vals: List[Any],
    cls: type,
    as_list: bool,
) -> Any:
    """What an operator gives that is none of NumPy's; dense arrays are of class `cls`."""
    found = invoke(handle, arrays, keys, vals, None, False, as_list)
    return _as(found, cls) if isinstance(found, list) else _as([found], cls)[0]


def can_run_operator(handle: Any, arrays: Any, keys: Any, vals: Any) -> bool:
    """Whether `run_operator` takes them: MXNet gives an int, and lists."""
    return True


def same_context(arrays: List[NDArray]) -> bool:
    """Whether they are on one device."""
    return len({array.ctx for array in arrays}) <= 1


def prepare(handle, writable, where: Sequence[int], failed, handle_class, sparse) -> None:
    """Tell the C form where things are (see `IN_C`)."""


def _as(arrays: List[NDArray], cls: type) -> List[NDArray]:
    for array in arrays:
        if array.__class__ is NDArray:
            array.__class__ = cls
    return arrays


_FUNCTIONS = _LIB.MXInvokeCachedOpEx, _LIB.MXImperativeInvokeEx, _LIB.MXNDArrayGetContext
IN_C = (
    NDArrayBase.handle,
    NDArrayBase.writable,
    [ctypes.cast(function, ctypes.c_void_p).value or 0 for function in _FUNCTIONS],
    get_last_ffi_error,
    NDArrayHandle,
    _ndarray_cls,
)
