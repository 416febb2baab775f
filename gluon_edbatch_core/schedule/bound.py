"""Compute the least number of batches that any schedule needs (see `lower_bound`)."""

from collections.abc import Iterable, Iterator

import numpy as np

from ..graph.edges import most_on_paths
from ..graph.graph import Graph

# Counts are kept for all nodes and as many types at a time as fit into so many numbers (64 MB).
_CHUNK = 1 << 24


def lower_bound(graph: Graph) -> int:
    """Return a number of batches that no schedule of the graph can go below.

    Parameters
    ----------
    graph : Graph
        The graph.

    Returns
    -------
    int
        One for each node that must run alone. For each other type, the largest number of its nodes
        on one path, since these depend on each other [1]_. Some graphs have no schedule that
        reaches the bound.

    References
    ----------
    .. [1] Chen et al. (2023). ED-Batch: efficient automatic batching of dynamic neural networks via
       learned finite state machines. https://arxiv.org/abs/2302.03851
    """
    return int(least_batches(graph).sum())


def least_batches(graph: Graph) -> np.ndarray:
    """Return (num_types,) intp, the least number of batches of each type."""
    types, depth, counts = graph.types, graph.depth, graph.type_counts
    least = np.where(graph.alone, counts, counts > 0).astype(np.intp)
    # Nodes on one path differ in depth, so a type that is found at one depth needs one batch;
    # compare all nodes of a type with any of them.
    some = np.zeros(graph.num_types, np.intp)
    some[types] = np.arange(len(graph))
    spread = np.zeros(graph.num_types, bool)
    spread[types[depth != depth[some[types]]]] = True
    for kinds in portions(graph, np.flatnonzero(spread & ~graph.alone)):
        least[kinds] = path_counts(graph, kinds).max(axis=0)
    return least


def portions(graph: Graph, kinds: np.ndarray) -> Iterator[np.ndarray]:
    """Yield types in groups, each as large as `path_counts` may take at a time."""
    step = max(1, _CHUNK // max(1, len(graph)))
    for begin in range(0, len(kinds), step):
        yield kinds[begin : begin + step]


def path_counts(graph: Graph, kinds: np.ndarray) -> np.ndarray:
    """Return (n, k) int32, the most nodes of each of k types on a path that ends at each node."""
    column = np.full(graph.num_types, -1, np.int32)
    column[kinds] = np.arange(len(kinds))
    return most_on_paths(*graph.edges, column[graph.types], len(kinds))


def ranks(graph: Graph) -> np.ndarray:
    """Return (n,) intp, the most nodes of its own type on a path that ends at each node.

    Nodes of a type with equal ranks do not depend on each other.
    """
    found = np.ones(len(graph), np.intp)
    for kinds in portions(graph, np.arange(graph.num_types)):
        counts = path_counts(graph, kinds)
        column = graph.types - kinds[0]
        own = np.flatnonzero((column >= 0) & (column < len(kinds)))
        found[own] = counts[own, column[own]]
    return found


class CostToGo:
    """The lower bound of what is left of a graph, kept up to date as batches run.

    A batch that does not lower `bound` by one is one more than the bound.
    """

    def __init__(self, graph: Graph) -> None:
        longest = least_batches(graph)
        self.bound = int(longest.sum())
        self._types = graph.types
        self._alone: list[bool] = graph.alone.tolist()
        self._rank = ranks(graph.reversed)[::-1]
        self._longest: list[int] = longest.tolist()
        self._start = np.cumsum(longest + 1) - (longest + 1)
        self._counts = np.bincount(
            self._start[graph.types] + self._rank, minlength=int((longest + 1).sum())
        )

    def copy(self) -> 'CostToGo':
        """Return an independent copy."""
        other = CostToGo.__new__(CostToGo)
        vars(other).update(vars(self))
        other._longest, other._counts = list(self._longest), self._counts.copy()
        return other

    def left(self, kind: int) -> int:
        """Return the most nodes of a type on any path of what has not run yet."""
        return self._longest[kind]

    def run(self, batches: Iterable[np.ndarray]) -> None:
        """Note that batches have run, in an order that the edges allow."""
        for nodes in batches:
            kind = int(self._types[nodes[0]])
            if self._alone[kind]:
                self.bound -= 1
                continue
            start, longest = self._start[kind], self._longest[kind]
            ran = np.bincount(self._rank[nodes])
            counts = self._counts[start : start + len(ran)]
            counts -= ran
            while longest and not self._counts[start + longest]:
                longest -= 1
            self.bound -= self._longest[kind] - longest
            self._longest[kind] = longest
