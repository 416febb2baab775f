"""MXNet's operators in NumPy: for arrays as they are, so that a batch of rows is one array.

Attributes have the manifest's form: numbers, lists, text. `numpy_shapes` and `numpy_layers` have
the longer functions.
"""

from functools import partial
from typing import Any, Callable, NamedTuple

import numpy as np

from . import numpy_layers as layers
from . import numpy_shapes as shapes
from .numpy_shapes import Attrs, Function, axes_of, listed


class Operator(NamedTuple):
    """An operator: its function for some attributes, and whether it treats each value of a ragged
    first argument alone."""

    make: Callable[[Attrs], Function]
    by_value: bool = False


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Return ``1 / (1 + exp(-x))``, which is 0 where that overflows."""
    return 1 / (1 + np.exp(-x))


def softrelu(x: np.ndarray) -> np.ndarray:
    """Return ``log(1 + exp(x))``."""
    return np.logaddexp(x, x.dtype.type(0))


def softsign(x: np.ndarray) -> np.ndarray:
    """Return ``x / (1 + abs(x))``."""
    return x / (1 + np.abs(x))


def itself(x: np.ndarray) -> np.ndarray:
    """Return the array itself."""
    return x


def look_up(ids: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Return rows of a table. Raise IndexError if there is no such row."""
    rows = ids.astype(np.int64)
    if rows.size and (rows.min() < 0 or rows.max() >= len(table)):
        wrong = rows[(rows < 0) | (rows >= len(table))][0]
        raise IndexError(f'{wrong} is no row of a table of {len(table)} rows')
    return table[rows]


ACTIVATIONS: dict[str, Function] = {
    'sigmoid': sigmoid,
    'tanh': np.tanh,
    'relu': partial(np.maximum, 0),
    'softrelu': softrelu,
    'softsign': softsign,
}


def _plain(function: Function, by_value: bool = False) -> Operator:
    return Operator(lambda attrs: function, by_value)


def _number(function: Function, turned: bool = False) -> Operator:
    """Return an operator with a number among the attributes, as the second argument or, if
    `turned`, the first."""

    def make(attrs: Attrs) -> Function:
        number = float(attrs['scalar'])
        if turned:
            return lambda x: function(x.dtype.type(number), x)
        return lambda x: function(x, x.dtype.type(number))

    return Operator(make, by_value=True)


def _comparison(function: Function) -> Function:
    """Return a comparison whose result has the operands' dtype, as in ``mx.nd``."""
    return lambda x, y: function(x, y).astype(x.dtype)


def _reduction(function: Function) -> Operator:
    def make(attrs: Attrs) -> Function:
        keep = bool(attrs.get('keepdims'))

        def reduce(x: np.ndarray) -> np.ndarray:
            of_none = x.size or function is np.prod
            return (function if of_none else np.sum)(x, axis=axes_of(attrs, x.ndim), keepdims=keep)

        return reduce

    return Operator(make)


def _leaky(attrs: Attrs) -> Function:
    kind, slope = attrs.get('act_type', 'leaky'), float(attrs.get('slope', 0.25))
    if kind == 'leaky':
        return lambda x: x * np.where(x > 0, x.dtype.type(1), x.dtype.type(slope))
    if kind == 'elu':
        return lambda x: np.where(x > 0, x, x.dtype.type(slope) * np.expm1(np.minimum(x, 0)))
    if kind == 'gelu':
        half, root = np.float32(0.5), np.float32(2**0.5)
        return lambda x: x * (half * (1 + erf(x / root)))
    raise NotImplementedError(f'LeakyReLU of the kind {kind}')


def _dropout(attrs: Attrs) -> Function:
    """Return a function that changes nothing, as Dropout outside training."""
    if attrs.get('mode') == 'always':
        raise NotImplementedError('Dropout that is always on')
    return itself


def _clip(attrs: Attrs) -> Function:
    low, high = float(attrs['a_min']), float(attrs['a_max'])
    return lambda x: np.clip(x, x.dtype.type(low), x.dtype.type(high))


