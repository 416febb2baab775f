"""Laying out an evaluation: rows for what is given and for what batches write, then who reads what.

The work is a few NumPy calls for each type, argument and output, whatever the number of batches:
methods of arrays, as functions such as ``np.diff`` take several times as long to call.
"""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from ..graph.collect import Calls, FormTable, expand
from ..record.stores import Locations
from ..schedule.protocol import Schedule
from ..subgraph.node_type import Argument, Kind, NodeType
from ..subgraph.spec import ArenaKey
from .plan import ArenaPlan, Group, Import, Plan, Reads, Traits, Writes


class Given(NamedTuple):
    """The inputs that a recording holds: their arenas and rows."""

    scalar_arena: ArenaKey
    array_arenas: Sequence[tuple]
    array_rows: np.ndarray


def make_plan(
    calls: Calls,
    table: FormTable,
    types: Sequence[NodeType],
    schedule: Schedule,
    node_types: np.ndarray,
    given: Given,
    locations: Locations,
    traits: Sequence[Traits],
) -> Plan:
    """Lay out an evaluation.

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
        Where values of earlier evaluations are.
    traits : sequence of Traits
        Of the backend of each type.
    """
    return _Planner(calls, table, types, schedule, node_types, given, locations, traits).plan()


class _Planner:
    def __init__(self, calls, table, types, schedule, node_types, given, locations, traits):
        self.calls, self.table, self.types = calls, table, types
        self.schedule, self.node_types = schedule, node_types
        self.given, self.locations = given, locations
        self.traits = traits
        self.arenas: List[ArenaPlan] = []
        self.arena_index: Dict[ArenaKey, int] = {}
        self.rows = table.rows[calls.forms]
        self.of_several_rows = set(table.types[table.rows != 1].tolist())  # serials
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
        groups, values, rows = self._place_outputs()
        inner = arg_rows < 0
        first = int(self.calls.outputs[0])
        by_value = np.empty(int(values.max()) + 1 - first, np.int64)
        by_value[values - first] = rows
        arg_rows[inner] = by_value[self.calls.args[inner] - first]
        groups = [self._with_reads(*each, arg_rows) for each in zip(groups, self.traits)]
        indices = np.concatenate(self.indices + [[0]]).astype(np.int32)  # never empty
        return Plan(self.arenas, groups, values, rows, indices, self.gathered, self.sliced)

    def _arena(self, key: ArenaKey) -> int:
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
        outside = (args < 0).nonzero()[0]
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
        computed = (args >= 0).nonzero()[0]
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
        values, first, inverse = np.unique(
            self.calls.args[positions], return_index=True, return_inverse=True
        )
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
            for argument, (starts, counts) in zip(
                node_type.arguments, self._argument_spans(node_type, nodes)
            ):
                arenas[expand(starts, counts)] = self._arena(argument.arena)
        return arenas

    def _argument_spans(self, node_type, nodes):
        """For each argument, where its values start in ``calls.args`` and how many there are."""
        calls = self.calls
        spans: List[Any] = [None] * len(node_type.arguments)
        start = calls.offsets[nodes]
        for position, argument in enumerate(node_type.arguments):
            if not argument.kind.counted:
                spans[position] = (start, np.ones(len(nodes), np.int64))
                start = start + 1
        length = calls.length_offsets[nodes]
        for position, argument in enumerate(node_type.arguments):
            if argument.kind.counted:
                counts = calls.lengths[length]
                spans[position] = (start, counts)
                start, length = start + counts, length + 1
        return spans

    # --- rows of outputs -------------------------------------------------------------------------

    def _place_outputs(self) -> Tuple[List[Group], np.ndarray, np.ndarray]:
        """Batches by type, with rows for what they write; what they compute, and its first rows."""
        order, bounds = self.schedule.order, self.schedule.bounds
        ends = _bounds(self.rows[order])
        totals = ends[bounds[1:]] - ends[bounds[:-1]]
        sizes = _sizes(bounds)
        within = ends[:-1] - ends[bounds[:-1]].repeat(sizes)
        ordered_types = self.node_types[order]
        batch_types = ordered_types[bounds[:-1]]
        groups, members = [], []
        for index, node_type in enumerate(self.types):
            numbers = (batch_types == index).nonzero()[0]
            members.append((ordered_types == index).nonzero()[0])
            groups.append(
                Group(
                    node_type,
                    numbers,
                    totals[numbers],
                    order[members[-1]],
                    _bounds(sizes[numbers]),
                    (),
                    (),
                )
            )
        groups = self._place_writes(groups)
        values, rows = [], []
        for group, own in zip(groups, members):
            outputs = self.calls.outputs[group.nodes]
            for position, (write, factor) in enumerate(zip(group.writes, group.node_type.factors)):
                values.append(outputs + position)
                before = within[own] * factor
                if group.node_type.packed:
                    ends = _bounds(self._lengths(group, position))
                    before = ends[:-1] - ends[group.bounds[:-1]].repeat(_sizes(group.bounds))
                rows.append(write.begin.repeat(_sizes(group.bounds)) + before)
        return groups, np.concatenate(values), np.concatenate(rows)

    def _place_writes(self, groups: List[Group]) -> List[Group]:
        """Rows of each arena for all batches that write there, in the order in which they run."""
        asked: Dict[int, List[Tuple[int, int, np.ndarray]]] = {}  # arena: group, output, rows
        for index, group in enumerate(groups):
            node_type = group.node_type
            for position, (spec, factor) in enumerate(zip(node_type.outputs, node_type.factors)):
                rows = np.full(group.size, spec.rows) if node_type.alone else group.rows * factor
                if node_type.packed:
                    rows = np.add.reduceat(self._lengths(group, position), group.bounds[:-1])
                asked.setdefault(self.arena_index[spec.arena], []).append((index, position, rows))
        writes: List[List[Any]] = [[None] * len(group.node_type.outputs) for group in groups]
        for arena, parts in asked.items():
            rows = np.concatenate([rows for _, _, rows in parts])
            # Stable: of one batch, earlier outputs come first.
            order = np.concatenate([groups[index].numbers for index, _, _ in parts]).argsort(
                kind='stable'
            )
            ends = rows[order].cumsum()
            begins = np.empty_like(rows)
            begins[order] = self.arenas[arena].allocate(int(ends[-1])) + ends - rows[order]
            first = 0
            for index, position, mine in parts:
                begin = begins[first : first + len(mine)]
                writes[index][position] = Writes(arena, begin, begin + mine)
                first += len(mine)
        return [group._replace(writes=tuple(mine)) for group, mine in zip(groups, writes)]

    def _lengths(self, group: Group, position: int) -> np.ndarray:
        """Rows of an output of each call."""
        return self.locations.rows[self.calls.outputs[group.nodes] + position]

    # --- reads -----------------------------------------------------------------------------------

    def _with_reads(self, group: Group, traits: Traits, arg_rows: np.ndarray) -> Group:
        node_type, nodes, parents = group.node_type, group.nodes, None
        reads = []
        for argument, (starts, counts) in zip(
            node_type.arguments, self._argument_spans(node_type, nodes)
        ):
            arena = self.arena_index[argument.arena]
            if argument.kind is Kind.PACKED:
                lengths = self._value_rows(self.calls.args[starts])
                rows = expand(arg_rows[starts], lengths)
                read, parents = self._segment_reads(arena, rows, lengths, group.bounds, parents)
                reads.append(read)
                continue
            if argument.kind is not Kind.RAGGED:
                reads.append(self._row_reads(arena, arg_rows, argument, starts, counts, group))
                continue
            values = arg_rows[expand(starts, counts)]
            if node_type.masked:
                values, counts = _at_least_one(values, counts, self.arenas[arena].zero)
            if not traits.pads and self._of_one_row(node_type):
                read, parents = self._segment_reads(arena, values, counts, group.bounds, parents)
            else:
                read = self._ragged_reads(arena, values, counts, group)
            reads.append(read)
        if node_type.masked:
            reads = _masked_where_uneven(reads)
        return group._replace(reads=tuple(reads))

    def _row_reads(
        self, arena, arg_rows, argument: Argument, starts, counts, group: Group
    ) -> Reads:
        """Slices or gathers for an argument of one type, batch by batch."""
        if argument.kind is Kind.FLAT:
            entries = expand(starts, counts)
            rows, spans = arg_rows[entries], self._value_rows(self.calls.args[entries])
            rows = expand(rows, spans)
            per_node = np.add.reduceat(spans, np.cumsum(counts) - counts)
        elif argument.rows == 1 and self._of_one_row(group.node_type):
            return self._reads_of(arena, arg_rows[starts], group.bounds)
        else:
            per_node = self._argument_rows(group, starts, argument.rows)
            rows = expand(arg_rows[starts], per_node)
        return self._reads_of(arena, rows, _bounds(per_node)[group.bounds])

    def _of_one_row(self, node_type: NodeType) -> bool:
        """Whether all calls of a type have one row."""
        return not node_type.alone and node_type.serial not in self.of_several_rows

    def _argument_rows(self, group: Group, starts, times: int):
        """Rows of one argument of each node: `times` those of the call, unless it runs alone."""
        if group.node_type.alone:
            return self._value_rows(self.calls.args[starts])
        return self.rows[group.nodes] * times

    def _value_rows(self, values) -> np.ndarray:
        """How many rows each of these values has."""
        rows = np.ones(len(values), np.int64)
        computed = values >= 0
        rows[computed] = self.locations.rows[values[computed]]
        arrays = (values < 0) & (values % 2 == 0)
        if arrays.any():
            rows[arrays] = self.given.array_rows[-values[arrays] // 2 - 1]
        return rows

    def _reads_of(self, arena, rows, edges) -> Reads:
        """Cut rows at `edges`; each piece is a slice if its rows are neighbours."""
        jumps = np.zeros(len(rows), np.int64)
        (_sizes(rows) != 1).cumsum(out=jumps[1:])
        begins, ends = edges[:-1], edges[1:]
        gather = jumps[ends - 1] != jumps[begins]
        sizes = ends - begins
        first = np.where(gather, begins + self.index_count, rows[begins])
        gathered = int(sizes[gather].sum())
        self.gathered += gathered
        self.sliced += int(sizes.sum()) - gathered
        if gathered:
            self._add_indices(rows)
        return Reads(arena, gather, first, first + sizes)

    def _add_indices(self, rows) -> int:
        begin = self.index_count
        self.indices.append(rows)
        self.index_count += len(rows)
        return begin

    def _segment_reads(self, arena, values, counts, edges, parents):
        """The rows of all values, one after the other; `parents` are shared by arguments."""
        ends = _bounds(counts)
        if parents is None:
            first = edges[:-1].repeat(_sizes(edges))
            parents = self._add_indices((np.arange(len(counts)) - first).repeat(counts))
        cuts = ends[edges]
        full = _sizes(cuts).nonzero()[0]
        begin, end, length = np.zeros((3, len(edges) - 1), np.int64)
        gather, parent = np.zeros(len(edges) - 1, bool), np.full(len(edges) - 1, -1)
        if len(full):
            found = self._reads_of(arena, values, np.append(cuts[full], cuts[-1]))
            gather[full], begin[full], end[full] = found[1:4]
            length[full], parent[full] = -1, parents + cuts[full]
        return Reads(arena, gather, begin, end, length, parent, _uneven(counts, edges)), parents

    def _ragged_reads(self, arena, values, counts, group: Group) -> Reads:
        """Padded (rows, K) index matrices, K being the longest of a batch."""
        zero, node_rows, edges = self.arenas[arena].zero, self.rows[group.nodes], group.bounds
        ends = _bounds(counts)
        longest = np.maximum.reduceat(counts, edges[:-1])
        gather = np.zeros(group.size, bool)
        first, last = np.zeros((2, group.size), np.int64)
        for batch, (begin, end) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist())):
            most = int(longest[batch])
            if most == 0:
                continue
            padded = np.full((end - begin, most), zero, np.int64)
            padded[np.arange(most) < counts[begin:end, None]] = values[ends[begin] : ends[end]]
            flat = _by_row(padded, node_rows[begin:end], zero).ravel()
            read = self._reads_of(arena, flat, np.array([0, len(flat)]))
            gather[batch], first[batch], last[batch] = read[1][0], read[2][0], read[3][0]
        lengths = None
        if group.node_type.masked:
            lengths = (
                self._add_indices(np.repeat(counts, node_rows)) + _bounds(node_rows)[edges[:-1]]
            )
        return Reads(arena, gather, first, last, longest, None, _uneven(counts, edges), lengths)


