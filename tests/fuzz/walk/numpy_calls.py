"""Calls of NumPy mode as users write them: Python in which ``a``, ``b``, … are a case's arrays.

A function, method or idiom has a name, as `Operator`s have, and a maker, which draws its arrays and
writes the call. Functions of ``mx.npx`` are called as the operators are that they are names of.
"""

from collections.abc import Sequence
from typing import Any, Callable

import mxnet as mx

from gluon_edbatch.mx.invoke import operator_handle, operator_name

from .cases import Draw, Input
from .makers import MAKERS
from .registry import Operator

Written = Callable[[Draw, str], list[Input]]
_NAMES = 'abcdefgh'
_DTYPES = ('float32',) * 11 + ('float64',) * 4 + ('float16', 'int32', 'int64', 'bool', 'uint8')
_METHODS = (
    'all any argmax argmin argsort clip copy cumsum diagonal max mean min prod repeat reshape '
    'round sort squeeze std sum swapaxes transpose var'
).split()
_WRITTEN: dict[str, Written] = {}


def functions() -> dict[str, Operator]:
    """What users call in NumPy mode, by name."""
    found = {name: Operator(name, (name,), (), (), '', True) for name in _WRITTEN}
    for name in sorted(mx.operator.get_all_registered_operators()):
        own = operator_name(operator_handle(name))
        if name.startswith('_npx_') and hasattr(mx.npx, name[5:]) and own in MAKERS:
            function = f'npx.{name[5:]}'
            found.setdefault(function, Operator(function, (function,), (), (), '', True))
    return dict(sorted(found.items()))


def write(draw: Draw, operator: Operator) -> list[Input]:
    """Draw a call: its arrays; ``draw.code`` is what is written."""
    draw.dtypes = _DTYPES
    maker = _WRITTEN.get(operator.name)
    if maker is not None:
        return maker(draw, operator.name)
    inputs = MAKERS[operator_name(operator_handle(f'_npx_{operator.name[4:]}'))](draw)
    options = {key: value for key, value in draw.attrs.items() if key != 'num_args'}
    draw.attrs.clear()
    _call(draw, operator.name, *_NAMES[: len(inputs)], **options)
    return inputs


def _for(names: str, prefix: str = '') -> Callable[[Written], Written]:
    def register(maker: Written) -> Written:
        _WRITTEN.update(dict.fromkeys([prefix + name for name in names.split()], maker))
        return maker

    return register


def _call(draw: Draw, function: str, *arguments: Any, **options: Any) -> None:
    named = [f'{key}={value!r}' for key, value in options.items()]
    draw.code = f'{function}({", ".join([*map(str, arguments), *named])})'


def _method(draw: Draw, name: str, *arguments: Any, **options: Any) -> None:
    """The function, or the method of the same name."""
    if name[3:] in _METHODS and draw.flag():
        _call(draw, f'a.{name[3:]}', *arguments, **options)
    else:
        _call(draw, name, 'a', *arguments, **options)


def _shape(draw: Draw, least: int = 0, most: int = 4) -> tuple[int, ...]:
    """Return the shape of an array; now and then without axes, or without elements."""
    shape = draw.shape(max(least, 1), most)
    if not least and draw.flag(0.12):
        return ()
    if draw.flag(0.06):
        axis = draw.number(0, len(shape) - 1)
        shape = shape[:axis] + (0,) + shape[axis + 1 :]
    return shape


def _some(draw: Draw, **choices: Sequence[Any]) -> dict[str, Any]:
    """Draw some of these options."""
    return {name: draw.pick(values) for name, values in choices.items() if draw.flag(0.6)}


def _one(draw: Draw, *shape: int, **facts: Any) -> list[Input]:
    return [Input(tuple(shape), **facts)]


# --- elementwise ---------------------------------------------------------------------------------

