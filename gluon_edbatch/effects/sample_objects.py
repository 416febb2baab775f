"""Walk through the objects of samples: which classes they have, and whether samples share some.

Cython compiles this module where a compiler is present.
"""

from collections.abc import Collection, Iterable, Sequence
from types import MemberDescriptorType
from typing import Any, Optional

import numpy as np

from .resolved import ARRAYS, ATOMS, DICTS, LISTS, MISSING, in_class, is_atom, is_users_class

_MOST = 200_000  # objects


def classes_in(samples: Iterable[Any]) -> tuple[frozenset[type], str]:
    """Return the user's classes that objects of samples have, and what is not understood of them,
    or an empty text."""
    _, classes, why = _walk(list(samples))
    return frozenset(classes), why


def shared_by(samples: Iterable[Any], writes_arrays: bool = False) -> str:
    """Say what several samples have in common that can be written to; return an empty text if
    there is nothing."""
    before: dict[int, Any] = {}
    for sample in samples:
        found, _, _ = _walk([sample])
        for number in before.keys() & found.keys():
            return f'samples that the program writes to share a {type(found[number]).__qualname__}'
        for each in found.values() if writes_arrays else ():
            if isinstance(each, ARRAYS) and getattr(each, 'base', each) is not None:
                return f'a {type(each).__qualname__} of a sample may share memory with another one'
        before.update(found)
    return ''


def _walk(roots: list[Any]) -> tuple[dict[int, Any], set[type], str]:
    """Return all objects that can change by their ids, the user's classes among theirs, and what is
    not understood."""
    classes: set[type] = set()
    seen: dict[int, Any] = {}
    level: Sequence[Collection[Any]] = [roots]
    while level:
        below: list[Collection[Any]] = []
        for cls, objects in _by_class(level, seen).items():
            parts = _parts_of(cls, objects)
            if parts is None:
                return seen, set(), f'a sample has a {cls.__qualname__} among its objects'
            if len(seen) + sum(map(len, parts)) > _MOST:
                return seen, set(), 'samples have too many objects'
            if is_users_class(cls):
                classes.add(cls)
            below.extend(parts)
        level = below
    return seen, classes, ''


def _by_class(several: Sequence[Collection[Any]], seen: dict[int, Any]) -> dict[type, list[Any]]:
    """Return the objects in some containers by their class, without numbers, text and what was
    `seen`, which it notes."""
    found: dict[Any, list[Any]] = {}
    last: Any = None  # most often, neighbours have one class
    some: list[Any] = []
    changes = False
    for objects in several:
        for each in objects:
            cls = type(each)
            if cls is not last:
                if cls is int or cls is str or cls in ATOMS:
                    continue
                last, some = cls, found.setdefault(cls, [])
                changes = not issubclass(cls, (tuple, frozenset)) or bool(cls.__dictoffset__)
            if changes:
                number = id(each)
                if number in seen:
                    continue
                seen[number] = each
            some.append(each)
    return {cls: some for cls, some in found.items() if some}


def _parts_of(cls: type, objects: Sequence[Any]) -> Optional[Sequence[Collection[Any]]]:
    """Return containers of what objects of a class refer to; None if it is not understood."""
    if cls in LISTS:
        return objects
    if cls in DICTS:
        return [*objects, *[each.values() for each in objects]]
    if issubclass(cls, ARRAYS):
        is_opaque = cls is np.ndarray and any([each.dtype == object for each in objects])
        return None if is_opaque else ()
    if all(map(is_atom, objects)):
        return ()
    runs = [name for name in ('__call__', '__next__') if in_class(cls, name) is not MISSING]
    return None if runs or not is_users_class(cls) else _fields(cls, objects)


def _fields(cls: type, objects: Sequence[Any]) -> Sequence[Collection[Any]]:
    """Return what objects of a class of the user refer to, without running its code."""
    parts: list[Collection[Any]] = []
    if hasattr(objects[0], '__dict__'):
        parts += [vars(each).values() for each in objects]
    if issubclass(cls, tuple) and in_class(cls, '__iter__') is tuple.__iter__:
        parts += objects
    elif issubclass(cls, (*LISTS, dict)):
        base = next(base for base in (*LISTS, dict) if issubclass(cls, base))
        parts += [list(base.__iter__(each)) for each in objects]
    if issubclass(cls, dict):
        parts += [dict.values(each) for each in objects]
    for name in _slots_of(cls):
        parts.append([getattr(each, name, None) for each in objects])
    return parts


def _slots_of(cls: type) -> list[str]:
    every = [item for base in cls.__mro__ for item in vars(base).items()]
    return [name for name, value in every if isinstance(value, MemberDescriptorType)]
