"""Lowering rules: what an operator becomes in a program for rows.

A rule appends instructions, or makes the result a view of existing values.
"""

import math
from typing import Callable, Optional

from . import attention_fusion, channels
from .attrs import Attrs, Shape
from .instructions import (
    ADD,
    AFFINE,
    HELD,
    NO_VIEW,
    Function,
    Opcode,
    Spread,
    View,
    binary_function,
    unary_function,
)
from .lowering_context import ORDERS, Arrangement, LoweredCall, Unsupported, Value, width_of
from .recurrence import select

NativeRule = Callable[[LoweredCall], None]


# --- rules: one for each operator ----------------------------------------------------------------


def unary(
    function: Function, reals: Callable[[Attrs], tuple[float, ...]] = lambda _: ()
) -> NativeRule:
    """Return a rule for an elementwise function; `reals` computes its constants from attributes."""

    def rule(call: LoweredCall) -> None:
        call.emit(Opcode.UNARY, numbers=(function.number,), reals=reals(call.attrs))

    return rule


def function(name: str, needs: str = '', *reals: Callable[[Attrs], float]) -> NativeRule:
    """Declare an elementwise function (see `unary_function`), and return its rule."""
    declared = unary_function(name, needs, len(reals))
    return unary(declared, lambda attrs: tuple([real(attrs) for real in reals]))


def scalar(attrs: Attrs) -> float:
    return attrs.number('scalar', 1)


def inverse(number: float) -> float:
    return 1.0 / number if number else math.copysign(math.inf, number)


ACTIVATIONS = {
    'relu': unary_function('Relu', 'y'),
    'sigmoid': unary_function('Sigmoid', 'y'),
    'tanh': unary_function('Tanh', 'y'),
    'softrelu': unary_function('SoftRelu', 'y'),
    'softsign': unary_function('SoftSign', 'x'),
}
SQUARE, SQRT = unary_function('Square', 'x'), unary_function('Sqrt', 'y')
DIVIDE = binary_function('Divide', 'xy')
_L2_AXES = {'instance': (1, None), 'channel': (1, 2), 'spatial': (2, None)}
_LEAKY, _ELU = unary_function('Leaky', 'x', 1), unary_function('Elu', 'y', 1)
clip = function(
    'Clip', 'x', lambda attrs: attrs.single('a_min', 0), lambda attrs: attrs.single('a_max', 0)
)


def activation(call: LoweredCall) -> None:
    function = ACTIVATIONS.get(call.attrs['act_type'])
    if function is None:
        raise Unsupported(f'has Activation of type {call.attrs["act_type"]}')
    unary(function)(call)


def leaky(call: LoweredCall) -> None:
    kind = call.attrs.get('act_type', 'leaky')
    function = {'leaky': _LEAKY, 'elu': _ELU}.get(kind)
    if function is None:
        raise Unsupported(f'has LeakyReLU of type {kind}')
    if call.low.element_size != 4:
        raise Unsupported('has LeakyReLU, which MXNet computes in single precision')
    unary(function, lambda attrs: (attrs.number('slope', 0.25),))(call)


def dropout(call: LoweredCall) -> None:
    if call.dropped:
        call.emit(Opcode.DROPOUT, reals=(call.dropped,))
    else:
        call.alias(call.x)


def binary(function: Function) -> NativeRule:
    """Return a native rule for an elementwise function of two arguments, with broadcasting."""

    def rule(call: LoweredCall) -> None:
        if function is ADD and None in call.inputs:
            _sum_of_products(call)
            return
        a, b = terms = call.as_rows()
        out = call.shape[a.lead :]
        spread = [_spread(term.shape, out) for term in terms]
        call.emit(Opcode.BINARY, a, b, numbers=(function.number, *spread))

    return rule


def by_root_of_width(call: LoweredCall) -> None:
    factor = 1.0 / math.sqrt(call.x.shape[-1])
    call.emit(Opcode.UNARY, numbers=(AFFINE.number,), reals=(factor, -0.0))


