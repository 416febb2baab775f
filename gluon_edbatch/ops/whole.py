"""Rules for whole values: an operator on one axis more, the batch's, in front of all others.

None if it may be one that leaves rows alone, as the rows of all values are rows, too.
"""

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any, Callable, NamedTuple, Optional

import mxnet as mx

from ..mx.symbols import symbol_function
from .attrs import Attrs, Shape
from .row_rules import OpCall


class NoRule(Exception):
    """An operator cannot be lifted; says which."""


class LiftedValue(NamedTuple):
    """An entry of the graph.

    Attributes
    ----------
    symbol : Symbol
        (N, *shape) if batched, else (*shape).
    shape : tuple of int
        As the user sees it.
    batched : bool
        Whether it differs from call to call.
    """

    symbol: mx.sym.Symbol
    shape: Shape
    batched: bool


class LiftedCall(NamedTuple):
    """An operator and what it is applied to.

    Attributes
    ----------
    op : str
    attrs : Attrs
    inputs : list of LiftedValue
    outputs : list of tuple of int
        Shapes as the user sees them.
    """

    op: str
    attrs: Attrs
    inputs: list[LiftedValue]
    outputs: list[Shape]

    @property
    def call(self) -> OpCall:
        """As rules for rows see it."""
        return OpCall(
            self.op,
            self.attrs,
            [value.batched for value in self.inputs],
            [value.shape for value in self.inputs],
            self.outputs,
        )

    @property
    def x(self) -> mx.sym.Symbol:
        """The first input."""
        return self.inputs[0].symbol

    @property
    def rank(self) -> int:
        """Its axes, without the batch's."""
        return len(self.inputs[0].shape)

    def axis(self, key: str, default: Optional[int] = 0) -> int:
        """That of the first input which an attribute names, behind the batch's."""
        return self.attrs.axis(key, self.rank, default) + 1

    def later(self, axes: Sequence[int]) -> tuple[int, ...]:
        """The same for axes."""
        return tuple(axis % self.rank + 1 for axis in axes)

    def apply(self, *symbols: mx.sym.Symbol, **changed: Any) -> mx.sym.Symbol:
        """The operator, with some attributes changed, of other symbols."""
        return symbol_function(self.op)(*symbols, **{**self.attrs, **changed})

    def batched_inputs(self) -> list[mx.sym.Symbol]:
        """All inputs with the batch in front; those that all calls share are repeated."""
        like = next(value.symbol for value in self.inputs if value.batched)
        return [value.symbol if value.batched else _repeated(value, like) for value in self.inputs]


WholeRule = Callable[[LiftedCall], Optional[mx.sym.Symbol]]


def shaped(symbol: mx.sym.Symbol, shape: Shape) -> mx.sym.Symbol:
    """(N, *shape) from the same elements in another shape."""
    return mx.sym.reshape(symbol, shape=(-1,) + tuple(shape))


def all_shaped(results: mx.sym.Symbol, shapes: Sequence[Shape]) -> mx.sym.Symbol:
    """The same for each result of an operator."""
    if len(shapes) == 1:
        return shaped(results, shapes[0])
    return mx.sym.Group([shaped(result, shape) for result, shape in zip(results, shapes)])


def _repeated(value: LiftedValue, like: mx.sym.Symbol) -> mx.sym.Symbol:
    """The same for each call of the batch; `like` has the batch in front."""
    return mx.sym.broadcast_like(
        mx.sym.expand_dims(value.symbol, axis=0), like, lhs_axes=(0,), rhs_axes=(0,)
    )


# --- rules ---------------------------------------------------------------------------------------


def later(key: str, default: Optional[int]) -> Callable[[LiftedCall], Optional[mx.sym.Symbol]]:
    """Works along one axis, which is counted from the first input's."""

    def rule(call: LiftedCall) -> Optional[mx.sym.Symbol]:
        if call.attrs.integer(key, default) is None:
            return None
        return call.apply(*call.batched_inputs(), **{key: call.axis(key, default)})

    return rule


def along_first(key: str, default: int) -> Callable[[LiftedCall], Optional[mx.sym.Symbol]]:
    """The same for the first input; the others are weights."""

    def rule(call: LiftedCall) -> Optional[mx.sym.Symbol]:
        if any(value.batched for value in call.inputs[1:]):
            return None
        symbols = [value.symbol for value in call.inputs]
        return call.apply(*symbols, **{key: call.axis(key, default)})

    return rule


def or_all(key: str, default: Optional[int]) -> Callable[[LiftedCall], mx.sym.Symbol]:
    """Along one axis of the only input, or along all as one."""

    def rule(call: LiftedCall) -> mx.sym.Symbol:
        if call.attrs.integer(key, default) is None:
            result = call.apply(mx.sym.reshape(call.x, shape=(0, -1)), **{key: 1})
        else:
            result = call.apply(call.x, **{key: call.axis(key, default)})
        return all_shaped(result, call.outputs)

    return rule


