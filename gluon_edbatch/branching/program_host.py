"""What computes for a program: MXNet, ONNX Runtime, or whatever else has arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .program_graph import ProgramGraph, RunNetwork


class Host:
    """Arrays are its own, of so many rows for each sample. Here they are NumPy's; a host of other
    arrays has methods of its own for all that touches one. `arrays` is the class of samples and
    results."""

    arrays: Any = np.ndarray

    def __init__(self, graph: ProgramGraph):
        self._graph = graph

    def run(self, run: RunNetwork, inputs: list[Any], samples: int) -> Sequence[Any]:
        """Results of a network."""
        network = self._graph.networks[run.network]
        if samples == 1 or network.batched:
            return self._call(run, inputs, samples == 1)
        each = [
            self._call(
                run,
                [
                    self._rows(array, sample * spec.shape[0], (sample + 1) * spec.shape[0])
                    for array, spec in zip(inputs, network.inputs)
                ],
                True,
            )
            for sample in range(samples)
        ]
        return [self.concat(arrays) for arrays in zip(*each)]

    def _call(self, run: RunNetwork, inputs: list[Any], alone: bool) -> Sequence[Any]:
        """Results of a network that takes the inputs as they are; `alone` if they are one
        sample's."""
        raise NotImplementedError

    def _rows(self, array: Any, begin: int, end: int) -> Any:
        return array[begin:end]

    def take(self, array: Any, samples: np.ndarray, rows: int) -> Any:
        """Rows of some samples, of an array with so many rows for each."""
        if rows != 1:
            samples = (samples[:, None] * rows + np.arange(rows)).ravel()
        return self._taken(array, samples)

    def _taken(self, array: Any, rows: np.ndarray) -> Any:
        return array[rows]

    def concat(self, arrays: Sequence[Any]) -> Any:
        """Their rows one after the other."""
        return np.concatenate(arrays)

    def split(self, array: Any, rows: int, samples: int) -> list[Any]:
        """An array for each sample."""
        return [array[sample * rows : (sample + 1) * rows] for sample in range(samples)]

    def read(self, array: Any) -> np.ndarray:
        """The elements of an array that has one for each sample."""
        return array.reshape(-1)

    def give(self, numbers: np.ndarray, dtype: str) -> Any:
        """An array (samples,) of numbers."""
        return numbers.astype(dtype)

    def fill(self, constant: int, samples: int) -> Any:
        """A constant of the program's, for each sample; nobody else's array."""
        array = self._graph.constants[constant]
        return np.tile(array, (samples,) + (1,) * (array.ndim - 1))
