"""vmap rules: apply an operator with an extra batch axis in front of all others.

A rule returns None if the operator may keep rows independent, as rows of all values are rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Any, Callable, Optional

import mxnet as mx

from ..mx.symbols import symbol_function
from .attrs import Attrs, Shape


class NoRule(Exception):
    """An operator has no vmap rule; the message names it."""


@dataclass(frozen=True)
class LiftedCall:
    """An operator and its inputs, with shapes as the user sees them."""

    op: str
    attrs: Attrs
    batched: list[bool]  # which inputs differ from call to call
    inputs: list[Shape]
    outputs: list[Shape]
    symbols: list[mx.sym.Symbol]  # the inputs: (N, *shape) if batched, else (*shape)

    @property
    def x(self) -> mx.sym.Symbol:
        """The first input."""
        return self.symbols[0]

    @property
    def rank(self) -> int:
        """Number of axes of the first input, without the batch's."""
        return len(self.inputs[0])

    def axis(self, key: str, default: Optional[int] = 0) -> int:
        """Return the axis of the first input that an attribute names, counted with the batch's."""
        return self.attrs.axis(key, self.rank, default) + 1

    def later(self, axes: Sequence[int]) -> tuple[int, ...]:
        """Return axes of the first input, counted with the batch's."""
        return tuple(axis % self.rank + 1 for axis in axes)

    def apply(self, *symbols: mx.sym.Symbol, **changed: Any) -> mx.sym.Symbol:
        """Apply the operator, with some attributes changed, to other symbols."""
        return symbol_function(self.op)(*symbols, **{**self.attrs, **changed})

    def repeated(self, position: int) -> mx.sym.Symbol:
        """Return an input with the batch axis in front; one that all calls share is repeated."""
        symbol = self.symbols[position]
        if self.batched[position]:
            return symbol
        like = self.symbols[self.batched.index(True)]
        one = mx.sym.expand_dims(symbol, axis=0)
        return mx.sym.broadcast_like(one, like, lhs_axes=(0,), rhs_axes=(0,))

    def batched_inputs(self) -> list[mx.sym.Symbol]:
        """Return all inputs with the batch axis in front."""
        return [self.repeated(position) for position in range(len(self.symbols))]


WholeRule = Callable[[LiftedCall], Optional[mx.sym.Symbol]]


def shaped(symbol: mx.sym.Symbol, shape: Shape) -> mx.sym.Symbol:
    """Reshape a symbol to (N, *shape)."""
    return mx.sym.reshape(symbol, shape=(-1,) + tuple(shape))


def all_shaped(results: mx.sym.Symbol, shapes: Sequence[Shape]) -> mx.sym.Symbol:
    """Reshape each result of an operator to (N, *shape)."""
    if len(shapes) == 1:
        return shaped(results, shapes[0])
    return mx.sym.Group([shaped(result, shape) for result, shape in zip(results, shapes)])


def as_rows(symbol: mx.sym.Symbol, shape: Shape) -> mx.sym.Symbol:
    """Reshape (N, n, ...) to (N n, ...), where `shape` is (n, ...): the rows of all values."""
    return shaped(symbol, shape[1:])


def _of_rank(symbol: mx.sym.Symbol, shape: Shape, rank: int) -> mx.sym.Symbol:
    """Reshape (N, *shape) to `rank` axes per value, by axes of length one behind the batch's."""
    return shaped(symbol, (1,) * (rank - len(shape)) + shape) if len(shape) < rank else symbol


# --- rules ---------------------------------------------------------------------------------------


def later(key: str, default: Optional[int]) -> WholeRule:
    """Return a rule for operators along one axis, counted from the first input's."""

    def rule(call: LiftedCall) -> Optional[mx.sym.Symbol]:
        if call.attrs.integer(key, default) is None:
            return None
        return call.apply(*call.batched_inputs(), **{key: call.axis(key, default)})

    return rule


def along_first(call: LiftedCall) -> Optional[mx.sym.Symbol]:
    """Apply an operator along one axis of the first input; the others are weights."""
    if any(call.batched[1:]):
        return None
    return call.apply(*call.symbols, axis=call.axis('axis', -1))