def elementwise(broadcasting: str) -> WholeRule:
    """Right-aligned broadcasting, once the batch is in front of all axes; by an operator that does
    it if some inputs are shared."""

    def rule(call: LiftedCall) -> mx.sym.Symbol:
        aligned = _aligned(call)
        if all(value.batched for value in call.inputs):
            return call.apply(*aligned)
        return getattr(mx.sym, broadcasting)(*aligned)

    return rule


def broadcasting(call: LiftedCall) -> mx.sym.Symbol:
    """The same for an operator that does it by itself."""
    return call.apply(*_aligned(call))


def _aligned(call: LiftedCall) -> list[mx.sym.Symbol]:
    rank = len(call.outputs[0])
    return [
        shaped(value.symbol, (1,) * (rank - len(value.shape)) + value.shape)
        if value.batched and len(value.shape) < rank
        else value.symbol
        for value in call.inputs
    ]


def add_n(call: LiftedCall) -> mx.sym.Symbol:
    """One by one, as some may be shared."""
    first, *others = _aligned(call)
    return reduce(mx.sym.broadcast_add, others, first)


def reduction(call: LiftedCall) -> mx.sym.Symbol:
    rank = call.rank
    axes = call.attrs.axes(rank)
    symbol = call.x
    if len(axes) == rank:
        symbol, axes = mx.sym.reshape(symbol, shape=(0, -1)), {0}
    attrs = {'axis': tuple(sorted(axis + 1 for axis in axes)), 'keepdims': False}
    if 'exclude' in call.attrs:
        attrs['exclude'] = False
    return shaped(call.apply(symbol, **attrs), call.outputs[0])


def stack(call: LiftedCall) -> mx.sym.Symbol:
    axis = call.attrs.integer('axis', 0) % len(call.outputs[0])
    return call.apply(*call.batched_inputs(), axis=axis + 1)


def slice_(call: LiftedCall) -> mx.sym.Symbol:
    attrs = {
        key: (None,) + call.attrs.integers(key)
        for key in ('begin', 'end', 'step')
        if key in call.attrs
    }
    return call.apply(call.x, **attrs)


def slice_like(call: LiftedCall) -> Optional[mx.sym.Symbol]:
    value, shape = call.inputs[0], call.outputs[0]
    return (
        mx.sym.slice(value.symbol, begin=(None,) * (len(shape) + 1), end=(None,) + shape)
        if value.batched
        else None
    )


def reshaped(call: LiftedCall) -> mx.sym.Symbol:
    value = call.inputs[0]
    if not value.batched:
        raise NoRule(f'{call.op} of an array that all calls share')
    return shaped(value.symbol, call.outputs[0])


def transpose(call: LiftedCall) -> mx.sym.Symbol:
    return call.apply(call.x, axes=(0, *call.later(call.attrs.order(call.op, call.rank))))


def swapaxes(call: LiftedCall) -> mx.sym.Symbol:
    return call.apply(call.x, dim1=call.axis('dim1'), dim2=call.axis('dim2'))


def split_v2(call: LiftedCall) -> Optional[mx.sym.Symbol]:
    axis = call.axis('axis', 1)
    ends = [0]
    for shape in call.outputs:
        ends.append(ends[-1] + (1 if call.attrs.flag('squeeze_axis') else shape[axis - 1]))
    return mx.sym.Group(
        [
            shaped(mx.sym.slice_axis(call.x, axis=axis, begin=begin, end=end), shape)
            for begin, end, shape in zip(ends, ends[1:], call.outputs)
        ]
    )


def split(call: LiftedCall) -> mx.sym.Symbol:
    return call.apply(call.x, axis=call.axis('axis', 1))


def broadcast_to(call: LiftedCall) -> Optional[mx.sym.Symbol]:
    value, shape = call.inputs[0], call.outputs[0]
    if not value.batched:
        return None
    front = (1,) * (len(shape) - len(value.shape))
    return mx.sym.broadcast_to(shaped(value.symbol, front + value.shape), shape=(0,) + shape)


def tile(call: LiftedCall) -> mx.sym.Symbol:
    value, reps = call.inputs[0], call.attrs.integers('reps')
    if sum(count > 1 for count in reps) > 2:
        raise NoRule('tile along three axes: MXNet has no gradient of four')
    rank = max(len(reps), call.rank)
    return mx.sym.tile(
        shaped(value.symbol, (1,) * (rank - call.rank) + value.shape),
        reps=(1,) * (1 + rank - len(reps)) + reps,
    )


