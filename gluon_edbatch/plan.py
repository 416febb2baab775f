"""The memory plan of an evaluation: which rows each batch writes, and which it reads how.

Rows of an arena are given out in the order in which they are written, so that what a batch writes
is one slice. What it reads is a slice where the rows happen to be neighbours, and a gather by
index where not. All indices of the evaluation are one array. Nothing here touches MXNet's engine.
"""
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from .native.run import native_program
from .pending import Calls, FormTable, expand
from .record.lazy import Locations
from .schedule.protocol import Schedule
from .static.node_type import Kind, NodeType


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
    """

    arena: int
    gather: bool
    begin: int
    end: int
    length: Optional[int] = None
    parents: Optional[int] = None


class Write(NamedTuple):
    """The rows that a batch writes."""

    arena: int
    begin: int
    end: int


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
        Whether it is the part of a type that runs ahead for all batches (see `hoist`).
    """

    node_type: NodeType
    nodes: np.ndarray
    rows: int
    reads: Tuple[Read, ...]
    writes: Tuple[Write, ...]
    hoisted: bool = False


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
    key : tuple
        (row_shape, dtype, ctx)
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
    """

    def __init__(self, key: tuple, private: bool = False):
        self.key = key
        self.private = private
        self.rows = 0
        self.zero: Optional[int] = None
        self.scalars: Optional[Tuple[int, int, int]] = None
        self.arrays: List[Tuple[int, int]] = []
        self.imports: List[Import] = []

    def allocate(self, rows: int) -> int:
        """Give out the next rows."""
        begin = self.rows
        self.rows += rows
        return begin


class Plan(NamedTuple):
    """Everything that execution needs to know.

    Attributes
    ----------
    arenas : list of ArenaPlan
    batches : list of Batch
    indices : numpy.ndarray
        int32.
    gathered_rows, sliced_rows : int
        Rows that batches read by index, and as slices.
    """

    arenas: List[ArenaPlan]
    batches: List[Batch]
    indices: np.ndarray
    gathered_rows: int
    sliced_rows: int


class Given(NamedTuple):
    """The inputs that a recording holds: their arenas and rows."""

    scalar_arena: tuple
    array_arenas: Sequence[tuple]
    array_rows: np.ndarray


def make_plan(calls: Calls, table: FormTable, types: Sequence[NodeType], schedule: Schedule,
              node_types: np.ndarray, given: Given, locations: Locations) -> Plan:
    """Lay out an evaluation; the rows of its values are written to ``locations.row``.

    Parameters
    ----------
    calls : Calls
    table : FormTable
    types : sequence of NodeType
    schedule : Schedule
    node_types : numpy.ndarray
        (n,) index into `types` of each call.
    given : Given
    locations : Locations
    """
    return _Planner(calls, table, types, schedule, node_types, given, locations).plan()


class _Planner:
    def __init__(self, calls, table, types, schedule, node_types, given, locations):
        self.calls, self.table, self.types = calls, table, types
        self.schedule, self.node_types = schedule, node_types
        self.given, self.locations = given, locations
        self.arenas: List[ArenaPlan] = []
        self.arena_index: Dict[tuple, int] = {}
        self.rows = table.rows[calls.forms]
        self.indices: List[np.ndarray] = []
        self.index_count = self.gathered = self.sliced = 0

    def plan(self) -> Plan:
        for node_type in self.types:
            for argument in node_type.arguments:
                arena = self.arenas[self._arena(argument.arena)]
                if argument.kind is Kind.RAGGED and arena.zero is None:
                    arena.zero = arena.allocate(1)
            for spec in node_type.outputs:
                self._arena(spec.arena)
        arg_rows = self._place_inputs()
        writes = self._place_outputs()
        inner = arg_rows < 0
        arg_rows[inner] = self.locations.row[self.calls.args[inner]]
        batches = self._batches(arg_rows, writes)
        indices = np.concatenate(self.indices + [np.zeros(1)]).astype(np.int32)  # never empty
        return Plan(self.arenas, batches, indices, self.gathered, self.sliced)

    def _arena(self, key: tuple) -> int:
        index = self.arena_index.get(key)
        if index is None:
            index = self.arena_index[key] = len(self.arenas)
            self.arenas.append(ArenaPlan(key))
        return index

    # --- rows of inputs --------------------------------------------------------------------------

    def _place_inputs(self) -> np.ndarray:
        """First row of each argument that is not computed in this evaluation; -1 for the rest."""
        args = self.calls.args
        rows = np.full(len(args), -1, np.int64)
        outside = np.flatnonzero(args < 0)
        numbers = outside[args[outside] % 2 == 1]
        if len(numbers):
            which = (-args[numbers] - 1) // 2
            first, last = int(which.min()), int(which.max()) + 1
            arena = self.arenas[self._arena(self.given.scalar_arena)]
            begin = arena.allocate(last - first)
            arena.scalars = (begin, first, last)
            rows[numbers] = begin + which - first
        arrays = outside[args[outside] % 2 == 0]
        if len(arrays):
            used, inverse = np.unique(-args[arrays] // 2 - 1, return_inverse=True)
            rows[arrays] = np.array([self._place_array(int(index)) for index in used])[inverse]
        computed = np.flatnonzero(args >= 0)
        earlier = computed[self.locations.evaluation[args[computed]] >= 0]
        if len(earlier):
            rows[earlier] = self._place_imports(earlier)
        return rows

    def _place_array(self, index: int) -> int:
        arena = self.arenas[self._arena(self.given.array_arenas[index])]
        begin = arena.allocate(int(self.given.array_rows[index]))
        arena.arrays.append((begin, index))
        return begin

    def _place_imports(self, positions: np.ndarray) -> np.ndarray:
        """Values of earlier evaluations are copied, one gather for each evaluation and arena."""
        locations = self.locations
        values, first, inverse = np.unique(self.calls.args[positions], return_index=True,
                                           return_inverse=True)
        arenas = self._argument_arenas()[positions[first]]
        groups = np.stack([arenas, locations.evaluation[values], locations.taped[values]], axis=1)
        placed = np.zeros(len(values), np.int64)
        for arena, evaluation, taped in np.unique(groups, axis=0):
            members = np.flatnonzero((groups == (arena, evaluation, taped)).all(axis=1))
            counts = locations.rows[values[members]]
            total = int(counts.sum())
            begin = self.arenas[arena].allocate(total)
            placed[members] = begin + np.cumsum(counts) - counts
            source = expand(locations.row[values[members]], counts)
            self.arenas[arena].imports.append(Import(int(evaluation), source, begin, bool(taped)))
        return placed[inverse]

    def _argument_arenas(self) -> np.ndarray:
        """Arena of each entry of ``calls.args``."""
        arenas = np.zeros(len(self.calls.args), np.int64)
        for index, node_type in enumerate(self.types):
            nodes = np.flatnonzero(self.node_types == index)
            for argument, (starts, counts) in zip(node_type.arguments,
                                                  self._argument_spans(node_type, nodes)):
                arenas[expand(starts, counts)] = self._arena(argument.arena)
        return arenas

    def _argument_spans(self, node_type, nodes):
        """For each argument, where its values start in ``calls.args`` and how many there are."""
        calls, spans = self.calls, [None] * len(node_type.arguments)
        start = calls.offsets[nodes]
        for position, argument in enumerate(node_type.arguments):
            if argument.kind is Kind.ROWS:
                spans[position] = (start, np.ones(len(nodes), np.int64))
                start = start + 1
        length = calls.length_offsets[nodes]
        for position, argument in enumerate(node_type.arguments):
            if argument.kind is not Kind.ROWS:
                counts = calls.lengths[length]
                spans[position] = (start, counts)
                start, length = start + counts, length + 1
        return spans

    # --- rows of outputs -------------------------------------------------------------------------

    def _place_outputs(self) -> List[Tuple[Write, ...]]:
        """Give out rows batch by batch; the rows of all outputs go to ``locations.row``."""
        order, bounds = self.schedule.order, self.schedule.bounds
        ends = np.zeros(len(order) + 1, np.int64)
        np.cumsum(self.rows[order], out=ends[1:])
        totals = (ends[bounds[1:]] - ends[bounds[:-1]]).tolist()
        self.batch_types = self.node_types[order[bounds[:-1]]].tolist()
        self.batch_rows = totals
        writes = []
        for total, index in zip(totals, self.batch_types):
            node_type = self.types[index]
            batch = []
            for spec, factor in zip(node_type.outputs, node_type.factors):
                arena = self.arena_index[spec.arena]
                rows = total * factor if not node_type.alone else spec.rows
                begin = self.arenas[arena].allocate(rows)
                batch.append(Write(arena, begin, begin + rows))
            writes.append(tuple(batch))
        within = ends[:-1] - np.repeat(ends[bounds[:-1]], np.diff(bounds))
        batch_of = np.repeat(np.arange(len(totals)), np.diff(bounds))
        ordered_types = self.node_types[order]
        for index, node_type in enumerate(self.types):
            members = np.flatnonzero(ordered_types == index)
            outputs = self.calls.outputs[order[members]]
            for position, factor in enumerate(node_type.factors):
                begins = np.array([batch[position].begin if i == index else 0
                                   for batch, i in zip(writes, self.batch_types)], np.int64)
                self.locations.row[outputs + position] = (
                    begins[batch_of[members]] + within[members] * factor)
        return writes

    # --- reads -----------------------------------------------------------------------------------

    def _batches(self, arg_rows, writes) -> List[Batch]:
        order, bounds = self.schedule.order, self.schedule.bounds
        reads: List[List[Read]] = [[] for _ in writes]
        ordered_types = self.node_types[order]
        batch_types = np.array(self.batch_types)
        sizes = np.diff(bounds)
        for index, node_type in enumerate(self.types):
            batches = np.flatnonzero(batch_types == index)
            nodes = order[ordered_types == index]
            edges = np.zeros(len(batches) + 1, np.int64)
            np.cumsum(sizes[batches], out=edges[1:])
            parents = None
            for argument, (starts, counts) in zip(node_type.arguments,
                                                  self._argument_spans(node_type, nodes)):
                arena = self.arena_index[argument.arena]
                if argument.kind is Kind.RAGGED and _unpadded(node_type) and (
                        self.rows[nodes] == 1).all():
                    found, parents = self._segment_reads(arena, arg_rows, starts, counts, edges,
                                                         parents)
                elif argument.kind is Kind.RAGGED:
                    found = self._ragged_reads(arena, arg_rows, starts, counts, nodes, edges)
                else:
                    found = self._row_reads(arena, arg_rows, argument.kind, starts, counts, nodes,
                                            edges)
                for batch, read in zip(batches.tolist(), found):
                    reads[batch].append(read)
        return [Batch(self.types[self.batch_types[k]], order[bounds[k]:bounds[k + 1]],
                      self.batch_rows[k], tuple(reads[k]), writes[k]) for k in range(len(writes))]

    def _row_reads(self, arena, arg_rows, kind, starts, counts, nodes, edges) -> List[Read]:
        """Slices or gathers for an argument of one type, batch by batch."""
        if kind is Kind.FLAT:
            entries = expand(starts, counts)
            rows, spans = arg_rows[entries], self._value_rows(self.calls.args[entries])
            rows = expand(rows, spans)
            per_node = np.add.reduceat(spans, np.cumsum(counts) - counts)
        else:
            rows, per_node = arg_rows[starts], self._argument_rows(nodes, starts)
            if (per_node != 1).any():
                rows = expand(rows, per_node)
        ends = np.zeros(len(nodes) + 1, np.int64)
        np.cumsum(per_node, out=ends[1:])
        return self._reads_of(arena, rows, ends[edges])

    def _argument_rows(self, nodes, starts):
        """Rows of one argument of each node: those of the call, unless it runs alone."""
        if self.types[self.node_types[nodes[0]]].alone:
            return self._value_rows(self.calls.args[starts])
        return self.rows[nodes]

    def _value_rows(self, values) -> np.ndarray:
        """How many rows each of these values has."""
        rows = np.ones(len(values), np.int64)
        computed = values >= 0
        rows[computed] = self.locations.rows[values[computed]]
        arrays = (values < 0) & (values % 2 == 0)
        if arrays.any():
            rows[arrays] = self.given.array_rows[-values[arrays] // 2 - 1]
        return rows

    def _reads_of(self, arena, rows, edges, length=None) -> List[Read]:
        """Cut rows at `edges`; each piece is a slice if its rows are neighbours."""
        jumps = np.zeros(len(rows), np.int64)
        np.cumsum(np.diff(rows) != 1, out=jumps[1:])
        begins, ends = edges[:-1], edges[1:]
        contiguous = (jumps[ends - 1] == jumps[begins]).tolist()
        first_rows = rows[begins].tolist()
        reads, base = [], self.index_count
        for slices, first, begin, end in zip(contiguous, first_rows, begins.tolist(),
                                             ends.tolist()):
            if slices:
                reads.append(Read(arena, False, first, first + end - begin, length))
                self.sliced += end - begin
            else:
                reads.append(Read(arena, True, base + begin, base + end, length))
                self.gathered += end - begin
        if not all(contiguous):
            self._add_indices(rows)
        return reads

    def _add_indices(self, rows) -> int:
        begin = self.index_count
        self.indices.append(rows)
        self.index_count += len(rows)
        return begin

    def _segment_reads(self, arena, arg_rows, starts, counts, edges, parents):
        """The rows of all values, one after the other; `parents` are shared by arguments."""
        ends = np.zeros(len(counts) + 1, np.int64)
        np.cumsum(counts, out=ends[1:])
        if parents is None:
            first = np.repeat(edges[:-1], np.diff(edges))
            parents = self._add_indices(np.repeat(np.arange(len(counts)) - first, counts))
        cuts = ends[edges]
        full = np.flatnonzero(np.diff(cuts))
        reads = [Read(arena, False, 0, 0, 0)] * (len(edges) - 1)
        if len(full):
            found = self._reads_of(arena, arg_rows[expand(starts, counts)],
                                   np.append(cuts[full], cuts[-1]))
            for batch, read, begin in zip(full.tolist(), found, cuts[full].tolist()):
                reads[batch] = read._replace(parents=parents + begin)
        return reads, parents

    def _ragged_reads(self, arena, arg_rows, starts, counts, nodes, edges) -> List[Read]:
        """Padded (rows, K) index matrices, K being the longest of a batch."""
        reads = []
        zero, node_rows = self.arenas[arena].zero, self.rows[nodes]
        values = arg_rows[expand(starts, counts)]
        ends = np.zeros(len(nodes) + 1, np.int64)
        np.cumsum(counts, out=ends[1:])
        longest = np.maximum.reduceat(counts, edges[:-1]).tolist()
        shortest = np.minimum.reduceat(counts, edges[:-1]).tolist()
        for begin, end, most, least in zip(edges[:-1].tolist(), edges[1:].tolist(), longest,
                                           shortest):
            if most == 0:
                reads.append(Read(arena, False, 0, 0, 0))
                continue
            mine = values[ends[begin]:ends[end]]
            if most == least:
                padded = mine.reshape(end - begin, most)
            else:
                padded = np.full((end - begin, most), zero, np.int64)
                padded[np.arange(most) < counts[begin:end, None]] = mine
            padded = _by_row(padded, node_rows[begin:end], zero)
            flat = padded.ravel()
            reads += self._reads_of(arena, flat, np.array([0, len(flat)]), most)
        return reads


def _unpadded(node_type: NodeType) -> bool:
    return node_type.by_segments is not None or native_program(node_type) is not None


def _by_row(padded: np.ndarray, rows: np.ndarray, zero: Optional[int]) -> np.ndarray:
    """Repeat the line of a value of several rows for each of its rows, counting up."""
    if (rows == 1).all():
        return padded
    lines = np.repeat(padded, rows, axis=0)
    lines += np.where(lines == zero, 0, expand(np.zeros(len(rows), np.int64), rows)[:, None])
    return lines
