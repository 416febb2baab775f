"""Limit how far Python runs ahead of the engine.

A loop that never reads a value would queue any number of minibatches, each with its memory. Earlier
errors are raised here: MXNet raises an error only in the first wait.
"""

import threading
from collections import deque
from typing import Optional

from mxnet.ndarray import NDArray

AHEAD = 2  # evaluations, which keep the engine busy


class _Fences(threading.local):
    def __init__(self):
        self.fences: deque[NDArray] = deque()


_local = _Fences()


def wait_for_engine() -> None:
    """Wait, before an evaluation, until at most `AHEAD` evaluations are under way."""
    while len(_local.fences) >= AHEAD:
        _local.fences.popleft().wait_to_read()


def under_way(written: NDArray) -> None:
    """Note an evaluation by a small array that it writes late; the array is kept until then."""
    _local.fences.append(written)


def last_under_way() -> Optional[NDArray]:
    """Return the array noted for the last evaluation, which may be over; None without one."""
    return _local.fences[-1] if _local.fences else None
