"""Lower recurrent layers over ragged values that the graph arranges by steps, (K, N, C).

Values stay where they are, a row of C columns each. The products with the inputs are one
instruction for all values. Another one goes through the steps: of the sequences that have not
ended, it multiplies the states by the other weight (`Opcode.RECURRENT`). A further product, which
only stands for these, leads to the gradient of that weight. A state that a layer is given is
repeated for all values of its row: so its gradient comes back from the first.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Optional

from .axis_rules import is_last
from .instructions import NO_VIEW, Opcode, Product, Recurrence, View
from .lowering_context import (
    Arrangement,
    Entry,
    LoweredCall,
    ShapedNode,
    Unsupported,
    Value,
    Values,
)

GATES = {'rnn_relu': 1, 'rnn_tanh': 1, 'lstm': 4, 'gru': 3}
Part = tuple[int, int]  # a weight and a bias, as the program counts parameters
_CLIPPING = 'projection_size', 'lstm_state_clip_min', 'lstm_state_clip_max'


def reshape(call: LoweredCall) -> None:
    """Lower a reshape of one step, (1, N, C), to rows."""
    x = call.x
    if x.ragged or x.shape[0] != 1 or call.shape != (call.low.batch_shape[0], *x.shape[1:]):
        raise Unsupported(f'has {call.op} of steps')
    call.give(x._replace(shape=x.shape[1:], arrangement=Arrangement.ROWS))


def one_step(call: LoweredCall) -> None:
    """Lower the selection of the first or last step, which is (1, N, C)."""
    x, attrs, position = call.x, call.attrs, math.inf
    if (attrs.get('begin'), attrs.get('end')) == ('0', '1'):
        position = 0.0
    elif not is_last(attrs):
        raise Unsupported(f'has {call.op} of steps')
    if not x.ragged or attrs.axis('axis', 3) != 0:
        raise Unsupported(f'has {call.op} of steps')
    out = call.low.new(x.view.width, False)
    select(call, out, x.view, position)
    call.give(x._replace(shape=(1, *x.shape), view=out, ragged=False))


def select(call: LoweredCall, out: View, values: View, position: float) -> None:
    """Append the selection of each row's value at a position, or the last one."""
    index = call.low.new(out.width, False)
    call.low.emit(Opcode.CONSTANT, index, reals=(position,))
    call.low.emit(Opcode.SEGMENT_PICK, out, values, index)


def folded_into_layer(nodes: Sequence[ShapedNode], layer: ShapedNode) -> list[int]:
    """Return the operators whose results only a recurrent layer reads, as one array: what joins
    its weights, and zeros that it begins with."""
    _, joined, *states = layer.sources
    reshaped = [source for source in nodes[joined[0]].sources if nodes[source[0]].op == 'Reshape']
    zeros = [state for state in states if nodes[state[0]].op == '_zeros']
    return [index for index, _ in [joined, *reshaped, *zeros] if nodes[index].op]


def layer(call: LoweredCall) -> None:
    """Lower recurrent layers, one on top of the other, in one direction or both."""
    low, attrs, (x, *others) = call.low, call.attrs, call.inputs
    layers, size = attrs.integer('num_layers'), attrs.integer('state_size')
    both = attrs.flag('bidirectional')
    if not x.ragged:
        raise Unsupported('has a recurrent layer over a fixed number of steps')
    if attrs.flag('use_sequence_length') or any(
        [other is not None and other.arrangement is not Arrangement.STEPS for other in others]
    ):
        raise Unsupported('has a recurrent layer with other states or lengths that are given')
    if any(attrs.get(name, 'None') != 'None' for name in _CLIPPING):
        raise Unsupported('has a recurrent layer with a projection or limits')
    if attrs['mode'] == 'rnn_relu' and low.element_size != 4:
        raise Unsupported('has a layer of relu, which MXNet computes in single precision')
    weights, view = _weights(call), x.view
    found: list[list[View]] = [[], []]  # last states and cells of each layer and direction
    for _ in range(layers):
        out = low.new((1 + both) * size, True)
        for way in range(1 + both):
            own = View(out.register, way * size, size)
            given = _first(call, others[1:], len(found[0]), size)
            cells = _one_way(call, own, view, next(weights), bool(way), given)
            found[0].append(own)
            found[1].append(cells)
        view = out
        if low.training and len(found[0]) < layers * (1 + both) and attrs.number('p', 0):
            view = low.new(out.width, True)
            low.emit(Opcode.DROPOUT, view, out, reals=(attrs.number('p', 0),))
    call.give(x._replace(shape=(view.width,), view=view))
    for output, states in enumerate(found[: len(call.node.shapes) - 1], 1):
        if _is_read(call, (call.node.index, output)):
            _give_last(call, output, states, both)


