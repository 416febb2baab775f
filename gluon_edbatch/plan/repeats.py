"""Rows that hold the same: what was computed of the same, as of a word that occurs again.

Numbers that the user gave are compared; of all else only what it is made of, by calls that give one
row for one of each argument: words that are looked up, and maybe their tags.
"""

from collections.abc import Sequence
from typing import Callable, NamedTuple, Optional

import numpy as np

from ..subgraph.node_type import Kind
from .plan import Group, Plan, Read, Traits
from .rows import distinct, note_same, rows_read, rows_written, words

# Of all rows, so many have to be distinct at most: results are then read by index, and their
# gradients added row by row.
_PAYS = 0.5
_WORDS = 1 << 18  # numbers below are words, most often

Numbers = Callable[[int, int], np.ndarray]


class Distinct(NamedTuple):
    """Rows of which each holds something else: where each stands first among all rows; and for each
    of all rows, which of the distinct ones holds the same."""

    first: np.ndarray
    which: np.ndarray


class Repeats:
    """Which rows of a plan hold the same; `numbers` gives a range of the numbers of the user."""

    def __init__(self, plan: Plan, traits: Sequence[Traits], numbers: Numbers):
        self._plan, self._traits, self._numbers = plan, traits, numbers
        self._same: dict[int, np.ndarray] = {}  # arena -> for each row the first that is the same
        self._found = False

    def among(self, read: Read) -> Optional[Distinct]:
        """The distinct ones of the rows that batches read; None if they are so many that it does
        not pay."""
        if not self._found:
            self._find()
        found = Distinct(*distinct(self._firsts(read)))
        return found if len(found.first) <= _PAYS * len(found.which) else None

    def _firsts(self, read: Read) -> np.ndarray:
        """For each row that batches read, the first that holds the same."""
        return rows_read(self._plan.indices, read, self._same.get(read.arena))

    def _find(self) -> None:
        self._found = True
        for index, arena in enumerate(self._plan.arenas):
            if arena.scalars is not None:
                begin, first, last = arena.scalars
                numbers = self._numbers(first, last)
                self._note(index, np.arange(begin, begin + len(numbers)), _keys(numbers))
        for group, traits in zip(self._plan.groups, self._traits):
            if traits.shares and _is_of_rows(group):
                made_of = _together([self._firsts(read) for read in group.reads])
                for write in group.writes:
                    self._note(write.arena, rows_written(write), made_of)

    def _note(self, arena: int, rows: np.ndarray, made_of: np.ndarray) -> None:
        """Rows of an arena hold the same where they are made of the same."""
        if arena not in self._same:
            self._same[arena] = np.arange(self._plan.arenas[arena].rows)
        note_same(self._same[arena], rows, made_of)


def _is_of_rows(group: Group) -> bool:
    """Whether each call gives a row that depends on one row of each argument alone; of several
    those that are there before: with its own results, as a cell has them, nothing is the same."""
    node_type = group.node_type
    return (
        (len(node_type.arguments) == 1 or 0 < len(node_type.arguments) == len(group.known))
        and all([argument.kind is Kind.ROWS for argument in node_type.arguments])
        and not (node_type.random or node_type.alone or node_type.whole)
        and all([factor == 1 for factor in node_type.factors])
        and group.rows.sum() == len(group.nodes)
    )


def _keys(numbers: np.ndarray) -> np.ndarray:
    """A small integer for each, the same for those of the same bits."""
    found = words(numbers, _WORDS)
    return np.unique(numbers.view(np.int32), return_inverse=True)[1] if found is None else found


def _together(columns: Sequence[np.ndarray]) -> np.ndarray:
    """A small integer for what stands side by side in some columns of such."""
    first, *others = columns
    for column in others:
        (one, which), (other, own) = distinct(first), distinct(column)
        pairs = which * len(other) + own
        small = len(one) * len(other) < _WORDS
        first = pairs if small else np.unique(pairs, return_inverse=True)[1]
    return first
