"""Set autograd's modes of this thread, unseen by the hooks of scopes (see `record.hooks`)."""

import ctypes
from typing import Optional

from mxnet import autograd
from mxnet.base import _LIB, check_call

set_recording, set_training = autograd.set_recording, autograd.set_training


class modes:
    """Set whether autograd records, and trains, inside a with statement (None: unchanged)."""

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
    """Set whether shapes have NumPy's meaning for this thread inside a with statement. MXNet's mode
    may differ, as threads of the engine and of users have their own."""

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
