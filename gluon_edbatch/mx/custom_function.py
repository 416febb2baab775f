"""A function of autograd's tape whose backward is Python.

``autograd.Function`` could not be used: its backward stops at the first input without a gradient,
and drops gradients that are to be added.
"""

import ctypes
import itertools
import traceback
from typing import Callable, Dict, List, Sequence

import mxnet as mx
from mxnet import autograd
from mxnet.base import _LIB, MXCallbackList, NDArrayHandle, c_array, c_handle_array, check_call
from mxnet.ndarray import NDArray

from .arrays import raw_handle
from .modes import numpy_shapes

WRITES, ADD = (1, 2), 3  # what MXNet may want done with a gradient, if anything
_BACKWARD = autograd.Function._bwd_functype
_DELETE = autograd.Function._del_functype
_alive: Dict[int, MXCallbackList] = {}  # MXNet holds these by address only
_serial = itertools.count()


def record_function(
    inputs: Sequence[NDArray],
    outputs: Sequence[NDArray],
    backward: Callable[[List[NDArray], List[NDArray], List[int]], None],
) -> None:
    """Tell autograd that `outputs` were computed from `inputs`.

    Parameters
    ----------
    inputs : sequence of NDArray
        At least one of them must carry a gradient.
    outputs : sequence of NDArray
        Computed already; not known to autograd.
    backward : callable
        Gets the gradients of the outputs, the arrays where those of the inputs belong, and for
        each of these what to do (`WRITES`, `ADD`). Called from a thread of the engine.
    """
    key, numpy = next(_serial), mx.util.is_np_shape()

    def backward_entry(num_heads, num_inputs, handles, requests, _is_train, _context):
        try:
            arrays = [
                NDArray(ctypes.cast(handle, NDArrayHandle), writable=i >= num_heads)
                for i, handle in enumerate(handles[: num_heads + num_inputs])
            ]
            with numpy_shapes(numpy):
                backward(arrays[:num_heads], arrays[num_heads:], requests[:num_inputs])
        except Exception:  # pylint: disable=broad-except
            print(f'Error in the backward pass of gluon_edbatch:\n{traceback.format_exc()}')
            return False
        return True

    def delete_entry(_context):
        _alive.pop(key, None)
        return True

    callbacks = [
        ctypes.cast(callback, ctypes.CFUNCTYPE(ctypes.c_int))
        for callback in (_BACKWARD(backward_entry), _DELETE(delete_entry))
    ]
    context = MXCallbackList(
        ctypes.c_int(len(callbacks)),
        ctypes.cast(
            c_array(ctypes.CFUNCTYPE(ctypes.c_int), callbacks),
            ctypes.POINTER(ctypes.CFUNCTYPE(ctypes.c_int)),
        ),
        ctypes.cast(
            c_array(ctypes.c_void_p, [None] * len(callbacks)), ctypes.POINTER(ctypes.c_void_p)
        ),
    )
    _alive[key] = context
    check_call(
        _LIB.MXCustomFunctionRecord(
            ctypes.c_int(len(inputs)),
            c_array(ctypes.c_void_p, list(map(raw_handle, inputs))),
            ctypes.c_int(len(outputs)),
            c_handle_array(outputs),
            ctypes.byref(context),
        )
    )
