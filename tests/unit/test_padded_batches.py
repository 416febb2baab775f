"""Batches of sentences are split where most of them would be padding."""

import numpy as np
import pytest

from gluon_edbatch_core.plan.padded_batches import without_much_padding
from gluon_edbatch_core.schedule.protocol import Schedule


@pytest.mark.parametrize(
    'lengths, expected',
    [
        ([3, 4, 5, 6, 9], [[0, 1], [2, 3, 4]]),  # not too much padding
        ([0, 0, 50, 1, 1], [[0, 1], [2, 3, 4]]),  # few positions
        ([0, 0, 5000, 1, 1], [[0, 1], [3, 4], [2]]),
        ([9, 9, 3, 1000, 4], [[0, 1], [2, 4], [3]]),
    ],
)
def test_what_is_split(lengths, expected):
    schedule = Schedule.from_batches([np.array([0, 1]), np.array([2, 3, 4])])
    split = without_much_padding(schedule, np.array(lengths))
    assert [batch.tolist() for batch in split] == expected
    assert (split is schedule) == (len(expected) == 2)


def test_parts_hold_sentences_of_similar_length():
    lengths = np.random.RandomState(0).randint(1, 1000, 200)
    lengths[0] = 10**6
    schedule = Schedule(np.arange(200, dtype=np.int32), np.array([0, 200]), 1.5, 3)
    split = without_much_padding(schedule, lengths)
    assert sorted(split.order.tolist()) == list(range(200))
    assert (split.learn_s, split.unseen_states) == (1.5, 3)
    for batch in split:
        assert batch.tolist() == sorted(batch.tolist())
        assert len(batch) * lengths[batch].max() <= 2 * lengths[batch].sum()
