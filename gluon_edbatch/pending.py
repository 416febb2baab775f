"""From recorded lists to arrays: the calls that wait, and those of them that are wanted."""
from typing import NamedTuple, Optional, Sequence

import numpy as np

from .graph import Graph
from .record.recording import Recording
from .static.node_type import NodeType


class Calls(NamedTuple):
    """Recorded calls as arrays, in the order in which they were recorded.

    Attributes
    ----------
    ids : numpy.ndarray
        (n,) number of each call in the recording.
    forms : numpy.ndarray
        (n,) index of its `Form`.
    outputs : numpy.ndarray
        (n,) value of its first output.
    offsets, args : numpy.ndarray
        (n + 1,) and (m,): call ``i`` reads the values ``args[offsets[i]:offsets[i + 1]]``.
    length_offsets, lengths : numpy.ndarray
        The same for the lengths of its ragged or flat arguments.
    """

    ids: np.ndarray
    forms: np.ndarray
    outputs: np.ndarray
    offsets: np.ndarray
    args: np.ndarray
    length_offsets: np.ndarray
    lengths: np.ndarray

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, keep: np.ndarray) -> 'Calls':
        """The calls at these positions (ascending)."""
        if len(keep) == len(self.ids):
            return self
        offsets, args = _select(self.offsets, self.args, keep)
        length_offsets, lengths = _select(self.length_offsets, self.lengths, keep)
        return Calls(self.ids[keep], self.forms[keep], self.outputs[keep], offsets, args,
                     length_offsets, lengths)

    def producer(self, values: np.ndarray) -> np.ndarray:
        """Position of the call that makes each of these values."""
        if len(values) < 256:
            return np.searchsorted(self.outputs, values, side='right') - 1
        first = int(self.outputs[0])  # a table is several times as fast for many values
        table = np.zeros(max(int(values.max()), int(self.outputs[-1])) - first + 1, np.int64)
        table[self.outputs - first] = 1
        table = np.cumsum(table)
        table -= 1
        return table[values - first]


class FormTable(NamedTuple):
    """The forms of a recording as arrays, one entry a form."""

    types: np.ndarray     # serial of the node type
    rows: np.ndarray
    outputs: np.ndarray   # how many
    variable: np.ndarray  # how many arguments have a length of their own
    taped: np.ndarray     # recorded under autograd.record()
    output_rows: np.ndarray  # rows of each output, form after form


