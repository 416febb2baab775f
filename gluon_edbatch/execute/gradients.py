"""Where a backward pass leaves gradients: in arenas of its own, and where MXNet wants them."""

from collections.abc import Sequence
from typing import Any, Optional

from mxnet.ndarray import NDArray

from ..mx.custom_function import ADD, WRITES

NOT_WANTED, WRITTEN, ADDED = '-wa'  # how the next gradient comes to what is there


class Gradients:
    """Of one backward pass.

    Parameters
    ----------
    arenas : sequence of (NDArray or None)
        Gradient arenas.
    unwritten : sequence of int
        Those of them that have to be zero to begin with.
    targets : sequence of NDArray
        For the inputs of the tape.
    requests : sequence of int
        What MXNet wants done with each of these.
    """

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
        self._modes = [
            WRITTEN if each in WRITES else ADDED if each == ADD else NOT_WANTED for each in requests
        ]

    def of_arena(self, index: int) -> tuple[Optional[NDArray], str]:
        """That of an arena, for somebody who adds to it, and has to zero it first if it is
        `WRITTEN`."""
        gradient = self._arenas[index]
        if gradient is None:
            return None, NOT_WANTED
        mode = WRITTEN if index in self._unwritten else ADDED
        self._unwritten.discard(index)
        return gradient, mode

    def of_input(self, place: Optional[int]) -> tuple[Optional[NDArray], str]:
        """The same for an input of the tape, where there is one."""
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
        """From now on all may be added to."""
        for index in self._unwritten:
            arena: Any = self._arenas[index]
            arena[:] = 0
        self._unwritten.clear()

    def zero_inputs(self) -> None:
        """Nothing will come for those that have got nothing so far."""
        for place, mode in enumerate(self._modes):
            if mode == WRITTEN:
                self._targets[place][:] = 0
