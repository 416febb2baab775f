# cython: infer_types=True
"""Loops over rows: find the rows that batches read, and equal rows.

Cython compiles this module where a compiler is present (the types are in ``rows.pxd``).
"""

from typing import Any, Optional

import numpy as np


def rows_read(indices: np.ndarray, read: Any, same: Optional[np.ndarray] = None) -> np.ndarray:
    """Return the rows (int64) that batches read, one after the other. `same` (int64) has, for each
    row of the arena, the first row that equals it, which then replaces it."""
    begins, ends, gather = read.begin.data, read.end.data, read.gather.view(np.uint8).data
    count = place = 0
    for batch in range(len(begins)):
        count += ends[batch] - begins[batch]
    result = np.empty(count, np.int64)
    rows, items = result.data, indices.data
    for batch in range(len(begins)):
        for at in range(begins[batch], ends[batch]):
            rows[place] = items[at] if gather[batch] else at
            place += 1
    if same is not None:
        firsts = same.data
        for place in range(count):
            rows[place] = firsts[rows[place]]
    return result


def words(numbers: np.ndarray, most: int) -> Optional[np.ndarray]:
    """Return float32 numbers as int64 if all are whole and from 0 to below `most`; else None."""
    result = np.empty(len(numbers), np.int64)
    whole, given, bits = result.data, numbers.data, numbers.view(np.int32).data
    for place in range(len(numbers)):
        number = given[place]
        if bits[place] < 0 or not number < most:  # -0.0 is not 0.0, and NaN less than nothing
            return None
        word = int(number)
        if word != number:
            return None
        whole[place] = word
    return result


def distinct(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first position of each distinct key, and for each key its index among them, both
    int64, in linear time. Keys are small integers (int64), not negative."""
    numbers, known, count = keys.data, _room_by_key(keys), len(keys)
    first, which = np.empty(count, np.int64), np.empty(count, np.int64)
    firsts, places, found = first.data, which.data, 0
    for place in range(count):
        key = numbers[place]
        at = known[key]
        if not 0 <= at < found or numbers[firsts[at]] != key:
            known[key] = at = found
            firsts[found] = place
            found += 1
        places[place] = at
    return first[:found], which


def note_same(same: np.ndarray, rows: np.ndarray, made_of: np.ndarray) -> None:
    """Note in `same`, which has the first equal row for each row of an arena, that `rows` are equal
    where `made_of`, small integers, are equal. All are int64."""
    firsts, given, numbers, known = same.data, rows.data, made_of.data, _room_by_key(made_of)
    for place in range(len(made_of)):
        key = numbers[place]
        at = known[key]
        if not 0 <= at < place or numbers[at] != key:
            known[key] = at = place
        firsts[given[place]] = given[at]


def _room_by_key(keys):
    """Return an uninitialised array with a place for each key up to the largest. Checking whether a
    place was written is faster than clearing all, as few words of a vocabulary occur."""
    numbers, most = keys.data, -1
    for place in range(len(keys)):
        if numbers[place] > most:
            most = numbers[place]
    return np.empty(most + 1, np.int32).data
