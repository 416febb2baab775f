"""Row rules: whether a batched input of an operator gives a batched output, row by row.

A rule returns True if axis 0 of the results runs over the batch's rows, in order, and each row
depends on the same rows of the inputs only. Few operators move that axis, or take it elsewhere. The
analysis itself checks that each row keeps a whole number of positions.
"""

from dataclasses import dataclass
from typing import Callable, Optional

from .attrs import Attrs, Shape


@dataclass(frozen=True)
class OpCall:
    """An operator and its inputs, as row rules see them."""

    op: str
    attrs: Attrs
    batched: list[bool]  # which inputs differ from call to call
    # inputs, outputs: shapes, for some number of rows
    inputs: list[Shape]
    outputs: list[Shape]


RowsRule = Callable[[OpCall], bool]
# Takes the axis that the rows have in the batched inputs, and returns theirs in the results.
MovedRows = Callable[[OpCall, int], Optional[int]]


def always(call: OpCall) -> bool:
    return True


def several_axes(call: OpCall) -> bool:
    return len(call.inputs[0]) > 1  # depends on the length of the last


def first_only(call: OpCall) -> bool:
    """Return whether the first input is batched, and the others (weights) are not."""
    return call.batched[0] and not any(call.batched[1:])


def all_batched(call: OpCall) -> bool:
    return all(call.batched) and len({shape[0] for shape in call.inputs}) == 1


def elementwise(call: OpCall) -> bool:
    """Return whether right-aligned broadcasting keeps axis 0 of every batched input in place."""
    rank, rows = len(call.outputs[0]), call.outputs[0][0]
    for batched, shape in zip(call.batched, call.inputs):
        if batched and (len(shape) != rank or shape[0] != rows):
            return False
        if not batched and len(shape) == rank and shape[0] != 1:
            return False
    return True


def other_axis(key: str, default: Optional[int]) -> RowsRule:
    """Return a rule for operators along one axis but axis 0, whose inputs are all batched."""
    return lambda call: (
        call.attrs.axis(key, len(call.inputs[0]), default) not in (None, 0) and all_batched(call)
    )


def normalised(call: OpCall) -> bool:
    return call.attrs.axis('axis', len(call.inputs[0]), -1) != 0 and first_only(call)


def softmax(call: OpCall) -> bool:
    """Return whether a softmax of values, and maybe lengths, is batched."""
    return normalised(call) or other_axis('axis', -1)(call)


def new_axis(call: OpCall) -> bool:
    """Return whether an operator that adds an axis adds another than axis 0."""
    return call.attrs.axis('axis', len(call.outputs[0]), 0) != 0 and all_batched(call)


def slice_(call: OpCall) -> bool:
    begin, end, step = (call.attrs.integers(key) or (None,) for key in ('begin', 'end', 'step'))
    return begin[0] in (None, 0) and end[0] is None and step[0] in (None, 1)


def upsampling(call: OpCall) -> bool:
    """Return whether images that are joined or added are batched; learned weights are a kernel."""
    return first_only(call) if call.attrs.get('sample_type') == 'bilinear' else all(call.batched)


def transposed(call: OpCall, axis: int) -> int:
    """Return where a transposition moves the axis of the rows."""
    return call.attrs.order(call.op, len(call.inputs[0])).index(axis)


def recurrent(call: OpCall, axis: int) -> Optional[int]:
    """Return the axis of the rows in the results of a recurrent layer over (steps, rows, ...)."""
    return 1 if axis == 1 and call.batched[0] and not call.batched[1] else None


def sliced(call: OpCall, axis: int) -> Optional[int]:
    """Return the axis of the rows after a slice along another one."""
    return None if call.attrs.axis('axis', len(call.inputs[0])) == axis else axis


def reduced(call: OpCall, axis: int) -> Optional[int]:
    """Return the axis of the rows after a reduction along others."""
    axes = call.attrs.axes(len(call.inputs[0]))
    if axis in axes:
        return None
    return axis if call.attrs.flag('keepdims') else axis - sum(each < axis for each in axes)


def merged(call: OpCall, axis: int) -> Optional[int]:
    """Return the axis of the rows after a reshape that drops a first axis of length one."""
    (before,), (after,) = call.inputs, call.outputs
    return axis - 1 if axis and before == (1, *after) else None


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
    """Return whether an operator along named axes leaves out axis 0."""
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
    """Return whether normalisation by given statistics is batched; see `Op.statistics`."""
    return call.attrs.axis('axis', len(call.inputs[0]), 1) != 0
