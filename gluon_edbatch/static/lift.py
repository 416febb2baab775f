"""A subgraph for whole values: the batch gets an axis of its own, in front of all others.

Of a value (n, m) that an operator treats as a matrix, not as n rows, a batch is (N, n, m). In the
arenas that is N n rows of m, one value after the other, so a reshape before and after is all that
it takes; in between each operator works on one axis more. What it becomes is a rule here; an
operator that leaves rows alone (see `rowwise`) needs none, as the rows of all values are rows, too.
The idea is that of JAX's ``vmap``.
"""
import json
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import mxnet as mx

from .noise import may_draw
from .rowwise import (BINARY, RULES, UNARY, Node, Shape, first_outputs, flag, infer_shape, integer,
                      tuple_of)
from .trace import symbol_function

Entry = Tuple[int, int]


class NoRule(Exception):
    """An operator cannot be lifted; says which."""


class Value(NamedTuple):
    """An entry of the graph.

    Attributes
    ----------
    symbol : Symbol
        (N, *shape) if batched, else (*shape).
    shape : tuple of int
        As the user sees it.
    batched : bool
        Whether it differs from call to call.
    """

    symbol: mx.sym.Symbol
    shape: Shape
    batched: bool


class Application(NamedTuple):
    """An operator and what it is applied to.

    Attributes
    ----------
    op : str
    attrs : dict
    inputs : list of Value
    outputs : list of tuple of int
        Shapes as the user sees them.
    """

    op: str
    attrs: Dict[str, str]
    inputs: List[Value]
    outputs: List[Shape]

    @property
    def node(self) -> Node:
        """The same as rules of `rowwise` see it."""
        return Node(self.op, self.attrs, [value.batched for value in self.inputs],
                    [value.shape for value in self.inputs], self.outputs)

    @property
    def rank(self) -> int:
        """Axes of the first input."""
        return len(self.inputs[0].shape)

    def apply(self, *symbols: mx.sym.Symbol, **changed: Any) -> mx.sym.Symbol:
        """The operator, with some attributes changed, of other symbols."""
        return symbol_function(self.op)(*symbols, **{**self.attrs, **changed})

    def batched_inputs(self) -> List[mx.sym.Symbol]:
        """All inputs with the batch in front; those that all calls share are repeated."""
        like = next(value.symbol for value in self.inputs if value.batched)
        return [value.symbol if value.batched else _repeated(value, like)
                for value in self.inputs]


def lift(symbol: mx.sym.Symbol, shapes: Dict[str, Shape]) -> mx.sym.Symbol:
    """The subgraph for a batch of whole values.

    Parameters
    ----------
    symbol : Symbol
    shapes : dict
        Of its inputs in one call, (n, ...) each. In the result they are (N n, ...); all other
        variables are shared by the calls, and their shapes must be known to MXNet.

    Returns
    -------
    Symbol
        Results that are (p, ...) of one call are (N p, ...).

    Raises
    ------
    NoRule
        If an operator has none for what it is applied to.
    """
    graph, internals = json.loads(symbol.tojson()), symbol.get_internals()
    used = set(symbol.list_inputs())
    _, found, _ = infer_shape(internals, {
        name: shape for name, shape in shapes.items() if name in used})
    first = first_outputs(graph['nodes'], internals)
    if found is None or first is None:
        raise NoRule('shapes that cannot be inferred')
    values: Dict[Entry, Value] = {}
    for index, node in enumerate(graph['nodes']):
        own = [tuple(shape) for shape in found[first[index]:first[index + 1]]]
        if node['op'] == 'null':
            values[index, 0] = _variable(internals[first[index]], node['name'], own[0], shapes)
            continue
        application = Application(node['op'], node.get('attrs', {}), [
            values[source, output] for source, output, *_ in node['inputs']], own)
        for output, value in enumerate(_lifted(application)):
            values[index, output] = value
    return mx.sym.Group([_result(values[entry, output])
                         for entry, output, *_ in graph['heads']])


