"""Functions on autograd's tape whose backward is Python.

The backward of ``autograd.Function`` stops at inputs without gradients, and drops added gradients.
"""

import ctypes
import itertools
import traceback
from collections.abc import Sequence
from typing import Callable, NamedTuple

import mxnet as mx
from mxnet import autograd
from mxnet.base import _LIB, MXCallbackList, NDArrayHandle, c_array, c_handle_array, check_call
from mxnet.ndarray import NDArray

from .arrays import raw_handle
from .modes import numpy_shapes

WRITES, ADD = (1, 2), 3  # what MXNet may want done with a gradient, if anything


class _Recorded(NamedTuple):
    """What the tape refers to for one function, until MXNet deletes the function."""

    backward: Callable[[list[NDArray], list[NDArray], list[int]], None]
    numpy: bool  # whether it was recorded in NumPy's shapes
    callbacks: MXCallbackList  # MXNet holds it by address only


_alive: dict[int, _Recorded] = {}
_serial = itertools.count(1)  # zero would come back as None


@autograd.Function._bwd_functype
def _backward(num_heads, num_inputs, handles, requests, _is_train, serial):
    recorded = _alive[serial]
    try:
        arrays = [
            NDArray(ctypes.cast(handle, NDArrayHandle), writable=i >= num_heads)
            for i, handle in enumerate(handles[: num_heads + num_inputs])
        ]
        with numpy_shapes(recorded.numpy):
            recorded.backward(arrays[:num_heads], arrays[num_heads:], requests[:num_inputs])
    except Exception:  # pylint: disable=broad-except
        print(f'Error in the backward pass of gluon_edbatch:\n{traceback.format_exc()}')
        return False
    return True


@autograd.Function._del_functype
def _delete(serial):
    _alive.pop(serial, None)
    return True


# One of each for all functions, told apart by their context: a callback that is cast is in a cycle.
_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int)
_CALLBACKS = c_array(_CALLBACK, [ctypes.cast(entry, _CALLBACK) for entry in (_backward, _delete)])


def record_function(
    inputs: Sequence[NDArray],
    outputs: Sequence[NDArray],
    backward: Callable[[list[NDArray], list[NDArray], list[int]], None],
) -> None:
    """Tell autograd that `outputs` were computed from `inputs`, of which one must carry a gradient.

    `backward` gets the gradients of the outputs, arrays for the gradients of the inputs, and what
    to do with each (`WRITES`, `ADD`). A thread of the engine calls it.
    """
    serial = next(_serial)
    contexts = c_array(ctypes.c_void_p, [serial] * len(_CALLBACKS))
    callbacks = MXCallbackList(len(_CALLBACKS), _CALLBACKS, contexts)
    _alive[serial] = _Recorded(backward, mx.util.is_np_shape(), callbacks)
    check_call(
        _LIB.MXCustomFunctionRecord(
            ctypes.c_int(len(inputs)),
            c_array(ctypes.c_void_p, list(map(raw_handle, inputs))),
            ctypes.c_int(len(outputs)),
            c_handle_array(outputs),
            ctypes.byref(callbacks),
        )
    )
