"""Autograd's modes of this thread, by the functions that a scope replaces (see `record.hooks`):
it does not notice these changes."""

from typing import Optional

from mxnet import autograd

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
