"""Specialisation for batches in which no sample has a value for some ragged argument.

Leaves of a tree have no children: whatever a cell computes of them is a sum over nothing. MXNet
has no arrays of size zero, so the graph is rewritten instead. An *empty* entry has length 0 along
axis 1; its sum over that axis is *zero*; zero vanishes in sums and products. If an operator
outside these rules meets an empty or zero entry, the caller pads with one row of zeros.
"""
import json
from typing import Any, Dict, List, Optional, Set, Tuple

import mxnet as mx

from .rewrite import load

_EMPTY, _ZERO = 'empty', 'zero'
_KEEP_EMPTY = frozenset(
    '''Activation relu sigmoid tanh exp log sqrt square abs negative _copy Dropout LeakyReLU Cast
    BlockGrad _mul_scalar _plus_scalar _minus_scalar _rminus_scalar _div_scalar elemwise_add
    elemwise_sub elemwise_mul elemwise_div broadcast_add broadcast_sub broadcast_mul broadcast_div
    _plus _minus _mul _div softsign hard_sigmoid'''.split())
_SUMS = frozenset('elemwise_add broadcast_add _plus'.split())
_DIFFERENCES = frozenset('elemwise_sub broadcast_sub _minus'.split())
_PRODUCTS = frozenset('elemwise_mul broadcast_mul _mul'.split())
_KEEP_ZERO = frozenset('_copy tanh relu sqrt square abs negative _mul_scalar _div_scalar BlockGrad '
                       'slice_axis Dropout'.split())


def specialise(symbol: mx.sym.Symbol, empty: Set[str]) -> Optional[mx.sym.Symbol]:
    """The Symbol for the case that the inputs named in `empty` have length 0 along axis 1.

    Returns None if that cannot be expressed.
    """
    graph = json.loads(symbol.tojson())
    nodes = graph['nodes']
    state: Dict[int, str] = {}            # node -> empty or zero
    replaced: Dict[Tuple[int, int], List[int]] = {}

    def resolve(source):
        entry = (source[0], source[1])
        return replaced.get(entry, list(source))

    for index, node in enumerate(nodes):
        if node['op'] == 'null':
            if node['name'] in empty:
                state[index] = _EMPTY
            continue
        node['inputs'] = [resolve(source) for source in node['inputs']]
        states = [state.get(source[0]) for source in node['inputs']]
        if not any(states):
            continue
        outcome = _rule(node, states)
        if outcome is None:
            return None
        if outcome in (_EMPTY, _ZERO):
            state[index] = outcome
        else:
            replaced[index, 0] = outcome
    heads = [resolve(head) for head in graph['heads']]
    if any(head[0] in state or nodes[head[0]]['op'] == 'null' for head in heads):
        return None  # (a compiled graph does not write a variable to its output)
    graph['heads'] = heads
    return load(graph)


def _rule(node: Dict[str, Any], states: List[Optional[str]]):
    """What an operator makes of empty or zero inputs: a state, the entry that stands for its
    result, or None."""
    op, attrs, inputs = node['op'], node.get('attrs', {}), node['inputs']
    if _EMPTY in states:
        if op == 'sum' and attrs.get('axis') in ('1', '(1,)', '[1]') \
                and attrs.get('exclude', 'False') == 'False':
            return _ZERO
        if op in _KEEP_EMPTY:
            return _EMPTY
        if op == 'FullyConnected' and attrs.get('flatten') in ('False', '0') \
                and states[0] == _EMPTY and not any(states[1:]):
            return _EMPTY
        return None
    if op in _SUMS and states.count(_ZERO) == 1:
        return inputs[1 - states.index(_ZERO)]
    if op in _SUMS | _DIFFERENCES and states == [_ZERO, _ZERO]:
        return _ZERO
    if op in _DIFFERENCES and states == [None, _ZERO]:
        return inputs[0]
    if op in _PRODUCTS or op in _KEEP_ZERO:
        return _ZERO
    if op == 'Activation' and attrs.get('act_type') in ('tanh', 'relu', 'softsign'):
        return _ZERO
    if op == 'FullyConnected' and states[0] == _ZERO and not any(states[1:]) \
            and attrs.get('no_bias') in ('True', '1'):
        return _ZERO
    return None
