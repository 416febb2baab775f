"""Give the graph of one sentence an axis for sentences in front: (N, L, ...).

So packed sentences are for a graph (see `node_type.Kind`). One that reads (L, N, ...) gets
transpositions around it; rows of sentences (L, 1, ...) stay as they are. A result (S, N, ...), as
the states of S layers, becomes S rows for each sentence.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Optional

import mxnet as mx
import numpy as np

from ..errors import RecordError
from ..ops import op_of
from ..ops.attrs import Shape, unlike
from .ir import Entry, Subgraph
from .rewrite import NodeView, Operand, Rewriter, rewrite
from .trace import INPUT, StaticGraph


def sentences_first(
    graph: StaticGraph,
    shapes: Sequence[Shape],
    axes: Mapping[int, int],
    results: Sequence[Optional[int]],
) -> StaticGraph:
    """Return the graph of sentences (N, L, ...), in place of (1, L, ...), (1, ..., L, ...) or (L,
    1, ...).

    Parameters
    ----------
    graph : StaticGraph
    shapes : sequence of tuple of int
        Shapes of the arguments of one call.
    axes : dict
        Maps the position of an argument that is a sentence to the axis of its positions. It is 0
        for all, whose arrays (L, 1, ...) have three axes or more, or for none.
    results : sequence of (int or None)
        The axis of the positions of each output that is a sentence, too.
    """
    axis = min(axes.values())
    states, turned, of_one = _turned(graph, shapes, axes, axis)
    if {*axes.values(), *results} <= {1, None} and not states and not any(turned):
        return graph
    old, rewriter = graph.subgraph, Rewriter()
    names = {INPUT % position for position in axes} if axis == 0 else ()
    later = {
        INPUT % position: with_positions(len(shapes[position]), place)
        for position, place in axes.items()
        if place > 1
    }
    moved: dict[Entry, Operand] = {}
    for index, node in enumerate(old.nodes):
        made = rewriter.keep(node, [moved[entry] for entry in node.inputs])
        if node.is_variable and node.name in names:
            merged = rewriter.add('Reshape', [made], shape='(0, 0, -3, -2)')
            made = rewriter.add('SwapAxis', [merged], dim1=0, dim2=1)
        elif node.is_variable and node.name in states:
            made = rewriter.add('SwapAxis', [made], dim1=0, dim2=1)
        elif node.is_variable and node.name in later:
            made = rewriter.add('transpose', [made], axes=later[node.name])
        for entry in [Entry(index), *[each for each in old.uses if each.node == index]]:
            moved[entry] = made._replace(output=entry.output)
    heads = [moved[head] for head in old.heads]
    for place, along in enumerate(results):
        is_sentence, shape = along is not None, turned[place]
        if along is not None and along > 1:
            order = np.argsort(with_positions(len(of_one[place]), along)).tolist()
            heads[place] = rewriter.add('transpose', [heads[place]], axes=tuple(order))
        if (is_sentence and axis == 0) or shape:
            heads[place] = rewriter.add('SwapAxis', [heads[place]], dim1=0, dim2=1)
        if is_sentence and axis == 0:
            heads[place] = rewriter.add('expand_dims', [heads[place]], axis=2)
        elif shape and shape[0] > 1:
            heads[place] = rewriter.add('Reshape', [heads[place]], shape=(-1, *shape[1:]))
    return graph._replace(subgraph=Subgraph.of(rewriter.nodes, [head.entry for head in heads]))


def rows_apart(graph: StaticGraph, shapes: Sequence[Shape]) -> StaticGraph:
    """Return the graph of one sentence with reductions over all axes, whose results have one
    element, as reductions over all axes but the first, which batches have for sentences."""

    def rule(rewriter: Rewriter, node: NodeView) -> Optional[Operand]:
        if op_of(node.op).of_none is None or len(node.inputs) > 1:
            return None
        shape = node.inputs[0].shape
        every = set(range(len(shape)))
        if len(every) < 2 or shape[0] != 1:
            return None
        if node.shape != (1,) or node.attrs.axes(len(shape)) != every:
            return None
        attrs: Any = {**node.attrs, 'axis': tuple(range(1, len(shape))), 'exclude': False}
        return rewriter.add(node.op, node.inputs, **attrs)

    known = {INPUT % place: shape for place, shape in enumerate(shapes)}
    subgraph = rewrite(graph.subgraph, known, rule)
    return graph if subgraph is graph.subgraph else graph._replace(subgraph=subgraph)


def with_positions(rank: int, axis: int) -> tuple[int, ...]:
    """Return the axes of an array (1, L, ...) in the order that moves the second to `axis`."""
    others = [0, *range(2, rank)]
    return (*others[:axis], 1, *others[axis:])


def _turned(
    graph: StaticGraph, shapes: Sequence[Shape], positions: Collection[int], axis: int
) -> tuple[set[str], list[Optional[Shape]], list[Shape]]:
    """Return the inputs whose axis for sentences is the second, as that of states (S, N, ...), and
    the shape, for one call, of each result with that axis second, None for other results; and the
    shapes of all results."""
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
            results = [of_one[node][output] for node, output in graph.subgraph.heads]
            others = [of_two[node][output] for node, output in graph.subgraph.heads]
            turned = [one if unlike(one, two) == [1] else None for one, two in zip(results, others)]
            return seconds, turned, results
    raise RecordError('shapes cannot be inferred')
