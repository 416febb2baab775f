"""How far Python may run ahead of the engine.

Handing over a minibatch takes less time than computing it, and a loop that never asks for a value
would queue any number of them, each with its memory. Two under way are enough to keep the engine
busy.
"""

import threading
from collections import deque
from contextlib import suppress
from typing import Deque

import mxnet as mx
from mxnet.ndarray import NDArray

AHEAD = 2  # evaluations


class _Fences(threading.local):
    def __init__(self):
        self.fences: Deque[NDArray] = deque()


_local = _Fences()
_who_looks_will_hear_of_it = suppress(mx.base.MXNetError)  # at values of an evaluation that failed


def wait_for_engine() -> None:
    """To be called before an evaluation: wait until no more than `AHEAD` are under way."""
    while len(_local.fences) >= AHEAD:
        with _who_looks_will_hear_of_it:
            _local.fences.popleft().wait_to_read()


def wait_for_all() -> None:
    """Wait until nothing is under way, in whichever thread it was begun."""
    with _who_looks_will_hear_of_it:
        mx.nd.waitall()


def under_way(written: NDArray) -> None:
    """To be called after it, with something that it writes late."""
    _local.fences.append(written._slice(0, 1).copy())  # the row alone, not its arena
