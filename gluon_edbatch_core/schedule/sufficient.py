# cython: infer_types=True
"""The sufficient condition for a batch without extra cost, and the scheduler that uses it.

The first nodes of a type are those that have not run and wait for no other node of the type.
Running the type is right if all of them are ready (Chen et al., 2023); otherwise the ready share
counts. Cython compiles this module by ``sufficient.pxd`` where there is a compiler.
"""

from typing import Any

import numpy as np

from ..graph.graph import Graph
from .bound import path_counts, portions
from .frontier import Rule, Run
from .protocol import Schedule

_NONE, _LAST = -1, -2  # no pair; the end of the list of pairs that are free


class SufficientConditionScheduler:
    """Run the type whose first nodes are ready in the largest share, without learning.

    A type's first nodes wait for no remaining node of the same type. This is the forward form of
    ED-Batch's greedy scheduler. Of types with equal shares, the one with more ready nodes goes
    first, then the one with the lower number.
    """

    name = 'sufficient'

    def __repr__(self) -> str:
        return 'SufficientConditionScheduler()'

    def schedule(self, graph: Graph) -> Schedule:
        """Return batches, each the whole ready set of a type."""
        run = Run(graph)
        if run.settle():  # many a graph has nothing to decide
            run.finish(SufficientCondition(run))
        return run.schedule()


class SufficientCondition(Rule):
    """Choose the ready type that comes nearest to the sufficient condition.

    The rule keeps pairs of a type and a node that has not run: a node of the type, or one on a path
    between two of them. A pair is free when no node of its type is left above it.
    """

    def __init__(self, run: Run) -> None:
        graph, self._frontier = run.graph, run.frontier
        self._seen = len(run)
        offsets, readers, _ = graph.consumers
        self._offsets, self._readers = offsets.data, readers.data
        waiting = np.ones(len(graph), bool)
        waiting[self._frontier.schedule().order] = False
        columns, cells = _pairs(graph, waiting)
        self._width = cells.shape[1]
        # by type: its column among the pairs, and how many of its nodes are free
        self._columns: Any = columns.data
        self._first: Any = np.zeros(graph.num_types, np.int32).data
        # by pair: on how many of its type it waits, and then the next one of those that are free
        self._cells: Any = cells.reshape(-1).data
        self._free = _LAST
        self._begin()

    def _begin(self) -> None:
        """Count what each pair waits for, and free those that wait for nothing."""
        frontier, cells, width = self._frontier, self._cells, self._width
        for kind in range(len(self._columns)):
            if self._columns[kind] < 0:  # no paths within it
                self._first[kind] = frontier.left[kind]
        for node in range(len(frontier.types)):
            for edge in range(self._offsets[node], self._offsets[node + 1]):
                begin = self._readers[edge] * width
                for column in range(width):
                    if cells[node * width + column] != _NONE and cells[begin + column] != _NONE:
                        cells[begin + column] += 1
        for cell in range(len(cells)):
            if cells[cell] == 0:
                self._push(cell)
        self._pass_on()

    def choose(self) -> int:
        """Return the ready type with the largest share of ready first nodes."""
        self._catch_up()
        frontier, best, most = self._frontier, -1, -1.0
        for place in range(frontier.num_ready):
            kind = frontier.ready_types[place]
            share = frontier.size[kind] / float(self._first[kind])
            if share < most:
                continue
            if share == most:
                if frontier.size[kind] < frontier.size[best]:
                    continue
                if frontier.size[kind] == frontier.size[best] and kind > best:
                    continue
            best, most = kind, share
        return best

    def _catch_up(self) -> None:
        """Note what ran since the last call."""
        frontier = self._frontier
        while self._seen < frontier.batches:
            begin, end = frontier.bounds[self._seen], frontier.bounds[self._seen + 1]
            kind = frontier.types[frontier.order[begin]]
            self._first[kind] -= end - begin
            if self._columns[kind] >= 0:
                for place in range(begin, end):
                    self._release(frontier.order[place], self._columns[kind])
                self._pass_on()
            self._seen += 1

    def _pass_on(self) -> None:
        """Count free nodes of their own type as first; free pairs of others hold up nothing."""
        while self._free != _LAST:
            cell = self._free
            self._free = self._cells[cell]
            node, column = cell // self._width, cell % self._width
            kind = self._frontier.types[node]
            if self._columns[kind] == column:
                self._first[kind] += 1
            else:
                self._release(node, column)

    def _release(self, node: int, column: int) -> None:
        """Note that a pair no longer holds up the pairs of its readers."""
        for edge in range(self._offsets[node], self._offsets[node + 1]):
            cell = self._readers[edge] * self._width + column
            if self._cells[cell] != _NONE:
                self._cells[cell] -= 1
                if self._cells[cell] == 0:
                    self._push(cell)

    def _push(self, cell: int) -> None:
        self._cells[cell] = self._free
        self._free = cell


def _pairs(graph: Graph, waiting: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Find the types with several nodes on a path, and the nodes that lie between them.

    Returns (num_types,) int32, the column of each type or -1, and (n, number of columns) int32, 0
    for a `waiting` node on a path within the type, else -1.
    """
    columns, parts = np.full(graph.num_types, _NONE, np.int32), []
    width = 0
    for kinds in portions(graph, np.flatnonzero(~graph.alone & (graph.type_counts > 1))):
        above = path_counts(graph, kinds)
        several = above.max(axis=0, initial=0) > 1
        some = kinds[several]
        below = path_counts(graph.reversed, some)[::-1]
        within = (above[:, several] > 0) & (below > 0) & waiting[:, None]
        parts.append(np.where(within, 0, _NONE).astype(np.int32))
        columns[some] = np.arange(width, width + len(some))
        width += len(some)
    return columns, np.concatenate([np.zeros((len(graph), 0), np.int32), *parts], axis=1)
