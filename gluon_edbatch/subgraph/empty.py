"""Graphs for ragged values of which there are none.

MXNet has no arrays of size zero, so a graph gets one position of padding in their place, and is
rewritten. `specialise` drops what is zero then, as in a cell for a tree's leaves, which have no
children. `without_values` handles all operators: it sets each reduction's result, and refuses
operators that have none, such as argmax.
"""

from collections.abc import Mapping
from typing import NamedTuple, Optional, Union

import mxnet as mx

from gluon_edbatch_core.errors import RecordError

from ..ops import Arithmetic, op_of
from ..ops.attrs import Shape
from ..ops.axis_rules import At, AxisCall, AxisEntry, Unproved
from .ir import Entry, Node, Subgraph
from .loops import FOREACH, Loop
from .padding_proof import PaddingWalk, links_of, ruled
from .rewrite import Operand

_EMPTY, _ZERO = 'empty', 'zero'


class WithoutValues(NamedTuple):
    """A graph for inputs without values, and for each result the axes along which it has none."""

    graph: Subgraph
    axes: list[frozenset[int]]


def without_values(
    graph: Subgraph, shapes: Mapping[str, Shape], axes: Mapping[str, int]
) -> WithoutValues:
    """Return the graph for inputs without values, which have one position of padding instead.

    A reduction gives what its entry says (`ops.Op.of_none`), and no gradient. Recurrent layers and
    loops keep their states. Results along the axis stay padding. Parameters are as for
    `padding_of`. Raises RecordError if a result is unknown.
    """
    walk = _NoValues(graph, shapes, axes, At.FINITE)
    try:
        heads = walk.heads()
    except (Unproved, mx.base.MXNetError) as error:
        reason = str(error) if isinstance(error, Unproved) else 'how many it has counts'
        raise RecordError(f'a ragged argument has no values, and {reason}') from None
    of_results = [frozenset(walk.states.get(head, {})) for head in graph.heads]
    return WithoutValues(Subgraph.of(walk.rewriter.nodes, heads), of_results)


class _NoValues(PaddingWalk):
    """Visit a graph, and set the results of reductions over axes without values."""

    def _finite(self, head: Entry) -> Entry:
        return self._moved[head].entry

    def _padded_node(
        self, index: int, node: Node, inputs: list[Operand], results: list[Shape]
    ) -> Operand:
        shapes, states, places = self._read(node, inputs, results)
        reduces = False
        if op_of(node.op).axis is None and node.op != FOREACH:
            raise Unproved(f'what {node.op} gives then is not known')
        for link in links_of(node, shapes, places):
            own = [each.get(axis) for each, axis in zip(states, link.inputs)]
            origin = next(state for state in own if state)
            if link.result is None:
                reduces = reduces or op_of(node.op).of_axis(node.attrs) is None
                continue
            if node.op not in (FOREACH, 'RNN'):
                call = AxisCall(
                    node.attrs,
                    [state and state.at for state in own],
                    list(map(AxisEntry, shapes.inputs, link.inputs)),
                    AxisEntry(results[0], link.result),
                )
                ruled(node, call)
                if origin.longer + call.longer > 0:
                    raise Unproved(f'{node.op} makes some')
                origin = origin._replace(longer=origin.longer + call.longer)
            for output, shape in enumerate(results):
                if shape[link.result : link.result + 1] == (results[0][link.result],):
                    self.states.setdefault(Entry(index, output), {})[link.result] = origin
        made = self.rewriter.keep(node, inputs)
        if node.op in (FOREACH, 'RNN'):
            self._keep_states(index, node, made, inputs, results)
        elif reduces:
            return self._result_of_none(node, made)
        return made

    def _result_of_none(self, node: Node, made: Operand) -> Operand:
        number = op_of(node.op).of_none
        if number is None:
            raise Unproved(f'{node.op} has no result then')
        like = self._add('BlockGrad', [made])
        return self._add('ones_like' if number else 'zeros_like', [like])

    def _keep_states(
        self, index: int, node: Node, made: Operand, inputs: list[Operand], results: list[Shape]
    ) -> None:
        """Let the states after the last step be those before the first one."""
        first, places = 1, slice(2, None)
        if node.op == FOREACH:
            own = Loop(node).states
            first, places = node.attrs.integer('num_out_data', 0), slice(own.start, own.stop)
        states = inputs[places]
        for output in range(first, len(results)):
            entry = Entry(index, output)
            like = self._add('BlockGrad', [Operand(made.node, output, results[output])])
            zeros = self._add('zeros_like', [like])  # tell what shape a state of zeros has
            kept = self._add('elemwise_add', [states[output - first], zeros])
            self._moved[entry] = kept._replace(shape=results[output])
            self.states.pop(entry, None)


def specialise(graph: Subgraph, empty: set[str]) -> Optional[Subgraph]:
    """Return the subgraph for inputs of length 0 along axis 1; `empty` names these inputs.

    An *empty* entry has length 0 along axis 1. Its sum over that axis is *zero*, which is dropped
    from sums and products. Returns None if that cannot be expressed.
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
    call = AxisCall(attrs, [At.ZERO if state else None for state in states])
    try:
        return op.axis is not None and op.axis(call) is At.ZERO and not call.fills
    except Unproved:
        return False
