"""The frontier: which nodes could run next, by type.

Every scheduler that decides step by step works on it: look at the ready types, choose one, take
all its ready nodes as one batch (Neubig et al., 2017 [1]_; Chen et al., 2023 [2]_, whose state
machine reads the ready types as its state).

This module is compiled by Cython where a compiler is present (the types are in ``frontier.pxd``),
and runs as it stands where not.

References
----------
.. [1] Neubig, Goldberg and Dyer (2017). On-the-fly operation batching in dynamic computation
   graphs. https://arxiv.org/abs/1705.07860
.. [2] Chen et al. (2023). ED-Batch: efficient automatic batching of dynamic neural networks via
   learned finite state machines. https://arxiv.org/abs/2302.03851
"""

import heapq
from typing import Any, Dict, List

import numpy as np

from ..graph.edges import Countdown


class Frontier:
    """The ready nodes of a graph by type; nothing has run at first.

    Parameters
    ----------
    graph : Graph
        The graph; it is not changed.

    Attributes
    ----------
    counts : dict of int to int
        How many nodes are ready, for each type that has any (in the order in which the types
        became ready). Empty when every node was taken. To be read only.
    fresh : list of int
        The types that became ready by the last `take`, or were ready at the start; and a type
        that is still ready after one of its nodes was taken alone. What a scheduler thinks of
        the other ready types need not be thought again.
    grown : list of int
        The types that nodes were added to by the last `take`, or that were ready at the start.
    last, before : numpy.ndarray
        intp, the ready node that was added last, by type, and the one that was added before each
        ready node, both -1 where there is none. To be read only, and not of types whose nodes
        must run alone.
    takes : numpy.ndarray
        intp, how often nodes of each type were taken. To be read only.
    """

    def __init__(self, graph: Any) -> None:
        self.counts: Dict[int, int] = {}
        self.fresh: List[int] = []
        self.grown: List[int] = []
        self.last = np.full(graph.num_types, -1)
        self.before = np.full(len(graph), -1)
        self.takes = np.zeros(graph.num_types, np.intp)
        self._kinds = np.ascontiguousarray(graph.types, np.int32).data
        self._sizes = np.zeros(graph.num_types, np.intp)
        self._times = np.zeros(graph.num_types, np.intp)  # when a type grew last
        self._now = 0
        self._runs_alone = np.ascontiguousarray(graph.alone, np.uint8).data
        self._countdown = Countdown(graph)
        self._alone: Dict[int, List[int]] = {
            kind: [] for kind in np.flatnonzero(graph.alone).tolist()
        }
        self._watch()
        self._add(graph.sources)

    def _watch(self) -> None:
        """The same memory, quick to read one by one."""
        self._last, self._before = self.last.data, self.before.data
        self._takes, self._grew = self.takes.data, self._times.data
        self._size = self._sizes.data

    def __repr__(self) -> str:
        ready = ', '.join([f'{kind}: {count}' for kind, count in sorted(self.counts.items())])
        return f'Frontier({{{ready}}})'

    def copy(self) -> 'Frontier':
        """A frontier that goes on from here by itself."""
        other = Frontier.__new__(Frontier)
        other.counts, other.fresh, other.grown = dict(self.counts), self.fresh, self.grown
        other.last, other.before = self.last.copy(), self.before.copy()
        other.takes, other._sizes = self.takes.copy(), self._sizes.copy()
        other._times, other._now = self._times.copy(), self._now
        other._kinds, other._runs_alone = self._kinds, self._runs_alone
        other._countdown = self._countdown.copy()
        other._alone = {kind: list(nodes) for kind, nodes in self._alone.items()}
        other._watch()
        return other

    def ready(self, kind: int) -> np.ndarray:
        """(k,) intp, the ready nodes of a type, ascending.

        Parameters
        ----------
        kind : int
            A ready type whose nodes need not run alone.
        """
        nodes = np.empty(self.counts[kind], np.intp)
        places, node = nodes.data, self._last[kind]
        for place in range(len(nodes)):
            places[place] = node
            node = self._before[node]
        nodes.sort()
        return nodes

    def take(self, kind: int) -> np.ndarray:
        """Run the ready nodes of a type: they leave the frontier, those they held up enter it.

        Parameters
        ----------
        kind : int
            A ready type.

        Returns
        -------
        numpy.ndarray
            (k,) intp, all ready nodes of the type, ascending; the first one only if nodes of
            this type must run alone.
        """
        if kind not in self.counts:
            raise KeyError(kind)
        self.fresh, self.grown = [], []
        self._takes[kind] += 1
        if self._runs_alone[kind]:
            nodes = self._take_alone(kind)
        else:
            nodes = self.ready(kind)
            del self.counts[kind]
            self._last[kind], self._size[kind] = -1, 0
        self._add(self._countdown.release(nodes))
        return nodes

    def _take_alone(self, kind: int) -> np.ndarray:
        heap = self._alone[kind]
        node = heapq.heappop(heap)
        del self.counts[kind]
        self._size[kind] -= 1
        if heap:
            self.counts[kind] = len(heap)
            self.fresh.append(kind)
        return np.array([node], np.intp)

    def _add(self, nodes: np.ndarray) -> None:
        """Sort newly ready nodes into their types."""
        added = nodes.data
        self._now += 1
        for place in range(len(nodes)):
            node = added[place]
            kind = self._kinds[node]
            if self._grew[kind] != self._now:
                self._grew[kind] = self._now
                self.grown.append(kind)
                if kind not in self.counts:
                    self.fresh.append(kind)
            self._size[kind] += 1
            if self._runs_alone[kind]:
                heapq.heappush(self._alone[kind], node)
            else:
                self._before[node] = self._last[kind]
                self._last[kind] = node
        for kind in self.grown:
            self.counts[kind] = self._size[kind]
