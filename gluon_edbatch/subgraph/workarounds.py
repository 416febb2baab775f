"""MXNet workarounds: replace operators that are harmful in graphs of MXNet 1.9.1 by equal ones."""

from math import prod
from typing import Any, Optional

from gluon_edbatch_core.errors import RecordError

from ..ops.attrs import Attrs, Shape
from .ir import Subgraph
from .rewrite import NodeView, Operand, Rewriter, Rule, rewrite


def mended(graph: Subgraph, shapes: dict[str, Shape], trial: bool = False) -> Subgraph:
    """Return the subgraph with harmful operators replaced by equal ones. Raise RecordError if none
    can replace one.

    `shapes` are those of the inputs for some number of rows. In a trial they are made up, because
    the lengths of ragged arguments differ.
    """

    def rule(rewriter: Rewriter, node: NodeView) -> Any:
        if node.op == 'Reshape' and not trial:
            _check_size(node)
        return _RULES[node.op](rewriter, node) if node.op in _RULES else None

    harmful = {'Reshape', *_RULES}
    return graph if harmful.isdisjoint(graph.operators) else rewrite(graph, shapes, rule)


def _check_size(node: NodeView) -> None:
    """Raise if a reshape changes the number of elements, which MXNet allows."""
    old = node.inputs[0].shape
    if prod(old) != prod(node.shape):
        raise RecordError(
            f'{node.op} of {old} to {node.shape}, which has another number of elements'
        )


def _sequence_last(rewriter: Rewriter, node: NodeView) -> Optional[Operand]:
    """Replace SequenceLast without lengths, whose gradient is written outside the array."""
    if node.attrs.flag('use_sequence_length'):
        return None
    axis, shape = node.attrs.integer('axis', 0), node.inputs[0].shape
    kept = shape[:axis] + (1,) + shape[axis + 1 :]
    last = rewriter.add('slice_axis', node.inputs, kept, axis=axis, begin=-1, end=None)
    return rewriter.add('Reshape', [last], node.shape, shape='(-3, -2)')  # two axes, one of them 1


def _sort(rewriter: Rewriter, node: NodeView) -> Optional[list[Operand]]:
    """Replace sort without an axis, whose gradient forgets that the last axis is the default."""
    if 'axis' in node.attrs:
        return None
    return rewriter.of_others(node._replace(attrs=Attrs(node.attrs, axis='-1')), node.inputs)


def _deconvolution(rewriter: Rewriter, node: NodeView) -> Optional[list[Operand]]:
    """Replace Deconvolution, for which oneDNN reorders weights in place outside training. MXNet
    then refuses to read rows of an arena, which are a part of that memory."""
    data, weight, *bias = node.inputs
    if rewriter.is_parameter(weight):
        return None
    copy = rewriter.add('_copy', [weight], weight.shape)
    return rewriter.of_others(node, [data, copy, *bias])


_RULES: dict[str, Rule] = {
    'SequenceLast': _sequence_last,
    'Deconvolution': _deconvolution,
    **dict.fromkeys(('argsort', 'sort', 'topk'), _sort),
}
