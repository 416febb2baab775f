"""``x + y + z`` as one ``add_n(x, y, z)``, which writes once what the sums write one by one.

Of three arrays of 256 x 150 floats, one thread: 49 µs against 89 forward, 192 against 200 with
the backward pass; of 16 rows 19 against 29, and 85 against 106.
"""
from typing import Dict, List, Optional, Tuple

import mxnet as mx

from ..rewrite import Entry, NodeView, Rewriter, rewrite

_ADDITIONS = frozenset('elemwise_add broadcast_add _plus _add add_n'.split())


def sums(symbol: mx.sym.Symbol, shapes: Dict[str, Tuple[int, ...]]) -> mx.sym.Symbol:
    """Replace sums of sums that nothing else reads."""
    return rewrite(symbol, shapes, _Flatten())


class _Flatten:
    """The rule; knows what the sums of the new graph add up."""

    def __init__(self):
        self._terms: Dict[Tuple[int, int], List[Entry]] = {}

    def __call__(self, rewriter: Rewriter, node: NodeView) -> Optional[Entry]:
        if node.op not in _ADDITIONS or any(entry.shape != node.shape for entry in node.inputs):
            return None
        terms: List[Entry] = []
        for entry, uses in zip(node.inputs, node.uses):
            terms += self._terms.get(entry[:2], [entry]) if uses == 1 else [entry]
        self._terms[len(rewriter.nodes), 0] = terms  # where the sum will be, kept or replaced
        if len(terms) == len(node.inputs):
            return None
        return rewriter.add('add_n', terms, node.shape, num_args=len(terms))
