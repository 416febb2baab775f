"""Flatten and rebuild nested lists, tuples and dicts of arguments and results."""

import itertools
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Callable, Optional

from gluon_edbatch_core.branching.pytree import LEAF, flatten, unflatten

from .fingerprint import PLAIN

__all__ = ['LEAF', 'builder', 'flatten', 'objects_in', 'unflatten']


def objects_in(template: tuple) -> Iterator[Any]:
    """Yield the objects of a template that are not arrays, containers or plain constants."""
    if template[0] == 'static':
        if not isinstance(template[2], PLAIN):
            yield template[2]
    elif template != LEAF:
        for item in template[3 if issubclass(template[0], dict) else 1 :]:
            yield from objects_in(item)


@cache
def builder(template: tuple) -> Callable[[Sequence[Any]], Any]:
    """Return `unflatten` for one template, as a function of a sequence of leaves.

    Lists and tuples become an expression that Python compiles, which is ten times as fast.
    """
    expression = _expression(template, itertools.count())
    if expression is None:
        return lambda leaves: unflatten(template, iter(leaves))
    return eval(f'lambda leaves: {expression}')  # of brackets and numbers only


def _expression(template: tuple, positions: Iterator[int]) -> Optional[str]:
    if template == LEAF:
        return f'leaves[{next(positions)}]'
    if template[0] not in (list, tuple):
        return None
    items: list[Any] = [_expression(item, positions) for item in template[1:]]
    if None in items:
        return None
    return (
        f'[{", ".join(items)}]' if template[0] is list else f'({"".join(f"{i}, " for i in items)})'
    )
