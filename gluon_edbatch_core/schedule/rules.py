# cython: infer_types=True
"""Rules that choose among ready types, and the look-up of a state in a table.

Cython compiles this module by ``rules.pxd`` where there is a compiler.
"""

import math
from collections.abc import Mapping
from math import exp
from typing import Any, Callable, Optional

import numpy as np

from .frontier import Frontier, Rule

_FORGOTTEN = 350  # a way that is so many nodes shorter weighs nothing at all
_WEIGHTS = np.array([exp(-2.0 * behind) for behind in range(_FORGOTTEN)])
_STEPS, _TRIED = 4, 4  # batches that are looked ahead, and types that are tried for each
_NEAR = 6  # nodes: ways that are shorter by more are not looked at
_MANY = 256  # nodes: with more of them, nothing is tried
_CLEAR = 0.01  # nor if the second type weighs less than this share of the heaviest
_EQUAL = 1.0 + 1e-9
_BIT = 1  # of a set of types
_ROUNDED = 1e9  # sums of the same numbers in another order are to be the same


class LeastDeep(Rule):
    """Choose the ready type with the least mean depth; types that must run alone come first.

    Of types with equal means, the one with the lowest number is chosen. With `remaining` the mean
    is taken over the nodes that have not run yet, else over all. Nothing has run at the start.
    """

    def __init__(self, graph: Any, frontier: Frontier, remaining: bool = False) -> None:
        self._frontier, self._remaining = frontier, remaining
        self._depth = graph.depth.data
        # Whole numbers below 2**53, so equal means are equal floats.
        self._total: Any = np.zeros(graph.num_types).data
        self._mean: Any = np.zeros(graph.num_types).data
        self._count: Any = np.zeros(graph.num_types, np.int32).data
        self._seen = 0  # batches
        self._sum_up()

    def choose(self) -> int:
        """Return the ready type with the least mean depth."""
        frontier = self._frontier
        if self._remaining:
            self._catch_up()
        best = frontier.ready_types[0]
        for place in range(1, frontier.num_ready):
            kind = frontier.ready_types[place]
            if frontier.alone[kind] != frontier.alone[best]:
                better = frontier.alone[kind] > frontier.alone[best]
            elif self._mean[kind] != self._mean[best]:
                better = self._mean[kind] < self._mean[best]
            else:
                better = kind < best
            if better:
                best = kind
        return best

    def _sum_up(self) -> None:
        types = self._frontier.types
        for node in range(len(types)):
            kind = types[node]
            self._total[kind] += self._depth[node]
            self._count[kind] += 1
        for kind in range(len(self._mean)):
            self._mean[kind] = self._total[kind] / max(self._count[kind], 1)

    def _catch_up(self) -> None:
        """Remove nodes that have run since this was last called from the mean depths."""
        frontier = self._frontier
        while self._seen < frontier.batches:
            begin, end = frontier.bounds[self._seen], frontier.bounds[self._seen + 1]
            kind = frontier.types[frontier.order[begin]]
            for place in range(begin, end):
                self._total[kind] -= self._depth[frontier.order[place]]
            self._count[kind] -= end - begin
            self._mean[kind] = self._total[kind] / max(self._count[kind], 1)
            self._seen += 1


