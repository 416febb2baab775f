"""MXNet's operators that cells use, in NumPy, for batches of rows.

Attributes have the manifest's form: numbers, lists, text. A function takes arrays and, if it can
write there, ``out``.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, Callable, NamedTuple, Optional

import numpy as np

Attrs = Mapping[str, Any]
Function = Callable[..., Any]


class Operator(NamedTuple):
    """An operator: its function for some attributes, and facts. `elementwise` lets it overwrite an
    argument of the result's shape. `view` tells that the result may be a view of the first
    argument, `by_value` that it treats each value of a ragged first argument alone."""

    make: Callable[[Attrs], Function]
    elementwise: bool = False
    view: bool = False
    by_value: bool = False


def sigmoid(x: np.ndarray, out: Optional[np.ndarray] = None) -> np.ndarray:
    """Return ``1 / (1 + exp(-x))``, which is 0 where that overflows."""
    out = np.negative(x, out=out)
    np.exp(out, out=out)
    np.add(out, 1, out=out)
    return np.reciprocal(out, out=out)


def softrelu(x: np.ndarray, out: Optional[np.ndarray] = None) -> np.ndarray:
    """Return ``log(1 + exp(x))``."""
    return np.logaddexp(x, x.dtype.type(0), out=out)


def softsign(x: np.ndarray, out: Optional[np.ndarray] = None) -> np.ndarray:
    """Return ``x / (1 + abs(x))``."""
    return np.divide(x, 1 + np.abs(x), out=out)


def copied(x: np.ndarray, out: Optional[np.ndarray] = None) -> np.ndarray:
    """Return the array itself, or its copy in `out`."""
    if out is None:
        return x
    out[...] = x
    return out


def look_up(table: np.ndarray, ids: np.ndarray, out: Optional[np.ndarray] = None) -> np.ndarray:
    """Return rows of a table. Raise IndexError if there is no such row."""
    rows = ids.astype(np.int64)
    if rows.size and (rows.min() < 0 or rows.max() >= len(table)):
        wrong = rows[(rows < 0) | (rows >= len(table))][0]
        raise IndexError(f'{wrong} is no row of a table of {len(table)} rows')
    return table.take(rows, axis=0, out=out, mode='clip')  # 'raise' would buffer `out`


# A host that has faster functions may put them here before it makes programs.
ACTIVATIONS: dict[str, Function] = {
    'sigmoid': sigmoid,
    'tanh': np.tanh,
    'relu': partial(np.maximum, 0),
    'softrelu': softrelu,
    'softsign': softsign,
}


def _unary(function: Function) -> Operator:
    return Operator(lambda attrs: function, elementwise=True, by_value=True)


def _activation(name: str) -> Operator:
    return Operator(lambda attrs: ACTIVATIONS[name], elementwise=True, by_value=True)


def _binary(function: Function) -> Operator:
    return Operator(lambda attrs: function, elementwise=True)


def _broadcast(function: Function) -> Operator:
    return Operator(lambda attrs: function)


def _number(function: Function, turned: bool = False) -> Operator:
    """Return an operator with a number among the attributes, as the second argument or, if
    `turned`, the first."""

    def make(attrs: Attrs) -> Function:
        number = float(attrs['scalar'])
        if turned:
            return lambda x, out=None: function(x.dtype.type(number), x, out=out)
        return lambda x, out=None: function(x, x.dtype.type(number), out=out)

    return Operator(make, elementwise=True, by_value=True)


def _comparison(function: Function) -> Function:
    """Return a comparison whose result has the operands' dtype, as in ``mx.nd``."""

    def compare(x: np.ndarray, y: Any, out: Optional[np.ndarray] = None) -> np.ndarray:
        return copied(function(x, y).astype(x.dtype), out)

    return compare


def _axes(attrs: Attrs, rank: int) -> tuple[int, ...]:
    """Return the axes of a reduction."""
    axis = attrs.get('axis')
    if axis is None or axis in ([], ()):
        return tuple(range(rank))
    named = {each % rank for each in (axis if isinstance(axis, list) else [axis])}
    return tuple(set(range(rank)) - named if attrs.get('exclude') else named)


def _reduction(function: Function) -> Operator:
    def make(attrs: Attrs) -> Function:
        keep = bool(attrs.get('keepdims'))
        return lambda x: function(x, axis=_axes(attrs, x.ndim), keepdims=keep)

    return Operator(make)


def _position(function: Function) -> Operator:
    def make(attrs: Attrs) -> Function:
        axis, keep = attrs['axis'], bool(attrs.get('keepdims'))

        def find(x: np.ndarray) -> np.ndarray:
            found = function(x, axis=axis).astype(x.dtype)
            return np.expand_dims(found, axis) if keep else found

        return find

    return Operator(make)


