"""How far Python may run ahead of the engine.

A loop that never asks for a value would queue any number of minibatches, each with its memory. What
failed meanwhile is raised here: MXNet raises an error only to whoever waits first.
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
    """To be called before an evaluation: wait until no more than `AHEAD` are under way."""
    while len(_local.fences) >= AHEAD:
        _local.fences.popleft().wait_to_read()


def under_way(written: NDArray) -> None:
    """To be called after it, with something small that it writes late: it is kept until then."""
    _local.fences.append(written)


def last_under_way() -> Optional[NDArray]:
    """That of the evaluation that was handed over last; it may be over since."""
    return _local.fences[-1] if _local.fences else None