class LongestWay(Rule):
    """Choose the ready type whose nodes begin the heaviest paths to the end.

    A path weighs e**2 times as much as one that is a node shorter.
    """

    def __init__(self, run: Any) -> None:
        frontier, count = run.frontier, run.graph.num_types
        self._frontier = frontier
        self._height, self._weights = run.graph.height.data, _WEIGHTS.data
        # by type: the node that was added last, and how often the type had run, when looked at last
        numbers = np.full(3 * count, -1, np.int32).data
        self._seen, self._taken = numbers[:count], numbers[count : 2 * count]
        self._longest = numbers[2 * count :]
        self._mass: Any = np.zeros(count).data
        self._slack: Any = np.zeros(count).data  # -logarithm of the weight, in units of 1e-9

    def choose(self) -> int:
        """Return the ready type with the heaviest paths; of equal ones, the lowest number."""
        frontier, best = self._frontier, -1
        for place in range(frontier.num_ready):
            kind = frontier.ready_types[place]
            self._look_at(kind)
            if (
                best < 0
                or self._slack[kind] < self._slack[best]
                or (self._slack[kind] == self._slack[best] and kind < best)
            ):
                best = kind
        return best

    def state(self) -> tuple[int, ...]:
        """Return the ready types, heaviest first, each followed by the number of nodes by which its
        longest path is shorter than that of the type before: -1 to 2."""
        found, state = [], []
        for place in range(self._frontier.num_ready):
            kind = self._frontier.ready_types[place]
            self._look_at(kind)
            found.append((self._slack[kind], kind, self._longest[kind]))
        found.sort()
        before = found[0][2] if found else 0
        for _, kind, longest in found:
            state += [kind, max(-1, min(before - longest, 2))]
            before = longest
        return tuple(state)

    def _look_at(self, kind: int) -> None:
        """Add the paths from nodes that became ready since the last call."""
        frontier = self._frontier
        if self._taken[kind] != frontier.takes[kind]:  # the type ran since
            self._taken[kind] = frontier.takes[kind]
            self._longest[kind], self._mass[kind], self._seen[kind] = -1, 0.0, -1
        node = frontier.last[kind]
        if node == self._seen[kind]:
            return
        while node != self._seen[kind]:
            self._weigh(kind, node)
            node = frontier.before[node]
        self._seen[kind] = frontier.last[kind]
        self._slack[kind] = math.floor(
            0.5 - _ROUNDED * (2.0 * self._longest[kind] + math.log(self._mass[kind]))
        )

    def _weigh(self, kind: int, node: int) -> None:
        height = self._height[node]
        behind = self._longest[kind] - height
        if behind >= 0:
            if behind < _FORGOTTEN:
                self._mass[kind] += self._weights[behind]
            return
        self._longest[kind] = height
        self._mass[kind] = 1.0 + (
            self._mass[kind] * self._weights[-behind] if -behind < _FORGOTTEN else 0.0
        )


