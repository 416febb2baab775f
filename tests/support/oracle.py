"""Check what a plan does to rows, batch by batch, against the recorded calls."""

import contextlib

import numpy as np

from gluon_edbatch.execute import evaluate
from gluon_edbatch.subgraph.node_type import Kind

ZERO = 'a row of zeros'


@contextlib.contextmanager
def plans_moved_by_hand():
    """Check that every plan made inside the ``with`` moves the values that its calls name. Yield
    the plans."""
    make_plan, plans = evaluate.make_plan, []

    def checked(recording, calls, table, types, capabilities, node_types, schedule):
        plan = make_plan(recording, calls, table, types, capabilities, node_types, schedule)
        _ByHand(recording, calls, [types[kind] for kind in node_types], plan).run(schedule)
        plans.append(plan)
        return plan

    evaluate.make_plan = checked
    try:
        yield plans
    finally:
        evaluate.make_plan = make_plan


class _ByHand:
    """Track which row of which value each row of all arenas holds."""

    def __init__(self, recording, calls, node_types, plan):
        self.recording, self.calls, self.node_types, self.plan = recording, calls, node_types, plan
        self.locations = recording.locations
        self.rows = [{} for _ in plan.arenas]
        for arena, rows in zip(plan.arenas, self.rows):
            if arena.zero is not None:
                rows[arena.zero] = ZERO
            for begin, index in arena.arrays:
                self.write(rows, begin, -2 - 2 * index)
            begin, first, last = arena.scalars or (0, 0, 0)
            for number in range(first, last):
                self.write(rows, begin + number - first, -1 - 2 * number)
            if arena.earlier is not None:
                for value in set(self.earlier_values(arena.key, arena.earlier, False)):
                    self.write(rows, int(self.locations.row[value]), value)
            for imported in arena.imports:
                found = self.earlier_values(arena.key, imported.evaluation, imported.taped)
                for value in set(found):
                    place = imported.rows.tolist().index(self.locations.row[value])
                    self.write(rows, imported.begin + place, value)

    def earlier_values(self, key, evaluation, taped):
        """Return the values that calls read of one earlier evaluation."""
        for node, node_type in enumerate(self.node_types):
            for argument, values in zip(node_type.arguments, self.arguments(node)):
                for value in values if argument.arena is key else ():
                    if (
                        value >= 0
                        and self.locations.evaluation[value] == evaluation
                        and self.locations.taped[value] == taped
                    ):
                        yield value

    def run(self, schedule):
        """Run the plan batch by batch."""
        there = {}  # rows that were there before the first batch of a type
        batches = self.plan.batches
        assert len(batches) == len(schedule)
        assert sum([arena.rows for arena in self.plan.arenas]) >= sum(map(len, self.rows))
        for batch, nodes in zip(batches, schedule):
            assert batch.nodes.tolist() == nodes.tolist()
            assert {self.node_types[node] for node in nodes} == {batch.node_type}
            there.setdefault(batch.node_type, [set(rows) for rows in self.rows])
            self.read(batch)
            for output, write in enumerate(batch.writes):
                at = write.begin
                assert self.plan.arenas[write.arena].earlier is None
                for node in nodes:
                    value = int(self.calls.outputs[node]) + output
                    assert self.locations.row[value] == at
                    at = self.write(self.rows[write.arena], at, value)
                assert at == write.end
        for group in self.plan.groups:
            self.look_at_known(group, there[group.node_type])

    def write(self, rows, begin, value):
        """Write a value to rows that must be free; return where it ends."""
        for row in range(self.rows_of(value)):
            assert begin + row not in rows
            rows[begin + row] = (value, row)
        return begin + self.rows_of(value)

    def rows_of(self, value):
        if value >= 0:
            return int(self.locations.rows[value])
        return 1 if value % 2 else self.recording.arrays[-value // 2 - 1][0].rows

    def arguments(self, node):
        """Return the values of each argument of a call."""
        calls, arguments = self.calls, self.node_types[node].arguments
        values = iter(calls.args[calls.offsets[node] : calls.offsets[node + 1]].tolist())
        lengths = iter(
            calls.lengths[calls.length_offsets[node] : calls.length_offsets[node + 1]].tolist()
        )
        found = [None if each.kind.counted else [next(values)] for each in arguments]
        return [
            [next(values) for _ in range(next(lengths))] if each is None else each for each in found
        ]

    def read(self, batch):
        """Assert that a batch reads, for each argument, the values that its calls name."""
        named = [self.arguments(node) for node in batch.nodes]
        counts = [
            [self.length(batch.node_type, position, call[position]) for call in named]
            for position in range(len(batch.reads))
        ]
        uneven = any(
            [
                len({*counts[position]}) > 1 or 0 in counts[position]
                for position in batch.node_type.ragged
            ]
        )
        for position, read in enumerate(batch.reads):
            numbers = self.numbers(read)
            given = [self.rows[read.arena][row] for row in numbers]
            values = [call[position] for call in named]
            if batch.node_type.arguments[position].kind not in (Kind.RAGGED, Kind.PACKED):
                assert (read.length, read.parents, read.lengths) == (None, None, None)
                assert given == [row for each in values for row in self.row_by_row(each)]
            elif read.parents is not None:
                expected = [self.row_by_row(each) for each in values]
                assert given == [row for each in expected for row in each]
                parents = self.plan.indices[read.parents : read.parents + len(given)].tolist()
                assert parents == [at for at, each in enumerate(expected) for _ in each]
                assert read.length is None
            else:
                self.read_padded(batch, read, given, values, uneven and counts[position])
            if given:
                assert read.gather == (np.diff(numbers) != 1).any()

    def read_padded(self, batch, read, given, values, counts):
        masks = bool(batch.node_type.masked) and read.length > 0  # native operators pad nothing
        longest = max([int(masks), *map(len, values)])
        rows = [
            self.rows_of(each[0]) if each else self.recording.forms[self.calls.forms[node]].rows
            for node, each in zip(batch.nodes, values)
        ]
        assert read.length == longest
        assert given == [
            (each[place], row) if place < len(each) else ZERO
            for each, count in zip(values, rows)
            for row in range(count)
            for place in range(longest)
        ]
        assert (read.lengths is not None) == bool(counts and masks)
        if read.lengths is not None:
            lengths = self.plan.indices[read.lengths : read.lengths + batch.rows]
            assert lengths.tolist() == np.repeat(counts, rows).tolist()

    def row_by_row(self, values):
        return [(value, row) for value in values for row in range(self.rows_of(value))]

    def length(self, node_type, position, values):
        if node_type.arguments[position].kind is Kind.PACKED:
            return self.rows_of(*values)
        return len(values)

    def numbers(self, read):
        if read.gather:
            return self.plan.indices[read.begin : read.end].tolist()
        return list(range(read.begin, read.end))

    def look_at_known(self, group, there):
        known = {
            position
            for position, (argument, reads) in enumerate(
                zip(group.node_type.arguments, group.reads)
            )
            if argument.kind is Kind.ROWS
            and all(
                [
                    row in there[reads.arena]
                    for at in range(group.size)
                    for row in self.numbers(reads.of(at))
                ]
            )
        }
        assert group.known == known
