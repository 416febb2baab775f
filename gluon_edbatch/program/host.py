"""The host in MXNet: networks are CachedOps, on any context, under autograd as well."""

from typing import Any, Dict, List, Sequence, Tuple

import mxnet as mx
import numpy as np

from ..branching.graph import Network, ProgramGraph, RunNetwork
from ..execute.cached.program import cached_op
from ..subgraph.trace import INPUT
from .lower import PARAMETER


class MXNetHost:
    """Runs networks of a program with MXNet.

    Attributes
    ----------
    arrays : type
        Of samples and results.

    Parameters
    ----------
    graph : ProgramGraph
    ctx : mxnet.Context
    """

    arrays = mx.nd.NDArray

    def __init__(self, graph: ProgramGraph, ctx: mx.Context):
        self._graph, self._ctx = graph, ctx
        self._compiled: Dict[int, Tuple[Any, List[Tuple[bool, int]]]] = {}

    def put(self, array: Any) -> Any:
        """An array of a sample's."""
        return array

    def run(self, run: RunNetwork, inputs: List[Any], samples: int) -> Sequence[Any]:
        """Results of a network."""
        network = self._graph.networks[run.network]
        if samples == 1 or network.batched:
            return self._call(run, inputs)
        each = [
            self._call(
                run,
                [
                    self._sample(array, spec.shape[0], sample)
                    for array, spec in zip(inputs, network.inputs)
                ],
            )
            for sample in range(samples)
        ]
        return [self.concat(arrays) for arrays in zip(*each)]

    def _sample(self, array: Any, rows: int, sample: int) -> Any:
        return mx.nd.slice_axis(array, axis=0, begin=sample * rows, end=(sample + 1) * rows)

    def _call(self, run: RunNetwork, inputs: List[Any]) -> Sequence[Any]:
        found = self._compiled.get(run.network)
        if found is None:
            found = self._compiled[run.network] = _compile(self._graph.networks[run.network])
        op, sources = found
        parameters = self._graph.parameters
        arrays = [
            inputs[place] if given else parameters[run.parameters[place]].data(self._ctx)
            for given, place in sources
        ]
        results = op(*arrays)
        return [results] if isinstance(results, mx.nd.NDArray) else results

    def take(self, array: Any, samples: np.ndarray, rows: int) -> Any:
        """Rows of some samples."""
        if rows != 1:
            samples = (samples[:, None] * rows + np.arange(rows)).ravel()
        return mx.nd.take(array, mx.nd.array(samples, ctx=array.ctx, dtype='int64'))

    def concat(self, arrays: Sequence[Any]) -> Any:
        """Their rows one after the other."""
        return mx.nd.concat(*arrays, dim=0)

    def split(self, array: Any, rows: int, samples: int) -> List[Any]:
        """An array for each sample."""
        if samples == 1:
            return [array]
        return [array[sample * rows : (sample + 1) * rows] for sample in range(samples)]

    def read(self, array: Any) -> np.ndarray:
        """The elements, one for each sample."""
        return array.asnumpy().reshape(-1)

    def give(self, numbers: np.ndarray, dtype: str) -> Any:
        """An array of numbers."""
        return mx.nd.array(numbers, ctx=self._ctx, dtype=dtype)

    def fill(self, constant: int, samples: int) -> Any:
        """A constant for each sample."""
        array = self._graph.constants[constant]
        repeats = (samples,) + (1,) * (array.ndim - 1)
        return mx.nd.array(np.tile(array, repeats), ctx=self._ctx, dtype=array.dtype)


def _compile(network: Network) -> Tuple[Any, List[Tuple[bool, int]]]:
    """The operator, and what it is given: inputs (True) or parameters, by number."""
    sources = []
    for name in network.graph.symbol.list_inputs():
        given = name.startswith(INPUT[:-2])
        sources.append((given, int(name[len((INPUT if given else PARAMETER)[:-2]) :])))
    return cached_op(network.graph.symbol), sources
