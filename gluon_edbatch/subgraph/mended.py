"""Operators of MXNet 1.9.1 that do harm in a graph, by others that do the same (`ops.mending`)."""

from typing import Optional

import numpy as np

from ..errors import RecordError
from ..ops import op_of
from ..ops.attrs import Shape
from ..ops.mending import MendingRule
from ..ops.row_rules import OpCall
from .ir import Subgraph
from .rewrite import NodeView, Operand, Rewriter, rewrite
from .trace import is_argument


def mended(graph: Subgraph, shapes: dict[str, Shape], trial: bool = False) -> Subgraph:
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

    def rule(rewriter: Rewriter, node: NodeView) -> Optional[list[Operand]]:
        op = op_of(node.op)
        if op.keeps_size and not trial:
            _check_size(node)
        return None if op.mending is None else _mended(rewriter, node, op.mending)

    ops = map(op_of, graph.operators)
    return rewrite(graph, shapes, rule) if any(op.mending or op.keeps_size for op in ops) else graph


def _check_size(node: NodeView) -> None:
    """MXNet does not: the gradient, or the result, is then beyond the array."""
    old = node.inputs[0].shape
    if np.prod(old) != np.prod(node.shape):
        raise RecordError(
            f'{node.op} of {old} to {node.shape}, which has another number of elements'
        )


def _mended(rewriter: Rewriter, node: NodeView, rule: MendingRule) -> Optional[list[Operand]]:
    sources = [rewriter.nodes[operand.node] for operand in node.inputs]
    batched = [not source.is_variable or is_argument(source.name) for source in sources]
    inputs = [operand.shape for operand in node.inputs]
    applications = rule(OpCall(node.op, node.attrs, batched, inputs, node.shapes))
    if applications is None:
        return None
    operands = list(node.inputs)
    for op, chosen, shapes, attrs in applications:
        operands.append(rewriter.add(op, [operands[i] for i in chosen], shapes[0], **attrs))
    last = operands[-1].node
    return [Operand(last, output, shape) for output, shape in enumerate(node.shapes)]
