"""Split batches of sentences that would be mostly padding.

A backend that pads lays a batch out as (calls, longest, ...). One long sentence among many short
ones would cost as much as if all were long.
"""

from collections.abc import Sequence

import numpy as np

from ..schedule.protocol import Schedule

_MOST = 2  # times as many positions as are no padding
_FEW = 1024  # positions that cost less than another batch


def without_much_padding(schedule: Schedule, lengths: np.ndarray) -> Schedule:
    """Return a schedule whose batches are, with their padding, at most twice as large, or small.
    `lengths`, (n,), has the length to which each node's arguments are padded, or 0."""
    batches: list[np.ndarray] = []
    for batch in schedule:
        batches += _parts(batch, lengths[batch])
    if len(batches) == len(schedule):
        return schedule
    split = Schedule.from_batches(batches)
    return Schedule(split.order, split.bounds, schedule.learn_s, schedule.unseen_states)


def _parts(batch: np.ndarray, lengths: np.ndarray) -> Sequence[np.ndarray]:
    """Return the batch, or parts whose sentences are at least half as long as the longest."""
    if len(batch) * lengths.max() <= max(_FEW, _MOST * lengths.sum()):
        return [batch]
    octaves = np.ceil(np.log2(np.maximum(lengths, 1))).astype(int)
    return [batch[octaves == octave] for octave in np.unique(octaves)]