def _variable(symbol, name: str, shape: Shape, shapes: Dict[str, Shape]) -> Value:
    if name in shapes:
        return Value(_shaped(symbol, shape), shape, True)
    return Value(symbol, shape, False)


def _result(value: Value) -> mx.sym.Symbol:
    if not value.batched:
        raise NoRule('a result that does not depend on the inputs')
    return mx.sym.reshape(value.symbol, shape=(-1,) + value.shape[1:])


def _lifted(application: Application) -> List[Value]:
    batched = any(value.batched for value in application.inputs)
    if not batched:
        if not application.inputs or may_draw(application.op):
            raise NoRule(f'{application.op} of nothing that differs from call to call')
        symbol = application.apply(*[value.symbol for value in application.inputs])
    else:
        rule = LIFTS.get(application.op)
        symbol = None if rule is None else rule(application)
        if symbol is None:
            symbol = _by_rows(application)
    outputs = application.outputs
    symbols = [symbol] if len(outputs) == 1 else list(symbol)
    return [Value(each, shape, batched) for each, shape in zip(symbols, outputs)]


def _by_rows(application: Application) -> mx.sym.Symbol:
    """An operator that leaves rows alone: the rows of all values at once."""
    node = application.node
    rows = {shape[0] for batched, shape in zip(node.batched, node.inputs) if batched}
    rule = RULES.get(application.op)
    if rule is None or len(rows) != 1 or not rule(node) \
            or any(shape[0] % next(iter(rows)) for shape in application.outputs):
        raise NoRule(f'{application.op} of these shapes')
    result = application.apply(*[
        mx.sym.reshape(value.symbol, shape=(-1,) + value.shape[1:]) if value.batched
        else value.symbol for value in application.inputs])
    return _all_shaped(result, application.outputs)


def _shaped(symbol, shape: Shape) -> mx.sym.Symbol:
    """(N, *shape) from the same elements in another shape."""
    return mx.sym.reshape(symbol, shape=(-1,) + tuple(shape))


def _all_shaped(results: mx.sym.Symbol, shapes: Sequence[Shape]) -> mx.sym.Symbol:
    """The same for each result of an operator."""
    if len(shapes) == 1:
        return _shaped(results, shapes[0])
    return mx.sym.Group([_shaped(result, shape) for result, shape in zip(results, shapes)])


def _repeated(value: Value, like: mx.sym.Symbol) -> mx.sym.Symbol:
    """The same for each call of the batch; `like` has the batch in front."""
    return mx.sym.broadcast_like(mx.sym.expand_dims(value.symbol, axis=0), like,
                                 lhs_axes=(0,), rhs_axes=(0,))


# --- rules: the operator on one axis more; None if it may be one that leaves rows alone ----------

def _later(key: str, default: Optional[int]) -> Callable[[Application], Optional[mx.sym.Symbol]]:
    """Works along one axis, which is counted from the first input's."""
    def rule(application: Application) -> Optional[mx.sym.Symbol]:
        axis = integer(application.node, key, default)
        if axis is None:
            return None
        return application.apply(*application.batched_inputs(),
                                 **{key: axis % application.rank + 1})
    return rule


def _along_first(key: str, default: int) -> Callable[[Application], Optional[mx.sym.Symbol]]:
    """The same for the first input; the others are weights."""
    def rule(application: Application) -> Optional[mx.sym.Symbol]:
        if any(value.batched for value in application.inputs[1:]):
            return None
        axis = integer(application.node, key, default)
        return application.apply(*[value.symbol for value in application.inputs],
                                 **{key: axis % application.rank + 1})
    return rule


def _or_all(key: str, default: Optional[int]) -> Callable[[Application], mx.sym.Symbol]:
    """Along one axis of the only input, or along all as one."""
    def rule(application: Application) -> mx.sym.Symbol:
        symbol = application.inputs[0].symbol
        if application.attrs.get(key, default) in (None, 'None'):
            result = application.apply(mx.sym.reshape(symbol, shape=(0, -1)), **{key: 1})
        else:
            axis = integer(application.node, key, default)
            result = application.apply(symbol, **{key: axis % application.rank + 1})
        return _all_shaped(result, application.outputs)
    return rule


