"""Schedule a graph: run batches that cannot be wrong, and let a rule choose all others.

Cython compiles this module by ``run.pxd`` where there is a compiler.
"""

import numpy as np

from ..graph.graph import Graph
from .frontier import Frontier, Rule
from .protocol import Schedule


class Run:
    """Run batches of a graph, by itself where no choice can be wrong.

    A batch is in any schedule if all remaining nodes of its type are ready, if its nodes must run
    alone, or if no other type is ready. A `Rule` makes the other decisions.

    Parameters
    ----------
    graph : Graph
        The graph; it is not changed.

    Attributes
    ----------
    graph : Graph
    frontier : Frontier
        What is ready, and what ran. Read-only.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.frontier = Frontier(graph)
        self._safe: list[int] = []
        self._find_safe()

    def __len__(self) -> int:
        """Return how many batches ran so far."""
        return self.frontier.batches

    @property
    def batches(self) -> list[np.ndarray]:
        """The batches that ran so far."""
        return self.frontier.since(0)

    def copy(self) -> 'Run':
        """Return an independent copy of the run, for use in the same thread."""
        other = Run.__new__(Run)
        other.graph, other.frontier = self.graph, self.frontier.copy()
        other._safe = list(self._safe)
        return other

    def settle(self) -> bool:
        """Run all batches that cannot be wrong; return whether a type is left to choose."""
        frontier = self.frontier
        while frontier.num_ready:
            if self._safe:
                self.advance(self._safe.pop())
            elif frontier.num_ready == 1:
                self.advance(frontier.ready_types[0])
            else:
                return True
        return False

    def finish(self, rule: Rule) -> None:
        """Run to the end; a rule chooses among types where there is a choice."""
        while self.settle():
            self.advance(rule.choose())

    def take(self, kind: int) -> np.ndarray:
        """Run the ready nodes of a type, and return them (see `Frontier.take`)."""
        nodes = self.frontier.take(kind)
        self._find_safe()
        return nodes

    def advance(self, kind: int) -> int:
        """Run the ready nodes of a type, and return how many ran."""
        ran = self.frontier.advance(kind)
        self._find_safe()
        return ran

    def schedule(self) -> Schedule:
        """Return what ran as a schedule."""
        return self.frontier.schedule()

    def _find_safe(self) -> None:
        frontier = self.frontier
        for place in range(frontier.num_grown):
            kind = frontier.grown_types[place]
            if frontier.size[kind] == frontier.left[kind] and not frontier.alone[kind]:
                self._safe.append(kind)
        for place in range(frontier.num_fresh):
            kind = frontier.fresh_types[place]
            if frontier.alone[kind]:
                self._safe.append(kind)
