"""Axis normalisation: move the axis of ragged values behind axis 0, everywhere in a graph.

Users write attention with weights (N, 1, K), or with heads in axis 0, (N * heads, K, D). A native
program has a row for each value, so other layouts become (N, K, ...). Shapes for two numbers of
rows and of values tell which axis of an entry is that of the values, and how many heads axis 0 has.
Only axes of length one and the axis of values move, which costs nothing in native programs.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import Callable, NamedTuple, Optional

import mxnet as mx

from ..ops import op_of
from ..ops.attrs import Shape, unlike
from .ir import Entry, Subgraph
from .rewrite import NodeView, Operand, Rewriter, rewrite

_FURTHER = 8  # values in the second of two trials, which has twice as many rows


class _KeptAsItIs(Exception):
    """The graph has an operator that these rules do not know."""


class _EntryAxes(NamedTuple):
    """The axes of an entry of the graph: rows, values, heads and others."""

    shape: Shape
    axis: Optional[int]  # where its values are, if it is ragged
    # rows, heads: which axis 0 is the product of
    rows: int
    heads: int

    @property
    def plain(self) -> bool:
        """Whether the entry has the normal layout already."""
        return self.heads == 1 and self.axis in (None, 1)

    @property
    def others(self) -> list[int]:
        """The axes except the first and that of the values."""
        return [axis for axis in range(1, len(self.shape)) if axis != self.axis]

    @property
    def lead(self) -> Shape:
        """The first axes of the new shape: rows, values, heads."""
        values = () if self.axis is None else (self.shape[self.axis],)
        return (self.rows, *values) + ((self.heads,) if self.heads > 1 else ())

    @property
    def moved(self) -> Shape:
        """New shape, with the ragged axis next to the rows."""
        return self.lead + tuple([self.shape[axis] for axis in self.others])

    def place(self, axis: int) -> int:
        """Return the position of an axis in the new shape."""
        return 1 if axis == self.axis else len(self.lead) + self.others.index(axis)


def values_first(graph: Subgraph, shapes: Mapping[str, Shape], ragged: set[str]) -> Subgraph:
    """Return the graph with all ragged entries as (N, K, ...), like its inputs in `ragged`. Return
    the graph itself if they are, or if an operator on others has no rule. `shapes` are those of the
    inputs for some numbers of rows and values.
    """
    try:
        layouts = _layouts(graph, shapes, ragged)
        if not all(_is_plain(layouts[head]) for head in graph.heads):
            return graph
        return rewrite(graph, shapes, partial(_moved, graph, layouts))
    except (_KeptAsItIs, mx.base.MXNetError):
        return graph


def _layouts(
    graph: Subgraph, shapes: Mapping[str, Shape], ragged: set[str]
) -> dict[Entry, Optional[_EntryAxes]]:
    """Return the axes of all entries; None for an entry that does not depend on the inputs."""
    more = {
        name: (2 * shape[0], shape[1] + _FURTHER) + shape[2:]
        if name in ragged
        else (2 * shape[0],) + shape[1:]
        for name, shape in shapes.items()
    }
    rows = shapes[min(ragged)][0]
    found: dict[Entry, Optional[_EntryAxes]] = {}
    for index, both in enumerate(zip(graph.infer(shapes) or (), graph.infer(more) or ())):
        for output, (one, other) in enumerate(zip(*both)):
            found[Entry(index, output)] = None if one == other else _layout(one, other, rows)
    return found


def _layout(one: Shape, other: Shape, rows: int) -> _EntryAxes:
    if len(one) != len(other):
        raise _KeptAsItIs
    axes = unlike(one, other)
    values = [axis for axis in axes if axis and other[axis] == one[axis] + _FURTHER]
    if axes != [0, *values] or len(values) > 1 or other[0] != 2 * one[0] or one[0] % rows:
        raise _KeptAsItIs
    return _EntryAxes(one, values[0] if values else None, rows, one[0] // rows)


def _is_plain(layout: Optional[_EntryAxes]) -> bool:
    """Return whether an entry has the normal layout, or does not depend on the inputs."""
    return layout is None or layout.plain


class _AxesCall(NamedTuple):
    """An operator whose inputs or result do not have the normal layout."""

    node: NodeView
    inputs: list[Operand]  # in the new graph
    # old layouts of the inputs and of the result
    before: list[Optional[_EntryAxes]]
    after: _EntryAxes
    add: Callable[..., Operand]  # see `Rewriter`

    @property
    def x(self) -> _EntryAxes:
        """Layout of the first input's axes."""
        if self.before[0] is None:
            raise _KeptAsItIs
        return self.before[0]


def _moved(
    graph: Subgraph,
    layouts: Mapping[Entry, Optional[_EntryAxes]],
    rewriter: Rewriter,
    node: NodeView,
) -> Optional[Operand]:
    """Return what replaces an operator whose inputs or result have another layout; else None."""
    before = [layouts[entry] for entry in graph.nodes[node.index].inputs]
    after = layouts[Entry(node.index)]
    if after is None or all(map(_is_plain, [*before, after])):
        return None
    call, op = _AxesCall(node, node.inputs, before, after, rewriter.add), op_of(node.op)
    if node.op in _RULES:
        return _RULES[node.op](call)
    if op.is_view and len(call.inputs) == 1 and op.axis is not None:
        return _view(call)
    if op.aligned is not None:
        return _broadcast(call)
    if op.by_value(node.attrs):
        return _by_value(call)
    if op.elementwise and len(call.inputs) == 1:
        return _same(call, call.inputs)
    raise _KeptAsItIs


