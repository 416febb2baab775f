"""Operators on values outside cells, under MXNet's names, and makers of arrays.

A scope records them as calls of types that all bundles share. Elsewhere they are computed eagerly.
They treat each row alone: what mixes rows raises an error. Values have most of them as methods, and
Python's operators for numbers and values. Makers of arrays take MXNet's arguments, of which a
context has no effect.
"""

from collections.abc import Sequence
from typing import Any, Callable, Optional

import numpy as np

from gluon_edbatch_core.errors import RecordError

from .calls import METHODS
from .recording import Recording

# Operator in `bundle.numpy_operators`, how many values it takes (0: any number), its attributes in
# the order in which MXNet takes them.
_OPERATORS: dict[str, tuple[str, int, str]] = {
    **{name: (name, 1, '') for name in
       'abs exp log negative reciprocal relu sigmoid softsign sqrt square tanh'.split()},
    **{name: (name, 1, 'axis keepdims exclude') for name in 'max mean min sum'.split()},
    **{name: (name, 1, 'axis keepdims') for name in ('argmax', 'argmin')},
    **{name: (name, 2, '') for name in
       'broadcast_add broadcast_sub broadcast_mul broadcast_div broadcast_maximum '
       'broadcast_minimum'.split()},
    'add_n': ('add_n', 0, ''),
    'batch_dot': ('batch_dot', 2, 'transpose_a transpose_b'),
    'clip': ('clip', 1, 'a_min a_max'),
    'concat': ('Concat', 0, 'dim'),
    'expand_dims': ('expand_dims', 1, 'axis'),
    'flatten': ('Flatten', 1, ''),
    'log_softmax': ('log_softmax', 1, 'axis'),
    'slice_axis': ('slice_axis', 1, 'axis begin end'),
    'softmax': ('softmax', 1, 'axis'),
    'squeeze': ('squeeze', 1, 'axis'),
    'stack': ('stack', 0, 'axis'),
    'where': ('where', 3, ''),
}  # fmt: skip


def _function(name: str, op: str, count: int, names: Sequence[str]) -> Callable[..., Any]:
    def call(*args: Any, **attrs: Any) -> Any:
        values = args[: count or len(args)]
        attrs.update(zip(names, args[len(values) :]))
        unknown = set(attrs) - set(names)
        if unknown or len(values) < count or len(args) > len(values) + len(names):
            raise RecordError(f'nd.{name} takes {count or "any number of"} values and {names}')
        given = {key: value for key, value in attrs.items() if value is not None}
        return Recording.operate(op, *values, **given)

    call.__name__ = name
    return call


for _name, (_op, _count, _names) in _OPERATORS.items():
    globals()[_name] = METHODS[_name] = _function(_name, _op, _count, _names.split())


def reshape(data: Any, shape: Any) -> Any:
    """Return a value in another shape, with whole rows of it."""
    sizes = [shape] if isinstance(shape, int) else list(shape)
    if any([size < -1 for size in sizes]):
        raise RecordError(f'reshape to {shape} is not there outside of cells')
    known = [data.shape[axis] if size == 0 else size for axis, size in enumerate(sizes)]
    try:
        made = np.empty(data.shape, bool).reshape(known).shape
    except ValueError as error:
        raise RecordError(f'reshape to {shape} cannot be computed: {error}') from None
    return Recording.operate('Reshape', data, shape=(-1, *made[1:]))


def _reshaped(value: Any, *shape: Any, **attrs: Any) -> Any:
    given = attrs.get('shape', shape)
    return reshape(value, given[0] if len(given) == 1 else given)


METHODS['reshape'] = _reshaped


def part_of(value: Any, key: Any) -> Any:
    """Return a part of each row, as ``value[:, 3]``; or of the only row, as ``value[0, 3]``."""
    keys = key if isinstance(key, tuple) else (key,)
    of_only_row = value.shape[0] == 1 and isinstance(keys[0], (int, np.integer)) and (
        keys[0] in (0, -1))  # fmt: skip
    if keys[0] != slice(None) and not of_only_row:
        raise RecordError(f'a value without MXNet has no rows to choose, as by [{key}]: {_ADVICE}')
    axis = 1
    for each in keys[1:]:
        if isinstance(each, (int, np.integer)):
            end: Optional[int] = int(each) + 1 or None
            value = Recording.operate('slice_axis', value, axis=axis, begin=int(each), end=end)
            if value.ndim > 2 or not of_only_row:
                value = Recording.operate('squeeze', value, axis=axis)
            else:
                return reshape(value, (-1,))
        elif isinstance(each, slice) and each.step is None:
            if each != slice(None):
                begin, end = each.start or 0, each.stop
                value = Recording.operate('slice_axis', value, axis=axis, begin=begin, end=end)
            axis += 1
        else:
            raise RecordError(f'a value without MXNet has no part [{key}]: {_ADVICE}')
    return reshape(value, (-1, *value.shape[2:])) if of_only_row else value


_ADVICE = 'read it by asnumpy() first, or put the code into a cell'
METHODS['copy'] = METHODS['__copy__'] = lambda value: Recording.operate('_copy', value)
METHODS['__getitem__'] = part_of


def array(source: Any, ctx: Any = None, dtype: Any = None) -> np.ndarray:
    """Return an array with these contents, float32 if `dtype` does not say otherwise."""
    return np.array(source, dtype or getattr(source, 'dtype', np.float32))


def zeros(shape: Any, ctx: Any = None, dtype: Any = None) -> np.ndarray:
    """Return an array of zeros."""
    return np.zeros(shape, dtype or np.float32)


def ones(shape: Any, ctx: Any = None, dtype: Any = None) -> np.ndarray:
    """Return an array of ones."""
    return np.ones(shape, dtype or np.float32)


def full(shape: Any, val: float, ctx: Any = None, dtype: Any = None) -> np.ndarray:
    """Return an array with one number in all places."""
    return np.full(shape, val, dtype or np.float32)