def reverse(call: LiftedCall) -> mx.sym.Symbol:
    return call.apply(call.x, axis=call.later(call.attrs.integers('axis') or (0,)))


def dot(call: LiftedCall) -> mx.sym.Symbol:
    left, right = call.inputs
    across, along = (call.attrs.flag(key) for key in ('transpose_a', 'transpose_b'))
    if (across and len(left.shape) != 2) or (along and len(right.shape) != 2):
        raise NoRule('dot that transposes something else than a matrix')
    if left.batched and right.batched:
        a = shaped(
            left.symbol,
            left.shape if len(left.shape) == 2 else (prod(left.shape[:-1]), left.shape[-1]),
        )
        b = shaped(
            right.symbol,
            right.shape if len(right.shape) == 2 else (right.shape[0], prod(right.shape[1:])),
        )
        result = mx.sym.batch_dot(a, b, transpose_a=across, transpose_b=along)
    elif left.batched:
        a = mx.sym.swapaxes(left.symbol, dim1=1, dim2=2) if across else left.symbol
        result = (
            _layer(a, right, not along) if len(right.shape) == 2 else mx.sym.dot(a, right.symbol)
        )
    else:
        result = _shared_times(left, right, across, along)
    return shaped(result, call.outputs[0])


def _shared_times(
    left: LiftedValue, right: LiftedValue, across: bool, along: bool
) -> mx.sym.Symbol:
    """A matrix that all calls share, times a vector or matrix of each: W x is a layer without
    bias, whose weight is W."""
    if len(left.shape) != 2 or len(right.shape) > 2:
        raise NoRule('dot of a shared array that is no matrix')
    depth = left.shape[0 if across else 1]
    columns = 1 if len(right.shape) == 1 else right.shape[0 if along else 1]
    if columns == 1:
        return _layer(shaped(right.symbol, (depth,)), left, across)
    x = right.symbol if along else mx.sym.swapaxes(right.symbol, dim1=1, dim2=2)
    return mx.sym.swapaxes(_layer(x, left, across), dim1=1, dim2=2)


def _layer(x: mx.sym.Symbol, matrix: LiftedValue, turned: bool) -> mx.sym.Symbol:
    """(..., k) by a matrix (m, k) that all calls share, or by (k, m) if it is turned."""
    if turned:
        return mx.sym.dot(x, matrix.symbol)
    return mx.sym.FullyConnected(
        x, matrix.symbol, no_bias=True, flatten=False, num_hidden=matrix.shape[0]
    )


def fully_connected(call: LiftedCall) -> Optional[mx.sym.Symbol]:
    """On (n, ...) of each call, without making rows of it."""
    x, *weights = call.inputs
    if not x.batched or any(value.batched for value in weights):
        return None
    symbol = x.symbol
    if call.attrs.flag('flatten', True):
        symbol = shaped(symbol, (x.shape[0], prod(x.shape[1:])))
    return shaped(
        call.apply(symbol, *[value.symbol for value in weights], flatten=False), call.outputs[0]
    )


def l2_normalization(call: LiftedCall) -> Optional[mx.sym.Symbol]:
    """What is normalised lies on the last axes, as it does in mode 'spatial' of one axis more."""
    mode, symbol, shape = call.attrs.get('mode', 'instance'), call.x, call.outputs[0]
    if call.rank < 2 or mode == 'channel':
        return None
    if mode == 'spatial':
        symbol = shaped(symbol, (shape[0] * shape[1], *shape[2:]))
    return shaped(call.apply(symbol, mode='spatial'), shape)


def alike(call: LiftedCall) -> mx.sym.Symbol:
    """Whatever the axes are."""
    return call.apply(call.x)


def batch_dot(call: LiftedCall) -> Optional[mx.sym.Symbol]:
    if all(value.batched for value in call.inputs):
        return None
    shapes = [value.shape for value in call.inputs]
    a, b = (
        mx.sym.reshape(symbol, shape=(-1,) + shape[1:])
        for symbol, shape in zip(call.batched_inputs(), shapes)
    )
    return shaped(call.apply(a, b), call.outputs[0])


def take(call: LiftedCall) -> Optional[mx.sym.Symbol]:
    data, index = call.inputs
    axis = call.axis('axis')
    if data.batched and not index.batched:
        return call.apply(data.symbol, index.symbol, axis=axis)
    if axis != 1:
        raise NoRule('take along another axis than the first by an index of each call')
    if not data.batched:
        return call.apply(data.symbol, index.symbol)
    count = data.shape[0]
    mode = call.attrs.get('mode', 'clip')
    if mode not in ('clip', 'wrap'):
        raise NoRule(f'take(mode={mode})')
    which = mx.sym.cast(index.symbol, dtype='int32')
    which = mx.sym.clip(which, 0, count - 1) if mode == 'clip' else which % count
    # Positions are int32: the dtype of the data may not count so far.
    begin = mx.sym.contrib.arange_like(which, axis=0) * count
    which = mx.sym.broadcast_add(
        which, mx.sym.reshape(begin, shape=(-1,) + (1,) * len(index.shape))
    )
    return mx.sym.take(mx.sym.reshape(data.symbol, shape=(-1,) + data.shape[1:]), which)


