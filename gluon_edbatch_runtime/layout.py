"""Lay out the rows of an evaluation, batch by batch: each batch writes a slice, and reads a slice
if rows are consecutive, else a gather."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import numpy as np

from gluon_edbatch_core.bundle.numpy_steps import Segments
from gluon_edbatch_core.errors import RecordError
from gluon_edbatch_core.graph.collect import Calls, FormTable
from gluon_edbatch_core.graph.graph import expand, stable_argsort

from .forms import CellType

Writes = list[tuple[tuple, list[tuple[int, int]]]]


class Read(NamedTuple):
    """How the batches of a type read an argument. `rows` are rows of an arena, batch after batch;
    `bounds` tells where those of each batch begin and the last end. `slices` tells for which
    batches the rows are consecutive."""

    arena: tuple
    rows: np.ndarray
    bounds: list[int]
    slices: list[bool]


class Group(NamedTuple):
    """The batches of one type: the arena of each output, and each batch's rows there; `segments` of
    ragged arguments; and products of arguments that are known (see `projections`)."""

    type: CellType
    reads: list[Read]
    writes: Writes
    segments: Optional[list[Segments]]
    known: dict[int, Any]


def by_type(
    order: np.ndarray, bounds: np.ndarray, kinds: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the order of calls and the bounds of batches, each split by the types of its calls."""
    batches = np.arange(len(bounds) - 1).repeat(np.diff(bounds))
    keys = batches * (int(kinds.max()) + 1) + kinds[order]
    places = np.argsort(keys, kind='stable')
    ends = np.flatnonzero(np.diff(keys[places])) + 1
    return order[places], np.concatenate([[0], ends, [len(order)]])


def by_length(
    calls: Calls, order: np.ndarray, bounds: np.ndarray, kinds: np.ndarray, types: Sequence[Any]
) -> np.ndarray:
    """Return the order of calls, with those of ragged types by descending length within a batch;
    `kinds` has the index of each call's type among `types`."""
    ragged = np.array([kind.is_ragged for kind in types])[kinds]
    if not ragged.any():
        return order
    lengths = np.zeros(len(calls), np.int64)
    lengths[ragged] = calls.lengths[calls.length_offsets[:-1][ragged]]
    most = int(lengths.max())
    batches = np.arange(len(bounds) - 1).repeat(np.diff(bounds))
    keys = batches * (most + 1) + (most - lengths[order])
    return order[stable_argsort(keys, (len(bounds) - 1) * (most + 1))]


