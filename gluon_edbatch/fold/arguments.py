"""Arguments of noted calls: when two calls are one, and values in the place of handles."""
import math
from types import MethodType
from typing import Any, Callable, Dict, Hashable, List, Optional, Tuple

from ..errors import RecordError
from .handles import Virtual

_CONSTANTS = frozenset((int, bool, str, bytes, type(None)))


def key_of_op(op: Callable) -> Hashable:
    """Equal for the same callable only; a bound method is made anew whenever it is asked for."""
    if op.__class__ is MethodType:
        return id(op.__self__), id(op.__func__)
    return id(op)


def note(items: Any, key: List[Hashable], owner: object) -> Tuple[list, int]:
    """Arguments as they are now.

    Handles are the same if they are the same part of the same call; numbers, strings and None if
    type and value are (0.0 is not -0.0); lists, tuples and dicts if they hold the same; arrays
    and all else only if they are the same object, which the call keeps alive.

    Parameters
    ----------
    items : iterable
    key : list
        What tells these arguments from others is appended.
    owner : object
        That of the handles that may be among them.

    Returns
    -------
    copies : list
        The same arguments, with copies of containers, which the user may change later on.
    depth : int
        Least depth of a call that reads them.
    """
    copies, depth = [], 0
    for item in items:
        kind = item.__class__
        if kind is Virtual:
            call = item.call
            if call.owner is not owner:
                raise RecordError(f'{item}, recorded at {call.site}, is of another fold, or of '
                                  f'this one before it was reset')
            key.append(item.key)
            if call.depth >= depth:
                depth = call.depth + 1
        elif kind in _CONSTANTS:
            key.append((kind, item))
        elif kind is float:
            key.append((kind, item, math.copysign(1.0, item)))
        elif isinstance(item, (list, tuple)) or kind is dict:
            inner: List[Hashable] = [kind]
            if kind is dict:
                inner.append(tuple([(type(name), name) for name in item]))
            held, deep = note(item.values() if kind is dict else item, inner, owner)
            key.append(tuple(inner))
            item = like(item, held)
            depth = max(depth, deep)
        else:
            key.append(id(item))
        copies.append(item)
    return copies, depth


def resolve(items: Any, parts: Dict[tuple, Any],
            convert: Optional[Callable[[Any], Any]] = None) -> list:
    """Arguments with values in the place of handles.

    Parameters
    ----------
    items : iterable
        As `note` gave them.
    parts : dict
        See `Virtual.value`.
    convert : callable, optional
        Is given each other argument.
    """
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
