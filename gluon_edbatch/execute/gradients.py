"""Where a backward pass leaves gradients: in its own arenas, and where MXNet wants them."""

from collections.abc import Sequence
from typing import Any, Optional

from mxnet.ndarray import NDArray

from ..mx.custom_function import ADD, WRITES

NOT_WANTED, WRITTEN, ADDED = 0, WRITES[0], ADD  # how the next gradient comes to what is there


class Gradients:
    """Gradients of one backward pass: arenas, of which those in `unwritten` must be zeroed first,
    and arrays for the inputs of the tape, with MXNet's request for each."""

    def __init__(
        self,
        arenas: Sequence[Optional[NDArray]],
        unwritten: Sequence[int],
        targets: Sequence[NDArray],
        requests: Sequence[int],
    ):
        self._arenas = arenas
        self._unwritten = set(unwritten)
        self._targets = targets
        self._modes = [WRITTEN if each in WRITES else each for each in requests]

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
        if place is None:
            return None, NOT_WANTED
        mode = self._modes[place]
        if mode == WRITTEN:
            self._modes[place] = ADDED
        return self._targets[place], mode

    def deliver(self, place: int, gradient: NDArray) -> None:
        """Write or add a gradient of an input."""
        target, mode = self.of_input(place)
        if mode == WRITTEN:
            gradient.copyto(target)
        elif mode == ADDED:
            target += gradient

    def zero_arenas(self) -> None:
        """Zero the arenas to which nothing was added so far."""
        for index in self._unwritten:
            arena: Any = self._arenas[index]
            arena[:] = 0
        self._unwritten.clear()

    def zero_inputs(self) -> None:
        """Zero the gradients of inputs that got nothing."""
        for place, mode in enumerate(self._modes):
            if mode == WRITTEN:
                self._targets[place][:] = 0