class LookAhead(LongestWay):
    """Choose the first type of the heaviest sequence of a few batches, found by a search.

    Nodes much nearer to the end than the farthest do not count. If many are about as far, or one
    type outweighs all others, the heaviest type is chosen, which is cheaper to find. The search
    undoes its changes, so `Frontier` stays as it was.
    """

    def __init__(self, run: Any) -> None:
        super().__init__(run)
        nodes, self._count = len(run.graph), run.graph.num_types
        # by type: the last ready node of those near its farthest; by node: the one before
        near = np.full(self._count + nodes, -1, np.int32).data
        self._near, self._near_before = near[: self._count], near[self._count :]
        # Lists of nodes by step and type: where each begins, what it weighs, and its links.
        lists = np.empty(_STEPS * self._count + 2 * nodes, np.int32).data
        self._head, links = lists[: _STEPS * self._count], lists[_STEPS * self._count :]
        self._nodes, self._next = links[:nodes], links[nodes:]
        self._gain: Any = np.empty(_STEPS * self._count).data
        self._used = self._top = 0
        self._first = self._choice = -1
        self._best = 0.0

    def choose(self) -> int:
        """Return the type that begins the best sequence; of equal ones, the heaviest type."""
        frontier = self._frontier
        self._top = -1
        for place in range(frontier.num_ready):
            kind = frontier.ready_types[place]
            self._look_at(kind)
            self._top = max(self._top, self._longest[kind])
        for kind in range(self._count):
            self._head[kind], self._gain[kind] = -1, 0.0
        self._used = 0
        for place in range(frontier.num_ready):
            node = self._near[frontier.ready_types[place]]
            while node >= 0:
                self._push(0, node)
                node = self._near_before[node]
        heaviest = self._following(0, -1)
        second = self._following(0, heaviest)
        if self._used > _MANY or second < 0 or self._gain[second] < _CLEAR * self._gain[heaviest]:
            return heaviest
        self._best = -1.0
        self._search(0, 0.0, 0)
        return self._choice

    def _search(self, step: int, gained: float, tried: int) -> None:
        """Try the heaviest types at this step, after earlier ones of total weight `gained`; not the
        set `tried`, which ran before these with the same nodes. That cannot be worse."""
        row, total, kind = step * self._count, 0.0, -1
        for other in range(self._count):
            total += self._gain[row + other]
        for _ in range(_TRIED if step + 1 < _STEPS else 1):
            kind = self._following(row, kind)
            if (
                kind < 0
                or gained + self._gain[row + kind] + (_STEPS - 1 - step) * total <= self._best
            ):
                break
            if tried >> kind & 1:
                continue
            if step == 0:
                self._first = kind
            if step + 1 < _STEPS:
                self._run(step, kind, gained, tried)
                tried |= _BIT << kind
            else:
                self._judge(gained + self._gain[row + kind])
        if total == 0.0:  # nothing is left
            self._judge(gained)

    def _following(self, row: int, before: int) -> int:
        """Return the heaviest type among those lighter than type `before`, or -1."""
        found = -1
        for kind in range(self._count):
            gain = self._gain[row + kind]
            if gain == 0.0 or kind == before:
                continue
            if before >= 0 and (
                gain > self._gain[row + before]
                or (gain == self._gain[row + before] and kind < before)
            ):
                continue
            if found < 0 or gain > self._gain[row + found]:
                found = kind
        return found

    def _judge(self, gained: float) -> None:
        if gained > self._best * _EQUAL:
            self._best, self._choice = gained, self._first

    def _run(self, step: int, kind: int, gained: float, tried: int) -> None:
        """Continue the search as if a type had run, which may add nodes to `tried` types."""
        row, following, used = step * self._count, (step + 1) * self._count, self._used
        for other in range(self._count):
            self._head[following + other] = self._head[row + other]
            self._gain[following + other] = self._gain[row + other]
        self._head[following + kind], self._gain[following + kind] = -1, 0.0
        self._count_down(row + kind, following, -1)
        for other in range(self._count):
            if self._head[following + other] != self._head[row + other]:
                tried &= ~(_BIT << other)
        self._search(step + 1, gained + self._gain[row + kind], tried)
        self._count_down(row + kind, following, 1)
        self._used = used

    def _count_down(self, place: int, row: int, by: int) -> None:
        """Change the counts of inputs that readers of listed nodes wait for; list ready ones."""
        countdown = self._frontier.countdown
        link = self._head[place]
        while link >= 0:
            node = self._nodes[link]
            for edge in range(countdown.offsets[node], countdown.offsets[node + 1]):
                reader = countdown.readers[edge]
                countdown.waiting[reader] += by
                if by < 0 and countdown.waiting[reader] == 0:
                    self._push(row, reader)
            link = self._next[link]

    def _push(self, row: int, node: int) -> None:
        """Add a node to the list of its type, unless it is much nearer to the end than others."""
        behind = self._top - self._height[node]
        if behind > _NEAR:
            return
        place = row + self._frontier.types[node]
        self._nodes[self._used], self._next[self._used] = node, self._head[place]
        self._head[place] = self._used
        self._gain[place] += self._weights[behind]
        self._used += 1

    def _weigh(self, kind: int, node: int) -> None:
        behind = self._longest[kind] - self._height[node]
        if self._longest[kind] < 0 or behind < -_NEAR:  # the first one, or all others are nearer
            self._near[kind] = -1
        if self._longest[kind] < 0 or behind <= _NEAR:
            self._near_before[node] = self._near[kind]
            self._near[kind] = node
        LongestWay._weigh(self, kind, node)


class LookUp(Rule):
    """Choose the type that a table has for the state of a run, else that of another rule.

    `otherwise` makes the other rule at the first unknown state; `unseen` counts such states.
    """

    def __init__(
        self,
        run: Any,
        encoding: Any,
        table: Mapping[tuple[int, ...], int],
        otherwise: Callable[[Any], Rule],
    ) -> None:
        self._run, self._frontier = run, run.frontier
        self._state_of, self._coarser = encoding.follow(run), encoding.coarser
        self._table = table
        self._make_other = otherwise
        self._other: Optional[Rule] = None
        self.unseen = 0

    def choose(self) -> int:
        """Return the type for the present state."""
        state: Any = self._state_of()
        while state is not None:
            found = self._table.get(state)
            if found is not None and self._frontier.is_ready(found):
                return found
            state = self._coarser(state)
        if self._other is None:
            self._other = self._make_other(self._run)
        self.unseen += 1
        return self._other.choose()
