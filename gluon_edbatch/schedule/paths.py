"""The longest ways to the end that ready nodes begin, by type.

This module is compiled by Cython where a compiler is present (the types are in ``paths.pxd``), and
runs as it stands where not.
"""

from math import exp, log
from typing import Any, Callable, List, Tuple

import numpy as np

_FORGOTTEN = 350  # a way that is so many nodes shorter weighs nothing at all
_WEIGHTS = np.array([exp(-2.0 * behind) for behind in range(_FORGOTTEN)])


def longest_way(run: Any) -> Callable[[], int]:
    """A function that gives the ready type that presses most."""
    order = ReadyPaths(run).order
    return lambda: order()[0][1]


class ReadyPaths:
    """The longest ways to the end from the ready nodes of each type.

    Parameters
    ----------
    run : Run
        The run to follow.
    """

    def __init__(self, run: Any) -> None:
        frontier, count = run.frontier, run.graph.num_types
        self._ready = frontier.counts
        self._last, self._before = frontier.last.data, frontier.before.data
        self._takes = frontier.takes.data
        self._height = run.graph.height.data
        self._weights = _WEIGHTS.data
        # by type: the node that was added last, and how often the type had run, when looked at last
        self._seen, self._taken = np.full(count, -1).data, np.full(count, -1).data
        self._longest = np.full(count, -1).data
        self._mass: Any = np.zeros(count).data

    def order(self) -> List[Tuple[float, int, int]]:
        """(-logarithm of the weight, type, longest way) for each ready type, ascending."""
        found = []
        for kind in self._ready:
            self._look_at(kind)
            longest = self._longest[kind]
            # Rounded, because sums of the same numbers in another order are to be the same.
            found.append((round(-2.0 * longest - log(self._mass[kind]), 9), kind, longest))
        found.sort()
        return found

    def state(self, steps: int) -> Tuple[int, ...]:
        """Each ready type in this order, followed by how many nodes its longest way is shorter
        than that of the type before: -1 to `steps`."""
        state = []
        first, before = True, 0
        for _, kind, longest in self.order():
            state.append(kind)
            state.append(0 if first else max(-1, min(before - longest, steps)))
            first, before = False, longest
        return tuple(state)

    def _look_at(self, kind: int) -> None:
        """Add the ways from nodes that became ready since the last time."""
        if self._taken[kind] != self._takes[kind]:  # the type ran since
            self._taken[kind] = self._takes[kind]
            self._longest[kind], self._mass[kind], self._seen[kind] = -1, 0.0, -1
        node = self._last[kind]
        while node != self._seen[kind]:
            self._add(kind, self._height[node])
            node = self._before[node]
        self._seen[kind] = self._last[kind]

    def _add(self, kind: int, height: int) -> None:
        behind = self._longest[kind] - height
        if behind >= 0:
            if behind < _FORGOTTEN:
                self._mass[kind] += self._weights[behind]
            return
        self._longest[kind] = height
        self._mass[kind] = 1.0 + (
            self._mass[kind] * self._weights[-behind] if -behind < _FORGOTTEN else 0.0
        )
