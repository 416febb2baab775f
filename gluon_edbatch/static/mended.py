"""Operators of MXNet 1.9.1 that damage memory, by others that do the same."""
from typing import Dict, Optional, Tuple

import mxnet as mx

from .rewrite import Entry, NodeView, Rewriter, rewrite
from .rowwise import operators


def mended(symbol: mx.sym.Symbol, shapes: Dict[str, Tuple[int, ...]]) -> mx.sym.Symbol:
    """The Symbol without such operators.

    Parameters
    ----------
    symbol : Symbol
    shapes : dict
        Of its inputs for some number of rows.
    """
    if 'SequenceLast' not in operators(symbol):
        return symbol
    return rewrite(symbol, shapes, _sequence_last)


def _sequence_last(rewriter: Rewriter, node: NodeView) -> Optional[Entry]:
    """Without lengths its gradient is written beside the array."""
    if node.op != 'SequenceLast' or node.attrs.get('use_sequence_length') in ('True', '1'):
        return None
    axis = int(node.attrs.get('axis', '0'))
    shape = node.inputs[0].shape
    last = rewriter.add('slice_axis', node.inputs[:1], shape[:axis] + (1,) + shape[axis + 1:],
                        axis=axis, begin=-1, end=None)
    return rewriter.add('Reshape', [last], node.shape, shape='(-3, -2)')  # two axes, one of them 1
