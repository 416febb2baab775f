"""The frontier: which nodes could run next, by type.

Every scheduler that decides step by step works on it: look at the ready types, choose one, take
all its ready nodes as one batch (Neubig et al., 2017 [1]_; Chen et al., 2023 [2]_, whose state
machine reads the ready types as its state). The work is a few NumPy calls a batch, whatever the
number of nodes.

References
----------
.. [1] Neubig, Goldberg and Dyer (2017). On-the-fly operation batching in dynamic computation
   graphs. https://arxiv.org/abs/1705.07860
.. [2] Chen et al. (2023). ED-Batch: efficient automatic batching of dynamic neural networks via
   learned finite state machines. https://arxiv.org/abs/2302.03851
"""
import heapq
from typing import Dict, List, Sequence

import numpy as np

from ..graph import Countdown, Graph


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
    """

    def __init__(self, graph: Graph) -> None:
        self.counts: Dict[int, int] = {}
        self.fresh: List[int] = []
        self.grown: List[int] = []
        # 16 bits if they do: NumPy sorts those in linear time.
        self._types = graph.types.astype(np.uint16 if graph.num_types <= 1 << 16 else np.intp)
        self._countdown = Countdown(graph)
        self._chunks: Dict[int, List[np.ndarray]] = {}
        self._alone: Dict[int, List[int]] = {
            kind: [] for kind in np.flatnonzero(graph.alone).tolist()
        }
        self._add(graph.sources.copy())  # what `take` returns is the caller's

    def __repr__(self) -> str:
        ready = ", ".join(f"{kind}: {count}" for kind, count in sorted(self.counts.items()))
        return f"Frontier({{{ready}}})"

    def copy(self) -> "Frontier":
        """A frontier that goes on from here by itself; of use in the same thread only."""
        other = Frontier.__new__(Frontier)
        vars(other).update(vars(self))
        other.counts = dict(self.counts)
        other._countdown = self._countdown.copy()
        other._chunks = {kind: list(chunks) for kind, chunks in self._chunks.items()}
        other._alone = {kind: list(nodes) for kind, nodes in self._alone.items()}
        return other

    def chunks(self, kind: int) -> Sequence[np.ndarray]:
        """The ready nodes of a type, in the portions in which they became ready.

        Parameters
        ----------
        kind : int
            A ready type whose nodes need not run alone.
        """
        return self._chunks[kind]

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
        self.fresh, self.grown = [], []
        del self.counts[kind]
        if kind in self._alone:
            nodes = self._take_alone(kind)
        else:
            chunks = self._chunks.pop(kind)
            nodes = chunks[0] if len(chunks) == 1 else np.concatenate(chunks)
            nodes.sort()
        self._add(self._countdown.release(nodes))
        return nodes

    def _take_alone(self, kind: int) -> np.ndarray:
        heap = self._alone[kind]
        node = heapq.heappop(heap)
        if heap:
            self.counts[kind] = len(heap)
            self.fresh.append(kind)
        return np.array([node], np.intp)

    def _add(self, nodes: np.ndarray) -> None:
        """Sort newly ready nodes into their types."""
        if len(nodes) <= 1:
            for node in nodes.tolist():
                self._add_chunk(int(self._types[node]), nodes)
            return
        kinds = self._types[nodes]
        order = kinds.argsort(kind="stable")
        kinds = kinds[order]
        if kinds[0] == kinds[-1]:
            self._add_chunk(int(kinds[0]), nodes)
            return
        nodes = nodes[order]
        begin = 0
        for last in (kinds[1:] != kinds[:-1]).nonzero()[0].tolist() + [len(nodes) - 1]:
            self._add_chunk(int(kinds[last]), nodes[begin:last + 1])
            begin = last + 1

    def _add_chunk(self, kind: int, nodes: np.ndarray) -> None:
        if kind not in self.counts:
            self.counts[kind] = 0
            self.fresh.append(kind)
        self.counts[kind] += len(nodes)
        self.grown.append(kind)
        if kind in self._alone:
            for node in nodes.tolist():
                heapq.heappush(self._alone[kind], node)
        else:
            self._chunks.setdefault(kind, []).append(nodes)
