"""Gradients that are added to others: what MXNet 1.9.1 does not do at the inputs of a graph.

A gradient with ``grad_req='add'`` is lost, or takes the place of the others, where these operators
read a variable directly:

- ``x + y``, if the sum is a result: the gradient is that of the result, handed through in place,
  and in a compiled graph the request is then forgotten. ``add_n(x, y)`` does it right.
- operators whose backward pass writes whatever is requested, or nothing (`amp_cast`), or fails
  (`RNN`). They read a copy; so do all that have no batching rule, of which nobody has tried.
"""

from functools import partial
from typing import Union

from ...ops import Arithmetic, op_of
from ..ir import Shape, Subgraph
from ..rewrite import NodeView, Operand, Rewriter, rewrite


def added_inputs(graph: Subgraph, shapes: dict[str, Shape]) -> Subgraph:
    """Replace these operators where they read variables; to run after passes that make some."""
    states = frozenset(graph.states)
    return rewrite(graph, shapes, partial(_rule, states))


def _rule(
    states: frozenset[str], rewriter: Rewriter, node: NodeView
) -> Union[Operand, list[Operand], None]:
    added = [_is_variable(rewriter, operand, states) for operand in node.inputs]
    if not any(added):
        return None
    op = op_of(node.op)
    if op.arithmetic is Arithmetic.SUM and op.broadcasting not in (None, node.op):
        return rewriter.instead(node, 'add_n', num_args=2)
    if op.never_adds or not op.batches:
        inputs = [
            rewriter.add('_copy', [operand], operand.shape) if is_added else operand
            for operand, is_added in zip(node.inputs, added)
        ]
        return rewriter.of_others(node, inputs)
    return None


def _is_variable(rewriter: Rewriter, operand: Operand, states: frozenset[str]) -> bool:
    node = rewriter.nodes[operand.node]
    return node.is_variable and node.name not in states
