"""What the workloads on trees count."""

from itertools import chain
from typing import Any

__all__ = ['layers']


def layers(tree: Any) -> list[list[Any]]:
    """Nodes by distance from the root; a node has ``children``."""
    found = [[tree]]
    while found[-1]:
        found.append(list(chain.from_iterable(node.children for node in found[-1])))
    return found[:-1]
