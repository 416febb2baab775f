"""Operators of MXNet 1.9.1 that do harm in a graph, by others that do the same."""
from typing import Callable, Dict, List, Optional, Tuple, Union

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
    if _RULES.keys().isdisjoint(operators(symbol)):
        return symbol
    return rewrite(symbol, shapes, _rule)


def _rule(rewriter: Rewriter, node: NodeView) -> Union[Entry, List[Entry], None]:
    rule = _RULES.get(node.op)
    return None if rule is None else rule(rewriter, node)


def _sequence_last(rewriter: Rewriter, node: NodeView) -> Optional[Entry]:
    """Without lengths its gradient is written beside the array."""
    if node.attrs.get('use_sequence_length') in ('True', '1'):
        return None
    axis = int(node.attrs.get('axis', '0'))
    shape = node.inputs[0].shape
    last = rewriter.add('slice_axis', node.inputs[:1], shape[:axis] + (1,) + shape[axis + 1:],
                        axis=axis, begin=-1, end=None)
    return rewriter.add('Reshape', [last], node.shape, shape='(-3, -2)')  # two axes, one of them 1


def _sort(rewriter: Rewriter, node: NodeView) -> Optional[List[Entry]]:
    """Its gradient forgets that the last axis is the default."""
    if 'axis' in node.attrs:
        return None
    entry = rewriter.add(node.op, node.inputs, node.shape, axis=-1, **node.attrs)
    return [Entry(entry.node, output, shape) for output, shape in enumerate(node.shapes)]


_RULES: Dict[str, Callable[[Rewriter, NodeView], Union[Entry, List[Entry], None]]] = {
    'SequenceLast': _sequence_last, 'sort': _sort, 'argsort': _sort, 'topk': _sort}
