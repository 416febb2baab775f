"""Split a type in two: a part that runs ahead, for all batches at once if possible, and the rest.

Loop-invariant *hoisting* splits off what depends on known arguments only. In a recurrent cell's
``act(W x + U h)``, W x depends on the input alone. Computed for all nodes at once, it is one large
product, whose rows lie in the order in which batches read them.

Rows of tables with row_sparse gradients are *looked up* separately. A type's parameters get dense
gradients of full size, which would take most of a training step for a word table with
``sparse_grad=True``. So MXNet's own operator looks these rows up, and the part that runs ahead
computes the ids.
"""

from collections.abc import Hashable, Sequence
from typing import Callable, Optional
from weakref import WeakKeyDictionary

from mxnet import gluon

from gluon_edbatch_core.plan.call_type import Split

from ..ops import op_of
from .ir import Attrs, Entry, Node, Subgraph
from .node_type import Argument, Kind, NodeType
from .passes.horizontal import horizontal
from .rowwise import Verdict, analyse
from .spec import Spec, spec_of
from .trace import INPUT

_known: 'WeakKeyDictionary[NodeType, dict[Hashable, Optional[Split]]]' = WeakKeyDictionary()


def _once(
    node_type: NodeType, key: Hashable, make: Callable[[], Optional[Split]]
) -> Optional[Split]:
    splits = _known.setdefault(node_type, {})
    if key not in splits:
        splits[key] = make()
    return splits[key]


def hoisted(node_type: NodeType, positions: frozenset[int], fused: bool) -> Optional[Split]:
    """Split off what depends only on the arguments at these positions; None if that has no product.

    If `fused`, horizontal fusion comes first (see `passes.horizontal`): one result for all gates.
    """
    return _once(node_type, (positions, fused), lambda: _hoisted(node_type, positions, fused))


def _hoisted(node_type: NodeType, positions: frozenset[int], fused: bool) -> Optional[Split]:
    graph = node_type.graph.subgraph
    graph = horizontal(graph) if fused else graph
    inside = _only_of(graph, frozenset(INPUT % position for position in positions))
    if not any(op_of(graph.nodes[index].op).heavy for index in inside) or any(
        head.node in inside for head in graph.heads
    ):
        return None
    crossing = sorted(
        {
            entry
            for index, node in enumerate(graph.nodes)
            if index not in inside
            for entry in node.inputs
            if entry.node in inside
        }
    )
    read = {graph.nodes[entry.node].name for index in inside for entry in graph.nodes[index].inputs}
    known = tuple(position for position in sorted(positions) if INPUT % position in read)
    early = _early(node_type, Subgraph.of(graph.nodes, crossing), known)
    if early is None:
        return None
    return Split(known, early, early.outputs, _late(node_type, graph, crossing, early.outputs))


def _only_of(graph: Subgraph, known: frozenset[str]) -> frozenset[int]:
    """Return the operators that read a known input, and no unknown one."""
    inside = set()
    for index, node in enumerate(graph.nodes):
        mine = [
            entry.node in inside or graph.nodes[entry.node].name in known for entry in node.inputs
        ]
        if any(mine) and all(
            is_mine or graph.nodes[entry.node].is_parameter
            for entry, is_mine in zip(node.inputs, mine)
        ):
            inside.add(index)
    return frozenset(inside)


def has_sparse_gradient(parameter: gluon.Parameter) -> bool:
    """Return whether a parameter is trained with a gradient of the used rows only."""
    return parameter._grad_stype == 'row_sparse' and parameter.grad_req != 'null'


def looked_up(node_type: NodeType) -> Optional[Split]:
    """Split off the ids of tables whose gradients are row_sparse; None if autograd does not record
    the type, or it has no such tables.

    Look-ups whose ids are random, or not one line for each row of the arguments, stay: their tables
    get dense gradients, which are converted.
    """
    if not node_type.mode.recording or node_type.tables or node_type.eager:
        return None
    tables = frozenset(
        name
        for name, parameter in node_type.graph.parameters.items()
        if has_sparse_gradient(parameter)
    )
    return _once(node_type, tables, lambda: _looked_up(node_type, tables)) if tables else None


