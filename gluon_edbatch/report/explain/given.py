"""Explain how the users' arrays were given, and where they cost more than their calls."""

from collections import Counter
from enum import Enum
from typing import Any

import numpy as np

from ...mx.mutation_guard import MutationGuard
from ...record.inputs import GivenArray
from ...record.recording import Recording
from .explanation import Cause, Reason, counted


class How(Enum):
    """Ways to give an array to a recorded call."""

    NUMPY = 'constant or NumPy array'  # `nd.zeros` in a scope is a constant
    LARGE = 'large NumPy array, copied'
    READ = 'NDArray, read at once'
    WATCHED = 'large NDArray, not copied'
    ENGINE = "MXNet array, copied by MXNet's engine"


_ADVICE = {
    How.LARGE: 'Give large arrays as NDArrays (mx.nd.array, before the scope): these are copied '
    'only where somebody writes to them.',
    How.ENGINE: 'To copy one takes ten times as long as to record a call: give NumPy arrays '
    '(x.asnumpy(), once), which are read at once.',
}


def given_in_all(recording: Recording) -> tuple[tuple[str, int], ...]:
    """Return how many arrays, equal ones counted once, and numbers were given in each way."""
    counts = Counter(how.value for how in _ways(recording))
    if recording.scalars:
        counts['number'] = len(recording.scalars)
    return tuple(counts.most_common())


def costs_by_place(recording: Recording, place: np.ndarray) -> dict[int, list[Reason]]:
    """Return the reasons, by line, why calls take longer to record than necessary.

    `place` has the line's number for each call."""
    ways, calls = _ways(recording), np.bincount(place).tolist()
    args = recording.node_args.since(0)
    reads = np.flatnonzero((args < 0) & (args % 2 == 0))
    arrays, first = np.unique(-args[reads] // 2 - 1, return_index=True)
    readers = np.searchsorted(recording.node_ends.since(0), reads[first], side='right')
    found = Counter(
        (number, ways[array])
        for array, number in zip(arrays.tolist(), place[readers].tolist())
        if ways[array] in _ADVICE
    )
    reasons: dict[int, list[Reason]] = {}
    for (number, how), count in found.items():
        if 2 * count >= calls[number]:
            text = f'{counted(how.value, count)} for {counted("call", calls[number])}'
            advice = _ADVICE[how]
            reasons.setdefault(number, []).append(Reason(Cause.INPUT, text, advice, (how.value,)))
    return reasons


def _ways(recording: Recording) -> list[How]:
    return [_way(array, recording.copied_below) for _, array in recording.arrays]


def _way(array: Any, large: int) -> How:
    if not isinstance(array, GivenArray):
        return How.NUMPY if array.size < large else How.LARGE
    if isinstance(array.values, np.ndarray):
        return How.READ
    return How.WATCHED if isinstance(array.values, MutationGuard) else How.ENGINE
