"""Give the graph of one sentence an axis for sentences in front: (N, L, ...).

So packed sentences are for a graph (see `node_type.Kind`). One that reads (L, N, ...) gets
transpositions around it; rows of sentences (L, 1, ...) stay as they are. A result (S, N, ...), as
the states of S layers, becomes S rows for each sentence.
"""

from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Optional

import mxnet as mx

from ..errors import RecordError
from ..ops.attrs import Shape, unlike
from .ir import Entry, Subgraph
from .rewrite import Operand, Rewriter
from .trace import INPUT, StaticGraph


def sentences_first(
    graph: StaticGraph,
    shapes: Sequence[Shape],
    positions: Collection[int],
    axis: int,
    results: Sequence[bool],
) -> StaticGraph:
    """Return the graph of sentences (N, L, ...), in place of (1, L, ...) or (L, 1, ...).

    Parameters
    ----------
    graph : StaticGraph
    shapes : sequence of tuple of int
        Shapes of the arguments of one call.
    positions : collection of int
        The arguments that are sentences; (L, 1, ...) have three axes or more.
    axis : int
        That of the steps, 0 or 1.
    results : sequence of bool
        For each output, whether it is a sentence, too.
    """
    states, turned = _turned(graph, shapes, positions, axis)
    if axis == 1 and not states and not any(turned):
        return graph
    old, rewriter = graph.subgraph, Rewriter()
    names = {INPUT % position for position in positions} if axis == 0 else ()
    moved: dict[Entry, Operand] = {}
    for index, node in enumerate(old.nodes):
        made = rewriter.keep(node, [moved[entry] for entry in node.inputs])
        if node.is_variable and node.name in names:
            merged = rewriter.add('Reshape', [made], shape='(0, 0, -3, -2)')
            made = rewriter.add('SwapAxis', [merged], dim1=0, dim2=1)
        elif node.is_variable and node.name in states:
            made = rewriter.add('SwapAxis', [made], dim1=0, dim2=1)
        for entry in [Entry(index), *[each for each in old.uses if each.node == index]]:
            moved[entry] = made._replace(output=entry.output)
    heads = [moved[head] for head in old.heads]
    for place, is_sentence in enumerate(results):
        shape = turned[place]
        if (is_sentence and axis == 0) or shape:
            heads[place] = rewriter.add('SwapAxis', [heads[place]], dim1=0, dim2=1)
        if is_sentence and axis == 0:
            heads[place] = rewriter.add('expand_dims', [heads[place]], axis=2)
        elif shape and shape[0] > 1:
            heads[place] = rewriter.add('Reshape', [heads[place]], shape=(-1, *shape[1:]))
    return graph._replace(subgraph=Subgraph.of(rewriter.nodes, [head.entry for head in heads]))


def _turned(
    graph: StaticGraph, shapes: Sequence[Shape], positions: Collection[int], axis: int
) -> tuple[set[str], list[Optional[Shape]]]:
    """Return the inputs whose axis for sentences is the second, as that of states (S, N, ...), and
    the shape, for one call, of each result with that axis second; None for other results."""
    one = {INPUT % place: shape for place, shape in enumerate(shapes)}
    sentences = {INPUT % place for place in positions}
    states = {name for name, shape in one.items() if shape[1:2] == (1,)} - sentences
    several = {name for name, shape in one.items() if shape[0] > 1} - sentences
    of_one = graph.subgraph.infer(one)
    for seconds in [states] if several else [set(), states]:
        two = {
            name: (shape[0], 2, *shape[2:])
            if name in seconds or (axis == 0 and name in sentences)
            else (2, *shape[1:])
            for name, shape in one.items()
        }
        with suppress(mx.base.MXNetError):
            of_two = graph.subgraph.infer(two)
            if of_one is None or of_two is None or not several <= seconds:
                break
            return seconds, [
                of_one[node][output]
                if unlike(of_one[node][output], of_two[node][output]) == [1]
                else None
                for node, output in graph.subgraph.heads
            ]
    raise RecordError('shapes cannot be inferred')
