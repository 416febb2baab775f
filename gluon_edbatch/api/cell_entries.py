"""What a bundle holds of a cell: batch signatures, and programs for arguments of any shapes."""

import ast
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.ndarray import CachedOp

from gluon_edbatch_core.bundle.cell_program import CellProgram, NotInNumPy
from gluon_edbatch_core.bundle.numpy_steps import segments_of
from gluon_edbatch_core.errors import BundleError

from ..mx.modes import modes
from ..ops.attrs import Attrs
from ..record.hooks import suspended, tracing_block
from ..record.sites import Site
from ..subgraph.ir import Entry, Node, Subgraph
from ..subgraph.node_type import Kind, NodeType, used_only
from ..subgraph.structure import LEAF, unflatten
from ..subgraph.trace import INPUT, StaticGraph, trace_block
from .native_entries import native_entry

_KINDS = {Kind.ROWS: 'rows', Kind.RAGGED: 'ragged'}
_TRIED = 3, 2, 2, 1, 0  # values of the ragged arguments of the calls that are compared
_COMPARED = 4  # types of a program that are compared
# In the order of the bundle: names and arrays of parameters, and of what is computed of these.
Weights = dict[Any, tuple[str, np.ndarray]]


class CellCalls(NamedTuple):
    """Calls of cells with one structure of arguments: their graph, their batch signatures, and the
    line of the first call of each."""

    blocks: tuple[gluon.HybridBlock, ...]
    template: tuple[Any, ...]
    graph: StaticGraph
    types: dict[NodeType, Site]

    def entry(self, cells: list[str], weights: Weights) -> Optional[dict[str, Any]]:
        """Return the manifest's entry for the only batch signature; None if there are several, or
        if calls of it do not run as batches of rows."""
        (kind, site), *others = self.types.items()
        _check_mode(kind, site)
        if others or not _is_own(kind, self.graph):
            return None
        try:
            _check(kind)
            return _entry(kind, cells, weights)
        except BundleError:
            return None

    def program(self, cells: list[str], weights: Weights) -> dict[str, Any]:
        """Return the manifest's entry for arguments of any shapes."""
        graph, (kind, site) = self.graph, next(iter(self.types.items()))
        subgraph, arrays, keys = _folded(graph, kind.ctx)
        try:
            entry = {
                'by_row': all([_is_own(each, graph) and _is_by_row(each) for each in self.types]),
                **_any_shapes(graph, self.template, cells, subgraph),
            }
            own = [each for each in self.types if _is_own(each, graph)]
            for each in own[:_COMPARED]:
                _compare_shapes(each, graph, entry, arrays)
        except BundleError as error:
            raise BundleError(f'{site}: {error}') from None
        return {**entry, 'weights': _placed(arrays, keys, weights)}


def program_of_uncalled(
    block: gluon.HybridBlock, cells: list[str], weights: Weights
) -> dict[str, Any]:
    """Return the manifest's entry for a block that no sample called: one value for each argument of
    its ``hybrid_forward``."""
    parameters = list(inspect.signature(type(block).hybrid_forward).parameters.values())[2:]
    given = [each for each in parameters if each.default is each.empty
             and each.kind is each.POSITIONAL_OR_KEYWORD
             and not isinstance(getattr(block, each.name, None), gluon.Parameter)]  # fmt: skip
    template: tuple[Any, ...] = (LEAF,) * len(given)
    if isinstance(block, gluon.rnn.RecurrentCell):
        template = (LEAF, (list, *[LEAF] * len(block.state_info())))
    with tracing_block():
        graph = trace_block(block, template, leaves_of((list, *template)))
    (ctx, *_) = next(iter(graph.parameters.values())).list_ctx() if graph.parameters else [mx.cpu()]
    subgraph, arrays, keys = _folded(graph, ctx)
    entry = {'by_row': False, **_any_shapes(graph, template, cells, subgraph)}
    _made(graph.name, entry, arrays, set())
    return {**entry, 'weights': _placed(arrays, keys, weights)}


