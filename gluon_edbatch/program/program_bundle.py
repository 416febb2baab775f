"""Step 5: write programs as bundles, which hosts run with MXNet or without."""

import io
import json
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Union

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from gluon_edbatch_core.branching.program_graph import Network, ProgramGraph, RunNetwork
from gluon_edbatch_core.branching.program_interpreter import ControlFlowProgram
from gluon_edbatch_core.branching.pytree import deserialised, serialised
from gluon_edbatch_core.branching.serialisation import (
    deserialised_blocks,
    deserialised_network,
    serialised_block,
    serialised_network,
)
from gluon_edbatch_core.bundle.manifest import Bundle, BundleWriter, read_bundle
from gluon_edbatch_core.errors import BundleError

from ..subgraph.ir import Subgraph
from ..subgraph.trace import INPUT
from .cpp_format import Pair, add_cpp
from .lower import PARAMETER
from .mxnet_host import MXNetHost

KIND = 'program'
OPSET = 13  # the last that MXNet 1.9.1 writes; ONNX Runtime reads it
_FORMAT = 7  # of the time of OPSET
SAMPLES = 'samples'  # the axis of rows


def write_program(
    program: ControlFlowProgram, ctx: mx.Context, folder: Union[str, Path], onnx: bool, cpp: bool
) -> Path:
    """Write a program as a bundle (see `edb.export`)."""
    graph, max_steps = program.graph, program._max_steps
    parameters = [parameter.data(ctx) for parameter in graph.parameters]
    with BundleWriter(folder, KIND) as bundle:
        networks = []
        for number, network in enumerate(graph.networks):
            name = f'network{number}-symbol.json'
            bundle.add(name, network.graph.symbol.tojson().encode())
            networks.append({**serialised_network(network), 'symbol': name})
        bundle.content.update(
            max_steps=max_steps,
            arguments=serialised(graph.arguments),
            blocks=list(map(serialised_block, graph.blocks)),
            networks=networks,
            parameters=[
                bundle.add_array(f'parameter{number}.npy', array.asnumpy())
                for number, array in enumerate(parameters)
            ],
            constants=[
                bundle.add_array(f'constant{number}.npy', array)
                for number, array in enumerate(graph.constants)
            ],
            onnx=_add_onnx(bundle, graph, parameters) if onnx else [],
        )
        if cpp:
            add_cpp(bundle, graph, sorted(_pairs(graph)), parameters, max_steps)
    return Path(folder)


def _add_onnx(
    bundle: BundleWriter, graph: ProgramGraph, parameters: Sequence[NDArray]
) -> list[dict[str, Any]]:
    """Add an ONNX file for each network and its parameters. Weights are constants in it, so that a
    runtime may lay them out as it likes."""
    entries: list[dict[str, Any]] = []
    for number, own in sorted(_pairs(graph)):
        name = f'network{number}-{len(entries)}.onnx'
        weights = [parameters[place] for place in own]
        bundle.add(name, _as_onnx(graph.networks[number], weights))
        entries.append({'network': number, 'parameters': list(own), 'file': name})
    return entries


def _pairs(graph: ProgramGraph) -> set[Pair]:
    steps = [step for block in graph.blocks for step in block.steps]
    return {(step.network, step.parameters) for step in steps if isinstance(step, RunNetwork)}


def load_program(folder: Union[str, Path], ctx: Any = None) -> ControlFlowProgram:
    """Load a program that `export` wrote. No Python code of the bundle runs.

    Parameters
    ----------
    folder : str or Path
        The bundle.
    ctx : mxnet.Context, optional
        Device to run on, by default the current context.

    Returns
    -------
    ControlFlowProgram
        Call it with a list of samples to get a list of results.

    Raises
    ------
    BundleError
        If something is missing, truncated, altered, of another kind, or of a newer version.
    """
    ctx = ctx or mx.current_context()
    bundle = read_bundle(folder, KIND)
    content = bundle.content
    networks = [deserialised_network(each, _graph_of(bundle, each)) for each in content['networks']]
    parameters = [
        SimpleNamespace(data=mx.nd.array(array, ctx=ctx, dtype=array.dtype).as_in_context)
        for array in map(bundle.array, content['parameters'])
    ]
    constants = list(map(bundle.array, content['constants']))
    blocks = deserialised_blocks(content['blocks'], networks, len(parameters), len(constants))
    arguments = deserialised(content['arguments'])
    graph = ProgramGraph(blocks, networks, parameters, constants, arguments)
    return ControlFlowProgram(graph, MXNetHost(graph, ctx), int(content['max_steps']))


def _graph_of(bundle: Bundle, entry: dict[str, Any]) -> Subgraph:
    data = bundle.files.get(entry.get('symbol', ''))
    if data is None:
        raise BundleError(f'{bundle.folder}: the manifest has no network {entry.get("symbol")!r}')
    try:
        json.loads(data.decode())
        return Subgraph(mx.sym.load_json(data.decode()))
    except (ValueError, mx.base.MXNetError) as error:
        raise BundleError(f'{bundle.folder / entry["symbol"]} is no network: {error}') from None


# --- the format of ONNX, by MXNet's own exporter -----------------------------------------------


def _as_onnx(network: Network, weights: Sequence[NDArray]) -> bytes:
    """Return a network with its parameters as ONNX, for any number of samples if it takes several.
    Raise BundleError if MXNet cannot write it, or the package ``onnx`` is missing."""
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
    """Rename operators, as MXNet's exporter reads the side of an operand from their names."""
    nodes = [
        node._replace(name=f'{node.op.replace("_scalar", "scalar")}{node.name}')
        if node.op in ('_rminus_scalar', '_rdiv_scalar')
        else node
        for node in graph.nodes
    ]
    return Subgraph.of(nodes, graph.heads)


@contextmanager
def _of_opset() -> Iterator[None]:
    """Adapt ``onnx`` for MXNet's exporter, which writes the latest opset by old rules and uses
    deprecated names."""
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
    """Order the results of an ONNX model as the graph's heads. MXNet writes them in the order of
    operators, with a number behind the name of an operator with several."""
    written = {each.name: each for each in model.graph.output}
    names = [(graph.nodes[head.node].name, head.output) for head in graph.heads]
    ordered = [written.get(name) or written[f'{name}{output}'] for name, output in names]
    del model.graph.output[:]
    model.graph.output.extend(ordered)


def _hold(model: Any, inputs: set[str]) -> None:
    """Remove weights from an ONNX model's inputs, as ONNX Runtime treats inputs as variable."""
    kept = [each for each in model.graph.input if each.name in inputs]
    del model.graph.input[:]
    model.graph.input.extend(kept)
