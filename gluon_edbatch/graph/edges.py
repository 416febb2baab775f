"""What is done edge by edge. Needs NumPy only.

This module is compiled by Cython where a compiler is present (the types are in ``edges.pxd``), and
runs as it stands where not: then its loops take some 0.3 µs an edge.
"""

from typing import Any, Tuple

import numpy as np


def consumers(offsets: np.ndarray, inputs: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Who reads each node: the three arrays of `graph.Consumers`.

    Parameters
    ----------
    offsets, inputs : numpy.ndarray
        (n + 1,) int64 and (m,) int32, as `graph.Graph` has them.
    """
    count = len(offsets) - 1
    begins, fan_in = np.zeros(count + 1, np.intp), np.zeros(count, np.intp)
    first, producers = offsets.data, inputs.data
    places, waiting = begins.data, fan_in.data
    for node in range(count):
        before = -1
        for edge in range(first[node], first[node + 1]):
            producer = producers[edge]
            if producer != before:
                places[producer + 1] += 1
                waiting[node] += 1
            before = producer
    np.cumsum(begins, out=begins)
    readers = np.empty(begins[count], np.intp)
    found, places = readers.data, begins[:count].copy().data
    for node in range(count):
        before = -1
        for edge in range(first[node], first[node + 1]):
            producer = producers[edge]
            if producer != before:
                found[places[producer]] = node
                places[producer] += 1
            before = producer
    return begins, readers, fan_in


def depths(offsets: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """(n,) int32: 0 for a node without inputs, else 1 + the largest depth among its inputs."""
    count = len(offsets) - 1
    result = np.zeros(count, np.int32)
    first, producers, depth = offsets.data, inputs.data, result.data
    for node in range(count):
        deepest = 0
        for edge in range(first[node], first[node + 1]):
            above = depth[producers[edge]] + 1
            if above > deepest:
                deepest = above
        depth[node] = deepest
    return result


def heights(offsets: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """(n,) int32: 0 for a node that nobody reads, else 1 + the largest among its readers."""
    count = len(offsets) - 1
    result = np.zeros(count, np.int32)
    first, producers, height = offsets.data, inputs.data, result.data
    for node in range(count - 1, -1, -1):
        below = height[node] + 1
        for edge in range(first[node], first[node + 1]):
            if height[producers[edge]] < below:
                height[producers[edge]] = below
    return result


class Countdown:
    """Counts for every node the inputs that have not run yet.

    Parameters
    ----------
    graph : Graph
        The graph; nothing of it has run.
    """

    def __init__(self, graph: Any) -> None:
        offsets, readers, fan_in = graph.consumers
        self._offsets, self._readers = offsets.data, readers.data
        self._counts = fan_in.copy()
        self._waiting = self._counts.data

    def copy(self) -> 'Countdown':
        """A countdown that goes on from here by itself."""
        other = Countdown.__new__(Countdown)
        other._offsets, other._readers = self._offsets, self._readers
        other._counts = self._counts.copy()
        other._waiting = other._counts.data
        return other

    def release(self, nodes: np.ndarray) -> np.ndarray:
        """Say that nodes have run; each node may be released once.

        Parameters
        ----------
        nodes : numpy.ndarray
            (k,) intp, distinct nodes.

        Returns
        -------
        numpy.ndarray
            (r,) intp, the nodes that waited for these alone, each once, in no special order.
        """
        ran, offsets, readers, waiting = (
            nodes.data,
            self._offsets,
            self._readers,
            self._waiting,
        )
        edges = 0
        for place in range(len(nodes)):
            edges += offsets[ran[place] + 1] - offsets[ran[place]]
        room = np.empty(edges, np.intp)
        ready = room.data
        found = 0
        for place in range(len(nodes)):
            for edge in range(offsets[ran[place]], offsets[ran[place] + 1]):
                reader = readers[edge]
                waiting[reader] -= 1
                if waiting[reader] == 0:
                    ready[found] = reader
                    found += 1
        return room[:found]
