"""Agenda-based batching: of the ready types, the one that lies least deep on average."""

import heapq
from typing import Callable, List, Tuple

import numpy as np

from ..graph.graph import Graph
from .frontier import Frontier
from .protocol import Schedule
from .run import Run


class AgendaScheduler:
    """Runs the ready type with the least mean depth, as DyNet does (Neubig et al., 2017 [1]_).

    Types whose nodes must run alone go first, since waiting does not make their batches larger.
    Of types with equal means the one with the lowest number goes first (DyNet prefers cheap
    operators there).

    Parameters
    ----------
    remaining : bool
        Whether the mean is taken over the nodes that have not run yet, after every batch anew, as
        ED-Batch's agenda does [2]_; better on trees and worse on chains in its benchmarks. DyNet
        takes it once, over all nodes.

    References
    ----------
    .. [1] Neubig, Goldberg and Dyer (2017). On-the-fly operation batching in dynamic computation
       graphs. https://arxiv.org/abs/1705.07860
    .. [2] Chen et al. (2023). ED-Batch: efficient automatic batching of dynamic neural networks
       via learned finite state machines. https://arxiv.org/abs/2302.03851
    """

    def __init__(self, remaining: bool = False) -> None:
        self.remaining = remaining
        self.name = 'agenda-remaining' if remaining else 'agenda'

    def __repr__(self) -> str:
        return f'AgendaScheduler(remaining={self.remaining})'

    def schedule(self, graph: Graph) -> Schedule:
        """Batches, each the whole ready set of a type."""
        alone: List[bool] = graph.alone.tolist()
        count: List[int] = graph.type_counts.tolist()
        # Whole numbers below 2**53 in floats, so equal means are equal floats.
        total: List[float] = np.bincount(
            graph.types, weights=graph.depth, minlength=graph.num_types
        ).tolist()
        frontier, batches = Frontier(graph), []
        agenda: List[Tuple[bool, float, int]] = []
        while frontier.counts:
            # A type's mean changes only when the type is taken, so it is right while in the heap.
            for kind in frontier.fresh:
                heapq.heappush(agenda, (not alone[kind], total[kind] / count[kind], kind))
            kind = heapq.heappop(agenda)[-1]
            nodes = frontier.take(kind)
            batches.append(nodes)
            if self.remaining:
                count[kind] -= len(nodes)
                total[kind] -= float(graph.depth[nodes].sum())
        return Schedule.from_batches(batches)


def least_deep(run: Run) -> Callable[[], int]:
    """A function that gives the ready type with the least mean depth over all its nodes."""
    graph, counts = run.graph, run.frontier.counts
    total = np.bincount(graph.types, weights=graph.depth, minlength=graph.num_types)
    means = (total / np.maximum(graph.type_counts, 1)).tolist()
    return lambda: min(counts, key=lambda kind: (means[kind], kind))