def _is_read(call: LoweredCall, entry: Entry) -> bool:
    low = call.low
    return entry in low.heads or any(entry in node.sources for node in low.nodes)


def _give_last(call: LoweredCall, output: int, states: Sequence[View], both: bool) -> None:
    """Give the states after the last step, (layers and directions, N, C)."""
    size = states[0].width
    out = call.low.new(len(states) * size, False)
    for place, view in enumerate(states):
        first = both and place % 2  # that direction ends at the first word
        part = View(out.register, place * size, size)
        select(call, part, view, 0.0 if first else math.inf)
    given = Value((len(states), size), out, arrangement=Arrangement.STEPS)
    call.low.values[call.node.index, output] = given


def _weights(call: LoweredCall) -> Iterator[tuple[Part, Part]]:
    """Yield (weight, bias) of the inputs and (weight, bias) of the states of each layer and
    direction."""
    low, parameters = call.low, []
    for source in low.nodes[call.node.sources[1][0]].sources:
        while low.nodes[source[0]].op == 'Reshape':
            (source,) = low.nodes[source[0]].sources
        value = low.values.get(source)
        if value is None or value.parameter < 0:
            raise Unsupported('has a recurrent layer with weights that are no parameters')
        parameters.append(low.parameter(value))
    weights, biases = parameters[: len(parameters) // 2], parameters[len(parameters) // 2 :]
    pairs = iter(zip(weights, biases))
    yield from zip(pairs, pairs)


def _first(call: LoweredCall, states: Values, place: int, size: int) -> Optional[View]:
    """Append what gives each value of a row the state, and cell, that a layer is given for the row.
    Return where these lie side by side; None if there are none, but zeros."""
    if all([state is None for state in states]):
        return None
    out = call.low.new(len(states) * size, True)
    for number, state in enumerate(states):
        own = View(out.register, number * size, size)
        if state is None:
            call.low.emit(Opcode.CONSTANT, own, reals=(0.0,))
        else:
            given = View(state.view.register, state.view.offset + place * size, size)
            call.low.emit(Opcode.EXPAND, own, given)
    return out


def _one_way(
    call: LoweredCall,
    out: View,
    x: View,
    weights: tuple[Part, Part],
    backwards: bool,
    given: Optional[View],
) -> View:
    """Append a layer in one direction, whose results go to `out`; return those of its cells.

    `given` has what `_first` returns, and becomes the states before each step.
    """
    low, kind = call.low, Recurrence[call.attrs['mode'].upper()]
    (weight, bias), (of_states, bias_of_states) = weights
    size = out.width
    gates, products = (low.new(GATES[call.attrs['mode']] * size, True) for _ in range(2))
    before = (given or low.new(size, True))._replace(width=size)
    cells = low.new(size, True) if kind is Recurrence.LSTM else NO_VIEW
    low.emit(Opcode.PRODUCT, gates, x, parameter=weight, bias=bias, numbers=(Product.WRITTEN, 1, 0))
    own = {'parameter': of_states, 'bias': bias_of_states}
    low.emit(Opcode.PRODUCT, products, before, numbers=(Product.STEPS, 1, 0), **own)
    flags = backwards + 2 * (given is not None)
    numbers = kind, flags, before.register, cells.register
    low.emit(Opcode.RECURRENT, out, gates, products, numbers=numbers, **own)
    return cells
