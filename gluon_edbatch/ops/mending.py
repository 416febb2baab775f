"""Rules for operators of MXNet 1.9.1 that do harm in a graph: others that do the same."""

from collections.abc import Sequence
from typing import Any, Callable, NamedTuple, Optional

from .attrs import Shape
from .row_rules import OpCall


class Application(NamedTuple):
    """An operator in the place of another, or of a part of it.

    Attributes
    ----------
    op : str
    inputs : sequence of int
        Of those of the other one; after these count the applications before, which have one output.
    shapes : list of tuple of int
        Of its outputs.
    attrs : dict
    """

    op: str
    inputs: Sequence[int]
    shapes: list[Shape]
    attrs: dict[str, Any]


MendingRule = Callable[
    [OpCall], Optional[list[Application]]
]  # the last one's outputs are the result


def sequence_last(call: OpCall) -> Optional[list[Application]]:
    """Without lengths its gradient is written beside the array."""
    if call.attrs.flag('use_sequence_length'):
        return None
    axis, shape = call.attrs.integer('axis', 0), call.inputs[0]
    last = [shape[:axis] + (1,) + shape[axis + 1 :]]
    return [
        Application('slice_axis', [0], last, {'axis': axis, 'begin': -1, 'end': None}),
        # two axes, one of them 1
        Application('Reshape', [len(call.inputs)], call.outputs, {'shape': '(-3, -2)'}),
    ]


def sort(call: OpCall) -> Optional[list[Application]]:
    """Its gradient forgets that the last axis is the default."""
    if 'axis' in call.attrs:
        return None
    return [Application(call.op, [0], call.outputs, {'axis': -1, **call.attrs})]


def deconvolution(call: OpCall) -> Optional[list[Application]]:
    """Outside training oneDNN's way of storing weights is written over the memory that they are in.
    Rows of an arena are a part of theirs, which MXNet then refuses to read."""
    if not call.batched[1]:
        return None
    count = len(call.inputs)
    return [
        Application('_copy', [1], call.inputs[1:2], {}),
        Application(call.op, [0, count, *range(2, count)], call.outputs, call.attrs),
    ]
