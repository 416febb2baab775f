"""Cache products of words: the weights of a bundle do not change.

If all of a cell's inputs are rows of a table, such as words' vectors, the products of a row with
the cell's weights are always the same. They are kept for the rows that occurred, and batches read
them in place of the vectors.
"""

import threading
from collections.abc import Sequence
from typing import NamedTuple, Optional

import numpy as np

from gluon_edbatch_core.bundle.numpy_steps import Joined, Segments
from gluon_edbatch_core.graph.collect import Calls

from .forms import CellType, zeros_of
from .layout import Group, Layout

_MOST_BYTES = 1 << 28  # of one table of products; then it begins anew


class Products:
    """The known products of rows of a table, (rows, width). Rows that a reader got do not change:
    new rows go behind the known ones, or to new memory."""

    def __init__(self, table: np.ndarray, joined: Joined):
        self._table, self._joined = table, joined
        width = joined.weight.shape[1] * joined.weight.itemsize
        self._room = min(len(table), max(1, _MOST_BYTES // width))
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._places = np.full(len(self._table), -1, np.int64)
        self._known = 0
        self._rows = np.empty((0, self._joined.weight.shape[1]), self._table.dtype)

    def find(self, ids: np.ndarray) -> Optional[tuple[np.ndarray, np.ndarray]]:
        """Return products, and where those of these rows are; None if there are too many."""
        if ids.min() < 0 or ids.max() >= len(self._table):
            return None  # who looks them up says so
        with self._lock:
            new = np.unique(ids[self._places[ids] < 0])
            if self._known + len(new) > self._room:
                self._begin()
                new = np.unique(ids)
                if len(new) > self._room:
                    return None
            if len(new):
                self._add(new)
            return self._rows, self._places[ids]

    def _add(self, ids: np.ndarray) -> None:
        end = self._known + len(ids)
        if end > len(self._rows):
            rows = np.empty((min(self._room, 2 * end), self._rows.shape[1]), self._rows.dtype)
            rows[: self._known] = self._rows[: self._known]
            self._rows = rows
        self._rows[self._known : end] = self._joined.of(self._table[ids])
        self._places[ids] = np.arange(self._known, end)
        self._known = end


class KnownRead(NamedTuple):
    """How the batches of a type read known products. `rows` are the products, (known, columns);
    `places` tells which each call reads, batch after batch. `bounds` tells where each batch begins
    and the last ends."""

    rows: np.ndarray
    places: np.ndarray
    bounds: list[int]

    def places_of(self, number: int) -> np.ndarray:
        """Return which products the calls of a batch read."""
        return self.places[self.bounds[number] : self.bounds[number + 1]]

    def of(self, number: int) -> np.ndarray:
        """Return the products of a batch in separate memory."""
        return self.rows.take(self.places_of(number), axis=0)


def run_distinct(group: Group, number: int, outs: Sequence[np.ndarray]) -> bool:
    """Run a batch of calls that read words only, such as leaves of trees, once for each word;
    return whether that was possible."""
    program, segments = group.type.program, group.segments
    if (
        segments is None
        or segments[number].counts
        or len(group.known) != len(group.type.arguments) - group.type.of_many
        or len(group.known) != 1
        or any(output.factor != 1 for output in group.type.outputs)
    ):
        return False
    ((position, read),) = group.known.items()
    distinct, inverse = np.unique(read.places_of(number), return_inverse=True)
    if not program.projections[position].suffices or 2 * len(distinct) > len(inverse):
        return False
    found = [np.empty((len(distinct), *out.shape[1:]), out.dtype) for out in outs]
    empty = [zeros_of(argument.arena, 0) for argument in group.type.arguments]
    known = {position: read.rows.take(distinct, axis=0)}
    program.run(empty, found, Segments(len(distinct), []), known)
    for out, result in zip(outs, found):
        result.take(inverse, axis=0, out=out, mode='clip')  # 'raise' would buffer `out`
    return True


def project(
    groups: Sequence[Group],
    layout: Layout,
    row_of: np.ndarray,
    numbers: np.ndarray,
    calls: Calls,
    kinds: np.ndarray,
) -> None:
    """Let the batches of types read products in place of vectors that were looked up. `row_of` has
    the row of each value; `numbers` are the rows of numbers."""
    tables = np.array([group.type.program.table is not None for group in groups])
    if not tables.any():
        return
    for place, group in enumerate(groups):
        for position in () if group.type.whole else group.type.program.projections:
            values = layout.plain_values(place, position)
            found = None if values is None else _looked_up(values, tables, calls, kinds)
            if found is None:
                continue
            source, given = found
            products = _products(group.type, position, groups[source].type)
            known = products.find(numbers[row_of[given]].astype(np.int64))
            if known is not None:
                group.known[position] = KnownRead(*known, group.reads[position].bounds)


def _looked_up(values, tables, calls: Calls, kinds: np.ndarray):
    """Return the type that looked up all of these values, and the user's numbers that are their
    ids."""
    if not len(values) or values.min() < calls.outputs[0]:
        return None
    makers = calls.outputs.searchsorted(values, 'right') - 1
    source = kinds[makers[0]]
    if not tables[source] or (kinds[makers] != source).any():
        return None
    if (calls.outputs[makers] != values).any():  # an earlier evaluation computed some of them
        return None
    given = calls.args[calls.offsets[makers]]
    return None if given.max() >= 0 else (source, given)


def _products(kind: CellType, position: int, source: CellType) -> Products:
    key = position, source
    if key not in kind.products:
        table, projection = source.program.table, kind.program.projections[position]
        assert table is not None
        kind.products[key] = Products(table, projection.joined)
    return kind.products[key]
