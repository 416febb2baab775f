"""NumPy's operators of exported models against MXNet's, with random shapes and attributes."""

import random

import mxnet as mx
import numpy as np
import pytest

from gluon_edbatch_core.bundle.numpy_operators import OPERATORS


def _shape(draw, least=1, most=4):
    return tuple([draw.randint(1, 4) for _ in range(draw.randint(least, most))])


def _numbers(draw, shape, kind='any'):
    made = np.random.RandomState(draw.randrange(1 << 30)).normal(size=shape) * 1.5
    if kind == 'positive':
        made = np.abs(made) + 0.1
    if kind == 'unit':
        made = np.tanh(made)
    if kind == 'over':
        made = np.abs(made) + 1.1
    if kind == 'whole':
        made = np.round(made)
    return made.astype(np.float32)


def _axis(draw, rank, none=True):
    return draw.choice([None] * none + list(range(-rank, rank)))


def _axes(draw, rank):
    if draw.random() < 0.3:
        return _axis(draw, rank)
    found = draw.sample(range(rank), draw.randint(1, rank))
    return tuple([each - rank if draw.random() < 0.3 else each for each in found])


_SIMPLE = {
    **dict.fromkeys('log sqrt reciprocal rsqrt cbrt rcbrt log2 log10 log1p'.split(), 'positive'),
    **dict.fromkeys('arcsin arccos arctanh'.split(), 'unit'), 'arccosh': 'over',
    **dict.fromkeys('logical_not sign'.split(), 'whole'),
    **dict.fromkeys(
        'abs negative exp square sin cos tan arctan sinh cosh arcsinh floor ceil trunc rint expm1 '
        'degrees radians _copy identity BlockGrad make_loss erf round fix hard_sigmoid zeros_like '
        'ones_like sigmoid tanh relu softsign argmax_channel'.split(), 'any'),
}  # fmt: skip
_WHOLE = (
    'equal not_equal greater greater_equal lesser lesser_equal logical_and logical_or logical_xor '
    'mod'
)
_BINARY = dict.fromkeys(_WHOLE.split(), 'whole')
_BINARY.update(dict.fromkeys('add sub mul maximum minimum hypot'.split(), 'any'))
_BINARY.update(div='positive', power='positive')


def _simple(name):
    def case(draw):
        shape = _shape(draw, 2) if name == 'argmax_channel' else _shape(draw)
        return [_numbers(draw, shape, _SIMPLE[name])], {}

    return case


def _wide(name):
    def case(draw):
        shape = _shape(draw)
        one, other = [tuple([1 if draw.random() < 0.3 else size for size in shape])
                      for _ in range(2)]  # fmt: skip
        kind = _BINARY[name]
        return [_numbers(draw, one, kind), _numbers(draw, other, kind)], {}

    return case


def _same(name):
    def case(draw):
        shape = _shape(draw)
        return [_numbers(draw, shape, _BINARY.get(name, 'any')) for _ in range(2)], {}

    return case


def _scalar(kind):
    def case(draw):
        number = draw.choice([-2.0, 0.5, 1.0, 3.0]) if kind != 'positive' else 1.5
        return [_numbers(draw, _shape(draw), kind)], {'scalar': number}

    return case


def _reduced(draw):
    x = _numbers(draw, _shape(draw))
    attrs = {'axis': _axes(draw, x.ndim), 'keepdims': draw.random() < 0.5}
    whole = attrs['axis'] is None or len(np.atleast_1d(attrs['axis'])) == x.ndim
    if draw.random() < 0.3 and not whole:
        attrs['exclude'] = True
    return [x], attrs


def _found(draw):
    x = _numbers(draw, _shape(draw))
    return [x], {'axis': _axis(draw, x.ndim), 'keepdims': draw.random() < 0.5}


def _along(draw, **attrs):
    x = _numbers(draw, _shape(draw))
    return [x], {'axis': _axis(draw, x.ndim, none=False), **attrs}


def _softmax(draw):
    return _along(draw, **({'temperature': 0.7} if draw.random() < 0.4 else {}))


def _reshape(draw):
    shape = _shape(draw, 2)
    last = shape[-1]
    wanted = draw.choice([
        (-1,), (0, -1), (0, -2), (-2, 1), (-3, -2), (*[0] * (len(shape) - 1), -4, 1, last),
        (*[0] * (len(shape) - 1), -4, -1, last), tuple(shape[::-1]), (-4, 1, -1, -2),
    ])  # fmt: skip
    return [_numbers(draw, shape)], {'shape': wanted}


