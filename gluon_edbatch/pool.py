"""Memory that evaluations hand on to later ones.

MXNet gives CPU memory back to the system when an array goes, and a minibatch needs some dozen
megabytes: getting them page by page took a fifth of a training step. Memory is handed on only when
nobody outside can see it, and the engine keeps what reads the old contents before what writes new
ones. GPU memory MXNet pools by itself.
"""
import itertools
import threading
from collections import OrderedDict, deque
from typing import Any, Deque, Dict, List, Tuple

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray
from mxnet.ndarray.ndarray import _new_alloc_handle

_SMALLEST = 1 << 16  # bytes; below, the C library keeps memory itself
_DECAY = 0.999       # of the peak, by which the pool is bounded, with each piece taken


class Memory:
    """An array whose memory is handed on when the last reference to this object goes.

    Parameters
    ----------
    shape : tuple of int
    dtype : type
    ctx : mxnet.Context

    Attributes
    ----------
    array : NDArray
        Not initialised. What was in it may still be read by queued operators, so it is to be
        written by operators only.
    shown : bool
        Whether a user may have a view of it: then it is never handed on.
    """

    __slots__ = ('array', 'shown', '_pool', '_ticket')

    def __init__(self, shape: Tuple[int, ...], dtype: Any, ctx: mx.Context):
        size = int(np.prod(shape, dtype=np.int64))
        self.shown = False
        self._ticket = None
        if ctx.device_type != 'cpu' or size * np.dtype(dtype).itemsize < _SMALLEST:
            self.array = NDArray(_new_alloc_handle(tuple(shape), ctx, True, dtype))
            return
        self._pool = _pool
        self._ticket, piece = _pool.take((_rounded(size), np.dtype(dtype), ctx))
        self.array = piece._slice(0, size).reshape(shape)

    def __del__(self):
        if self._ticket is not None:
            self._pool.give_back(self._ticket, not self.shown)


def _rounded(size: int) -> int:
    """At most an eighth more, so that memory fits arrays of about this size."""
    step = 1 << max(0, size.bit_length() - 4)
    return -(-size // step) * step


class _Pool:
    """Pieces that are free, and those that are lent.

    The pool refers to what it has lent, so that the garbage collector never finalizes a piece
    together with the `Memory` that would give it back. Giving back happens whenever and wherever
    that collector runs, so it takes no lock: the next `take` does the rest.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._tickets = itertools.count()
        self._lent: Dict[int, Tuple[tuple, NDArray]] = {}
        self._returned: Deque[Tuple[int, bool]] = deque()
        self._free: 'OrderedDict[tuple, List[NDArray]]' = OrderedDict()  # latest used last
        self._free_bytes = self._lent_bytes = 0
        self._peak = 0.0

    def take(self, key: tuple) -> Tuple[int, NDArray]:
        """A piece of (size, dtype, ctx), and the ticket with which it comes back."""
        with self._lock:
            self._settle()
            pieces = self._free.get(key)
            if pieces:
                piece = pieces.pop()
                self._free_bytes -= _bytes(key)
                self._free.move_to_end(key)
            else:
                size, dtype, ctx = key
                piece = NDArray(_new_alloc_handle((size,), ctx, True, dtype.type))
            ticket = next(self._tickets)
            self._lent[ticket] = key, piece
            self._lent_bytes += _bytes(key)
            self._peak = max(self._peak * _DECAY, self._lent_bytes)
            return ticket, piece

    def give_back(self, ticket: int, reusable: bool) -> None:
        """What was lent is not needed any more; if not `reusable` others may still see it."""
        self._returned.append((ticket, reusable))

    def _settle(self) -> None:
        while self._returned:
            ticket, reusable = self._returned.popleft()
            key, piece = self._lent.pop(ticket)
            self._lent_bytes -= _bytes(key)
            if reusable:
                self._free.setdefault(key, []).append(piece)
                self._free.move_to_end(key)
                self._free_bytes += _bytes(key)
        while self._free_bytes > self._peak:  # sizes that are not asked for any more
            oldest = next(iter(self._free))
            if self._free[oldest]:
                self._free[oldest].pop()
                self._free_bytes -= _bytes(oldest)
            if not self._free[oldest]:
                del self._free[oldest]


def _bytes(key) -> int:
    return key[0] * key[1].itemsize


_pool = _Pool()
