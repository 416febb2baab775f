"""What is computed twice from the same inputs is computed once."""

from typing import Dict, List, Optional

from ...ops import op_of
from ..ir import Shape, Subgraph
from ..rewrite import NodeView, Operand, Rewriter, rewrite


def common_subexpressions(graph: Subgraph, shapes: Dict[str, Shape]) -> Subgraph:
    """Merge operators that agree in name, attributes and inputs."""
    return rewrite(graph, shapes, _Merge())


class _Merge:
    """The rule; knows the nodes so far."""

    def __init__(self):
        self._seen: Dict[tuple, int] = {}

    def __call__(self, rewriter: Rewriter, node: NodeView) -> Optional[List[Operand]]:
        op = op_of(node.op)
        if op.rows is None or op.noise is not None or op.statistics is not None:
            return None  # two calls differ, or write statistics
        key = (
            node.op,
            frozenset(node.attrs.items()),
            tuple([operand.entry for operand in node.inputs]),
        )
        first = self._seen.setdefault(key, len(rewriter.nodes))
        if first == len(rewriter.nodes):  # where the node will be
            return None
        return [Operand(first, output, shape) for output, shape in enumerate(node.shapes)]
