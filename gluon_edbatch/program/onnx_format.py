"""Networks in the format of ONNX, by MXNet's own exporter."""

import io
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from ..branching.program_graph import Network
from ..errors import BundleError
from ..subgraph.ir import Subgraph
from ..subgraph.trace import INPUT
from .lower import PARAMETER

OPSET = 13  # the last that MXNet 1.9.1 writes; ONNX Runtime reads it
_FORMAT = 7  # of the time of OPSET
SAMPLES = 'samples'  # the axis of rows


def as_onnx(network: Network, weights: Sequence[NDArray]) -> bytes:
    """A network with its parameters, for any number of samples if it takes several. Raises
    BundleError if MXNet cannot write it, or the package ``onnx`` is not there."""
    try:
        import onnx
    except ImportError:
        raise BundleError(
            'the format of ONNX is written by the package onnx, older than 1.19, which MXNet 1.9.1 '
            "can use: `pip install '.[cpu,onnx]'`"
        ) from None
    network = network._replace(graph=_with_names(network.graph))
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(io.StringIO()), _of_opset():
        path = str(Path(folder) / 'network.onnx')
        try:
            _write(network, weights, path)
        except Exception as error:
            operators = ', '.join(sorted(set(network.graph.operators)))
            raise BundleError(
                f'MXNet cannot write a network of {operators} in the format of ONNX: '
                f'{type(error).__name__}: {error}'
            ) from error
        model = onnx.load(path)
    del model.opset_import[1:]
    model.opset_import[0].version = OPSET
    model.ir_version = _FORMAT
    _arrange(model, network.graph)
    _hold(model, {INPUT % place for place in range(len(network.inputs))})
    return model.SerializeToString()


def _write(network: Network, weights: Sequence[NDArray], path: str) -> None:
    graph: Subgraph = network.graph
    spec_of = {INPUT % place: spec for place, spec in enumerate(network.inputs)}
    specs = [spec_of[name] for name in graph.symbol.list_inputs() if name in spec_of]
    mx.onnx.export_model(
        graph.symbol,
        {PARAMETER % place: weight for place, weight in enumerate(weights)},
        [spec.shape for spec in specs],
        [np.dtype(spec.dtype).type for spec in specs],
        path,
        dynamic=network.batched,
        dynamic_input_shapes=[(SAMPLES, *spec.shape[1:]) for spec in specs]
        if network.batched
        else None,
    )


def _with_names(graph: Subgraph) -> Subgraph:
    """MXNet tells by their names from which side numbers are subtracted and divided."""
    nodes = [
        node._replace(name=f'{node.op.replace("_scalar", "scalar")}{node.name}')
        if node.op in ('_rminus_scalar', '_rdiv_scalar')
        else node
        for node in graph.nodes
    ]
    return Subgraph.of(nodes, graph.heads)


@contextmanager
def _of_opset() -> Iterator[None]:
    """MXNet writes the latest that ``onnx`` knows, by rules of its own time; and takes names of
    ``onnx`` that are to go."""
    from onnx import checker, defs

    latest, known = defs.onnx_opset_version, dict(checker.DEFAULT_CONTEXT.opset_imports)
    defs.onnx_opset_version = lambda: OPSET
    checker.DEFAULT_CONTEXT.opset_imports = {**known, '': OPSET}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', DeprecationWarning)
            yield
    finally:
        defs.onnx_opset_version = latest
        checker.DEFAULT_CONTEXT.opset_imports = known


def _arrange(model: Any, graph: Subgraph) -> None:
    """MXNet writes results in the order of the operators that give them; a number stands behind the
    name of one that gives several."""
    written = {each.name: each for each in model.graph.output}
    names = [(graph.nodes[head.node].name, head.output) for head in graph.heads]
    ordered = [written.get(name) or written[f'{name}{output}'] for name, output in names]
    del model.graph.output[:]
    model.graph.output.extend(ordered)


def _hold(model: Any, inputs: set[str]) -> None:
    """Weights that are listed as inputs are no constants to ONNX Runtime."""
    kept = [each for each in model.graph.input if each.name in inputs]
    del model.graph.input[:]
    model.graph.input.extend(kept)
