"""Gradients that are added to others: what MXNet 1.9.1 does not do at the inputs of a graph.

A gradient with ``grad_req='add'`` is lost, or takes the place of the others, where these operators
read a variable directly:

- ``x + y``, if the sum is a result: the gradient is that of the result, handed through in place,
  and in a compiled graph the request is then forgotten. ``add_n(x, y)`` does it right.
- operators whose backward pass writes whatever is requested, or nothing (`amp_cast`), or fails (`RNN`).
  They read a copy; so do all that have no batching rule, of which nobody has tried.
"""
from functools import partial
from typing import Dict, FrozenSet, List, Tuple, Union

import mxnet as mx

from ..lift import LIFTS
from ..rewrite import Entry, NodeView, Rewriter, rewrite
from ..rowwise import RULES

_ADDITIONS = frozenset('elemwise_add _plus _add _grad_add'.split())
_NEVER_ADD = frozenset('clip mean reverse _split_v2 _linalg_gemm2 amp_cast RNN'.split())


def added_inputs(symbol: mx.sym.Symbol, shapes: Dict[str, Tuple[int, ...]]) -> mx.sym.Symbol:
    """Replace these operators where they read variables; to run after passes that make some."""
    states = frozenset(symbol.list_auxiliary_states())
    return rewrite(symbol, shapes, partial(_rule, states))


def _rule(states: FrozenSet[str], rewriter: Rewriter, node: NodeView
          ) -> Union[Entry, List[Entry], None]:
    added = [_is_variable(rewriter, entry, states) for entry in node.inputs]
    if not any(added):
        return None
    if node.op in _ADDITIONS:
        return rewriter.add('add_n', node.inputs, node.shape, num_args=2)
    if node.op in _NEVER_ADD or not (node.op in RULES or node.op in LIFTS):
        inputs = [rewriter.add('_copy', [entry], entry.shape) if is_added else entry
                  for entry, is_added in zip(node.inputs, added)]
        entry = rewriter.add(node.op, inputs, node.shape, **node.attrs)
        return [Entry(entry.node, output, shape) for output, shape in enumerate(node.shapes)]
    return None


def _is_variable(rewriter: Rewriter, entry: Entry, states: FrozenSet[str]) -> bool:
    node = rewriter.nodes[entry.node]
    return node['op'] == 'null' and node['name'] not in states
