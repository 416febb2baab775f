"""``x + y + z`` as one ``add_n(x, y, z)``, which writes once what the sums write one by one.

Of three arrays of 256 x 150 floats, one thread: 49 µs against 89 forward, 192 against 200 with
the backward pass; of 16 rows 19 against 29, and 85 against 106.
"""

from typing import Dict, List, Optional

from ...ops import Arithmetic, op_of
from ..ir import Entry, Shape, Subgraph
from ..rewrite import NodeView, Operand, Rewriter, rewrite


def sums(graph: Subgraph, shapes: Dict[str, Shape]) -> Subgraph:
    """Replace sums of sums that nothing else reads."""
    return rewrite(graph, shapes, _Flatten())


class _Flatten:
    """The rule; knows what the sums of the new graph add up."""

    def __init__(self):
        self._terms: Dict[Entry, List[Operand]] = {}

    def __call__(self, rewriter: Rewriter, node: NodeView) -> Optional[Operand]:
        if op_of(node.op).arithmetic is not Arithmetic.SUM or any(
            operand.shape != node.shape for operand in node.inputs
        ):
            return None
        terms: List[Operand] = []
        for operand, uses in zip(node.inputs, node.uses):
            terms += self._terms.get(operand.entry, [operand]) if uses == 1 else [operand]
        self._terms[Entry(len(rewriter.nodes))] = terms  # where the sum will be, kept or replaced
        if len(terms) == len(node.inputs):
            return None
        return rewriter.add('add_n', terms, node.shape, num_args=len(terms))
