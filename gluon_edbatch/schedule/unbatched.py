"""No batching at all: what every other scheduler is compared with."""

import numpy as np

from ..graph.graph import Graph
from .protocol import Schedule


class UnbatchedScheduler:
    """Every node alone, in the order in which the nodes were recorded."""

    name = 'unbatched'

    def __repr__(self) -> str:
        return 'UnbatchedScheduler()'

    def schedule(self, graph: Graph) -> Schedule:
        """Batches of one node each."""
        n = len(graph)
        return Schedule(np.arange(n, dtype=np.int32), np.arange(n + 1, dtype=np.int64))
