"""Group a minibatch of trees by level: the index arithmetic of batching by hand. NumPy only.

Both rivals batch the same way. Nodes are grouped by their distance from the root, not by their
height. Then all children of one level are exactly the inner nodes of the next level plus leaves, so
no earlier level is gathered from. Leaves know no state and run as one batch, whatever their level;
what they pass to their parents is summed once, before the levels begin.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ['Level', 'Levels', 'plan_levels']


@dataclass(frozen=True)
class Level:
    """Inner nodes at one distance from the root, rows ``begin:end`` of all inner nodes.

    Parameters
    ----------
    begin, end : int
        Rows of these nodes among all inner nodes.
    child_parents : numpy.ndarray
        For each inner node of the *next* level, the row of its parent counted from ``begin``.
    """

    begin: int
    end: int
    child_parents: np.ndarray


@dataclass(frozen=True)
class Levels:
    """A minibatch of trees in the order in which it runs.

    Parameters
    ----------
    tokens : numpy.ndarray
        Word ids: the inner nodes level by level from the roots, then the leaves.
    num_inner : int
        How many of them are inner nodes.
    leaf_parents : numpy.ndarray
        Inner row of the parent of each leaf. Leaves that are a whole tree have none and come
        after all others.
    levels : list of Level
        From the roots downwards; execution goes the other way.
    roots : numpy.ndarray
        For each tree, its row in (inner nodes of the first level, then leaves that are trees).
    """

    tokens: np.ndarray
    num_inner: int
    leaf_parents: np.ndarray
    levels: list[Level]
    roots: np.ndarray


def plan_levels(trees: Sequence[Any]) -> Levels:
    """Group the nodes of trees (with ``token`` and ``children``) by level."""
    inner = [tree for tree in trees if tree.children]
    lone = [tree.token for tree in trees if not tree.children]
    roots, next_inner, next_lone = [], 0, len(inner)
    for tree in trees:
        if tree.children:
            roots.append(next_inner)
            next_inner += 1
        else:
            roots.append(next_lone)
            next_lone += 1

    tokens, leaf_tokens, leaf_parents, levels = [], [], [], []
    begin = 0
    while inner:
        below, child_parents = [], []
        for row, node in enumerate(inner):
            tokens.append(node.token)
            for child in node.children:
                if child.children:
                    below.append(child)
                    child_parents.append(row)
                else:
                    leaf_tokens.append(child.token)
                    leaf_parents.append(begin + row)
        end = begin + len(inner)
        levels.append(Level(begin, end, np.array(child_parents, dtype=np.int32)))
        inner, begin = below, end
    return Levels(
        tokens=np.array(tokens + leaf_tokens + lone, dtype=np.int32),
        num_inner=len(tokens),
        leaf_parents=np.array(leaf_parents, dtype=np.int32),
        levels=levels,
        roots=np.array(roots, dtype=np.int32),
    )