def or_all(default: Optional[int]) -> WholeRule:
    """Return a rule for operators along one axis of the only input, or along all as one."""

    def rule(call: LiftedCall) -> mx.sym.Symbol:
        if call.attrs.integer('axis', default) is None:
            result = call.apply(mx.sym.reshape(call.x, shape=(0, -1)), axis=1)
        else:
            result = call.apply(call.x, axis=call.axis('axis', default))
        return all_shaped(result, call.outputs)

    return rule


def elementwise(broadcasting: str) -> WholeRule:
    """Return a rule for right-aligned broadcasting behind the batch axis; `broadcasting` names the
    operator for inputs that calls share."""

    def rule(call: LiftedCall) -> mx.sym.Symbol:
        aligned = _aligned(call)
        return (call.apply if all(call.batched) else getattr(mx.sym, broadcasting))(*aligned)

    return rule


def broadcasting(call: LiftedCall) -> mx.sym.Symbol:
    """Apply an elementwise operator that broadcasts by itself."""
    return call.apply(*_aligned(call))


def _aligned(call: LiftedCall) -> list[mx.sym.Symbol]:
    rank = len(call.outputs[0])
    return [
        _of_rank(symbol, shape, rank) if batched else symbol
        for symbol, shape, batched in zip(call.symbols, call.inputs, call.batched)
    ]


def add_n(call: LiftedCall) -> mx.sym.Symbol:
    """Add the inputs one by one, as calls may share some."""
    return reduce(mx.sym.broadcast_add, _aligned(call))


def reduction(call: LiftedCall) -> mx.sym.Symbol:
    axes, symbol = call.attrs.axes(call.rank), call.x
    if len(axes) == call.rank:
        symbol, axes = mx.sym.reshape(symbol, shape=(0, -1)), {0}
    attrs = {'axis': tuple(sorted(axis + 1 for axis in axes)), 'keepdims': False}
    if 'exclude' in call.attrs:
        attrs['exclude'] = False
    return shaped(call.apply(symbol, **attrs), call.outputs[0])


def stack(call: LiftedCall) -> mx.sym.Symbol:
    axis = call.attrs.integer('axis', 0) % len(call.outputs[0])
    return call.apply(*call.batched_inputs(), axis=axis + 1)


def slice_(call: LiftedCall) -> mx.sym.Symbol:
    given = [key for key in ('begin', 'end', 'step') if key in call.attrs]
    return call.apply(call.x, **{key: (None,) + call.attrs.integers(key) for key in given})


def slice_like(call: LiftedCall) -> Optional[mx.sym.Symbol]:
    if not call.batched[0]:
        return None
    shape = call.outputs[0]
    return mx.sym.slice(call.x, begin=(None,) * (len(shape) + 1), end=(None,) + shape)


def reshaped(call: LiftedCall) -> mx.sym.Symbol:
    if not call.batched[0]:
        raise NoRule(f'{call.op} of an array that all calls share')
    return shaped(call.x, call.outputs[0])


def transpose(call: LiftedCall) -> mx.sym.Symbol:
    order = call.later(call.attrs.order(call.op, call.rank))
    return mx.sym.transpose(call.x, axes=(0, *order))


def broadcast_to(call: LiftedCall) -> Optional[mx.sym.Symbol]:
    if not call.batched[0]:
        return None
    shape = call.outputs[0]
    return mx.sym.broadcast_to(_of_rank(call.x, call.inputs[0], len(shape)), shape=(0,) + shape)


def tile(call: LiftedCall) -> mx.sym.Symbol:
    reps = call.attrs.integers('reps')
    if sum(count > 1 for count in reps) > 2:
        raise NoRule('tile along three axes: MXNet has no gradient of four')
    rank = max(len(reps), call.rank)
    x = _of_rank(call.x, call.inputs[0], rank)
    return mx.sym.tile(x, reps=(1,) * (1 + rank - len(reps)) + reps)


def reverse(call: LiftedCall) -> mx.sym.Symbol:
    return call.apply(call.x, axis=call.later(call.attrs.integers('axis') or (0,)))


