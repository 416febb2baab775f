"""Split calls whose results keep the ragged axis into calls for each value.

Such a result depends, for each value, on that value and on reductions over all values. Attention
weights are ``exp(x - m) / s`` with m and s of all scores. So one call for all values computes what
has no ragged axis, and one call for each value computes the rest. The number of values does not
change the type of either. A call for a value sees it as (N, 1, ...), so operators keep their
attributes.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Optional

from ..ops import op_of
from ..ops.attrs import Shape
from .ir import Entry, Subgraph
from .padding_proof import RaggedAxes, ragged_axes
from .rewrite import NodeView, Operand, Rewriter, rewrite
from .structure import LEAF
from .trace import INPUT, StaticGraph, is_argument

_AXIS = 1


class SubgraphPart(NamedTuple):
    """One part of a call: the part for all values at once, or the part for each value."""

    graph: StaticGraph  # that returns a list
    # what it takes, by position among the arguments of the call, and behind these what the call for
    # all values returns
    inputs: tuple[int, ...]


class Elements(NamedTuple):
    """The two parts of a call: one for all values at once, and one for each value."""

    whole: Optional[SubgraphPart]  # of all values; None if there is nothing that depends on several
    # of one value, (N, ...), of each ragged argument; None if no output is ragged along axis 1
    each: Optional[SubgraphPart]
    # For each output of the call, its ragged axis, if it has one. Outputs of `each` are those with
    # axis 1, outputs of `whole` begin with those that have none, and others are of neither.
    axes: tuple[Optional[int], ...]


def elements(
    graph: StaticGraph, shapes: Mapping[str, Shape], ragged: Sequence[str], arguments: int
) -> Optional[Elements]:
    """Split a graph whose results have the ragged axis into two parts (see `Elements`).

    Parameters
    ----------
    graph : StaticGraph
    shapes : dict
        Shapes of the inputs for some numbers of rows and values.
    ragged : sequence of str
        Names of the ragged inputs.
    arguments : int
        Number of arguments of the call.

    Returns
    -------
    Elements or None
        None if results are not proved to belong to single values, or no output needs either part.
    """
    axes = dict.fromkeys(ragged, _AXIS)
    found = ragged_axes(graph.subgraph, shapes, axes)
    if found is not None and found.across:
        split = _decomposed(graph.subgraph, shapes, found)
        graph = graph._replace(subgraph=split)
        found = ragged_axes(split, shapes, axes)
    if found is None or found.across:
        return None
    subgraph, own = graph.subgraph, found.axes
    of_all = [head for head in subgraph.heads if head not in own]
    of_each = [head for head in subgraph.heads if own.get(head) == _AXIS]
    if not of_all and not of_each:
        return None
    read = _read_by_values(subgraph, own, of_each)
    whole = each = None
    if of_all or read:
        whole = _part(graph, Subgraph.of(subgraph.nodes, of_all + read))
    if of_each:
        numbers = {entry: arguments + len(of_all) + place for place, entry in enumerate(read)}
        each = _part(graph, _of_one(subgraph, own, numbers, [(head, _AXIS) for head in of_each]))
    return Elements(whole, each, tuple(map(own.get, subgraph.heads)))


def by_position(
    graph: StaticGraph, shapes: Sequence[Shape], axes: Mapping[int, int]
) -> Optional[StaticGraph]:
    """Return the graph of one position of sentences, if each position of all results depends on
    that of the arguments only; else None.

    Parameters
    ----------
    graph : StaticGraph
    shapes : sequence of tuple of int
        Shapes of the arguments of one call.
    axes : dict
        Maps the position of each argument to the axis, not the first, of the sentence's positions.
    """
    names = {INPUT % position: axis for position, axis in axes.items()}
    known = {INPUT % position: shape for position, shape in enumerate(shapes)}
    found = None if len(axes) < len(shapes) else ragged_axes(graph.subgraph, known, names)
    if found is None or found.across:
        return None
    heads = graph.subgraph.heads
    if not all(head in found.axes for head in heads):
        return None
    for index, node in enumerate(graph.subgraph.nodes):
        if any(entry in found.axes for entry in node.inputs) and Entry(index) not in found.axes:
            return None  # a reduction
    subgraph = _of_one(graph.subgraph, found.axes, {}, [(head, found.axes[head]) for head in heads])
    return graph._replace(subgraph=subgraph)


def does_the_same_to_rows(graph: Subgraph) -> bool:
    """Return whether operators do to rows (L, ...) what they do to a sentence (1, L, ...): no axis
    is counted from the first, and no parameter is broadcast."""
    for node in graph.nodes:
        names = [graph.nodes[entry.node].name for entry in node.inputs]
        known = set(graph.variables).intersection(names)
        if not node.is_variable and not (
            all(map(is_argument, known))
            if op_of(node.op).elementwise
            else op_of(node.op).by_value(node.attrs) and node.attrs.get('axis') in (None, '-1')
        ):
            return False
    return True


def _of_one(
    graph: Subgraph,
    axes: Mapping[Entry, int],
    read: Mapping[Entry, int],
    heads: Sequence[tuple[Entry, int]],
) -> Subgraph:
    """Return the graph for one position or value: its inputs get their ragged axis, and results,
    given with theirs, lose it unless it is the first. Entries in `read` are inputs of that number.
    """
    rewriter = Rewriter()
    moved = {entry: rewriter.variable(INPUT % number) for entry, number in read.items()}
    for index, node in enumerate(graph.nodes):
        made = rewriter.keep(node, [moved[entry] for entry in node.inputs])
        if node.is_variable and Entry(index) in axes:
            made = rewriter.add('expand_dims', [made], axis=axes[Entry(index)])
        for entry in _outputs(graph, index):
            moved.setdefault(entry, made._replace(output=entry.output))
    results = [
        rewriter.add('squeeze', [moved[head]], axis=axis) if axis else moved[head]
        for head, axis in heads
    ]
    return Subgraph.of(rewriter.nodes, [result.entry for result in results])


def _decomposed(graph: Subgraph, shapes: Mapping[str, Shape], found: RaggedAxes) -> Subgraph:
    """Return the graph with reductions in place of operators across values if there is a rule."""

    def rule(rewriter: Rewriter, node: NodeView) -> Optional[Operand]:
        decompose = op_of(node.op).decomposition
        if node.index not in found.across or decompose is None:
            return None
        return decompose(rewriter.add, node, found.axes[graph.nodes[node.index].inputs[0]])

    return rewrite(graph, shapes, rule)


def _outputs(graph: Subgraph, index: int) -> list[Entry]:
    """Return the outputs of a node that are read."""
    return [Entry(index)] + [each for each in graph.uses if each.node == index and each.output]


def _read_by_values(
    graph: Subgraph, axes: Mapping[Entry, int], heads: Sequence[Entry]
) -> list[Entry]:
    """Return the computed entries without a ragged axis that operators on values read."""
    computed = _computed(graph)
    found = {
        entry: None
        for index in sorted(graph.ancestors(heads))
        if any(entry in axes for entry in _outputs(graph, index))
        for entry in graph.nodes[index].inputs
        if entry not in axes and entry.node in computed
    }
    return list(found)


def _computed(graph: Subgraph) -> set[int]:
    """Return the operators that compute numbers, not only views of arguments."""
    found: set[int] = set()
    reached = {index for index, node in enumerate(graph.nodes) if is_argument(node.name)}
    for index, node in enumerate(graph.nodes):
        inputs, op = {entry.node for entry in node.inputs}, op_of(node.op)
        if inputs & reached:
            reached.add(index)
            if inputs & found or not op.is_view or op.noise is not None:
                found.add(index)
    return found


def _part(graph: StaticGraph, subgraph: Subgraph) -> SubgraphPart:
    """Return a part of a call's graph, with its own inputs numbered from 0."""
    prefix = len(INPUT % 0) - 1
    inputs = sorted(int(name[prefix:]) for name in subgraph.variables if is_argument(name))
    renamed = {INPUT % old: INPUT % new for new, old in enumerate(inputs)}
    subgraph = subgraph.with_variables(renamed)
    count = len(subgraph.heads)
    return SubgraphPart(
        graph._replace(
            subgraph=subgraph,
            parameters=subgraph.known(graph.parameters),
            results=(list,) + (LEAF,) * count,
            leaves=tuple(range(count)),
            constants=frozenset(renamed[name] for name in graph.constants if name in renamed),
        ),
        tuple(inputs),
    )