_UNARY = """abs absolute cbrt ceil copy cos cosh deg2rad degrees exp expm1 fabs fix floor invert
bitwise_not isfinite isinf isnan isneginf isposinf logical_not negative rad2deg radians rint sign
sin sinh square tan tanh trunc nan_to_num ones_like zeros_like ndim shape size ravel around round
round_ atleast_1d atleast_2d atleast_3d"""


@_for(_UNARY, 'np.')
def _(draw, name):
    _method(draw, name)
    return _one(draw, *_shape(draw))


@_for('log log2 log10 log1p sqrt reciprocal', 'np.')
def _(draw, name):
    _method(draw, name)
    return _one(draw, *_shape(draw), sort='positive')


@_for('arcsin arccos arctanh arctan arcsinh', 'np.')
def _(draw, name):
    _method(draw, name)
    return _one(draw, *_shape(draw), sort='unit')


@_for('np.arccosh')
def _(draw, name):
    _method(draw, name)
    return _one(draw, *_shape(draw), sort='large')


@_for('relu sigmoid erf gamma gammaln smooth_l1 nonzero shape_array', 'npx.')
def _(draw, name):
    _call(draw, name, 'a')
    return _one(draw, *_shape(draw), sort='positive')


@_for('np.clip')
def _(draw, name):
    low, high = draw.pick([-1, None, -0.5]), draw.pick([1, 0.3])
    _method(draw, name, low, high)
    return _one(draw, *_shape(draw))


@_for('np.full_like')
def _(draw, name):
    _call(draw, name, 'a', draw.pick([0, 1, 2.5, True]), **_some(draw, dtype=['float32', 'int32']))
    return _one(draw, *_shape(draw))


@_for('ndarray.astype npx.cast')
def _(draw, name):
    dtype = draw.pick(_DTYPES)
    draw.code = (
        f'a.astype({dtype!r})' if name[0] == 'n' and draw.flag() else f'npx.cast(a, {dtype!r})'
    )
    return _one(draw, *_shape(draw))


def _pair(draw: Draw) -> list[Input]:
    """Arrays that may be broadcast to one shape, sometimes of two dtypes."""
    shape = _shape(draw)
    other = tuple([1 if draw.flag(0.3) else length for length in shape])[draw.number(0, 1) :]
    inputs = [
        Input(other if draw.flag(0.5) else shape),
        Input(shape, shared=draw.flag(0.2), dtype='' if draw.flag(0.7) else draw.pick(_DTYPES)),
    ]
    return inputs[:: draw.pick([1, -1])]


def _operands(draw: Draw, inputs: list[Input]) -> list[str]:
    """The names of two arrays, or that of one and a number."""
    number = str(draw.pick([2, 2.5, -1, 0, True, 'onp.float32(0.5)', 'onp.ones((1,), "float32")']))
    if draw.flag(0.3):
        del inputs[1]
        return ['a', number] if draw.flag() else [number, 'a']
    return ['a', 'b']


_BINARY = """add arctan2 bitwise_and bitwise_or bitwise_xor copysign divide equal greater
greater_equal hypot lcm ldexp less less_equal maximum minimum mod multiply not_equal power
remainder subtract true_divide isclose array_equal allclose"""


@_for(_BINARY, 'np.')
def _(draw, name):
    inputs = _pair(draw)
    _call(draw, name, *_operands(draw, inputs))
    return inputs


@_for('+ - * / % ** == != < <= > >= & | ^')
def _(draw, name):
    inputs = _pair(draw)
    one, other = _operands(draw, inputs)
    draw.code = f'{one} {name} {other}'
    return inputs


@_for('+= -= *= /= %=')
def _(draw, name):
    shape = _shape(draw)
    other = '2' if draw.flag(0.3) else 'b'
    draw.block = False
    draw.code = f'x = a * 1\nx {name} {other}\nreturn x, a'
    return [Input(shape)] + [Input(shape[draw.number(0, 1) :])] * (other == 'b')


@_for('abs -a ~a')
def _(draw, name):
    draw.code = 'abs(a)' if name == 'abs' else name
    return _one(draw, *_shape(draw))


