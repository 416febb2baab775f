"""Small runs forward, and what they gather, in the thread that asks for them: MXNet's engine hears
nothing of it.

To hand an operator to the engine, to have a thread of it woken, and to wait for that takes up to
two hundred microseconds: a single tree computes for fifty. What the engine is for, that nobody
reads or writes too early, is seen to otherwise. The arenas are new, and nobody else has them;
parameters are guarded (see `mx.mutation_guard`), so that whoever is about to write to one waits.
"""

import ctypes
from collections.abc import Sequence
from functools import cache

import numpy as np
from mxnet.ndarray import NDArray

from ...mx import fresh
from ...mx.direct import call
from ...mx.mutation_guard import Watched, no_touches
from .library import function

__all__ = ['gather_now', 'run_now']

_MOST_NANOSECONDS = 200_000.0  # for longer Python does better to run ahead of the engine
_MOST_WORDS = 1 << 13  # which tell at once what takes longer
_MOST_ARRAYS = 1 << 8  # that `fresh.run` takes


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
        False if that would take long, or somebody is about to use a parameter: nothing is done
        then.
    """
    if len(words) > _MOST_WORDS or len(weights) + len(arenas) > _MOST_ARRAYS:
        return False
    handles = [each.handle() for each in weights]
    handles += [array.handle for array in arenas]
    fresh.wait(handles)  # not under the lock: what writes a parameter may need that
    with no_touches():
        if any([each.touched for each in weights]):
            return False
        return fresh.run(_address('edb_run_now'), words, handles, _MOST_NANOSECONDS)


def gather_now(words: np.ndarray, sources: Sequence[NDArray], target: NDArray) -> None:
    """Copy rows of some arrays to another one; when this returns they are there.

    Parameters
    ----------
    words : numpy.ndarray
        int64, see ``src/now.h``.
    sources : sequence of NDArray
        On the CPU.
    target : NDArray
        On the CPU, with no operator under way that writes or reads it.
    """
    handles = [source.handle for source in sources]
    fresh.wait(handles)  # a user may have written to them
    handles.append(target.handle)
    call(function('edb_gather_now'), words, handles, ctypes.c_int64(len(handles)))


@cache
def _address(name: str) -> int:
    return ctypes.cast(function(name), ctypes.c_void_p).value or 0