def _looked_up(node_type: NodeType, tables: frozenset[str]) -> Optional[Split]:
    graph = node_type.graph.subgraph
    crossing = [
        Entry(index)
        for index, node in enumerate(graph.nodes)
        if node.op == 'Embedding'
        and graph.nodes[node.inputs[1].node].name in tables
        and _ids(node_type, [node]) is not None
    ]
    if not crossing:
        return None
    is_all = set(crossing) == set(graph.heads)
    crossing = list(graph.heads) if is_all else crossing
    early = _ids(node_type, [graph.nodes[entry.node] for entry in crossing])
    assert early is not None  # as each of them could be told apart
    positions, ids = early
    found = tuple(
        spec_of(spec.shape + table.shape[1:], table.dtype, node_type.ctx)
        for spec, table in zip(ids.outputs, ids.tables)
    )
    return Split(
        positions, ids, found, None if is_all else _late(node_type, graph, crossing, found)
    )


def _ids(node_type: NodeType, embeddings: list[Node]) -> Optional[tuple[tuple[int, ...], NodeType]]:
    """Return the arguments and the type that compute ids of look-ups; None if they need others."""
    graph = node_type.graph.subgraph
    heads = [node.inputs[0] for node in embeddings]
    names = {graph.nodes[index].name for index in graph.ancestors(heads)}
    positions = tuple(
        position for position in range(len(node_type.arguments)) if INPUT % position in names
    )
    if not positions:
        return None
    tables = tuple(
        node_type.graph.parameters[graph.nodes[node.inputs[1].node].name] for node in embeddings
    )
    ids = _early(node_type, Subgraph.of(graph.nodes, heads), positions, tables)
    return None if ids is None or ids.random else (positions, ids)


def _early(
    node_type: NodeType,
    graph: Subgraph,
    positions: Sequence[int],
    tables: tuple[gluon.Parameter, ...] = (),
) -> Optional[NodeType]:
    """Return a type for the part that takes some of the arguments; None if rows of its arguments
    and results do not correspond."""
    renamed = {INPUT % position: INPUT % index for index, position in enumerate(positions)}
    graph = graph.with_variables(renamed)
    shapes = {
        new: node_type.trial_shapes[old] for old, new in renamed.items() if new in graph.variables
    }
    factors = [1] * len(graph.heads)
    if not node_type.alone:
        rows = {name: shape[1:] for name, shape in shapes.items()}
        verdict = analyse(graph, rows, node_type.mode.training)
        if verdict.verdict is not Verdict.PROVED or verdict.factors != factors:
            return None
    arguments = tuple(node_type.arguments[position] for position in positions)
    dtypes = {INPUT % index: argument.arena.dtype for index, argument in enumerate(arguments)}
    return node_type.part(graph, arguments, graph.results(shapes, dtypes), shapes, factors, tables)


def _late(
    node_type: NodeType, graph: Subgraph, crossing: Sequence[Entry], specs: Sequence[Spec]
) -> NodeType:
    """Return the type that is left when some entries of the graph are computed elsewhere; these
    become further arguments."""
    count, shift = len(node_type.arguments), len(crossing)
    # Variables come first: nodes are in an order in which inputs precede those that read them.
    place = {entry: Entry(index) for index, entry in enumerate(crossing)}

    def moved(entries: Sequence[Entry]) -> tuple[Entry, ...]:
        return tuple(
            [place.get(entry, Entry(entry.node + shift, entry.output)) for entry in entries]
        )

    nodes = [Node('', INPUT % (count + index), Attrs()) for index in range(shift)]
    nodes += [node._replace(inputs=moved(node.inputs)) for node in graph.nodes]
    arguments = tuple(Argument(spec.arena, Kind.ROWS, True) for spec in specs)
    shapes = dict(node_type.trial_shapes)
    rows = next(iter(shapes.values()))[0]
    for index, spec in enumerate(specs):
        shapes[INPUT % (count + index)] = (
            spec.shape if node_type.alone else (rows,) + spec.row_shape
        )
    outputs = [(spec.shape, spec.dtype) for spec in node_type.outputs]
    rest = Subgraph.of(nodes, moved(graph.heads))
    return node_type.part(rest, node_type.arguments + arguments, outputs, shapes, node_type.factors)