def where(call: LiftedCall) -> mx.sym.Symbol:
    condition, x, y = call.batched_inputs()
    own, shape = call.inputs[0].shape, call.outputs[0]
    if own != shape:
        condition = mx.sym.broadcast_to(
            shaped(condition, own + (1,) * (len(shape) - len(own))), shape=(0,) + shape
        )
    return mx.sym.where(condition, x, y)


def sequence(call: LiftedCall) -> Optional[mx.sym.Symbol]:
    """(T, B, ...): the sequences of all calls, side by side."""
    if call.attrs.integer('axis', 0) != 0:
        return None
    symbols = call.batched_inputs()
    side = _side_by_side(symbols[0], call.inputs[0].shape)
    result = call.apply(side, *[mx.sym.reshape(each, shape=(-1,)) for each in symbols[1:]])
    if call.op == 'SequenceLast':
        return shaped(result, call.outputs[0])
    return _apart(result, call.outputs[0])


def matrices(call: LiftedCall) -> Optional[mx.sym.Symbol]:
    """Works on the last axis and on the one before, or on one that is named; on no other."""
    if any(len(value.shape) < 2 for value in call.inputs):
        return None  # some take such an array for a matrix, and have no gradient or a wrong one
    axis = call.attrs.axis('axis', call.rank)
    return vectors(call) if axis is None else vectors(call, axis=axis - call.rank)


def vectors(call: LiftedCall, **changed: Any) -> mx.sym.Symbol:
    """Works on the last axis."""
    result = call.apply(*call.batched_inputs(), **changed)
    return all_shaped(result, call.outputs)


def _side_by_side(symbol: mx.sym.Symbol, shape: Shape) -> mx.sym.Symbol:
    """(N, T, B, ...) as (T, N B, ...)."""
    return mx.sym.reshape(
        mx.sym.swapaxes(symbol, dim1=0, dim2=1), shape=(shape[0], -1) + tuple(shape[2:])
    )


def _apart(symbol: mx.sym.Symbol, shape: Shape) -> mx.sym.Symbol:
    """The reverse, for (T, B, ...) of each call."""
    return mx.sym.swapaxes(
        mx.sym.reshape(symbol, shape=(shape[0], -1) + tuple(shape[1:])), dim1=0, dim2=1
    )


def rnn(call: LiftedCall) -> mx.sym.Symbol:
    """A recurrent layer: input (T, B, C), states (L, B, H), weights that all calls share."""
    x, weights, *states = call.inputs
    if weights.batched or call.attrs.flag('use_sequence_length') or not x.batched:
        raise NoRule('RNN with weights or lengths of each call')
    like = x.symbol
    sides = [
        _side_by_side(value.symbol if value.batched else _repeated(value, like), value.shape)
        for value in (x, *states)
    ]
    result = call.apply(sides[0], weights.symbol, *sides[1:])
    if len(call.outputs) == 1:
        return _apart(result, call.outputs[0])
    return mx.sym.Group([_apart(each, shape) for each, shape in zip(result, call.outputs)])


def interleaved(call: LiftedCall) -> mx.sym.Symbol:
    """Attention of (T, B, ...) sequences; its weights are (B heads, ...)."""
    symbols = call.batched_inputs()
    side = _side_by_side(symbols[0], call.inputs[0].shape)
    if call.op.endswith('_valatt'):
        weights = mx.sym.reshape(symbols[1], shape=(-1,) + call.inputs[1].shape[1:])
        return _apart(call.apply(side, weights), call.outputs[0])
    others = [_side_by_side(symbols[1], call.inputs[1].shape)] if len(symbols) > 1 else []
    return shaped(call.apply(side, *others), call.outputs[0])


def ctc(call: LiftedCall) -> mx.sym.Symbol:
    """Scores (T, B, C), labels (B, L), and lengths (B,) perhaps."""
    scores, *others = call.batched_inputs()
    shapes = [value.shape for value in call.inputs]
    result = call.apply(
        _side_by_side(scores, shapes[0]),
        *[mx.sym.reshape(each, shape=(-1,) + shape[1:]) for each, shape in zip(others, shapes[1:])],
    )
    return shaped(result[0], call.outputs[0])


def dropout(call: LiftedCall) -> Optional[mx.sym.Symbol]:
    axes = call.attrs.integers('axes')
    if not axes:
        return None
    return call.apply(call.x, axes=call.later(axes))