def _sliced(draw):
    shape = _shape(draw)
    begins, ends, steps = [], [], []
    for size in shape[: draw.randint(1, len(shape))]:
        begin, end = sorted(draw.sample(range(size + 1), 2))
        step = draw.choice([None, 1, 2, -1])
        if step == -1:
            begin, end = end - 1, begin - 1
            end = None if end < 0 else end
        elif draw.random() < 0.3:
            begin, end = (None, end) if draw.random() < 0.5 else (begin, None)
        elif draw.random() < 0.3:
            begin -= size
        begins.append(begin), ends.append(end), steps.append(step)
    attrs = {'begin': tuple(begins), 'end': tuple(ends)}
    if any(steps):
        attrs['step'] = tuple(steps)
    return [_numbers(draw, shape)], attrs


def _slice_axis(draw):
    x = _numbers(draw, _shape(draw))
    axis = _axis(draw, x.ndim, none=False)
    size = x.shape[axis]
    begin, end = sorted(draw.sample(range(size + 1), 2))
    if draw.random() < 0.4:
        begin -= size
    return [x], {'axis': axis, 'begin': begin, 'end': None if end == size else end}


def _take(draw):
    x = _numbers(draw, _shape(draw))
    attrs = {'axis': _axis(draw, x.ndim, none=False)}
    if draw.random() < 0.6:
        attrs['mode'] = draw.choice(['clip', 'wrap'])
    return [x, _numbers(draw, _shape(draw, 1, 3), 'whole') * 2], attrs


def _pick(draw):
    x = _numbers(draw, _shape(draw, 2))
    axis = _axis(draw, x.ndim, none=False)
    shape = list(x.shape)
    del shape[axis % x.ndim]
    keep = draw.random() < 0.5
    if draw.random() < 0.5:
        shape.insert(axis % x.ndim, 1)
    attrs = {'axis': axis, 'keepdims': keep}
    if draw.random() < 0.4:
        attrs['mode'] = 'wrap'
    return [x, _numbers(draw, shape, 'whole')], attrs


def _gathered(draw):
    x = _numbers(draw, _shape(draw))
    axes, shape = draw.randint(1, x.ndim), _shape(draw, 1, 2)
    places = [np.random.RandomState(draw.randrange(99)).randint(-size, size, shape)
              for size in x.shape[:axes]]  # fmt: skip
    return [x, np.array(places, 'f')], {}


def _dot(draw):
    first, second = draw.random() < 0.5, draw.random() < 0.5
    k = draw.randint(1, 4)
    one, other = list(_shape(draw, 0, 2)), list(_shape(draw, 0, 2))
    if not one or not other:
        first = second = False
    if not other and one:
        one = one[:1]
    if not one and other:
        other, one = other[:1], [2]
    a = [k, *one] if first else [*one, k]
    b = [*other, k] if second else [k, *other]
    return [_numbers(draw, a), _numbers(draw, b)], {'transpose_a': first, 'transpose_b': second}


def _batch_dot(draw):
    n, k, m, p = [draw.randint(1, 4) for _ in range(4)]
    first, second = draw.random() < 0.5, draw.random() < 0.5
    a, b = (n, k, m) if first else (n, m, k), (n, p, k) if second else (n, k, p)
    return [_numbers(draw, a), _numbers(draw, b)], {'transpose_a': first, 'transpose_b': second}


def _norm(draw):
    (x,), attrs = _reduced(draw)
    attrs.pop('exclude', None)
    if isinstance(attrs['axis'], tuple):
        attrs['axis'] = attrs['axis'][:2]
    return [x], {**attrs, 'ord': draw.choice([1, 2])}


def _where(draw):
    shape = _shape(draw, 2)
    condition = _numbers(draw, draw.choice([shape, shape[:1]]), 'whole')
    return [condition, _numbers(draw, shape), _numbers(draw, shape)], {}


def _widened(draw):
    shape = _shape(draw)
    axes = draw.sample(range(len(shape)), draw.randint(1, len(shape)))
    given = [1 if axis in axes else size for axis, size in enumerate(shape)]
    return _numbers(draw, given), shape, tuple(axes)


def _broadcast_axis(draw):
    x, shape, axes = _widened(draw)
    return [x], {'axis': axes, 'size': tuple([shape[axis] for axis in axes])}


