"""Schedulers that follow a fixed rule: no batching, by depth, or by mean depth."""

import numpy as np

from ..graph.graph import Graph, stable_argsort
from .frontier import Frontier
from .protocol import Schedule
from .rules import LeastDeep


class UnbatchedScheduler:
    """Run every node alone, in the order in which the nodes were recorded."""

    name = 'unbatched'

    def __repr__(self) -> str:
        return 'UnbatchedScheduler()'

    def schedule(self, graph: Graph) -> Schedule:
        """Return batches of one node each."""
        n = len(graph)
        return Schedule(np.arange(n, dtype=np.int32), np.arange(n + 1, dtype=np.int64))


class DepthScheduler:
    """Batch nodes by (depth, type), as TensorFlow Fold does (Looks et al., 2017 [1]_, section 2).

    A node's depth is one more than the largest depth among its inputs, and 0 without inputs. So
    nodes of one depth do not depend on each other. Nothing is decided step by step, which makes
    this faster than schedulers that choose. It splits nodes that could run together but have
    different depths.

    References
    ----------
    .. [1] Looks, Herreshoff, Hutchins and Norvig (2017). Deep learning with dynamic computation
       graphs. https://arxiv.org/abs/1702.02181
    """

    name = 'depth'

    def __repr__(self) -> str:
        return 'DepthScheduler()'

    def schedule(self, graph: Graph) -> Schedule:
        """Return batches in the order of depth, then type."""
        if not len(graph):
            return Schedule.from_batches([])
        depth = graph.depth.astype(np.int64)
        key = depth * graph.num_types + graph.types
        order = stable_argsort(key, (int(depth.max()) + 1) * graph.num_types)
        key = key[order]
        begins = key[1:] != key[:-1]
        if graph.alone.any():
            begins |= graph.alone[graph.types[order[1:]]]
        bounds = np.concatenate(([0], np.flatnonzero(begins) + 1, [len(order)]))
        return Schedule(order.astype(np.int32), bounds)


class AgendaScheduler:
    """Run the ready type with the least mean depth, as DyNet does (Neubig et al., 2017 [1]_).

    Types whose nodes must run alone go first, since waiting does not make their batches larger.
    Of types with equal means the one with the lowest number goes first (DyNet prefers cheap
    operators there).

    Parameters
    ----------
    remaining : bool
        Whether the mean is taken over the nodes that have not run yet, again after each batch, as
        in ED-Batch's agenda [2]_. That is better on trees and worse on chains in ED-Batch's
        benchmarks. DyNet takes it once, over all nodes.

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
        """Return batches, each the whole ready set of a type."""
        frontier = Frontier(graph)
        frontier.finish(LeastDeep(graph, frontier, self.remaining))
        return frontier.schedule()