def _elementwise(application: Application) -> mx.sym.Symbol:
    """Right-aligned broadcasting, once the batch is in front of all axes."""
    rank = len(application.outputs[0])
    aligned = []
    for value in application.inputs:
        front = (1,) * (rank - len(value.shape))
        aligned.append(_shaped(value.symbol, front + value.shape)
                       if value.batched and front else value.symbol)
    if application.op in ('add_n', 'ElementWiseSum'):
        total = aligned[0]
        for other in aligned[1:]:
            total = mx.sym.broadcast_add(total, other)
        return total
    if all(value.batched for value in application.inputs):
        return application.apply(*aligned)
    return getattr(mx.sym, _broadcast(application.op))(*aligned)


def _broadcast(op: str) -> str:
    """The name of the operator that does the same and broadcasts."""
    if op.startswith('broadcast_'):
        return op
    name = op.replace('elemwise_', '').replace('_grad_', '').strip('_')
    return 'broadcast_' + {'plus': 'add', 'minus': 'sub'}.get(name, name)


def _reduction(application: Application) -> mx.sym.Symbol:
    node, rank = application.node, application.rank
    axes = {axis % rank for axis in tuple_of(node, 'axis') or range(rank)}
    if flag(node, 'exclude'):
        axes = set(range(rank)) - axes if tuple_of(node, 'axis') else axes
    symbol = application.inputs[0].symbol
    if len(axes) == rank:
        symbol, axes = mx.sym.reshape(symbol, shape=(0, -1)), {0}
    attrs = {'axis': tuple(sorted(axis + 1 for axis in axes)), 'keepdims': False}
    if 'exclude' in application.attrs:
        attrs['exclude'] = False
    return _shaped(application.apply(symbol, **attrs), application.outputs[0])


def _stack(application: Application) -> mx.sym.Symbol:
    axis = integer(application.node, 'axis', 0) % len(application.outputs[0])
    return application.apply(*application.batched_inputs(), axis=axis + 1)


def _slice(application: Application) -> mx.sym.Symbol:
    attrs = {key: (None,) + tuple(tuple_of(application.node, key) or ())
             for key in ('begin', 'end', 'step') if key in application.attrs}
    return application.apply(application.inputs[0].symbol, **attrs)


def _slice_like(application: Application) -> Optional[mx.sym.Symbol]:
    value, shape = application.inputs[0], application.outputs[0]
    return mx.sym.slice(value.symbol, begin=(None,) * (len(shape) + 1), end=(None,) + shape) \
        if value.batched else None


def _reshaped(application: Application) -> mx.sym.Symbol:
    value = application.inputs[0]
    if not value.batched:
        raise NoRule(f'{application.op} of an array that all calls share')
    return _shaped(value.symbol, application.outputs[0])


def _transpose(application: Application) -> mx.sym.Symbol:
    axes = tuple_of(application.node, 'axes') or tuple(reversed(range(application.rank)))
    return application.apply(application.inputs[0].symbol,
                             axes=(0,) + tuple(axis % application.rank + 1 for axis in axes))


def _swapaxes(application: Application) -> mx.sym.Symbol:
    return application.apply(application.inputs[0].symbol, **{
        key: integer(application.node, key, 0) % application.rank + 1
        for key in ('dim1', 'dim2')})


def _split_v2(application: Application) -> Optional[mx.sym.Symbol]:
    axis = integer(application.node, 'axis', 1) % application.rank
    ends = [0]
    for shape in application.outputs:
        ends.append(ends[-1] + (1 if flag(application.node, 'squeeze_axis') else shape[axis]))
    symbol = application.inputs[0].symbol
    return mx.sym.Group([
        _shaped(mx.sym.slice_axis(symbol, axis=axis + 1, begin=begin, end=end), shape)
        for begin, end, shape in zip(ends, ends[1:], application.outputs)])


