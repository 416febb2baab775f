"""Flatten and rebuild nested lists, tuples and dicts of arguments and results, and encode them."""

from collections import namedtuple
from collections.abc import Hashable, Iterator
from typing import Any, Union

import numpy as np

from ..errors import BundleError

EQUAL_IF_SAME = frozenset((bool, int, str, bytes, type(None)))  # plain ones of one type
LEAF = ('leaf',)
ClassInfo = Union[type, tuple[type, ...]]


def flatten(value: Any, classes: ClassInfo, leaves: list[Any]) -> tuple:
    """Append the leaves of `value`, of these classes and not bools, to `leaves`; return its
    template.

    A template is hashable and compares by value. It has containers with their lengths and keys,
    `LEAF` for each leaf, and other objects in the form of `exact`. Raises TypeError if another
    object cannot be hashed, and so not compared.
    """
    if isinstance(value, (list, tuple)):
        return (type(value),) + tuple(flatten(item, classes, leaves) for item in value)
    if isinstance(value, dict):
        return (type(value), tuple(value), exact(tuple(value))) + tuple(
            flatten(item, classes, leaves) for item in value.values()
        )
    if isinstance(value, classes) and not isinstance(value, bool):
        leaves.append(value)
        return LEAF
    hash(value)
    return ('static', exact(value), value)


def unflatten(template: tuple, leaves: Iterator[Any]) -> Any:
    """Rebuild the structure that `flatten` took apart, with `leaves` in order."""
    kind = template[0]
    if kind == 'leaf':
        return next(leaves)
    if kind == 'static':
        return template[2]
    if issubclass(kind, dict):
        return kind(zip(template[1], [unflatten(item, leaves) for item in template[3:]]))
    items = [unflatten(item, leaves) for item in template[1:]]
    return kind(*items) if hasattr(kind, '_fields') else kind(items)


def exact(constant: Any) -> Hashable:
    """Return a key that is equal for equal constants only: 1 is neither True nor 1.0, and 0.0 is
    not -0.0, but all NaNs are equal."""
    kind = type(constant)
    if kind in EQUAL_IF_SAME:
        return kind, constant
    if isinstance(constant, np.generic):
        return kind, constant.tobytes()
    if isinstance(constant, (tuple, frozenset)):
        return kind, (tuple if isinstance(constant, tuple) else frozenset)(map(exact, constant))
    if isinstance(constant, complex) or (
        isinstance(constant, float) and not (constant and constant == constant)
    ):
        return kind, repr(constant)
    return kind, constant


# --- as data -------------------------------------------------------------------------------------

_PLAIN = (bool, int, str, type(None))
_CONTAINERS = {'list': list, 'tuple': tuple, 'dict': dict}


def serialised(template: tuple) -> Any:
    """Return a template as plain JSON. Raise BundleError for anything that is not data, such as an
    object of a user's class."""
    kind = template[0]
    if template == LEAF:
        return 'leaf'
    if kind == 'static':
        return {'value': serialised_constant(template[2])}
    if issubclass(kind, dict):
        keys = [serialised_constant(key) for key in template[1]]
        return {'dict': keys, 'items': [serialised(item) for item in template[3:]]}
    items = [serialised(item) for item in template[1:]]
    if hasattr(kind, '_fields'):
        return {'named': kind.__name__, 'fields': list(kind._fields), 'items': items}
    return {'list' if issubclass(kind, list) else 'tuple': items}


def deserialised(data: Any) -> tuple:
    """Return the template of `serialised` data; a named tuple gets a new class. Raise BundleError
    for other data."""
    if data == 'leaf':
        return LEAF
    if isinstance(data, dict):
        if 'value' in data:
            value = deserialised_constant(data['value'])
            return ('static', exact(value), value)
        if 'dict' in data:
            keys = tuple(map(deserialised_constant, data['dict']))
            return (dict, keys, exact(keys), *map(deserialised, data['items']))
        if 'named' in data:
            name: Any = data['named']
            made: Any = namedtuple(name, data['fields'])  # type: ignore[misc]
            return (made, *map(deserialised, data['items']))
        for name, kind in _CONTAINERS.items():
            if name in data:
                return (kind, *map(deserialised, data[name]))
    raise BundleError(f'a structure is described by {str(data)[:60]!r}, which is none')


def serialised_constant(value: Any) -> Any:
    """Return a number, text or None as plain JSON; floats as text, as JSON has no infinity."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return {'float': repr(value)}
    if isinstance(value, tuple):
        return {'tuple': [serialised_constant(each) for each in value]}
    if not isinstance(value, _PLAIN):
        raise BundleError(
            f'a {type(value).__name__} is among arguments or results: only numbers, texts, None '
            f'and arrays can be written, in lists, tuples and dicts'
        )
    return value


def deserialised_constant(data: Any) -> Any:
    """Return the constant that `serialised_constant` got."""
    if isinstance(data, dict):
        if 'float' in data:
            return float(data['float'])
        return tuple(map(deserialised_constant, data['tuple']))
    return data
