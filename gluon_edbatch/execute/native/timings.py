"""Where the native operators' time goes; with ``GLUON_EDBATCH_STOPWATCH=1``, for benchmarks."""

import ctypes
from typing import Optional

from . import library

WORKS = (
    'products',
    'products towards inputs',
    'products towards weights',
    'packing weights',
    'gathers',
    'elementwise',
    'zeros',
    'all',
)


def seconds() -> Optional[dict[str, float]]:
    """Seconds by kind of work since the last call, of runs that are finished; None if the native
    operators were compiled without a stopwatch, or cannot be."""
    path = library.loaded()
    if path is None:
        return None
    loaded = ctypes.CDLL(str(path))
    if not hasattr(loaded, 'edb_stopwatch'):
        return None
    nanoseconds = (ctypes.c_int64 * len(WORKS))()
    loaded.edb_stopwatch(nanoseconds)
    return {work: 1e-9 * taken for work, taken in zip(WORKS, nanoseconds)}
