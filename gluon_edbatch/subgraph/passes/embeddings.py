"""Gradients of `Embedding` as programs need them.

MXNet 1.9.1 refuses to compute one of the ids, which they would get if they are computed, or used as
numbers, too; and one of a table that is row_sparse, where there is an array for a dense one. (Which
gradients the user's parameters get does not depend on that: see `lookup`.)
"""

from typing import Optional

from ..ir import Shape, Subgraph
from ..rewrite import NodeView, Operand, Rewriter, rewrite


def embeddings(graph: Subgraph, shapes: dict[str, Shape]) -> Subgraph:
    """Cut ids off from autograd, and let the gradients of tables be dense."""
    return rewrite(graph, shapes, _rule) if 'Embedding' in graph.operators else graph


def _rule(rewriter: Rewriter, node: NodeView) -> Optional[Operand]:
    if node.op != 'Embedding':
        return None
    ids, table = node.inputs
    plain = not rewriter.op_of(ids) and node.uses[0] == 1
    if plain and not node.attrs.flag('sparse_grad'):
        return None
    if not plain:
        ids = rewriter.add('BlockGrad', [ids], ids.shape)
    return rewriter.add(
        'Embedding', [ids, table], node.shape, **dict(node.attrs, sparse_grad='False')
    )
