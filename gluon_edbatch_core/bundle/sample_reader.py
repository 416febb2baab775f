"""Make samples from JSON, or from objects with the same fields. Needs NumPy only.

Each kind (see `sample_schema`) becomes a function of the data. It raises `_Wrong`, to which the
functions around it add where the data was.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import RecordError
from ..short_repr import brief
from .sample_schema import ATOMS, Kind, shown

_Read = Callable[[Any, int], Any]  # of data, and how many things it is in
_DEEPEST = 1000  # things in things: compiled, a recursion has no other limit
_TYPES: dict[str, Any] = {name: each for each, name in ATOMS.items()}
_NUMBERS: dict[str, Any] = {'int': np.integer, 'float': (np.floating, int, np.integer)}


class _Wrong(Exception):
    """Data is of another kind. `place` has the fields and positions above it, innermost first."""

    def __init__(self, why: str):
        super().__init__(why)
        self.place: list[str] = []


def _expected(kind: Kind, data: Any) -> _Wrong:
    return _Wrong(f'must be {shown(kind)}, not {brief(data)}')


class SampleReader:
    """Read samples of some kinds.

    Parameters
    ----------
    kinds : dict
        By the number of a class, the kinds of its fields.
    classes : list of type
    as_value : callable
        Returns a NumPy array of a dtype as one of MXNet's.
    """

    def __init__(
        self,
        kinds: Mapping[int, Mapping[str, Kind]],
        classes: Sequence[type],
        as_value: Callable[..., Any],
    ):
        self._kinds, self._classes, self._as_value = kinds, classes, as_value
        self._things: dict[int, _Read] = {}
        self._things.update({number: self._thing(number) for number in kinds})

    def reader(self, kind: Kind) -> Callable[[Any, str], Any]:
        """Return a function of data and its name, which returns what the model takes. It raises
        RecordError, which names the field, for data of another kind."""
        read = self._read(kind)

        def read_named(data: Any, name: str) -> Any:
            try:
                return read(data, 0)
            except _Wrong as wrong:
                where = name + ''.join(reversed(wrong.place))
                raise RecordError(f'{where} {wrong}') from None
            except RecursionError:
                raise RecordError(f'{name} is nested too deeply') from None

        return read_named

    def _read(self, kind: Kind) -> _Read:
        if kind is None:
            return _nothing
        if isinstance(kind, str):
            return _atom(kind)
        ((name, of),) = kind.items()
        if name == 'thing':
            return lambda data, depth: self._things[of](data, depth + 1)
        if name == 'any':
            return _first(kind, [(self._fits(each), self._read(each)) for each in of])
        if name == 'array':
            return lambda data, depth: _array(of, data)
        if name == 'value':
            return lambda data, depth: self._as_value(_array(of, data), dtype=of[0])
        if name == 'list':
            return _list(kind, self._read(of))
        readers = list(map(self._read, of))
        if name == 'tuple':
            return _tuple(kind, readers)
        return _dict(kind, readers[0], readers[1], of[0] == 'int')

    def _thing(self, number: int) -> _Read:
        cls: Any = self._classes[number]
        fields = {name: self._read(kind) for name, kind in self._kinds[number].items()}
        is_tuple = issubclass(cls, tuple)

        def read(data: Any, depth: int) -> Any:
            if depth > _DEEPEST:
                raise RecursionError
            if type(data) is not dict:
                data = _fields_of(data, fields)
            if is_tuple:
                found: dict[str, Any] = {}
            else:
                made = cls.__new__(cls)
                found = vars(made)
            name = ''
            try:
                for name, read_field in fields.items():
                    found[name] = read_field(data[name], depth)
            except KeyError:
                raise _Wrong(f'has no field {name!r}, which {cls.__name__} needs') from None
            except _Wrong as wrong:
                wrong.place.append(f'.{name}')
                raise
            return cls(**found) if is_tuple else made

        return read

    def _fits(self, kind: Kind) -> Callable[[Any], bool]:
        """Return a function that tells whether data may be of a kind, by its outermost level."""
        if isinstance(kind, str):
            wanted = _TYPES[kind]
            more = _NUMBERS.get(kind, wanted)
            return lambda data: (
                type(data) is wanted or (isinstance(data, more) and type(data) is not bool)
            )
        ((name, of),) = kind.items()
        if name == 'tuple':
            return lambda data: isinstance(data, (list, tuple)) and len(data) == len(of)
        if name == 'thing':
            fields = set(self._kinds[of])
            return lambda data: (
                fields <= set(data) if type(data) is dict
                else not isinstance(data, (int, float, str, list, type(None)))
                and all([hasattr(data, each) for each in fields])
            )  # fmt: skip
        kinds = {'list': (list, tuple), 'dict': (dict, list)}.get(name, (list, np.ndarray))
        return lambda data: isinstance(data, kinds)


def _nothing(data: Any, depth: int) -> Any:
    raise _Wrong('is in a list that was empty in all samples of the export')


def _fields_of(data: Any, names: Any) -> dict[str, Any]:
    """Return the fields of an object that is no JSON."""
    if isinstance(data, (int, float, str, list, type(None))):
        raise _expected({'thing': 0}, data)
    return {name: getattr(data, name) for name in names if hasattr(data, name)}


def _atom(kind: str) -> _Read:
    wanted = _TYPES[kind]

    def read(data: Any, depth: int) -> Any:
        if type(data) is not wanted:
            data = data.item() if isinstance(data, np.generic) else data
            if kind == 'float' and type(data) is int:
                try:
                    data = float(data)
                except OverflowError:
                    raise _Wrong('is too large') from None
            if type(data) is not wanted:
                raise _expected(kind, data)
        if kind == 'float' and not math.isfinite(data):
            raise _Wrong(f'is {data}')
        return data

    return read


def _first(kind: Kind, readers: Sequence[tuple[Callable[[Any], bool], _Read]]) -> _Read:
    as_they_are = {each for each, name in ATOMS.items() if name in kind['any'] and name != 'float'}

    def read(data: Any, depth: int) -> Any:
        if type(data) in as_they_are:
            return data
        for fits, each in readers:
            if fits(data):
                return each(data, depth)
        raise _expected(kind, data)

    return read


def _array(of: Sequence[Any], data: Any) -> np.ndarray:
    try:
        array = np.array(data.asnumpy() if hasattr(data, 'asnumpy') else data, of[0])
    except (TypeError, ValueError, OverflowError) as error:
        raise _Wrong(f'is no array of {of[0]}: {brief(str(error))}') from None
    if not array.size and array.ndim < of[1]:
        return array.reshape([0] * of[1])  # JSON has one axis then
    if array.ndim != of[1]:
        raise _Wrong(f'has {array.ndim} axes, and must have {of[1]}')
    return array


def _list(kind: Kind, item: _Read) -> _Read:
    def read(data: Any, depth: int) -> list[Any]:
        if not isinstance(data, (list, tuple)):
            raise _expected(kind, data)
        found: list[Any] = []
        try:
            for each in data:
                found.append(item(each, depth))  # noqa: PERF401  its length says where an error was
        except _Wrong as wrong:
            wrong.place.append(f'[{len(found)}]')
            raise
        return found

    return read


def _tuple(kind: Kind, items: Sequence[_Read]) -> _Read:
    def read(data: Any, depth: int) -> tuple:
        if not isinstance(data, (list, tuple)) or len(data) != len(items):
            raise _expected(kind, data)
        found: list[Any] = []
        try:
            for item, each in zip(items, data):
                found.append(item(each, depth))
        except _Wrong as wrong:
            wrong.place.append(f'[{len(found)}]')
            raise
        return tuple(found)

    return read


def _dict(kind: Kind, key: _Read, value: _Read, has_numbers: bool) -> _Read:
    def read(data: Any, depth: int) -> dict:
        try:
            pairs = list(data.items()) if isinstance(data, dict) else [(k, v) for k, v in data]
        except (TypeError, ValueError):
            raise _expected(kind, data) from None
        found: dict[Any, Any] = {}
        for name, each in pairs:
            if has_numbers and isinstance(name, str) and name.lstrip('-').isdecimal():
                name = int(name)  # JSON has no other keys than texts
            try:
                found[key(name, depth)] = value(each, depth)
            except _Wrong as wrong:
                wrong.place.append(f'[{brief(name)}]')
                raise
        return found

    return read
