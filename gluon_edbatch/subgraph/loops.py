"""Batch MXNet's ``foreach``: one loop over the steps of many samples, side by side.

A step of one sample is (n, ...), and a step of N samples is (N n, ...). That is sound if each row
of the body's results depends on that row of its inputs only, which `padding_proof` tells: rows that
are added change nothing. Sequences that have ended keep their states, and their further steps are
padding.
"""

from collections.abc import Sequence

import mxnet as mx

from ..mx.symbols import symbol_function
from ..ops import op_of
from ..ops.attrs import Attrs, Shape
from ..ops.whole import LiftedCall, apart, as_rows, shaped, side_by_side
from .ir import Body, Entry, Node
from .rewrite import Operand, Rewriter

FOREACH = '_foreach'
_KINDS = 'in_data', 'in_state', 'remain'  # of inputs, as its attributes name them
_ALIVE = 'edb_alive'  # of each row, whether its sequence has this step


class Loop:
    """A ``foreach``, whose inputs are sequences, then states, then what all steps read.

    Attributes
    ----------
    body : Body
    names : list of str
        The body's variable for each input.
    data, states : range
        Positions of the sequences (steps, n, ...), and of the states (n, ...), among the inputs.
    """

    def __init__(self, node: Node):
        self.body, self._attrs = node.bodies[0], node.attrs
        data, states, others = (node.attrs.integers(f'{kind}_locs') for kind in _KINDS)
        variables = self.body.symbol.list_inputs()
        self.names = [variables[place] for place in (*data, *states, *others)]
        self.data = range(len(data))
        self.states = range(len(data), len(data) + len(states))

    @property
    def rowwise(self) -> list[str]:
        """The body's variables that have a row for each sample."""
        return self.names[: self.states.stop]

    def of_step(self, shapes: Sequence[Shape]) -> dict[str, Shape]:
        """Return the shapes of the body's variables, given those of the loop's inputs."""
        own = [shape[1:] if i in self.data else shape for i, shape in enumerate(shapes)]
        return dict(zip(self.names, own))

    def draws_for_all_rows(self) -> bool:
        """Return whether a step draws numbers that depend on no row, one for all samples then."""
        of_rows: set[int] = set()
        for place, node in enumerate(self.body.nodes):
            if node.name in self.rowwise or any(entry.node in of_rows for entry in node.inputs):
                of_rows.add(place)
            elif op_of(node.op).draws(node.attrs, True):
                return True
        return False

    def side_by_side(self, call: LiftedCall) -> mx.sym.Symbol:
        """Return the loop over N samples. Inputs are (N, ...), but for those that all share."""
        inputs = list(call.symbols)
        for position in self.data:
            inputs[position] = side_by_side(call.repeated(position), call.inputs[position])
        for position in self.states:
            inputs[position] = as_rows(call.repeated(position), call.inputs[position])
        results = symbol_function(FOREACH)(self.body.symbol, *inputs, **call.attrs)
        sequences = call.attrs.integer('num_out_data', 0)
        return mx.sym.Group(
            [
                (apart if output < sequences else shaped)(result, shape)
                for output, (result, shape) in enumerate(zip(results, call.outputs))
            ]
        )

    def until_the_end(
        self, rewriter: Rewriter, inputs: Sequence[Operand], lengths: Operand
    ) -> Operand:
        """Append the loop in which a sequence keeps its states once it has ended."""
        nodes = [*self.body.nodes, Node('', _ALIVE, Attrs())]
        places = {node.name: Entry(place) for place, node in enumerate(nodes) if node.is_variable}
        sequences = self._attrs.integer('num_out_data', 0)
        heads = list(self.body.heads[:sequences])
        for position, new in zip(self.states, self.body.heads[sequences:]):
            kept = places[_ALIVE], new, places[self.names[position]]
            nodes.append(Node('where', f'edb_kept{len(nodes)}', Attrs(), kept))
            heads.append(Entry(len(nodes) - 1))
        body = Body.of(nodes, heads)
        order = body.symbol.list_inputs()
        data = [*self.names[: self.data.stop], _ALIVE]
        named = data, self.rowwise[self.states.start :], self.names[self.states.stop :]
        attrs = Attrs(self._attrs, num_args=str(len(order) + 1))
        for kind, names in zip(_KINDS, named):
            attrs[f'{kind}_locs'] = str([order.index(name) for name in names])
        alive = _alive(rewriter, inputs[0], lengths)
        node = Node(FOREACH, f'edb_foreach{len(rewriter.nodes)}', attrs, bodies=(body,))
        return rewriter.keep(node, [*inputs[: self.data.stop], alive, *inputs[self.states.start :]])


def _alive(rewriter: Rewriter, sequence: Operand, lengths: Operand) -> Operand:
    """Append (steps, rows), one where a sequence has a step and zero behind its end."""
    one, add = rewriter.add('BlockGrad', [sequence]), rewriter.add
    if len(sequence.shape) > 2:
        one = add('slice_axis', [add('Reshape', [one], shape=(0, 0, -1))], axis=2, begin=0, end=1)
        one = add('Reshape', [one], shape=(0, 0))
    return add('SequenceMask', [add('ones_like', [one]), lengths], use_sequence_length=True)
