"""What is done call by call, and edge by edge. Needs NumPy only.

This module is compiled by Cython where a compiler is present (the types are in ``edges.pxd``), and
runs as it stands where not: then its loops take some 0.3 µs an edge.
"""

from typing import Any, Tuple

import numpy as np


def note_outputs(
    forms: np.ndarray, table: Any, value: int, rows: np.ndarray, taped: np.ndarray
) -> Tuple[np.ndarray, np.ndarray]:
    """Number what new calls compute, from `value` on, and note what is known of that.

    Parameters
    ----------
    forms : numpy.ndarray
        (n,) int64, of each call.
    table : FormTable
    value : int
    rows, taped : numpy.ndarray
        int64 and bool by value, as `record.stores.Locations` has them.

    Returns
    -------
    outputs, length_offsets : numpy.ndarray
        As `collect.Calls` has them.
    """
    count = len(forms)
    outputs, length_offsets = np.empty(count, np.int64), np.zeros(count + 1, np.int64)
    kinds, firsts, bounds = forms.data, outputs.data, length_offsets.data
    counts, lengths, tapes = table.outputs.data, table.variable.data, table.taped.data
    begins, given = table.first_outputs.data, table.output_rows.data
    known, marks = rows.data, taped.view(np.uint8).data
    for call in range(count):
        form = kinds[call]
        firsts[call] = value
        bounds[call + 1] = bounds[call] + lengths[form]
        for place in range(begins[form], begins[form] + counts[form]):
            known[value] = given[place]
            marks[value] = tapes[form]
            value += 1
    return outputs, length_offsets


def among(
    offsets: np.ndarray, args: np.ndarray, outputs: np.ndarray, evaluation: np.ndarray
) -> Tuple[np.ndarray, np.ndarray]:
    """Which calls read what others of them compute.

    Parameters
    ----------
    offsets, args, outputs : numpy.ndarray
        As `collect.Calls` has them. Whatever they read that is not there, they compute.
    evaluation : numpy.ndarray
        int32 by value, below 0 if it is not there.

    Returns
    -------
    offsets, producers : numpy.ndarray
        As `Graph` has them.
    """
    count = len(outputs)
    begins, room = np.zeros(count + 1, np.int64), np.empty(len(args), np.int32)
    first, values, firsts, there = offsets.data, args.data, outputs.data, evaluation.data
    bounds, producers = begins.data, room.data
    base = firsts[0] if count else 0
    makers = np.empty(firsts[count - 1] - base if count else 0, np.int32).data
    found = 0
    for call in range(count):
        for place in range(first[call], first[call + 1]):
            value = values[place]
            if value >= 0 and there[value] < 0:
                producers[found] = makers[value - base]
                found += 1
        bounds[call + 1] = found
        value, end = firsts[call], firsts[call + 1] if call + 1 < count else 0
        while value < end and there[value] < 0:  # what others computed is between these and those
            makers[value - base] = call
            value += 1
    return begins, room[:found]


def needed(
    offsets: np.ndarray,
    producers: np.ndarray,
    outputs: np.ndarray,
    evaluation: np.ndarray,
    wanted: np.ndarray,
) -> np.ndarray:
    """(n,) bool, which calls compute values that are wanted, or what such calls read.

    Parameters
    ----------
    offsets, producers : numpy.ndarray
        As `among` gives them.
    outputs, evaluation : numpy.ndarray
        As it takes them.
    wanted : numpy.ndarray
        bool by value.
    """
    count, end = len(outputs), len(wanted)
    result = np.zeros(count, bool)
    first, sources, firsts = offsets.data, producers.data, outputs.data
    there, asked = evaluation.data, wanted.view(np.uint8).data
    marks = result.view(np.uint8).data
    for call in range(count - 1, -1, -1):  # who reads comes later
        value = firsts[call]
        while not marks[call] and value < end and there[value] < 0:
            marks[call] = asked[value]
            value += 1
        end = firsts[call]
        if marks[call]:
            for edge in range(first[call], first[call + 1]):
                marks[sources[edge]] = 1
    return result


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