def _softmax(log: bool) -> Operator:
    def make(attrs: Attrs) -> Function:
        if attrs.get('temperature') is not None or attrs.get('use_length'):
            raise NotImplementedError('softmax with a temperature or lengths')
        axis = attrs.get('axis', -1)

        def softmax(x: np.ndarray) -> np.ndarray:
            shifted = x - x.max(axis=axis, keepdims=True)
            exps = np.exp(shifted)
            total = exps.sum(axis=axis, keepdims=True)
            return shifted - np.log(total) if log else np.divide(exps, total, out=exps)

        return softmax

    return Operator(make)


def _reshape(attrs: Attrs) -> Function:
    shape = attrs['shape']
    shape = shape if isinstance(shape, list) else [shape]
    if attrs.get('reverse') or any(size < -1 for size in shape):
        raise NotImplementedError(f'Reshape to {shape}')
    return lambda x: x.reshape(
        [x.shape[axis] if size == 0 else size for axis, size in enumerate(shape)]
    )


def _slice_axis(attrs: Attrs) -> Function:
    axis, begin, end = attrs['axis'], attrs['begin'], attrs.get('end')

    def cut(x: np.ndarray) -> np.ndarray:
        where: list[Any] = [slice(None)] * x.ndim
        where[axis] = slice(begin, end)
        return x[tuple(where)]

    return cut


def _slice(attrs: Attrs) -> Function:
    steps = attrs.get('step') or [None] * len(attrs['begin'])
    where = tuple(
        [slice(*each) for each in zip(attrs['begin'], attrs['end'], steps)]  # None as in Python
    )
    return lambda x: x[where]


def _split(attrs: Attrs) -> Function:
    parts, axis, squeeze = attrs['num_outputs'], attrs.get('axis', 1), attrs.get('squeeze_axis')

    def split(x: np.ndarray) -> list[np.ndarray]:  # np.split takes ten times as long
        width, before = x.shape[axis] // parts, (slice(None),) * (axis % x.ndim)
        found = [
            x[(*before, slice(begin, begin + width))] for begin in range(0, x.shape[axis], width)
        ]
        return [each.squeeze(axis) for each in found] if squeeze else found

    return split


def _squeeze(attrs: Attrs) -> Function:
    axis = attrs.get('axis')
    axis = tuple(axis) if isinstance(axis, list) else axis
    return lambda x: x.squeeze(axis)


