"""Attention fusion: lower ragged values that the graph arranges by heads, as attention does.

Queries, keys and values stay where products leave them. Transpositions and reshapes of the graph
are noted (`Arrangement`). The products of queries and keys, their softmax and the weighted sums
become one instruction. An operator without a rule is not lowered.
"""

import math
from typing import Callable

from .instructions import AFFINE, Opcode, View
from .lowering_context import Arrangement, LoweredCall, Scores, Unsupported, Value, width_of

Rule = Callable[[LoweredCall], None]


def by_heads(rule: Rule) -> dict[Arrangement, Rule]:
    """Return a rule for all arrangements of attention."""
    return dict.fromkeys((Arrangement.POSITIONS, Arrangement.HEADS, Arrangement.MERGED), rule)


def positions(call: LoweredCall) -> None:
    """Lower ``arange_like`` along the axis of the values: positions."""
    attrs = call.attrs
    if (
        not call.x.ragged
        or attrs.axis('axis', len(call.x.shape) + 2, None) != 1
        or attrs.integer('repeat', 1) != 1
        or (attrs.number('start', 0), attrs.number('step', 1)) != (0, 1)
    ):
        raise Unsupported(f'has {call.op}')
    view = call.low.new(1, True)
    call.low.emit(Opcode.POSITIONS, view)
    call.give(Value((), view, True, arrangement=Arrangement.POSITIONS))


def look_up(call: LoweredCall) -> None:
    """Lower a look-up of positions in a table."""
    index, table = call.inputs
    if index.arrangement is not Arrangement.POSITIONS or index.shape:
        raise Unsupported(f'has {call.op} by heads')
    parameter = call.low.parameter(table)
    width = width_of(table.shape[1:])
    view = call.low.new(width, True)
    numbers = table.shape[0], width
    call.low.emit(Opcode.LOOKUP, view, index.view, parameter=parameter, numbers=numbers)
    call.give(index._replace(shape=table.shape[1:], view=view))


def reshape(call: LoweredCall) -> None:
    """Lower a reshape that joins or splits the axes of rows and heads, or adds rows to
    positions."""
    (x,) = call.inputs
    rows, values = call.low.batch_shape
    if x.arrangement is Arrangement.POSITIONS:
        if call.shape != (1, values, *x.shape):
            raise Unsupported(f'has {call.op} of positions')
        call.give(x._replace(arrangement=Arrangement.ROWS))
        return
    heads, columns = (x.shape[0], values) if x.scores else x.shape
    shapes = {
        (rows * heads, values, columns): Arrangement.MERGED,
        (rows, heads, values, columns): Arrangement.HEADS,
    }
    if call.shape not in shapes:
        raise Unsupported(f'has {call.op} by heads')
    call.give(x._replace(arrangement=shapes[call.shape]))


def dropout(call: LoweredCall) -> None:
    """Lower Dropout of weights, which attention drops, or where it is off; raise otherwise."""
    (x,) = call.inputs
    if not call.dropped:
        same(call)
    elif x.scores is None or not x.scores.weights or x.scores.dropped:
        raise Unsupported('has Dropout by heads')
    else:
        call.give(x._replace(scores=x.scores._replace(dropped=call.dropped)))


def same(call: LoweredCall) -> None:
    """Lower an operator that computes nothing."""
    call.give(call.inputs[0])


def stop_gradient(call: LoweredCall) -> None:
    """Lower BlockGrad of positions, which have no gradient."""
    if call.inputs[0].arrangement is not Arrangement.POSITIONS or call.inputs[0].shape:
        raise Unsupported(f'has {call.op} by heads')
    same(call)


def scaled(factor: Callable[[LoweredCall], float]) -> Callable[[LoweredCall], None]:
    """Return a rule for a product of scores or rows with a number."""

    def rule(call: LoweredCall) -> None:
        (x,) = call.inputs
        if x.arrangement is Arrangement.POSITIONS:
            raise Unsupported(f'has {call.op} of positions')
        if x.scores is not None:
            if x.scores.weights:
                raise Unsupported(f'has {call.op} of weights')
            scale = x.scores.scale * factor(call)
            call.give(x._replace(scores=x.scores._replace(scale=scale)))
            return
        view = call.low.new(x.view.width, True)
        reals = factor(call), -0.0
        call.low.emit(Opcode.UNARY, view, x.view, numbers=(AFFINE.number,), reals=reals)
        call.give(x._replace(view=view))

    return rule


def by_root_of_columns(call: LoweredCall) -> float:
    """Return 1 / sqrt(columns of a head)."""
    if call.inputs[0].scores is not None:
        raise Unsupported(f'has {call.op} of scores')
    return 1.0 / math.sqrt(call.shape[-1])


def softmax(call: LoweredCall) -> None:
    """Lower a softmax of scores, which become weights."""
    x = call.inputs[0]
    if (
        len(call.inputs) > 1
        or x.scores is None
        or x.scores.weights
        or call.attrs.axis('axis', call.rank, -1) != call.rank - 1
        or call.attrs.get('temperature', 'None') != 'None'
    ):
        raise Unsupported(f'has {call.op} by heads')
    call.give(x._replace(scores=x.scores._replace(weights=True)))


def batch_dot(call: LoweredCall) -> None:
    """Lower the product of queries and keys, or of weights and values, for one or several heads."""
    a, b = map(_merged, call.inputs)
    turned = call.attrs.flag('transpose_a'), call.attrs.flag('transpose_b')
    if any(each.arrangement is not Arrangement.MERGED for each in (a, b)) or b.scores is not None:
        raise Unsupported(f'has {call.op} by heads')
    if a.scores is None and turned == (False, True) and a.shape == b.shape:
        call.give(a._replace(view=None, scores=Scores(a.view, b.view)))
    elif a.scores is not None and a.scores.weights and not any(turned) and a.shape[0] == b.shape[0]:
        call.give(call.inputs[1]._replace(view=_attention(call, a.shape[0], a.scores, b.view)))
    else:
        raise Unsupported(f'has {call.op} by heads')


def _merged(x: Value) -> Value:
    if x.arrangement is not Arrangement.ROWS or not x.ragged or len(x.shape) != 1:
        return x
    return x._replace(shape=(1, *x.shape), arrangement=Arrangement.MERGED)


def _attention(call: LoweredCall, heads: int, scores: Scores, values: View) -> View:
    view = call.low.new(values.width, True)
    call.low.emit(
        Opcode.ATTENTION,
        view,
        scores.queries,
        scores.keys,
        numbers=(heads, *values),
        reals=(scores.scale, scores.dropped),
    )
    return view
