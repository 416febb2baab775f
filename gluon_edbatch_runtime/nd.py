"""Operators on values outside cells, under MXNet's names, and makers of arrays.

A scope records operators of values as calls of types that all bundles share. Operators of arrays
alone run where they stand. Values have most of them as methods, and Python's operators for numbers
and values. Makers of arrays take MXNet's arguments, of which a context has no effect.
"""

from collections.abc import Sequence
from typing import Any, Callable

import numpy as np

from gluon_edbatch_core.bundle.numpy_operators import OPERATORS
from gluon_edbatch_core.bundle.value_operators import VALUE_OPERATORS, WITH_NUMBERS
from gluon_edbatch_core.errors import RecordError

from .arrays import Array
from .calls import CURRENT, METHODS, Value
from .recording import OperatorCalls, Recording, operator_calls


class _Arrays(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, (Value, Array))


class NDArray(metaclass=_Arrays):
    """What values and arrays are instances of. It makes none, so that a bundle cannot either."""


# Python's `slice`, as an operator has its name; and operators that only reshape values.
_Slice, _RESHAPING = slice, ('Reshape', 'Flatten', 'expand_dims', 'squeeze')


def _reshaped(value: Any, op: str, attrs: dict[str, Any]) -> Any:
    """Return a value in another shape. Whole rows are recorded as such, as these can be batched."""
    try:
        made = OPERATORS[op].make(attrs)(np.empty(value.shape, bool)).shape or (1,)
    except (ValueError, TypeError, IndexError, KeyError) as error:
        raise RecordError(f'{op} of {value.shape} cannot be computed: {error}') from None
    first = made[0] if made[0] % value.shape[0] or not value.size else -1
    return Recording.operate('Reshape', value, shape=(first, *made[1:]))


def _function(name: str, op: str, count: int, names: Sequence[str]) -> Callable[..., Any]:
    known: dict[tuple, OperatorCalls] = {}  # by attributes that need no further look

    def call(*args: Any, **attrs: Any) -> Any:
        if len(args) == count or not count:
            try:
                return known[tuple(attrs.items())](*args)
            except (KeyError, TypeError):  # new, or not to be hashed
                pass
        values = args[: count or len(args)]
        if len(values) < count:  # some arrays are given by name
            values += tuple([attrs.pop(each) for each in list(attrs)
                             if each not in names][: count - len(values)])  # fmt: skip
        attrs.update(zip(names, args[count or len(args) :]))
        given = {key: value for key, value in attrs.items() if value is not None}
        if set(given) - set(names) or len(values) < count or len(args) > len(values) + len(names):
            raise RecordError(f'nd.{name} takes {count or "any number of"} values and {names}')
        if op in _RESHAPING and isinstance(values[0], Value):
            return _reshaped(values[0], op, given)
        if values == args and given == attrs and op not in _RESHAPING:
            known[tuple(attrs.items())] = operator_calls(op, attrs)
        return Recording.operate(op, *values, **given)

    call.__name__ = name
    return call


for _name, (_op, _count, _names) in VALUE_OPERATORS.items():
    globals()[_name] = METHODS[_name] = _function(_name, _op, _count, _names)


def _of_two(name: str, op: str, of_number: str, turned: str) -> Callable[..., Any]:
    def call(lhs: Any, rhs: Any) -> Any:
        if isinstance(lhs, (int, float, np.number)):
            return Recording.with_number(op, turned, rhs, lhs)
        return Recording.with_number(op, of_number, lhs, rhs)

    call.__name__ = name
    return call


for _name, _three in WITH_NUMBERS.items():
    globals()[_name] = _of_two(_name, *_three)


