"""Lower ragged values whose axes the graph arranges channels first, (N, C, K), as convolutions do.

Values stay where they are, a row of C columns each. A convolution along K is a product: a window of
rows is laid side by side (`Opcode.WINDOW`), and multiplied by the weight.
"""

import math
from typing import Callable, Optional

from .attrs import Shape
from .instructions import Opcode
from .lowering_context import ORDERS, Arrangement, LoweredCall, Unsupported, Value

Rule = Callable[[LoweredCall], None]


def as_rows(rule: Rule) -> Rule:
    """Return the rule for an operator on single numbers, or on rows, by its rule for rows."""

    def of_others(call: LoweredCall) -> None:
        inputs = [value for value in call.inputs if value.parameter < 0]
        arrangement = inputs[0].arrangement
        if any(value.arrangement is not arrangement for value in inputs) or (
            len({value.tail for value in inputs}) > 1
        ):
            raise Unsupported(f'has {call.op} of values that are arranged differently')
        order = ORDERS[arrangement]
        shapes: list[Shape] = [tuple([shape[axis] for axis in order]) for shape in call.node.shapes]
        rows = [value._replace(arrangement=Arrangement.ROWS) for value in call.inputs]
        rule(call._replace(node=call.node._replace(shapes=shapes), inputs=rows))
        made = call.low.values[call.node.index, 0]
        call.give(made._replace(arrangement=arrangement, tail=inputs[0].tail))

    return of_others


def convolution(call: LoweredCall) -> None:
    """Lower a convolution that moves by one position, and gives as many values or fewer."""
    (x, *weights), low, attrs = call.inputs, call.low, call.attrs
    (size,) = attrs.integers('kernel')
    (step,), (before,) = attrs.integers('dilate') or (1,), attrs.integers('pad') or (0,)
    fewer = step * (size - 1) - 2 * before
    if (
        attrs.integers('stride') not in ((), (1,))
        or attrs.integer('num_group', 1) != 1
        or (x.tail and before)  # which would see values that are none
        or fewer < 0
    ):
        raise Unsupported('has a convolution that is no product of rows')
    view = x.view
    if size > 1:
        view = low.new(size * x.shape[0], True)
        low.emit(Opcode.WINDOW, view, x.view, numbers=(size, step, before))
    out = low.new(call.shape[1], True)
    low.emit(
        Opcode.PRODUCT,
        out,
        view,
        parameter=low.parameter(weights[0]),
        bias=low.parameter(weights[1]) if len(weights) > 1 else -1,
        numbers=(0, 1, 0),
    )
    given = Value(call.shape[1:2], out, True, arrangement=Arrangement.CHANNELS)
    call.give(given._replace(tail=x.tail + fewer))


def pooling(call: LoweredCall) -> None:
    """Lower the largest value, or the sum, of all positions."""
    kind = call.attrs.get('pool_type', 'max')
    if not call.attrs.flag('global_pool') or kind not in ('max', 'sum'):
        raise Unsupported('has Pooling of some positions')
    reduce_values(call, *(GREATEST if kind == 'max' else SUM))


# Reductions over values: the instruction, its number, and the number that the reduction ignores.
SUM = Opcode.SEGMENT_SUM, 0, 0.0
MEAN = Opcode.SEGMENT_SUM, 1, None
GREATEST = Opcode.SEGMENT_EXTREME, 0, -math.inf
LEAST = Opcode.SEGMENT_EXTREME, 1, math.inf
_AXIS = {Arrangement.ROWS: 1, Arrangement.CHANNELS: 2, Arrangement.STEPS: 0}  # of the values


def is_over_values(call: LoweredCall) -> bool:
    """Return whether a reduction is over all values of each row."""
    x = call.x
    return x.ragged and call.attrs.axes(len(x.shape) + x.lead) == {_AXIS.get(x.arrangement)}


def reduce_values(call: LoweredCall, op: Opcode, number: int, other: Optional[float]) -> None:
    """Append a reduction over all values of each row, which ignores the number `other`."""
    x, low = call.x, call.low
    if x.arrangement is Arrangement.STEPS and call.attrs.flag('keepdims'):
        raise Unsupported(f'has {call.op} that keeps the axis of steps')
    view = x.view
    if x.tail:
        if other is None:
            raise Unsupported(f'has {call.op} of fewer values')
        view = low.new(x.view.width, True)
        low.emit(Opcode.SEGMENT_MASK, view, x.view, numbers=(x.tail,), reals=(other,))
    low.emit(op, call.out(False), view, numbers=(number,))
