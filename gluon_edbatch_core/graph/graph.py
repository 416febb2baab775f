"""The recorded graph of a minibatch as arrays, for schedulers. Needs NumPy only.

A node is one recorded call; an edge means that a call reads an earlier call's result. All functions
treat many nodes at once. A minibatch has thousands of nodes, and a Python statement for each would
cost more than running the minibatch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Optional

import numpy as np

from .edges import consumers, depths, heights


class Consumers(NamedTuple):
    """The readers of node ``i``, ``nodes[offsets[i]:offsets[i + 1]]``, ascending.

    Neighbouring duplicates among the inputs of a node, such as h and c of one LSTM call, are one
    entry. So ``fan_in``, which counts entries, can be smaller than the number of inputs.
    """

    offsets: np.ndarray  # (n + 1,) int32
    nodes: np.ndarray  # (e,) int32
    fan_in: np.ndarray  # (n,) int32, how often each node occurs in ``nodes``


@dataclass(frozen=True, eq=False)
class Graph:
    """A directed acyclic graph of typed nodes, in an order in which inputs come first.

    A new graph is not checked, since recording makes valid graphs. Call `validate`, or use
    `from_lists`, for graphs from elsewhere. The arrays must not be changed afterwards: derived
    arrays are computed once. Graphs compare by identity.

    Parameters
    ----------
    types : numpy.ndarray
        (n,) int32, the type of each node, in ``range(num_types)``.
    offsets : numpy.ndarray
        (n + 1,) int64; the producers of node ``i`` are ``inputs[offsets[i]:offsets[i + 1]]``.
    inputs : numpy.ndarray
        (m,) int32, producing nodes, each smaller than its consumer. A producer may occur twice.
    num_types : int
        Number of types; some may have no node.
    alone : numpy.ndarray
        (num_types,) bool, types whose nodes must run one by one.
    type_names : sequence of str
        The name of each type in policies.
    overheads : sequence of float
        Microseconds that a batch of each type takes besides its rows, estimated; empty if unknown.
    """

    types: np.ndarray
    offsets: np.ndarray
    inputs: np.ndarray
    num_types: int
    alone: np.ndarray
    type_names: Sequence[str] = ()
    overheads: Sequence[float] = ()

    def __len__(self) -> int:
        return len(self.types)

    def __repr__(self) -> str:
        return f'Graph({len(self)} nodes, {len(self.inputs)} edges, {self.num_types} types)'

    @classmethod
    def from_lists(
        cls,
        types: Sequence[int],
        inputs: Sequence[Sequence[int]],
        num_types: Optional[int] = None,
        alone: Sequence[int] = (),
        type_names: Sequence[str] = (),
    ) -> 'Graph':
        """Make a checked graph from Python lists, for tests and examples.

        Parameters
        ----------
        types : sequence of int
            The type of each node.
        inputs : sequence of sequences of int
            The producers of each node.
        num_types : int, optional
            Number of types; by default one more than the largest type.
        alone : sequence of int
            The types whose nodes must run one by one.
        type_names : sequence of str
            The name of each type in policies.
        """
        if len(types) != len(inputs):
            raise ValueError(f'{len(types)} nodes have types, but {len(inputs)} have inputs')
        if num_types is None:
            num_types = max(types, default=-1) + 1
        if not all(0 <= kind < num_types for kind in alone):
            raise ValueError(f'alone={list(alone)} holds types outside 0 to {num_types - 1}')
        flags = np.zeros(num_types, bool)
        flags[list(alone)] = True
        return cls(
            types=np.array(types, np.int32),
            offsets=np.cumsum([0] + [len(row) for row in inputs], dtype=np.int64),
            inputs=np.array([node for row in inputs for node in row], np.int32),
            num_types=num_types,
            alone=flags,
            type_names=type_names,
        ).validate()

    def validate(self) -> 'Graph':
        """Raise ``ValueError`` if the arrays do not fit together; otherwise return the graph."""
        n, offsets, inputs = len(self.types), self.offsets, self.inputs
        for name in ('types', 'offsets', 'inputs'):
            array = getattr(self, name)
            if array.ndim != 1 or array.dtype.kind not in 'iu':
                raise ValueError(
                    f'{name} must be integers along one axis, '
                    f'not {array.dtype} of shape {array.shape}'
                )
        wrong = np.flatnonzero((self.types < 0) | (self.types >= self.num_types))
        if len(wrong):
            raise ValueError(
                f'node {wrong[0]} has type {self.types[wrong[0]]}, '
                f'but types go from 0 to {self.num_types - 1}'
            )
        if self.alone.shape != (self.num_types,) or self.alone.dtype != bool:
            raise ValueError(
                f'alone must be {self.num_types} bools, one a type, '
                f'not {self.alone.dtype} of shape {self.alone.shape}'
            )
        if len(self.type_names) not in (0, self.num_types):
            raise ValueError(f'{len(self.type_names)} names for {self.num_types} types')
        if len(offsets) != n + 1:
            raise ValueError(f'{n} nodes need {n + 1} offsets, not {len(offsets)}')
        if offsets[0] != 0 or offsets[-1] != len(inputs) or (np.diff(offsets) < 0).any():
            raise ValueError(
                f'offsets must rise from 0 to the {len(inputs)} inputs, '
                f'not from {offsets[0]} to {offsets[-1]} with a fall between'
            )
        wrong = np.flatnonzero((inputs < 0) | (inputs >= self.readers))
        if len(wrong):
            raise ValueError(
                f'node {self.readers[wrong[0]]} reads node {inputs[wrong[0]]}: '
                'a node can read only nodes recorded before it'
            )
        return self

    @cached_property
    def readers(self) -> np.ndarray:
        """(m,) intp, the consuming node of each entry of ``inputs``."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))

    @cached_property
    def consumers(self) -> Consumers:
        """The readers of each node: the edges in reverse."""
        return Consumers(*consumers(*self.edges))

    @cached_property
    def reversed(self) -> 'Graph':
        """Return the graph with its edges reversed; node ``i`` becomes node ``n - 1 - i``."""
        last = len(self) - 1
        offsets, readers, _ = self.consumers
        return Graph(
            self.types[::-1].copy(),
            offsets[-1] - offsets[::-1],
            last - readers[::-1],
            self.num_types,
            self.alone,
            self.type_names,
        )

    @cached_property
    def height(self) -> np.ndarray:
        """(n,) int32: 0 for a node that nobody reads, else 1 + the largest among its readers."""
        return heights(*self.edges)

    @property
    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """``offsets`` and ``inputs`` as contiguous int64 and int32 arrays."""
        return (
            np.ascontiguousarray(self.offsets, np.int64),
            np.ascontiguousarray(self.inputs, np.int32),
        )

    @cached_property
    def depth(self) -> np.ndarray:
        """(n,) int32: 0 for a node without inputs, else 1 + the largest depth among its inputs."""
        return depths(*self.edges)

    @cached_property
    def type_counts(self) -> np.ndarray:
        """(num_types,) intp, how many nodes each type has."""
        return np.bincount(self.types, minlength=self.num_types)


def expand(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return ``concatenate([arange(a, a + n) for a, n in zip(starts, counts)])``, vectorised."""
    shifts = (starts + counts - counts.cumsum()).repeat(counts)
    return shifts + np.arange(len(shifts))


def stable_argsort(keys: np.ndarray, bound: int) -> np.ndarray:
    """Return ``argsort(keys, kind="stable")`` for integers in ``range(bound)``, in linear time.

    NumPy sorts 16-bit integers by radix. It sorts larger ones by comparison, which is several times
    slower [1]_. So this function sorts by the low half, and then by the high half.

    References
    ----------
    .. [1] https://numpy.org/doc/stable/reference/generated/numpy.sort.html
    """
    if bound <= 1 << 16:
        return np.argsort(keys.astype(np.uint16), kind='stable')
    if bound > 1 << 32:
        return np.argsort(keys, kind='stable')
    keys = keys.astype(np.uint32)
    order = np.argsort(keys.astype(np.uint16), kind='stable')
    high = (keys >> np.uint32(16)).astype(np.uint16)
    return order[np.argsort(high[order], kind='stable')]
