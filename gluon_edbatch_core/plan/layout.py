# cython: infer_types=True
"""Lay out an evaluation: allocate rows for inputs and results, then find what batches read.

Cython compiles this module where a compiler is present (the types are in ``layout.pxd``). Otherwise
it takes some microseconds a call.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import RecordError
from ..graph import columns
from ..graph.collect import Calls, FormTable
from ..schedule.protocol import Schedule
from .call_type import Kind
from .plan import ArenaPlan, Capabilities, Group, Import, Plan, Read, Write

columns.prepare(np.zeros(3, np.int64))
_RAGGED, _PACKED, _ROWS = Kind.RAGGED, Kind.PACKED, Kind.ROWS
_MOST_ROWS = 1 << 31  # of an arena: indices are 32-bit integers
_NONE, _SEVERAL = -1, -2  # in the place of an evaluation


def make_plan(
    recording: Any,
    calls: Calls,
    table: FormTable,
    types: Sequence[Any],
    capabilities: Sequence[Capabilities],
    node_types: np.ndarray,
    schedule: Schedule,
) -> Plan:
    """Lay out an evaluation, and note the rows of its results in the recording's locations.
    `node_types` are (n,) indices into `types`, each of which has capabilities."""
    planner = _Planner(recording, calls, table, types, node_types)
    planner.place_given()
    values = planner.place_results(schedule.order, schedule.bounds)
    groups = [planner.group(kind, each) for kind, each in enumerate(capabilities)]
    return Plan(
        planner.arenas, groups, values, planner.indices.array(), planner.gathered, planner.sliced
    )


class Indices:
    """An append-only array of 32-bit integers: rows that are read by index."""

    def __init__(self, room: int):
        self.size, self.room = 0, max(room, 64)
        self._buffer = np.empty(self.room, np.int32)
        self.items = self._buffer.data

    def append(self, row):
        """Append one row's number."""
        if self.size == self.room:
            self._buffer = np.concatenate([self._buffer, np.empty_like(self._buffer)])
            self.items = self._buffer.data
            self.room *= 2
        self.items[self.size] = row
        self.size += 1

    def array(self) -> np.ndarray:
        """Return all rows as an array, which is never empty."""
        if self.size == 0:
            self.append(0)
        return self._buffer[: self.size]


