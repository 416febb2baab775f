"""Where a backward pass leaves gradients: in its own arenas, and where MXNet wants them."""

from collections.abc import Sequence
from typing import Any, Optional

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from ..mx.arrays import copy_into, set_rows
from ..mx.custom_function import ADD, WRITES
from ..mx.host import upload

NOT_WANTED, WRITTEN, ADDED = 0, WRITES[0], ADD  # how the next gradient comes to what is there


class InputGradients:
    """Gradients of the inputs of autograd's function: MXNet's arrays, and its request for each."""

    def __init__(self, targets: Sequence[NDArray], requests: Sequence[int]):
        self._targets = targets
        self._modes = [WRITTEN if each in WRITES else each for each in requests]

    def of(self, place: int) -> tuple[NDArray, int]:
        """Return an input's gradient, and how the next gradient comes to what is there."""
        mode = self._modes[place]
        if mode == WRITTEN:
            self._modes[place] = ADDED
        return self._targets[place], mode

    def deliver(self, place: int, gradient: NDArray) -> None:
        """Write or add a gradient of an input."""
        target, mode = self.of(place)
        if mode == WRITTEN:
            copy_into(gradient, out=target)
        elif mode == ADDED:
            target += gradient

    def deliver_rows(self, place: int, rows: np.ndarray, gradient: NDArray, count: int) -> None:
        """Write or add the gradient of some rows of an input of `count` rows. MXNet hands on the
        memory of any device as arrays of the first CPU, so rows of it are not written one by
        one."""
        whole = mx.nd.zeros((count, *gradient.shape[1:]), gradient.ctx, gradient.dtype)
        add_rows(whole, ADDED, rows, gradient)
        self.deliver(place, whole)

    def zero(self) -> None:
        """Zero the gradients of inputs that got nothing."""
        for place, mode in enumerate(self._modes):
            if mode == WRITTEN:
                mx.nd.zeros_like(self._targets[place], out=self._targets[place])


class Gradients:
    """Gradients of one evaluation in a backward pass: arenas, of which those in `unwritten` must be
    zeroed first, and inputs, of which the evaluation has those at `places`."""

    def __init__(
        self,
        arenas: Sequence[Optional[NDArray]],
        unwritten: Sequence[int],
        inputs: InputGradients,
        places: Sequence[int],
    ):
        self._arenas = arenas
        self._unwritten = set(unwritten)
        self._inputs, self._places = inputs, places

    def of_arena(self, index: int) -> tuple[Optional[NDArray], int]:
        """Return the gradient of an arena, and how to add to it: if `WRITTEN`, zero it first."""
        gradient = self._arenas[index]
        if gradient is None:
            return None, NOT_WANTED
        mode = WRITTEN if index in self._unwritten else ADDED
        self._unwritten.discard(index)
        return gradient, mode

    def of_input(self, place: Optional[int]) -> tuple[Optional[NDArray], int]:
        """Return the gradient of an input of the tape, if there is one, and how to add to it."""
        return (None, NOT_WANTED) if place is None else self._inputs.of(self._places[place])

    def deliver(self, place: int, gradient: NDArray) -> None:
        """Write or add a gradient of an input."""
        self._inputs.deliver(self._places[place], gradient)

    def zero_arenas(self) -> None:
        """Zero the arenas to which nothing was added so far."""
        for index in self._unwritten:
            arena: Any = self._arenas[index]
            mx.nd.zeros_like(arena, out=arena)
        self._unwritten.clear()


def add_rows(target: Optional[NDArray], mode: int, rows: np.ndarray, gradient: NDArray) -> None:
    """Add the gradient of some rows of an array, each of which occurs once; zero it before if it is
    not written yet."""
    if target is None or mode == NOT_WANTED or not len(rows):
        return
    first, count = int(rows[0]), len(rows)
    if mode == WRITTEN and count < len(target):
        mx.nd.zeros_like(target, out=target)
    if (rows[1:] - rows[:-1] == 1).all():
        part = target._slice(first, first + count)
        if mode == WRITTEN:
            gradient.copyto(part)
        else:
            part += gradient
        return
    index = upload(rows.astype(np.int32), target.ctx)
    total = gradient if mode == WRITTEN else mx.nd.take(target, index) + gradient
    set_rows(target, index, total)
