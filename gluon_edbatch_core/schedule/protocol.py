"""The protocol of schedulers: a graph in, batches out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Callable, Protocol, TypeVar

import numpy as np

from ..graph.graph import Graph


@dataclass(frozen=True, eq=False)
class Schedule:
    """Batches in the order in which they run.

    Parameters
    ----------
    order : numpy.ndarray
        (n,) int32, every node once, batch after batch; nodes ascend within a batch.
    bounds : numpy.ndarray
        (b + 1,) int64; batch ``k`` is ``order[bounds[k]:bounds[k + 1]]``, nodes of one type.
    learn_s : float
        Seconds that the scheduler learned before it made this schedule.
    unseen_states : int
        Number of choices in states without a learned type.
    decided_by : str
        What chose the batches, if the scheduler has several ways.
    """

    order: np.ndarray
    bounds: np.ndarray
    learn_s: float = 0.0
    unseen_states: int = 0
    decided_by: str = ''

    @classmethod
    def from_batches(cls, batches: Sequence[np.ndarray]) -> 'Schedule':
        """Make a schedule from the node ids of each batch in turn.

        Parameters
        ----------
        batches : sequence of numpy.ndarray
            Integers, ascending in each batch.

        Returns
        -------
        Schedule
        """
        bounds = np.zeros(len(batches) + 1, np.int64)
        np.cumsum([len(batch) for batch in batches], out=bounds[1:])
        order = np.concatenate(batches).astype(np.int32) if batches else np.zeros(0, np.int32)
        return cls(order, bounds)

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self.bounds) - 1

    def __iter__(self) -> Iterator[np.ndarray]:
        """Yield the node ids of each batch in turn."""
        bounds = self.bounds.tolist()
        for begin, end in zip(bounds[:-1], bounds[1:]):
            yield self.order[begin:end]

    def __repr__(self) -> str:
        return f'Schedule({len(self.order)} nodes in {len(self)} batches)'

    def fault(self, graph: Graph) -> str:
        """Return why this is not a schedule of a graph; empty if it is one.

        A schedule has every node once, and producers in earlier batches than consumers. A batch has
        nodes of one type, ascending; nodes that must run alone do.

        Parameters
        ----------
        graph : Graph
            The graph that was scheduled.

        Returns
        -------
        str
        """
        order, bounds = self.order, self.bounds
        if order.dtype != np.int32:
            return f'order is {order.dtype}, not int32'
        if bounds.dtype != np.int64:
            return f'bounds are {bounds.dtype}, not int64'
        sizes = np.diff(bounds)
        if not (len(bounds) and bounds[0] == 0 and bounds[-1] == len(order)):
            return f'bounds do not go from 0 to the {len(order)} nodes in order'
        if (sizes <= 0).any():
            return f'batches without nodes: {np.flatnonzero(sizes <= 0)}'
        if not np.array_equal(np.sort(order), np.arange(len(graph))):
            return f'order does not hold each of the {len(graph)} nodes once'
        batch = np.empty(len(graph), np.int64)
        batch[order] = np.repeat(np.arange(len(sizes)), sizes)
        early = np.flatnonzero(batch[graph.inputs] >= batch[graph.readers])
        if len(early):
            node, producer = graph.readers[early[0]], graph.inputs[early[0]]
            return (
                f'node {node} runs in batch {batch[node]} and reads node {producer}, '
                f'which runs in batch {batch[producer]}'
            )
        same = batch[order[1:]] == batch[order[:-1]]
        kinds = graph.types[order]
        for wrong, what in (
            (kinds[1:] != kinds[:-1], 'a batch holds nodes of two types'),
            (order[1:] <= order[:-1], 'nodes do not ascend in a batch'),
            (
                graph.alone[kinds[1:]],
                'a batch holds two nodes of a type whose nodes must run alone',
            ),
        ):
            if (same & wrong).any():
                return what
        return ''

    def of_types(self, graph: Graph) -> str:
        """Return the schedule as text, one line for each batch: its type and number of nodes.

        Parameters
        ----------
        graph : Graph
            The graph that was scheduled.

        Returns
        -------
        str
        """
        lines = [
            f'{number}: {graph.type_names[graph.types[batch[0]]]} x {len(batch)}'
            for number, batch in enumerate(self)
        ]
        return '\n'.join([repr(self), *lines])


class Scheduler(Protocol):
    """Decide which nodes run together, and in which order (see `Schedule.fault` for the rules)."""

    name: str

    def schedule(self, graph: Graph) -> Schedule:
        """Return batches of one type each that hold every node once, producers before consumers.

        Parameters
        ----------
        graph : Graph
            The graph of a minibatch; it is not changed.

        Returns
        -------
        Schedule
        """
        ...


Made = TypeVar('Made')


def of_name(what: str, name: str, known: Mapping[str, Callable[[], Made]]) -> Made:
    """Return the value of a name in `known`; raise a ValueError with all names if there is none."""
    if name not in known:
        names = ', '.join(repr(each) for each in sorted(known))
        raise ValueError(f'there is no {what} {name!r}; there are {names}')
    return known[name]()