def comparison(function: Function) -> NativeRule:
    """Return a rule for a comparison with a number."""

    def rule(call: LoweredCall) -> None:
        x, number = call.x, call.low.new(1, call.x.ragged)
        call.low.emit(Opcode.CONSTANT, number, reals=(scalar(call.attrs),))
        numbers = function.number, Spread.SAME, Spread.REPEAT
        call.low.emit(Opcode.BINARY, call.out(x.ragged), x.view, number, numbers=numbers)

    return rule


def _spread(shape: Shape, out: Shape) -> Spread:
    shape = (1,) * (len(out) - len(shape)) + shape
    if shape == out:
        return Spread.SAME
    for cut in range(len(out) + 1):
        if shape[:cut] == out[:cut] and width_of(shape[cut:]) == 1:
            return Spread.REPEAT
        if shape[cut:] == out[cut:] and width_of(shape[:cut]) == 1:
            return Spread.TILE
    raise Unsupported('broadcasts along a middle axis')


def broadcast_like(call: LoweredCall) -> None:
    """Lower a broadcast that gives each ragged value its row's."""
    x, like = call.all_rows()
    if not like.ragged or x.ragged or call.shape[2:] != x.shape[1:]:
        raise Unsupported(f'has {call.op} of other shapes')
    call.low.values[call.node.index, 0] = call.low.expanded(call.node, x)


def add_n(call: LoweredCall) -> None:
    if None in call.inputs:
        _sum_of_products(call)
        return
    terms = call.as_rows()
    views, ragged = [term.view for term in terms], terms[0].ragged
    out = call.out(ragged)
    if len(views) == 1:
        call.low.copy(out, views[0])
    for position, view in enumerate(views[1:]):
        last = position == len(views) - 2
        total = out if last else call.low.new(out.width, ragged)
        call.low.add(total, views[0], view)
        views[0] = total


def _sum_of_products(call: LoweredCall) -> None:
    """Lower an addition that computes products among its terms directly into its result."""
    low, node = call.low, call.node
    products = [low.call(source[0]) for source in node.sources if source[0] in low.folded]
    others = [low.values[source] for source in node.sources if source[0] not in low.folded]
    ragged = any(map(_multiplies_ragged, products))
    terms = [low.rows(node, value, ragged) for value in others]
    if any(term.shape != call.shape[term.lead :] for term in terms):
        raise Unsupported('broadcasts in a sum')
    if len(terms) > 2:
        raise Unsupported('adds many terms')
    out = call.out(ragged)
    if len(terms) == 2:
        low.add(out, terms[0].view, terms[1].view)
    elif terms and terms[0].view != out:
        low.copy(out, terms[0].view)
    for position, product in enumerate(products):
        _emit_product(product, out, accumulate=bool(terms) or position > 0)


def fully_connected(call: LoweredCall) -> None:
    _emit_product(call, call.out(_multiplies_ragged(call)))


def dot(call: LoweredCall) -> None:
    """Lower a product of rows and a parameter's matrix, transposed or not."""
    if len(call.inputs[1].shape) != 2 or call.attrs.flag('transpose_a'):
        raise Unsupported('has dot of something else than rows and a matrix')
    _emit_product(call, call.out(call.x.ragged), turned=not call.attrs.flag('transpose_b'))


def _multiplies_ragged(call: LoweredCall) -> bool:
    if call.inputs[0] is None:
        return _multiplies_ragged(call.low.call(call.node.sources[0][0]))
    return call.x.ragged


def _emit_product(
    call: LoweredCall, out: View, accumulate: bool = False, turned: bool = False
) -> None:
    weights, low = call.inputs[1:], call.low
    if call.inputs[0] is None:
        _emit_products_of_pieces(call, out, accumulate)
        return
    x = call.x
    flatten = call.attrs.flag('flatten', True) and call.op == 'FullyConnected'
    if flatten and x.ragged:
        raise Unsupported('multiplies all values of a row at once')
    times = 1 if flatten else width_of(x.shape[:-1])
    if times > 1 and not (low.is_whole(x.view) and low.is_whole(out)):
        raise Unsupported('multiplies parts of rows')
    low.emit(
        Opcode.PRODUCT,
        out,
        x.view,
        parameter=low.parameter(weights[0]._replace(line=0)),
        bias=low.parameter(weights[1]) if len(weights) > 1 else -1,
        numbers=(
            int(accumulate),
            times,
            int(turned),
            *([weights[0].line] if weights[0].line else []),
        ),
    )