def _broadcast_to(draw):
    x, shape, axes = _widened(draw)
    return [x], {'shape': tuple([size if axis in axes or draw.random() < 0.5 else 0
                                 for axis, size in enumerate(shape)])}  # fmt: skip


def _broadcast_like(draw):
    x, shape, axes = _widened(draw)
    if draw.random() < 0.5:
        return [x, _numbers(draw, shape)], {}
    return [x, _numbers(draw, shape)], {'lhs_axes': axes, 'rhs_axes': axes}


def _slice_like(draw):
    shape = _shape(draw)
    like = [draw.randint(1, size) for size in shape]
    if draw.random() < 0.5:
        return [_numbers(draw, shape), _numbers(draw, like)], {}
    axes = tuple(draw.sample(range(len(shape)), draw.randint(1, len(shape))))
    return [_numbers(draw, shape), _numbers(draw, like)], {'axes': axes}


def _split(draw):
    shape, parts = list(_shape(draw)), draw.randint(2, 3)
    axis = draw.randrange(len(shape))
    squeeze = draw.random() < 0.4 and len(shape) > 1
    shape[axis] = parts if squeeze else shape[axis] * parts
    return [_numbers(draw, shape)], {'num_outputs': parts, 'axis': axis, 'squeeze_axis': squeeze}


def _joined(name):
    def case(draw):
        shape = list(_shape(draw))
        axis = draw.randrange(len(shape)) if name == 'dim' else draw.randint(0, len(shape))
        arrays = []
        for _ in range(draw.randint(1, 3)):
            if name == 'dim':
                shape[axis] = draw.randint(1, 3)
            arrays.append(_numbers(draw, shape))
        return arrays, {name: axis}

    return case


