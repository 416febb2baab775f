"""Replace operators that are harmful in graphs of MXNet 1.9.1 (see `ops.mxnet_workarounds`)."""

from math import prod
from typing import Any

from ..errors import RecordError
from ..ops import op_of
from ..ops.attrs import Shape
from .ir import Subgraph
from .rewrite import NodeView, Rewriter, rewrite


def mended(graph: Subgraph, shapes: dict[str, Shape], trial: bool = False) -> Subgraph:
    """Return the subgraph with harmful operators replaced by equal ones.

    Parameters
    ----------
    graph : Subgraph
    shapes : dict
        Shapes of the inputs for some number of rows.
    trial : bool, default False
        Whether `shapes` are made up, because the lengths of ragged arguments differ.

    Raises
    ------
    RecordError
        If no operator can replace a harmful one.
    """

    def rule(rewriter: Rewriter, node: NodeView) -> Any:
        op = op_of(node.op)
        if op.keeps_size and not trial:
            _check_size(node)
        return None if op.workaround is None else op.workaround(rewriter, node)

    ops = map(op_of, graph.operators)
    return (
        rewrite(graph, shapes, rule) if any(op.workaround or op.keeps_size for op in ops) else graph
    )


def _check_size(node: NodeView) -> None:
    """Raise if an operator such as a reshape changes the number of elements, which MXNet allows."""
    old = node.inputs[0].shape
    if prod(old) != prod(node.shape):
        raise RecordError(
            f'{node.op} of {old} to {node.shape}, which has another number of elements'
        )