# --- along axes ----------------------------------------------------------------------------------


@_for('sum prod max min amax amin mean std var all any median nansum nanmax', 'np.')
def _(draw, name):
    shape = _shape(draw)
    options = _some(draw, keepdims=[True, False])
    if shape and draw.flag(0.8):
        options['axis'] = draw.axes(len(shape))
    if name in ('np.std', 'np.var'):
        options.update(_some(draw, ddof=[0, 1]))
    if name in ('np.sum', 'np.prod', 'np.mean') and draw.flag(0.15):
        options['dtype'] = draw.pick(['float32', 'float64', 'int32'])
    _method(draw, name, **options)
    return _one(draw, *shape)


@_for('argmax argmin cumsum sort argsort', 'np.')
def _(draw, name):
    shape = _shape(draw)
    options = {'axis': draw.axis(len(shape), none=True)} if shape and draw.flag(0.8) else {}
    _method(draw, name, **options)
    return _one(draw, *shape)


@_for('np.average')
def _(draw, name):
    shape = _shape(draw, 1)
    axis = draw.axis(len(shape), none=True)
    weighted = draw.flag()
    _call(draw, name, 'a', axis=axis, **_some(draw, returned=[True, False]))
    if weighted:
        draw.code = draw.code.replace('(a', '(a, weights=b', 1)
    weight = shape if axis is None or draw.flag() else (shape[axis],)
    return [Input(shape)] + [Input(weight, 'positive')] * weighted


@_for('np.linalg.norm')
def _(draw, name):
    shape = _shape(draw, 1)
    options = _some(draw, keepdims=[True, False], ord=[None, 2, 1, 'fro', 'inf'])
    if draw.flag(0.7):
        options['axis'] = draw.axes(len(shape))
    _call(draw, name, 'a', **options)
    return _one(draw, *shape)


@_for('np.percentile np.quantile')
def _(draw, name):
    shape = _shape(draw, 1)
    times = 100 if name == 'np.percentile' else 1
    _call(draw, name, 'a', draw.pick([0.5, 0.25]) * times, axis=draw.axis(len(shape), none=True))
    return _one(draw, *shape)


@_for('diff ediff1d trace diagonal', 'np.')
def _(draw, name):
    _call(draw, name, 'a', **(_some(draw, n=[1, 2]) if name == 'np.diff' else {}))
    return _one(draw, *_shape(draw, 1 if name in ('np.diff', 'np.ediff1d') else 2))


# --- joined and taken apart ----------------------------------------------------------------------


@_for('concatenate append stack vstack hstack dstack column_stack row_stack', 'np.')
def _(draw, name):
    shape = _shape(draw, 0 if name == 'np.stack' else 1, 3)
    count = 2 if name == 'np.append' else draw.number(1, 3)
    options, shapes = {}, [shape] * count
    if name in ('np.concatenate', 'np.append'):
        axis = draw.axis(len(shape), none=True)
        options = {'axis': axis}
        if axis is not None:
            at = axis % len(shape)
            shapes = [shape[:at] + (draw.number(1, 3),) + shape[at + 1 :] for _ in range(count)]
    elif name == 'np.stack':
        options = {'axis': draw.number(-len(shape) - 1, len(shape))}
    names = ', '.join(_NAMES[:count])
    arguments = names if name == 'np.append' else draw.pick([f'[{names}]', f'({names},)'])
    _call(draw, name, arguments, **options)
    return [Input(each, shared=i > 0 and draw.flag(0.2)) for i, each in enumerate(shapes)]


@_for('split array_split hsplit vsplit dsplit', 'np.')
def _(draw, name):
    shape = list(_shape(draw, 3 if name == 'np.dsplit' else 1))
    axis = {'np.hsplit': min(1, len(shape) - 1), 'np.vsplit': 0, 'np.dsplit': 2}.get(
        name, draw.axis(len(shape))
    )
    shape[axis] = 4
    parts = draw.pick([2, 4, 1, [1], (1, 3), [1, 1]])
    _call(
        draw, name, 'a', parts, **({'axis': axis} if name[3:] in ('split', 'array_split') else {})
    )
    return _one(draw, *shape)