def _split(application: Application) -> mx.sym.Symbol:
    axis = integer(application.node, 'axis', 1) % application.rank
    return application.apply(application.inputs[0].symbol, axis=axis + 1)


def _broadcast_to(application: Application) -> Optional[mx.sym.Symbol]:
    value, shape = application.inputs[0], application.outputs[0]
    if not value.batched:
        return None
    front = (1,) * (len(shape) - len(value.shape))
    return mx.sym.broadcast_to(_shaped(value.symbol, front + value.shape), shape=(0,) + shape)


def _tile(application: Application) -> mx.sym.Symbol:
    value, reps = application.inputs[0], tuple_of(application.node, 'reps') or ()
    if sum(count > 1 for count in reps) > 2:
        raise NoRule('tile along three axes: MXNet has no gradient of four')
    rank = max(len(reps), application.rank)
    return mx.sym.tile(_shaped(value.symbol, (1,) * (rank - application.rank) + value.shape),
                       reps=(1,) * (1 + rank - len(reps)) + tuple(reps))


def _reverse(application: Application) -> mx.sym.Symbol:
    axes = tuple_of(application.node, 'axis') or (0,)
    return application.apply(application.inputs[0].symbol,
                             axis=tuple(axis % application.rank + 1 for axis in axes))


def _dot(application: Application) -> mx.sym.Symbol:
    left, right = application.inputs
    across, along = (flag(application.node, key) for key in ('transpose_a', 'transpose_b'))
    if (across and len(left.shape) != 2) or (along and len(right.shape) != 2):
        raise NoRule('dot that transposes something else than a matrix')
    if left.batched and right.batched:
        a = _shaped(left.symbol, left.shape if len(left.shape) == 2 else
                    (_size(left.shape[:-1]), left.shape[-1]))
        b = _shaped(right.symbol, right.shape if len(right.shape) == 2 else
                    (right.shape[0], _size(right.shape[1:])))
        result = mx.sym.batch_dot(a, b, transpose_a=across, transpose_b=along)
    elif left.batched:
        a = mx.sym.swapaxes(left.symbol, dim1=1, dim2=2) if across else left.symbol
        result = _layer(a, right, not along) if len(right.shape) == 2 else \
            mx.sym.dot(a, right.symbol)
    else:
        result = _shared_times(left, right, across, along)
    return _shaped(result, application.outputs[0])


def _shared_times(left: Value, right: Value, across: bool, along: bool) -> mx.sym.Symbol:
    """A matrix that all calls share, times a vector or matrix of each: W x is a layer without
    bias, whose weight is W."""
    if len(left.shape) != 2 or len(right.shape) > 2:
        raise NoRule('dot of a shared array that is no matrix')
    depth = left.shape[0 if across else 1]
    columns = 1 if len(right.shape) == 1 else right.shape[0 if along else 1]
    if columns == 1:
        return _layer(_shaped(right.symbol, (depth,)), left, across)
    x = right.symbol if along else mx.sym.swapaxes(right.symbol, dim1=1, dim2=2)
    return mx.sym.swapaxes(_layer(x, left, across), dim1=1, dim2=2)


def _layer(x: mx.sym.Symbol, matrix: Value, turned: bool) -> mx.sym.Symbol:
    """(..., k) by a matrix (m, k) that all calls share, or by (k, m) if it is turned."""
    if turned:
        return mx.sym.dot(x, matrix.symbol)
    return mx.sym.FullyConnected(x, matrix.symbol, no_bias=True, flatten=False,
                                 num_hidden=matrix.shape[0])


