"""Export a model's cells and the policy of its schedules as a bundle, for hosts without MXNet."""

import ast
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Union

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.ndarray import CachedOp

from gluon_edbatch_core.bundle.cell_program import CellProgram, NotInNumPy
from gluon_edbatch_core.bundle.manifest import BundleWriter
from gluon_edbatch_core.bundle.numpy_steps import Segments
from gluon_edbatch_core.errors import BundleError
from gluon_edbatch_core.schedule import FSMScheduler, Scheduler

from ..mx.blocks import names_of_blocks
from ..mx.modes import modes
from ..ops.attrs import Attrs
from ..record.hooks import suspended
from ..record.recording import Recording
from ..record.sites import site_at
from ..subgraph.ir import Entry, Node, Subgraph
from ..subgraph.node_type import Kind, NodeType, used_only
from ..subgraph.structure import LEAF
from ..subgraph.trace import INPUT
from .scope import batching

KIND = 'cells'
_KINDS = {Kind.ROWS: 'rows', Kind.RAGGED: 'ragged'}
_TRIED = 3, 2, 2, 1, 0  # values of the ragged arguments of the calls that are compared
_PARTS = 'Reshape', 'slice', 'slice_axis'  # which the runtime has for values of one row
_CLOSE = {'rtol': 1e-4, 'atol': 1e-5}
# In the order of the bundle: names and arrays of parameters, and of what is computed of these.
_Weights = dict[Any, tuple[str, np.ndarray]]


def export_cells(net: gluon.Block, scope: batching, folder: Union[str, Path]) -> Path:
    """Write the cells that a scope has recorded, for ``gluon_edbatch_runtime`` to load.

    Record a few samples as usual first. The bundle has each batch signature that these samples
    called, the present weights, and the policy that the scheduler has learned. NumPy runs each
    batch signature first, and its results are compared with MXNet's.

    Parameters
    ----------
    net : gluon.Block
        The model whose cells are written. The bundle names each cell by its attributes:
        ``net.tree_lstm.cell`` becomes ``cells.tree_lstm.cell``.
    scope : batching
        A scope that was recorded without ``autograd.record()``. Calls that still wait in it are
        evaluated.
    folder : str or Path
        Where the bundle is written. A complete new bundle replaces an earlier one.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    BundleError
        If a batch signature cannot be exported: the message says which, why, and what to do.
        Nothing is written then.

    Examples
    --------
    >>> with edb.batching() as scope:
    ...     scores = [net(sample) for sample in samples]
    >>> edb.forward(scores)
    >>> edb.export_cells(net, scope, 'bundle')
    """
    with BundleWriter(folder, KIND) as bundle:
        bundle.content.update(cells_content(net, scope, bundle))
    return Path(folder)


def cells_content(net: gluon.Block, scope: batching, bundle: BundleWriter) -> dict[str, Any]:
    """Return what a manifest holds of the cells that a scope has recorded; write their weights."""
    recording = scope._recording
    if recording is None or not recording.forms:
        raise BundleError('the scope has recorded nothing: record some samples')
    recording.flush()
    names = names_of_blocks(net)
    blocks_of = _called(recording, names)
    weights: _Weights = {}
    entries = [
        _entry(kind, [name for block in blocks for name in names[block]], weights)
        for kind, blocks in blocks_of.items()
    ]
    return {
        'cells': {
            name: {
                'children': getattr(block, 'values_of_child', 0),
                'flattens': getattr(block, 'flattens', False),
                'states': _states_of(block),
            }
            for block in dict.fromkeys(chain.from_iterable(blocks_of.values()))
            for name in names[block]
        },
        'types': entries,
        'weights': [
            {**bundle.add_array(f'weight{place}.npy', array), 'name': name}
            for place, (name, array) in enumerate(weights.values())
        ],
        'policy': _policy(scope.scheduler, blocks_of),
    }


def _states_of(block: gluon.Block) -> list[list[int]]:
    """Return the shapes of the states of a recurrent cell, without the batch; else none."""
    if not isinstance(block, gluon.rnn.RecurrentCell):
        return []
    return [list(info['shape'][1:]) for info in block.state_info()]


