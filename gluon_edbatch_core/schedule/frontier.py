# cython: infer_types=True
"""The frontier: the nodes that could run next, by type; and runs, which choose where they can.

A scheduler looks at the ready types, chooses one, and takes all its ready nodes as one batch.
Cython compiles this module by ``frontier.pxd`` where there is a compiler. Compiled modules read the
memoryviews of a frontier; others use methods and properties.
"""

import heapq
from typing import Any

import numpy as np

from ..graph.edges import Countdown
from ..graph.graph import Graph
from .protocol import Schedule

_FEW = 24  # nodes that are sorted faster one by one than by a call of NumPy


class Rule:
    """Choose among ready types; `Frontier.finish` and `Run.finish` call a rule."""

    def choose(self) -> int:
        """Return the ready type to run next."""
        raise NotImplementedError


class Frontier:
    """The ready nodes of a graph by type, and what ran so far.

    Attributes
    ----------
    order, bounds : memoryview
        What ran, as in `Schedule`; `batches` is the number of batches.
    left : memoryview
        int32 by type, nodes that have not run.
    size : memoryview
        int32 by type, nodes that are ready.
    last, before : memoryview
        int32: by type, the ready node that was added last; by ready node, the one added before.
        Both are -1 where there is none. Types whose nodes must run alone have none.
    countdown : Countdown
        Counts the inputs of each node that have not run.
    takes : memoryview
        int32 by type, how often the type ran.
    ready_types, grown_types, fresh_types : memoryview
        int32. The first `num_ready` are the ready types, in no special order. The first `num_grown`
        are the types that got nodes by the last `advance`, or at the start. The first `num_fresh`
        are the types that it made ready, see `fresh`.
    """

    def __init__(self, graph: Any) -> None:
        self._count, self._num_types = len(graph), graph.num_types
        self.types = np.ascontiguousarray(graph.types, np.int32).data
        self.alone = np.ascontiguousarray(graph.alone, np.uint8).data
        self.countdown = Countdown(graph)
        self._heaps: dict[int, list[int]] = {}  # of types that run alone
        self.batches = self.num_ready = self.num_grown = self.num_fresh = 0
        self._order = np.empty(self._count, np.int32)
        self._memory = np.zeros(3 * self._count + 1 + 9 * self._num_types, np.int32)
        self._divide()
        self._begin()

    def _divide(self) -> None:
        """Assign each array its part of the memory."""
        count, kinds, memory = self._count, self._num_types, self._memory.data
        self.order, self.bounds = self._order.data, memory[: count + 1]
        self.before = memory[count + 1 : 2 * count + 1]
        self._released, parts = memory[2 * count + 1 : 3 * count + 1], memory[3 * count + 1 :]
        self.left, self.size = parts[:kinds], parts[kinds : 2 * kinds]
        self.last, self.takes = parts[2 * kinds : 3 * kinds], parts[3 * kinds : 4 * kinds]
        self.ready_types, self._place = parts[4 * kinds : 5 * kinds], parts[5 * kinds : 6 * kinds]
        self.grown_types, parts = parts[6 * kinds : 7 * kinds], parts[7 * kinds :]
        self.fresh_types, self._grew = parts[:kinds], parts[kinds:]  # before which batch it grew

    def _begin(self) -> None:
        for kind in range(self._num_types):
            self.last[kind] = -1
        waiting = self.countdown.waiting
        for node in range(self._count):
            self.left[self.types[node]] += 1
            if waiting[node] == 0:
                self._add(node)

    def __repr__(self) -> str:
        ready = ', '.join([f'{kind}: {count}' for kind, count in self.counts.items()])
        return f'Frontier({{{ready}}})'

    def copy(self) -> 'Frontier':
        """Return an independent copy of the frontier."""
        other = Frontier.__new__(Frontier)
        other._count, other._num_types = self._count, self._num_types
        other.types, other.alone = self.types, self.alone
        other.countdown = self.countdown.copy()
        other._heaps = {kind: list(nodes) for kind, nodes in self._heaps.items()}
        other.batches, other.num_ready = self.batches, self.num_ready
        other.num_grown, other.num_fresh = self.num_grown, self.num_fresh
        other._order, other._memory = self._order.copy(), self._memory.copy()
        other._divide()
        return other

    @property
    def counts(self) -> dict[int, int]:
        """Number of ready nodes for each ready type, ascending."""
        return {kind: self.size[kind] for kind in self.kinds()}

    @property
    def fresh(self) -> list[int]:
        """The ready types that the last `advance` made ready, or took a single node of. At first,
        all ready types."""
        return [self.fresh_types[place] for place in range(self.num_fresh)]

    def is_ready(self, kind: int) -> bool:
        """Return whether there are ready nodes of a type; the type may be unknown."""
        return 0 <= kind < self._num_types and self.size[kind] > 0

    def kinds(self) -> tuple[int, ...]:
        """Return the ready types, ascending."""
        found = [self.ready_types[place] for place in range(self.num_ready)]
        found.sort()
        return tuple(found)

    def by_size(self) -> tuple[int, ...]:
        """Return the ready types, by descending number of ready nodes, then ascending."""
        found = [(-self.size[kind], kind) for kind in self.kinds()]
        found.sort()
        return tuple([kind for _, kind in found])

    def ready(self, kind: int) -> np.ndarray:
        """Return (k,) int32, the ready nodes of a type, ascending.

        Parameters
        ----------
        kind : int
            A ready type whose nodes need not run alone.
        """
        nodes = np.empty(self.size[kind], np.int32)
        self._list(kind, nodes, nodes.data, 0)
        return nodes

    def since(self, batch: int) -> list[np.ndarray]:
        """Return the nodes of each batch from number `batch` on."""
        bounds = self._memory[batch : self.batches + 1].tolist()
        return [self._order[begin:end] for begin, end in zip(bounds, bounds[1:])]

    def schedule(self) -> Schedule:
        """Return what ran as a schedule."""
        bounds = self._memory[: self.batches + 1].astype(np.int64)
        return Schedule(self._order[: self.bounds[self.batches]], bounds)

    def finish(self, rule: Rule) -> None:
        """Run the types that a rule chooses, until nothing is left."""
        while self.num_ready:
            self.advance(rule.choose())

    def take(self, kind: int) -> np.ndarray:
        """Run the ready nodes of a type (see `advance`); return them, ascending."""
        self.advance(kind)
        begin, end = self.bounds[self.batches - 1], self.bounds[self.batches]
        return self._order[begin:end].astype(np.intp)

    def advance(self, kind: int) -> int:
        """Run the ready nodes of a type: they leave the frontier, and nodes that waited enter it.

        Parameters
        ----------
        kind : int
            A ready type; only its first node runs if its nodes must run alone.

        Returns
        -------
        int
            Number of nodes that ran.
        """
        if not self.is_ready(kind):
            raise KeyError(kind)
        begin = self.bounds[self.batches]
        self.num_grown = self.num_fresh = 0
        if self.alone[kind]:
            end = begin + 1
            self.order[begin] = heapq.heappop(self._heaps[kind])
            self.size[kind] -= 1
            if self.size[kind]:
                self.fresh_types[0] = kind
                self.num_fresh = 1
        else:
            end = begin + self.size[kind]
            self._list(kind, self._order, self.order, begin)
            self.last[kind], self.size[kind] = -1, 0
        if self.size[kind] == 0:
            self._remove(kind)
        self.left[kind] -= end - begin
        self.takes[kind] += 1
        self.batches += 1
        self.bounds[self.batches] = end
        found = self.countdown.release(self.order, begin, end, self._released)
        for place in range(found):
            self._add(self._released[place])
        return end - begin

    def _list(self, kind: int, array: np.ndarray, nodes: Any, begin: int) -> None:
        """Write the ready nodes of a type into an array, ascending."""
        end = begin + self.size[kind]
        place, node, ascending = end, self.last[kind], True
        while place > begin:
            place -= 1
            nodes[place] = node
            node = self.before[node]
            if node > nodes[place]:
                ascending = False
        if ascending:
            return
        if end - begin > _FEW:
            array[begin:end].sort()
            return
        for place in range(begin + 1, end):
            node, at = nodes[place], place
            while at > begin and nodes[at - 1] > node:
                nodes[at] = nodes[at - 1]
                at -= 1
            nodes[at] = node

    def _remove(self, kind: int) -> None:
        """Remove a type from the ready types; the last one moves to its place."""
        self.num_ready -= 1
        other = self.ready_types[self.num_ready]
        self.ready_types[self._place[kind]] = other
        self._place[other] = self._place[kind]

    def _add(self, node: int) -> None:
        """Add a node that became ready."""
        kind = self.types[node]
        if self.size[kind] == 0:
            self.ready_types[self.num_ready], self._place[kind] = kind, self.num_ready
            self.num_ready += 1
            self.fresh_types[self.num_fresh] = kind
            self.num_fresh += 1
        if self._grew[kind] != self.batches + 1:
            self._grew[kind] = self.batches + 1
            self.grown_types[self.num_grown] = kind
            self.num_grown += 1
        self.size[kind] += 1
        if self.alone[kind]:
            heapq.heappush(self._heaps.setdefault(kind, []), node)
        else:
            self.before[node] = self.last[kind]
            self.last[kind] = node