def _any_shapes(
    graph: StaticGraph, template: tuple[Any, ...], cells: list[str], subgraph: Subgraph
) -> dict[str, Any]:
    return {
        'name': graph.name,
        'cells': cells,
        'template': [_template(graph.name, part) for part in template],
        'results': _nested(graph.name, unflatten(graph.results, iter(graph.leaves))),
        **_program(subgraph),
    }


def _is_own(kind: NodeType, graph: StaticGraph) -> bool:
    """Return whether a type has the graph of its block's calls, not that of a part of them."""
    own = kind.traced
    return own.results == graph.results and own.subgraph.operators == graph.subgraph.operators


def _is_by_row(kind: NodeType) -> bool:
    """Return whether calls of a type are proved to treat rows alone."""
    is_row = all([each.kind is Kind.ROWS for each in kind.arguments])
    return is_row and not (kind.whole or kind.alone or kind.packed)


def _check_mode(kind: NodeType, site: Any) -> None:
    for is_so, why in (
        (kind.mode.recording or kind.mode.training, 'was recorded under autograd.record()'),
        (kind.mode.numpy, 'was recorded in NumPy mode'),
        (kind.graph.function is not None, 'is a function of Python'),
    ):
        if is_so:
            raise BundleError(f'{site}: {kind} cannot be exported: it {why}')


def _check(kind: NodeType) -> None:
    """Raise if batches of a type cannot leave MXNet."""
    kinds = {argument.kind for argument in kind.arguments}
    ragged = Kind.RAGGED in kinds
    for is_so, why in (
        (kind.alone or kind.eager, f'runs call by call: {kind.reason}'),
        (kind.whole, 'treats whole values, whose rows depend on each other'),
        (kind.packed, 'is packed'),
        (ragged and (kind.lengths is not None or not kind.neutral), 'depends on lengths'),
        (ragged and kind.rows != 1, 'has ragged values of several rows'),
        (not kind.has_one_length, 'has ragged arguments of different lengths'),
        (not kinds <= _KINDS.keys(), 'takes packed arguments'),
        (
            leaves_of((list, *kind.made_with[0])) != len(kind.arguments),
            'is recorded in parts, as a result has an element for each of any number of values',
        ),
    ):
        if is_so:
            raise BundleError(f'{kind} cannot be exported: it {why}')


def leaves_of(part: tuple[Any, ...]) -> int:
    """Return how many values an argument has."""
    return int(part == LEAF) or sum([leaves_of(each) for each in part[1:] if type(each) is tuple])


def _entry(kind: NodeType, cells: list[str], weights: Weights) -> dict[str, Any]:
    """Return the manifest's entry for a type: its cells, arguments, nodes and weights. Its
    parameters are added to `weights`."""
    subgraph, arrays, keys = _folded(kind.graph, kind.ctx)
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
        **_program(subgraph),
    }
    _compare(kind, entry, arrays)
    entry['weights'] = _placed(arrays, keys, weights)

    def placed(parameter: gluon.Parameter) -> int:
        name, values = parameter.name, parameter.data(kind.ctx).asnumpy()
        return _placed({name: values}, {name: parameter}, weights)[name]

    return {**entry, **native_entry(kind, placed)}


def _placed(
    arrays: dict[str, np.ndarray], keys: dict[str, Any], weights: Weights
) -> dict[str, int]:
    """Return the numbers of weights among those of the bundle, to which they are added."""
    for name, array in arrays.items():
        weights.setdefault(keys[name], (getattr(keys[name], 'name', name), array))
    places = {key: place for place, key in enumerate(weights)}
    return {name: places[keys[name]] for name in arrays}


