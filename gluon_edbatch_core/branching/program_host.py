"""The host of a program computes its networks: with MXNet, ONNX Runtime, or other arrays."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from .program_graph import ProgramGraph, RunNetwork


class Host:
    """Compute with arrays that have equally many rows for each sample: here NumPy's. A host of
    other arrays overrides all methods that touch one. `arrays` is the class of samples and
    results."""

    arrays: Any = np.ndarray

    def __init__(self, graph: ProgramGraph):
        self._graph = graph

    def run(self, run: RunNetwork, inputs: list[Any], samples: int) -> Sequence[Any]:
        """Return the results of a network."""
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
        """Return the results of a network that takes the inputs as they are; `alone` if they belong
        to one sample."""
        raise NotImplementedError

    def _rows(self, array: Any, begin: int, end: int) -> Any:
        return array[begin:end]

    def take(self, array: Any, samples: np.ndarray, rows: int) -> Any:
        """Return the rows of some samples of an array with `rows` rows for each."""
        if rows != 1:
            samples = (samples[:, None] * rows + np.arange(rows)).ravel()
        return self._taken(array, samples)

    def _taken(self, array: Any, rows: np.ndarray) -> Any:
        return array[rows]

    def concat(self, arrays: Sequence[Any]) -> Any:
        """Return the concatenated rows of arrays."""
        return np.concatenate(arrays)

    def split(self, array: Any, rows: int, samples: int) -> list[Any]:
        """Return an array for each sample."""
        if samples == 1:
            return [array]
        return [self._rows(array, sample * rows, (sample + 1) * rows) for sample in range(samples)]

    def read(self, array: Any) -> np.ndarray:
        """Return the elements of an array that has one for each sample."""
        return array.reshape(-1)

    def give(self, numbers: np.ndarray, dtype: str) -> Any:
        """Return numbers as an array (samples,)."""
        return numbers.astype(dtype)

    def fill(self, constant: int, samples: int) -> Any:
        """Return a new array with a constant of the program for each sample."""
        array = self._graph.constants[constant]
        return np.tile(array, (samples,) + (1,) * (array.ndim - 1))
