"""One graph on its way to a schedule: what is certainly right is done, the rest is asked for.

Cython compiles this module by ``run.pxd`` where there is a compiler.
"""

import numpy as np

from ..graph.graph import Graph
from .frontier import Frontier, Rule
from .protocol import Schedule


class Run:
    """Takes batches from the frontier of a graph, by itself where nothing can be lost.

    No schedule can do without a batch if all nodes of its type that have not run are ready, if its
    nodes must run alone, or if no other type is ready. The other decisions are a `Rule`'s.

    Parameters
    ----------
    graph : Graph
        The graph; it is not changed.

    Attributes
    ----------
    graph : Graph
    frontier : Frontier
        What is ready, and what ran. To be read only.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.frontier = Frontier(graph)
        self._safe: list[int] = []
        self._find_safe()

    def __len__(self) -> int:
        """How many batches ran so far."""
        return self.frontier.batches

    @property
    def batches(self) -> list[np.ndarray]:
        """What ran so far."""
        return self.frontier.since(0)

    def copy(self) -> 'Run':
        """A run that goes on from here by itself; of use in the same thread only."""
        other = Run.__new__(Run)
        other.graph, other.frontier = self.graph, self.frontier.copy()
        other._safe = list(self._safe)
        return other

    def settle(self) -> bool:
        """Run what is certainly right; gives whether there is a type to choose then."""
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
        """Run the types that a rule chooses where there is one to choose, until nothing is left."""
        while self.settle():
            self.advance(rule.choose())

    def take(self, kind: int) -> np.ndarray:
        """Run the ready nodes of a type; gives them. See `Frontier.take`."""
        nodes = self.frontier.take(kind)
        self._find_safe()
        return nodes

    def advance(self, kind: int) -> int:
        """The same, but gives only how many they are."""
        ran = self.frontier.advance(kind)
        self._find_safe()
        return ran

    def schedule(self) -> Schedule:
        """What ran, as a schedule."""
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
