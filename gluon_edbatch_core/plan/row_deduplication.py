"""Row deduplication: find equal rows, such as embeddings of a word that recurs.

The user's numbers are compared. Computed rows are equal if they come from equal rows, by calls that
map one row of each argument to one row, such as look-ups of words and tags.
"""

from collections.abc import Sequence
from typing import Callable, NamedTuple, Optional

import numpy as np

from .call_type import Kind
from .plan import Capabilities, Group, Plan, Read
from .rows import distinct, note_same, rows_read, words

# Largest share of distinct rows for which this pays: results are then read by index, and their
# gradients added row by row.
_PAYS = 0.5
_WORDS = 1 << 18  # numbers below are words, most often

Numbers = Callable[[int, int], np.ndarray]


class Distinct(NamedTuple):
    """Rows without duplicates: the position where each first occurs, and for each row its index
    among the distinct ones."""

    first: np.ndarray
    which: np.ndarray


class RowDeduplication:
    """Find equal rows of a plan; `numbers` returns a range of the user's numbers."""

    def __init__(self, plan: Plan, capabilities: Sequence[Capabilities], numbers: Numbers):
        self._plan, self._capabilities, self._numbers = plan, capabilities, numbers
        self._same: dict[int, np.ndarray] = {}  # arena -> for each row the first that is the same
        self._found = False

    def among(self, read: Read) -> Optional[Distinct]:
        """Return the distinct rows that batches read; None if there are too many to pay."""
        if not self._found:
            self._find()
        found = Distinct(*distinct(self._firsts(read)))
        return found if len(found.first) <= _PAYS * len(found.which) else None

    def _firsts(self, read: Read) -> np.ndarray:
        """Return, for each row that batches read, the first row that equals it."""
        return rows_read(self._plan.indices, read, self._same.get(read.arena))

    def _find(self) -> None:
        self._found = True
        for index, arena in enumerate(self._plan.arenas):
            if arena.scalars is not None:
                begin, first, last = arena.scalars
                numbers = self._numbers(first, last)
                self._note(index, np.arange(begin, begin + len(numbers)), _keys(numbers))
        for group, capabilities in zip(self._plan.groups, self._capabilities):
            if capabilities.shares and _is_of_rows(group):
                made_of = _together([self._firsts(read) for read in group.reads])
                slices: np.ndarray = np.zeros(group.size, bool)
                for write in group.writes:
                    written = Read(write.arena, slices, write.begin, write.end)
                    self._note(write.arena, rows_read(self._plan.indices, written), made_of)

    def _note(self, arena: int, rows: np.ndarray, made_of: np.ndarray) -> None:
        """Note that rows of an arena are equal if what they are computed from (`made_of`) is."""
        if arena not in self._same:
            self._same[arena] = np.arange(self._plan.arenas[arena].rows)
        note_same(self._same[arena], rows, made_of)


def _is_of_rows(group: Group) -> bool:
    """Return whether each call maps one row of each argument to one row. Several arguments must all
    be known beforehand: a cell's own results never repeat."""
    node_type = group.node_type
    return (
        (len(node_type.arguments) == 1 or 0 < len(node_type.arguments) == len(group.known))
        and all([argument.kind is Kind.ROWS for argument in node_type.arguments])
        and not (node_type.random or node_type.alone or node_type.whole)
        and all([factor == 1 for factor in node_type.factors])
        and group.rows.sum() == len(group.nodes)
    )


def _keys(numbers: np.ndarray) -> np.ndarray:
    """Return a small integer for each number, equal for equal bits."""
    found = words(numbers, _WORDS)
    return np.unique(numbers.view(np.int32), return_inverse=True)[1] if found is None else found


def _together(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Return a small integer for each row of some integer columns, equal for equal rows."""
    first, *others = columns
    for column in others:
        (one, which), (other, own) = distinct(first), distinct(column)
        pairs = which * len(other) + own
        small = len(one) * len(other) < _WORDS
        first = pairs if small else np.unique(pairs, return_inverse=True)[1]
    return first
