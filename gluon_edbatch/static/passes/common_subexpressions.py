"""What is computed twice from the same inputs is computed once."""
import json
from typing import Dict, List, Optional, Tuple

import mxnet as mx

from ..rewrite import Entry, NodeView, Rewriter, rewrite
from ..noise import may_draw
from ..rowwise import RULES

# Operators of which two calls with the same inputs differ. None updates an auxiliary state.
_PURE = frozenset(op for op in RULES if not may_draw(op))


def common_subexpressions(symbol: mx.sym.Symbol, shapes: Dict[str, Tuple[int, ...]]
                          ) -> mx.sym.Symbol:
    """Merge operators that agree in name, attributes and inputs."""
    return rewrite(symbol, shapes, _Merge())


class _Merge:
    """The rule; knows the nodes so far."""

    def __init__(self):
        self._seen: Dict[tuple, int] = {}

    def __call__(self, rewriter: Rewriter, node: NodeView) -> Optional[List[Entry]]:
        if node.op not in _PURE:
            return None
        key = (node.op, json.dumps(node.attrs, sort_keys=True),
               tuple((entry.node, entry.output) for entry in node.inputs))
        first = self._seen.setdefault(key, len(rewriter.nodes))
        if first == len(rewriter.nodes):  # where the node will be
            return None
        return [Entry(first, output, shape) for output, shape in enumerate(node.shapes)]
