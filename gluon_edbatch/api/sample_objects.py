"""Walk through the objects of samples: which classes they have, and whether samples share some."""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np

from .resolved import ARRAYS, ATOMS, DICTS, LISTS, is_atom, is_users_class

_MOST = 1_000_000
_TUPLES = tuple, frozenset  # which nobody can change


class SampleObjects:
    """The objects of samples.

    Attributes
    ----------
    classes : frozenset of type
        The user's classes that objects have.
    shared : str
        Says what several samples have in common that may be written to; empty if nothing.
    why : str
        Says which object is not understood; empty if there is none.
    """

    def __init__(self, samples: Iterable[Any]):
        self.shared = self.why = ''
        self._classes: set[type] = set()
        self._owners: dict[int, int] = {}  # of objects, by their ids
        for index, sample in enumerate(samples):
            self._walk(sample, index)
        self.classes = frozenset(self._classes)

    def _walk(self, sample: Any, index: int) -> None:
        left, owners = [sample], self._owners
        while left and not self.why:
            each = left.pop()
            cls = each.__class__
            if cls in ATOMS or cls not in _TUPLES and owners.get(id(each)) == index:
                continue
            if cls not in _TUPLES and owners.setdefault(id(each), index) != index:
                self.shared = self.shared or f'samples share a {cls.__qualname__}'
            elif len(owners) > _MOST:
                self.why = 'samples have too many objects'
            elif cls in LISTS:
                if not ATOMS.issuperset(map(type, each)):
                    left += each
            elif cls in DICTS:
                left += [*each.keys(), *each.values()]
            else:
                self._add_parts(each, cls, left)

    def _add_parts(self, each: Any, cls: type, left: list[Any]) -> None:
        if isinstance(each, ARRAYS) and not (cls is np.ndarray and each.dtype == object):
            return
        if is_atom(each):
            return
        if callable(each) or hasattr(cls, '__next__') or not is_users_class(cls):
            self.why = f'a sample has a {cls.__qualname__} among its objects'
            return
        self._classes.add(cls)
        if isinstance(each, DICTS):
            left += [*dict.keys(each), *dict.values(each)]
        elif isinstance(each, LISTS):
            left += each
        left += getattr(each, '__dict__', {}).values()
        left += [getattr(each, name) for name in _slots_of(cls) if hasattr(each, name)]


@lru_cache(maxsize=1024)
def _slots_of(cls: type) -> list[str]:
    found: list[str] = []
    for base in cls.__mro__:
        slots = vars(base).get('__slots__', ())
        found += [slots] if isinstance(slots, str) else slots
    return [name for name in found if name not in ('__dict__', '__weakref__')]
