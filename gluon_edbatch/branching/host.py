"""What computes for a program: MXNet, ONNX Runtime, or whatever else has arrays."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from .graph import RunNetwork


class Host(Protocol):
    """Arrays are its own, of so many rows for each sample.

    Attributes
    ----------
    arrays : type
        Of samples and results.
    """

    arrays: Any

    def put(self, array: Any) -> Any:
        """An array of a sample's as the host has it."""

    def run(self, run: RunNetwork, inputs: list[Any], samples: int) -> Sequence[Any]:
        """Results of a network."""

    def take(self, array: Any, samples: np.ndarray, rows: int) -> Any:
        """Rows of some samples, of an array with so many rows for each."""

    def concat(self, arrays: Sequence[Any]) -> Any:
        """Their rows one after the other."""

    def split(self, array: Any, rows: int, samples: int) -> list[Any]:
        """An array for each sample."""

    def read(self, array: Any) -> np.ndarray:
        """The elements of an array that has one for each sample."""

    def give(self, numbers: np.ndarray, dtype: str) -> Any:
        """An array (samples,) of numbers."""

    def fill(self, constant: int, samples: int) -> Any:
        """A constant of the program's, for each sample; nobody else's array."""
