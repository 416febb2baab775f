"""What samples of an exported model look like, and samples from JSON. Needs NumPy only.

A kind is ``int``, ``float``, ``str``, ``bool`` or ``none``, or an object with one key:
``{"list": K}``, ``{"tuple": [K, ...]}``, ``{"dict": [K, V]}``, ``{"array": [dtype, axes]}``,
``{"thing": class}`` (an object of the user's class) or ``{"any": [K, ...]}``. A list without a kind
was always empty. Fields of classes have kinds of their own.

In JSON, a thing is an object with its fields, a tuple or an array is a list, and a dict whose keys
are no texts is a list of pairs.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import numpy as np

from ..errors import BundleError, RecordError
from ..short_repr import brief

_ATOMS: dict[type, str] = {
    bool: 'bool', int: 'int', float: 'float', str: 'str', type(None): 'none',
}  # fmt: skip
_MOST_DEPTH = 400
Kind = Any


class SchemaBuilder:
    """Find the kinds of samples. `class_of` returns the number of the user's class of an object,
    and the names of its fields; None for other objects."""

    def __init__(self, class_of: Callable[[Any], Optional[tuple[int, Sequence[str]]]]):
        self._class_of = class_of
        self.fields: dict[int, dict[str, Kind]] = {}  # kinds by class and field

    def kind_of(self, value: Any, path: str) -> Kind:
        """Return the kind of a value; raise BundleError if it has none."""
        if isinstance(value, np.generic):
            value = value.item()
        atom = _ATOMS.get(type(value))
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


class SampleReader:
    """Make samples from JSON, or from objects with the same fields.

    Parameters
    ----------
    kinds : dict
        By the number of a class, the kinds of its fields.
    classes : list of type
    """

    def __init__(self, kinds: Mapping[int, Mapping[str, Kind]], classes: Sequence[type]):
        self._kinds, self._classes = kinds, classes

    def read(self, kind: Kind, data: Any, path: str = 'sample', depth: int = 0) -> Any:
        """Return a sample; raise RecordError, which names the field, if it is of another kind."""
        if depth > _MOST_DEPTH:
            raise RecordError(f'{brief(path)} is nested more than {_MOST_DEPTH} levels deep')
        if isinstance(kind, str):
            return _atom(kind, data, path)
        if kind is None:
            raise RecordError(f'{path}: the lists of the exported samples were empty here')
        ((name, of),) = kind.items()
        if name == 'any':
            fitting = [each for each in of if self._fits(each, data)]
            if not fitting:
                raise RecordError(f'{path} must be {shown(kind)}, not {brief(data)}')
            return self.read(fitting[0], data, path, depth + 1)
        if name == 'array':
            return _array(of, data, path)
        if not self._fits(kind, data):
            raise RecordError(f'{path} must be {shown(kind)}, not {brief(data)}')
        if name == 'list':
            return [self.read(of, each, f'{path}[{place}]', depth + 1)
                    for place, each in enumerate(data)]  # fmt: skip
        if name == 'tuple':
            return tuple([self.read(each, item, f'{path}[{place}]', depth + 1)
                          for place, (each, item) in enumerate(zip(of, data))])  # fmt: skip
        if name == 'dict':
            pairs = data.items() if isinstance(data, dict) else data
            return {self.read(of[0], key, f'{path} (a key)', depth + 1):
                    self.read(of[1], value, f'{path}[{brief(key)}]', depth + 1)
                    for key, value in pairs}  # fmt: skip
        return self._thing(of, data, path, depth)

    def _thing(self, number: int, data: Any, path: str, depth: int) -> Any:
        cls, found = self._classes[number], {}
        for name, kind in self._kinds[number].items():
            if isinstance(data, dict):
                if name not in data:
                    raise RecordError(f'{path} has no field {name!r}, which {cls.__name__} needs')
                value = data[name]
            else:
                try:
                    value = getattr(data, name)
                except AttributeError:
                    raise RecordError(
                        f'{path} has no attribute {name!r}, which {cls.__name__} needs'
                    ) from None
            found[name] = self.read(kind, value, f'{path}.{name}', depth + 1)
        if issubclass(cls, tuple):
            return cls(**{each: found.get(each) for each in cls._fields})  # type: ignore
        made = cls.__new__(cls)
        vars(made).update(found)
        return made

    def _fits(self, kind: Kind, data: Any) -> bool:
        """Return whether data may be of a kind, by its outermost level."""
        if isinstance(kind, str):
            if kind == 'float':
                return type(data) in (int, float) or isinstance(data, np.floating)
            if kind == 'int':
                return type(data) is int or isinstance(data, np.integer)
            return _ATOMS.get(type(data)) == kind
        ((name, of),) = kind.items()
        if name == 'tuple':
            return isinstance(data, (list, tuple)) and len(data) == len(of)
        if name == 'list':
            return isinstance(data, (list, tuple))
        if name == 'array':
            return isinstance(data, (list, np.ndarray))
        if name == 'dict':
            return isinstance(data, dict) or (
                isinstance(data, list)
                and all([isinstance(each, (list, tuple)) and len(each) == 2 for each in data])
            )
        fields = self._kinds[of]
        if isinstance(data, dict):
            return set(fields) <= set(data)
        return not isinstance(data, (int, float, str, list, type(None))) and all(
            [hasattr(data, each) for each in fields]
        )


def _atom(kind: str, data: Any, path: str) -> Any:
    if isinstance(data, np.generic):
        data = data.item()
    if kind == 'float' and type(data) is int:
        try:
            data = float(data)
        except OverflowError:
            raise RecordError(f'{path} is too large') from None
    if _ATOMS.get(type(data)) != kind:
        raise RecordError(f'{path} must be {shown(kind)}, not {brief(data)}')
    if kind == 'float' and not math.isfinite(data):
        raise RecordError(f'{path} is {data}')
    return data


def _array(of: Sequence[Any], data: Any, path: str) -> np.ndarray:
    try:
        array = np.array(data, of[0])
    except (TypeError, ValueError, OverflowError) as error:
        raise RecordError(f'{path} is no array of {of[0]}: {brief(str(error))}') from None
    if array.ndim != of[1]:
        raise RecordError(f'{path} has {array.ndim} axes, and must have {of[1]}')
    return array


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
    return f'a {name}' if name != 'array' else f'an array of {of[0]}'


def json_of(value: Any, fields_of: Callable[[Any], Optional[Sequence[str]]]) -> Any:
    """Return a sample as JSON. `fields_of` returns the fields of an object of the user's class."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if type(value) in _ATOMS:
        return value
    names = fields_of(value)
    if names is not None:
        return {name: json_of(getattr(value, name), fields_of)
                for name in names if hasattr(value, name)}  # fmt: skip
    if isinstance(value, dict):
        pairs = [[json_of(key, fields_of), json_of(each, fields_of)] for key, each in value.items()]
        return dict(pairs) if all([isinstance(key, str) for key, _ in pairs]) else pairs
    return [json_of(each, fields_of) for each in value]


