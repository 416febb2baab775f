"""``x + y`` as ``add_n(x, y)`` where a term is an input of the graph.

MXNet 1.9.1 loses the input's gradient otherwise: if the sum is a result, the gradient is that of
the result, handed through in place, and in a compiled graph ``grad_req='add'`` is then forgotten.
"""
from typing import Dict, Optional, Tuple

import mxnet as mx

from ..rewrite import Entry, NodeView, Rewriter, rewrite

_ADDITIONS = frozenset('elemwise_add _plus _add _grad_add'.split())


def added_inputs(symbol: mx.sym.Symbol, shapes: Dict[str, Tuple[int, ...]]) -> mx.sym.Symbol:
    """Replace additions of variables; to run after passes that make some."""
    return rewrite(symbol, shapes, _rule)


def _rule(rewriter: Rewriter, node: NodeView) -> Optional[Entry]:
    if node.op in _ADDITIONS and any(rewriter.nodes[entry.node]['op'] == 'null'
                                     for entry in node.inputs):
        return rewriter.add('add_n', node.inputs, node.shape, num_args=2)
    return None