def _layer_norm(attrs: Attrs) -> Function:
    axis, eps = attrs.get('axis', -1), float(attrs.get('eps', 1e-5))
    if axis != -1:
        raise NotImplementedError('LayerNorm along another axis than the last')

    def normalise(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
        x = x - x.mean(axis=-1, keepdims=True)
        deviation = np.sqrt(np.square(x).mean(axis=-1, keepdims=True) + x.dtype.type(eps))
        return x / deviation * gamma + beta

    return normalise


def _batch_dot(attrs: Attrs) -> Function:
    first, second = bool(attrs.get('transpose_a')), bool(attrs.get('transpose_b'))

    def multiply(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.matmul(x.swapaxes(1, 2) if first else x, y.swapaxes(1, 2) if second else y)

    return multiply


def _sequence_mask(attrs: Attrs) -> Function:
    axis, value = attrs.get('axis', 0), float(attrs.get('value', 0))

    def mask(x: np.ndarray, lengths: Optional[np.ndarray] = None) -> np.ndarray:
        if lengths is None:
            return x.copy()
        ranks = np.arange(x.shape[axis])
        kept = ranks[:, None] < lengths if axis == 0 else ranks < lengths[:, None]
        return np.where(kept.reshape(kept.shape + (1,) * (x.ndim - 2)), x, x.dtype.type(value))

    return mask


def _leaky(attrs: Attrs) -> Function:
    kind, slope = attrs.get('act_type', 'leaky'), float(attrs.get('slope', 0.25))
    if kind == 'leaky':
        return lambda x, out=None: np.multiply(x, np.where(x > 0, 1, x.dtype.type(slope)), out=out)
    if kind == 'elu':
        return lambda x, out=None: copied(
            np.where(x > 0, x, x.dtype.type(slope) * np.expm1(np.minimum(x, 0))), out
        )
    raise NotImplementedError(f'LeakyReLU of the kind {kind}')


def _dropout(attrs: Attrs) -> Function:
    """Return a function that changes nothing, as Dropout outside training."""
    if attrs.get('mode') == 'always':
        raise NotImplementedError('Dropout that is always on')
    return copied


def _transpose(attrs: Attrs) -> Function:
    axes = attrs.get('axes') or None
    return lambda x: x.transpose(axes)


def _clip(attrs: Attrs) -> Function:
    low, high = float(attrs['a_min']), float(attrs['a_max'])
    return lambda x, out=None: np.clip(x, x.dtype.type(low), x.dtype.type(high), out=out)


def _take(attrs: Attrs) -> Function:
    if attrs.get('axis', 0) != 0:
        raise NotImplementedError('take along another axis than the first')
    return look_up


def _sum_of_all(*arrays: np.ndarray) -> np.ndarray:
    total = arrays[0] + arrays[1] if len(arrays) > 1 else arrays[0].copy()
    for array in arrays[2:]:
        total += array
    return total


_UNARY: dict[str, Function] = {
    'abs': np.abs,
    'negative': np.negative,
    'exp': np.exp,
    'log': np.log,
    'sqrt': np.sqrt,
    'square': np.square,
    'reciprocal': np.reciprocal,
    '_copy': copied,
    'identity': copied,
    'BlockGrad': copied,
}
BINARY: dict[str, Function] = {
    'add': np.add,
    'sub': np.subtract,
    'mul': np.multiply,
    'div': np.divide,
}
_COMPARED: dict[str, Function] = {
    'equal': np.equal,
    'not_equal': np.not_equal,
    'greater': np.greater,
    'greater_equal': np.greater_equal,
    'lesser': np.less,
    'lesser_equal': np.less_equal,
}

OPERATORS: dict[str, Operator] = {
    **{name: _activation(name) for name in ('sigmoid', 'tanh', 'relu', 'softsign')},
    **{name: _unary(function) for name, function in _UNARY.items()},
    **{f'elemwise_{name}': _binary(function) for name, function in BINARY.items()},
    **{f'broadcast_{name}': _broadcast(function) for name, function in BINARY.items()},
    **{f'broadcast_{name}': _broadcast(_comparison(each)) for name, each in _COMPARED.items()},
    **{f'_{name}_scalar': _number(_comparison(each)) for name, each in _COMPARED.items()},
    'broadcast_maximum': _broadcast(np.maximum),
    'broadcast_minimum': _broadcast(np.minimum),
    '_maximum': _binary(np.maximum),
    '_minimum': _binary(np.minimum),
    '_plus_scalar': _number(np.add),
    '_minus_scalar': _number(np.subtract),
    '_rminus_scalar': _number(np.subtract, turned=True),
    '_mul_scalar': _number(np.multiply),
    '_div_scalar': _number(np.divide),
    '_rdiv_scalar': _number(np.divide, turned=True),
    '_power_scalar': _number(np.power),
    'broadcast_power': _broadcast(np.power),
    '_maximum_scalar': _number(np.maximum),
    '_minimum_scalar': _number(np.minimum),
    'add_n': Operator(lambda attrs: _sum_of_all),
    'Activation': Operator(
        lambda attrs: ACTIVATIONS[attrs['act_type']], elementwise=True, by_value=True
    ),
    'LeakyReLU': Operator(_leaky, elementwise=True, by_value=True),
    'Dropout': Operator(_dropout, elementwise=True, by_value=True),
    'clip': Operator(_clip, elementwise=True, by_value=True),
    'batch_dot': Operator(_batch_dot),
    'LayerNorm': Operator(_layer_norm),
    'Embedding': Operator(
        lambda attrs: lambda ids, table, out=None: look_up(table, ids, out), by_value=True
    ),
    'take': Operator(_take),
    'Concat': Operator(
        lambda attrs: lambda *arrays: np.concatenate(arrays, axis=attrs.get('dim', 1))
    ),
    'stack': Operator(lambda attrs: lambda *arrays: np.stack(arrays, axis=attrs.get('axis', 0))),
    'where': Operator(lambda attrs: lambda c, x, y: np.where(c != 0, x, y)),
    'SequenceMask': Operator(_sequence_mask),
    'softmax': _softmax(False),
    'log_softmax': _softmax(True),
    'sum': _reduction(np.sum),
    'mean': _reduction(np.mean),
    'max': _reduction(np.max),
    'min': _reduction(np.min),
    'argmax': _position(np.argmax),
    'argmin': _position(np.argmin),
    'expand_dims': Operator(lambda attrs: lambda x: np.expand_dims(x, attrs['axis']), view=True),
    'squeeze': Operator(_squeeze, view=True),
    'Reshape': Operator(_reshape, view=True),
    'Flatten': Operator(lambda attrs: lambda x: x.reshape(len(x), -1), view=True),
    'slice_axis': Operator(_slice_axis, view=True),
    'slice': Operator(_slice, view=True),
    'SliceChannel': Operator(_split, view=True),
    'transpose': Operator(_transpose, view=True),
    'SwapAxis': Operator(
        lambda attrs: lambda x: x.swapaxes(attrs.get('dim1', 0), attrs.get('dim2', 0)), view=True
    ),
    'zeros_like': Operator(lambda attrs: np.zeros_like),
    'ones_like': Operator(lambda attrs: np.ones_like),
}
