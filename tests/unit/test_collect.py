"""From recorded lists to arrays: against what they mean, call by call."""

import sys
import threading
from array import array
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gluon_edbatch_core.graph.collect import Calls, FormTable, Pending, ancestors, form_table
from gluon_edbatch_core.recorded_columns import Ints, Locations

FORMS = FormTable(
    *map(
        np.array,
        (
            [3, 5, 5, 9],  # types
            [1, 1, 4, 2],  # rows
            [1, 2, 2, 3],  # outputs
            [0, 1, 0, 2],  # variable
            [0, 1, 0, 1],  # taped
            [0, 1, 3, 5],  # first_outputs
            [1, 1, 1, 4, 8, 2, 2, 6],  # output_rows
        ),
    ),
    of_several_rows=frozenset([5, 9]),
    most_rows=0,
)


class Recorded:
    """Calls in a recording, as far as collecting looks at it."""

    def __init__(self):
        self.node_forms, self.node_ends, self.node_args = Ints(), Ints(), Ints()
        self.node_lengths, self.locations, self.next_value = Ints(), Locations(), 0
        self.made, self.read, self.lengths = [], [], []  # of each call

    def record(self, form, backs):
        """One call that reads the values so far back, and numbers where there are none."""
        self.made.append(range(self.next_value, self.next_value + FORMS.outputs[form]))
        self.read.append([max(self.next_value - back, -1) for back in backs])
        self.lengths.append([7 * len(self.made) + each for each in range(FORMS.variable[form])])
        self.node_forms.append(form)
        self.node_args.extend(self.read[-1])
        self.node_ends.append(len(self.node_args))
        self.node_lengths.extend(self.lengths[-1])
        self.next_value += len(self.made[-1])

    def maker(self, value):
        return next(call for call, made in enumerate(self.made) if value in made)

    def needs(self, values, left):
        """Which of the calls that are left those of these values need."""
        found, asked = set(), {self.maker(value) for value in values} & left
        while asked:
            found |= asked
            read = {value for call in asked for value in self.read[call] if value >= 0}
            asked = {self.maker(value) for value in read} & left - found
        return sorted(found)


calls_of_a_scope = st.lists(
    st.tuples(st.integers(0, 3), st.lists(st.integers(1, 12), max_size=4)), max_size=12
)


@given(st.lists(calls_of_a_scope, min_size=1, max_size=4), st.data())
def test_calls_that_wait_are_those_that_did_not_run_and_read_what_they_name(evaluations, data):
    recorded, pending, left = Recorded(), Pending(), set()
    locations = recorded.locations
    for number, fresh in enumerate(evaluations):
        for form, backs in fresh:
            left.add(len(recorded.made))
            recorded.record(form, backs)
        calls = pending.calls(recorded, FORMS)
        look_at(recorded, calls, calls.edges(locations.evaluation), sorted(left))
        values = st.integers(0, recorded.next_value - 1)
        wanted = data.draw(st.lists(values) if recorded.next_value else st.just([]))
        chosen, edges = ancestors(
            calls,
            calls.edges(locations.evaluation),
            np.array(wanted, np.int64),
            locations.evaluation,
        )
        look_at(recorded, chosen, edges, recorded.needs(wanted, left))
        for call in chosen.ids:
            locations.evaluation[list(recorded.made[call])] = number
        pending.ran(chosen)
        left -= set(chosen.ids.tolist())


def look_at(recorded, calls: Calls, edges, expected):
    """Calls as arrays have to be the expected ones, and these edges those among them."""
    locations = recorded.locations
    assert calls.ids.tolist() == expected
    assert len(calls.offsets) == len(calls.length_offsets) == len(edges.offsets) == len(calls) + 1
    assert edges.producers.dtype == np.int32
    for place, call in enumerate(expected):
        made, form = recorded.made[call], calls.forms[place]
        assert calls.outputs[place] == made[0]
        first = FORMS.first_outputs[form]
        rows = FORMS.output_rows[first : first + len(made)]
        assert locations.rows[list(made)].tolist() == rows.tolist()
        assert (locations.taped[list(made)] == FORMS.taped[form]).all()
        assert part(calls.args, calls.offsets, place) == recorded.read[call]
        assert part(calls.lengths, calls.length_offsets, place) == recorded.lengths[call]
        waiting = [
            value for value in recorded.read[call] if value >= 0 and locations.evaluation[value] < 0
        ]
        producers = [expected.index(recorded.maker(value)) for value in waiting]
        assert part(edges.producers, edges.offsets, place) == producers


def part(items, offsets, place):
    return items[offsets[place] : offsets[place + 1]].tolist()


@pytest.mark.parametrize('count', [1, 3])
def test_calls_before_any_was_recorded_are_none(count):
    recorded, pending = Recorded(), Pending()
    for _ in range(count):
        assert len(pending.calls(recorded, FORMS)) == 0


def test_another_thread_looks_while_there_is_made_room():
    """Values that are known are so at each moment."""
    locations, over = Locations(), threading.Event()
    locations.grow(10_000)
    locations.evaluation[:10_000] = 3
    unknown = []

    def look():
        while not over.is_set():
            if not locations.known(9_999):
                unknown.append(len(locations.evaluation))

    thread = threading.Thread(target=look)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        for room in range(1, 300):
            locations.grow(10_000 + room * 10_000)
    finally:
        over.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert unknown == []


SUMMARY = 7, 1, 1, 0, 0, 0  # of a form: type, rows, outputs


def test_threads_add_forms_while_others_read_them():
    """A column that NumPy reads without the interpreter's lock could not grow."""
    count, several = 1000, 6000
    columns = array('q', SUMMARY * count), array('q', [1] * count)
    recording = SimpleNamespace(form_summaries=columns[0], output_rows=columns[1])
    ended, sizes, before = threading.Event(), [], sys.getswitchinterval()

    def read():
        while not ended.is_set():
            table = form_table(recording)
            sizes.append(len(table.rows) == len(table.first_outputs) >= count)

    readers = [threading.Thread(target=read) for _ in range(3)]
    sys.setswitchinterval(1e-5)
    try:
        for reader in readers:
            reader.start()
        for _ in range(several):
            columns[0].extend(SUMMARY)
            columns[1].append(1)
    finally:
        ended.set()
        sys.setswitchinterval(before)
        for reader in readers:
            reader.join()
    assert all(sizes)
    assert len(form_table(recording).output_rows) == count + several
