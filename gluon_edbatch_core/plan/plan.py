"""The memory plan of an evaluation: which rows each batch writes, and how it reads its arguments.

Rows of an arena are allocated in the order in which they are written, so a batch writes one slice.
A batch reads a slice if the rows are consecutive, else a gather by index. All indices of the
evaluation are one array. Batches are stored by type, as columns of numbers: there are hundreds of
them, and few types. Planning uses NumPy only.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Optional

import numpy as np


class Capabilities(NamedTuple):
    """Backend capabilities for a type, as far as planning needs them."""

    pads: bool  # ragged arguments have to be padded
    hoisted_below: float  # what can run ahead for all batches pays below so many rows on average
    fused_up_to: float  # products with the same input are one in batches of so many rows at most
    shares: bool = False  # what can run ahead pays for a few rows that are then read by index
    overhead: float = 0.0  # estimated microseconds of a batch besides its rows, with backward


# Of the native executor. Its products are as fast for a hundred rows as for thousands, and what is
# hoisted has to be written and read again (5 % of a training step of Tree-LSTMs on SICK).
NATIVE = Capabilities(pads=False, hoisted_below=128, fused_up_to=float('inf'), shares=True)


class Read(NamedTuple):
    """How a batch reads one argument. For all batches of a group, each number is an array with an
    entry for each batch, and -1 for None."""

    arena: int
    gather: Any  # bool: the rows ``indices[begin:end]``; or else ``begin:end`` themselves
    begin: Any
    end: Any
    length: Any = None  # ragged: the padded length K of axis 1; 0 if no sample has any value
    parents: Any = None  # ragged, not padded: where in ``indices`` the row of each value begins
    lengths: Any = None  # ragged, masked: where in ``indices`` the number of values of each row is
    uneven: Any = None  # ragged: whether the calls of a batch have different numbers of values

    def of(self, position: int) -> 'Read':
        """Return what one batch of the group reads."""
        gather, *numbers = (
            None if column is None or column[position] < 0 else column[position].item()
            for column in self[1:]
        )
        return Read(self.arena, gather, *numbers)

    def __str__(self) -> str:
        rows = f'{"indices " if self.gather else ""}{self.begin}:{self.end}'
        length = '' if self.length is None else f', padded to {self.length}'
        parents = '' if self.parents is None else f', parents from {self.parents}'
        return f'arena {self.arena}[{rows}{length}{parents}]'


class Write(NamedTuple):
    """The rows that a batch writes; arrays for all batches of a group."""

    arena: int
    begin: Any
    end: Any

    def of(self, position: int) -> 'Write':
        """Return what one batch of the group writes."""
        return Write(self.arena, int(self.begin[position]), int(self.end[position]))

    def __str__(self) -> str:
        return f'arena {self.arena}[{self.begin}:{self.end}]'


class Batch(NamedTuple):
    """One call of a static subgraph, for several recorded calls."""

    node_type: Any  # `CallType`, as the backend knows it
    nodes: np.ndarray  # positions in the evaluation's `Calls`
    rows: int  # of the whole batch
    reads: tuple[Read, ...]  # one for each argument
    writes: tuple[Write, ...]  # one for each output
    hoisted: bool = False  # the part of a type that runs ahead for all batches (`split_batches`)

    def __str__(self) -> str:
        reads, writes = (', '.join(map(str, each)) for each in (self.reads, self.writes))
        ahead = ' (hoisted)' if self.hoisted else ''
        return f'{writes} = {self.node_type}{ahead} of {self.rows} rows ({reads})'


class Group(NamedTuple):
    """The b batches of one type, in the order in which they run."""

    node_type: Any  # `CallType`, as the backend knows it
    numbers: np.ndarray  # (b,) int64, place of each batch among all of the plan, ascending
    rows: np.ndarray  # (b,) int64, rows of each batch
    nodes: np.ndarray  # batch ``i`` has the calls ``nodes[bounds[i]:bounds[i + 1]]``
    bounds: np.ndarray
    reads: tuple[Read, ...]  # one for each argument
    writes: tuple[Write, ...]  # one for each output
    known: frozenset[int] = frozenset()  # arguments, one value a call, known before the first batch
    hoisted: bool = False  # see `Batch`

    @property
    def size(self) -> int:
        """Number of batches of the type."""
        return len(self.numbers)

    def batch(self, position: int) -> Batch:
        """Return the batch at a position in the group."""
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


@dataclass(eq=False)
class ArenaPlan:
    """The rows of one arena in a plan."""

    key: Any
    private: bool = False  # no value lives there, and each row is read once
    shared: bool = False  # no value lives there, and rows are read any number of times
    earlier: Optional[int] = None  # the evaluation that computed it, if it is read where it lies
    rows: int = 0
    zero: Optional[int] = None  # a row of zeros, which pads ragged arguments
    # First row, and the range of recorded numbers that go there.
    scalars: Optional[tuple[int, int, int]] = None
    arrays: list[tuple[int, int]] = field(default_factory=list)  # first row and index of each given
    imports: list[Import] = field(default_factory=list)

    @property
    def is_from_host(self) -> bool:
        """Whether some rows are recorded numbers, or given."""
        return self.scalars is not None or bool(self.arrays)

    def __str__(self) -> str:
        given = [
            f'{len(each)} {name}'
            for name, each in (('given', self.arrays), ('imports', self.imports))
            if each
        ]
        given += ['numbers'] * (self.scalars is not None) + ['private'] * self.private
        given += ['shared'] * self.shared
        given += [] if self.earlier is None else [f'of evaluation {self.earlier}']
        return ', '.join([f'{self.rows} rows of {self.key}', *given])

    @property
    def public(self) -> bool:
        """Whether results that users can read are in the arena."""
        return not (self.private or self.shared) and self.earlier is None

    def allocate(self, rows: int) -> int:
        """Allocate the next rows; return the first."""
        begin = self.rows
        self.rows += rows
        return begin


@dataclass(frozen=True)
class Plan:
    """Everything that execution needs to know: arenas, groups of batches, and indices."""

    arenas: list[ArenaPlan]
    groups: list[Group]
    values: np.ndarray  # int64, what is computed
    indices: np.ndarray  # int32
    gathered_rows: int  # that batches read by index
    sliced_rows: int  # and as slices
    # If it is used again: what native runs were told, by their batches and threads.
    tables: Optional[dict[tuple, Any]] = None

    def __str__(self) -> str:
        """Return the plan as text: arenas, groups, then one line for each batch."""
        arenas = [f'arena {index}: {arena}' for index, arena in enumerate(self.arenas)]
        groups = [
            f'group {group.node_type}: batches {group.numbers.tolist()}' for group in self.groups
        ]
        return '\n'.join([*arenas, *groups, *map(str, self.batches)])

    @cached_property
    def size(self) -> int:
        """Number of batches in the plan."""
        return sum([group.size for group in self.groups])

    @cached_property
    def private(self) -> list[bool]:
        """Whether each arena is private."""
        return [arena.private for arena in self.arenas]

    @cached_property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Group of each batch, and its position there: two (batches,) int64 arrays, in the order in
        which batches run."""
        groups, positions = np.empty((2, self.size), np.int64)
        for index, group in enumerate(self.groups):
            groups[group.numbers] = index
            positions[group.numbers] = np.arange(group.size)
        return groups, positions

    def parts(self, first: int, last: int) -> list[Part]:
        """Return the parts of groups that hold batches `first` to before `last`, in group order."""
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
        """Return batches `first` to before `last`, in the order in which they run."""
        groups, positions = (column[first:last].tolist() for column in self.places)
        return [self.groups[group].batch(place) for group, place in zip(groups, positions)]

    @property
    def batches(self) -> list[Batch]:
        """All batches, for inspection; execution uses groups."""
        return self.batches_between(0, self.size)
