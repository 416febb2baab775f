"""Does the padding of ragged arguments leave a static subgraph's results alone?

Ragged arguments come as (N, K, ...), padded with zeros along axis 1. An entry of the graph that
still has that axis is, at the padding, *zero*, or *masked* (so negative that a softmax gives it
nothing), or just *finite*. A sum over the axis is exact if its terms are zero there; a product with
something finite keeps a zero; a softmax over the axis needs masked values. If every path from a
ragged argument to a result ends in an exact sum, calls with any number of values are one type, in
gradients too: what is zero gets and gives none. All else is not proved, and such calls batch only
with calls of the same lengths, which need no padding.
"""
from enum import Enum
from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Set, Tuple

from .ir import Attrs, Entry, Node, Subgraph


class _At(Enum):
    ZERO, MASKED, FINITE = range(3)


class _State(NamedTuple):
    """What an entry is at the padding, and the ragged inputs that its axis 1 stems from."""

    at: _At
    sources: FrozenSet[str]


class Padding(NamedTuple):
    """Under which conditions padding changes nothing.

    Attributes
    ----------
    neutral : bool
        False: under none that is known.
    linked : frozenset of (str, str)
        Ragged inputs that meet along axis 1: a call must give them equally many values.
    lengths : frozenset of (str, str)
        (input, ragged input): a call must give the length of the latter as the former.
    """

    neutral: bool
    linked: FrozenSet[Tuple[str, str]]
    lengths: FrozenSet[Tuple[str, str]]


_MASK = -1e8  # and below: nothing is left of it after a softmax in any floating-point type
_KEEP = frozenset('_copy identity negative abs square tanh relu softsign sin arctan Cast cast '
                  'BlockGrad Dropout _mul_scalar _div_scalar elemwise_add elemwise_sub _plus '
                  '_minus _add _sub add_n'.split())
_TO_FINITE = frozenset('sigmoid hard_sigmoid cos clip ones_like _plus_scalar _minus_scalar '
                       '_rminus_scalar _maximum_scalar _minimum_scalar'.split())
_PRODUCTS = frozenset('elemwise_mul broadcast_mul _mul'.split())
_BROADCAST_SUMS = frozenset('broadcast_add broadcast_sub'.split())
_ZERO_AT_ZERO = frozenset('tanh relu softsign'.split())
_SHAPED = frozenset('slice_axis Concat concat expand_dims'.split())


class _Unproved(Exception):
    pass


def padding_of(graph: Subgraph, ragged: Set[str]) -> Padding:
    """Analyse the padding of the inputs named in `ragged`."""
    states: Dict[Entry, Optional[_State]] = {}
    linked: Set[Tuple[str, str]] = set()
    lengths: Set[Tuple[str, str]] = set()
    try:
        for index, node in enumerate(graph.nodes):
            if node.is_variable:
                if node.name in ragged:
                    states[Entry(index)] = _State(_At.ZERO, frozenset([node.name]))
                continue
            inputs = [states.get(entry) for entry in node.inputs]
            if not any(inputs):
                continue
            sources = frozenset().union(*[state.sources for state in inputs if state])
            linked.update((a, b) for a in sources for b in sources if a < b)
            if node.op == 'SequenceMask':
                name = _check_mask(node, graph.nodes, inputs)
                lengths.update((name, source) for source in sources)
            at = _rule(node.op, node.attrs, [state and state.at for state in inputs])
            states[Entry(index)] = None if at is None else _State(at, sources)
        if any(map(states.get, graph.heads)):
            raise _Unproved
    except _Unproved:
        return Padding(False, frozenset(), frozenset())
    return Padding(True, frozenset(linked), frozenset(lengths))


def _rule(op: str, attrs: Attrs, inputs: List[Optional[_At]]) -> Optional[_At]:
    """What the result is at the padding; None if it has no ragged axis any more."""
    zero = _At.ZERO if set(inputs) == {_At.ZERO} else _At.FINITE
    if op == 'sum':
        return _sum(attrs, inputs[0])
    if op == 'softmax':
        if inputs != [_At.MASKED] or attrs.get('axis') != '1':
            raise _Unproved
        return _At.FINITE  # not zero: with no values at all, the padding shares out the whole
    if op == 'SequenceMask':
        return _At.ZERO if attrs.number('value', 0) == 0 else _At.MASKED
    if op in _PRODUCTS:
        return _At.ZERO if _At.ZERO in inputs else _At.FINITE
    if op in _BROADCAST_SUMS:
        return _At.ZERO if inputs == [_At.ZERO, _At.ZERO] else _At.FINITE
    if op == 'FullyConnected':
        if attrs.flag('flatten', True) or any(inputs[1:]):
            raise _Unproved
        return zero if attrs.flag('no_bias') else _At.FINITE
    if op == 'Activation':
        return zero if attrs.get('act_type') in _ZERO_AT_ZERO else _At.FINITE
    if op in _SHAPED:
        if attrs.get('axis', attrs.get('dim', '1')) not in ('2', '3') or not all(inputs):
            raise _Unproved
        return zero
    if op in _KEEP:
        return zero
    if op in _TO_FINITE:
        return _At.FINITE
    raise _Unproved


def _sum(attrs: Attrs, state: Any) -> Optional[_At]:
    axes = attrs.integers('axis')
    if attrs.flag('exclude') or axes not in ((1,), (2,), (3,)):
        raise _Unproved
    if axes != (1,):
        return _At.ZERO if state is _At.ZERO else _At.FINITE
    if state is not _At.ZERO:
        raise _Unproved
    return None


def _check_mask(node: Node, nodes: Sequence[Node], inputs) -> str:
    """SequenceMask along axis 1 with an input of the graph as lengths; its name."""
    value = node.attrs.number('value', 0)
    if (node.attrs.integer('axis', 0) != 1 or not node.attrs.flag('use_sequence_length')
            or not inputs[0] or len(inputs) != 2 or inputs[1]
            or not nodes[node.inputs[1].node].is_variable or not (value == 0 or value <= _MASK)):
        raise _Unproved
    return nodes[node.inputs[1].node].name
