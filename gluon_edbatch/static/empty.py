"""Specialisation for batches in which no sample has a value for some ragged argument.

Leaves of a tree have no children: whatever a cell computes of them is a sum over nothing. MXNet
has no arrays of size zero, so the graph is rewritten instead. An *empty* entry has length 0 along
axis 1; its sum over that axis is *zero*; zero vanishes in sums and products. If an operator
outside these rules meets an empty or zero entry, the caller pads with one row of zeros.
"""
from typing import Dict, List, Optional, Set, Union

from .ir import Entry, Node, Subgraph

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


def specialise(graph: Subgraph, empty: Set[str]) -> Optional[Subgraph]:
    """The subgraph for the case that the inputs named in `empty` have length 0 along axis 1.

    Returns None if that cannot be expressed.
    """
    nodes = list(graph.nodes)
    state: Dict[int, str] = {}            # node -> empty or zero
    replaced: Dict[Entry, Entry] = {}
    for index, node in enumerate(nodes):
        if node.is_variable:
            if node.name in empty:
                state[index] = _EMPTY
            continue
        inputs = tuple([replaced.get(entry, entry) for entry in node.inputs])
        nodes[index] = node = node._replace(inputs=inputs)
        states = [state.get(entry.node) for entry in inputs]
        if not any(states):
            continue
        outcome = _rule(node, states)
        if outcome is None:
            return None
        if isinstance(outcome, Entry):
            replaced[Entry(index)] = outcome
        else:
            state[index] = outcome
    heads = [replaced.get(entry, entry) for entry in graph.heads]
    return None if any(entry.node in state for entry in heads) else Subgraph.of(nodes, heads)


def _rule(node: Node, states: List[Optional[str]]) -> Union[str, Entry, None]:
    """What an operator makes of empty or zero inputs: a state, the entry that stands for its
    result, or None."""
    op, attrs, inputs = node.op, node.attrs, node.inputs
    if _EMPTY in states:
        if op == 'sum' and attrs.integers('axis') == (1,) and not attrs.flag('exclude'):
            return _ZERO
        if op in _KEEP_EMPTY:
            return _EMPTY
        if op == 'FullyConnected' and not attrs.flag('flatten', True) \
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
            and attrs.flag('no_bias'):
        return _ZERO
    return None