class _Planner:
    """Build the plan of one evaluation.

    The columns of all groups are slices of two arrays, one of numbers and one of flags. The columns
    of a group are consecutive: places of its batches, rows, bounds; begins and ends of each output;
    then of each argument.
    """

    def __init__(
        self,
        recording: Any,
        calls: Calls,
        table: FormTable,
        types: Sequence[Any],
        node_types: np.ndarray,
    ):
        locations = recording.locations
        self._recording, self._types = recording, types
        self.arenas: list[ArenaPlan] = []
        self._index: dict[Any, int] = {}  # of arenas
        # type, argument: the arena of an earlier evaluation where its values lie
        self._in_place: dict[tuple[int, int], int] = {}
        self._lies_there = False
        self._of_several_rows = table.of_several_rows
        self._placed: dict[int, tuple[int, int]] = {}  # arrays of the user: row, rows
        self._sources: dict[tuple[int, int, int], int] = {}  # arena, evaluation, taped: number
        self._latest = -1, -1, 0, 0
        self._numbers_at = 0  # row of number 0, were it there
        self.indices, self.gathered, self.sliced = Indices(2 * len(calls.args)), 0, 0
        evaluation, row, rows = locations.evaluation, locations.row, locations.rows
        self._waiting, self._held = calls, (table, node_types, evaluation, row, rows)
        self._kinds, self._form_rows = columns.ints(node_types), columns.words(table.rows)
        self._forms, self._outputs = columns.words(calls.forms), columns.words(calls.outputs)
        self._offsets, self._args = columns.words(calls.offsets), columns.words(calls.args)
        self._length_offsets = columns.words(calls.length_offsets)
        self._lengths, self._evaluation = columns.words(calls.lengths), columns.ints(evaluation)
        self._row, self._rows = columns.words(row), columns.words(rows)
        self._sizes = [0] * len(types)  # of the groups; where their columns begin; and so on
        self._begins: list[Any] = [None] * len(types)
        self._writes: list[Any] = [None] * len(types)
        self._before: list[Any] = [None] * len(types)
        self._results = 0

    # --- rows of inputs --------------------------------------------------------------------------

    def place_given(self) -> None:
        """Allocate rows for zeros, for inputs and for what earlier evaluations computed."""
        for node_type in self._types:
            for argument in node_type.arguments:
                arena = self._arena(argument.arena)
                if argument.kind is _RAGGED and arena.zero is None:
                    arena.zero = arena.allocate(1)
            for spec in node_type.outputs:
                self._arena(spec.arena)
        first, last, arrays, earlier = -1, -1, set(), False
        for place in range(len(self._waiting.args)):
            value = self._args[place]
            if value >= 0:
                earlier = earlier or self._evaluation[value] >= 0
            elif value & 1:
                number = (-1 - value) >> 1
                first = number if first < 0 or number < first else first
                last = max(last, number)
            else:
                arrays.add(value)
        if last >= 0:
            self._place_numbers(first, last + 1)
        for value in sorted(arrays, reverse=True):
            self._place_array(value)
        if earlier:
            self._read_in_place()
            self._place_imports()

    def _arena(self, key: Any) -> ArenaPlan:
        index = self._index.get(key)
        if index is None:
            index = self._index[key] = len(self.arenas)
            self.arenas.append(ArenaPlan(key))
        return self.arenas[index]

    def _place_numbers(self, first: int, last: int) -> None:
        arena = self._arena(self._recording.number_arena)
        begin = arena.allocate(last - first)
        arena.scalars = (begin, first, last)
        self._numbers_at = begin - first

    def _place_array(self, value: int) -> None:
        index = -value // 2 - 1
        spec, _ = self._recording.arrays[index]
        arena = self._arena(spec.arena)
        begin = arena.allocate(spec.rows)
        arena.arrays.append((begin, index))
        self._placed[value] = begin, spec.rows

    def _read_in_place(self) -> None:
        """Read an argument without a copy if one arena of an earlier evaluation has all its values.
        Under autograd, such rows are inputs of this evaluation, and are copied."""
        if any([node_type.is_taped for node_type in self._types]):
            return
        sources = [
            [_NONE] * (len(node_type.arguments) - node_type.of_many) for node_type in self._types
        ]
        for node in range(len(self._waiting)):
            self._note_sources(node, sources[self._kinds[node]])
        placed: dict[tuple, int] = {}
        for kind, node_type in enumerate(self._types):
            for position, place in enumerate(node_type.places):
                argument = node_type.arguments[position]
                if argument.kind is _ROWS and sources[kind][place] >= 0:
                    arena = self._lying(sources[kind][place], argument.arena, placed)
                    if arena >= 0:
                        self._in_place[kind, position] = arena

    def _note_sources(self, node, sources):
        """Note, for each argument with one value a call, the evaluation that computed it if it is
        the same for all calls."""
        begin = self._offsets[node]
        for place in range(len(sources)):
            value, known = self._args[begin + place], sources[place]
            number = self._evaluation[value] if value >= 0 else _NONE
            same = number >= 0 and known in (number, _NONE)
            sources[place] = number if same else _SEVERAL

    def _lying(self, number: int, key: Any, placed: dict[tuple, int]) -> int:
        """Return an earlier evaluation's arena as one of this plan; -1 if it has no memory."""
        rows = self._recording.rows_lying(number, key)
        if rows < 0:
            return -1
        index = placed.get((number, key))
        if index is None:
            index = placed[number, key] = len(self.arenas)
            arena = ArenaPlan(key, earlier=number)
            arena.allocate(rows)
            self.arenas.append(arena)
        return index

    def _place_imports(self) -> None:
        """Copy other values of earlier evaluations, with one gather for each evaluation and arena.
        Values go argument after argument, so that an argument from one source is a slice."""
        arguments, fixed, most = [], [], 0
        for kind, node_type in enumerate(self._types):
            copied = []
            for position, place in enumerate(node_type.places):
                if (kind, position) not in self._in_place:
                    copied.append((self._index[node_type.arguments[position].arena], place))
            arguments.append(copied)
            fixed.append(len(node_type.arguments) - node_type.of_many)
            most = max(most, len(copied))
        locations = self._recording.locations
        self._copies, self._taped = locations.copies().data, locations.taped.view(np.uint8).data
        values, origins = np.empty((2, len(self._waiting.args)), np.int64)
        self._wanted, self._origins, self._found = values.data, origins.data, 0
        for turn in range(most):
            for node in range(len(self._waiting)):
                copied = arguments[self._kinds[node]]
                if turn < len(copied):
                    arena, place = copied[turn]
                    self._fixed = fixed[self._kinds[node]]
                    self._find(node, place)
                    self._want(arena)
        order = np.argsort(origins[: self._found], kind='stable')
        ends = np.bincount(origins[: self._found]).cumsum().tolist()
        for source, origin in sorted(self._sources.items()):
            begin = ends[origin - 1] if origin else 0
            self._place_import(source, values[order[begin : ends[origin]]].data)

    def _want(self, arena):
        """Note the earlier values that a call reads as an argument, each once. `_copies` tells
        whether a value was noted; it may also hold positions of another plan."""
        for at in range(self._start, self._start + self._count):
            value = self._args[at]
            if value < 0 or self._evaluation[value] < 0:
                continue
            before = self._copies[value]
            if not 0 <= before < self._found or self._wanted[before] != value:
                self._copies[value], self._wanted[self._found] = self._found, value
                self._origins[self._found] = self._origin(arena, value)
                self._found += 1

    def _origin(self, arena, value):
        """Return the number of a value's evaluation and arena, often that of the last value."""
        number, taped = self._evaluation[value], self._taped[value]
        last_arena, last_number, last_taped, origin = self._latest
        if arena != last_arena or number != last_number or taped != last_taped:
            origin = self._sources.setdefault((arena, number, taped), len(self._sources))
            self._latest = arena, number, taped, origin
        return origin

    def _place_import(self, source, values):
        """Allocate rows for copies of the values of one evaluation and arena."""
        arena, evaluation, taped = source
        count = 0
        for place in range(len(values)):
            count += self._rows[values[place]]
        begin, found = self.arenas[arena].allocate(count), np.empty(count, np.int64)
        rows, at = found.data, 0
        for place in range(len(values)):
            value = values[place]
            self._copies[value], first = begin + at, self._row[value]
            for row in range(first, first + self._rows[value]):
                rows[at] = row
                at += 1
        self.arenas[arena].imports.append(Import(evaluation, found, begin, bool(taped)))

    # --- rows of outputs -------------------------------------------------------------------------

    def place_results(self, order: np.ndarray, bounds: np.ndarray) -> np.ndarray:
        """Group batches by type, and allocate the rows that they write, in their order; return the
        values that they compute."""
        nodes, cuts = order.data, bounds.data
        self._make_columns(nodes, cuts)
        values = np.empty(self._results, np.int64)
        tops = np.array([arena.rows for arena in self.arenas], np.int64)
        self._values, self._tops = columns.words(values), columns.words(tops)
        self._results = 0
        done = [0] * len(self._types)
        for batch in range(len(cuts) - 1):
            kind = self._kinds[nodes[cuts[batch]]]
            if not done[kind]:
                self._before[kind] = tops.tolist()
            self._place_batch(kind, done[kind], batch, nodes[cuts[batch] : cuts[batch + 1]])
            done[kind] += 1
        for arena, top in zip(self.arenas, tops.tolist()):
            if top >= _MOST_ROWS:
                raise RecordError(f'{top} rows of {arena.key} are too many: read values earlier')
            arena.rows = top
        return values

    def _make_columns(self, nodes, cuts):
        """Allocate all columns, and note where those of each group begin."""
        counts = [0] * len(self._types)
        for batch in range(len(cuts) - 1):
            kind = self._kinds[nodes[cuts[batch]]]
            self._sizes[kind] += 1
            counts[kind] += cuts[batch + 1] - cuts[batch]
        words = flags = calls = 0
        for kind, node_type in enumerate(self._types):
            self._begins[kind] = words, flags, calls
            reads, ragged = len(node_type.arguments), len(node_type.ragged)
            writes = [self._index[spec.arena] for spec in node_type.outputs]
            self._writes[kind] = writes
            words += self._sizes[kind] * (3 + 2 * (len(writes) + reads + ragged)) + 1
            flags += self._sizes[kind] * (reads + ragged)
            calls += counts[kind]
            self._results += counts[kind] * len(writes)
        self._all_words, self._all_flags = np.zeros(words, np.int64), np.zeros(flags, bool)
        self._all_calls = np.empty(calls, np.int32)
        self._words, self._flags = columns.words(self._all_words), columns.flags(self._all_flags)
        self._calls = columns.ints(self._all_calls)

    def _place_batch(self, kind, own, batch, nodes):
        """Note one batch of a group, and allocate the rows that it writes."""
        size, (word, _, call) = self._sizes[kind], self._begins[kind]
        bounds = word + 2 * size
        first = call + self._words[bounds + own]
        self._words[word + own] = batch
        for position in range(len(nodes)):
            self._calls[first + position] = nodes[position]
            self._words[word + size + own] += self._form_rows[self._forms[nodes[position]]]
        self._words[bounds + own + 1] = self._words[bounds + own] + len(nodes)
        column = bounds + size + 1 + own
        for output, arena in enumerate(self._writes[kind]):
            self._words[column] = top = self._tops[arena]
            for position in range(len(nodes)):
                value = self._outputs[nodes[position]] + output
                self._values[self._results] = value
                self._results += 1
                self._row[value] = top
                top += self._rows[value]
            self._words[column + size] = self._tops[arena] = top
            column += 2 * size

    # --- reads -----------------------------------------------------------------------------------

    def group(self, kind: int, capabilities: Capabilities) -> Group:
        """Return all batches of a type as a group."""
        node_type = self._node_type = self._types[kind]
        size = self._sizes[kind]
        word, self._flag, call = self._begins[kind]
        self._size, self._fixed = size, len(node_type.arguments) - node_type.of_many
        self._bounds, self._call = word + 2 * size, call
        self._word = self._bounds + size + 1
        writes = [self._group_writes(arena) for arena in self._writes[kind]]
        self._parents, self._last, self._masked = -1, -1, node_type.masked is not None
        pads = capabilities.pads or node_type.alone or node_type.serial in self._of_several_rows
        reads, known = [], []
        for position, place in enumerate(node_type.places):
            argument = node_type.arguments[position]
            arena = self._in_place.get((kind, position), self._index[argument.arena])
            self._lies_there = (kind, position) in self._in_place
            if argument.kind is _PACKED or (argument.kind is _RAGGED and not pads):
                reads.append(self._segments(arena, place, argument.kind is _PACKED))
            elif argument.kind is _RAGGED:
                reads.append(self._padded(arena, place))
            else:
                reads.append(self._plain(arena, place))
                if argument.kind is _ROWS and self._last < self._before[kind][arena]:
                    known.append(position)
        if self._masked:
            reads = self._with_lengths(reads)
        return Group(
            node_type,
            self._all_words[word : word + size],
            self._all_words[word + size : self._bounds],
            self._all_calls[call : call + self._words[self._bounds + size]],
            self._all_words[self._bounds : self._bounds + size + 1],
            tuple(reads),
            tuple(writes),
            frozenset(known),
        )

    def _column(self) -> np.ndarray:
        """Return the next column of numbers of the group."""
        self._word += self._size
        return self._all_words[self._word - self._size : self._word]

    def _flag_column(self) -> np.ndarray:
        self._flag += self._size
        return self._all_flags[self._flag - self._size : self._flag]

    def _group_writes(self, arena: int) -> Write:
        return Write(arena, self._column(), self._column())

    def _plain(self, arena: int, place: int) -> Read:
        """Return how batches read an argument's values one after the other."""
        word, flag, self._last = self._word, self._flag, -1
        for batch in range(self._size):
            first = self.indices.size
            self._append_values(batch, place)
            self._close(first, word + batch, flag + batch)
        return Read(arena, self._flag_column(), self._column(), self._column())

    def _segments(self, arena: int, place: int, packed: bool) -> Read:
        """Return how batches read a ragged argument without padding, with the row of each value.
        Arguments of one length share these rows."""
        word, flag, size = self._word, self._flag, self._size
        parents = word + 3 * size
        for batch in range(size):
            first = self.indices.size
            self._flags[flag + size + batch] = self._measure(batch, place, packed)
            self._append_values(batch, place)
            self._words[parents + batch] = -1
            if self.indices.size > first:
                self._close(first, word + batch, flag + batch)
                self._words[word + 2 * size + batch] = -1
                if self._parents >= 0:
                    self._words[parents + batch] = self._words[self._parents + batch]
                else:
                    self._words[parents + batch] = self.indices.size
                    self._append_parents(batch, place, packed)
        if self._parents < 0 and self._node_type.has_one_length:
            self._parents = parents
        gather, uneven = self._flag_column(), self._flag_column()
        begin, end, length = self._column(), self._column(), self._column()
        return Read(arena, gather, begin, end, length, self._column(), uneven=uneven)

    def _padded(self, arena: int, place: int) -> Read:
        """Return how batches read a ragged argument padded to (rows, K) values."""
        word, flag, size, zero = self._word, self._flag, self._size, self.arenas[arena].zero
        for batch in range(size):
            first = self.indices.size
            self._flags[flag + size + batch] = self._measure(batch, place, False)
            self._words[word + 2 * size + batch] = self._most
            if self._most:
                self._append_padded(batch, place, zero)
                self._close(first, word + batch, flag + batch)
        gather, uneven = self._flag_column(), self._flag_column()
        return Read(arena, gather, self._column(), self._column(), self._column(), uneven=uneven)

    def _with_lengths(self, reads: list[Read]) -> list[Read]:
        """Return reads with the lengths of padded arguments, for batches that have padding."""
        uneven = np.any([read.uneven for read in reads if read.uneven is not None], axis=0)
        for position, place in enumerate(self._node_type.places):
            if reads[position].uneven is not None and reads[position].parents is None:
                word = self._word
                for batch in range(self._size):
                    self._words[word + batch] = -1
                    if uneven[batch]:
                        self._words[word + batch] = self.indices.size
                        self._append_lengths(batch, place)
                reads[position] = reads[position]._replace(lengths=self._column())
        return reads

    def _find(self, node, place):
        """Set where an argument of a call begins, and how many values it has."""
        if place >= 0:
            self._start, self._count = self._offsets[node] + place, 1
            return
        self._start, lengths = self._offsets[node] + self._fixed, self._length_offsets[node]
        for earlier in range(-1 - place):
            self._start += self._lengths[lengths + earlier]
        self._count = self._lengths[lengths - 1 - place]

    def _look_up(self, value):
        """Set the first row of a value, and its number of rows."""
        if value >= 0 and (self._lies_there or self._evaluation[value] < 0):
            self._top, self._span = self._row[value], self._rows[value]
        elif value < 0 and value & 1:
            self._top, self._span = self._numbers_at + ((-1 - value) >> 1), 1
        elif value >= 0:
            self._top, self._span = self._copies[value], self._rows[value]
        else:
            self._top, self._span = self._placed[value]

    def _measure(self, batch, place, packed):
        """Return whether ragged arguments of a batch's calls differ in length, or in that of their
        padding; set the longest. Masked padding has at least one row."""
        self._most = least = -1
        for at in range(self._words[self._bounds + batch], self._words[self._bounds + batch + 1]):
            length = self._length(at, place, packed)
            self._most = max(self._most, length)
            least = length if least < 0 or length < least else least
        self._most = max(self._most, int(self._masked))
        return least != self._most

    def _length(self, at, place, packed):
        self._find(self._calls[self._call + at], place)
        if packed:
            self._look_up(self._args[self._start])
            return self._span
        return self._count

    def _append_values(self, batch, argument):
        """Append the rows of an argument of a batch's calls."""
        begin, end = self._words[self._bounds + batch], self._words[self._bounds + batch + 1]
        if argument >= 0:  # one value a call
            for at in range(begin, end):
                node = self._calls[self._call + at]
                self._append_rows(self._args[self._offsets[node] + argument])
        else:
            for at in range(begin, end):
                self._find(self._calls[self._call + at], argument)
                for place in range(self._start, self._start + self._count):
                    self._append_rows(self._args[place])

    def _append_rows(self, value):
        """Append the rows of a value; most values have one."""
        self._look_up(value)
        indices, row = self.indices, self._top
        if self._span == 1 and indices.size < indices.room:
            indices.items[indices.size] = row
            indices.size += 1
        else:
            for place in range(row, row + self._span):
                indices.append(place)

    def _append_padded(self, batch, place, zero):
        """Append rows of a padded argument: for each row of each call, equally many values."""
        for at in range(self._words[self._bounds + batch], self._words[self._bounds + batch + 1]):
            node = self._calls[self._call + at]
            self._find(node, place)
            rows = self._form_rows[self._forms[node]]
            if self._count:  # other arguments of a call that runs alone may have other rows
                self._look_up(self._args[self._start])
                rows = self._span
            for row in range(rows):
                for value in range(self._most):
                    if value < self._count:
                        self._look_up(self._args[self._start + value])
                    self.indices.append(self._top + row if value < self._count else zero)

    def _append_parents(self, batch, place, packed):
        begin = self._words[self._bounds + batch]
        for at in range(begin, self._words[self._bounds + batch + 1]):
            for _ in range(self._length(at, place, packed)):
                self.indices.append(at - begin)

    def _append_lengths(self, batch, place):
        for at in range(self._words[self._bounds + batch], self._words[self._bounds + batch + 1]):
            for _ in range(self._form_rows[self._forms[self._calls[self._call + at]]]):
                self.indices.append(self._length(at, place, False))

    def _close(self, first, word, flag):
        """Note what a batch reads: the indices from `first` on, or the slice that they form."""
        items, count, neighbours = self.indices.items, self.indices.size - first, True
        for place in range(first, self.indices.size):
            neighbours = neighbours and (place == first or items[place] == items[place - 1] + 1)
            self._last = max(self._last, items[place])
        self._flags[flag], self._words[word] = not neighbours, first
        if neighbours:
            self._words[word], self.indices.size = items[first], first
            self.sliced += count
        else:
            self.gathered += count
        self._words[word + self._size] = self._words[word] + count