def erf(x: np.ndarray) -> np.ndarray:
    """Return the error function, up to 2e-7 (Abramowitz and Stegun, 7.1.26)."""
    size = np.abs(x).astype(np.float64)
    t = 1 / (1 + 0.3275911 * size)
    terms = 0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429
    total = sum([factor * t ** (power + 1) for power, factor in enumerate(terms)])
    return np.copysign(1 - total * np.exp(-size * size), x).astype(x.dtype)


def _modulo(x: Any, y: Any) -> Any:
    """Return the rest with the sign of `y`; 0 where that is 0."""
    with np.errstate(invalid='ignore', divide='ignore'):
        found = np.mod(x, y)
    return np.where(np.equal(y, 0), found.dtype.type(0), found)


def _smooth_l1(attrs: Attrs) -> Function:
    square = float(attrs.get('scalar', 1)) ** 2

    def smooth(x: np.ndarray) -> np.ndarray:
        size, one = np.abs(x), x.dtype.type
        return np.where(size < 1 / square, one(square / 2) * x * x, size - one(0.5 / square))

    return smooth


def _sum_of_all(*arrays: np.ndarray) -> np.ndarray:
    total = arrays[0] + arrays[1] if len(arrays) > 1 else arrays[0].copy()
    for array in arrays[2:]:
        total += array
    return total


_UNARY: dict[str, Function] = {
    **{name: getattr(np, name) for name in
       'abs negative exp log sqrt square reciprocal sin cos tan arcsin arccos arctan sinh cosh '
       'arcsinh arccosh arctanh floor ceil trunc sign log1p expm1 log2 log10 cbrt degrees '
       'radians'.split()},
    **dict.fromkeys(['_copy', 'identity', 'BlockGrad', 'make_loss'], itself),
    'erf': erf,
}  # fmt: skip
_PLAIN: dict[str, Function] = {
    'round': lambda x: np.copysign(np.floor(np.abs(x) + x.dtype.type(0.5)), x),
    'fix': np.trunc,
    'rint': lambda x: np.where(x - np.floor(x) <= np.ceil(x) - x, np.floor(x), np.ceil(x)),
    'rsqrt': lambda x: 1 / np.sqrt(x),
    'rcbrt': lambda x: 1 / np.cbrt(x),
    'logical_not': lambda x: (x == 0).astype(x.dtype),
    'hard_sigmoid': lambda x: np.clip(x * x.dtype.type(0.2) + x.dtype.type(0.5), 0, 1),
    'zeros_like': np.zeros_like,
    'ones_like': np.ones_like,
}
BINARY: dict[str, Function] = {
    'add': np.add,
    'sub': np.subtract,
    'mul': np.multiply,
    'div': np.divide,
}


def _logical(function: Function) -> Function:
    return lambda x, y: function(x != 0, y != 0)