def _emit_products_of_pieces(call: LoweredCall, out: View, accumulate: bool) -> None:
    """Append the product of a concatenation that is not built: a sum of products of its pieces with
    their columns of the weight."""
    low, (weight, *bias) = call.low, call.inputs[1:]
    pieces = _rows_to_join(low.call(call.node.sources[0][0]))
    times = width_of(pieces[0].shape[:-1])
    if times > 1 and not low.is_whole(out):
        raise Unsupported('multiplies parts of rows')
    begin = 0
    for piece in pieces:
        view = piece.view
        if times > 1 and not low.is_whole(view):
            view = low.new(view.width, piece.ragged)
            low.copy(view, piece.view)
        low.emit(
            Opcode.PRODUCT,
            out,
            view,
            parameter=low.parameter(weight._replace(begin=weight.begin + begin, line=0)),
            bias=low.parameter(bias[0]) if bias and begin == 0 else -1,
            numbers=(int(accumulate or begin > 0), times, 0, weight.line or weight.shape[-1]),
        )
        begin += piece.shape[-1]


def reshape(call: LoweredCall) -> None:
    x, shape = call.x, call.shape
    if width_of(shape[x.lead :]) != x.view.width or shape[: x.lead] != call.low.lead(x):
        raise Unsupported('reshapes across rows')
    call.alias(x)


def slice_axis(call: LoweredCall) -> None:
    begin, end = call.attrs.integers('begin')[0], call.attrs.integers('end')
    _cut(call, call.attrs.axis('axis', call.rank), begin, end[0] if end else None)


def slice_axes(call: LoweredCall) -> None:
    """Lower a slice along one axis."""
    bounds = [call.attrs.integers(key) for key in ('begin', 'end', 'step')]
    shape = (*call.low.lead(call.inputs[0]), *call.inputs[0].shape)
    cuts = []
    for axis, length in enumerate(shape):
        begin, end, step = [each[axis] if axis < len(each) else None for each in bounds]
        if step not in (None, 1):
            raise Unsupported('takes every other position')
        if slice(begin, end).indices(length)[:2] != (0, length):
            cuts.append((axis, begin, end))
    if len(cuts) != 1:
        raise Unsupported('slices along several axes')
    _cut(call, *cuts[0])


def transpose(call: LoweredCall) -> None:
    """Lower a transposition that swaps two groups of neighbouring axes."""
    lead, rank = call.x.lead, len(call.x.shape) + call.x.lead
    axes = call.attrs.order(call.op, rank)
    for arrangement, order in ORDERS.items():
        if axes == order and (call.x.ragged or arrangement is Arrangement.STEPS):
            call.give(call.x._replace(arrangement=arrangement))
            return
    if axes[:lead] != list(range(lead)) or rank == lead:
        raise Unsupported('moves rows')
    moved = [place for place, axis in enumerate(axes) if place != axis] or [lead]
    begin, end = moved[0], moved[-1] + 1
    middle = begin + axes[begin:end].index(begin)
    if axes[begin:end] != [*range(axes[begin], end), *range(begin, axes[begin])]:
        raise Unsupported('permutes axes')
    sizes = call.shape[middle:end], call.shape[begin:middle], call.shape[end:]
    call.emit(Opcode.TRANSPOSE, numbers=tuple(map(width_of, sizes)))


def to_rows(call: LoweredCall) -> None:
    """Lower a transposition of an arrangement back to rows."""
    x = call.inputs[0]
    if call.attrs.order(call.op, call.rank) != ORDERS[x.arrangement] or x.tail:
        raise Unsupported(f'has {call.op} of {x.arrangement.value}')
    call.give(x._replace(arrangement=Arrangement.ROWS))