def expand(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """``[s, s + 1, ..., s + c - 1]`` for each start and count, one after the other."""
    total = int(counts.sum())
    ends = np.cumsum(counts)
    return np.arange(total) + np.repeat(starts - (ends - counts), counts)


def _select(offsets, items, keep):
    counts = offsets[keep + 1] - offsets[keep]
    bounds = np.zeros(len(keep) + 1, np.int64)
    np.cumsum(counts, out=bounds[1:])
    return bounds, items[expand(offsets[keep], counts)]


def form_table(recording: Recording) -> FormTable:
    """The forms met so far."""
    forms = recording.forms
    summaries = np.array([form.summary for form in forms], np.int64).reshape(-1, 5)
    return FormTable(*summaries[:, :4].T.copy(), summaries[:, 4].astype(bool), np.array(
        [spec.rows for form in forms for spec in form.node_type.output_specs(form.rows)], np.int64))


class Pending:
    """The calls of one recording that were not run yet."""

    def __init__(self):
        self._seen_nodes = self._seen_lengths = self._seen_values = 0
        self._waiting: Optional[Calls] = None

    def calls(self, recording: Recording, table: FormTable) -> Calls:
        """All calls that wait, those recorded since the last look included."""
        begin = self._seen_nodes
        if begin == len(recording.node_forms):
            return self._waiting if self._waiting is not None else _NO_CALLS
        forms = recording.node_forms.since(begin)
        count = len(forms)
        first = recording.node_ends[begin - 1] if begin else 0
        offsets = np.zeros(count + 1, np.int64)
        np.subtract(recording.node_ends.since(begin), first, out=offsets[1:])
        values = recording.node_args.since(first)
        outputs = self._seen_values + np.cumsum(table.outputs[forms]) - table.outputs[forms]
        length_offsets = np.zeros(count + 1, np.int64)
        np.cumsum(table.variable[forms], out=length_offsets[1:])
        lengths = recording.node_lengths.since(self._seen_lengths)
        new = Calls(np.arange(begin, begin + count), forms, outputs, offsets, values,
                    length_offsets, lengths)
        self._seen_nodes += count
        self._seen_lengths += len(lengths)
        self._seen_values += int(table.outputs[forms].sum())
        self._grow_locations(recording.locations, new, table)
        self._waiting = new if self._waiting is None else _joined(self._waiting, new)
        return self._waiting

    def _grow_locations(self, locations, new, table):
        counts = table.outputs[new.forms]
        locations.grow(self._seen_values)
        added = slice(self._seen_values - int(counts.sum()), self._seen_values)
        locations.taped[added] = np.repeat(table.taped[new.forms], counts)
        locations.rows[added] = table.output_rows[
            expand((np.cumsum(table.outputs) - table.outputs)[new.forms], counts)]

    def ran(self, calls: Calls) -> None:
        """These calls are done."""
        if self._waiting is None or len(calls) == len(self._waiting):
            self._waiting = None
            return
        left = np.ones(len(self._waiting), bool)
        left[np.searchsorted(self._waiting.ids, calls.ids)] = False
        self._waiting = self._waiting.select(np.flatnonzero(left))

    def any_left(self, recording: Recording) -> bool:
        """Whether calls wait."""
        return self._waiting is not None or self._seen_nodes < len(recording.node_forms)


_NO_CALLS = Calls(*(np.zeros(0, np.int64),) * 3, np.zeros(1, np.int64), np.zeros(0, np.int64),
                  np.zeros(1, np.int64), np.zeros(0, np.int64))


def _joined(first: Calls, second: Calls) -> Calls:
    def stitch(a, b):
        return np.concatenate([a, b[1:] + a[-1]])
    both = [np.concatenate(pair) for pair in zip(first, second)]
    return Calls(both[0], both[1], both[2], stitch(first.offsets, second.offsets), both[4],
                 stitch(first.length_offsets, second.length_offsets), both[6])


def ancestors(calls: Calls, wanted: np.ndarray, evaluation: np.ndarray) -> Calls:
    """The calls that the values `wanted` need; `evaluation` tells which values are there."""
    if _all_needed(calls, wanted, evaluation):
        return calls
    keep = np.zeros(len(calls), bool)
    frontier = wanted[evaluation[wanted] < 0]
    while len(frontier):
        nodes = np.unique(calls.producer(frontier))
        nodes = nodes[~keep[nodes]]
        keep[nodes] = True
        counts = calls.offsets[nodes + 1] - calls.offsets[nodes]
        values = calls.args[expand(calls.offsets[nodes], counts)]
        values = values[values >= 0]
        frontier = values[evaluation[values] < 0]
    return calls.select(np.flatnonzero(keep))


def _all_needed(calls: Calls, wanted: np.ndarray, evaluation: np.ndarray) -> bool:
    """Whether each call is read by another or wanted: then nothing is left out."""
    read = np.zeros(len(calls), bool)
    for values in (wanted, calls.args[calls.args >= 0]):
        read[calls.producer(values[evaluation[values] < 0])] = True
    return bool(read.all())


def to_graph(calls: Calls, table: FormTable, types: Sequence[NodeType],
             evaluation: np.ndarray) -> Graph:
    """What a scheduler sees: types, and the edges among these calls.

    Parameters
    ----------
    types : sequence of NodeType
        Those that occur, by ascending serial; their positions become the graph's types.
    """
    serials = np.array([node_type.serial for node_type in types], np.int64)
    inner = calls.args >= 0
    inner[inner] = evaluation[calls.args[inner]] < 0
    before = np.zeros(len(calls.args) + 1, np.int64)
    np.cumsum(inner, out=before[1:])
    return Graph(
        types=np.searchsorted(serials, table.types[calls.forms]).astype(np.int32),
        offsets=before[calls.offsets],
        inputs=calls.producer(calls.args[inner]).astype(np.int32),
        num_types=len(types),
        alone=np.array([node_type.alone for node_type in types], bool),
        type_names=[node_type.stable_name for node_type in types])