_COMPARED: dict[str, Function] = {
    'equal': np.equal,
    'not_equal': np.not_equal,
    'greater': np.greater,
    'greater_equal': np.greater_equal,
    'lesser': np.less,
    'lesser_equal': np.less_equal,
    'logical_and': _logical(np.logical_and),
    'logical_or': _logical(np.logical_or),
    'logical_xor': _logical(np.logical_xor),
}
_MORE: dict[str, Function] = {
    'maximum': np.maximum, 'minimum': np.minimum, 'power': np.power, 'mod': _modulo,
    'hypot': np.hypot,
}  # fmt: skip
_WHOLE: dict[str, Callable[[Attrs], Function]] = {  # may mix rows
    **{name: getattr(shapes, name) for name in
       'argsort at batch_dot norm one_hot pick sort take topk where'.split()},
    **{name: getattr(layers, name) for name in
       'BatchNorm Convolution FullyConnected L2Normalization LayerNorm Pooling softmin'.split()},
    'softmax': layers.softmax(False), 'log_softmax': layers.softmax(True),
    'RNN': layers.recurrent(sigmoid), 'smooth_l1': _smooth_l1,
    # The last axis with the first; with transpose_a the first, with transpose_b the last.
    'dot': lambda attrs: lambda x, y: np.tensordot(
        x, y, ((0 if attrs.get('transpose_a') else -1,), (-1 if attrs.get('transpose_b') else 0,))),
    'gather_nd': lambda attrs: lambda x, places: x[
        tuple([np.mod(each.astype(np.int64), size) for each, size in zip(places, x.shape)])],
    'repeat': lambda attrs: lambda x: np.repeat(x, attrs['repeats'], attrs.get('axis')),
    'tile': lambda attrs: lambda x: np.tile(x, listed(attrs['reps'])),
    'SequenceMask': shapes.sequence_mask, 'argmax': shapes.position(np.argmax),
    'argmin': shapes.position(np.argmin),
    'argmax_channel': lambda attrs: lambda x: x.argmax(1).astype(x.dtype),
    'Cast': lambda attrs: lambda x: x.astype(attrs['dtype']),
    'Concat': lambda attrs: lambda *arrays: np.concatenate(arrays, axis=attrs.get('dim', 1)),
    '_rnn_param_concat': lambda attrs: lambda *arrays: np.concatenate(arrays, attrs.get('dim', 0)),
    'stack': lambda attrs: lambda *arrays: np.stack(arrays, axis=attrs.get('axis', 0)),
    '_zeros': lambda attrs: lambda: np.zeros(attrs['shape'], attrs.get('dtype', 'float32')),
    '_ones': lambda attrs: lambda: np.ones(attrs['shape'], attrs.get('dtype', 'float32')),
    'add_n': lambda attrs: _sum_of_all,
    **{name: getattr(shapes, name) for name in
       'broadcast_axis broadcast_like item slice_axis slice_like'.split()},
    'Reshape': shapes.reshape, 'SliceChannel': shapes.split, 'slice': shapes.slice_axes,
    'broadcast_to': lambda attrs: lambda x: np.broadcast_to(
        x, [size or own for size, own in zip(attrs['shape'], x.shape)]),
    'reshape_like': lambda attrs: lambda x, like: x.reshape(like.shape),
    'reverse': lambda attrs: lambda x: np.flip(x, tuple(listed(attrs['axis']))),
    'squeeze': lambda attrs: lambda x: x.squeeze(tuple(listed(attrs.get('axis'))) or None),
    'transpose': lambda attrs: lambda x: x.transpose(listed(attrs.get('axes')) or None),
    'expand_dims': lambda attrs: lambda x: np.expand_dims(x, attrs['axis']),
    'Flatten': lambda attrs: lambda x: x.reshape(len(x), -1),
    'SwapAxis': lambda attrs: lambda x: x.swapaxes(attrs.get('dim1', 0), attrs.get('dim2', 0)),
}  # fmt: skip
_TURNED = {'_rminus_scalar': 'sub', '_rdiv_scalar': 'div', '_rpower_scalar': 'power',
           '_rmod_scalar': 'mod'}  # fmt: skip
_SCALARS = {**BINARY, **_MORE, **{name: _comparison(each) for name, each in _COMPARED.items()}}
_SCALARS.update(plus=np.add, minus=np.subtract)

OPERATORS: dict[str, Operator] = {
    **{name: _plain(ACTIVATIONS[name], True) for name in ('sigmoid', 'tanh', 'relu', 'softsign')},
    **{name: _plain(function, True) for name, function in _UNARY.items()},
    **{name: _plain(each) for name, each in _PLAIN.items()},
    **{f'elemwise_{name}': _plain(function) for name, function in BINARY.items()},
    **{f'broadcast_{name}': _plain(each) for name, each in {**BINARY, **_MORE}.items()},
    **{f'broadcast_{name}': _plain(_comparison(each)) for name, each in _COMPARED.items()},
    **{f'_{name}': _plain(_comparison(each)) for name, each in _COMPARED.items()},
    **{f'_{name}': _plain(each) for name, each in _MORE.items()},
    **{f'_{name}_scalar': _number(each) for name, each in _SCALARS.items()},
    **{name: _number(_SCALARS[each], turned=True) for name, each in _TURNED.items()},
    **{name: Operator(make) for name, make in _WHOLE.items()},
    **{name: _reduction(getattr(np, name)) for name in 'sum mean max min prod nansum'.split()},
    'Activation': Operator(lambda attrs: ACTIVATIONS[attrs['act_type']], by_value=True),
    'LeakyReLU': Operator(_leaky, by_value=True),
    'Dropout': Operator(_dropout, by_value=True),
    'clip': Operator(_clip, by_value=True),
    'Embedding': _plain(look_up, by_value=True),
}
