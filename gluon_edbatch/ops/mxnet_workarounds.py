"""MXNet workarounds: replace operators that are harmful in graphs of MXNet 1.9.1 by equal ones.

A rule takes a `subgraph.rewrite.Rewriter` and a `NodeView`, and returns a replacement for
`rewrite`.
"""

from typing import Any, Callable

from .attrs import Attrs

WorkaroundRule = Callable[[Any, Any], Any]


def sequence_last(rewriter: Any, node: Any) -> Any:
    """Replace SequenceLast without lengths, whose gradient is written outside the array."""
    if node.attrs.flag('use_sequence_length'):
        return None
    axis, shape = node.attrs.integer('axis', 0), node.inputs[0].shape
    kept = shape[:axis] + (1,) + shape[axis + 1 :]
    last = rewriter.add('slice_axis', node.inputs, kept, axis=axis, begin=-1, end=None)
    return rewriter.add('Reshape', [last], node.shape, shape='(-3, -2)')  # two axes, one of them 1


def sort(rewriter: Any, node: Any) -> Any:
    """Replace sort without an axis, whose gradient forgets that the last axis is the default."""
    if 'axis' in node.attrs:
        return None
    return rewriter.of_others(node._replace(attrs=Attrs(node.attrs, axis='-1')), node.inputs)


def deconvolution(rewriter: Any, node: Any) -> Any:
    """Replace Deconvolution, for which oneDNN reorders weights in place outside training. MXNet
    then refuses to read rows of an arena, which are a part of that memory."""
    data, weight, *bias = node.inputs
    if rewriter.is_parameter(weight):
        return None
    copy = rewriter.add('_copy', [weight], weight.shape)
    return rewriter.of_others(node, [data, copy, *bias])
