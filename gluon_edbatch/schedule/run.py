"""One graph on its way to a schedule: what is certainly right is done, the rest is asked for.

This module is compiled by Cython where a compiler is present (the types are in ``run.pxd``), and
runs as it stands where not.
"""

from typing import List

import numpy as np

from ..graph.graph import Graph
from .frontier import Frontier
from .protocol import Schedule


class Run:
    """Takes batches from the frontier of a graph, by itself where nothing can be lost.

    A batch costs nothing if no other schedule can do without it: if all nodes of its type that
    have not run yet are ready, if its nodes must run alone, or if no other type is ready. (Nodes
    that ran earlier than need be hold nothing up.) What is left are the decisions for which
    schedulers differ.

    Parameters
    ----------
    graph : Graph
        The graph; it is not changed.

    Attributes
    ----------
    graph : Graph
    frontier : Frontier
        To be read only.
    left : list of int
        How many nodes of each type have not run yet. To be read only.
    batches : list of numpy.ndarray
        What ran so far.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.frontier = Frontier(graph)
        self.left: List[int] = graph.type_counts.tolist()
        self.batches: List[np.ndarray] = []
        self._alone: List[bool] = graph.alone.tolist()
        self._safe: List[int] = []
        self._find_safe()

    def copy(self) -> 'Run':
        """A run that goes on from here by itself; of use in the same thread only."""
        other = Run.__new__(Run)
        other.graph, other.frontier = self.graph, self.frontier.copy()
        other.left, other.batches = list(self.left), list(self.batches)
        other._alone, other._safe = self._alone, list(self._safe)
        return other

    def settle(self) -> bool:
        """Run what is certainly right; gives whether there is a type to choose then."""
        counts = self.frontier.counts
        while counts:
            if self._safe:
                self.take(self._safe.pop())
            elif len(counts) == 1:
                self.take(next(iter(counts)))
            else:
                return True
        return False

    def take(self, kind: int) -> np.ndarray:
        """Run the ready nodes of a type; gives them. See `Frontier.take`."""
        nodes = self.frontier.take(kind)
        self.left[kind] -= len(nodes)
        self.batches.append(nodes)
        self._find_safe()
        return nodes

    def schedule(self) -> Schedule:
        """What ran, as a schedule."""
        return Schedule.from_batches(self.batches)

    def _find_safe(self) -> None:
        frontier = self.frontier
        for kind in frontier.grown:
            if frontier.counts[kind] == self.left[kind] and not self._alone[kind]:
                self._safe.append(kind)
        for kind in frontier.fresh:
            if self._alone[kind]:
                self._safe.append(kind)