def _fully_connected(application: Application) -> Optional[mx.sym.Symbol]:
    """On (n, ...) of each call, without making rows of it."""
    x, *weights = application.inputs
    if not x.batched or any(value.batched for value in weights):
        return None
    symbol = x.symbol
    if application.attrs.get('flatten', 'True') in ('True', '1'):
        symbol = _shaped(symbol, (x.shape[0], _size(x.shape[1:])))
    return _shaped(application.apply(symbol, *[value.symbol for value in weights], flatten=False),
                   application.outputs[0])


def _alike(application: Application) -> mx.sym.Symbol:
    """Whatever the axes are."""
    return application.apply(application.inputs[0].symbol)


def _batch_dot(application: Application) -> Optional[mx.sym.Symbol]:
    if all(value.batched for value in application.inputs):
        return None
    shapes = [value.shape for value in application.inputs]
    a, b = (mx.sym.reshape(symbol, shape=(-1,) + shape[1:])
            for symbol, shape in zip(application.batched_inputs(), shapes))
    return _shaped(application.apply(a, b), application.outputs[0])


def _take(application: Application) -> Optional[mx.sym.Symbol]:
    data, index = application.inputs
    axis = integer(application.node, 'axis', 0) % len(data.shape)
    if data.batched and not index.batched:
        return application.apply(data.symbol, index.symbol, axis=axis + 1)
    if axis != 0:
        raise NoRule('take along another axis than the first by an index of each call')
    if not data.batched:
        return application.apply(data.symbol, index.symbol)
    count = data.shape[0]
    mode = application.attrs.get('mode', 'clip')
    if mode not in ('clip', 'wrap'):
        raise NoRule(f'take(mode={mode})')
    which = mx.sym.cast(index.symbol, dtype='int32')
    which = mx.sym.clip(which, 0, count - 1) if mode == 'clip' else which % count
    begin = mx.sym.cast(mx.sym.contrib.arange_like(data.symbol, axis=0), dtype='int32') * count
    which = mx.sym.broadcast_add(which, mx.sym.reshape(
        begin, shape=(-1,) + (1,) * len(index.shape)))
    return mx.sym.take(mx.sym.reshape(data.symbol, shape=(-1,) + data.shape[1:]), which)


def _where(application: Application) -> mx.sym.Symbol:
    condition, x, y = application.batched_inputs()
    own, shape = application.inputs[0].shape, application.outputs[0]
    if own != shape:
        condition = mx.sym.broadcast_to(
            _shaped(condition, own + (1,) * (len(shape) - len(own))), shape=(0,) + shape)
    return mx.sym.where(condition, x, y)


def _sequence(application: Application) -> Optional[mx.sym.Symbol]:
    """(T, B, ...): the sequences of all calls, side by side."""
    if integer(application.node, 'axis', 0) != 0:
        return None
    symbols = application.batched_inputs()
    side = _side_by_side(symbols[0], application.inputs[0].shape)
    result = application.apply(side, *[mx.sym.reshape(each, shape=(-1,)) for each in symbols[1:]])
    if application.op == 'SequenceLast':
        return _shaped(result, application.outputs[0])
    return _apart(result, application.outputs[0])


def _matrices(application: Application) -> Optional[mx.sym.Symbol]:
    """Works on the last two axes, whatever is in front of them."""
    if any(len(value.shape) < 2 for value in application.inputs):
        return None  # some take such an array for a matrix, and have no gradient or a wrong one
    return _vectors(application)


def _vectors(application: Application) -> mx.sym.Symbol:
    """Works on the last axis."""
    result = application.apply(*application.batched_inputs())
    return _all_shaped(result, application.outputs)


def _side_by_side(symbol: mx.sym.Symbol, shape: Shape) -> mx.sym.Symbol:
    """(N, T, B, ...) as (T, N B, ...)."""
    return mx.sym.reshape(mx.sym.swapaxes(symbol, dim1=0, dim2=1),
                          shape=(shape[0], -1) + tuple(shape[2:]))


def _apart(symbol: mx.sym.Symbol, shape: Shape) -> mx.sym.Symbol:
    """The reverse, for (T, B, ...) of each call."""
    return mx.sym.swapaxes(mx.sym.reshape(symbol, shape=(shape[0], -1) + tuple(shape[1:])),
                           dim1=0, dim2=1)


