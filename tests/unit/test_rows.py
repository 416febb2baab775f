"""What is done row by row of a plan, against NumPy."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gluon_edbatch_core.plan.plan import Read
from gluon_edbatch_core.plan.rows import distinct, note_same, rows_read, words

KEYS = st.lists(st.sampled_from([0, 1, 2, 3, 7, 100_000]), max_size=12).map(
    lambda keys: np.array(keys, np.int64)
)
BOUNDS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4), st.booleans()), max_size=5)


def columns(bounds):
    begin = np.array([first for first, _, _ in bounds], np.int64)
    end = begin + np.array([count for _, count, _ in bounds], np.int64)
    return np.array([gather for _, _, gather in bounds], bool), begin, end


@given(BOUNDS, st.booleans())
def test_rows_that_batches_read(bounds, has_same):
    gather, begin, end = columns(bounds)
    indices = np.array([4, 4, 0, 9, 2, 1, 8, 3, 5, 7], np.int32)
    same = np.array([0, 0, 2, 0, 2, 5, 6, 7, 7, 9]) if has_same else None
    slices = [np.arange(first, last) for first, last in zip(begin, end)]
    read = [indices[rows] if by else rows for rows, by in zip(slices, gather)]
    wanted = np.concatenate([*read, []]).astype(np.int64)
    found = rows_read(indices, Read(0, gather, begin, end), same)
    np.testing.assert_array_equal(found, wanted if same is None else same[wanted])


@given(KEYS)
def test_distinct_keys_in_the_order_in_which_they_come(keys):
    first, which = distinct(keys)
    assert keys[first].tolist() == list(dict.fromkeys(keys.tolist()))
    np.testing.assert_array_equal(keys[first][which], keys)


@given(KEYS, st.randoms(use_true_random=False))
def test_rows_made_of_the_same_are_the_first_of_them(keys, random):
    rows = np.array(random.sample(range(20), len(keys)), np.int64)
    same = np.arange(20)
    note_same(same, rows, keys)
    wanted = np.arange(20)
    for row, key in zip(rows.tolist(), keys.tolist()):
        wanted[row] = rows[keys.tolist().index(key)]
    np.testing.assert_array_equal(same, wanted)


def test_words_are_whole_numbers_that_stand_for_themselves():
    given = np.array([0, 3, 99, 3], np.float32)
    np.testing.assert_array_equal(words(given, 100), [0, 3, 99, 3])
    for other in (100, 0.5, -1, -0.0, np.nan, np.inf, 1e30):
        assert words(np.append(given, np.float32(other)), 100) is None
    assert len(words(given[:0], 100)) == 0
