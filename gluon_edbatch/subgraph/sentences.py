"""Give the graph of one sentence an axis for sentences in front: (N, L, ...).

So packed sentences are for a graph (see `node_type.Kind`). One that reads (L, N, ...) gets
transpositions around it; rows of sentences (L, 1, ...) stay as they are. A result (S, N, ...), as
the states of S layers, becomes S rows for each sentence. A graph whose rows depend on each other is
lifted, for one length.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Optional

import mxnet as mx
import numpy as np

from gluon_edbatch_core.errors import RecordError

from ..ops import op_of
from ..ops.attrs import Shape, unlike
from ..ops.whole import NoRule, as_rows
from .ir import Subgraph
from .lift import lift
from .padding_proof import LENGTHS
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
    given = {name: mx.sym.swapaxes(mx.sym.var(name), dim1=0, dim2=1) for name in states}
    for position, place in axes.items():
        name = INPUT % position
        if axis == 0:
            merged = mx.sym.reshape(mx.sym.var(name), shape=(0, 0, -3, -2))
            given[name] = mx.sym.swapaxes(merged, dim1=0, dim2=1)
        elif place > 1:
            order = inverse(lengths_first(len(shapes[position]), (place,)))
            given[name] = mx.sym.transpose(mx.sym.var(name), axes=order)
    heads = list(graph.subgraph.symbol(**graph.subgraph.known(given)))
    for place, along in enumerate(results):
        is_sentence, shape = along is not None, turned[place]
        if along is not None and along > 1:
            order = lengths_first(len(of_one[place]), (along,))
            heads[place] = mx.sym.transpose(heads[place], axes=order)
        if (is_sentence and axis == 0) or shape:
            heads[place] = mx.sym.swapaxes(heads[place], dim1=0, dim2=1)
        if is_sentence and axis == 0:
            heads[place] = mx.sym.expand_dims(heads[place], axis=2)
        elif shape and shape[0] > 1:
            heads[place] = mx.sym.reshape(heads[place], shape=(-1, *shape[1:]))
    return graph._replace(subgraph=Subgraph(mx.sym.Group(heads)))


def whole_sentences(
    graph: Subgraph,
    shapes: Sequence[Shape],
    axes: Mapping[int, int],
    results: Sequence[Sequence[int]],
) -> Subgraph:
    """Return the lifted graph (see `lift`) for sentences (N, L, ...) of a certain length.

    Parameters
    ----------
    graph : Subgraph
        Of one call, maybe with the lengths of its arguments (`LENGTHS`).
    shapes : sequence of tuple of int
        Shapes of the arguments of one call with sentences of this length.
    axes : dict
        Maps the position of an argument that is a sentence to the axis of its positions. Other
        arguments have all their rows for each sentence.
    results : sequence of (sequence of int)
        Axes of each output that have lengths; in the results they follow the axis for sentences,
        and an axis of one row is left out. An output without any has rows for each sentence.

    Raises
    ------
    NoRule
        If an operator has no rule for its arguments.
    RecordError
        If a result with a length has several rows.
    """
    one = {INPUT % position: shape for position, shape in enumerate(shapes)}
    one.update({LENGTHS % (INPUT % position): (1,) for position in axes})
    one = graph.known(one)
    of_one = graph.infer(one)
    if of_one is None:
        raise NoRule('shapes that cannot be inferred')
    sentences = {INPUT % position: axis for position, axis in axes.items()}
    given = {}
    for name, axis in graph.known(sentences).items():
        order = lengths_first(len(one[name]), (axis,))
        given[name] = mx.sym.var(name)
        if axis:
            row = mx.sym.expand_dims(given[name], axis=1)
            given[name] = mx.sym.transpose(row, axes=_of_batch(inverse(order)))
    lifted = lift(graph, one, list(given), as_values=True)
    heads = []
    for symbol, (node, output), along in zip(lifted.symbol(**given), graph.heads, results):
        shape = of_one[node][output]
        if along:
            order = lengths_first(len(shape), along)
            symbol = mx.sym.transpose(symbol, axes=_of_batch(order))
            if 0 not in along:
                if shape[0] > 1:
                    raise RecordError('a result has several rows for each position of a sentence')
                symbol = mx.sym.squeeze(symbol, axis=1)
            heads.append(symbol)
        else:
            heads.append(as_rows(symbol, shape))
    return Subgraph(mx.sym.Group(heads))


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


def lengths_first(rank: int, axes: Sequence[int]) -> tuple[int, ...]:
    """Return the axes of an array in the order in which a packed value has them: those with lengths
    before all others, but for a first axis of one row."""
    first = [0, *axes] if 0 not in axes else axes
    return (*first, *[axis for axis in range(rank) if axis not in first])


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    """Return the order of axes that undoes a transposition."""
    return tuple(np.argsort(order).tolist())


def _of_batch(order: Sequence[int]) -> tuple[int, ...]:
    """Return an order of axes behind that of the batch."""
    return (0, *[1 + axis for axis in order])


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