def _cut(
    call: LoweredCall, axis: int, begin: Optional[int], end: Optional[int], output: int = 0
) -> None:
    """Lower a slice of positions [begin, end) along an axis of the graph's entry."""
    value = call.inputs[0]
    if value.parameter >= 0:
        _cut_parameter(call, axis, begin, end, output)
        return
    if value.ragged and axis == 1 and (begin, end) in ((0, 1), (-1, None)):
        select(call, call.out(False, output), value.view, 0.0 if end else math.inf)
        return
    axis -= value.lead
    if axis < 0:
        raise Unsupported('cuts across rows')
    size = value.shape[axis]
    begin, end, _ = slice(begin, end).indices(size)
    outer, inner = width_of(value.shape[:axis]), width_of(value.shape[axis + 1 :])
    part = View(value.view.register, value.view.offset + begin * inner, (end - begin) * inner)
    if outer == 1:
        call.alias(value._replace(view=part), output)
        return
    source = View(part.register, part.offset, value.view.width - begin * inner)
    numbers = outer, part.width, part.width, size * inner
    call.low.emit(Opcode.STRIDED, call.out(value.ragged, output), source, numbers=numbers)


def _cut_parameter(
    call: LoweredCall, axis: int, begin: Optional[int], end: Optional[int], output: int
) -> None:
    value, columns = call.inputs[0], 0
    begin, end, _ = slice(begin, end).indices(value.shape[axis])
    inner = width_of(value.shape[axis + 1 :])
    if width_of(value.shape[:axis]) != 1:
        columns = value.shape[1]
    if value.line or (columns and len(value.shape) != 2):
        raise Unsupported('takes some positions of a parameter')
    call.low.values[call.node.index, output] = Value(
        call.node.shapes[output],
        parameter=value.parameter,
        begin=value.begin + begin * inner,
        line=columns,
    )


def slice_channel(call: LoweredCall) -> None:
    count, x = call.attrs.integer('num_outputs'), call.x
    axis = call.attrs.axis('axis', len(x.shape) + x.lead, 1)
    if axis < x.lead:
        raise Unsupported('cuts across rows')
    size = x.shape[axis - x.lead] // count
    for output in range(count):
        _cut(call, axis, output * size, (output + 1) * size, output)


def _rows_to_join(call: LoweredCall) -> list[Value]:
    """Return the inputs of a concatenation."""
    if call.arrangement is not Arrangement.ROWS:
        raise Unsupported(f'has {call.op} by heads')
    values = call.all_rows()
    axis = call.attrs.axis('dim', call.rank, 1)
    if axis < values[0].lead or any(value.ragged != values[0].ragged for value in values):
        raise Unsupported('joins rows')
    return values


def concat(call: LoweredCall) -> None:
    values = _rows_to_join(call)
    ragged, lead = values[0].ragged, values[0].lead
    axis = call.attrs.axis('dim', call.rank, 1)
    out = call.out(ragged)
    outer, inner = width_of(call.shape[lead:axis]), width_of(call.shape[axis + 1 :])
    size, offset = call.shape[axis], out.offset
    for value in values:
        rest = out.offset + out.width - offset
        part = View(out.register, offset, rest if outer > 1 else value.view.width)
        mine = value.shape[axis - lead] * inner
        if outer > 1:
            numbers = outer, mine, size * inner, mine
            call.low.emit(Opcode.STRIDED, part, value.view, numbers=numbers)
        elif value.view != part:
            call.low.copy(part, value.view)
        offset += mine


def embedding(call: LoweredCall) -> None:
    _look_up(call, call.inputs[1], call.x)


def _look_up(call: LoweredCall, table: Value, index: Value) -> None:
    parameter = call.low.parameter(table)
    numbers = table.shape[0], width_of(table.shape[1:])
    call.emit(Opcode.LOOKUP, index, parameter=parameter, numbers=numbers)


def stop_gradient(call: LoweredCall) -> None:
    """Lower BlockGrad; ids of look-ups are skipped, as they have no gradient and are not rows."""
    entry = (call.node.index, 0)
    readers = [other for other in call.low.nodes if entry in other.sources]
    if entry not in call.low.heads and all(
        reader.op == 'Embedding' and entry != reader.sources[1] for reader in readers
    ):
        call.alias(call.x)
    else:
        call.emit(Opcode.UNARY, numbers=(HELD.number,))


def take(call: LoweredCall) -> None:
    table, index = call.inputs
    if call.attrs.integer('axis', 0) != 0 or call.attrs.get('mode', 'clip') != 'clip':
        raise Unsupported('has take with options')
    _look_up(call, table, index)


