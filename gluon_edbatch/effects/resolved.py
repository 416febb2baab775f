"""Objects that existed before the samples of a program ran, as an analysis of its code finds them.

The analysis notes each step from the program to such an object: an attribute, a global variable, an
element. A later call takes the steps again. If they lead to objects of the same kinds, what the
analysis said still holds.
"""

import builtins
import sys
from collections import OrderedDict, deque, namedtuple
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum, EnumMeta
from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from ..mx.blocks import children_of, hooks_of
from ..record.sites import USER, kind_of, kind_of_file

ATOMS = {
    int, float, complex, bool, str, bytes, type(None), type(Ellipsis), slice, range, np.dtype,
    mx.Context, type(NotImplemented),
}  # fmt: skip
LISTS = (list, tuple, set, frozenset, deque)
DICTS = (dict, OrderedDict, MappingProxyType)
ARRAYS = (np.ndarray, NDArray)
_FIELD = namedtuple('_FIELD', 'name').name  # type: ignore[attr-defined]
SLOTS = MemberDescriptorType, GetSetDescriptorType, type(_FIELD)  # run no code of the user
MISSING: Any = object()
_IS_WRITTEN_IN_PYTHON = 1 << 9  # a flag of classes
_MOST_ELEMENTS = 1000  # of a container, that are neither numbers nor text


class Known:
    """An object that all samples share, and the number of the step that found it."""

    __slots__ = ('object', 'step')

    def __init__(self, value: Any, step: int):
        self.object, self.step = value, step


class Access(NamedTuple):
    """How an object is reached from that of an earlier step, and what it must be."""

    origin: int
    kind: str
    key: Any
    mark: Any


def is_atom(value: Any) -> bool:
    """Return whether a value cannot change and runs no code of the user."""
    cls = value.__class__
    if cls in ATOMS or isinstance(value, np.generic):
        return True
    if isinstance(value, Enum):
        return not any([is_users(each) for base in cls.__mro__ for each in vars(base).values()])
    return cls in (tuple, frozenset) and all(map(is_atom, value))


def _mark(value: Any) -> Any:
    """Return what must be equal for an analysis to hold for another object in place of `value`."""
    cls = type(value)
    if cls is FunctionType:
        defaults = len(value.__defaults__ or ()), bool(value.__kwdefaults__)
        return value.__code__, defaults, hasattr(value, '__edb_pure__')
    if cls is MethodType:
        return MethodType, _mark(value.__func__)
    if value is MISSING or isinstance(value, (type, ModuleType, BuiltinFunctionType, np.ufunc)):
        return value
    return is_atom if is_atom(value) else cls


def elements_of(value: Any) -> list[Any]:
    """Return what a container holds, but for numbers and text."""
    if isinstance(value, dict):
        found = [*dict.keys(value), *dict.values(value)]
    elif isinstance(value, DICTS):
        found = [*value.keys(), *value.values()]
    else:  # without the code of a class of the user
        found = list(next(base for base in LISTS if isinstance(value, base)).__iter__(value))
    if not ATOMS.issuperset(map(type, found)):
        found = [each for each in found if not is_atom(each)]
        return found[: _MOST_ELEMENTS + 1]
    return []


def in_class(cls: type, name: str) -> Any:
    """Return an attribute of a class as it is written there; MISSING if there is none."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return MISSING


def is_users(function: Any) -> bool:
    """Return whether a function is the user's code."""
    return (
        isinstance(function, FunctionType)
        and kind_of(function.__code__, function.__globals__) == USER
    )


_users_classes: 'WeakKeyDictionary[type, bool]' = WeakKeyDictionary()


def is_users_class(cls: type) -> bool:
    """Return whether a class, or one that it derives from, is the user's."""
    known = _users_classes.get(cls)
    if known is None:
        known = _users_classes[cls] = any([is_written_by_user(base) for base in cls.__mro__])
    return known


def is_written_by_user(cls: type) -> bool:
    """Return whether a class itself is the user's."""
    if any(map(is_users, vars(cls).values())):
        return True
    module = sys.modules.get(cls.__module__)
    if not cls.__flags__ & _IS_WRITTEN_IN_PYTHON:
        return False
    if module is None or cls.__module__ == '__main__':
        return True
    file = getattr(module, '__file__', None)
    return file is not None and kind_of_file(file) == USER