class Layout:
    """Allocate rows for what batches write, and find those that they read. Arenas, by row shape and
    dtype, get the number of additional rows."""

    def __init__(
        self,
        calls: Calls,
        table: FormTable,
        order: np.ndarray,
        bounds: np.ndarray,
        kinds: np.ndarray,
        types: Sequence[CellType],
        arenas: Any,
    ):
        self._calls, self._types, self._arenas = calls, types, arenas
        self.kinds = kinds[order[bounds[:-1]]].tolist()
        counts = np.diff(bounds)
        of_kind = kinds[order]
        self._nodes = [order[of_kind == kind] for kind in range(len(types))]
        self._rows = [table.rows[calls.forms[nodes]] for nodes in self._nodes]
        by_batch = np.array(self.kinds)
        self._sizes = [counts[by_batch == kind] for kind in range(len(types))]
        self._bounds = [np.concatenate([[0], sizes.cumsum()]) for sizes in self._sizes]

    def write(self, row_of: np.ndarray) -> list[Writes]:
        """Allocate rows for all results, in the order of the batches; note them in `row_of`."""
        totals = [
            np.add.reduceat(rows, cuts[:-1]).tolist() if len(rows) else []
            for rows, cuts in zip(self._rows, self._bounds)
        ]
        writes: list[Writes] = [
            [(output.arena, []) for output in kind.outputs] for kind in self._types
        ]
        place = [0] * len(self._types)
        for kind in self.kinds:
            total = totals[kind][place[kind]]
            place[kind] += 1
            for output, (arena, found) in zip(self._types[kind].outputs, writes[kind]):
                begin = self._arenas[arena].add(total * output.factor)
                found.append((begin, begin + total * output.factor))
        for kind, nodes in enumerate(self._nodes):
            first = self._calls.outputs[nodes]
            for number, (_, found) in enumerate(writes[kind]):
                row_of[first + number] = self._rows_of_calls(kind, number, found)
        return writes

    def _rows_of_calls(self, kind: int, number: int, found: list[tuple[int, int]]) -> np.ndarray:
        """Return the first row of each call's result."""
        rows = self._rows[kind] * self._types[kind].outputs[number].factor
        before = rows.cumsum() - rows
        cuts = self._bounds[kind][:-1]
        begins = np.array([begin for begin, _ in found]) - before[cuts]
        return before + begins.repeat(self._sizes[kind])

    def plain_values(self, place: int, position: int) -> Optional[np.ndarray]:
        """Return what a type's calls read as an argument, batch by batch, if each reads one row."""
        arguments, nodes = self._types[place].arguments, self._nodes[place]
        given = arguments[position]
        if given.kind != 'rows' or given.factor != 1 or (self._rows[place] != 1).any():
            return None
        before = sum(argument.kind == 'rows' for argument in arguments[:position])
        return self._calls.args[self._calls.offsets[nodes] + before]

    def groups(self, row_of: np.ndarray, rows: np.ndarray) -> list[Group]:
        """Return the batches by type, given the first row and the number of rows of each value;
        those of the user count from the end."""
        writes = self.write(row_of)
        return [
            self._group(place, kind, row_of, rows, writes[place])
            for place, kind in enumerate(self._types)
        ]

    def _group(
        self, place: int, kind: CellType, row_of: np.ndarray, rows: np.ndarray, writes: Writes
    ) -> Group:
        """Return the batches of a type, with where they read. Arguments of one value come first
        among those of a call, then the values of the others."""
        calls, nodes, cuts = self._calls, self._nodes[place], self._bounds[place]
        begins, segments = calls.offsets[nodes], None
        reads: list[Read] = []
        fixed = len(kind.arguments) - kind.of_many
        skipped, counted = 0, np.zeros(len(nodes), np.int64)
        number = 0
        known: Optional[np.ndarray] = None
        for argument in kind.arguments:
            arena = argument.arena
            if argument.kind == 'rows':
                values = calls.args[begins + skipped]
                skipped += 1
                counts = self._rows[place] * argument.factor
                reads.append(_of_rows(arena, row_of[values], counts, cuts))
                continue
            lengths = calls.lengths[calls.length_offsets[nodes] + number]
            number += 1
            values = calls.args[expand(begins + fixed + counted, lengths)]
            counted = counted + lengths
            if argument.kind == 'flat':
                ends = np.concatenate([[0], lengths.cumsum()])
                reads.append(_of_rows(arena, row_of[values], rows[values], ends[cuts]))
            else:
                if known is not None and not np.array_equal(known, lengths):
                    raise RecordError(
                        f'{kind} got ragged arguments of different lengths in one call'
                    )
                known = lengths
                order, bounds, segments = self._by_rank(place, lengths)
                reads.append(_read(arena, row_of[values[order]], bounds))
        return Group(kind, reads, writes, segments, {})

    def _by_rank(
        self, place: int, lengths: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, list[Segments]]:
        """Return the order of values, call after call, by rank within each batch; where the values
        of a batch begin; and how many there are of each rank."""
        sizes, cuts = self._sizes[place], self._bounds[place]
        batches = np.arange(len(sizes)).repeat(sizes)
        most = int(lengths.max()) if len(lengths) else 0
        before = lengths.cumsum() - lengths
        ranks = np.arange(int(lengths.sum())) - before.repeat(lengths)
        keys = batches.repeat(lengths) * max(most, 1) + ranks
        counts = np.bincount(keys, minlength=len(sizes) * max(most, 1)).reshape(len(sizes), -1)
        order = stable_argsort(keys, len(sizes) * max(most, 1))
        bounds = np.concatenate([[0], counts.sum(axis=1).cumsum()])
        segments = [
            Segments(size, [count for count in of_batch if count])
            for size, of_batch in zip(np.diff(cuts).tolist(), counts.tolist())
        ]
        return order, bounds, segments


def _of_rows(arena: tuple, first: np.ndarray, counts: np.ndarray, cuts: np.ndarray) -> Read:
    """Return the read of all rows of values, given the first row and the number of rows of each;
    `cuts` tells where the values of each batch begin and the last end."""
    if len(counts) and counts.max() == 1 == counts.min():
        return _read(arena, first, cuts)
    ends = np.concatenate([[0], counts.cumsum()])
    return _read(arena, expand(first, counts), ends[cuts])


def _read(arena: tuple, rows: np.ndarray, bounds: np.ndarray) -> Read:
    """Return a read of these rows; note the batches whose rows are consecutive."""
    breaks = np.zeros(len(rows) + 1, np.int64)
    if len(rows) > 1:
        (rows[1:] != rows[:-1] + 1).cumsum(out=breaks[1:-1])  # up to a row, and from it on
        breaks[-1] = breaks[-2]
    last = np.maximum(bounds[1:] - 1, bounds[:-1])
    is_slice = breaks[np.minimum(last, len(rows))] == breaks[bounds[:-1]]
    return Read(arena, rows, bounds.tolist(), is_slice.tolist())