class Run:
    """Run batches of a graph, by itself where no choice can be wrong.

    A batch is in any schedule if all remaining nodes of its type are ready, if its nodes must run
    alone, or if no other type is ready. A `Rule` makes the other decisions.

    Parameters
    ----------
    graph : Graph
        The graph; it is not changed.

    Attributes
    ----------
    graph : Graph
    frontier : Frontier
        What is ready, and what ran. Read-only.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.frontier = Frontier(graph)
        self._safe: list[int] = []
        self._find_safe()

    def __len__(self) -> int:
        """Return how many batches ran so far."""
        return self.frontier.batches

    @property
    def batches(self) -> list[np.ndarray]:
        """The batches that ran so far."""
        return self.frontier.since(0)

    def copy(self) -> 'Run':
        """Return an independent copy of the run, for use in the same thread."""
        other = Run.__new__(Run)
        other.graph, other.frontier = self.graph, self.frontier.copy()
        other._safe = list(self._safe)
        return other

    def settle(self) -> bool:
        """Run each batch that is surely in some best order; return whether a choice is left."""
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
        """Run to the end; a rule chooses among types where there is a choice."""
        while self.settle():
            self.advance(rule.choose())

    def take(self, kind: int) -> np.ndarray:
        """Run the ready nodes of a type, and return them (see `Frontier.take`)."""
        nodes = self.frontier.take(kind)
        self._find_safe()
        return nodes

    def advance(self, kind: int) -> int:
        """Run the ready nodes of a type, and return how many ran."""
        ran = self.frontier.advance(kind)
        self._find_safe()
        return ran

    def schedule(self) -> Schedule:
        """Return what ran as a schedule."""
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