def dot(call: LiftedCall) -> mx.sym.Symbol:
    (a, b), (left, right) = call.symbols, call.inputs
    across, along = (call.attrs.flag(key) for key in ('transpose_a', 'transpose_b'))
    if (across and len(left) != 2) or (along and len(right) != 2):
        raise NoRule('dot that transposes something else than a matrix')
    if all(call.batched):
        if len(left) == len(right) == 2:  # of any size
            return mx.sym.batch_dot(a, b, transpose_a=across, transpose_b=along)
        a = shaped(a, left if across else (prod(left[:-1]), left[-1]))
        b = shaped(b, right if along else (right[0], prod(right[1:])))
        result = mx.sym.batch_dot(a, b, transpose_a=across, transpose_b=along)
    elif call.batched[0]:
        a = mx.sym.swapaxes(a, dim1=1, dim2=2) if across else a
        result = _layer(a, b, right, not along) if len(right) == 2 else mx.sym.dot(a, b)
    elif len(left) != 2 or len(right) > 2:
        raise NoRule('dot of a shared array that is no matrix')
    else:  # W x of a W that all calls share is a layer without bias, whose weight is W
        depth = left[0 if across else 1]
        if prod(right) == depth:
            result = _layer(shaped(b, (depth,)), a, left, across)
        else:
            x = b if along else mx.sym.swapaxes(b, dim1=1, dim2=2)
            result = mx.sym.swapaxes(_layer(x, a, left, across), dim1=1, dim2=2)
    return shaped(result, call.outputs[0])


def _layer(x: mx.sym.Symbol, matrix: mx.sym.Symbol, shape: Shape, turned: bool) -> mx.sym.Symbol:
    """Multiply (..., k) by a matrix (m, k) that all calls share, or by (k, m) if `turned`."""
    if turned:
        return mx.sym.dot(x, matrix)
    return mx.sym.FullyConnected(x, matrix, no_bias=True, flatten=False, num_hidden=shape[0])


def fully_connected(call: LiftedCall) -> Optional[mx.sym.Symbol]:
    """Apply a layer to (n, ...) of each call, without reshaping to rows."""
    if call.batched != [True] + [False] * (len(call.batched) - 1):
        return None
    (x, *weights), shape = call.symbols, call.inputs[0]
    if call.attrs.flag('flatten', True):
        x = shaped(x, (shape[0], prod(shape[1:])))
    return shaped(call.apply(x, *weights, flatten=False), call.outputs[0])


def l2_normalization(call: LiftedCall) -> Optional[mx.sym.Symbol]:
    """Normalise the last axes, as mode 'spatial' does with one axis more."""
    mode, symbol, shape = call.attrs.get('mode', 'instance'), call.x, call.outputs[0]
    if call.rank < 2 or mode == 'channel':
        return None
    if mode == 'spatial':
        symbol = shaped(symbol, (shape[0] * shape[1], *shape[2:]))
    return shaped(call.apply(symbol, mode='spatial'), shape)


def alike(call: LiftedCall) -> mx.sym.Symbol:
    """Apply an operator that works with any axes."""
    return call.apply(call.x)


def batch_dot(call: LiftedCall) -> Optional[mx.sym.Symbol]:
    if all(call.batched):
        return None
    return shaped(call.apply(*map(as_rows, call.batched_inputs(), call.inputs)), call.outputs[0])


def take(call: LiftedCall) -> Optional[mx.sym.Symbol]:
    data, index = call.symbols
    axis = call.axis('axis')
    if call.batched == [True, False]:
        return call.apply(data, index, axis=axis)
    if axis != 1:
        raise NoRule('take along another axis than the first by an index of each call')
    if not call.batched[0]:
        return call.apply(data, index)
    count = call.inputs[0][0]
    mode = call.attrs.get('mode', 'clip')
    if mode not in ('clip', 'wrap'):
        raise NoRule(f'take(mode={mode})')
    which = mx.sym.cast(index, dtype='int32')
    which = mx.sym.clip(which, 0, count - 1) if mode == 'clip' else which % count
    # Positions are int32: the dtype of the data may not count so far.
    begin = mx.sym.contrib.arange_like(which, axis=0) * count
    which = mx.sym.broadcast_add(which, shaped(begin, (1,) * len(call.inputs[1])))
    return mx.sym.take(as_rows(data, call.inputs[0]), which)


