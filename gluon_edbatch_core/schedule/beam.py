"""Beam search for a schedule with few batches: slow, for graphs that recur."""

from typing import NamedTuple

import numpy as np

from ..graph.graph import Graph
from .bound import CostToGo, lower_bound
from .frontier import Run
from .protocol import Schedule


class BeamScheduler:
    """Keep the best `width` partial schedules, by the lower bound of their total cost.

    Of schedules with equal bounds, the one wins whose ready nodes begin fewer and shorter paths to
    the end. The search takes seconds for graphs with thousands of decisions: put a
    `CachedScheduler` around it.

    Parameters
    ----------
    width : int, default 20
        Number of partial schedules to keep.

    Raises
    ------
    ValueError
        If `width` is less than 1.
    """

    def __init__(self, width: int = 20) -> None:
        if width < 1:
            raise ValueError(f'width must be at least 1, not {width}')
        self.width = width
        self.name = 'beam'

    def __repr__(self) -> str:
        return f'BeamScheduler(width={self.width})'

    def schedule(self, graph: Graph) -> Schedule:
        """Return batches of the whole ready set of a type, or of a node that must run alone."""
        # A width of 1 is quick, and enough where it reaches the lower bound.
        found = self._search(graph, 1)
        if self.width > 1 and len(found) > lower_bound(graph):
            found = min(found, self._search(graph, self.width), key=len)
        return found.schedule()

    def _search(self, graph: Graph, width: int) -> Run:
        first = Run(graph)
        if not first.settle():
            return first
        togo = CostToGo(graph)
        togo.run(first.frontier.since(0))
        # So that equal sets of nodes that ran have equal sums, and others hardly ever do.
        marks = np.random.RandomState(0).randint(1 << 62, size=len(graph), dtype=np.int64)
        height = np.ascontiguousarray(graph.height)
        states = [_State(first, togo, 0, 0)]
        while True:
            found: dict[int, _State] = {}
            for state in states:
                if not state.run.frontier.num_ready:
                    found[state.mark] = state
                for kind in state.run.frontier.kinds():
                    following = _step(state, kind, marks)
                    known = found.get(following.mark)
                    if known is None or following.cost < known.cost:
                        found[following.mark] = following
            states = _best(list(found.values()), height, width)
            if not states[0].run.frontier.num_ready:
                return states[0].run


class _State(NamedTuple):
    """A partial schedule, a lower bound of its cost, and a hash of the nodes that ran."""

    run: Run
    togo: CostToGo
    cost: int
    mark: int


def _step(state: _State, kind: int, marks: np.ndarray) -> _State:
    """Run a type, and then all batches that cannot be wrong."""
    run, togo = state.run.copy(), state.togo.copy()
    run.advance(kind)
    run.settle()
    new = run.frontier.since(len(state.run))
    togo.run(new)
    mark = state.mark
    for nodes in new:
        mark += int(marks[nodes].sum())
    return _State(run, togo, len(run) + togo.bound, mark)


def _best(states: list[_State], height: np.ndarray, width: int) -> list[_State]:
    """Return the best states in order; a finished one has weight zero."""
    ready = [height[_ready(state)] for state in states]
    highest = max((heights.max() for heights in ready if len(heights)), default=0)
    weights = [float(np.exp((heights - highest).astype(float)).sum()) for heights in ready]
    ranks = [
        (state.cost, weight, place) for place, (state, weight) in enumerate(zip(states, weights))
    ]
    return [states[place] for _, _, place in sorted(ranks)[:width]]


def _ready(state: _State) -> np.ndarray:
    """Return the ready nodes of the types that need more than one batch."""
    frontier = state.run.frontier
    ready = [frontier.ready(kind) for kind in frontier.kinds() if state.togo.left(kind) > 1]
    return np.concatenate(ready) if ready else np.zeros(0, np.int32)