def _folded(
    graph: StaticGraph, ctx: mx.Context
) -> tuple[Subgraph, dict[str, np.ndarray], dict[str, Any]]:
    """Return a graph with variables in place of operators that read weights alone, the arrays of
    its weights by name, and what tells each apart from all others."""
    subgraph, given = graph.subgraph, graph.parameters
    indices = _constants_in(graph)
    arrays = {name: each.data(ctx).asnumpy() for name, each in given.items()}
    keys: dict[str, Any] = dict(given)
    if indices:
        part = Subgraph.of(subgraph.nodes, [Entry(index) for index in indices])
        with suspended(), modes(recording=False):
            results = CachedOp(part.symbol)(*[given[name].data(ctx)
                                              for name in part.variables])  # fmt: skip
        named = [subgraph.nodes[index].name for index in indices]
        results = results if isinstance(results, list) else [results]
        arrays.update(zip(named, [each.asnumpy() for each in results]))
        keys.update({name: object() for name in named})
        nodes = [Node('', each.name, Attrs()) if each.name in named else each
                 for each in subgraph.nodes]  # fmt: skip
        subgraph = Subgraph.of(nodes, subgraph.heads)
    return subgraph, {name: arrays[name] for name in subgraph.variables if name in arrays}, keys


def _constants_in(graph: StaticGraph) -> list[int]:
    """Return the operators of a graph that read weights alone."""
    nodes, constant, found = graph.subgraph.nodes, set[int](), []
    entries = [*graph.subgraph.heads, *[entry for node in nodes for entry in node.inputs]]
    of_several = {entry.node for entry in entries if entry.output}  # parts of a split
    for index, node in enumerate(nodes):
        if node.is_variable:
            if node.name in graph.parameters:
                constant.add(index)
        elif (
            node.inputs
            and index not in of_several
            and constant.issuperset([entry.node for entry in node.inputs])
        ):
            constant.add(index)
            found.append(index)
    return found


def _described(row_shape: Sequence[int], dtype: Any) -> dict[str, Any]:
    return {'row_shape': list(row_shape), 'dtype': np.dtype(dtype).name}


def _template(kind: Any, part: tuple[Any, ...]) -> Any:
    """Return an argument's structure for the manifest: None, 'value', or a list or tuple of it."""
    if part == LEAF:
        return 'value'
    if part[0] in (list, tuple):
        return {part[0].__name__: [_template(kind, item) for item in part[1:]]}
    if part[0] == 'static' and part[2] is None:
        return None
    raise BundleError(f'{kind} cannot be exported: it is called with {part[-1]!r}')


def _nested(kind: Any, nested: Any) -> Any:
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


def why_not_there(kind: NodeType) -> str:
    """Return why the runtime cannot run a type's operator; an empty text if it can."""
    if kind.made_with[0] in ('concat rows', 'pick', 'lay out a sentence'):
        return ''
    graph = kind.traced
    try:
        _check_mode(kind, '')
        arrays = {name: each.data(kind.ctx).asnumpy() for name, each in graph.parameters.items()}
        _compare_shapes(kind, graph, _program(graph.subgraph), arrays)
    except BundleError as error:
        return str(error).rpartition(' cannot be exported: ')[2].partition('. Write it')[0]
    return ''


def _compare_shapes(
    kind: NodeType, graph: StaticGraph, entry: dict[str, Any], weights: dict[str, np.ndarray]
) -> None:
    """Run the graph of a type's calls on arrays of their shapes; raise as `_compare` does."""
    program = _made(kind, entry, weights, set())
    given = _given(kind, set(), _fewest_rows(entry['nodes'], weights), graph, whole=True)
    try:
        wanted = _by_mxnet(kind, graph.subgraph, graph.parameters, given, np.zeros(1))
    except mx.base.MXNetError:  # random numbers may be no positions
        return
    with np.errstate(all='ignore'):
        found = list(map(np.atleast_1d, program.results(given)))
    _raise_if_different(kind, found, wanted)


def _made(
    kind: Any, entry: dict[str, Any], weights: dict[str, np.ndarray], ragged: set[int]
) -> CellProgram:
    try:
        return CellProgram(entry['nodes'], entry['heads'], weights, ragged)
    except NotInNumPy as missing:
        raise BundleError(
            f'{kind} cannot be exported: outside of MXNet there is no {missing}. Write it with '
            'other operators, or add it to gluon_edbatch_core/bundle/numpy_operators.py'
        ) from None