def _convolution(draw):
    rank, groups = draw.choice([1, 2]), draw.choice([1, 1, 2])
    channels, filters = groups * draw.randint(1, 3), groups * draw.randint(1, 3)
    kernel = tuple([draw.randint(1, 3) for _ in range(rank)])
    several = [tuple([draw.randint(*bounds) for _ in range(rank)]) for bounds in
               ((1, 2), (0, 2), (1, 2))]  # fmt: skip
    attrs = dict(zip(('stride', 'pad', 'dilate'), several), kernel=kernel, num_filter=filters,
                 num_group=groups, no_bias=draw.random() < 0.5)  # fmt: skip
    x = _numbers(draw, (draw.randint(1, 3), channels, *[draw.randint(6, 9) for _ in range(rank)]))
    weight = _numbers(draw, (filters, channels // groups, *kernel))
    return [x, weight] + [_numbers(draw, (filters,))] * (not attrs['no_bias']), attrs


def _pooling(draw):
    rank = draw.choice([1, 2])
    kernel = tuple([draw.randint(1, 3) for _ in range(rank)])
    x = _numbers(draw, (draw.randint(1, 2), 2, *[draw.randint(4, 8) for _ in range(rank)]))
    attrs = {'kernel': kernel, 'pool_type': draw.choice(['max', 'avg', 'sum'])}
    if draw.random() < 0.2:
        return [x], {**attrs, 'global_pool': True}
    attrs.update(stride=tuple([draw.randint(1, 3) for _ in range(rank)]),
                 pad=tuple([draw.randint(0, size - 1) for size in kernel]),
                 pooling_convention=draw.choice(['valid', 'full']),
                 count_include_pad=draw.random() < 0.5)  # fmt: skip
    if attrs['pool_type'] == 'sum':
        attrs['pooling_convention'] = 'valid'
    return [x], attrs


def _batch_norm(draw):
    x = _numbers(draw, _shape(draw, 2, 4))
    axis = draw.randrange(x.ndim)
    size = x.shape[axis]
    arrays = [_numbers(draw, (size,)) for _ in range(3)] + [_numbers(draw, (size,), 'positive')]
    return [x, *arrays], {'axis': axis, 'eps': 1e-3, 'fix_gamma': draw.random() < 0.5,
                          'use_global_stats': True}  # fmt: skip


def _layer_norm(draw):
    x = _numbers(draw, _shape(draw, 2))
    axis = draw.choice([-1, draw.randrange(x.ndim)])
    return [x, *[_numbers(draw, (x.shape[axis],)) for _ in range(2)]], {'axis': axis}


def _rnn(draw):
    mode = draw.choice(['lstm', 'gru', 'rnn_tanh', 'rnn_relu'])
    t, n, c, size, layers, both = [draw.randint(1, 3) for _ in range(5)] + [draw.random() < 0.5]
    gates, ways, weights = {'lstm': 4, 'gru': 3}.get(mode, 1), 1 + both, 0
    for layer in range(layers):
        inputs = c if layer == 0 else size * ways
        weights += ways * gates * size * (inputs + size + 2)
    states = [_numbers(draw, (layers * ways, n, size)) for _ in range(1 + (mode == 'lstm'))]
    return [_numbers(draw, (t, n, c)), _numbers(draw, (weights,)), *states], {
        'mode': mode, 'state_size': size, 'num_layers': layers, 'bidirectional': both,
        'state_outputs': True,
    }  # fmt: skip


def _fully_connected(draw):
    x, flat, bias = _numbers(draw, _shape(draw, 2)), draw.random() < 0.5, draw.random() < 0.5
    inner = x[0].size if flat else x.shape[-1]
    arrays = [x, _numbers(draw, (3, inner))] + [_numbers(draw, (3,))] * bias
    return arrays, {'num_hidden': 3, 'flatten': flat, 'no_bias': not bias}


def _expand(draw):
    x = _numbers(draw, _shape(draw, 1, 3))
    return [x], {'axis': draw.randint(-x.ndim - 1, x.ndim)}


def _squeezed(draw):
    shape = [1 if draw.random() < 0.5 else size for size in _shape(draw)]
    ones = [axis for axis, size in enumerate(shape) if size == 1]
    axis = draw.choice([None, *([tuple(ones)] if ones else []), *ones])
    return [_numbers(draw, shape)], {'axis': axis} if axis is not None else {}


def _swapped(draw):
    x = _numbers(draw, _shape(draw, 2))
    return [x], {'dim1': draw.randrange(x.ndim), 'dim2': draw.randrange(x.ndim)}


def _transposed(draw):
    x = _numbers(draw, _shape(draw))
    axes = tuple(draw.sample(range(x.ndim), x.ndim))
    return [x], {'axes': axes} if draw.random() < 0.7 else {}


def _mask(draw):
    x, axis = _numbers(draw, _shape(draw, 2)), draw.choice([0, 1])
    lengths = np.array([draw.randint(1, x.shape[axis]) for _ in range(x.shape[1 - axis])], 'f')
    return [x, lengths], {'use_sequence_length': True, 'axis': axis, 'value': 0.5}


def _top(draw):
    (x,), attrs = _along(draw, ret_typ=draw.choice(['indices', 'value']))
    return [x], {**attrs, 'k': draw.randint(1, x.shape[attrs['axis']]),
                 'is_ascend': draw.random() < 0.5}  # fmt: skip


CASES = {
    **{name: _simple(name) for name in _SIMPLE},
    **{f'broadcast_{name}': _wide(name) for name in _BINARY},
    **{f'elemwise_{name}': _same(name) for name in ('add', 'sub', 'mul', 'div')},
    **{f'_{name}': _same(name) for name in _BINARY if name not in ('add', 'sub', 'mul', 'div')},
    **{f'_{name}_scalar': _scalar(kind) for name, kind in _BINARY.items()
       if name not in ('add', 'sub')},
    **{f'_{name}_scalar': _scalar('positive') for name in
       'plus minus rminus rdiv rpower rmod'.split()},
    **dict.fromkeys('sum mean max min prod nansum'.split(), _reduced),
    **dict.fromkeys(['argmax', 'argmin'], _found),
    **dict.fromkeys(['softmax', 'log_softmax', 'softmin'], _softmax),
    **dict.fromkeys(['sort', 'argsort'], lambda draw: _along(draw, is_ascend=draw.random() < 0.5)),
    'Reshape': _reshape, 'slice': _sliced, 'slice_axis': _slice_axis, 'take': _take,
    'pick': _pick, 'gather_nd': _gathered, 'dot': _dot, 'batch_dot': _batch_dot, 'norm': _norm,
    'where': _where,
    'broadcast_axis': _broadcast_axis, 'broadcast_to': _broadcast_to,
    'broadcast_like': _broadcast_like, 'slice_like': _slice_like, 'SliceChannel': _split,
    'Concat': _joined('dim'), 'stack': _joined('axis'), 'Convolution': _convolution,
    'Pooling': _pooling, 'BatchNorm': _batch_norm, 'LayerNorm': _layer_norm, 'RNN': _rnn,
    'FullyConnected': _fully_connected, 'expand_dims': _expand, 'squeeze': _squeezed,
    'SwapAxis': _swapped, 'transpose': _transposed, 'SequenceMask': _mask, 'topk': _top,
    'reverse': lambda draw: (lambda x: ([x], {'axis': draw.randrange(x.ndim)}))(
        _numbers(draw, _shape(draw))),
    'tile': lambda draw: ([_numbers(draw, _shape(draw, 1, 2))],
                          {'reps': tuple(_shape(draw, 1, 2))}),
    'repeat': lambda draw: (lambda x: ([x], {'repeats': draw.randint(1, 3),
                                             'axis': _axis(draw, x.ndim)}))(
        _numbers(draw, _shape(draw))),
    'one_hot': lambda draw: ([_numbers(draw, _shape(draw, 1, 3), 'whole')],
                             {'depth': 3, 'on_value': 2.0, 'off_value': 0.5}),
    'reshape_like': lambda draw: (lambda x: ([x, x.reshape(-1)], {}))(
        _numbers(draw, _shape(draw))),
    'Flatten': lambda draw: ([_numbers(draw, _shape(draw, 2))], {}),
    'add_n': lambda draw: ([_numbers(draw, (2, 3)) for _ in range(draw.randint(1, 4))], {}),
    'clip': lambda draw: ([_numbers(draw, _shape(draw))], {'a_min': -0.5, 'a_max': 1.0}),
    'smooth_l1': lambda draw: ([_numbers(draw, _shape(draw))],
                               {'scalar': draw.choice([0.5, 1.0, 2.0])}),
    'L2Normalization': lambda draw: ([_numbers(draw, _shape(draw, 3))],
                                     {'mode': draw.choice(['instance', 'channel', 'spatial'])}),
    'Activation': lambda draw: ([_numbers(draw, _shape(draw))], {'act_type': draw.choice(
        ['relu', 'sigmoid', 'tanh', 'softrelu', 'softsign'])}),
    'LeakyReLU': lambda draw: ([_numbers(draw, _shape(draw, 2))],
                               {'act_type': draw.choice(['leaky', 'elu', 'gelu']), 'slope': 0.3}),
    'Dropout': lambda draw: ([_numbers(draw, _shape(draw))], {'p': 0.5}),
    'Embedding': lambda draw: ([np.array([0, 2, 1], 'f'), _numbers(draw, (3, 4))],
                               {'input_dim': 3, 'output_dim': 4}),
    'Cast': lambda draw: ([_numbers(draw, _shape(draw)) + 5], {'dtype': 'int32'}),
    '_rnn_param_concat': lambda draw: ([_numbers(draw, (3,)), _numbers(draw, (2,))], {'dim': 0}),
    '_zeros': lambda draw: ([], {'shape': _shape(draw)}),
    '_ones': lambda draw: ([], {'shape': _shape(draw)}),
}  # fmt: skip
_NOT_MXNETS = {'item', 'at', *[f'_{name}_scalar' for name in ('add', 'sub')]}


@pytest.mark.parametrize('name', sorted(set(OPERATORS) - _NOT_MXNETS))
def test_as_eager_mxnet(name):
    function = getattr(mx.nd, name, None) or getattr(mx.nd._internal, name)
    for number in range(40):
        draw = random.Random(f'{name}:{number}')
        arrays, attrs = CASES[name](draw)
        wanted = function(*[mx.nd.array(each) for each in arrays], **attrs)
        wanted = wanted if isinstance(wanted, list) else [wanted]
        stored = {key: list(each) if isinstance(each, tuple) else each
                  for key, each in attrs.items()}  # fmt: skip
        found = OPERATORS[name].make(stored)(*arrays)
        found = found if isinstance(found, list) else [found]
        for mine, each in zip(found, wanted):
            mine = np.atleast_1d(mine)
            where = f'{name}:{number} {[each.shape for each in arrays]} {attrs}'
            assert mine.shape == each.shape, f'{where}: {mine.shape} and {each.shape}'
            np.testing.assert_allclose(
                mine, each.asnumpy(), 1e-4, 1e-5, equal_nan=True, err_msg=where
            )
            assert mine.dtype == each.dtype, where