def _called(
    recording: Recording, names: dict[gluon.Block, list[str]]
) -> dict[NodeType, list[gluon.Block]]:
    """Return the types that were called, by their serials, each with its cells."""
    blocks_of: dict[NodeType, list[gluon.Block]] = {}
    nodes = recording.node_forms.since(0).tolist()
    first = {form: node for node, form in reversed(list(enumerate(nodes)))}
    for form in recording.forms:
        kind, block = form.node_type, form.block
        if form.index not in first:
            continue
        node = first[form.index]
        site = site_at(recording.node_codes[node], recording.node_instructions[node])
        if block is None:
            why = _why_not_there(kind)
            if why:
                raise BundleError(
                    f'{site}: {kind} is an operator outside of cells, which is not there without '
                    f'MXNet ({why}): put it into the hybrid_forward of a HybridBlock'
                )
            continue
        if block not in names:
            raise BundleError(f'{site}: {kind}: the block is not in the model that is exported')
        try:
            _check(kind)
        except BundleError as error:
            raise BundleError(f'{site}: {error}') from None
        blocks = blocks_of.setdefault(kind, [])
        if block not in blocks:
            blocks.append(block)
    return dict(sorted(blocks_of.items(), key=lambda found: found[0].serial))


def _why_not_there(kind: NodeType) -> str:
    """Return why the runtime cannot run a type's operator; an empty text if it can."""
    op, _, shared = kind.made_with
    is_part = op in _PARTS and kind.whole and not kind.packed  # as h.reshape((1, -1)) and h[0, 1]
    if op in ('concat rows', 'pick') or is_part:  # h[:, k] is recorded by pick
        return ''
    if shared or kind.parameters or any(each.kind is not Kind.ROWS for each in kind.arguments):
        return 'it takes other arguments than values of one shape'
    try:
        _check(kind)
        _compare(kind, _program(kind.graph.subgraph), {})
    except BundleError as error:
        return str(error).rpartition(' cannot be exported: ')[2].partition('. Write it')[0]
    return ''


def _check(kind: NodeType) -> None:
    """Raise if calls of a type cannot leave MXNet."""
    kinds = {argument.kind for argument in kind.arguments}
    ragged = Kind.RAGGED in kinds
    for is_so, why in (
        (kind.mode.recording or kind.mode.training, 'was recorded under autograd.record()'),
        (kind.mode.numpy, 'was recorded in NumPy mode'),
        (kind.alone or kind.eager, f'runs call by call: {kind.reason}'),
        (kind.whole, 'treats whole values, whose rows depend on each other'),
        (kind.packed, 'is packed'),
        (ragged and (kind.lengths is not None or not kind.neutral), 'depends on lengths'),
        (ragged and kind.rows != 1, 'has ragged values of several rows'),
        (not kind.has_one_length, 'has ragged arguments of different lengths'),
        (not kinds <= _KINDS.keys(), 'takes packed arguments'),
        (
            isinstance(kind.made_with[0], tuple)
            and sum(map(_leaves, kind.made_with[0])) != len(kind.arguments),
            'is recorded in parts, as a result has an element for each of any number of values',
        ),
    ):
        if is_so:
            raise BundleError(f'{kind} cannot be exported: it {why}')


def _leaves(part: tuple[Any, ...]) -> int:
    """Return how many values an argument has."""
    return int(part == LEAF) or sum([_leaves(each) for each in part[1:] if type(each) is tuple])


def _entry(kind: NodeType, cells: list[str], weights: _Weights) -> dict[str, Any]:
    """Return the manifest's entry for a type: its cells, arguments, nodes and weights. Its
    parameters are added to `weights`."""
    graph, named = kind.graph.subgraph, _folded_weights(kind)
    arrays = {name: each.data(kind.ctx).asnumpy() for name, each in kind.graph.parameters.items()}
    keys: dict[str, Any] = dict(kind.graph.parameters)
    if named:
        graph = _folded(graph, named)
        arrays.update(named)
        keys.update({name: (kind.serial, name) for name in named})
    arrays = {name: arrays[name] for name in graph.variables if name in arrays}
    for name, array in arrays.items():
        weights.setdefault(keys[name], (getattr(keys[name], 'name', name), array))
    places = {key: place for place, key in enumerate(weights)}
    entry = {
        'name': kind.stable_name,
        'cells': cells,
        'template': [_template(kind, part) for part in kind.made_with[0]],
        'arguments': [
            {'kind': _KINDS[each.kind], **_described(each.arena.row_shape, each.arena.dtype)}
            for each in kind.arguments
        ],
        'outputs': [
            {**_described(spec.row_shape, spec.dtype), 'factor': factor}
            for spec, factor in zip(kind.outputs, kind.factors)
        ],
        'results': _nested(kind, kind.nested),
        'fills': False,
        'weights': {name: places[keys[name]] for name in arrays},
        **_program(graph),
    }
    _compare(kind, entry, {name: weights[keys[name]][1] for name in arrays})
    return entry


