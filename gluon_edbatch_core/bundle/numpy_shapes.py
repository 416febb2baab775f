"""MXNet's operators that arrange, choose and compare numbers of an array, in NumPy.

Each function here takes an operator's attributes, in the manifest's form, and returns a function of
arrays (see `numpy_operators`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional

import numpy as np

Attrs = Mapping[str, Any]
Function = Callable[..., Any]


def listed(value: Any) -> list[Any]:
    """Return an attribute that is a number or several numbers as a list; none for None."""
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def axes_of(attrs: Attrs, rank: int) -> tuple[int, ...]:
    """Return the axes of a reduction, ascending."""
    named = {each % rank for each in listed(attrs.get('axis'))}
    if not named:
        return tuple(range(rank))
    return tuple(sorted(set(range(rank)) - named if attrs.get('exclude') else named))


def reshape(attrs: Attrs) -> Function:
    """Reshape: 0 keeps a size, -1 takes the rest, -2 all others, -3 joins two, -4 splits one."""
    wanted = listed(attrs['shape'])

    def sizes_of(shape: Sequence[int], wanted: Sequence[int]) -> list[int]:
        found: list[int] = []
        place, axis = 0, 0
        while place < len(wanted):
            size = wanted[place]
            place += 1
            if size == -2:
                found += shape[axis:]
                axis = len(shape)
            elif size == -3:
                found.append(shape[axis] * shape[axis + 1])
                axis += 2
            elif size == -4:
                one, other = wanted[place : place + 2]
                one = shape[axis] // other if one == -1 else one
                found += [one, shape[axis] // one if other == -1 else other]
                place, axis = place + 2, axis + 1
            else:
                found.append(shape[axis] if size == 0 else size)
                axis += 1
        return found

    if attrs.get('reverse'):
        if min(wanted) < -1:
            raise NotImplementedError(f'Reshape to {wanted} from the right')
        return lambda x: x.reshape(sizes_of(x.shape[::-1], wanted[::-1])[::-1])
    return lambda x: x.reshape(sizes_of(x.shape, wanted))


def slice_axis(attrs: Attrs) -> Function:
    """Return positions of one axis."""
    axis, begin, end = attrs['axis'], attrs['begin'], attrs.get('end')

    def cut(x: np.ndarray) -> np.ndarray:
        where: list[Any] = [slice(None)] * x.ndim
        where[axis] = slice(begin, end)
        return x[tuple(where)]

    return cut


def slice_axes(attrs: Attrs) -> Function:
    """Return positions of the first axes, as ``mx.nd.slice``."""
    begins, ends = listed(attrs['begin']), listed(attrs['end'])
    steps = listed(attrs.get('step')) or [None] * len(begins)
    where = tuple([slice(*each) for each in zip(begins, ends, steps)])  # None as in Python
    return lambda x: x[where]


def slice_like(attrs: Attrs) -> Function:
    """Return the first positions of axes, as many as another array has."""
    named = listed(attrs.get('axes'))

    def cut(x: np.ndarray, like: np.ndarray) -> np.ndarray:
        where = [slice(None)] * x.ndim
        for axis in named or range(like.ndim):
            where[axis] = slice(like.shape[axis])
        return x[tuple(where)]

    return cut


def item(attrs: Attrs) -> Function:
    """Return what an index chooses, as ``x[index]``. The manifest has an int, None, or a list with
    begin, end and step for each axis."""
    key = tuple([slice(*each) if isinstance(each, (list, tuple)) else each
                 for each in attrs['key']])  # fmt: skip
    return lambda x: x[key]


def at(attrs: Attrs) -> Function:
    """Return one position of an axis, by a number for each row, or by one number."""
    axis = attrs['axis']

    def choose(x: np.ndarray, place: np.ndarray) -> np.ndarray:
        found = place.astype(np.int64)
        if axis == 1 and len(found) > 1:
            return x[np.arange(len(x)), found]
        return x.take(found[0], axis)

    return choose


def split(attrs: Attrs) -> Function:
    """Return equal parts along an axis."""
    parts, axis, squeeze = attrs['num_outputs'], attrs.get('axis', 1), attrs.get('squeeze_axis')

    def cut(x: np.ndarray) -> list[np.ndarray]:  # np.split takes ten times as long
        width, before = x.shape[axis] // parts, (slice(None),) * (axis % x.ndim)
        found = [
            x[(*before, slice(begin, begin + width))] for begin in range(0, x.shape[axis], width)
        ]
        if len(found) != parts:
            raise ValueError(f'{x.shape[axis]} positions are not {parts} equal parts')
        return [each.squeeze(axis) for each in found] if squeeze else found

    return cut


def broadcast_axis(attrs: Attrs) -> Function:
    """Repeat the only position of axes."""
    sizes = dict(zip(listed(attrs['axis']), listed(attrs['size'])))

    def widen(x: np.ndarray) -> np.ndarray:
        shape = list(x.shape)
        for axis, size in sizes.items():
            shape[axis] = size
        return np.broadcast_to(x, shape)

    return widen


def broadcast_like(attrs: Attrs) -> Function:
    """Repeat the only position of axes, as many times as another array has positions."""
    mine, others = listed(attrs.get('lhs_axes')), listed(attrs.get('rhs_axes'))

    def widen(x: np.ndarray, like: np.ndarray) -> np.ndarray:
        shape = list(x.shape if mine else like.shape)
        for axis, other in zip(mine, others):
            shape[axis] = like.shape[other]
        return np.broadcast_to(x, shape)

    return widen


def _places(indices: np.ndarray, size: int, mode: str) -> np.ndarray:
    found = indices.astype(np.int64)
    if mode == 'raise' and found.size and (found.min() < -size or found.max() >= size):
        raise IndexError(f'there are {size} positions')
    return np.mod(found, size) if mode in ('wrap', 'raise') else np.clip(found, 0, size - 1)


def take(attrs: Attrs) -> Function:
    """Return positions of an axis; those outside are the nearest ones, or counted around."""
    axis, mode = attrs.get('axis', 0), attrs.get('mode', 'clip')
    return lambda x, indices: x.take(_places(indices, x.shape[axis], mode), axis)


def pick(attrs: Attrs) -> Function:
    """Return one number along an axis, by its position."""
    axis, keep, mode = attrs.get('axis', -1), attrs.get('keepdims'), attrs.get('mode', 'clip')

    def choose(x: np.ndarray, indices: np.ndarray) -> np.ndarray:
        if axis is None:
            return x.reshape(-1)[_places(indices, x.size, mode)]
        where = _places(indices, x.shape[axis], mode)
        one = (*x.shape[: axis % x.ndim], 1, *x.shape[axis % x.ndim + 1 :])
        found = np.take_along_axis(x, where.reshape(one), axis)
        return found if keep else found.squeeze(axis)

    return choose


def one_hot(attrs: Attrs) -> Function:
    """Return vectors with one number at a position, and another elsewhere."""
    depth, on, off = attrs['depth'], attrs.get('on_value', 1), attrs.get('off_value', 0)
    dtype = np.dtype(attrs.get('dtype', 'float32'))

    def make(indices: np.ndarray) -> np.ndarray:
        there = indices.astype(np.int64)[..., None] == np.arange(depth)
        return np.where(there, dtype.type(on), dtype.type(off))

    return make


def where(attrs: Attrs) -> Function:
    """Choose between two arrays, number by number or row by row."""

    def choose(condition: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        more = max(0, x.ndim - condition.ndim)
        return np.where(condition.reshape(condition.shape + (1,) * more) != 0, x, y)

    return choose


def position(function: Function) -> Callable[[Attrs], Function]:
    """Return the operator that finds where a number is: `function` is NumPy's."""

    def make(attrs: Attrs) -> Function:
        axis, keep = attrs.get('axis'), bool(attrs.get('keepdims'))

        def find(x: np.ndarray) -> np.ndarray:
            found = np.asarray(function(x, axis=axis), x.dtype)
            if not keep:
                return found
            return found.reshape([1] * x.ndim) if axis is None else np.expand_dims(found, axis)

        return find

    return make


