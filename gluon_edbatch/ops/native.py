"""Rules of lowering: what an operator becomes in a program for rows.

A rule gets the program under way, the operator, and its inputs, and appends instructions or gives
its result another view.
"""

import math
from typing import Callable, Optional, Tuple

import numpy as np

from .attrs import Attrs, Shape
from .instructions import (
    ADD,
    AFFINE,
    Function,
    Opcode,
    Spread,
    View,
    binary_function,
    unary_function,
)
from .lowering_context import LoweringContext, ShapedNode, Unsupported, Value, Values, width_of

NativeRule = Callable[[LoweringContext, ShapedNode, Values], None]


def _is_rows(*values: Optional[Value]) -> bool:
    return all(value is not None and value.view is not None for value in values)


def _need_rows(node: ShapedNode, *values: Value) -> None:
    if not _is_rows(*values):
        raise Unsupported(f'has {node.op} of a parameter')


# --- rules: one for each operator ----------------------------------------------------------------


def unary(
    function: Function, reals: Callable[[Attrs], Tuple[float, ...]] = lambda _: ()
) -> NativeRule:
    """An elementwise function; `reals` gives its numbers."""

    def rule(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
        _need_rows(node, inputs[0])
        low.emit(
            Opcode.UNARY,
            low.out(node, inputs[0].ragged),
            inputs[0].view,
            numbers=(function.number,),
            reals=reals(node.attrs),
        )

    return rule


def scalar(attrs: Attrs) -> float:
    return attrs.number('scalar', 1)


def inverse(number: float) -> float:
    return 1.0 / number if number else math.copysign(math.inf, number)


def _single(text: str) -> float:
    """A number that MXNet keeps in single precision, whatever the arrays are."""
    return float(np.float32(text))


_ACTIVATIONS = {
    'relu': unary_function('Relu', 'y'),
    'sigmoid': unary_function('Sigmoid', 'y'),
    'tanh': unary_function('Tanh', 'y'),
    'softrelu': unary_function('SoftRelu', 'y'),
    'softsign': unary_function('SoftSign', 'x'),
}
_SQUARE, _SQRT = unary_function('Square', 'x'), unary_function('Sqrt', 'y')
_DIVIDE = binary_function('Divide', 'xy')
_L2_AXES = {'instance': (1, None), 'channel': (1, 2), 'spatial': (2, None)}
_LEAKY, _CLIP = unary_function('Leaky', 'x', 1), unary_function('Clip', 'x', 2)


def activation(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
    function = _ACTIVATIONS.get(node.attrs['act_type'])
    if function is None:
        raise Unsupported(f'has Activation of type {node.attrs["act_type"]}')
    unary(function)(low, node, inputs)


def leaky(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
    if node.attrs.get('act_type', 'leaky') != 'leaky':
        raise Unsupported(f'has LeakyReLU of type {node.attrs["act_type"]}')
    if low.element_size != 4:
        raise Unsupported('has LeakyReLU, which MXNet computes in single precision')
    unary(_LEAKY, lambda attrs: (attrs.number('slope', 0.25),))(low, node, inputs)


def clip(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
    unary(_CLIP, lambda attrs: (_single(attrs['a_min']), _single(attrs['a_max'])))(
        low, node, inputs
    )


def dropout(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
    if low.training or node.attrs.get('mode') == 'always':
        raise Unsupported('has Dropout in training')
    low.alias(node, inputs[0], inputs[0].view)


def binary(function: Function) -> NativeRule:
    """An elementwise function of two arguments, with broadcasting."""

    def rule(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
        if function is ADD and None in inputs:
            _sum_of_products(low, node)
            return
        ragged = any(value.ragged for value in inputs)
        a, b = [low.rows(node, value, ragged) for value in inputs]
        out = node.shapes[0][a.lead :]
        low.emit(
            Opcode.BINARY,
            low.out(node, ragged),
            a.view,
            b.view,
            numbers=(function.number, _spread(a.shape, out), _spread(b.shape, out)),
        )

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


def add_n(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
    if None in inputs:
        _sum_of_products(low, node)
        return
    ragged = any(value.ragged for value in inputs)
    views = [low.rows(node, value, ragged).view for value in inputs]
    out = low.out(node, ragged)
    if len(views) == 1:
        low.copy(out, views[0])
    for position, view in enumerate(views[1:]):
        last = position == len(views) - 2
        total = out if last else low.new(out.width, ragged)
        low.add(total, views[0], view)
        views[0] = total


def _sum_of_products(low: LoweringContext, node: ShapedNode) -> None:
    """An addition of which some terms are products: these add to its result where it lies."""
    products = [low.nodes[source[0]] for source in node.sources if source[0] in low.folded]
    others = [low.values[source] for source in node.sources if source[0] not in low.folded]
    ragged = any(low.values[product.sources[0]].ragged for product in products)
    terms = [low.rows(node, value, ragged) for value in others]
    if any(term.shape != node.shapes[0][term.lead :] for term in terms):
        raise Unsupported('broadcasts in a sum')
    out = low.out(node, ragged)
    if len(terms) > 1:
        low.add(out, terms[0].view, terms[1].view)
        if len(terms) > 2:
            raise Unsupported('adds many terms')
    elif terms:
        low.copy(out, terms[0].view)
    for position, product in enumerate(products):
        _emit_product(
            low,
            product,
            [low.values[source] for source in product.sources],
            out,
            accumulate=bool(terms) or position > 0,
        )


def fully_connected(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
    _emit_product(low, node, inputs, low.out(node, inputs[0].ragged), accumulate=False)


def dot(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
    """Rows by a matrix, which is a layer's weight, turned or not."""
    matrix = inputs[1]
    if matrix.parameter < 0 or len(matrix.shape) != 2 or node.attrs.flag('transpose_a'):
        raise Unsupported('has dot of something else than rows and a matrix')
    _emit_product(
        low,
        node,
        inputs,
        low.out(node, inputs[0].ragged),
        accumulate=False,
        turned=not node.attrs.flag('transpose_b'),
    )


def _emit_product(
    low: LoweringContext,
    node: ShapedNode,
    inputs: Values,
    out: View,
    accumulate: bool,
    turned: bool = False,
) -> None:
    _need_rows(node, inputs[0])
    if any(value.parameter < 0 for value in inputs[1:]):
        raise Unsupported('has FullyConnected of a weight that is no parameter')
    x = inputs[0]
    flatten = node.attrs.flag('flatten', True) and node.op == 'FullyConnected'
    if flatten and x.ragged:
        raise Unsupported('multiplies all values of a row at once')
    times = 1 if flatten else width_of(x.shape[:-1])
    if times > 1 and not (_whole(low, x.view) and _whole(low, out)):
        raise Unsupported('multiplies parts of rows')
    low.emit(
        Opcode.PRODUCT,
        out,
        x.view,
        parameter=low.parameter(inputs[1]),
        bias=low.parameter(inputs[2]) if len(inputs) > 2 else -1,
        numbers=(int(accumulate), times, int(turned)),
    )


def _whole(low: LoweringContext, view: View) -> bool:
    return view.width == low.registers[view.register].width


def reshape(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
    _need_rows(node, inputs[0])
    value, shape = inputs[0], node.shapes[0]
    if width_of(shape[value.lead :]) != value.view.width or shape[: value.lead] != low.lead(value):
        raise Unsupported('reshapes across rows')
    low.alias(node, inputs[0], inputs[0].view)


def slice_axis(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
    begin, end = node.attrs.integers('begin')[0], node.attrs.integers('end')
    _cut(
        low,
        node,
        inputs[0],
        node.attrs.axis('axis', len(node.shapes[0])),
        begin,
        end[0] if end else None,
        0,
    )


def slice_axes(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
    """Along one axis."""
    bounds = [node.attrs.integers(key) for key in ('begin', 'end', 'step')]
    shape = (*low.lead(inputs[0]), *inputs[0].shape)
    cuts = []
    for axis, length in enumerate(shape):
        begin, end, step = [each[axis] if axis < len(each) else None for each in bounds]
        if step not in (None, 1):
            raise Unsupported('takes every other position')
        if slice(begin, end).indices(length)[:2] != (0, length):
            cuts.append((axis, begin, end))
    if len(cuts) != 1:
        raise Unsupported('slices along several axes')
    _cut(low, node, inputs[0], *cuts[0], 0)


def transpose(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
    """Two groups of neighbouring axes change places."""
    _need_rows(node, inputs[0])
    value, lead = inputs[0], inputs[0].lead
    rank = len(value.shape) + lead
    if node.op == 'transpose':
        axes = list(node.attrs.integers('axes')) or list(reversed(range(rank)))
    else:
        axes = list(range(rank))
        first, second = (node.attrs.axis(key, rank, 0) for key in ('dim1', 'dim2'))
        axes[first], axes[second] = second, first
    if axes[:lead] != list(range(lead)) or rank == lead:
        raise Unsupported('moves rows')
    moved = [place for place, axis in enumerate(axes) if place != axis] or [lead]
    begin, end = moved[0], moved[-1] + 1
    middle = begin + axes[begin:end].index(begin)
    if axes[begin:end] != [*range(axes[begin], end), *range(begin, axes[begin])]:
        raise Unsupported('permutes axes')
    sizes = node.shapes[0]
    low.emit(
        Opcode.TRANSPOSE,
        low.out(node, value.ragged),
        value.view,
        numbers=(width_of(sizes[middle:end]), width_of(sizes[begin:middle]), width_of(sizes[end:])),
    )


def _cut(
    low: LoweringContext,
    node: ShapedNode,
    value: Value,
    axis: int,
    begin: Optional[int],
    end: Optional[int],
    output: int,
) -> None:
    """Positions [begin, end) along an axis of the graph's entry."""
    if value.parameter >= 0:
        _cut_parameter(low, node, value, axis, begin, end, output)
        return
    axis -= value.lead
    if axis < 0:
        raise Unsupported('cuts across rows')
    size = value.shape[axis]
    begin, end, _ = slice(begin, end).indices(size)
    outer, inner = width_of(value.shape[:axis]), width_of(value.shape[axis + 1 :])
    part = View(value.view.register, value.view.offset + begin * inner, (end - begin) * inner)
    if outer == 1:
        low.alias(node, value, part, output)
        return
    out = low.out(node, value.ragged, output)
    source = View(part.register, part.offset, value.view.width - begin * inner)
    low.emit(
        Opcode.STRIDED,
        out,
        source,
        numbers=(outer, (end - begin) * inner, (end - begin) * inner, size * inner),
    )


def _cut_parameter(
    low: LoweringContext,
    node: ShapedNode,
    value: Value,
    axis: int,
    begin: Optional[int],
    end: Optional[int],
    output: int,
) -> None:
    if width_of(value.shape[:axis]) != 1:
        raise Unsupported('takes some columns of a parameter')
    begin, end, _ = slice(begin, end).indices(value.shape[axis])
    inner = width_of(value.shape[axis + 1 :])
    low.values[node.index, output] = Value(
        node.shapes[output], parameter=value.parameter, begin=value.begin + begin * inner
    )


def slice_channel(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
    count = node.attrs.integer('num_outputs')
    _need_rows(node, inputs[0])
    axis = node.attrs.axis('axis', len(inputs[0].shape) + inputs[0].lead, 1)
    if axis < inputs[0].lead:
        raise Unsupported('cuts across rows')
    size = inputs[0].shape[axis - inputs[0].lead] // count
    for output in range(count):
        _cut(low, node, inputs[0], axis, output * size, (output + 1) * size, output)


def concat(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
    _need_rows(node, *inputs)
    ragged, lead = inputs[0].ragged, inputs[0].lead
    axis = node.attrs.axis('dim', len(node.shapes[0]), 1)
    if axis < lead or any(value.ragged != ragged for value in inputs):
        raise Unsupported('joins rows')
    out = low.out(node, ragged)
    outer, inner = width_of(node.shapes[0][lead:axis]), width_of(node.shapes[0][axis + 1 :])
    size, offset = node.shapes[0][axis], out.offset
    for value in inputs:
        part = View(out.register, offset, out.width if outer > 1 else value.view.width)
        mine = value.shape[axis - lead] * inner
        if outer > 1:
            low.emit(Opcode.STRIDED, part, value.view, numbers=(outer, mine, size * inner, mine))
        elif value.view != part:
            low.copy(part, value.view)
        offset += mine


def embedding(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
    index, table = inputs
    _look_up(low, node, table, index)


def _look_up(low: LoweringContext, node: ShapedNode, table: Value, index: Value) -> None:
    _need_rows(node, index)
    if table.parameter < 0:
        raise Unsupported(f'has {node.op} from something else than a parameter')
    low.emit(
        Opcode.LOOKUP,
        low.out(node, index.ragged),
        index.view,
        parameter=low.parameter(table),
        numbers=(table.shape[0], width_of(table.shape[1:])),
    )


def stop_gradient(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
    # The ids of look-ups get no gradient anyway.
    entry = (node.index, 0)
    _need_rows(node, inputs[0])
    readers = [other for other in low.nodes if entry in other.sources]
    if entry in low.heads or any(
        reader.op != 'Embedding' or entry == reader.sources[1] for reader in readers
    ):
        raise Unsupported(f'has {node.op}')
    low.alias(node, inputs[0], inputs[0].view)


def take(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
    table, index = inputs
    if node.attrs.integer('axis', 0) != 0 or node.attrs.get('mode', 'clip') != 'clip':
        raise Unsupported('has take with options')
    _look_up(low, node, table, index)


def sequence_mask(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
    # What it would mask is padding: that its lengths say so is a condition of the type.
    if not inputs[0].ragged or node.attrs.integer('axis', 0) != 1:
        raise Unsupported('has SequenceMask')
    low.alias(node, inputs[0], inputs[0].view)


def batch_dot(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
    _need_rows(node, *inputs)
    a, b = inputs
    if len(a.shape) != 2 or a.ragged or b.ragged:
        raise Unsupported('has batch_dot of more axes')
    turned_a, turned_b = node.attrs.flag('transpose_a'), node.attrs.flag('transpose_b')
    m, n = node.shapes[0][1:]
    low.emit(
        Opcode.BATCH_PRODUCT,
        low.out(node, a.ragged),
        a.view,
        b.view,
        numbers=(m, n, a.shape[0] if turned_a else a.shape[1], turned_a + 2 * turned_b),
    )


def softmax(op: Opcode) -> NativeRule:
    def rule(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
        _need_rows(node, inputs[0])
        axis = node.attrs.axis('axis', len(node.shapes[0]), -1)
        if len(inputs) > 1 or node.attrs.get('temperature', 'None') != 'None':
            raise Unsupported(f'has {node.op} with options')
        if inputs[0].ragged and axis == 1 and op is Opcode.SOFTMAX:
            low.emit(Opcode.SEGMENT_SOFTMAX, low.out(node, True), inputs[0].view)
            return
        if axis != len(node.shapes[0]) - 1 or not inputs[0].shape:
            raise Unsupported(f'has {node.op} along another axis')
        low.emit(
            op, low.out(node, inputs[0].ragged), inputs[0].view, numbers=(inputs[0].shape[-1],)
        )

    return rule


def pick(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
    _need_rows(node, *inputs)
    rank = len(inputs[0].shape) + inputs[0].lead
    axis = node.attrs.axis('axis', rank, -1)
    if (
        axis != rank - 1
        or inputs[0].ragged != inputs[1].ragged
        or node.attrs.get('mode', 'clip') != 'clip'
    ):
        raise Unsupported('has pick along another axis')
    low.emit(Opcode.PICK, low.out(node, inputs[0].ragged), inputs[0].view, inputs[1].view)


def reduce(mean: bool) -> NativeRule:
    def rule(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
        _need_rows(node, inputs[0])
        value = inputs[0]
        axes = node.attrs.axes(len(value.shape) + value.lead)
        if value.ragged and axes == {1} and not mean:
            low.emit(Opcode.SEGMENT_SUM, low.out(node, False), value.view)
            return
        if not axes:  # every axis is excluded: nothing to sum
            low.alias(node, value, value.view)
            return
        first, last = min(axes) - value.lead, max(axes) - value.lead
        if first < 0 or len(axes) != last - first + 1:
            raise Unsupported(f'has {node.op} along such axes')
        length, inner = width_of(value.shape[first : last + 1]), width_of(value.shape[last + 1 :])
        low.emit(
            Opcode.REDUCE,
            low.out(node, value.ragged),
            value.view,
            numbers=(length, inner),
            reals=(1.0 / length if mean else 1.0,),
        )

    return rule


def l2_normalization(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
    """By the root of a sum of squares, which has a column for each of its own."""
    _need_rows(node, inputs[0])
    x, out = inputs[0], low.out(node, inputs[0].ragged)
    first, last = _L2_AXES[node.attrs.get('mode', 'instance')]
    first, last = first - x.lead, len(x.shape) if last is None else last - x.lead
    if first < 0:
        raise Unsupported(f'has {node.op} across rows')
    length, inner = width_of(x.shape[first:last]), width_of(x.shape[last:])
    if length == 1:
        raise Unsupported(f'has {node.op} of single numbers, whose gradient is rounding only')
    square, norm = (
        low.new(out.width, x.ragged),
        [low.new(out.width // length, x.ragged) for _ in range(3)],
    )
    low.emit(Opcode.UNARY, square, x.view, numbers=(_SQUARE.number,))
    low.emit(Opcode.REDUCE, norm[0], square, numbers=(length, inner), reals=(1.0,))
    epsilon = _single(node.attrs.get('eps', '1e-10'))
    low.emit(Opcode.UNARY, norm[1], norm[0], numbers=(AFFINE.number,), reals=(1.0, epsilon))
    low.emit(Opcode.UNARY, norm[2], norm[1], numbers=(_SQRT.number,))
    spread = Spread.TILE if inner > 1 else Spread.REPEAT
    low.emit(Opcode.BINARY, out, x.view, norm[2], numbers=(_DIVIDE.number, Spread.SAME, spread))


def constant(number: float) -> NativeRule:
    def rule(low: LoweringContext, node: ShapedNode, inputs: Values) -> None:
        _need_rows(node, inputs[0])
        low.emit(Opcode.CONSTANT, low.out(node, inputs[0].ragged), reals=(number,))

    return rule
