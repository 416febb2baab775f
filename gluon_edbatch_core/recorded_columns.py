"""Columns of numbers that a recording fills, call by call and value by value. Needs NumPy only.

Cython compiles this module where a compiler is present (the types are in ``recorded_columns.pxd``).
"""

from collections.abc import Sequence
from typing import Union

import numpy as np


class Ints:
    """An append-only array of 64-bit integers, in one piece of memory."""

    def __init__(self):
        self.size = 0
        self.room = 256
        self.items = self.buffer = np.empty(self.room, np.int64)

    def append(self, item):
        """Append one integer."""
        if self.size == self.room:
            self.make_room(1)
        self.items[self.size] = item
        self.size += 1

    def extend(self, items: Union[Sequence[int], np.ndarray]) -> None:
        """Append several integers."""
        size = self.size + len(items)
        if size > self.room:
            self.make_room(len(items))
        self.buffer[self.size : size] = items
        self.size = size

    def copy_from(self, items):
        """Append several integers from a buffer in memory."""
        count, size = len(items), self.size
        if size + count > self.room:
            self.make_room(count)
        for place in range(count):
            self.items[size + place] = items[place]
        self.size = size + count

    def make_room(self, more):
        """Grow the buffer so that at least `more` integers can be appended."""
        self.room = max(2 * self.room, self.size + more)
        buffer = np.empty(self.room, np.int64)
        buffer[: self.size] = self.since(0)
        self.items = self.buffer = buffer

    def since(self, begin: int) -> np.ndarray:
        """Return the integers from position `begin` on; later appends do not change the array."""
        return self.buffer[begin : self.size]

    def __len__(self):
        return self.size

    def __getitem__(self, position):
        return int(self.buffer[: self.size][position])


_OF_NONE = tuple([np.zeros(0, dtype) for dtype in (np.int32, np.int64, np.int64, np.bool_)])


class Locations:
    """Tell where the values of one recording are: arrays indexed by value."""

    # int32, the evaluation that computed it; -1 before, and -2 for a partial sum that was left out
    evaluation: np.ndarray
    row: np.ndarray  # int64, its first row in the arena of its kind
    rows: np.ndarray  # int64, how many rows it has
    taped: np.ndarray  # bool, whether it was recorded under ``autograd.record()``

    def __init__(self):
        self.evaluation, self.row, self.rows, self.taped = _OF_NONE
        self._copies = np.zeros(0, np.int64)

    def copies(self) -> np.ndarray:
        """Return (values,) int64, in which a plan notes where its copies of earlier results are."""
        if len(self._copies) < len(self.row):
            self._copies = np.empty(len(self.row), np.int64)
        return self._copies

    def grow(self, values: int) -> None:
        """Make room for this many values, while other threads may read those that are known."""
        known = len(self.evaluation)
        if values <= known:
            return
        room = max(values, known + known // 2)
        evaluation, taped = np.empty(room, np.int32), np.zeros(room, bool)
        evaluation.fill(-1)  # np.full takes three times as long
        row, rows = np.zeros(room, np.int64), np.zeros(room, np.int64)
        if known:
            evaluation[:known], row[:known] = self.evaluation, self.row
            rows[:known], taped[:known] = self.rows, self.taped
        self.row, self.rows, self.taped, self.evaluation = row, rows, taped, evaluation

    def known(self, value: int) -> bool:
        """Return whether the value was computed."""
        return value < len(self.evaluation) and self.evaluation.item(value) >= 0

    def unknown(self, values: np.ndarray) -> np.ndarray:
        """Return the values that were not computed yet, without what the user gave (below 0)."""
        size = len(self.evaluation)
        if len(values) and values.min() >= size:
            return values
        known = values < 0
        inside = ~known & (values < size)
        known[inside] = self.evaluation[values[inside]] >= 0
        return values[~known]