def _ordered(x: np.ndarray, axis: Optional[int], ascend: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return numbers and the positions that sort them."""
    x, axis = (x.reshape(-1), 0) if axis is None else (x, axis)
    order = np.argsort(x if ascend else -x, axis, kind='stable')
    return x, order


def sort(attrs: Attrs) -> Function:
    """Sort along an axis."""
    axis, ascend = attrs.get('axis', -1), attrs.get('is_ascend', True)

    def arrange(x: np.ndarray) -> np.ndarray:
        x, order = _ordered(x, axis, ascend)
        return np.take_along_axis(x, order, 0 if axis is None else axis)

    return arrange


def argsort(attrs: Attrs) -> Function:
    """Return the positions that sort an axis."""
    axis, ascend = attrs.get('axis', -1), attrs.get('is_ascend', True)
    dtype = attrs.get('dtype', 'float32')
    return lambda x: _ordered(x, axis, ascend)[1].astype(dtype)


def topk(attrs: Attrs) -> Function:
    """Return the largest or smallest numbers of an axis, or where they are."""
    axis, ascend, count = attrs.get('axis', -1), attrs.get('is_ascend', False), attrs.get('k', 1)
    kind, dtype = attrs.get('ret_typ', 'indices'), attrs.get('dtype', 'float32')
    if kind not in ('indices', 'value') or axis is None or count < 1:
        raise NotImplementedError(f'topk that returns {kind}')

    def find(x: np.ndarray) -> np.ndarray:
        x, order = _ordered(x, axis, ascend)
        order = np.take(order, np.arange(count), axis)
        return order.astype(dtype) if kind == 'indices' else np.take_along_axis(x, order, axis)

    return find


def norm(attrs: Attrs) -> Function:
    """Return sums of sizes, or the roots of sums of squares."""
    order, keep = attrs.get('ord', 2), bool(attrs.get('keepdims'))

    def measure(x: np.ndarray) -> np.ndarray:
        axes = axes_of(attrs, x.ndim)
        if order == 1:
            return np.abs(x).sum(axes, keepdims=keep)
        return np.sqrt(np.square(x).sum(axes, keepdims=keep))

    return measure


def batch_dot(attrs: Attrs) -> Function:
    """Multiply matrices, (n, k, l) each."""
    first, second = bool(attrs.get('transpose_a')), bool(attrs.get('transpose_b'))

    def multiply(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        if x.ndim != 3 or x.ndim != y.ndim or len(x) != len(y):
            raise ValueError(f'batch_dot of {x.shape} and {y.shape}')
        return np.matmul(x.swapaxes(1, 2) if first else x, y.swapaxes(1, 2) if second else y)

    return multiply


def sequence_mask(attrs: Attrs) -> Function:
    """Replace what is behind the length of a sequence."""
    axis, value = attrs.get('axis', 0), float(attrs.get('value', 0))

    def mask(x: np.ndarray, lengths: Optional[np.ndarray] = None) -> np.ndarray:
        if lengths is None:
            return x.copy()
        ranks = np.arange(x.shape[axis])
        kept = ranks[:, None] < lengths if axis == 0 else ranks < lengths[:, None]
        return np.where(kept.reshape(kept.shape + (1,) * (x.ndim - 2)), x, x.dtype.type(value))

    return mask
