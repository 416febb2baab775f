"""Segment reduction: ragged arguments without padding, as rows and the parent of each.

Padding the children of a batch's nodes to (N, K, H) makes up to three times as many rows. Most
cells apply elementwise operators or products to children, and then sum over axis 1. These operators
are rewritten for the (M, H) rows that exist. ``parents`` (M,) has the row of the batch that each
child belongs to, ``segments`` (M, N) is the sparse matrix of ones for it:

- ``sum(x, axis=1)`` becomes ``dot(segments.T, x)``
- ``broadcast_op(x, y)`` with y (N, 1, H) becomes ``op(x, take(y, parents))``

Other operators on a ragged argument keep the padded form.
"""

from typing import Optional

from ..ops import op_of
from ..ops.attrs import Shape
from .ir import Attrs, Entry, Subgraph
from .rewrite import NodeView, Operand, Rewriter, rewrite

SEGMENTS, PARENTS = 'edb_segments', 'edb_parents'


class _NotCovered(Exception):
    """An operator is not covered by the rules for segments."""


def by_segments(graph: Subgraph, shapes: dict[str, Shape], ragged: set[str]) -> Optional[Subgraph]:
    """Return the subgraph with ragged inputs (M, H) in place of (N, K, H), and the further inputs
    `SEGMENTS` and `PARENTS`; None if an operator has no rule.

    `shapes` are those of the inputs for some N and K. The ragged inputs have the same lengths in
    each call, and no result has their axis 1 (see `padding_proof`).
    """
    if any(len(shapes.get(name, ())) != 3 for name in ragged):
        return None
    try:
        return rewrite(graph, shapes, _SegmentRules(ragged))
    except _NotCovered:
        return None


class _SegmentRules:
    """Rules that replace operators; they track which entries of the new graph have M rows."""

    def __init__(self, ragged: set[str]):
        self._ragged = ragged
        self._long: set[Entry] = set()
        self._extra: dict[str, Operand] = {}

    def __call__(self, rewriter: Rewriter, node: NodeView) -> Optional[Operand]:
        long = [self._is_long(rewriter, operand) for operand in node.inputs]
        if not any(long):
            return None
        if node.op == 'sum':
            return self._sum(rewriter, node)
        op = op_of(node.op)
        if (
            long[0]
            and not any(long[1:])
            and ((op.elementwise and len(long) == 1) or op.by_value(node.attrs))
        ):
            return self._row_by_row(rewriter, node, node.op, node.inputs)
        if op.aligned:
            values = [operand for operand, is_long in zip(node.inputs, long) if is_long]
            if any([operand.shape != node.shape for operand in values]):
                raise _NotCovered('broadcast')
            inputs = [
                operand if is_long else self._of_parents(rewriter, operand, node.shape)
                for operand, is_long in zip(node.inputs, long)
            ]
            return self._row_by_row(rewriter, node._replace(attrs=Attrs()), op.aligned, inputs)
        raise _NotCovered(node.op)

    def _is_long(self, rewriter: Rewriter, operand: Operand) -> bool:
        node = rewriter.nodes[operand.node]
        return operand.entry in self._long or (node.is_variable and node.name in self._ragged)

    def _row_by_row(self, rewriter, node: NodeView, op: str, inputs: list[Operand]) -> Operand:
        operand = rewriter.add(op, inputs, node.shape, **node.attrs)
        self._long.add(operand.entry)
        return operand

    def _variable(self, rewriter: Rewriter, name: str) -> Operand:
        if name not in self._extra:
            self._extra[name] = rewriter.variable(name)
        return self._extra[name]

    def _of_parents(self, rewriter: Rewriter, operand: Operand, result: Shape) -> Operand:
        """Return the row of its parent for each value."""
        if operand.shape != (result[0], 1, result[2]):
            raise _NotCovered('broadcast')
        node = rewriter.nodes[operand.node]
        if node.op == 'expand_dims':
            operand = Operand(*node.inputs[0], operand.shape[::2])
        else:
            operand = rewriter.add('Reshape', [operand], operand.shape[::2], shape='(0, -1)')
        return rewriter.add('take', [operand, self._variable(rewriter, PARENTS)], result)

    def _sum(self, rewriter: Rewriter, node: NodeView) -> Operand:
        if node.attrs.integers('axis') != (1,) or node.attrs.flag('exclude'):
            raise _NotCovered('sum')
        rows, _, width = node.inputs[0].shape
        total = rewriter.add(
            'dot',
            [self._variable(rewriter, SEGMENTS), node.inputs[0]],
            (rows, width),
            transpose_a=True,
            forward_stype='default',
        )
        if node.attrs.flag('keepdims'):
            return rewriter.add('expand_dims', [total], (rows, 1, width), axis=1)
        return total
