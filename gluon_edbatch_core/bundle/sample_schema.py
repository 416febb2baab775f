"""What samples of an exported model look like. Needs NumPy only.

A kind is ``int``, ``float``, ``str``, ``bool`` or ``none``, or an object with one key:
``{"list": K}``, ``{"tuple": [K, ...]}``, ``{"dict": [K, V]}``, ``{"array": [dtype, axes]}``,
``{"value": [dtype, axes]}`` (an array of MXNet's),
``{"thing": class}`` (an object of the user's class) or ``{"any": [K, ...]}``. A list without a kind
was always empty. Fields of classes have kinds of their own.

In JSON, a thing is an object with its fields, a tuple or an array is a list, and a dict whose keys
are no texts is a list of pairs.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Optional

import numpy as np

from ..errors import BundleError
from ..short_repr import brief

ATOMS: dict[type, str] = {
    bool: 'bool', int: 'int', float: 'float', str: 'str', type(None): 'none',
}  # fmt: skip
Kind = Any


class SchemaBuilder:
    """Find the kinds of samples. `class_of` returns the number of the user's class of an object,
    and the names of its fields; None for other objects."""

    def __init__(self, class_of: Callable[[Any], Optional[tuple[int, Sequence[str]]]]):
        self._class_of = class_of
        self.fields: dict[int, dict[str, Kind]] = {}  # kinds by class and field

    def kind_of(self, value: Any, path: str) -> Kind:
        """Return the kind of a value; raise BundleError if it has none."""
        if hasattr(value, 'asnumpy'):
            return {'value': [np.dtype(value.dtype).name, len(value.shape)]}
        if isinstance(value, np.generic):
            value = value.item()
        atom = ATOMS.get(type(value))
        if atom is not None:
            return atom
        if isinstance(value, np.ndarray):
            return {'array': [value.dtype.name, value.ndim]}
        found = self._class_of(value)
        if found is not None:
            number, names = found
            fields = self.fields.setdefault(number, {})
            for name in names:
                if hasattr(value, name):
                    kind = self.kind_of(getattr(value, name), f'{path}.{name}')
                    fields[name] = merged(fields[name], kind) if name in fields else kind
            return {'thing': number}
        if isinstance(value, list):
            return {'list': self._of_all(value, path)}
        if isinstance(value, tuple):
            return {'tuple': [self.kind_of(each, f'{path}[{place}]')
                              for place, each in enumerate(value)]}  # fmt: skip
        if isinstance(value, dict):
            return {'dict': [self._of_all(list(value), path), self._of_all(value.values(), path)]}
        raise BundleError(
            f'{path} of the samples is {brief(value)}: an exported model takes numbers, text, '
            f'lists, tuples, dicts, arrays and objects of these'
        )

    def _of_all(self, values: Any, path: str) -> Optional[Kind]:
        result = None
        for place, each in enumerate(values):
            kind = self.kind_of(each, f'{path}[{place}]')
            result = kind if result is None else merged(result, kind)
        return result


def merged(one: Kind, other: Kind) -> Kind:
    """Return the kind of what has one of two kinds."""
    if one == other or other is None:
        return one
    if one is None:
        return other
    if {one, other} == {'int', 'float'} if isinstance(one, str) and isinstance(other, str) else 0:
        return 'float'
    if isinstance(one, dict) and isinstance(other, dict) and list(one) == list(other):
        ((name, mine),) = one.items()
        yours = other[name]
        if name == 'list':
            return {name: merged(mine, yours)}
        if name in ('tuple', 'dict') and len(mine) == len(yours):
            return {name: [merged(*both) for both in zip(mine, yours)]}
    several = [
        each
        for kind in (one, other)
        for each in (kind['any'] if isinstance(kind, dict) and 'any' in kind else [kind])
    ]
    result: list[Kind] = []
    for kind in several:
        for place, known in enumerate(result):
            joined = merged(known, kind) if _alike(known, kind) else None
            if joined is not None:
                result[place] = joined
                break
        else:
            result.append(kind)
    return result[0] if len(result) == 1 else {'any': result}


def _alike(one: Kind, other: Kind) -> bool:
    """Return whether two kinds merge to one that is not ``any``."""
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    ((name, mine),) = one.items()
    return list(one) == list(other) and (
        name == 'list' or mine == other[name]
        or (name in ('tuple', 'dict') and len(mine) == len(other[name]))
    )  # fmt: skip


def shown(kind: Kind) -> str:
    """Return a kind for a message."""
    if isinstance(kind, str):
        return kind
    ((name, of),) = kind.items()
    if name == 'any':
        return ' or '.join(map(shown, of))
    if name == 'tuple':
        return f'a tuple of {len(of)}'
    if name == 'thing':
        return 'an object'
    return f'an array of {of[0]}' if name in ('array', 'value') else f'a {name}'


def _all_fields(value: Any) -> Optional[Sequence[str]]:
    """Return the names of all fields of an object; None for lists, tuples and dicts."""
    cls = type(value)
    if isinstance(value, (list, tuple, dict)):
        return getattr(cls, '_fields', None)
    return sorted({*getattr(cls, '__slots__', ()), *getattr(value, '__dict__', ())})


def json_of(value: Any, fields_of: Callable[[Any], Optional[Sequence[str]]] = _all_fields) -> Any:
    """Return a sample, or what a model returns for it, as JSON. `fields_of` returns the fields of
    an object; None for lists, tuples and dicts. Numbers that are not finite become text."""
    if hasattr(value, 'asnumpy'):
        value = value.asnumpy()
    if isinstance(value, (np.generic, np.ndarray)):
        is_finite = value.dtype.kind != 'f' or np.isfinite(value).all()
        return value.tolist() if is_finite else json_of(value.tolist(), fields_of)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if type(value) in ATOMS:
        return value
    names = fields_of(value)
    if names is not None:
        return {name: json_of(getattr(value, name), fields_of)
                for name in names if hasattr(value, name)}  # fmt: skip
    if isinstance(value, dict):
        pairs = [[json_of(key, fields_of), json_of(each, fields_of)] for key, each in value.items()]
        return dict(pairs) if all([isinstance(key, str) for key, _ in pairs]) else pairs
    return [json_of(each, fields_of) for each in value]


def are_close(one: Any, other: Any, largest: float = 1) -> bool:
    """Return whether two results in JSON are equal up to rounding: for numbers of one array, beside
    the `largest` of them."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            [are_close(one[name], other[name]) for name in one]
        )
    if isinstance(one, list) and isinstance(other, list):
        sizes = [abs(each) for each in other if isinstance(each, float) and math.isfinite(each)]
        largest = max([1.0, *sizes])
        return len(one) == len(other) and all(
            [are_close(*pair, largest) for pair in zip(one, other)]
        )
    if isinstance(one, float) and isinstance(other, (int, float)):
        return bool(np.isclose(one, other, rtol=1e-4, atol=1e-5 * largest, equal_nan=True))
    return one == other
