"""The memory plan of an evaluation: which rows each batch writes, and which it reads how.

Rows of an arena are given out in the order in which they are written, so that what a batch writes
is one slice. What it reads is a slice where the rows happen to be neighbours, and a gather by
index where not. All indices of the evaluation are one array. Batches are kept by type, as columns
of numbers: there are hundreds of them, and few types. Nothing here touches MXNet's engine.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Optional

import numpy as np

from ..subgraph.node_type import NodeType
from ..subgraph.spec import ArenaKey


class Traits(NamedTuple):
    """What planning has to know of the backend that will run the batches of a type.

    Attributes
    ----------
    pads : bool
        Whether it needs ragged arguments padded.
    hoisted_below : float
        What can run ahead for all batches pays if these have fewer rows on average.
    fused_up_to : float
        Products with the same input are one in batches of so many rows at most.
    shares : bool
        Whether what can run ahead pays for a few rows that are then read by index.
    """

    pads: bool
    hoisted_below: float
    fused_up_to: float
    shares: bool = False


class Read(NamedTuple):
    """How a batch reads one argument.

    Attributes
    ----------
    arena : int
    gather : bool
        True: the rows ``indices[begin:end]``; False: the rows ``begin:end`` themselves.
    begin, end : int
    length : int or None
        For ragged arguments the padded length K of axis 1; 0 if no sample has any value.
    parents : int or None
        For ragged arguments that are not padded: from here on in ``indices``, the row of the
        batch that each of the rows read belongs to.
    lengths : int or None
        For those whose padding is masked: from here on in ``indices``, how many values each row of
        the batch has.
    """

    arena: int
    gather: bool
    begin: int
    end: int
    length: Optional[int] = None
    parents: Optional[int] = None
    lengths: Optional[int] = None

    def __str__(self) -> str:
        rows = f'{"indices " if self.gather else ""}{self.begin}:{self.end}'
        length = '' if self.length is None else f', padded to {self.length}'
        parents = '' if self.parents is None else f', parents from {self.parents}'
        return f'arena {self.arena}[{rows}{length}{parents}]'


class Write(NamedTuple):
    """The rows that a batch writes."""

    arena: int
    begin: int
    end: int

    def __str__(self) -> str:
        return f'arena {self.arena}[{self.begin}:{self.end}]'


class Batch(NamedTuple):
    """One call of a static subgraph.

    Attributes
    ----------
    node_type : NodeType
    nodes : numpy.ndarray
        Positions in the evaluation's `Calls`.
    rows : int
        Rows of the whole batch.
    reads : tuple of Read
        One for each argument.
    writes : tuple of Write
        One for each output.
    hoisted : bool
        Whether it is the part of a type that runs ahead for all batches (see `split_batches`).
    """

    node_type: NodeType
    nodes: np.ndarray
    rows: int
    reads: tuple[Read, ...]
    writes: tuple[Write, ...]
    hoisted: bool = False

    def __str__(self) -> str:
        reads, writes = (', '.join(map(str, each)) for each in (self.reads, self.writes))
        ahead = ' (hoisted)' if self.hoisted else ''
        return f'{writes} = {self.node_type}{ahead} of {self.rows} rows ({reads})'


class Reads(NamedTuple):
    """How the batches of a group read one argument: `Read` with an entry a batch.

    Attributes
    ----------
    arena : int
    gather : numpy.ndarray
        bool.
    begin, end : numpy.ndarray
        int64.
    length, parents, lengths : numpy.ndarray or None
        int64 of ragged arguments, with -1 for None.
    uneven : numpy.ndarray or None
        bool of ragged arguments, whether the calls of a batch have different numbers of values.
    """

    arena: int
    gather: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    length: Optional[np.ndarray] = None
    parents: Optional[np.ndarray] = None
    uneven: Optional[np.ndarray] = None
    lengths: Optional[np.ndarray] = None

    def of(self, position: int) -> Read:
        """Of one batch of the group."""
        length, parents, lengths = (
            None if column is None or column[position] < 0 else int(column[position])
            for column in (self.length, self.parents, self.lengths)
        )
        return Read(
            self.arena,
            bool(self.gather[position]),
            int(self.begin[position]),
            int(self.end[position]),
            length,
            parents,
            lengths,
        )


class Writes(NamedTuple):
    """The rows that the batches of a group write for one output: `Write` with an entry a batch."""

    arena: int
    begin: np.ndarray
    end: np.ndarray

    def of(self, position: int) -> Write:
        """Of one batch of the group."""
        return Write(self.arena, int(self.begin[position]), int(self.end[position]))


class Group(NamedTuple):
    """The batches of one type, in the order in which they run.

    Attributes
    ----------
    node_type : NodeType
    numbers : numpy.ndarray
        (b,) int64, place of each batch among all of the plan, ascending.
    rows : numpy.ndarray
        (b,) int64, rows of each batch.
    nodes, bounds : numpy.ndarray
        Batch ``i`` has the calls ``nodes[bounds[i]:bounds[i + 1]]``.
    reads : tuple of Reads
        One for each argument.
    writes : tuple of Writes
        One for each output.
    known : frozenset of int
        Arguments that are one value a call, of which every batch reads only what is there before
        the first of them.
    hoisted : bool
        See `Batch`.
    """

    node_type: NodeType
    numbers: np.ndarray
    rows: np.ndarray
    nodes: np.ndarray
    bounds: np.ndarray
    reads: tuple[Reads, ...]
    writes: tuple[Writes, ...]
    known: frozenset[int] = frozenset()
    hoisted: bool = False

    @property
    def size(self) -> int:
        """Number of batches."""
        return len(self.numbers)

    def batch(self, position: int) -> Batch:
        """One of the batches."""
        return Batch(
            self.node_type,
            self.nodes[self.bounds[position] : self.bounds[position + 1]],
            int(self.rows[position]),
            tuple([read.of(position) for read in self.reads]),
            tuple([write.of(position) for write in self.writes]),
            self.hoisted,
        )


Part = tuple[Group, int, int]  # of a group, its batches from one position to before another


class Import(NamedTuple):
    """Rows that an earlier evaluation computed, copied to the rows from `begin` on."""

    evaluation: int
    rows: np.ndarray
    begin: int
    taped: bool


class ArenaPlan:
    """The rows of one arena.

    Attributes
    ----------
    key : ArenaKey
    rows : int
        How many there are.
    zero : int or None
        A row of zeros, which pads ragged arguments.
    scalars : tuple of (int, int, int) or None
        First row, and the range of recorded numbers that go there.
    arrays : list of (int, int)
        First row and index of each array given by the user.
    imports : list of Import
    private : bool
        Whether no value lives there, and each row is read once.
    shared : bool
        Whether no value lives there, and rows are read any number of times.
    earlier : int or None
        The evaluation that computed it, if it is read where it lies; nothing is written there.
    """

    def __init__(
        self,
        key: ArenaKey,
        private: bool = False,
        shared: bool = False,
        earlier: Optional[int] = None,
    ):
        self.key = key
        self.private = private
        self.shared = shared
        self.earlier = earlier
        self.rows = 0
        self.zero: Optional[int] = None
        self.scalars: Optional[tuple[int, int, int]] = None
        self.arrays: list[tuple[int, int]] = []
        self.imports: list[Import] = []

    def __str__(self) -> str:
        row_shape, dtype, ctx = self.key[:3]
        given = [
            f'{len(each)} {name}'
            for name, each in (('given', self.arrays), ('imports', self.imports))
            if each
        ]
        given += ['numbers'] * (self.scalars is not None) + ['private'] * self.private
        given += ['shared'] * self.shared
        given += [] if self.earlier is None else [f'of evaluation {self.earlier}']
        return ', '.join([f'{self.rows} rows of {dtype.__name__}{row_shape} on {ctx}', *given])

    @property
    def public(self) -> bool:
        """Whether values of this evaluation live there."""
        return not (self.private or self.shared) and self.earlier is None

    def allocate(self, rows: int) -> int:
        """Give out the next rows."""
        begin = self.rows
        self.rows += rows
        return begin


@dataclass(frozen=True)
class Plan:
    """Everything that execution needs to know.

    Attributes
    ----------
    arenas : list of ArenaPlan
    groups : list of Group
    values : numpy.ndarray
        int64, what is computed.
    indices : numpy.ndarray
        int32.
    gathered_rows, sliced_rows : int
        Rows that batches read by index, and as slices.
    tables : dict or None
        If it is used again: what native runs were told, by their batches and threads.
    """

    arenas: list[ArenaPlan]
    groups: list[Group]
    values: np.ndarray
    indices: np.ndarray
    gathered_rows: int
    sliced_rows: int
    tables: Optional[dict[tuple, Any]] = None

    def __str__(self) -> str:
        """Arenas, groups, then one line a batch."""
        arenas = [f'arena {index}: {arena}' for index, arena in enumerate(self.arenas)]
        groups = [
            f'group {group.node_type}: batches {group.numbers.tolist()}' for group in self.groups
        ]
        return '\n'.join([*arenas, *groups, *map(str, self.batches)])

    @cached_property
    def size(self) -> int:
        """Number of batches."""
        return sum([group.size for group in self.groups])

    @cached_property
    def private(self) -> list[bool]:
        """Whether each arena is private."""
        return [arena.private for arena in self.arenas]

    @cached_property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Group of each batch, and its position there: two (batches,) int64 arrays, in the order
        in which the batches run."""
        groups, positions = np.empty((2, self.size), np.int64)
        for index, group in enumerate(self.groups):
            groups[group.numbers] = index
            positions[group.numbers] = np.arange(group.size)
        return groups, positions

    def parts(self, first: int, last: int) -> list[Part]:
        """Groups of the batches from number `first` to before `last`, in the order of `groups`."""
        if last - first == self.size:  # most often, and several times as fast
            return [(group, 0, group.size) for group in self.groups]
        groups, positions = (column[first:last].tolist() for column in self.places)
        begins: dict[int, int] = {}
        ends: dict[int, int] = {}
        for group, position in zip(groups, positions):
            begins.setdefault(group, position)
            ends[group] = position + 1
        return [(self.groups[group], begins[group], ends[group]) for group in sorted(begins)]

    def batches_between(self, first: int, last: int) -> list[Batch]:
        """Batches from number `first` to before `last`, in the order in which they run."""
        groups, positions = (column[first:last].tolist() for column in self.places)
        return [self.groups[group].batch(place) for group, place in zip(groups, positions)]

    @property
    def batches(self) -> list[Batch]:
        """All batches, to look at: execution goes by groups."""
        return self.batches_between(0, self.size)
