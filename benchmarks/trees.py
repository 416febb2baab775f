"""Count nodes of trees for the workloads."""

from itertools import chain
from typing import Any

__all__ = ['layers']


def layers(tree: Any) -> list[list[Any]]:
    """Return nodes by distance from the root; a node has ``children``."""
    found = [[tree]]
    while found[-1]:
        found.append(list(chain.from_iterable(node.children for node in found[-1])))
    return found[:-1]
