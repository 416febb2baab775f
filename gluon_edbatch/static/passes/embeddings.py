"""Gradients of `Embedding` as programs need them.

MXNet 1.9.1 refuses to compute one of the ids, which they would get if they are computed, or used as
numbers, too; and one of a table that is row_sparse, where there is an array for a dense one. (Which
gradients the user's parameters get does not depend on that: see `lookup`.)
"""
from typing import Dict, Optional, Tuple

import mxnet as mx

from ..rewrite import Entry, NodeView, Rewriter, rewrite
from ..rowwise import operators


def embeddings(symbol: mx.sym.Symbol, shapes: Dict[str, Tuple[int, ...]]) -> mx.sym.Symbol:
    """Cut ids off from autograd, and let the gradients of tables be dense."""
    return rewrite(symbol, shapes, _rule) if 'Embedding' in operators(symbol) else symbol


def _rule(rewriter: Rewriter, node: NodeView) -> Optional[Entry]:
    if node.op != 'Embedding':
        return None
    ids, table = node.inputs
    plain = rewriter.nodes[ids.node]['op'] == 'null' and node.uses[0] == 1
    if plain and node.attrs.get('sparse_grad', 'False') in ('False', '0'):
        return None
    if not plain:
        ids = rewriter.add('BlockGrad', [ids], ids.shape)
    return rewriter.add('Embedding', [ids, table], node.shape,
                        **dict(node.attrs, sparse_grad='False'))