def _constants_in(kind: NodeType) -> list[int]:
    """Return the operators of a type's graph that read weights alone."""
    graph = kind.graph.subgraph
    nodes, constant, found = graph.nodes, set[int](), []
    entries = [*graph.heads, *[entry for node in nodes for entry in node.inputs]]
    of_several = {entry.node for entry in entries if entry.output}  # parts of a split
    for index, node in enumerate(nodes):
        if node.is_variable:
            if node.name in kind.graph.parameters:
                constant.add(index)
        elif (
            node.inputs
            and index not in of_several
            and constant.issuperset([entry.node for entry in node.inputs])
        ):
            constant.add(index)
            found.append(index)
    return found


def _folded_weights(kind: NodeType) -> dict[str, np.ndarray]:
    """Return what operators on weights alone come to, by the names of the operators."""
    graph, indices = kind.graph.subgraph, _constants_in(kind)
    if not indices:
        return {}
    part = Subgraph.of(graph.nodes, [Entry(index) for index in indices])
    arrays = [kind.graph.parameters[name].data(kind.ctx) for name in part.variables]
    with suspended(), modes(recording=False):
        results = CachedOp(part.symbol)(*arrays)
    results = results if isinstance(results, list) else [results]
    return {graph.nodes[index].name: each.asnumpy() for index, each in zip(indices, results)}


def _folded(graph: Subgraph, named: dict[str, np.ndarray]) -> Subgraph:
    """Return a graph with variables in place of the operators of these names."""
    nodes = [Node('', each.name, Attrs()) if each.name in named else each
             for each in graph.nodes]  # fmt: skip
    return Subgraph.of(nodes, graph.heads)


def _described(row_shape: Sequence[int], dtype: Any) -> dict[str, Any]:
    return {'row_shape': list(row_shape), 'dtype': np.dtype(dtype).name}


def _template(kind: NodeType, part: tuple[Any, ...]) -> Any:
    """Return an argument's structure for the manifest: None, 'value', or a list or tuple of it."""
    if part == LEAF:
        return 'value'
    if part[0] in (list, tuple):
        return {part[0].__name__: [_template(kind, item) for item in part[1:]]}
    if part[0] == 'static' and part[2] is None:
        return None
    raise BundleError(f'{kind} cannot be exported: it is called with {part[-1]!r}')


def _nested(kind: NodeType, nested: Any) -> Any:
    if isinstance(nested, int):
        return nested
    if type(nested) not in (list, tuple):
        raise BundleError(f'{kind} cannot be exported: it returns a {type(nested).__name__}')
    return {type(nested).__name__: [_nested(kind, item) for item in nested]}


def _program(subgraph: Subgraph) -> dict[str, Any]:
    nodes: list[dict[str, Any]] = []
    for node in subgraph.nodes:
        if node.is_variable:
            nodes.append({'name': node.name})
        else:
            inputs = [list(entry) for entry in node.inputs]
            nodes.append({'op': node.op, 'attrs': plain(node.attrs), 'inputs': inputs})
    return {'nodes': nodes, 'heads': [list(entry) for entry in subgraph.heads]}


def plain(attrs: Attrs) -> dict[str, Any]:
    """Convert an operator's attributes to JSON values: numbers, truth values, lists and text."""
    found: dict[str, Any] = {}
    for key, text in attrs.items():
        if key.startswith('__'):
            continue
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            value = text
        found[key] = list(value) if isinstance(value, tuple) else value
    return found