@_for('np.broadcast_arrays np.meshgrid')
def _(draw, name):
    _call(draw, name, 'a', 'b')
    return [Input((draw.number(1, 3),)), Input((1,))]


# --- shapes --------------------------------------------------------------------------------------


@_for('np.reshape npx.reshape')
def _(draw, name):
    shape = _shape(draw)
    wanted = draw.pick(
        [(-1,), (1, -1), (_size(shape),), (-1, 1), shape[::-1], -1, (1,) * 3 + (-1,)]
    )
    if name == 'npx.reshape':
        wanted = draw.pick(
            [(-2, -1), (-4,), (-5, -4), (-2, -2, -1), (-1, -5), (-3, -4), (-6, 1, -1, -4)]
        )
        _call(draw, name, 'a', wanted, **_some(draw, reverse=[False, False, True]))
    elif draw.flag() and isinstance(wanted, tuple) and wanted:
        _call(draw, 'a.reshape', *wanted)
    else:
        _method(draw, name, wanted)
    return _one(draw, *shape)


def _size(shape: Sequence[int]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


@_for('transpose T swapaxes moveaxis rollaxis', 'np.')
def _(draw, name):
    shape = _shape(draw, 0 if name in ('np.transpose', 'np.T') else 1)
    rank = len(shape)
    if name == 'np.T':
        draw.code = 'a.T'
    elif name == 'np.transpose':
        axes = tuple(draw.random.permutation(rank).tolist()) if draw.flag(0.8) else None
        if axes and draw.flag():
            _call(draw, 'a.transpose', *axes)
        else:
            _method(draw, name, *[axes] * (axes is not None))
    else:
        _method(draw, name, draw.axis(rank), draw.axis(rank))
    return _one(draw, *shape)


@_for('np.expand_dims')
def _(draw, name):
    shape = _shape(draw)
    _call(draw, name, 'a', draw.number(-len(shape) - 1, len(shape)))
    return _one(draw, *shape)


@_for('np.squeeze')
def _(draw, name):
    shape = tuple(draw.pick([1, 1, 2]) for _ in range(draw.number(0, 4)))
    ones = [axis for axis, length in enumerate(shape) if length == 1]
    _method(draw, name, **({'axis': draw.pick(ones)} if ones and draw.flag() else {}))
    return _one(draw, *shape)


@_for('np.broadcast_to')
def _(draw, name):
    shape = _shape(draw, 0, 3)
    wanted = (2,) * draw.number(0, 2) + tuple([3 if length == 1 else length for length in shape])
    _call(draw, name, 'a', wanted)
    return _one(draw, *shape)


@_for('flip fliplr flipud roll rot90 repeat tile', 'np.')
def _(draw, name):
    shape = _shape(draw, 2 if name in ('np.fliplr', 'np.rot90') else 1)
    rank = len(shape)
    arguments, options = {
        'np.flip': ((), {'axis': draw.axes(rank)}),
        'np.roll': ((draw.number(-2, 3),), {'axis': draw.axis(rank, none=True)}),
        'np.repeat': ((draw.number(1, 3),), {'axis': draw.axis(rank, none=True)}),
        'np.tile': ((draw.pick([2, (1, 2), (2, 1, 1), (2,)]),), {}),
        'np.rot90': ((draw.number(0, 3),), {}),
    }.get(name, ((), {}))
    _method(draw, name, *arguments, **options)
    return _one(draw, *shape)


@_for('np.pad')
def _(draw, name):
    shape = _shape(draw, 1, 3)
    width = tuple((draw.number(0, 2), draw.number(0, 2)) for _ in shape)
    mode = draw.pick(['constant', 'edge', 'reflect', 'maximum'])
    options = _some(draw, constant_values=[0, 1.5]) if mode == 'constant' else {}
    _call(draw, name, 'a', width, mode=mode, **options)
    return _one(draw, *shape)


@_for('diag diagflat tril triu', 'np.')
def _(draw, name):
    shape = _shape(draw, 1 if name == 'np.diag' else 2, 2 if name.startswith('np.diag') else 3)
    _call(draw, name, 'a', **_some(draw, k=[0, 1, -1]))
    return _one(draw, *shape)


# --- products ------------------------------------------------------------------------------------


@_for('np.dot np.matmul @ ndarray.dot np.inner np.outer np.vdot')
def _(draw, name):
    m, k, n = (draw.number(1, 3) for _ in range(3))
    shapes = [((m, k), (k, n)), ((k,), (k, n)), ((m, k), (k,)), ((k,), (k,))]
    if name in ('np.matmul', '@'):
        shapes += [
            ((2, m, k), (2, k, n)),
            ((2, m, k), (k, n)),
            ((m, k), (2, k, n)),
            ((2, 1, m, k), (3, k, n)),
        ]
    else:
        shapes += [((), (k,)), ((2, m, k), (k, n)), ((m, k), (2, k, n)), ((k,), ()), ((), ())]
    if name in ('np.inner', 'np.vdot'):
        shapes = [((m, k), (m, k)), ((k,), (k,))]
    draw.code = {'@': 'a @ b', 'ndarray.dot': 'a.dot(b)'}.get(name, f'{name}(a, b)')
    which = draw.number(0, 3)
    return [Input(shape, shared=which == i) for i, shape in enumerate(draw.pick(shapes))]


@_for('np.tensordot')
def _(draw, name):
    shapes, axes = draw.pick(
        [
            (((2, 3), (3, 2)), 1),
            (((2, 3), (2, 3)), 2),
            (((2, 3), (4,)), 0),
            (((2, 3), (4, 3)), ((1,), (1,))),
            (((2, 3, 2), (3, 2)), ([1, 2], [0, 1])),
        ]
    )
    _call(draw, name, 'a', 'b', axes=axes)
    return [Input(shape) for shape in shapes]


@_for('np.einsum')
def _(draw, name):
    text, *shapes = draw.pick(
        [
            ('ij,jk->ik', (2, 3), (3, 2)),
            ('ij->ji', (2, 3)),
            ('ij->', (2, 3)),
            ('bij,bjk->bik', (2, 2, 3), (2, 3, 1)),
            ('i,i', (3,), (3,)),
            ('i,j->ij', (3,), (2,)),
            ('...i,...i->...', (2, 3), (2, 3)),
            ('ii->i', (3, 3)),
        ]
    )
    _call(draw, name, repr(text), *_NAMES[: len(shapes)])
    return [Input(shape) for shape in shapes]


@_for('cholesky det inv slogdet eigvalsh eigvals eigh eig svd pinv tensorinv', 'np.linalg.')
def _(draw, name):
    size = draw.number(1, 3)
    _call(draw, name, 'a', **({'ind': 1} if name.endswith('tensorinv') else {}))
    return _one(draw, *draw.shape(0, 2)[: draw.number(0, 1)], size, size, sort='spd')


@_for('solve tensorsolve lstsq', 'np.linalg.')
def _(draw, name):
    size = draw.number(1, 3)
    _call(draw, name, 'a', 'b', **({'rcond': None} if name.endswith('lstsq') else {}))
    return [Input((size, size), 'spd'), Input((size, 2) if name.endswith('solve') else (size,))]


# --- indexing ------------------------------------------------------------------------------------


def _key(draw: Draw, shape: Sequence[int]) -> str:
    """Return an index of numbers, slices, new axes and an ellipsis."""
    keys, ellipsis = [], False
    for length in shape:
        top = max(length, 1)
        kind = draw.number(0, 7)
        if kind < 2:
            keys.append(str(draw.number(-top, top - 1)))
        elif kind < 5:
            begin, end = draw.pick(['', 0, 1, -2, top]), draw.pick(['', top, -1, 1, top + 2])
            keys.append(f'{begin}:{end}' + draw.pick(['', '', ':2', ':-1']))
        elif kind == 5 and not ellipsis:
            ellipsis = True
            keys.append('...')
        elif kind == 6:
            keys += ['None', ':']
        else:
            break
    return ', '.join(keys) or draw.pick(['...', '()', ':', 'None'])


@_for('a[key]')
def _(draw, name):
    shape = _shape(draw)
    draw.code = f'a[{_key(draw, shape)}]'
    return _one(draw, *shape)


@_for('a[array]')
def _(draw, name):
    """By positions and truth values, of the host and of MXNet."""
    shape = _shape(draw, 2, 3)
    top, length = min(max(length, 1) for length in shape), draw.number(1, 3)
    which = [draw.number(0, top - 1) for _ in range(length)]
    key = draw.pick(
        [
            which,
            f'onp.array({which})',
            f'{which}, {which}',
            f':, {which}',
            f'np.array({which}, dtype="int32")',
            'b',
            'a > 0',
            f'onp.arange({shape[0]}) % 2 == 0',
            '0, b',
            f'1:, {which}',
            'b, None',
            'b.astype("int64")',
        ]
    )
    draw.code = f'a[{key}]'
    return [Input(shape), Input((length,), 'index', dtype='int32', top=top)]


@_for('a[key]=b')
def _(draw, name):
    shape = _shape(draw)
    key = _key(draw, shape) if draw.flag(0.8) else draw.pick(['x > 0', '[0, 0]', ':'])
    value = draw.pick(['2', 'b', 'x[...] * 2', 'onp.float32(1)'])
    draw.block = False
    draw.code = f'x = a * 1\nx[{key}] = {value}\nreturn x, a'
    return [Input(shape), Input((1,) * draw.number(0, 1))]


@_for('rows')
def _(draw, name):
    draw.block = False
    draw.code = draw.pick(['list(a)', '[row * 2 for row in a]', 'sum(a)', '(lambda x, *_: x)(*a)'])
    return _one(draw, *_shape(draw, 1))


@_for('np.take ndarray.take')
def _(draw, name):
    shape = _shape(draw, 1)
    axis = draw.axis(len(shape), none=True)
    top = _size(shape) if axis is None else shape[axis]
    function = ('np.take', 'a', 'b') if name == 'np.take' else ('a.take', 'b')
    _call(draw, *function, axis=axis, mode=draw.pick(['clip', 'wrap', 'raise', 'clip']))
    which = draw.pick(['float32', 'int32', 'int64'])
    return [
        Input(shape),
        Input(draw.shape(0, 2)[: draw.number(0, 2)], 'index', dtype=which, top=top),
    ]


@_for('np.take_along_axis')
def _(draw, name):
    shape = _shape(draw, 1, 3)
    _call(draw, name, 'a', 'b', draw.axis(len(shape)))
    return [Input(shape), Input(shape, 'index', dtype='int32', top=min(shape))]


@_for('np.where')
def _(draw, name):
    shape = _shape(draw)
    sides = [draw.pick(['b', 'a', '0', '1.5', 'b * 2', 'True']) for _ in range(2)]
    _call(draw, name, draw.pick(['a > 0', 'a', 'a < b', 'a == 1']), *sides * draw.flag(0.95))
    other = tuple([1 if draw.flag(0.3) else length for length in shape])
    dtype = '' if draw.flag(0.7) else draw.pick(_DTYPES)
    return [Input(shape), Input(other, dtype=dtype, shared=draw.flag(0.2))]


@_for('npx.one_hot')
def _(draw, name):
    options = _some(draw, on_value=[2.0], off_value=[-1.0], dtype=['float32', 'float64', 'int32'])
    _call(draw, name, 'a', draw.number(1, 4), **options)
    which = draw.pick(['float32', 'int32', 'int64'])
    return [Input(_shape(draw, 0, 3), 'index', dtype=which, top=4)]


@_for('npx.pick')
def _(draw, name):
    shape = _shape(draw, 1, 3)
    axis = draw.axis(len(shape))
    _call(draw, name, 'a', 'b', axis=axis, **_some(draw, keepdims=[True, False]))
    at = axis % len(shape)
    return [Input(shape), Input(shape[:at] + shape[at + 1 :], 'index', top=shape[at])]


# --- what has no template of its own -------------------------------------------------------------


@_for(
    """argwhere nonzero flatnonzero unique count_nonzero polyval interp bincount searchsorted
         in1d isin digitize vander cov corrcoef ptp logical_and unwrap trapz""",
    'np.',
)
def _(draw, name):
    draw.dtypes = ('float32', 'float64', 'int32')
    two = name[3:] in 'polyval searchsorted in1d isin digitize logical_and'.split()
    _call(draw, name, *'ab'[: 1 + two])
    return [Input((draw.number(1, 4),), 'index', top=3)] * (1 + two)


@_for('np.delete np.insert')
def _(draw, name):
    shape = (3,) + _shape(draw, 1, 2)[1:]
    which = draw.pick([0, -1, [0, 2], slice(0, 2)])
    _call(draw, name, 'a', which, *[2] * (name == 'np.insert'), axis=draw.pick([0, None]))
    return _one(draw, *shape)


@_for('zeros ones full arange linspace logspace eye identity tri hanning indices array', 'np.')
def _(draw, name):
    """Arrays that are made beside values."""
    length = draw.number(1, 3)
    given = draw.pick(['[1, 2][:1]', 'a.shape[:1]', 'onp.ones(1)', '3', '[a]', 'a'])
    made = {
        'np.zeros': f'np.zeros({draw.pick([length, (length, 1), "a.shape"])})',
        'np.ones': f'np.ones((1, {length}), dtype={draw.pick(_DTYPES)!r})',
        'np.full': f'np.full(a.shape, {draw.pick([2, 0.5])})',
        'np.arange': f'np.arange({draw.pick([length, 0.5 * length, "0, 1, 0.3"])})[:1]',
        'np.linspace': f'np.linspace(0, 1, {length})[-1]',
        'np.logspace': f'np.logspace(0, 1, {length})[0]',
        'np.eye': f'np.eye({length})[:1, :1]',
        'np.identity': f'np.identity({length})[0, 0]',
        'np.tri': f'np.tri({length})[0, 0]',
        'np.hanning': f'np.hanning({length})[0]',
        'np.indices': f'np.indices(({length},))[0, 0]',
        'np.array': f'np.array({given})',
    }[name]
    draw.code = draw.pick([f'a + {made}', f'{made} * a', f'a * 2, {made}'])
    return _one(draw, *_shape(draw, 1))


@_for(
    """uniform normal randint exponential gamma gumbel logistic multinomial choice rand randn
         shuffle""",
    'np.random.',
)
def _(draw, name):
    """Noise beside values; what is drawn is not compared."""
    arguments = {
        'randint': '0, 3, size=a.shape',
        'multinomial': '5, [0.5, 0.5]',
        'choice': '3, size=2',
        'rand': '*a.shape',
        'randn': '*a.shape',
        'shuffle': 'a',
    }.get(name[10:], draw.pick(['size=a.shape', 'abs(a) + 1', '0.5']))
    draw.code = f'{name}({arguments})'
    if name != 'np.random.shuffle':
        draw.code = f'a * 2, {draw.code}'
    return _one(draw, *_shape(draw, 1))


@_for('npx.sequence_mask')
def _(draw, name):
    shape, axis = draw.shape(2, 4), draw.number(0, 1)
    length = Input(
        (shape[1 - axis],), 'length', dtype=draw.pick(['', 'float32', 'int32']), top=shape[axis]
    )
    if draw.flag(0.2):
        _call(draw, name, 'a', axis=axis)
        return [Input(shape)]
    _call(draw, name, 'a', 'b', True, axis=axis, **_some(draw, value=[-1e6, 2]))
    return [Input(shape), length]