def json_of_result(result: Any) -> Any:
    """Return what a model returns for a sample as JSON: objects have all their fields."""
    if hasattr(result, 'asnumpy'):
        result = result.asnumpy()
    if isinstance(result, tuple) and hasattr(result, '_fields'):
        return {name: json_of_result(each) for name, each in zip(result._fields, result)}
    if isinstance(result, (list, tuple)):
        return [json_of_result(each) for each in result]
    if isinstance(result, dict):
        return [[json_of_result(key), json_of_result(each)] for key, each in result.items()]
    if isinstance(result, (np.ndarray, np.generic)):
        return json_of_result(result.tolist())
    if isinstance(result, float) and not math.isfinite(result):
        return str(result)
    if type(result) in _ATOMS:
        return result
    fields = {name: getattr(result, name) for name in getattr(type(result), '__slots__', ())}
    fields.update(getattr(result, '__dict__', {}))
    return {name: json_of_result(each) for name, each in sorted(fields.items())}


def are_close(one: Any, other: Any) -> bool:
    """Return whether two results in JSON are equal up to rounding."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            [are_close(one[name], other[name]) for name in one]
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(are_close, one, other))
    if isinstance(one, float) and isinstance(other, (int, float)):
        return bool(np.isclose(one, other, rtol=1e-4, atol=1e-5, equal_nan=True))
    return one == other
