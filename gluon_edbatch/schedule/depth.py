"""Depth-based batching: nodes of one type and one depth run together."""

import numpy as np

from ..graph.graph import Graph, stable_argsort
from .protocol import Schedule


class DepthScheduler:
    """Batches by (depth, type), as TensorFlow Fold does (Looks et al., 2017 [1]_, section 2).

    A node's depth is one more than the largest depth among its inputs, and 0 if it has none, so
    nodes of one depth do not depend on each other. Nothing is decided step by step, which makes
    this quicker than all schedulers that choose; it splits nodes that could have run together but
    lie at different depths.

    References
    ----------
    .. [1] Looks, Herreshoff, Hutchins and Norvig (2017). Deep learning with dynamic computation
       graphs. https://arxiv.org/abs/1702.02181
    """

    name = 'depth'

    def __repr__(self) -> str:
        return 'DepthScheduler()'

    def schedule(self, graph: Graph) -> Schedule:
        """Batches in the order of depth, then type."""
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