def where(call: LiftedCall) -> mx.sym.Symbol:
    condition, x, y = call.batched_inputs()
    own, shape = call.inputs[0], call.outputs[0]
    if own != shape:
        condition = shaped(condition, own + (1,) * (len(shape) - len(own)))
        condition = mx.sym.broadcast_to(condition, shape=(0,) + shape)
    return mx.sym.where(condition, x, y)


def matrices(call: LiftedCall) -> Optional[mx.sym.Symbol]:
    """Apply an operator that works on the last two axes, or on a named one, only."""
    if any(len(shape) < 2 for shape in call.inputs):
        return None  # some take such an array for a matrix, and have no gradient or a wrong one
    axis = call.attrs.axis('axis', call.rank)
    return vectors(call) if axis is None else vectors(call, axis=axis - call.rank)


def vectors(call: LiftedCall, **changed: Any) -> mx.sym.Symbol:
    """Apply an operator that works on the last axis."""
    return all_shaped(call.apply(*call.batched_inputs(), **changed), call.outputs)


def dropout(call: LiftedCall) -> Optional[mx.sym.Symbol]:
    axes = call.attrs.integers('axes')
    return call.apply(call.x, axes=call.later(axes)) if axes else None


# --- sequences: (T, B, ...) of all calls, side by side -------------------------------------------


def side_by_side(symbol: mx.sym.Symbol, shape: Shape) -> mx.sym.Symbol:
    """Rearrange (N, T, B, ...) to (T, N B, ...)."""
    turned = mx.sym.swapaxes(symbol, dim1=0, dim2=1)
    return mx.sym.reshape(turned, shape=(shape[0], -1, *shape[2:]))


def apart(symbol: mx.sym.Symbol, shape: Shape) -> mx.sym.Symbol:
    """Rearrange (T, N B, ...) back to (N, T, B, ...); `shape` is (T, B, ...) of each call."""
    split = mx.sym.reshape(symbol, shape=(shape[0], -1, *shape[1:]))
    return mx.sym.swapaxes(split, dim1=0, dim2=1)


def sequence(call: LiftedCall) -> Optional[mx.sym.Symbol]:
    """Apply an operator to sequences, and maybe their lengths."""
    if call.attrs.integer('axis', 0) != 0:
        return None
    x, *lengths = call.batched_inputs()
    lengths = [mx.sym.reshape(each, shape=(-1,)) for each in lengths]
    result = call.apply(side_by_side(x, call.inputs[0]), *lengths)
    return (shaped if call.op == 'SequenceLast' else apart)(result, call.outputs[0])


def rnn(call: LiftedCall) -> mx.sym.Symbol:
    """Apply a recurrent layer: input (T, B, C), weights that all calls share, states (L, B, H)."""
    if not call.batched[0] or call.batched[1] or call.attrs.flag('use_sequence_length'):
        raise NoRule('RNN with weights or lengths of each call')
    x, _, *states = call.batched_inputs()
    x, *states = map(side_by_side, (x, *states), (call.inputs[0], *call.inputs[2:]))
    result = call.apply(x, call.symbols[1], *states)
    results = [result] if len(call.outputs) == 1 else result
    return mx.sym.Group([apart(each, shape) for each, shape in zip(results, call.outputs)])


def interleaved(call: LiftedCall) -> mx.sym.Symbol:
    """Apply attention of sequences, whose weights are (B heads, ...)."""
    x, *others = call.batched_inputs()
    weighs = call.op.endswith('_valatt')
    beside = map(as_rows if weighs else side_by_side, others, call.inputs[1:])
    result = call.apply(side_by_side(x, call.inputs[0]), *beside)
    return (apart if weighs else shaped)(result, call.outputs[0])


def ctc(call: LiftedCall) -> mx.sym.Symbol:
    """Apply CTC loss: scores (T, B, C), labels (B, L), and maybe lengths (B,)."""
    scores, *others = call.batched_inputs()
    rows = map(as_rows, others, call.inputs[1:])
    return shaped(call.apply(side_by_side(scores, call.inputs[0]), *rows)[0], call.outputs[0])