def sequence_mask(call: LoweredCall) -> None:
    x, *lengths = call.all_rows()
    if not x.ragged or call.attrs.integer('axis', 0) != 1 or not lengths:
        raise Unsupported('has SequenceMask')
    call.emit(Opcode.SEGMENT_MASK, x, *lengths, reals=(call.attrs.number('value', 0),))


def batch_dot(call: LoweredCall) -> None:
    a, b = call.all_rows()
    turned_a, turned_b = call.attrs.flag('transpose_a'), call.attrs.flag('transpose_b')
    if a.ragged or b.ragged:
        _product_of_values(call, a, b, (turned_a, turned_b))
        return
    if len(a.shape) != 2:
        raise Unsupported('has batch_dot of more axes')
    depth = a.shape[0] if turned_a else a.shape[1]
    numbers = (*call.shape[1:], depth, turned_a + 2 * turned_b)
    call.emit(Opcode.BATCH_PRODUCT, a, b, numbers=numbers)


def _product_of_values(call: LoweredCall, a: Value, b: Value, turned: tuple[bool, bool]) -> None:
    """Lower the product of values and their row's matrix, or a sum of products over values."""
    low = call.low
    if a.ragged and not b.ragged and not turned[0] and len(a.shape) == 1:
        (n,) = call.shape[2:]
        matrices = b._replace(view=low.new(b.view.width, True), ragged=True)
        low.emit(Opcode.EXPAND, matrices.view, b.view)
        numbers = (1, n, a.view.width, 2 * (turned[1] or n == 1))
        call.emit(Opcode.BATCH_PRODUCT, a, matrices, numbers=numbers)
    elif a.ragged and b.ragged and turned == (True, False) and len(a.shape) == 1:
        m, n = call.shape[1:]
        each = low.new(m * n, True)
        low.emit(Opcode.BATCH_PRODUCT, each, a.view, b.view, numbers=(m, n, 1, 0))
        low.emit(Opcode.SEGMENT_SUM, call.out(False), each)
    else:
        attention_fusion.batch_dot(call)


def softmax(log: bool = False) -> NativeRule:
    def rule(call: LoweredCall) -> None:
        x, axis = call.x, call.attrs.axis('axis', call.rank, -1)
        if len(call.inputs) > 1 or call.attrs.get('temperature', 'None') != 'None':
            raise Unsupported(f'has {call.op} with options')
        if x.ragged and axis == 1:
            call.emit(Opcode.SEGMENT_SOFTMAX, numbers=(int(log),))
            return
        if axis != call.rank - 1 or not x.shape:
            raise Unsupported(f'has {call.op} along another axis')
        call.emit(Opcode.SOFTMAX, numbers=(x.shape[-1], int(log)))

    return rule


def pick(call: LoweredCall) -> None:
    x, index = call.all_rows()
    rank = len(x.shape) + x.lead
    axis = call.attrs.axis('axis', rank, -1)
    if call.attrs.get('mode', 'clip') != 'clip':
        raise Unsupported('has pick with options')
    if x.ragged and axis == 1 and not index.ragged:
        call.low.emit(Opcode.SEGMENT_PICK, call.out(False), x.view, index.view)
        return
    if axis != rank - 1 or x.ragged != index.ragged:
        raise Unsupported('has pick along another axis')
    call.emit(Opcode.PICK, x, index)


def ordered(ascends: bool, gives: str, count: int = 0) -> NativeRule:
    """Return a rule for values in order along the ragged axis; the arguments are as for
    `axis_rules.ordered`."""

    def rule(call: LoweredCall) -> None:
        x, low, attrs = call.x, call.low, call.attrs
        some, kind = max(attrs.integer('k', count), 0), attrs.get('ret_typ', gives)
        typed = kind == 'value' or (low.element_size, attrs.get('dtype', 'float32')) == (
            4,
            'float32',
        )
        if not (x.ragged and typed and attrs.axis('axis', len(x.shape) + 2, -1) == 1):
            raise Unsupported(f'has {call.op} along another axis, or of another type')
        width, ragged, marks = x.view.width, not some or kind == 'mask', kind == 'mask'
        hidden = low.new(width * max(some, 1), ragged) if kind == 'value' else None
        order = hidden or call.out(ragged, int(kind == 'both'))
        numbers = some, int(attrs.flag('is_ascend', ascends)), int(marks)
        low.emit(Opcode.SEGMENT_ORDER, order, x.view, numbers=numbers)
        out = call.out(ragged) if kind in ('value', 'both') else NO_VIEW
        for begin in range(0, out.width, width):
            own, index = [View(each.register, each.offset + begin, width) for each in (out, order)]
            low.emit(Opcode.SEGMENT_PICK, own, x.view, index, numbers=(int(ragged),))

    return rule


