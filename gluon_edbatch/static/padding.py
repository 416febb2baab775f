"""Does the padding of ragged arguments leave a static subgraph's results alone?

Ragged arguments come as (N, K, ...), padded with zeros along axis 1. An entry of the graph that
still has that axis is either *zero* at the padding or *finite* there. A sum over the axis is exact
if its terms are zero there; a product with something finite keeps a zero. If every path from a
ragged argument to a result ends in such a sum, calls with any number of values are one type, in
gradients too: what is zero gets and gives none. All else is not proved, and such calls batch only
with calls of the same lengths, which need no padding.
"""
import json
from typing import Any, Dict, List, Optional, Set, Tuple

import mxnet as mx

_ZERO, _FINITE = 'zero', 'finite'
_KEEP = frozenset('_copy identity negative abs square tanh relu softsign sin arctan Cast cast '
                  'BlockGrad Dropout _mul_scalar _div_scalar elemwise_add elemwise_sub _plus '
                  '_minus _add _sub add_n'.split())
_TO_FINITE = frozenset('sigmoid hard_sigmoid cos clip ones_like _plus_scalar _minus_scalar '
                       '_rminus_scalar _maximum_scalar _minimum_scalar'.split())
_PRODUCTS = frozenset('elemwise_mul broadcast_mul _mul'.split())
_BROADCAST_SUMS = frozenset('broadcast_add broadcast_sub'.split())
_ZERO_AT_ZERO = frozenset('tanh relu softsign'.split())


def padding_neutral(symbol: mx.sym.Symbol, ragged: Set[str]) -> bool:
    """Whether zeros that pad the inputs named in `ragged` along axis 1 change no result."""
    graph = json.loads(symbol.tojson())
    states: Dict[Tuple[int, int], Optional[str]] = {}
    for index, node in enumerate(graph['nodes']):
        if node['op'] == 'null':
            states[index, 0] = _ZERO if node['name'] in ragged else None
            continue
        inputs = [states.get((source[0], source[1])) for source in node['inputs']]
        if not any(inputs):
            continue
        outcome = _rule(node['op'], node.get('attrs', {}), inputs)
        if outcome is _UNPROVED:
            return False
        states[index, 0] = outcome
    return not any(states.get((head[0], head[1])) for head in graph['heads'])


_UNPROVED: Any = object()


def _rule(op: str, attrs: Dict[str, str], inputs: List[Optional[str]]):
    """State of the result: None without the ragged axis, zero, finite, or not proved."""
    if op == 'sum':
        return _sum(attrs, inputs[0])
    if op in _PRODUCTS:
        return _ZERO if _ZERO in inputs else _FINITE
    if op in _BROADCAST_SUMS:
        return _ZERO if inputs == [_ZERO, _ZERO] else _FINITE
    if op == 'FullyConnected':
        if attrs.get('flatten') not in ('False', '0') or any(inputs[1:]):
            return _UNPROVED
        return inputs[0] if attrs.get('no_bias') in ('True', '1') else _FINITE
    if op == 'Activation':
        kind = attrs.get('act_type')
        return inputs[0] if kind in _ZERO_AT_ZERO else _FINITE
    if op in ('slice_axis', 'Concat', 'concat'):
        axis = attrs.get('axis', attrs.get('dim', '1'))
        if axis not in ('2', '3') or not all(inputs):
            return _UNPROVED
        return _ZERO if set(inputs) == {_ZERO} else _FINITE
    if op in _KEEP:
        return _ZERO if set(inputs) == {_ZERO} else _FINITE
    return _FINITE if op in _TO_FINITE else _UNPROVED


def _sum(attrs: Dict[str, str], state: Optional[str]):
    if attrs.get('exclude') in ('True', '1'):
        return _UNPROVED
    axis = attrs.get('axis', '').strip('()[], ')
    if axis == '1':
        return None if state == _ZERO else _UNPROVED
    return state if axis in ('2', '3') else _UNPROVED
