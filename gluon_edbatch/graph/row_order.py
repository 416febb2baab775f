"""The order of calls within batches, so that later batches read slices.

What a batch writes lies in the order of its calls. A later batch that reads it in that order reads
a slice, and else gathers row by row. So each batch takes the order in which the first batch that
reads it wants it, argument by argument: of sentences of different lengths, those that end sooner
come last. Batches settle their order from the last to the first. (ED-Batch lays out memory once
for a static subgraph, with PQ-trees; across the batches of a minibatch there is no time for that.)

This module is compiled by Cython where a compiler is present (the types are in ``row_order.pxd``),
and runs as it stands where not.
"""

from typing import Any

import numpy as np

_ARGUMENTS = 64  # further ones are not told apart
_FEW = 24  # nodes that are sorted faster one by one than by calls of NumPy


def arrange(graph: Any, order: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """The order of nodes with that of each batch chosen anew.

    Parameters
    ----------
    graph : Graph
    order : numpy.ndarray
        (n,) int32, as `Schedule` has it.
    bounds : numpy.ndarray
        (batches + 1,) int64

    Returns
    -------
    numpy.ndarray
        (n,) int32
    """
    count = len(order)
    arranged = np.ascontiguousarray(order, np.int32).copy()
    wanted = np.full(count, np.iinfo(np.int64).max)  # by node: batch, argument, place there
    keys = np.empty(count, np.int64)
    nodes, cuts, places, found = (
        arranged.data,
        bounds.data,
        wanted.data,
        keys.data,
    )
    first = np.ascontiguousarray(graph.offsets, np.int64).data
    producers = np.ascontiguousarray(graph.inputs, np.int32).data
    for batch in range(len(bounds) - 2, -1, -1):
        begin, end = cuts[batch], cuts[batch + 1]
        sorted_already = True
        for place in range(begin, end):
            found[place] = places[nodes[place]]
            if place > begin and found[place] < found[place - 1]:
                sorted_already = False
        if not sorted_already and end - begin > _FEW:
            _sort(arranged, keys, begin, end)
        elif not sorted_already:
            for place in range(begin + 1, end):
                node, key, at = nodes[place], found[place], place
                while at > begin and found[at - 1] > key:
                    nodes[at], found[at] = nodes[at - 1], found[at - 1]
                    at -= 1
                nodes[at], found[at] = node, key
        for place in range(begin, end):
            node = nodes[place]
            for edge in range(first[node], first[node + 1]):
                argument = min(edge - first[node], _ARGUMENTS - 1)
                key = (batch * _ARGUMENTS + argument) * count + place
                if key < places[producers[edge]]:
                    places[producers[edge]] = key
    return arranged


def _sort(arranged: np.ndarray, keys: np.ndarray, begin: int, end: int) -> None:
    order = keys[begin:end].argsort(kind='stable')
    arranged[begin:end] = arranged[begin:end][order]
