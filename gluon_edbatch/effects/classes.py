"""What the analysis of effects needs to know of classes and objects."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Optional

from .objects import Made
from .resolved import MISSING, Known, in_class, is_atom, is_users

_NOT_CALLED = frozenset('__init__ __new__ __del__ __init_subclass__ __class_getitem__'.split())


def is_replaced(each: Any) -> bool:
    """Return whether ``x += y`` makes another object instead of changing `x`."""
    return isinstance(each, Known) and type(each.object) in (tuple, frozenset)


def is_callable(each: Any) -> bool:
    """Return whether an object can be called."""
    if isinstance(each, Made):
        return each.cls is not None and in_class(each.cls, '__call__') is not MISSING
    return isinstance(each, Known) and callable(each.object)


def special_methods(cls: type) -> list[str]:
    """Return the names of a class's special methods that are code of the user."""
    return [
        name
        for name in dict.fromkeys([name for base in cls.__mro__ for name in vars(base)])
        if name.startswith('__')
        and name.endswith('__')
        and name not in _NOT_CALLED
        and is_users(in_class(cls, name))
        and in_class(cls, name).__code__.co_filename != '<string>'  # of a dataclass, a named tuple
    ]


def fields_of(cls: type) -> Optional[Sequence[str]]:
    """Return the fields of a named tuple, or of a dataclass with the ``__init__`` of dataclasses;
    None for other classes."""
    if issubclass(cls, tuple) and hasattr(cls, '_fields'):
        written = '__new__' in [
            name
            for base in cls.__mro__
            for name in vars(base)
            if is_users(vars(base)[name]) and vars(base)[name].__code__.co_filename != '<string>'
        ]
        return None if written else cls._fields
    init = in_class(cls, '__init__')
    if (
        hasattr(cls, '__dataclass_fields__')
        and is_users(init)
        and init.__code__.co_filename == '<string>'
    ):
        return [each.name for each in dataclasses.fields(cls) if each.init]
    return None


def has_shared_defaults(cls: type) -> bool:
    """Return whether a named tuple has a field that is by default an object, which all share."""
    return not all(map(is_atom, getattr(cls, '_field_defaults', {}).values()))


def filled_fields(cls: type) -> list[str]:
    """Return the fields of a dataclass that are filled by a list, dict or set of their own."""
    if not dataclasses.is_dataclass(cls):
        return []
    made = [
        each for each in dataclasses.fields(cls) if each.default_factory is not dataclasses.MISSING
    ]
    return [each.name for each in made]