def _policy(scheduler: Scheduler, types: Iterable[NodeType]) -> dict[str, Any]:
    """Return the learned policy that decides on graphs of these types; empty if there is none."""
    if not isinstance(scheduler, FSMScheduler):
        return {}
    known = [scheduler.policy] if scheduler.policy is not None else scheduler.policies
    names = {kind.stable_name for kind in types}
    for policy in known:
        if names <= set(policy.types):
            return policy.content()
    return {}


def _compare(kind: NodeType, entry: dict[str, Any], weights: dict[str, np.ndarray]) -> None:
    """Run calls of a type with NumPy and MXNet; raise if NumPy cannot, or if results differ."""
    ragged = {place for place, each in enumerate(kind.arguments) if each.kind is Kind.RAGGED}
    try:
        program = CellProgram(entry['nodes'], entry['heads'], weights, ragged)
    except NotInNumPy as missing:
        raise BundleError(
            f'{kind} cannot be exported: outside of MXNet there is no {missing}. Write it with '
            'other operators, or add it to gluon_edbatch_core/bundle/numpy_operators.py'
        ) from None
    given = _given(kind, ragged, _fewest_rows(entry['nodes'], weights))
    counts = [sum(length > rank for length in _TRIED) for rank in range(max(_TRIED))]
    inputs = [
        np.concatenate([given[place][:count, rank] for rank, count in enumerate(counts)])
        if place in ragged
        else given[place]
        for place in range(len(given))
    ]
    wanted = _by_mxnet(kind, given, np.array(_TRIED, np.float32))
    outs = [np.empty(result.shape, result.dtype) for result in wanted]
    with np.errstate(over='ignore'):
        program.run(inputs, outs, Segments(len(_TRIED), counts) if ragged else None)
    for out, result in zip(outs, wanted):
        if not np.allclose(out, result, equal_nan=True, **_CLOSE):
            raise BundleError(
                f'{kind} cannot be exported: NumPy comes to other numbers than MXNet, up to '
                f'{np.abs(out - result).max():.2g} apart'
            )


def _fewest_rows(nodes: Sequence[dict[str, Any]], weights: dict[str, np.ndarray]) -> int:
    """Return how many rows the smallest table has that a type looks up; 2 if all have more."""
    places = {'Embedding': 1, 'take': 0}
    tables = [
        nodes[node['inputs'][places[node['op']]][0]] for node in nodes if node.get('op') in places
    ]
    known = [weights[table['name']] for table in tables if table.get('name') in weights]
    return min([2, *map(len, known)])


def _given(kind: NodeType, ragged: set[int], rows: int) -> list[np.ndarray]:
    """Return random arguments for a few calls of a type, padded with zeros. Tables have `rows`."""
    rng, indices = np.random.RandomState(0), used_only(kind.graph, 'indices')
    found: list[np.ndarray] = []
    for place, argument in enumerate(kind.arguments):
        shape: tuple[int, ...] = (len(_TRIED),)
        if place in ragged:
            shape += (max(_TRIED),)
        shape += tuple(argument.arena.row_shape)
        values: np.ndarray = rng.normal(size=shape)
        if INPUT % place in indices or not np.issubdtype(argument.arena.dtype, np.floating):
            values = rng.randint(0, rows, shape)
        if place in ragged:
            for row, length in enumerate(_TRIED):
                values[row, length:] = 0
        found.append(np.asarray(values, argument.arena.dtype))
    return found


def _by_mxnet(kind: NodeType, given: Sequence[np.ndarray], lengths: np.ndarray) -> list[np.ndarray]:
    subgraph = kind.masked or kind.graph.subgraph
    arrays = {
        INPUT % place: mx.nd.array(each, kind.ctx, each.dtype) for place, each in enumerate(given)
    }
    for name in subgraph.variables:
        if name in kind.graph.parameters:
            arrays[name] = kind.graph.parameters[name].data(kind.ctx)
        elif name not in arrays:  # how many values a call has
            arrays[name] = mx.nd.array(lengths, kind.ctx)
    with suspended(), modes(recording=False):
        results = CachedOp(subgraph.symbol)(*[arrays[name] for name in subgraph.variables])
    return [result.asnumpy() for result in (results if isinstance(results, list) else [results])]
