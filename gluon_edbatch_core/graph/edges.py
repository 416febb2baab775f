# cython: infer_types=True
"""Loops over calls and edges of an evaluation. Needs NumPy only.

Cython compiles this module where a compiler is present (the types are in ``edges.pxd``). Otherwise
it runs as Python, and its loops take some 0.3 µs an edge.
"""

from typing import Any

import numpy as np

from . import columns

columns.prepare(np.zeros(3, np.int64))


def number_calls(
    forms: np.ndarray,
    ends: np.ndarray,
    table: Any,
    first: tuple[int, int, int],
    rows: np.ndarray,
    taped: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Number new calls and their results; return ids, outputs, offsets and length offsets, as in
    `collect.Calls`.

    `forms` and `ends` (int64) have the form of each call, and the end of its arguments among those
    of all calls; `first` has the numbers of the first call, its first argument and its first
    output. `rows` (int64) and `taped` are filled for the results, as `recorded_columns.Locations`
    has them.
    """
    count = len(forms)
    ids, outputs = np.empty(count, np.int64), np.empty(count, np.int64)
    offsets, length_offsets = np.empty(count + 1, np.int64), np.empty(count + 1, np.int64)
    kinds, stops = columns.words(forms), columns.words(ends)
    numbers, firsts = columns.words(ids), columns.words(outputs)
    starts, bounds = columns.words(offsets), columns.words(length_offsets)
    counts, lengths = columns.words(table.outputs), columns.words(table.variable)
    begins, given = columns.words(table.first_outputs), columns.words(table.output_rows)
    tapes = columns.words(table.taped)
    known, marks = columns.words(rows), columns.flags(taped)
    begin, argument, value = first
    starts[0] = bounds[0] = 0
    for call in range(count):
        form = kinds[call]
        numbers[call], firsts[call] = begin + call, value
        starts[call + 1] = stops[call] - argument
        bounds[call + 1] = bounds[call] + lengths[form]
        for place in range(begins[form], begins[form] + counts[form]):
            known[value] = given[place]
            marks[value] = tapes[form]
            value += 1
    return ids, outputs, offsets, length_offsets


def kinds_of(forms: np.ndarray, types: np.ndarray) -> tuple[np.ndarray, Any]:
    """Number the types of calls, which have these forms, by ascending serial. Return (n,) int32,
    the number of each call's type, and a list with a form of each type. `forms`, (n,), and `types`,
    the serial of each form's type, are int64."""
    count, several = len(forms), len(types)
    result, places = np.empty(count, np.int32), np.zeros(several, np.int32)
    kinds, of_form = columns.ints(result), columns.ints(places)
    given, all_forms = columns.words(types), columns.words(forms)
    form_of = {}
    for call in range(count):
        form = all_forms[call]
        if of_form[form] == 0:
            of_form[form] = 1
            form_of[given[form]] = form
    serials = sorted(form_of)
    for form in range(several):
        if of_form[form] == 1:
            of_form[form] = serials.index(given[form])
    for call in range(count):
        kinds[call] = of_form[all_forms[call]]
    return result, [form_of[serial] for serial in serials]


def among(
    offsets: np.ndarray, args: np.ndarray, outputs: np.ndarray, evaluation: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return which of some calls read results of others: offsets and producers as in `Graph`.

    The first three arrays are columns of `collect.Calls`. These calls compute whatever they read
    that is not computed yet. `evaluation` is int32 by value: below 0 if a value is not computed,
    and -1 if one of these calls computes it.
    """
    count = len(outputs)
    begins, room = np.zeros(count + 1, np.int64), np.empty(len(args), np.int32)
    first, values, firsts = columns.words(offsets), columns.words(args), columns.words(outputs)
    there, bounds, producers = columns.ints(evaluation), columns.words(begins), columns.ints(room)
    base = firsts[0] if count else 0
    made = np.empty(firsts[count - 1] - base if count else 0, np.int32)
    makers = columns.ints(made)
    found = 0
    for call in range(count):
        for place in range(first[call], first[call + 1]):
            value = values[place]
            if value >= 0 and there[value] == -1:
                producers[found] = makers[value - base]
                found += 1
        bounds[call + 1] = found
        value, end = firsts[call], firsts[call + 1] if call + 1 < count else 0
        while value < end and there[value] < 0:  # what others computed is between these and those
            makers[value - base] = call
            value += 1
    return begins, room[:found]


def needed(
    offsets: np.ndarray,
    producers: np.ndarray,
    outputs: np.ndarray,
    evaluation: np.ndarray,
    wanted: np.ndarray,
) -> np.ndarray:
    """Return (k,) int64, the calls that the values `wanted` (int64) need, directly or not.

    The other arrays are arguments and results of `among`.
    """
    count, end = len(outputs), len(evaluation)
    room = np.empty(count, np.int64)
    notes, questions = np.zeros(count, np.uint8), np.zeros(end, np.uint8)
    found, marks, asked = columns.words(room), columns.flags(notes), columns.flags(questions)
    first, sources = columns.words(offsets), columns.ints(producers)
    firsts, there, values = columns.words(outputs), columns.ints(evaluation), columns.words(wanted)
    for place in range(len(wanted)):
        asked[values[place]] = 1
    free = count
    for call in range(count - 1, -1, -1):  # who reads comes later
        value = firsts[call]
        while not marks[call] and value < end and there[value] < 0:
            marks[call] = asked[value]
            value += 1
        end = firsts[call]
        if marks[call]:
            free -= 1
            found[free] = call
            for edge in range(first[call], first[call + 1]):
                marks[sources[edge]] = 1
    return room[free:]


def addition_trees(
    calls: Any, additions: np.ndarray, read: np.ndarray, wanted: np.ndarray
) -> tuple[np.ndarray, int]:
    """Find additions that can run as one sum, because nothing else reads their partial sums.

    Return (n,) int32, the position of the last addition of the tree that each call belongs to, or
    -1 for calls that stay as they are; and the number of trees. `additions` are int64 by form, as
    in `collect.FormTable`. `read`, int64, are the values that waiting calls read, and `wanted`,
    int64, those that others read.
    """
    count = len(calls.forms)
    first, values = columns.words(calls.offsets), columns.words(calls.args)
    firsts, kinds = columns.words(calls.outputs), columns.words(calls.forms)
    groups, uses, asked = columns.words(additions), columns.words(read), columns.words(wanted)
    base = firsts[0] if count else 0
    end = firsts[count - 1] + 1 if count else 0
    counted, made = np.zeros(end - base, np.int32), np.full(end - base, -1, np.int32)
    readers, makers = columns.ints(counted), columns.ints(made)
    for place in range(len(read)):
        if base <= uses[place] < end:
            readers[uses[place] - base] += 1
    for place in range(len(wanted)):
        if base <= asked[place] < end:
            readers[asked[place] - base] += 2
    result, parents = np.full(count, -1, np.int32), np.full(count, -1, np.int32)
    ends = np.zeros(count, np.uint8)
    roots, above, tops = columns.ints(result), columns.ints(parents), columns.flags(ends)
    for call in range(count):
        group = groups[kinds[call]]
        if group == 0:
            continue
        makers[firsts[call] - base] = call
        tops[call] = group & 1
        for place in range(first[call], first[call + 1]):
            value = values[place]
            if value < base or readers[value - base] != 1:
                continue
            maker = makers[value - base]
            if maker >= 0 and groups[kinds[maker]] >> 1 == group >> 1:
                above[maker] = call
                tops[call] = 1
    found = 0
    for call in range(count - 1, -1, -1):
        if above[call] >= 0:
            roots[call] = roots[above[call]]
        elif tops[call]:
            roots[call] = call
            found += 1
    return result, found


def with_sums(calls: Any, roots: np.ndarray, sum_forms: np.ndarray) -> tuple[np.ndarray, ...]:
    """Replace each tree of additions by one call that reads all that they add up, left to right.

    `roots` come from `addition_trees`; `sum_forms`, int64 by form, are the forms of sums. Returns
    the positions of the remaining calls, and their forms, offsets, args, length offsets and
    lengths, as in `collect.Calls`.
    """
    count = len(calls.forms)
    first, values = columns.words(calls.offsets), columns.words(calls.args)
    firsts, kinds = columns.words(calls.outputs), columns.words(calls.forms)
    bounds, counts = columns.words(calls.length_offsets), columns.words(calls.lengths)
    top, sums = columns.ints(roots), columns.words(sum_forms)
    base = firsts[0]
    made = np.full(firsts[count - 1] + 1 - base, -1, np.int32)
    makers = columns.ints(made)
    kept, forms = np.empty(count, np.int64), np.empty(count, np.int64)
    offsets, begins = np.zeros(count + 1, np.int64), np.zeros(count + 1, np.int64)
    args = np.empty(len(calls.args), np.int64)
    lengths = np.empty(len(calls.lengths) + count, np.int64)
    positions, new_kinds = columns.words(kept), columns.words(forms)
    ends, stops = columns.words(offsets), columns.words(begins)
    new_values, new_counts = columns.words(args), columns.words(lengths)
    stack = np.empty(len(calls.args) + 1, np.int64)
    waiting = columns.words(stack)
    found = filled = noted = 0
    for call in range(count):
        if top[call] >= 0:
            makers[firsts[call] - base] = call
            if top[call] != call:
                continue
        begin, left = filled, 0
        for place in range(first[call + 1] - 1, first[call] - 1, -1):
            waiting[left] = values[place]
            left += 1
        while left > 0:
            left -= 1
            value = waiting[left]
            maker = makers[value - base] if value >= base and top[call] == call else -1
            if maker >= 0 and top[maker] == call:
                for place in range(first[maker + 1] - 1, first[maker] - 1, -1):
                    waiting[left] = values[place]
                    left += 1
            else:
                new_values[filled] = value
                filled += 1
        positions[found], new_kinds[found] = call, kinds[call]
        if top[call] == call:
            new_kinds[found] = sums[kinds[call]]
            new_counts[noted] = filled - begin
            noted += 1
        for place in range(bounds[call], bounds[call + 1]):
            new_counts[noted] = counts[place]
            noted += 1
        found += 1
        ends[found], stops[found] = filled, noted
    return (
        kept[:found],
        forms[:found],
        offsets[: found + 1],
        args[:filled],
        begins[: found + 1],
        lengths[:noted],
    )


def consumers(offsets: np.ndarray, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the readers of each node, as in `graph.Consumers`, for edges as in `graph.Graph`."""
    count = len(offsets) - 1
    begins, fan_in = np.zeros(count + 1, np.int32), np.empty(count, np.int32)
    first, producers = columns.words(offsets), columns.ints(inputs)
    places, waiting = columns.ints(begins), columns.ints(fan_in)
    for node in range(count):
        before, waiting[node] = -1, 0
        for edge in range(first[node], first[node + 1]):
            producer = producers[edge]
            if producer != before:
                places[producer] += 1
                waiting[node] += 1
            before = producer
    total = 0
    for node in range(count + 1):
        total += places[node]
        places[node] = total
    nodes = np.empty(total, np.int32)
    found = columns.ints(nodes)
    for node in range(count - 1, -1, -1):  # each place falls from where it ends to where it begins
        before = -1
        for edge in range(first[node], first[node + 1]):
            producer = producers[edge]
            if producer != before:
                places[producer] -= 1
                found[places[producer]] = node
            before = producer
    return begins, nodes, fan_in


def depths(offsets: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Return (n,) int32: 0 for a node without inputs, else 1 + the largest depth of an input."""
    count = len(offsets) - 1
    result = np.zeros(count, np.int32)
    first, producers, depth = columns.words(offsets), columns.ints(inputs), columns.ints(result)
    for node in range(count):
        deepest = 0
        for edge in range(first[node], first[node + 1]):
            above = depth[producers[edge]] + 1
            if above > deepest:
                deepest = above
        depth[node] = deepest
    return result


def heights(offsets: np.ndarray, inputs: np.ndarray) -> np.ndarray:
    """Return (n,) int32: 0 for a node that nobody reads, else 1 + the largest among its readers."""
    count = len(offsets) - 1
    result = np.zeros(count, np.int32)
    first, producers, height = columns.words(offsets), columns.ints(inputs), columns.ints(result)
    for node in range(count - 1, -1, -1):
        below = height[node] + 1
        for edge in range(first[node], first[node + 1]):
            if height[producers[edge]] < below:
                height[producers[edge]] = below
    return result


def most_on_paths(
    offsets: np.ndarray, inputs: np.ndarray, kinds: np.ndarray, width: int
) -> np.ndarray:
    """Return (n, width) int32: the most nodes of each kind on a path that ends at each node,
    itself included. `kinds`, (n,) int32, has the kind of each node from 0 on, or -1."""
    count = len(offsets) - 1
    result = np.zeros((count, width), np.int32)
    first, producers, own = columns.words(offsets), columns.ints(inputs), columns.ints(kinds)
    flat = result.reshape(-1)
    most = columns.ints(flat)
    for node in range(count):
        begin = node * width
        for edge in range(first[node], first[node + 1]):
            above = producers[edge] * width
            for kind in range(width):
                if most[above + kind] > most[begin + kind]:
                    most[begin + kind] = most[above + kind]
        if own[node] >= 0:
            most[begin + own[node]] += 1
    return result


class Countdown:
    """Counts, for each node of a graph, the inputs that have not run yet: `waiting` (n,), int32.

    `offsets` and `readers` are the readers of each node (see `Consumers`). No node has run at
    first.
    """

    def __init__(self, graph: Any) -> None:
        offsets, readers, fan_in = graph.consumers
        self.offsets, self.readers = offsets.data, readers.data
        self._counts = fan_in.copy()
        self.waiting = self._counts.data

    def copy(self) -> 'Countdown':
        """Return an independent copy of the countdown."""
        other = Countdown.__new__(Countdown)
        other.offsets, other.readers = self.offsets, self.readers
        other._counts = self._counts.copy()
        other.waiting = other._counts.data
        return other

    def release(self, nodes: Any, begin: int, end: int, ready: Any) -> int:
        """Note that ``nodes[begin:end]`` (int32) have run, each once. Write the nodes that waited
        for these only to `ready` (int32), in the order of their release; return how many."""
        found = 0
        for place in range(begin, end):
            node = nodes[place]
            for edge in range(self.offsets[node], self.offsets[node + 1]):
                reader = self.readers[edge]
                self.waiting[reader] -= 1
                if self.waiting[reader] == 0:
                    ready[found] = reader
                    found += 1
        return found