def _of_axes(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a method that takes sizes or axes one by one, or together."""

    def call(value: Any, *sizes: Any, **attrs: Any) -> Any:
        if sizes:
            attrs[name] = sizes[0] if len(sizes) == 1 else sizes
        return method(value, **attrs)

    return call


METHODS['reshape'] = _of_axes(METHODS['reshape'], 'shape')
METHODS['transpose'] = _of_axes(METHODS['transpose'], 'axes')
METHODS['copy'] = METHODS['__copy__'] = lambda value: Recording.operate('_copy', value)
METHODS['detach'] = METHODS['as_in_context'] = lambda value, *ctx: value


def part_of(value: Any, key: Any) -> Any:
    """Return a part of a value, as ``value[:, 3]`` or ``value[places]``."""
    if isinstance(key, (Value, np.ndarray, list)):
        return Recording.operate('take', value, np.asarray(key) if isinstance(key, list) else key,
                                 axis=0, mode='raise')  # fmt: skip
    keys = list(key) if isinstance(key, tuple) else [key]
    if Ellipsis in keys:
        place = keys.index(Ellipsis)
        missing = value.ndim + 1 - len(keys) + keys.count(None)
        keys[place : place + 1] = [_Slice(None)] * missing
    if not all([each is None or isinstance(each, (int, _Slice, np.integer)) for each in keys]):
        raise RecordError(f'a value without MXNet has no part [{key}]')
    if isinstance(keys[0], (int, np.integer)):
        if not -value.shape[0] <= keys[0] < value.shape[0]:
            raise IndexError(f'a value of {value.shape[0]} rows has no row {keys[0]}')
        if value.shape[0] == 1:  # the only row: what is left of it becomes rows
            rest = part_of(value, (_Slice(None), *keys[1:])) if keys[1:] else value
            return _reshaped(rest, 'Reshape', {'shape': rest.shape[1:] or (1,)})
    axis = next((place for place, each in enumerate(keys) if each != _Slice(None)), 0)
    if axis < 2 and isinstance(keys[axis], (int, np.integer)) and CURRENT.get() is value.log:
        one = Recording.position(value, axis, int(keys[axis]))
        rest = (*keys[:axis], *keys[axis + 1 :])
        return part_of(one, rest) if len(rest) > axis else one
    found = tuple([
        (each.start, each.stop, each.step) if isinstance(each, _Slice) else
        each if each is None else int(each) for each in keys
    ])  # fmt: skip
    whole = (None, None, None)
    if all([each == whole for each in found]):
        return value
    return Recording.operate('item', value, key=found)


METHODS['__getitem__'] = part_of


def array(source_array: Any, ctx: Any = None, dtype: Any = None) -> Array:
    """Return an array with these contents, float32 if `dtype` does not say otherwise."""
    source = source_array.asnumpy() if isinstance(source_array, Value) else source_array
    own = source.dtype if isinstance(source_array, (Value, Array)) else np.float32
    return np.array(source, dtype or own).view(Array)


def zeros(shape: Any, ctx: Any = None, dtype: Any = None) -> Array:
    """Return an array of zeros."""
    return np.zeros(shape, dtype or np.float32).view(Array)


def ones(shape: Any, ctx: Any = None, dtype: Any = None) -> Array:
    """Return an array of ones."""
    return np.ones(shape, dtype or np.float32).view(Array)


def full(shape: Any, val: float, ctx: Any = None, dtype: Any = None) -> Array:
    """Return an array with one number in all places."""
    return np.full(shape, val, dtype or np.float32).view(Array)


def arange(
    start: float, stop: Any = None, step: float = 1, repeat: int = 1, infer_range: Any = None,
    ctx: Any = None, dtype: Any = None,
) -> Array:  # fmt: skip
    """Return numbers in equal steps."""
    begin, end = (0, start) if stop is None else (start, stop)
    return np.repeat(np.arange(begin, end, step, dtype or np.float32), repeat).view(Array)


_PYTHONS = {
    'add': ('add', 'plus'), 'radd': ('add', 'plus'), 'sub': ('sub', 'minus'),
    'rsub': ('sub', 'rminus'), 'mul': ('mul', 'mul'), 'rmul': ('mul', 'mul'),
    'truediv': ('div', 'div'), 'rtruediv': ('div', 'rdiv'), 'pow': ('power', 'power'),
    'rpow': ('power', 'rpower'), 'mod': ('mod', 'mod'), 'rmod': ('mod', 'rmod'),
    'eq': ('equal', 'equal'), 'ne': ('not_equal', 'not_equal'), 'lt': ('lesser', 'lesser'),
    'le': ('lesser_equal', 'lesser_equal'), 'gt': ('greater', 'greater'),
    'ge': ('greater_equal', 'greater_equal'),
}  # fmt: skip


def _operator(op: str, of_number: str) -> Callable[[Any, Any], Any]:
    return lambda self, other: Recording.with_number(op, of_number, self, other)


for _name, (_op, _number) in _PYTHONS.items():
    setattr(Array, f'__{_name}__', _operator(_op, _number))
for _name, _method in METHODS.items():
    if not _name.startswith('__'):
        setattr(Array, _name, _method)
