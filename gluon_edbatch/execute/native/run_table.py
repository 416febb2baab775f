"""Write the table of a run, as the native operators read it (``src/program.h``)."""

from collections.abc import Sequence

import numpy as np

from ...plan.plan import Part, Plan

SEED, WORKSPACE = 3, 4  # the words for noise's seed, and for the workspace's elements once known


def make_table(
    start: np.ndarray,
    programs: Sequence[np.ndarray],
    plan: Plan,
    parts: Sequence[Part],
    slots: dict[int, int],
    run: Sequence[int],
) -> np.ndarray:
    """Return the words of a run's table.

    They are the words at its `start`, those of this `run`, and for each part its shape. The
    programs of the parts follow, each with its batches as columns of numbers, and then the rows
    that batches read by index (int32). `slots` maps arenas of the plan to those of the run.
    """
    shapes = [0, *run]
    columns = [start, np.empty(0, np.int64)]
    for (group, begin, end), words in zip(parts, programs):
        # The unpadded ragged arguments of a group share the parents of the first one.
        ragged = next((read for read in group.reads if read.parents is not None), None)
        shapes += [len(group.reads), len(group.writes), ragged is not None, end - begin]
        own = [group.numbers, group.rows]
        if ragged is not None:
            own += [ragged.end - ragged.begin, ragged.parents]
        for read in group.reads:
            shapes += [slots[read.arena], plan.private[read.arena]]
            own += [read.gather, read.begin]
        for write in group.writes:
            shapes.append(slots[write.arena])
            own.append(write.begin)
        columns.append(words)
        columns += own if end - begin == group.size else [each[begin:end] for each in own]
    shapes[0] = len(shapes) - 1
    columns[1] = np.array(shapes)
    indices = np.concatenate([plan.indices, plan.indices[: len(plan.indices) % 2]])
    return np.concatenate([*columns, indices.view(np.int64)])
