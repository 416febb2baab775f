"""Rules for scalar promotion: how a number among an operator's attributes becomes an array.

An attribute's number makes a type of calls for each of its values. As an array it is data, and
calls with different numbers share a batch.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, Callable, NamedTuple, Optional

import mxnet as mx
import numpy as np

from ..mx.symbols import symbol_function
from .attrs import Attrs, Shape


class Numbered(NamedTuple):
    """A call of an operator, with its number separate from other attributes."""

    number: float
    dtype: Any  # of an array of it that is as exact as the attribute
    # whether the number is one for each row of the array that the operator is applied to, else one
    # for all
    each_row: bool
    rest: tuple[tuple[str, str], ...]  # what calls with other numbers have, too
    # gives the result as a Symbol, of Symbols of the array and of the number
    symbol: Callable[[mx.sym.Symbol, mx.sym.Symbol], mx.sym.Symbol]


# Arithmetic of NumPy mode: the operator of two arrays in mx.nd, that of an array and a number, and
# of a number and an array, where that is another.
NUMPY_ARITHMETIC = {
    'add': ('broadcast_add', '_plus_scalar', ''),
    'subtract': ('broadcast_sub', '_minus_scalar', '_rminus_scalar'),
    'multiply': ('broadcast_mul', '_mul_scalar', ''),
    'true_divide': ('broadcast_div', '_div_scalar', '_rdiv_scalar'),
    'mod': ('broadcast_mod', '_mod_scalar', '_rmod_scalar'),
    'power': ('broadcast_power', '_power_scalar', '_rpower_scalar'),
}
NumberRule = Callable[[Attrs, Shape, Any], Optional[Numbered]]  # of attributes, shape and dtype
# A batch has an array for each position that is taken of it, where a position that is an attribute
# is a view: beyond so many elements in a row it is not worth it.
_LARGEST_ROW = 1 << 12
_POSITIONS = np.dtype(np.float32)
WIDEST = 16  # slice whose first position may be a number: it takes its positions one by one


def operand(operator: str, first: bool = False) -> NumberRule:
    """Return a rule that makes the number an operand of `operator`, the second unless `first`.

    Attributes are in double precision, but MXNet computes in the array's dtype for floating arrays.
    The rule does not apply to integers, for which MXNet uses another dtype.
    """

    def rule(attrs: Attrs, shape: Shape, dtype: Any) -> Optional[Numbered]:
        if not np.issubdtype(dtype, np.floating):
            return None

        def symbol(array: mx.sym.Symbol, number: mx.sym.Symbol) -> mx.sym.Symbol:
            column = _column(number, len(shape))
            return symbol_function(operator)(*((column, array) if first else (array, column)))

        rest = tuple([(key, value) for key, value in attrs.items() if key != 'scalar'])
        rest = (*rest, ('scalar', 'data'))
        # MXNet rounds numbers for float16 twice.
        number = (attrs.single if dtype == np.float16 else attrs.number)('scalar', 1)
        return Numbered(number, dtype, True, rest, symbol)

    return rule


def position(attrs: Attrs, shape: Shape, dtype: Any) -> Optional[Numbered]:
    """Return the first position of a narrow slice as a number."""
    axis = attrs.axis('axis', len(shape))
    (begin,), end = attrs.integers('begin'), attrs.integers('end')
    first, last, _ = slice(begin, end[0] if end else None).indices(shape[axis])
    width = last - first
    if not 0 < width <= WIDEST or width == shape[axis] or prod(shape[1:]) > _LARGEST_ROW:
        return None

    def symbol(array: mx.sym.Symbol, number: mx.sym.Symbol) -> mx.sym.Symbol:
        every = [number + place if place else number for place in range(width)]
        return picked(array, every, shape, axis, dtype)

    rest = ('axis', str(axis)), ('width', str(width)), ('begin', 'data')
    return Numbered(float(first), _POSITIONS.type, axis != 0, rest, symbol)


def taken(attrs: Attrs, shape: Shape, dtype: Any, count: int) -> Optional[Numbered]:
    """Return what ``take`` does with `count` positions of each row, (N, `count`)."""
    axis = attrs.axis('axis', len(shape), 0)
    if attrs.get('mode', 'clip') != 'clip' or not 0 < count <= WIDEST or not axis:
        return None

    def symbol(array: mx.sym.Symbol, numbers: mx.sym.Symbol) -> mx.sym.Symbol:
        every = [mx.sym.slice_axis(numbers, axis=1, begin=i, end=i + 1) for i in range(count)]
        return picked(array, every, shape, axis, dtype)

    rest = ('axis', str(axis)), ('width', str(count)), ('index', 'data')
    return Numbered(0.0, _POSITIONS.type, True, rest, symbol)


def picked(
    array: mx.sym.Symbol, positions: Sequence[mx.sym.Symbol], shape: Shape, axis: int, dtype: Any
) -> mx.sym.Symbol:
    """Return some positions along an axis of an array of this dtype, each a number for each row."""
    first = mx.sym.zeros_like(mx.sym.slice_axis(array, axis=axis, begin=0, end=1))
    first = first if dtype == _POSITIONS else mx.sym.Cast(first, dtype=_POSITIONS.name)
    found = []
    for number in positions:
        index = mx.sym.broadcast_add(first, _column(number, len(shape)))
        found.append(mx.sym.pick(array, index, axis=axis, keepdims=True))
    return found[0] if len(found) == 1 else mx.sym.concat(*found, dim=axis)


def _column(number: mx.sym.Symbol, rank: int) -> mx.sym.Symbol:
    """Return numbers of rows, shaped to broadcast along arrays of `rank` axes."""
    return mx.sym.reshape(number, shape=(-1,) + (1,) * (rank - 1)) if rank > 1 else number
