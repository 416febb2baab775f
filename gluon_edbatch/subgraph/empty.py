"""Specialise a graph for batches in which no sample has a value for some ragged argument.

A tree's leaves have no children, so a cell's sum over children is zero. MXNet has no arrays of size
zero, so the graph is rewritten instead. An *empty* entry has length 0 along axis 1. Its sum over
that axis is *zero*, which is dropped from sums and products. If an operator without a rule meets an
empty or zero entry, the caller pads with one row of zeros.
"""

from typing import Optional, Union

from ..ops import Arithmetic, op_of
from ..ops.padding_rules import At, RaggedCall, Unproved
from .ir import Entry, Node, Subgraph

_EMPTY, _ZERO = 'empty', 'zero'


def specialise(graph: Subgraph, empty: set[str]) -> Optional[Subgraph]:
    """Return the subgraph for inputs of length 0 along axis 1; `empty` names these inputs.

    Returns None if that cannot be expressed.
    """
    nodes = list(graph.nodes)
    state: dict[int, str] = {}  # node -> empty or zero
    replaced: dict[Entry, Entry] = {}
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


def _rule(node: Node, states: list[Optional[str]]) -> Union[str, Entry, None]:
    """Return an operator's result for empty or zero inputs: a state, an equal entry, or None."""
    op, attrs, inputs = op_of(node.op), node.attrs, node.inputs
    if _EMPTY in states:
        if node.op == 'sum' and attrs.integers('axis') == (1,) and not attrs.flag('exclude'):
            return _ZERO
        if op.elementwise or (op.by_value(attrs) and states[0] == _EMPTY and not any(states[1:])):
            return _EMPTY
        return None
    if op.arithmetic is Arithmetic.SUM and states.count(_ZERO) == 1 and len(states) == 2:
        return inputs[1 - states.index(_ZERO)]
    if op.arithmetic is Arithmetic.DIFFERENCE and states == [None, _ZERO]:
        return inputs[0]
    return _ZERO if _is_zero(node, states) else None


def _is_zero(node: Node, states: list[Optional[str]]) -> bool:
    """Return whether an operator's result is zero, given which inputs are zero."""
    op, attrs = op_of(node.op), node.attrs
    if None not in states and (op.is_view or node.op == 'Concat'):
        return True
    if node.op == 'FullyConnected':
        return states[0] == _ZERO and not any(states[1:]) and attrs.flag('no_bias')
    call = RaggedCall(attrs, [At.ZERO if state else None for state in states])
    try:
        return op.padding is not None and op.padding(call) is At.ZERO and not call.fills
    except Unproved:
        return False
