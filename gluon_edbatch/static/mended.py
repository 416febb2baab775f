"""Operators of MXNet 1.9.1 that do harm in a graph, by others that do the same."""
from typing import Callable, Dict, List, Optional, Union

from .ir import Shape, Subgraph
from .rewrite import NodeView, Operand, Rewriter, rewrite


def mended(graph: Subgraph, shapes: Dict[str, Shape]) -> Subgraph:
    """The subgraph without such operators.

    Parameters
    ----------
    graph : Subgraph
    shapes : dict
        Of its inputs for some number of rows.
    """
    if _RULES.keys().isdisjoint(graph.operators):
        return graph
    return rewrite(graph, shapes, _rule)


def _rule(rewriter: Rewriter, node: NodeView) -> Union[Operand, List[Operand], None]:
    rule = _RULES.get(node.op)
    return None if rule is None else rule(rewriter, node)


def _sequence_last(rewriter: Rewriter, node: NodeView) -> Optional[Operand]:
    """Without lengths its gradient is written beside the array."""
    if node.attrs.flag('use_sequence_length'):
        return None
    axis = node.attrs.integer('axis', 0)
    shape = node.inputs[0].shape
    last = rewriter.add('slice_axis', node.inputs[:1], shape[:axis] + (1,) + shape[axis + 1:],
                        axis=axis, begin=-1, end=None)
    return rewriter.add('Reshape', [last], node.shape, shape='(-3, -2)')  # two axes, one of them 1


def _sort(rewriter: Rewriter, node: NodeView) -> Optional[List[Operand]]:
    """Its gradient forgets that the last axis is the default."""
    if 'axis' in node.attrs:
        return None
    operand = rewriter.add(node.op, node.inputs, node.shape, axis=-1, **node.attrs)
    return [Operand(operand.node, output, shape) for output, shape in enumerate(node.shapes)]


_RULES: Dict[str, Callable[[Rewriter, NodeView], Union[Operand, List[Operand], None]]] = {
    'SequenceLast': _sequence_last, 'sort': _sort, 'argsort': _sort, 'topk': _sort}
