"""Arithmetic with numbers that is known beforehand: ``x * 1``, ``x + 0``, ``x * 2 * 3``."""

from typing import Dict, NamedTuple, Optional

from ...ops import Arithmetic, op_of
from ..ir import Entry, Shape, Subgraph
from ..rewrite import NodeView, Operand, Rewriter, rewrite

_WITH_NUMBER = frozenset(
    '_plus_scalar _minus_scalar _rminus_scalar _mul_scalar _div_scalar'.split()
)
_LEAST, _GREATEST = 2.0**-14, 2.0**15  # of what no floating type rounds to zero or infinity
_ZEROS, _ONES = frozenset('zeros_like _zeros'.split()), frozenset('ones_like _ones'.split())


def constants(graph: Subgraph, shapes: Dict[str, Shape]) -> Subgraph:
    """Replace chains of sums and products with numbers, and those that change nothing.

    Not if an input would be gone: a parameter that is read has a gradient, be it zero. Results may
    differ in rounding, and in the sign of zero: ``-0.0 + 0.0`` is 0.0.
    """
    changed = rewrite(graph, shapes, _Simplification())
    return changed if set(changed.variables) == set(graph.variables) else graph


class _Linear(NamedTuple):
    """``factor * base + offset``"""

    base: Operand
    factor: float
    offset: float


class _Simplification:
    """What operators become; knows which entries of the new graph are linear in another."""

    def __init__(self):
        self._linear: Dict[Entry, _Linear] = {}

    def __call__(self, rewriter: Rewriter, node: NodeView) -> Optional[Operand]:
        if len(node.inputs) == 2:
            return _neutral(rewriter, node)
        own = _step(node)
        if own is None:
            return None
        if (own.factor, own.offset) == (1, 0):
            return own.base
        before = self._linear.get(own.base.entry)
        if before is not None:
            both = _Linear(
                before.base, own.factor * before.factor, own.factor * before.offset + own.offset
            )
            operand = _computed(rewriter, both)
            if operand is not None:
                if operand != both.base:
                    self._linear[operand.entry] = both
                return operand
        self._linear[Entry(len(rewriter.nodes))] = own  # where the node will be, which is kept
        return None


def _step(node: NodeView) -> Optional[_Linear]:
    """What an operator with a number does; None if it has none that may be merged with others.

    Integers round numbers.
    """
    if node.op not in _WITH_NUMBER or not node.floating:
        return None
    number = node.attrs.number('scalar', 1)
    if number != 0 and not _LEAST <= abs(number) <= _GREATEST:
        return None
    if node.op in ('_mul_scalar', '_div_scalar'):
        if number == 0:
            return None
        return _Linear(node.inputs[0], number if node.op == '_mul_scalar' else 1 / number, 0.0)
    sign = -1.0 if node.op == '_rminus_scalar' else 1.0
    return _Linear(node.inputs[0], sign, -number if node.op == '_minus_scalar' else number)


def _computed(rewriter: Rewriter, linear: _Linear) -> Optional[Operand]:
    """A linear function of an operand by at most one operator."""
    base, factor, offset = linear
    if (factor, offset) == (1, 0):
        return base
    if any(number and not _LEAST <= abs(number) <= _GREATEST for number in linear[1:]):
        return None
    for op, number, fits in (
        ('_mul_scalar', factor, offset == 0),
        ('_plus_scalar', offset, factor == 1),
        ('_rminus_scalar', offset, factor == -1),
    ):
        if fits:
            return rewriter.add(op, [base], base.shape, scalar=number)
    return None


def _neutral(rewriter: Rewriter, node: NodeView) -> Optional[Operand]:
    """A sum with zeros, a product with ones."""
    left, right = node.inputs
    kind = op_of(node.op).arithmetic
    neutral = _ZEROS if kind in (Arithmetic.SUM, Arithmetic.DIFFERENCE) else _ONES
    commutes = kind in (Arithmetic.SUM, Arithmetic.PRODUCT)
    if kind is not None and rewriter.op_of(right) in neutral:
        return left if left.shape == node.shape else None
    if commutes and rewriter.op_of(left) in neutral:
        return right if right.shape == node.shape else None
    return None
