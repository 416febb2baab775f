"""Convert recorded lists to arrays: the calls that wait, and calls for wanted values."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional

import numpy as np

from .edges import addition_trees, among, needed, number_calls, with_sums
from .graph import Graph, expand

if TYPE_CHECKING:  # this package needs NumPy only: gluon_edbatch_runtime has no MXNet
    from ..record.recording import Recording
    from ..subgraph.node_type import NodeType


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
        The slices and values of the lengths of its ragged or flat arguments.
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
        """Return the calls at these ascending positions."""
        return self if len(keep) == len(self.ids) else self.take(keep)

    def take(self, places: np.ndarray) -> 'Calls':
        """Return the calls at these positions, in this order."""
        offsets, args = _take(self.offsets, self.args, places)
        length_offsets, lengths = _take(self.length_offsets, self.lengths, places)
        ids, forms, outputs = self.ids[places], self.forms[places], self.outputs[places]
        return Calls(ids, forms, outputs, offsets, args, length_offsets, lengths)

    def edges(self, evaluation: np.ndarray) -> 'Edges':
        """Return what these calls read of each other; `evaluation` marks the computed values."""
        return Edges(*among(self.offsets, self.args, self.outputs, evaluation))


class Edges(NamedTuple):
    """Which calls read results of other calls, by position in `Calls`.

    Attributes
    ----------
    offsets, producers : numpy.ndarray
        (n + 1,) int64 and (e,) int32: call ``i`` reads ``producers[offsets[i]:offsets[i + 1]]``.
    """

    offsets: np.ndarray
    producers: np.ndarray


class FormTable(NamedTuple):
    """The forms of a recording as arrays, with one entry for each form."""

    types: np.ndarray  # serial of the node type
    rows: np.ndarray
    outputs: np.ndarray  # how many
    variable: np.ndarray  # how many arguments have a length of their own
    taped: np.ndarray  # 1 if recorded under autograd.record()
    first_outputs: np.ndarray  # where its first is among all outputs, form after form
    output_rows: np.ndarray  # rows of each of these
    of_several_rows: frozenset[int]  # serials of types that have calls of several rows, or of none
    most_rows: int  # of any form
    additions: Optional[np.ndarray] = None  # see `NodeType.addition`; None if all are 0


def _take(offsets, items, keep):
    counts = offsets[keep + 1] - offsets[keep]
    bounds = np.zeros(len(keep) + 1, np.int64)
    counts.cumsum(out=bounds[1:])
    return bounds, items[expand(offsets[keep], counts)]


_MOST_TABLES = 256
_tables: dict[tuple[bytes, bytes], FormTable] = {}  # of recordings of the same forms


def form_table(recording: 'Recording') -> FormTable:
    """Return a table of the forms that a recording has met so far."""
    key = bytes(recording.form_summaries), bytes(recording.output_rows)
    table = _tables.get(key)
    if table is None:
        # NumPy lets other threads run while it copies a column, which cannot grow meanwhile.
        summaries, output_rows = [np.frombuffer(column, np.int64) for column in key]
        columns = np.ascontiguousarray(summaries.reshape(-1, 6).T)
        types, rows, outputs, variable, taped, additions = columns
        table = FormTable(
            types,
            rows,
            outputs,
            variable,
            taped,
            first_outputs=outputs.cumsum() - outputs,
            output_rows=output_rows,
            of_several_rows=frozenset(types[rows != 1].tolist()),
            most_rows=int(rows.max(initial=0)),
            additions=additions if additions.any() else None,
        )
        if len(_tables) >= _MOST_TABLES:
            _tables.clear()
        _tables[key] = table
    return table


LEFT_OUT = -2  # in the place of an evaluation's number: a partial sum that no call needs


class Pending:
    """The calls of one recording that have not run yet."""

    def __init__(self):
        self._seen_nodes = self._seen_lengths = self._seen_values = 0
        self._waiting = _NO_CALLS
        self._left_out: list[tuple[int, Calls, np.ndarray]] = []  # by which evaluation, which calls

    def calls(self, recording: 'Recording', table: FormTable) -> Calls:
        """Return all calls that wait, including those recorded since the last call."""
        begin = self._seen_nodes
        if begin == len(recording.node_forms):
            return self._waiting
        forms = recording.node_forms.since(begin)
        first = recording.node_ends[begin - 1] if begin else 0
        values = recording.node_args.since(first)
        locations = recording.locations
        locations.grow(recording.next_value)
        ids, outputs, offsets, length_offsets = number_calls(
            forms,
            recording.node_ends.since(begin),
            table,
            (begin, first, self._seen_values),
            locations.rows,
            locations.taped,
        )
        lengths = recording.node_lengths.since(self._seen_lengths)
        new = Calls(ids, forms, outputs, offsets, values, length_offsets, lengths)
        self._seen_nodes += len(forms)
        self._seen_lengths += len(lengths)
        self._seen_values = recording.next_value
        self._waiting = _joined(self._waiting, new) if len(self._waiting) else new
        return self._waiting

    def ran(self, calls: Calls) -> None:
        """Remove calls that have run."""
        if len(calls) == len(self._waiting):
            self._waiting = _NO_CALLS
            return
        left = np.ones(len(self._waiting), bool)
        left[np.searchsorted(self._waiting.ids, calls.ids)] = False
        self._waiting = self._waiting.select(np.flatnonzero(left))

    def leave_out(self, sums: 'Sums', merged: Calls, number: int, evaluation: np.ndarray) -> int:
        """Let the inner calls of sums wait until their results are read; return how many.

        `merged` are the calls that evaluation `number` will run.
        """
        waiting = self._waiting
        inner = np.searchsorted(waiting.ids, sums.inner)
        if not len(inner):
            return 0
        self._left_out.append((number, waiting, inner))
        evaluation[waiting.outputs[inner]] = LEFT_OUT
        if len(merged) + len(inner) == len(waiting):
            self._waiting = merged
        else:
            self._waiting = waiting.select(np.delete(np.arange(len(waiting)), inner))
        return len(inner)

    def left_out(self) -> Calls:
        """Return all recorded calls that evaluations skipped, in order."""
        found = _NO_CALLS
        for _, calls, places in self._left_out:
            found = _joined(found, calls.select(places))
        return _in_order(found) if len(found) else found

    def forms_left_out(self) -> set[int]:
        """Return the forms of the calls that were left out."""
        return {
            form
            for _, calls, places in self._left_out
            for form in np.flatnonzero(np.bincount(calls.forms[places])).tolist()
        }

    def restore(self, evaluation: np.ndarray) -> None:
        """Let the calls that were left out wait as usual."""
        left = self.left_out()
        evaluation[left.outputs] = -1
        self._waiting = _in_order(_joined(left, self._waiting))
        self._left_out = []

    def forget(self, number: int) -> int:
        """Drop the calls that evaluations before `number` left out; return how many."""
        dropped = sum([len(places) for by, _, places in self._left_out if by < number])
        self._left_out = [left for left in self._left_out if left[0] >= number]
        return dropped


_NONE, _NO_OFFSETS = np.zeros(0, np.int64), np.zeros(1, np.int64)
_NO_CALLS = Calls(_NONE, _NONE, _NONE, _NO_OFFSETS, _NONE, _NO_OFFSETS, _NONE)


def _joined(first: Calls, second: Calls) -> Calls:
    ids, forms, outputs, _, args, _, lengths = [np.concatenate(pair) for pair in zip(first, second)]
    offsets, length_offsets = [
        np.concatenate([ours, theirs[1:] + ours[-1]])
        for ours, theirs in (
            (first.offsets, second.offsets),
            (first.length_offsets, second.length_offsets),
        )
    ]
    return Calls(ids, forms, outputs, offsets, args, length_offsets, lengths)


def _in_order(calls: Calls) -> Calls:
    """Return the calls by ascending number."""
    return calls.take(np.argsort(calls.ids, kind='stable'))


class Sums(NamedTuple):
    """Additions that run as sums of many values.

    Attributes
    ----------
    calls : numpy.ndarray
        (n,) number of each addition in the recording, ascending.
    roots : numpy.ndarray
        (n,) number of the last addition of its sum, which stands for all of them.
    forms : numpy.ndarray
        (n,) form of the sum.
    """

    calls: np.ndarray
    roots: np.ndarray
    forms: np.ndarray

    @property
    def inner(self) -> np.ndarray:
        """Return the numbers of the additions whose results nobody reads."""
        return self.calls[self.calls != self.roots]

    def among(self, ids: np.ndarray) -> 'Sums':
        """Return the sums that belong to some calls."""
        here = np.isin(self.roots, ids)
        return Sums(self.calls[here], self.roots[here], self.forms[here])


def as_sums(
    calls: Calls,
    table: FormTable,
    read: np.ndarray,
    wanted: np.ndarray,
    form_of_sum: Callable[[int], int],
) -> tuple[Calls, Optional[Sums]]:
    """Merge additions whose partial sums nobody reads into one sum each.

    `read` are the values that waiting calls read, `wanted` those that others read. `form_of_sum`
    returns a sum's form for an addition's form in `table`.
    """
    additions: Any = table.additions
    roots, found = addition_trees(calls, additions, read, wanted)
    if not found:
        return calls, None
    members = np.flatnonzero(roots >= 0)
    last = roots[members]
    forms = calls.forms[last]
    sum_forms = np.full(len(additions), -1, np.int64)
    for form in np.flatnonzero(np.bincount(forms)).tolist():
        sum_forms[form] = form_of_sum(form)
    keep, *columns = with_sums(calls, roots, sum_forms)
    merged = Calls(calls.ids[keep], columns[0], calls.outputs[keep], *columns[1:])
    return merged, Sums(calls.ids[members], calls.ids[last], sum_forms[forms])


def ancestors(
    calls: Calls, edges: Edges, wanted: np.ndarray, evaluation: np.ndarray
) -> tuple[Calls, Edges]:
    """Return the calls that the values `wanted` need; `evaluation` marks the computed values."""
    keep = needed(*edges, calls.outputs, evaluation, wanted)
    if len(keep) == len(calls):
        return calls, edges
    calls = calls.select(keep)
    return calls, calls.edges(evaluation)


def to_graph(
    kinds: np.ndarray, edges: Edges, types: Sequence['NodeType'], overheads: Sequence[float] = ()
) -> Graph:
    """Return the graph for a scheduler; a call's type is its index in `types`. `overheads` are
    those of the types' batches, if they are known (see `Graph`)."""
    return Graph(
        types=kinds,
        offsets=edges.offsets,
        inputs=edges.producers,
        num_types=len(types),
        alone=np.array([node_type.alone for node_type in types], bool),
        type_names=[node_type.stable_name for node_type in types],
        overheads=overheads,
    )
