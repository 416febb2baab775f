"""Small runs forward in the thread that asks for them, without MXNet's engine.

To hand an operator to the engine, to wake one of its threads and to wait for it takes up to 200
microseconds; a single tree computes for 50. Nobody reads or writes too early: the arenas are new,
and whoever is about to write to a guarded parameter waits (see `mx.mutation_guard`).
"""

from collections.abc import Sequence

import numpy as np
from mxnet.ndarray import NDArray

from ...mx import fresh
from ...mx.mutation_guard import Watched, no_touches
from .library import address

_MOST_WORDS = 1 << 13  # which tell at once what takes longer than `kMostNanoseconds` in C++


def run_now(words: np.ndarray, weights: Sequence[Watched], arenas: Sequence[NDArray]) -> bool:
    """Run batches forward; when this returns their results are in the arenas.

    Parameters
    ----------
    words : numpy.ndarray
        int64, the run's table.
    weights : sequence of Watched
        Dense parameters on the CPU.
    arenas : sequence of NDArray
        On the CPU: new ones, and such as are read only.

    Returns
    -------
    bool
        False, and nothing is done, if it would take long or a parameter is about to be used.
    """
    if len(words) > _MOST_WORDS:
        return False
    handles = [each.handle() for each in weights]
    handles += [array.handle for array in arenas]
    fresh.wait(handles)  # not under the lock: what writes a parameter may need that
    with no_touches():
        if any([each.touched for each in weights]):
            return False
        return fresh.run(address('edb_run_now'), words, handles)
