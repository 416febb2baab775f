"""Forms: what the calls of one kind in one recording have in common."""
from enum import Enum
from typing import Any, Callable, List, NamedTuple, Optional

from ..static.node_type import NodeType
from .lazy import LazyArray, Store
from .structure import LEAF, unflatten


class Lengths(Enum):
    """Which lengths of ragged arguments a call may have to be of its form."""

    ANY = 'any'        # there are none, or padding them changes nothing
    EQUAL = 'equal'    # the same, if there are two
    CHECKED = 'other'  # see NodeType.conditions


class Form(NamedTuple):
    """A type of node with the shapes of one kind of call, within one recording.

    Attributes
    ----------
    index : int
        What is appended to `Recording.node_forms`.
    node_type : NodeType
    rows : int
        Rows of the arguments.
    build : callable
        First output's value id -> the structure of lazy values that the call returns.
    outputs : int
        Number of outputs.
    lengths : Lengths
    mutable : tuple or None
        The containers among the attributes of the block and what they held, to be compared at
        each call; most blocks have none.
    """

    index: int
    node_type: NodeType
    rows: int
    build: Callable[[int], Any]
    outputs: int
    lengths: Lengths
    mutable: Optional[tuple] = None


def lengths_of(node_type: NodeType) -> Lengths:
    if node_type.lengths is not None or (node_type.neutral and not node_type.conditions):
        return Lengths.ANY
    equal = node_type.neutral and not any(number for _, _, number in node_type.conditions)
    return Lengths.EQUAL if equal else Lengths.CHECKED


def builder(node_type: NodeType, stores: List[Store]) -> Callable[[int], Any]:
    """The results of a call from its first output's value, in the fastest way for its structure."""
    template, leaves = node_type.graph.results, node_type.graph.leaves
    if template == LEAF:
        only, offset = stores[leaves[0]], leaves[0]
        if offset == 0:
            return lambda base: LazyArray(only, base)
    if template == (tuple, LEAF, LEAF) and leaves == (0, 1):
        first, second = stores
        return lambda base: (LazyArray(first, base), LazyArray(second, base + 1))
    return lambda base: unflatten(template, iter(
        [LazyArray(stores[leaf], base + leaf) for leaf in leaves]))