def reduction(over_values: tuple, of_rows: bool = False) -> NativeRule:
    """Return a rule for a reduction, of all values of a row (see `channels`) or, for sums and means
    (`of_rows`), also of neighbouring axes of rows."""

    def rule(call: LoweredCall) -> None:
        if channels.is_over_values(call):
            channels.reduce_values(call, *over_values)
        elif of_rows and call.arrangement is Arrangement.ROWS:
            _reduce_rows(call, over_values is channels.MEAN)
        else:
            raise Unsupported(f'has {call.op} along such axes')

    return rule


def _reduce_rows(call: LoweredCall, mean: bool) -> None:
    x = call.x
    axes = call.attrs.axes(len(x.shape) + x.lead)
    if not axes:  # every axis is excluded: nothing to sum
        call.alias(x)
        return
    first, last = min(axes) - x.lead, max(axes) - x.lead
    if first < 0 or len(axes) != last - first + 1:
        raise Unsupported(f'has {call.op} along such axes')
    length, inner = width_of(x.shape[first : last + 1]), width_of(x.shape[last + 1 :])
    factor = 1.0 / length if mean else 1.0
    call.emit(Opcode.REDUCE, numbers=(length, inner), reals=(factor,))


def l2_normalization(call: LoweredCall) -> None:
    """Lower a division by the root of a sum of squares, which has a column for each group."""
    x, low = call.x, call.low
    out = call.out(x.ragged)
    first, last = _L2_AXES[call.attrs.get('mode', 'instance')]
    first, last = first - x.lead, len(x.shape) if last is None else last - x.lead
    if first < 0:
        raise Unsupported(f'has {call.op} across rows')
    length, inner = width_of(x.shape[first:last]), width_of(x.shape[last:])
    if length == 1:
        raise Unsupported(f'has {call.op} of single numbers, whose gradient is rounding only')
    square = low.new(out.width, x.ragged)
    norm = [low.new(out.width // length, x.ragged) for _ in range(3)]
    low.emit(Opcode.UNARY, square, x.view, numbers=(SQUARE.number,))
    low.emit(Opcode.REDUCE, norm[0], square, numbers=(length, inner), reals=(1.0,))
    epsilon = call.attrs.single('eps', 1e-10)
    low.emit(Opcode.UNARY, norm[1], norm[0], numbers=(AFFINE.number,), reals=(1.0, epsilon))
    low.emit(Opcode.UNARY, norm[2], norm[1], numbers=(SQRT.number,))
    spread = Spread.TILE if inner > 1 else Spread.REPEAT
    low.emit(Opcode.BINARY, out, x.view, norm[2], numbers=(DIVIDE.number, Spread.SAME, spread))


def layer_norm(call: LoweredCall) -> None:
    x, *weights = call.inputs
    if call.attrs.axis('axis', call.rank, -1) != call.rank - 1 or not call.x.shape:
        raise Unsupported(f'has {call.op} along another axis')
    if call.attrs.flag('output_mean_var'):
        raise Unsupported(f'has {call.op} that gives mean and variance')
    gamma, beta = map(call.low.parameter, weights)
    epsilon = call.attrs.single('eps', 1e-5)
    numbers = (x.shape[-1],)
    call.emit(Opcode.LAYER_NORM, parameter=gamma, bias=beta, numbers=numbers, reals=(epsilon,))


def constant(number: float) -> NativeRule:
    def rule(call: LoweredCall) -> None:
        call.low.emit(Opcode.CONSTANT, call.out(call.x.ragged), reals=(number,))

    return rule