def _raise_if_different(
    kind: NodeType, found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]
) -> None:
    for mine, result in zip(found, wanted):
        largest = np.abs(result[np.isfinite(result)]).max(initial=1)
        same = {'rtol': 1e-4, 'atol': 1e-5 * largest, 'equal_nan': True}
        if mine.shape != result.shape or not np.allclose(mine, result, **same):
            apart = np.abs(mine - result).max() if mine.shape == result.shape else np.inf
            raise BundleError(
                f'{kind} cannot be exported: NumPy comes to other numbers than MXNet, up to '
                f'{apart:.2g} apart'
            )


def _compare(kind: NodeType, entry: dict[str, Any], weights: dict[str, np.ndarray]) -> None:
    """Run calls of a type with NumPy and MXNet; raise if NumPy cannot, or if results differ."""
    ragged = {place for place, each in enumerate(kind.arguments) if each.kind is Kind.RAGGED}
    program = _made(kind, entry, weights, ragged)
    given = _given(kind, ragged, _fewest_rows(entry['nodes'], weights), kind.graph)
    lengths = np.array(_TRIED)
    is_value = np.arange(max(_TRIED)) < lengths[:, None]
    inputs = [each[is_value] if place in ragged else each for place, each in enumerate(given)]
    own = kind.masked or kind.graph.subgraph
    wanted = _by_mxnet(kind, own, kind.graph.parameters, given, np.array(_TRIED, np.float32))
    outs = [np.empty(result.shape, result.dtype) for result in wanted]
    with np.errstate(over='ignore'):
        program.run(inputs, outs, segments_of(lengths) if ragged else None)
    _raise_if_different(kind, outs, wanted)


def _fewest_rows(nodes: Sequence[dict[str, Any]], weights: dict[str, np.ndarray]) -> int:
    """Return how many rows the smallest table has that a type looks up; 2 if all have more."""
    places = {'Embedding': 1, 'take': 0}
    tables = [
        nodes[node['inputs'][places[node['op']]][0]] for node in nodes if node.get('op') in places
    ]
    known = [weights[table['name']] for table in tables if table.get('name') in weights]
    return min([2, *map(len, known)])


def _given(
    kind: NodeType, ragged: set[int], rows: int, graph: StaticGraph, whole: bool = False
) -> list[np.ndarray]:
    """Return random arguments for a few calls of a type, padded with zeros; or for one call with
    `whole`. Tables have `rows`."""
    rng, indices = np.random.RandomState(0), used_only(graph, 'indices')
    found: list[np.ndarray] = []
    lengths = iter(kind.lengths or [max(_TRIED)] * len(kind.arguments))
    for place, argument in enumerate(kind.arguments):
        shape: tuple[int, ...] = (len(_TRIED),)
        if whole:
            ragged_axis = () if argument.kind is Kind.ROWS else (next(lengths),)
            shape = (argument.rows * kind.rows, *ragged_axis)
        elif place in ragged:
            shape += (max(_TRIED),)
        shape += tuple(argument.arena.row_shape)
        if place in dict(kind.axes):  # a packed sentence
            shape = kind.shapes_of_one({place: max(_TRIED) for place in dict(kind.axes)})[place]
        values: np.ndarray = rng.normal(size=shape)
        if INPUT % place in indices or not np.issubdtype(argument.arena.dtype, np.floating):
            values = rng.randint(0, rows, shape)
        if place in ragged:
            for row, length in enumerate(_TRIED):
                values[row, length:] = 0
        found.append(np.asarray(values, argument.arena.dtype))
    return found


def _by_mxnet(
    kind: NodeType,
    subgraph: Subgraph,
    parameters: Mapping[str, Any],
    given: Sequence[np.ndarray],
    lengths: np.ndarray,
) -> list[np.ndarray]:
    arrays = {
        INPUT % place: mx.nd.array(each, kind.ctx, each.dtype) for place, each in enumerate(given)
    }
    for name in subgraph.variables:
        if name in parameters:
            arrays[name] = parameters[name].data(kind.ctx)
        elif name not in arrays:  # how many values a call has
            arrays[name] = mx.nd.array(lengths, kind.ctx)
    with suspended(), modes(recording=False):
        results = CachedOp(subgraph.symbol)(*[arrays[name] for name in subgraph.variables])
        results = results if isinstance(results, list) else [results]
        return [result.asnumpy() for result in results]
