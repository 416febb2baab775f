"""Autograd's modes of this thread, by the functions that a scope replaces (see `record.hooks`):
it does not notice these changes."""

import ctypes
from typing import Optional

from mxnet import autograd
from mxnet.base import _LIB, check_call

set_recording, set_training = autograd.set_recording, autograd.set_training


class modes:
    """While it lasts, autograd records or not, and trains or not (None: as before)."""

    __slots__ = ('_recording', '_training')

    def __init__(self, recording: bool, training: Optional[bool] = None):
        self._recording, self._training = recording, training

    def __enter__(self) -> None:
        self._recording = set_recording(self._recording)
        if self._training is not None:
            self._training = set_training(self._training)

    def __exit__(self, *_) -> None:
        set_recording(self._recording)
        if self._training is not None:
            set_training(self._training)


class numpy_shapes:
    """While it lasts, shapes mean in this thread what they do in NumPy mode, or do not, whatever
    MXNet's mode is: threads of its engine, and those of users, may be in another one."""

    __slots__ = ('_wanted', '_before')

    def __init__(self, wanted: bool):
        self._wanted = wanted

    def __enter__(self) -> None:
        self._before = _set_numpy_shapes(int(self._wanted))

    def __exit__(self, *_) -> None:
        _set_numpy_shapes(self._before)


def _set_numpy_shapes(wanted: int) -> int:
    before = ctypes.c_int()
    check_call(_LIB.MXSetIsNumpyShape(wanted, ctypes.byref(before)))
    return before.value