def _rnn(application: Application) -> mx.sym.Symbol:
    """A recurrent layer: input (T, B, C), states (L, B, H), weights that all calls share."""
    x, weights, *states = application.inputs
    if weights.batched or flag(application.node, 'use_sequence_length') or not x.batched:
        raise NoRule('RNN with weights or lengths of each call')
    like = x.symbol
    sides = [_side_by_side(value.symbol if value.batched else _repeated(value, like), value.shape)
             for value in (x, *states)]
    result = application.apply(sides[0], weights.symbol, *sides[1:])
    if len(application.outputs) == 1:
        return _apart(result, application.outputs[0])
    return mx.sym.Group([_apart(each, shape)
                         for each, shape in zip(result, application.outputs)])


def _ctc(application: Application) -> mx.sym.Symbol:
    """Scores (T, B, C), labels (B, L), and lengths (B,) perhaps."""
    scores, *others = application.batched_inputs()
    shapes = [value.shape for value in application.inputs]
    result = application.apply(
        _side_by_side(scores, shapes[0]),
        *[mx.sym.reshape(each, shape=(-1,) + shape[1:])
          for each, shape in zip(others, shapes[1:])])
    return _shaped(result[0], application.outputs[0])


def _dropout(application: Application) -> Optional[mx.sym.Symbol]:
    axes = tuple_of(application.node, 'axes')
    if not axes:
        return None
    return application.apply(application.inputs[0].symbol, axes=tuple(
        axis % application.rank + 1 for axis in axes))


def _size(shape: Sequence[int]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


def _table(rule: Callable, names: str) -> Dict[str, Callable]:
    return dict.fromkeys(names.split(), rule)


LIFTS: Dict[str, Callable[[Application], Optional[mx.sym.Symbol]]] = {
    **_table(_alike, UNARY + ' _contrib_div_sqrt_dim'), **_table(_elementwise, BINARY),
    **_table(_reduction, 'sum mean prod nansum nanprod max min norm sum_axis max_axis min_axis'),
    **_table(_along_first('axis', -1), 'softmax log_softmax softmin LayerNorm'),
    **_table(_or_all('axis', -1), 'argsort sort topk'),
    **_table(_or_all('axis', None), 'argmax argmin repeat'),
    **_table(_later('dim', 1), 'Concat concat'), **_table(_later('axis', None), 'slice_axis'),
    **_table(_later('axis', -1), 'pick'),
    **_table(_reshaped, 'Reshape reshape Flatten flatten reshape_like expand_dims squeeze'),
    **_table(_swapaxes, 'SwapAxis swapaxes'), **_table(_split, 'SliceChannel split'),
    **_table(_broadcast_to, 'broadcast_to broadcast_axis broadcast_axes broadcast_like'),
    **_table(_sequence, 'SequenceMask SequenceLast SequenceReverse'),
    **_table(_batch_dot, 'batch_dot'),
    'stack': _stack, 'slice': _slice, 'slice_like': _slice_like, 'transpose': _transpose,
    '_split_v2': _split_v2, 'tile': _tile, 'reverse': _reverse, 'dot': _dot, 'take': _take,
    **_table(_matrices, '''
        _linalg_det _linalg_inverse _linalg_gelqf _linalg_gemm _linalg_gemm2 _linalg_potrf
        _linalg_potri _linalg_slogdet _linalg_sumlogdiag _linalg_syrk _linalg_trmm _linalg_trsm
        _linalg_extractdiag _linalg_extracttrian'''),
    **_table(_vectors, '_linalg_makediag _linalg_maketrian'),
    'RNN': _rnn, '_contrib_CTCLoss': _ctc, 'CTCLoss': _ctc, 'ctc_loss': _ctc,
    'where': _where, 'FullyConnected': _fully_connected, 'Dropout': _dropout,
}
