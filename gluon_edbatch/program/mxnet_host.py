"""Run programs in MXNet: networks are CachedOps, on any context, under autograd as well."""

from collections.abc import Sequence
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd

from gluon_edbatch_core.branching.program_graph import Network, ProgramGraph, RunNetwork
from gluon_edbatch_core.branching.program_host import Host

from ..execute.cached.compiled_graph import InTurns, cached_op
from ..mx.arrays import rows_of
from ..mx.host import upload
from ..subgraph.trace import INPUT
from .lower import PARAMETER

# A network as an operator, and what it is given: inputs (True) or parameters, by number.
_Compiled = tuple[InTurns, list[tuple[bool, int]]]


class MXNetHost(Host):
    """Run networks of a program with MXNet."""

    arrays = mx.nd.NDArray

    def __init__(self, graph: ProgramGraph, ctx: mx.Context):
        super().__init__(graph)
        self._ctx = ctx
        self._compiled: dict[Any, _Compiled] = {}
        self._constants: dict[int, mx.nd.NDArray] = {}

    def _rows(self, array: Any, begin: int, end: int) -> Any:
        return rows_of(array, begin, end)

    def _call(self, run: RunNetwork, inputs: list[Any], alone: bool) -> Sequence[Any]:
        op, sources = self._found(run, alone)
        parameters, ctx = self._graph.parameters, self._ctx
        arrays = [
            inputs[place] if given else parameters[run.parameters[place]].data(ctx)
            for given, place in sources
        ]
        results = op(*arrays)
        return [results] if isinstance(results, mx.nd.NDArray) else results

    def _found(self, run: RunNetwork, alone: bool) -> _Compiled:
        """Return a compiled network. For one sample each place of the program has its own memory:
        MXNet plans it once, and the engine gets all operators as one. For many samples, or
        autograd, that costs too much memory."""
        in_place = alone and not (autograd.is_recording() or autograd.is_training())
        key: Any = (run.network, run.parameters) if in_place else run.network
        found = self._compiled.get(key)
        if found is None:
            network = self._graph.networks[run.network]
            found = self._compiled[key] = _compile(network, in_place)
        return found

    def _taken(self, array: Any, rows: np.ndarray) -> Any:
        return mx.nd.take(array, upload(rows, array.ctx))

    def concat(self, arrays: Sequence[Any]) -> Any:
        """Return the concatenated rows of arrays."""
        return mx.nd.concat(*arrays, dim=0)

    def read(self, array: Any) -> np.ndarray:
        """Return the elements as NumPy numbers, one for each sample."""
        return array.asnumpy().reshape(-1)

    def give(self, numbers: np.ndarray, dtype: str) -> Any:
        """Return an array of numbers."""
        return upload(numbers.astype(dtype), self._ctx)

    def fill(self, constant: int, samples: int) -> Any:
        """Return a constant for each sample."""
        if constant not in self._constants:
            array = self._graph.constants[constant]
            self._constants[constant] = upload(array, self._ctx)
        array = self._constants[constant]
        return array.tile((samples,) + (1,) * (array.ndim - 1)) if samples > 1 else array.copy()


def _compile(network: Network, in_place: bool) -> _Compiled:
    symbol, sources = network.graph.symbol, []
    for name in symbol.list_inputs():
        given = name.startswith(INPUT[:-2])
        sources.append((given, int(name[len((INPUT if given else PARAMETER)[:-2]) :])))
    if not in_place:
        return cached_op(symbol), sources
    data = [place for place, (given, _) in enumerate(sources) if given]
    others = [place for place, (given, _) in enumerate(sources) if not given]
    return cached_op(symbol, in_place=(data, others)), sources
