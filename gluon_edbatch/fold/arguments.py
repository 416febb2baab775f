"""Arguments of noted calls: when two calls are one, and values in the place of handles."""

import math
from collections.abc import Hashable, Iterable
from types import MethodType
from typing import Any, Callable, Optional

from ..errors import RecordError
from .handles import Virtual

_CONSTANTS = frozenset((int, bool, str, bytes, type(None)))


def key_of_op(op: Callable) -> Hashable:
    """Equal for the same callable only; a bound method is made anew whenever it is asked for."""
    if op.__class__ is MethodType:
        return id(op.__self__), id(op.__func__)
    return id(op)


def note(items: Iterable[Any], key: list[Hashable], owner: object) -> tuple[Iterable[Any], int]:
    """Arguments as they are now, with copies of lists and dicts, which the user may change later
    on; and the least depth of a call that reads them.

    Handles, arrays and most else are the same only if they are the same object, which the call
    keeps alive; numbers, strings and None if type and value are (0.0 is not -0.0); lists, tuples
    and dicts if they hold the same. What tells these arguments from others is appended to `key`, in
    one row: the garbage collector would walk through nested keys again and again. Handles have to
    be `owner`'s.
    """
    depth, copies = 0, None
    for position, item in enumerate(items):
        kind = item.__class__
        if kind is Virtual:
            call = item.call
            if call.owner is not owner:
                raise RecordError(
                    f'{item}, noted at {call.site}, is of another fold, or of this '
                    f'one before it was reset'
                )
            key.append(id(item))
            if call.depth >= depth:
                depth = call.depth + 1
        elif kind in _CONSTANTS:
            key += kind, item
        elif kind is float:
            key += kind, item, math.copysign(1.0, item)
        elif kind is dict or isinstance(item, (list, tuple)):
            key += kind, len(item)
            if kind is dict:
                for name in item:
                    key += name.__class__, name
            held, deep = note(item.values() if kind is dict else item, key, owner)
            depth = max(depth, deep)
            if kind is not tuple or held is not item:
                copies = list(items) if copies is None else copies
                copies[position] = like(item, list(held))
        else:
            key.append(id(item))
    return items if copies is None else copies, depth


def resolve(
    items: Any, parts: dict[tuple, Any], convert: Optional[Callable[[Any], Any]] = None
) -> list:
    """Arguments, as `note` gave them, with values in the place of handles; `convert` is given each
    other argument."""
    values = []
    for item in items:
        kind = item.__class__
        if kind is Virtual:
            item = item.value(parts)
        elif isinstance(item, (list, tuple)):
            item = like(item, resolve(item, parts, convert))
        elif kind is dict:
            item = like(item, resolve(item.values(), parts, convert))
        elif convert is not None:
            item = convert(item)
        values.append(item)
    return values


def like(container: Any, items: list) -> Any:
    """A container of this kind that holds these items."""
    kind = container.__class__
    if kind is list:
        return items
    if kind is dict:
        return dict(zip(container, items))
    return kind(*items) if hasattr(container, '_fields') else kind(items)