def _bounds(sizes: np.ndarray) -> np.ndarray:
    """Where pieces of these sizes begin if one follows the other, and where the last ends."""
    bounds = np.zeros(len(sizes) + 1, np.int64)
    sizes.cumsum(out=bounds[1:])
    return bounds


def _sizes(bounds: np.ndarray) -> np.ndarray:
    """How far each is from the next."""
    return bounds[1:] - bounds[:-1]


def _at_least_one(
    values: np.ndarray, counts: np.ndarray, zero: Any
) -> Tuple[np.ndarray, np.ndarray]:
    """Rows of values, and how many each call has: the row of zeros where it has none."""
    none = counts == 0
    if not none.any():
        return values, counts
    return np.insert(values, np.cumsum(counts)[none], zero), counts + none


def _masked_where_uneven(reads: List[Reads]) -> List[Reads]:
    """Without lengths in batches that have no padding."""
    uneven = np.any([read.uneven for read in reads if read.uneven is not None], axis=0)
    return [
        read if read.lengths is None else read._replace(lengths=np.where(uneven, read.lengths, -1))
        for read in reads
    ]


def _uneven(counts: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Whether the counts of each batch differ."""
    return np.maximum.reduceat(counts, edges[:-1]) != np.minimum.reduceat(counts, edges[:-1])


def _by_row(padded: np.ndarray, rows: np.ndarray, zero: Optional[int]) -> np.ndarray:
    """Repeat the line of a value of several rows for each of its rows, counting up."""
    if (rows == 1).all():
        return padded
    lines = np.repeat(padded, rows, axis=0)
    lines += np.where(lines == zero, 0, expand(np.zeros(len(rows), np.int64), rows)[:, None])
    return lines
