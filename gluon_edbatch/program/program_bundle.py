"""Step 5: programs written as bundles, which hosts run, with MXNet or without."""

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Union

import mxnet as mx
from mxnet.ndarray import NDArray

from ..branching.program_graph import ProgramGraph, RunNetwork
from ..branching.program_interpreter import ControlFlowProgram
from ..branching.pytree import decoded, encoded
from ..branching.serialisation import (
    decoded_blocks,
    decoded_network,
    encoded_block,
    encoded_network,
)
from ..bundle.manifest import Bundle, BundleWriter, read_bundle
from ..errors import BundleError
from ..subgraph.ir import Subgraph
from .cpp_format import Pair, add_cpp
from .mxnet_host import MXNetHost
from .onnx_format import as_onnx

KIND = 'program'


def write_program(
    graph: ProgramGraph,
    max_steps: int,
    ctx: mx.Context,
    folder: Union[str, Path],
    onnx: bool,
    cpp: bool,
) -> Path:
    """See `Program.export`."""
    parameters = [parameter.data(ctx) for parameter in graph.parameters]
    with BundleWriter(folder, KIND) as bundle:
        networks = []
        for number, network in enumerate(graph.networks):
            name = f'network{number}-symbol.json'
            bundle.add(name, network.graph.symbol.tojson().encode())
            networks.append({**encoded_network(network), 'symbol': name})
        bundle.content.update(
            max_steps=max_steps,
            arguments=encoded(graph.arguments),
            blocks=list(map(encoded_block, graph.blocks)),
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
    """A file for each network with the parameters that it has: so weights are constants to those
    who run it, which they lay out as they like."""
    entries: list[dict[str, Any]] = []
    for number, own in sorted(_pairs(graph)):
        name = f'network{number}-{len(entries)}.onnx'
        weights = [parameters[place] for place in own]
        bundle.add(name, as_onnx(graph.networks[number], weights))
        entries.append({'network': number, 'parameters': list(own), 'file': name})
    return entries


def _pairs(graph: ProgramGraph) -> set[Pair]:
    steps = [step for block in graph.blocks for step in block.steps]
    return {(step.network, step.parameters) for step in steps if isinstance(step, RunNetwork)}


def load_program(folder: Union[str, Path], ctx: Any = None) -> ControlFlowProgram:
    """Load a program that `Program.export` wrote; nothing of it is executed but its networks.

    Parameters
    ----------
    folder : str or Path
        The bundle.
    ctx : mxnet.Context, optional
        Where it runs; the present one otherwise.

    Returns
    -------
    ControlFlowProgram
        Called with a list of samples, it gives a list of results.

    Raises
    ------
    BundleError
        If something is missing, truncated, altered, of another kind, or of a newer version.
    """
    ctx = ctx or mx.current_context()
    bundle = read_bundle(folder, KIND)
    content = bundle.content
    networks = [decoded_network(each, _graph_of(bundle, each)) for each in content['networks']]
    parameters = [
        SimpleNamespace(data=mx.nd.array(array, ctx=ctx, dtype=array.dtype).as_in_context)
        for array in map(bundle.array, content['parameters'])
    ]
    constants = list(map(bundle.array, content['constants']))
    blocks = decoded_blocks(content['blocks'], networks, len(parameters), len(constants))
    graph = ProgramGraph(blocks, networks, parameters, constants, decoded(content['arguments']))
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