# --- rules ---------------------------------------------------------------------------------------


def _same(call: _AxesCall, inputs: Sequence[Operand], **attrs: object) -> Operand:
    """Apply the operator to moved inputs."""
    return call.add(call.node.op, inputs, call.after.moved, **{**call.node.attrs, **attrs})


def _shaped(call: _AxesCall, operand: Operand, shape: Shape) -> Operand:
    """Reshape the rows of an operand."""
    if operand.shape == shape:
        return operand
    lead = 2 if operand.shape[:2] == shape[:2] else 1
    text = ', '.join(['0'] * lead + [str(size) for size in shape[lead:]])
    return call.add('Reshape', [operand], shape, shape=f'({text})')


def _by_value(call: _AxesCall) -> Operand:
    """Apply an operator that works on the last axis at most."""
    if call.x.axis == len(call.x.shape) - 1 or any(call.before[1:]):
        raise _KeptAsItIs
    return _same(call, call.inputs)


def _view(call: _AxesCall) -> Operand:
    """Reshape an entry; axes in front of the values stay."""
    x, after = call.x, call.after
    if (x.axis is None) != (after.axis is None) or (
        prod(x.shape[: x.axis or 0]) != prod(after.shape[: after.axis or 0])
    ):
        raise _KeptAsItIs
    return _shaped(call, call.inputs[0], after.moved)


def _transpose(call: _AxesCall) -> Operand:
    x, axes = call.x, call.node.attrs.order(call.node.op, len(call.x.shape))
    if axes[0] != 0:
        raise _KeptAsItIs
    order = [x.place(axes[axis]) for axis in call.after.others]
    if order == sorted(order):
        return call.inputs[0]
    lead = tuple(range(len(x.lead)))
    return call.add('transpose', call.inputs, call.after.moved, axes=(*lead, *order))


def _along(call: _AxesCall) -> Operand:
    """Apply an operator along an axis that stays."""
    axis = call.node.attrs.axis('axis', len(call.x.shape), -1)
    if axis == 0 or any(call.before[1:]):
        raise _KeptAsItIs
    return _same(call, call.inputs, axis=call.x.place(axis))


def _reduced(call: _AxesCall) -> Operand:
    axes = call.node.attrs.axes(len(call.x.shape))
    if 0 in axes:
        raise _KeptAsItIs
    places = tuple(sorted(map(call.x.place, axes)))
    kept = [size for i, size in enumerate(call.x.moved) if i not in places]
    reduced = call.add(call.node.op, call.inputs, tuple(kept), axis=places)
    return _shaped(call, reduced, call.after.moved)


def _broadcast(call: _AxesCall) -> Operand:
    return _same(call, list(map(partial(_beside, call), call.inputs, call.before)))


def _beside(call: _AxesCall, operand: Operand, layout: Optional[_EntryAxes]) -> Operand:
    """Return an operand with the axes of the other operand."""
    after = call.after
    if layout is None or layout.heads != after.heads or len(layout.shape) != len(after.shape):
        raise _KeptAsItIs
    if layout.axis == after.axis:
        return operand
    heads = layout.lead[1:]
    sizes = tuple([layout.shape[axis] for axis in after.others])
    return _shaped(call, operand, (layout.rows, 1, *heads, *sizes))


def _batch_dot(call: _AxesCall) -> Operand:
    """Apply ``batch_dot``: the axes of values in its factors tell what it computes."""
    turned = [call.node.attrs.flag(f'transpose_{name}') for name in 'ab']
    (a, b), (first, second) = call.inputs, call.before
    if first is None or second is None:
        raise _KeptAsItIs
    inner = 1 if turned[0] else 2, 2 if turned[1] else 1
    if (first.axis, second.axis) == inner:
        return _sum_of_values(call, a, b)
    if first.axis == 3 - inner[0] and second.axis is None:
        return _by_matrix(call, a, b, turned[1])
    if first.axis is None and second.axis == 3 - inner[1]:
        return _by_matrix(call, b, a, not turned[0])
    raise _KeptAsItIs


def _by_matrix(call: _AxesCall, values: Operand, matrix: Operand, turned: bool) -> Operand:
    """Multiply each value by the matrix of its row and head."""
    after = call.after
    if after.heads == 1:
        return call.add('batch_dot', [values, matrix], after.moved, transpose_b=turned)
    if after.moved[-1] != 1:
        raise _KeptAsItIs
    query = _shaped(call, matrix, (after.rows, 1, *values.shape[2:]))
    products = call.add('broadcast_mul', [values, query], values.shape)
    total = call.add('sum', [products], values.shape[:-1], axis=-1)
    return _shaped(call, total, after.moved)


def _sum_of_values(call: _AxesCall, a: Operand, b: Operand) -> Operand:
    """Sum the products of two factors over the values."""
    after = call.after
    if after.heads == 1:
        return call.add('batch_dot', [a, b], after.moved, transpose_a=True)
    if 1 not in (a.shape[-1], b.shape[-1]):
        raise _KeptAsItIs
    shape = (*a.shape[:-1], a.shape[-1] * b.shape[-1])
    products = call.add('broadcast_mul', [a, b], shape)
    total = call.add('sum', [products], shape[:1] + shape[2:], axis=1)
    return _shaped(call, total, after.moved)


_RULES: dict[str, Callable[[_AxesCall], Operand]] = {
    'transpose': _transpose,
    'SwapAxis': _transpose,
    'batch_dot': _batch_dot,
    'softmax': _along,
    'log_softmax': _along,
    'sum': _reduced,
    'mean': _reduced,
    'max': _reduced,
    'min': _reduced,
}