def _fetch(origin: Any, kind: str, key: Any) -> Any:
    if kind == 'attribute':
        own = getattr(origin, '__dict__', {})
        if key in own:
            return own[key]
        found = in_class(type(origin), key)
        return getattr(origin, key, MISSING) if isinstance(found, SLOTS) else MISSING
    if kind == 'class':
        return in_class(type(origin), key)
    if kind == 'within':  # of a module, or a class itself
        if isinstance(origin, EnumMeta):
            return getattr(origin, key, MISSING)
        return in_class(origin, key) if isinstance(origin, type) else getattr(origin, key, MISSING)
    if kind == 'variable':
        if key in origin.__code__.co_freevars:
            cell = origin.__closure__[origin.__code__.co_freevars.index(key)]
            return next(iter(_contents(cell)), MISSING)
        return origin.__globals__.get(key, getattr(builtins, key, MISSING))
    if kind == 'part':  # __self__ and __func__ of a method, of a property, of a static method
        return getattr(origin, key)
    if kind == 'default':
        defaults = origin.__defaults__ or ()
        return (origin.__kwdefaults__ or {})[key] if key.__class__ is str else defaults[key]
    raise KeyError(kind)


def _contents(cell: Any) -> Iterator[Any]:
    with suppress(ValueError):  # it has none yet
        yield cell.cell_contents


def _parts(origin: Any, kind: str) -> list[Any]:
    if kind == 'elements':
        return elements_of(origin)
    if kind == 'children':
        return children_of(origin)
    return hooks_of(origin)


class Resolved:
    """What an analysis found from a program, step by step."""

    def __init__(self, root: Any):
        self._objects: list[Any] = [root]  # while the analysis runs
        self._mark = _mark(root)
        self._steps: list[Access] = []
        self._found: dict[tuple, Any] = {}

    def root(self) -> Known:
        """Return the program."""
        return self._found.setdefault((), Known(self._objects[0], 0))

    def _known(self, value: Any, mark: Any) -> Any:
        self._objects.append(value)
        known = Known(value, len(self._objects) - 1)
        return MISSING if mark is MISSING else None if mark is is_atom else known

    def get(self, origin: Known, kind: str, key: Any) -> Any:
        """Take a step from a known object; return a known object, None for numbers and text, or
        MISSING."""
        place = origin.step, kind, key
        if place not in self._found:
            value = _fetch(origin.object, kind, key)
            mark = _mark(value)
            self._steps.append(Access(*place, mark))
            self._found[place] = self._known(value, mark)
        return self._found[place]

    def given(self, value: Any) -> Known:
        """Return a class or module as a known object, which is the same for all programs."""
        place = -1, 'given', value
        if place not in self._found:
            self._steps.append(Access(*place, value))
            self._found[place] = self._known(value, value)
        return self._found[place]

    def all_of(self, origin: Known, kind: str) -> list[Known]:
        """Return the 'elements' of a container, the 'children' of a block, or its 'hooks'."""
        place = origin.step, kind, None
        if place not in self._found:
            values = _parts(origin.object, kind)
            marks = list(map(_mark, values))
            self._steps.append(Access(*place, marks))
            self._found[place] = list(filter(None, map(self._known, values, marks)))
        return self._found[place]

    def forget(self) -> None:
        """Drop all objects, and keep the steps."""
        self._objects, self._found = [], {}

    def holds_for(self, root: Any) -> bool:
        """Return whether the steps from another program lead to objects of the same kinds."""
        if _mark(root) != self._mark:
            return False
        objects = [root]
        try:
            for origin, kind, key, mark in self._steps:
                if kind == 'given':
                    objects.append(key)
                    continue
                if key is None:
                    values = _parts(objects[origin], kind)
                    if (values or mark) and list(map(_mark, values)) != mark:
                        return False
                    objects.extend(values)
                    continue
                value = _fetch(objects[origin], kind, key)
                if _mark(value) != mark:
                    return False
                objects.append(value)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            return False
        return True
