"""Give the graph of a sentence (L, 1, ...), whose steps come first, an axis for sentences.

Packed sentences are (N, L, ...) for a graph (see `node_type.Kind`). One that reads (L, N, ...) gets
transpositions around it. Their rows stay as they are, (L, 1, ...).
"""

from collections.abc import Collection, Sequence

from ..errors import RecordError
from ..ops.attrs import Shape, unlike
from .ir import Entry, Subgraph
from .rewrite import Operand, Rewriter
from .trace import INPUT, StaticGraph


def sentences_first(
    graph: StaticGraph, shapes: Sequence[Shape], positions: Collection[int], results: Sequence[bool]
) -> StaticGraph:
    """Return the graph of sentences (N, L, 1, ...) in place of (L, 1, ...).

    Parameters
    ----------
    graph : StaticGraph
    shapes : sequence of tuple of int
        Shapes of the arguments of one call.
    positions : collection of int
        The arguments that are sentences; they have three axes or more.
    results : sequence of bool
        For each output, whether it is a sentence, too.
    """
    old, rewriter = graph.subgraph, Rewriter()
    turned = _turned_results(graph, shapes, positions)
    names = {INPUT % position for position in positions}
    moved: dict[Entry, Operand] = {}
    for index, node in enumerate(old.nodes):
        made = rewriter.keep(node, [moved[entry] for entry in node.inputs])
        if node.is_variable and node.name in names:
            merged = rewriter.add('Reshape', [made], shape='(0, 0, -3, -2)')
            made = rewriter.add('SwapAxis', [merged], dim1=0, dim2=1)
        for entry in [Entry(index), *[each for each in old.uses if each.node == index]]:
            moved[entry] = made._replace(output=entry.output)
    heads = [moved[head] for head in old.heads]
    for place, is_sentence in enumerate(results):
        if is_sentence or turned[place]:
            heads[place] = rewriter.add('SwapAxis', [heads[place]], dim1=0, dim2=1)
        if is_sentence:
            heads[place] = rewriter.add('expand_dims', [heads[place]], axis=2)
    return graph._replace(subgraph=Subgraph.of(rewriter.nodes, [head.entry for head in heads]))


def _turned_results(
    graph: StaticGraph, shapes: Sequence[Shape], positions: Collection[int]
) -> list[bool]:
    """Return which results have an axis for sentences that is not the first."""
    one = {INPUT % place: shape for place, shape in enumerate(shapes)}
    two = {
        name: (shape[0], 2, *shape[2:]) if place in positions else (2, *shape[1:])
        for place, (name, shape) in enumerate(one.items())
    }
    found = [graph.subgraph.infer(shapes) or [] for shapes in (one, two)]
    if not all(found):
        raise RecordError('shapes cannot be inferred')
    return [
        unlike(*[own[head.node][head.output] for own in found]) == [1]
        for head in graph.subgraph.heads
    ]
