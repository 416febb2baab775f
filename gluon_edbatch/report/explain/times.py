"""Which lines the time of evaluations goes to, where a scope measured it."""

from collections.abc import Iterable

import numpy as np

from ...execute.counts import Counts
from ...graph.collect import form_table
from ...record.recording import Recording


def seconds_of_calls(recording: Recording) -> np.ndarray:
    """How long each call took, of each batch a share by rows; 0 where nobody measured it."""
    counts: Iterable[Counts] = recording.evaluator.counts
    rows = form_table(recording).rows[recording.node_forms.since(0)]
    seconds = np.zeros(len(rows))
    for count in counts:
        of_batch = count.clock.seconds() if count.clock else np.zeros(count.plan.size)
        for group in count.plan.groups:
            calls, sizes = count.calls[group.nodes], np.diff(group.bounds)
            in_batch = np.add.reduceat(rows[calls], group.bounds[:-1])
            seconds[calls] += rows[calls] * np.repeat(of_batch[group.numbers] / in_batch, sizes)
    return seconds
