# cython: infer_types=True
"""Write the table of a run, word by word, as the native operators read it (``src/program.h``).

Cython compiles this module where a compiler is present (the types are in ``run_table.pxd``).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph import columns

_THREADS, _ARENAS, _FIRST, _COUNT = 3, 4, 7, 8  # what the first words do not say
SEED = 9  # of noise
MAGIC = 0x45444231  # with which a table begins
columns.prepare(np.zeros(3, np.int64))


def size_of(start: np.ndarray, programs: Sequence[np.ndarray], parts: Sequence[tuple]) -> int:
    """Return how many words a table takes without its indices: the words at its start, and for
    each type its program, parameters and batches. `parts` has (group, first, end) of batches."""
    size = len(start)
    for words, (group, begin, end) in zip(programs, parts):
        reads, writes, ragged = group.reads, group.writes, _parents(group) is not None
        columns = 2 + 2 * ragged + 2 * len(reads) + len(writes)
        size += len(words) + 4 + 2 * len(reads) + len(writes) + columns * (end - begin)
    return size


def _parents(group: Any) -> Any:
    """Return the read whose parents all unpadded ragged arguments share; None if there are none."""
    for read in group.reads:
        if read.parents is not None:
            return read
    return None


class Table:
    """A table under construction, of `size` words (see `size_of`) followed by the rows that batches
    read by index (int32)."""

    def __init__(self, size: int, indices: np.ndarray):
        self.words = np.empty(size + (len(indices) + 1) // 2, np.int64)
        self.words[size:].view(np.int32)[: len(indices)] = indices
        self._words, self._place = self.words.data, 0
        self.rows = self.values = 0  # of the group written last: rows, and ragged values

    def begin(self, words: np.ndarray, threads: int, arenas: int, first: int, count: int) -> None:
        """Write the first words, for a run of `count` batches from number `first` on."""
        self.add(words)
        self._words[_THREADS], self._words[_ARENAS] = threads, arenas
        self._words[_FIRST], self._words[_COUNT] = first, count

    def add(self, words: np.ndarray) -> None:
        """Append int64 words to the table."""
        column, begin, count = columns.words(words), self._place, len(words)
        for place in range(count):
            self._words[begin + place] = column[place]
        self._place = begin + count

    def add_batches(
        self, group: Any, begin: int, end: int, slots: dict[int, int], private: Sequence[bool]
    ) -> None:
        """Append some batches of a group as columns of numbers. `slots` maps arenas of the plan to
        those of the run; `private` tells whether each arena of the plan is private."""
        ragged, count = _parents(group), end - begin
        self._put(len(group.reads))
        self._put(len(group.writes))
        self._put(ragged is not None)
        self._put(count)
        self._add_some(group.numbers, begin, end)
        self.rows = self._add_some(group.rows, begin, end)
        self.values = 0
        if ragged is not None:
            first = self._place
            self._add_some(ragged.end, begin, end)
            begins = columns.words(ragged.begin)
            for place in range(count):
                self._words[first + place] -= begins[begin + place]
                self.values += self._words[first + place]
            self._add_some(ragged.parents, begin, end)
        for read in group.reads:
            self._put(slots[read.arena])
            self._put(private[read.arena])
            gather = columns.flags(read.gather)
            for place in range(begin, end):
                self._put(gather[place])
            self._add_some(read.begin, begin, end)
        for write in group.writes:
            self._put(slots[write.arena])
            self._add_some(write.begin, begin, end)

    def _put(self, word):
        self._words[self._place] = word
        self._place += 1

    def _add_some(self, column, begin, end):
        """Append some of a column; return their sum."""
        numbers, total, at = columns.words(column), 0, self._place
        for place in range(begin, end):
            self._words[at + place - begin] = numbers[place]
            total += numbers[place]
        self._place = at + end - begin
        return total
