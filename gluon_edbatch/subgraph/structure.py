"""Nested lists, tuples and dicts of arguments and results: taken apart and put together again."""

import itertools
from functools import lru_cache
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple, Union

from .fingerprint import PLAIN, exact

LEAF = ('leaf',)
ClassInfo = Union[type, Tuple[type, ...]]


def flatten(value: Any, classes: ClassInfo, leaves: List[Any]) -> Tuple:
    """Append the leaves of `value`, which are of these classes and no bools, to `leaves` and
    return its template.

    A template is hashable and compares by value: containers with their lengths and keys, `LEAF`
    where a leaf was, and whatever is neither as `exact` has it.

    Raises
    ------
    TypeError
        If something that is neither container nor leaf cannot be hashed, and so not compared.
    """
    if isinstance(value, (list, tuple)):
        return (type(value),) + tuple(flatten(item, classes, leaves) for item in value)
    if isinstance(value, dict):
        return (type(value), tuple(value), exact(tuple(value))) + tuple(
            flatten(item, classes, leaves) for item in value.values()
        )
    if isinstance(value, classes) and not isinstance(value, bool):
        leaves.append(value)
        return LEAF
    hash(value)
    return ('static', exact(value), value)


def unflatten(template: Tuple, leaves: Iterator[Any]) -> Any:
    """Build what `flatten` took apart, with the next of `leaves` at each leaf."""
    kind = template[0]
    if kind == 'leaf':
        return next(leaves)
    if kind == 'static':
        return template[2]
    if issubclass(kind, dict):
        return kind(zip(template[1], [unflatten(item, leaves) for item in template[3:]]))
    items = [unflatten(item, leaves) for item in template[1:]]
    return kind(*items) if hasattr(kind, '_fields') else kind(items)


def objects_in(template: Tuple) -> Iterator[Any]:
    """What is neither array nor container nor plain constant among what was taken apart."""
    if template[0] == 'static':
        if not isinstance(template[2], PLAIN):
            yield template[2]
    elif template != LEAF:
        for item in template[3 if issubclass(template[0], dict) else 1 :]:
            yield from objects_in(item)


@lru_cache(maxsize=None)
def builder(template: Tuple) -> Callable[[Sequence[Any]], Any]:
    """`unflatten` for one template, as a function of a sequence of leaves.

    Lists and tuples become an expression that Python compiles: it takes a tenth of the time.
    """
    expression = _expression(template, itertools.count())
    if expression is None:
        return lambda leaves: unflatten(template, iter(leaves))
    return eval(f'lambda leaves: {expression}')  # of brackets and numbers only


def _expression(template: Tuple, positions: Iterator[int]) -> Optional[str]:
    if template == LEAF:
        return f'leaves[{next(positions)}]'
    if template[0] not in (list, tuple):
        return None
    items: List[Any] = [_expression(item, positions) for item in template[1:]]
    if None in items:
        return None
    return (
        f'[{", ".join(items)}]' if template[0] is list else f'({"".join(f"{i}, " for i in items)})'
    )
