"""Walk through the objects of samples: which classes they have, and whether samples share some."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Optional

import numpy as np

from .resolved import ARRAYS, ATOMS, DICTS, LISTS, MISSING, in_class, is_atom, is_users_class

_MOST = 1_000_000  # objects
_TUPLES = tuple, frozenset  # which nobody can change


def classes_in(samples: Iterable[Any]) -> tuple[frozenset[type], str]:
    """Return the user's classes that objects of samples have, and what is not understood of them,
    or an empty text."""
    classes: set[type] = set()
    seen: dict[int, Any] = {}
    level: Sequence[Any] = list(samples)
    while level:
        below: list[Any] = []
        for cls, objects in _by_class(level).items():
            if cls not in _TUPLES:
                objects = [each for each in objects if id(each) not in seen]
                seen.update(zip(map(id, objects), objects))
            if len(seen) + len(below) > _MOST:
                return frozenset(), 'samples have too many objects'
            parts = _parts_of(cls, objects)
            if parts is None:
                return frozenset(), f'a sample has a {cls.__qualname__} among its objects'
            if is_users_class(cls):
                classes.add(cls)
            below += parts
        level = below
    return frozenset(classes), ''


def _by_class(objects: Sequence[Any]) -> dict[type, list[Any]]:
    found: dict[type, list[Any]] = {cls: [] for cls in set(map(type, objects)) - ATOMS}
    if found:
        for each in objects:
            if each.__class__ in found:
                found[each.__class__].append(each)
    return found


def _parts_of(cls: type, objects: Sequence[Any]) -> Optional[Iterable[Any]]:
    """Return what objects of a class refer to; None if it is not understood."""
    if cls in LISTS:
        return chain.from_iterable(objects)
    if cls in DICTS:
        return chain(*objects, *[each.values() for each in objects])
    if issubclass(cls, ARRAYS):
        is_opaque = cls is np.ndarray and any([each.dtype == object for each in objects])
        return None if is_opaque else ()
    if all(map(is_atom, objects)):
        return ()
    runs = [name for name in ('__call__', '__next__') if in_class(cls, name) is not MISSING]
    odd = runs or not is_users_class(cls)
    return None if odd else _fields(cls, objects)


def _fields(cls: type, objects: Sequence[Any]) -> Iterable[Any]:
    """Return what objects of a class of the user refer to, without running its code."""
    parts: list[Iterable[Any]] = [getattr(each, '__dict__', {}).values() for each in objects]
    for base in (*LISTS, dict):
        if issubclass(cls, base):
            parts += [base.__iter__(each) for each in objects]
    if issubclass(cls, dict):
        parts += [dict.values(each) for each in objects]
    for name in _slots_of(cls):
        parts.append([getattr(each, name) for each in objects if hasattr(each, name)])
    return chain.from_iterable(parts)


@lru_cache(maxsize=1024)
def _slots_of(cls: type) -> list[str]:
    found: list[str] = []
    for base in cls.__mro__:
        slots = vars(base).get('__slots__', ())
        found += [slots] if isinstance(slots, str) else slots
    return [name for name in found if name not in ('__dict__', '__weakref__')]


def shared_by(samples: Iterable[Any]) -> str:
    """Say what several samples have in common that can be written to; return an empty text if
    there is nothing."""
    owners: dict[int, int] = {}  # of objects, by their ids
    for index, sample in enumerate(samples):
        left = [sample]
        while left:
            each = left.pop()
            cls = each.__class__
            if cls in ATOMS or (cls not in _TUPLES and owners.get(id(each)) == index):
                continue
            if cls not in _TUPLES and owners.setdefault(id(each), index) != index:
                return f'samples that the program writes to share a {cls.__qualname__}'
            left += _parts_of(cls, [each]) or ()
    return ''
