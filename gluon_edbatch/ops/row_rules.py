"""Rules for rows: does a batched input of an operator give a batched output, row by row?

True if axis 0 of the results runs over the rows of the batch, in order, and each row of them
depends on its own rows only. That each keeps a whole number of positions is checked for all
operators alike.
"""

from dataclasses import dataclass
from typing import Callable, Optional

from .attrs import Attrs, Shape


@dataclass(frozen=True)
class OpCall:
    """An operator and what it is applied to, as rules see it."""

    op: str
    attrs: Attrs
    batched: list[bool]  # which inputs differ from call to call
    # inputs, outputs: shapes, for some number of rows
    inputs: list[Shape]
    outputs: list[Shape]


RowsRule = Callable[[OpCall], bool]


def always(call: OpCall) -> bool:
    return True


def several_axes(call: OpCall) -> bool:
    return len(call.inputs[0]) > 1  # depends on the length of the last


def first_only(call: OpCall) -> bool:
    """The first input is batched, the others (weights) are not."""
    return call.batched[0] and not any(call.batched[1:])


def all_batched(call: OpCall) -> bool:
    return all(call.batched) and len({shape[0] for shape in call.inputs}) == 1


def elementwise(call: OpCall) -> bool:
    """Right-aligned broadcasting leaves axis 0 of every batched input where it is."""
    rank, rows = len(call.outputs[0]), call.outputs[0][0]
    for batched, shape in zip(call.batched, call.inputs):
        if batched and (len(shape) != rank or shape[0] != rows):
            return False
        if not batched and len(shape) == rank and shape[0] != 1:
            return False
    return True


def other_axis(key: str, default: Optional[int]) -> RowsRule:
    """Works along one axis, which must not be axis 0; all inputs are batched."""
    return lambda call: (
        call.attrs.axis(key, len(call.inputs[0]), default) not in (None, 0) and all_batched(call)
    )


def normalised(call: OpCall) -> bool:
    return call.attrs.axis('axis', len(call.inputs[0]), -1) != 0 and first_only(call)


def softmax(call: OpCall) -> bool:
    """Of values, and perhaps their lengths."""
    return normalised(call) or other_axis('axis', -1)(call)


def reduction(call: OpCall) -> bool:
    return 0 not in call.attrs.axes(len(call.inputs[0]))


def new_axis(call: OpCall) -> bool:
    """Gives a further axis, which must not be axis 0."""
    return call.attrs.axis('axis', len(call.outputs[0]), 0) != 0 and all_batched(call)


def slice_(call: OpCall) -> bool:
    begin, end, step = (call.attrs.integers(key) or (None,) for key in ('begin', 'end', 'step'))
    return begin[0] in (None, 0) and end[0] is None and step[0] in (None, 1)


def upsampling(call: OpCall) -> bool:
    """Images of several sizes are put side by side or added; what is learnt is a kernel."""
    return first_only(call) if call.attrs.get('sample_type') == 'bilinear' else all(call.batched)


def transpose(call: OpCall) -> bool:
    return call.attrs.order(call.op, len(call.inputs[0]))[:1] == [0]


def dot(call: OpCall) -> bool:
    return first_only(call) and len(call.inputs[0]) >= 2 and not call.attrs.flag('transpose_a')


def batch_dot(call: OpCall) -> bool:
    if any(len(shape) < 3 for shape in call.inputs):
        return False
    return call.attrs.axis('axis', len(call.inputs[0]), -2) != 0 and all_batched(call)


def take(call: OpCall) -> bool:
    axis = call.attrs.integer('axis', 0)
    if call.batched == [False, True]:
        return axis == 0
    return call.batched == [True, False] and axis % len(call.inputs[0]) != 0


def same_rows(call: OpCall) -> bool:
    return all(call.batched) and call.inputs[0][0] == call.inputs[1][0]


def other_axes(call: OpCall) -> bool:
    """Works along axes that are named, of which axis 0 is none."""
    axes = call.attrs.integers('axis')  # without axes, `squeeze` of one row would lose its axis 0
    return bool(axes) and 0 not in {axis % len(call.inputs[0]) for axis in axes}


def dropout(call: OpCall) -> bool:
    return 0 not in (call.attrs.integers('axes'))  # else all rows would share one mask


def sequence(call: OpCall) -> bool:
    return call.attrs.integer('axis', 0) == 1 and all(call.batched)


def broadcast_to(call: OpCall) -> bool:
    shape = call.attrs.integers('shape')
    return bool(shape) and len(shape) == len(call.inputs[0]) and shape[0] == 0


def batch_norm(call: OpCall) -> bool:
    """With statistics that are given; those of a batch are refused before
    (`Op.statistics`)."""
    return call.attrs.axis('axis', len(call.inputs[0]), 1) != 0
