"""The sufficient condition for a batch that costs nothing, and the scheduler that goes by it.

Of a type's nodes that have not run, some have no node of the type above them that has not run
either. A schedule needs one batch more for them than for the rest of the type. If they all are
ready, running them is right (Chen et al., 2023 [1]_); else the share of them that is ready says
how nearly so.

References
----------
.. [1] Chen et al. (2023). ED-Batch: efficient automatic batching of dynamic neural networks via
   learned finite state machines. https://arxiv.org/abs/2302.03851
"""

from typing import List, Tuple

import numpy as np

from ..graph.edges import Countdown
from ..graph.graph import Graph
from .bound import path_counts
from .protocol import Schedule
from .run import Run

# Numbers that are kept at a time while the paths within types are looked for (32 MB of int32).
_CHUNK = 1 << 23


class SufficientConditionScheduler:
    """Runs the ready type with the largest share of ready first nodes; learns nothing.

    The forward form of ED-Batch's greedy scheduler [1]_. Of types with equal shares the one with
    more ready nodes goes first, then the one with the lower number.
    """

    name = 'sufficient'

    def __repr__(self) -> str:
        return 'SufficientConditionScheduler()'

    def schedule(self, graph: Graph) -> Schedule:
        """Batches, each the whole ready set of a type."""
        run, condition = Run(graph), None
        while run.settle():
            if condition is None:  # many a graph has nothing to decide
                condition = SufficientCondition(run)
            run.take(condition.best())
        return run.schedule()


class SufficientCondition:
    """Which ready type comes nearest to the sufficient condition.

    Parameters
    ----------
    run : Run
        Where the graph stands; also further batches of it are noticed.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._seen = len(run.batches)
        self._first: List[int] = list(run.left)  # right for types without paths within them
        waiting = np.ones(len(run.graph), bool)
        if run.batches:
            waiting[np.concatenate(run.batches)] = False
        paths, self._own, self._node = _paths_within_types(run.graph, waiting)
        self._countdown = Countdown(paths)
        self._types = paths.types
        self._long = np.flatnonzero(paths.type_counts).tolist()
        for kind in self._long:
            self._first[kind] = 0
        self._free(paths.sources)

    def shares(self) -> List[Tuple[float, int]]:
        """(share of the first nodes that is ready, type) for each ready type."""
        self._catch_up()
        return [
            (count / self._first[kind], kind) for kind, count in self._run.frontier.counts.items()
        ]

    def best(self) -> int:
        """The ready type with the largest share."""
        counts = self._run.frontier.counts
        return max((share, counts[kind], -kind, kind) for share, kind in self.shares())[-1]

    def _catch_up(self) -> None:
        """Count what ran since the last time."""
        for nodes in self._run.batches[self._seen :]:
            self._seen += 1
            kind = int(self._run.graph.types[nodes[0]])
            self._first[kind] -= len(nodes)
            own = self._node[nodes]
            if own[0] >= 0:
                self._free(self._countdown.release(own))

    def _free(self, states: np.ndarray) -> None:
        """No node of their type holds these up any longer."""
        while len(states):
            own = self._own[states]
            firsts = np.bincount(self._types[states[own]], minlength=1)
            for kind in firsts.nonzero()[0].tolist():
                self._first[kind] += int(firsts[kind])
            through = states[~own]
            states = self._countdown.release(through) if len(through) else through


def _paths_within_types(graph: Graph, waiting: np.ndarray) -> Tuple[Graph, np.ndarray, np.ndarray]:
    """The paths from nodes to nodes of the same type, among those that have not run.

    Returns
    -------
    paths : Graph
        Its nodes are pairs of a type and a node: a node of the type itself, or one on a way from
        a node of the type to another. Types with a single node on any path are left out.
    own : numpy.ndarray
        (number of pairs,) bool, pairs of the first kind.
    pair : numpy.ndarray
        (n,) intp, the pair of each node with its own type, or -1.
    """
    n, parts = len(graph), []
    step = max(1, _CHUNK // max(1, n))
    for begin in range(0, graph.num_types, step):
        kinds = np.arange(begin, min(begin + step, graph.num_types))
        parts.append(_pairs(graph, kinds[~graph.alone[kinds]], waiting))
    nodes, kinds = (np.concatenate(part) for part in zip(*parts))
    order = np.lexsort((kinds, nodes))
    nodes, kinds = nodes[order], kinds[order]
    own = graph.types[nodes] == kinds
    pair = np.full(n, -1)
    pair[nodes[own]] = own.nonzero()[0]

    # An edge for each edge of the graph and each type that both ends have a pair with.
    keys = nodes * graph.num_types + kinds
    bounds = np.searchsorted(nodes, np.arange(n + 1))
    sizes = np.diff(bounds)[graph.readers]
    edge = np.repeat(np.arange(len(sizes)), sizes)
    reader = np.arange(len(edge)) + np.repeat(
        bounds[graph.readers] - (np.cumsum(sizes) - sizes), sizes
    )
    wanted = graph.inputs[edge].astype(np.intp) * graph.num_types + kinds[reader]
    producer = np.minimum(np.searchsorted(keys, wanted), max(0, len(keys) - 1))
    kept = keys[producer] == wanted if len(keys) else np.zeros(0, bool)
    producer, reader = producer[kept], reader[kept]
    order = np.argsort(reader, kind='stable')
    offsets = np.zeros(len(nodes) + 1, np.int64)
    np.cumsum(np.bincount(reader, minlength=len(nodes)), out=offsets[1:])
    paths = Graph(
        kinds.astype(np.int32),
        offsets,
        producer[order].astype(np.int32),
        graph.num_types,
        graph.alone,
    )
    return paths, own, pair


def _pairs(graph: Graph, kinds: np.ndarray, waiting: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Nodes, and types that they lie on a path within."""
    if not len(kinds):
        return np.zeros(0, np.intp), np.zeros(0, np.intp)
    above, below = np.empty((2, len(graph), len(kinds)), np.int32)
    above[graph.levels.order] = path_counts(graph, kinds)
    below[len(graph) - 1 - graph.reversed.levels.order] = path_counts(graph.reversed, kinds)
    own = graph.types[:, None] == kinds
    inside = (above > 0) & (below > 0)
    several = (above * own > 1).any(axis=0)
    nodes, columns = np.nonzero(inside & several & waiting[:, None])
    return nodes, kinds[columns]
