"""A type in two: what depends on arguments known beforehand, and the rest.

Of ``act(W x + U h)`` in a recurrent cell, W x depends on the input alone. Once for all nodes it is
one large product instead of many small ones, and its result lies in the order in which the
batches read it.
"""

from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Set, Tuple

from ..ops import op_of
from .ir import Attrs, Entry, Node, Shape, Subgraph
from .node_type import Argument, Kind, NodeType
from .passes.horizontal import horizontal
from .rowwise import Verdict, analyse
from .spec import Spec
from .trace import INPUT, is_argument


class Split(NamedTuple):
    """The two types.

    Attributes
    ----------
    positions : tuple of int
        The arguments that `early` takes.
    early : NodeType
        Its outputs are what `late` needs of it.
    late : NodeType
        Takes the arguments of the whole, and the outputs of `early` after them.
    """

    positions: Tuple[int, ...]
    early: NodeType
    late: NodeType


def split(node_type: NodeType, positions: FrozenSet[int], fused: bool) -> Optional[Split]:
    """Hoist what depends only on the arguments at these positions.

    Parameters
    ----------
    node_type : NodeType
    positions : frozenset of int
    fused : bool
        With horizontal fusion before (see `passes.horizontal`): one result for all gates.

    Returns
    -------
    Split or None
        None if there is no product to hoist.
    """
    if (positions, fused) not in node_type.splits:
        node_type.splits[positions, fused] = _split(node_type, positions, fused)
    return node_type.splits[positions, fused]


def _split(node_type: NodeType, positions: FrozenSet[int], fused: bool) -> Optional[Split]:
    graph = node_type.graph.subgraph
    graph = horizontal(graph) if fused else graph
    early = _early_nodes(graph, {INPUT % position for position in positions})
    crossing = _crossing(graph, early)
    if not any(op_of(graph.nodes[index].op).heavy for index in early) or any(
        head.node in early for head in graph.heads
    ):
        return None
    read = {graph.nodes[entry.node].name for index in early for entry in graph.nodes[index].inputs}
    known = [position for position in sorted(positions) if INPUT % position in read]
    first = _type_of_early(node_type, Subgraph.of(graph.nodes, crossing), known)
    if first is None:
        return None
    return Split(tuple(known), first, type_of_rest(node_type, graph, crossing, first.outputs))


def _early_nodes(graph: Subgraph, known: Set[str]) -> Set[int]:
    """Operators with an input that is known, and no other input that is not."""
    early: Set[int] = set()
    for index, node in enumerate(graph.nodes):
        sources = [entry.node for entry in node.inputs]
        if node.is_variable or not sources:
            continue
        mine = [source in early or graph.nodes[source].name in known for source in sources]
        others = [graph.nodes[source] for source, is_early in zip(sources, mine) if not is_early]
        if any(mine) and all(other.is_variable and not is_argument(other.name) for other in others):
            early.add(index)
    return early


def _crossing(graph: Subgraph, early: Set[int]) -> List[Entry]:
    """What early operators give to others."""
    return sorted(
        {
            entry
            for index, node in enumerate(graph.nodes)
            if index not in early
            for entry in node.inputs
            if entry.node in early
        }
    )


def _type_of_early(node_type: NodeType, graph: Subgraph, known: List[int]) -> Optional[NodeType]:
    graph, arguments, shapes = of_arguments(node_type, graph, known)
    verdict = analyse(
        graph, {name: shape[1:] for name, shape in shapes.items()}, node_type.mode.training
    )
    if verdict.verdict is not Verdict.PROVED or any(factor != 1 for factor in verdict.factors):
        return None
    return node_type.part(
        graph, arguments, graph.results(shapes, dtypes_of(arguments)), shapes, verdict.factors
    )


def of_arguments(
    node_type: NodeType, graph: Subgraph, positions: Sequence[int]
) -> Tuple[Subgraph, Tuple[Argument, ...], Dict[str, Shape]]:
    """A part of a type's subgraph that takes some of its arguments: with these renumbered; what
    they are, and their shapes in a trial."""
    renamed = {INPUT % position: INPUT % index for index, position in enumerate(positions)}
    graph = graph.with_variables(renamed)
    shapes = {
        new: node_type.trial_shapes[old] for old, new in renamed.items() if new in graph.variables
    }
    return graph, tuple(node_type.arguments[position] for position in positions), shapes


def dtypes_of(arguments: Sequence[Argument]) -> Dict[str, Any]:
    """By the names of inputs."""
    return {INPUT % index: argument.arena.dtype for index, argument in enumerate(arguments)}


def type_of_rest(
    node_type: NodeType, graph: Subgraph, crossing: Sequence[Entry], specs: Sequence[Spec]
) -> NodeType:
    """What is left of a type if others compute some entries of its graph.

    Parameters
    ----------
    graph : Subgraph
    crossing : list of Entry
        They become arguments after those that the type has.
    specs : sequence of Spec
        Of these.
    """
    count, shift = len(node_type.arguments), len(crossing)
    # Variables come first: nodes are in an order in which inputs precede those that read them.
    place = {entry: Entry(index) for index, entry in enumerate(crossing)}

    def moved(entries: Sequence[Entry]) -> Tuple[Entry, ...]:
        return tuple(
            [place.get(entry, Entry(entry.node + shift, entry.output)) for entry in entries]
        )

    nodes = [Node('', INPUT % (count + index), Attrs()) for index in range(shift)]
    nodes += [node._replace(inputs=moved(node.inputs)) for node in graph.nodes]
    arguments = node_type.arguments + tuple(Argument(spec.arena, Kind.ROWS, True) for spec in specs)
    shapes = dict(node_type.trial_shapes)
    rows = next(iter(shapes.values()))[0]
    shapes.update(
        {
            INPUT % (count + index): spec.shape if node_type.alone else (rows,) + spec.row_shape
            for index, spec in enumerate(specs)
        }
    )
    outputs = [(spec.shape, spec.dtype) for spec in node_type.outputs]
    return node_type.part(
        Subgraph.of(nodes, moved(graph.heads)), arguments, outputs, shapes, list(node_type.factors)
    )
