"""Small runs forward, and what they gather, in the thread that asks for them: MXNet's engine hears
nothing of it.

To hand an operator to the engine, to have a thread of it woken, and to wait for that takes up to
two hundred microseconds: a single tree computes for fifty. What the engine is for, that nobody
reads or writes too early, is seen to otherwise. The arenas are new, and nobody else has them;
parameters are guarded (see `mx.guard`), so that whoever is about to write to one waits.
"""

import ctypes
from functools import lru_cache
from typing import Any, Sequence

import numpy as np
from mxnet.base import _LIB, MXNetError, NDArrayHandle, check_call
from mxnet.ndarray import NDArray

from ...mx.guard import Watched, no_touches
from . import library

__all__ = ['gather_now', 'run_now']

_MOST_NANOSECONDS = 200_000.0  # for longer Python does better to run ahead of the engine
_MOST_WORDS = 1 << 13  # which tell at once what takes longer
_LONGEST_MESSAGE = 256
_FUNCTIONS = _LIB.MXNDArrayGetShape, _LIB.MXNDArrayGetData  # as ``src/now.h`` wants them
_IN_C = (ctypes.c_void_p * len(_FUNCTIONS))(
    *[ctypes.cast(function, ctypes.c_void_p) for function in _FUNCTIONS]
)


def run_now(words: np.ndarray, weights: Sequence[Watched], arenas: Sequence[NDArray]) -> bool:
    """Run batches forward; when this returns their results are in the arenas.

    Parameters
    ----------
    words : numpy.ndarray
        int64, the run's table.
    weights : sequence of Watched
        Dense parameters on the CPU.
    arenas : sequence of NDArray
        On the CPU, with no operator under way that writes or reads them.

    Returns
    -------
    bool
        False if that would take long, or somebody is about to use a parameter: nothing is done
        then.
    """
    if len(words) > _MOST_WORDS:
        return False
    handles = [each.handle() for each in weights]
    _wait(handles)  # not under the lock: what writes a parameter may need that
    with no_touches():
        if any([each.touched for each in weights]):
            return False
        handles += [array.handle for array in arenas]
        return bool(_call('edb_run_now', words, handles, ctypes.c_double(_MOST_NANOSECONDS)))


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
    _wait(handles)  # a user may have written to them
    handles.append(target.handle)
    _call('edb_gather_now', words, handles, ctypes.c_int64(len(handles)))


def _wait(handles: Sequence[NDArrayHandle]) -> None:
    """For what was handed to the engine that writes these arrays: most often there is nothing."""
    for handle in handles:
        check_call(_LIB.MXNDArrayWaitToRead(handle))


def _call(name: str, words: np.ndarray, handles: Sequence[NDArrayHandle], own: Any) -> int:
    """Call a function of the library with an argument of its own; gives what it does."""
    message = ctypes.create_string_buffer(_LONGEST_MESSAGE)
    result: int = _function(name)(
        _IN_C,
        ctypes.c_void_p(words.ctypes.data),
        ctypes.c_int64(len(words)),
        (NDArrayHandle * len(handles))(*handles),
        own,
        message,
        ctypes.c_int64(_LONGEST_MESSAGE),
    )
    if result < 0:
        raise MXNetError(f"gluon_edbatch's native operators: {message.value.decode()}")
    return result


@lru_cache(maxsize=None)
def _function(name: str) -> Any:
    return getattr(ctypes.CDLL(str(library.loaded())), name)
