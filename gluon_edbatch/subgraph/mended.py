"""Operators of MXNet 1.9.1 that do harm in a graph, by others that do the same."""

from typing import Callable, Dict, List, Optional, Union

import numpy as np

from ..errors import RecordError
from ..ops.attrs import Shape
from .ir import Subgraph
from .rewrite import NodeView, Operand, Rewriter, rewrite
from .trace import is_argument


def mended(graph: Subgraph, shapes: Dict[str, Shape], trial: bool = False) -> Subgraph:
    """The subgraph without such operators.

    Parameters
    ----------
    graph : Subgraph
    shapes : dict
        Of its inputs for some number of rows.
    trial : bool, default False
        Whether these are not shapes of a call, because the lengths of ragged arguments differ.

    Raises
    ------
    RecordError
        If no other operator does the same without harm.
    """
    rules = _RULES if trial else {**_RULES, **_RULES_OF_CALLS}
    if rules.keys().isdisjoint(graph.operators):
        return graph

    def rule(rewriter: Rewriter, node: NodeView) -> Union[Operand, List[Operand], None]:
        own = rules.get(node.op)
        return None if own is None else own(rewriter, node)

    return rewrite(graph, shapes, rule)


def _sequence_last(rewriter: Rewriter, node: NodeView) -> Optional[Operand]:
    """Without lengths its gradient is written beside the array."""
    if node.attrs.flag('use_sequence_length'):
        return None
    axis = node.attrs.integer('axis', 0)
    shape = node.inputs[0].shape
    last = rewriter.add(
        'slice_axis',
        node.inputs[:1],
        shape[:axis] + (1,) + shape[axis + 1 :],
        axis=axis,
        begin=-1,
        end=None,
    )
    return rewriter.add('Reshape', [last], node.shape, shape='(-3, -2)')  # two axes, one of them 1


def _sort(rewriter: Rewriter, node: NodeView) -> Optional[List[Operand]]:
    """Its gradient forgets that the last axis is the default."""
    if 'axis' in node.attrs:
        return None
    operand = rewriter.add(node.op, node.inputs, node.shape, axis=-1, **node.attrs)
    return [Operand(operand.node, output, shape) for output, shape in enumerate(node.shapes)]


def _deconvolution(rewriter: Rewriter, node: NodeView) -> Optional[Operand]:
    """Outside training oneDNN's way of storing weights is written over the memory that they are in.
    Rows of an arena are a part of theirs, which MXNet then refuses to read."""
    weight = rewriter.nodes[node.inputs[1].node]
    if weight.is_variable and not is_argument(weight.name):
        return None
    own = rewriter.add('_copy', [node.inputs[1]], node.inputs[1].shape)
    return rewriter.add(node.op, [node.inputs[0], own, *node.inputs[2:]], node.shape, **node.attrs)


def _reshape(_: Rewriter, node: NodeView) -> None:
    """MXNet does not compare the numbers of elements: the gradient, or the result, is then beyond
    the array."""
    old = node.inputs[0].shape
    if np.prod(old) != np.prod(node.shape):
        raise RecordError(f'Reshape of {old} to {node.shape}, which has another number of elements')


_Rule = Callable[[Rewriter, NodeView], Union[Operand, List[Operand], None]]
_RULES: Dict[str, _Rule] = {
    'SequenceLast': _sequence_last,
    'sort': _sort,
    'argsort': _sort,
    'topk': _sort,
    'Deconvolution': _deconvolution,
}
_RULES_OF_CALLS: Dict[str, _Rule] = {'Reshape': _reshape}
