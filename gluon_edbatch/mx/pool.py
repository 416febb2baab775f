"""Reuse the memory of evaluations for later ones.

MXNet returns CPU memory to the system when an array is freed, and pools GPU memory itself. Memory
is reused only when no array outside refers to it. The engine orders reads of old contents before
writes of new ones.
"""

import bisect
import itertools
import math
import threading
from collections import deque
from typing import Any, Optional

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from .arrays import empty, reshaped, rows_of

_SMALLEST = 1 << 16  # bytes; below, the C library keeps memory itself
_DECAY = 0.999  # of the peak, by which the pool is bounded, with each piece taken


class Memory:
    """An array whose memory is reused when the last reference to this object goes.

    Queued operators may still read old contents, so only operators may write it. Python may write
    `idle` memory, which the engine does not use any more.
    """

    __slots__ = ('array', 'shown', 'handed', '_pool', '_ticket')

    def __init__(self, shape: tuple[int, ...], dtype: Any, ctx: mx.Context, idle: bool = False):
        self._ticket: Optional[int] = None
        self.shown = False  # a user may have a view of it: then it is never handed on
        # Users that may have handed the memory to the engine and did not see the end: a thread adds
        # its own entry, and removes it, by one step of Python each.
        self.handed: list[Any] = [] if idle else [None]
        size = math.prod(shape)
        if ctx.device_type != 'cpu' or size * np.dtype(dtype).itemsize < _SMALLEST:
            self.array, self.handed = empty(shape, dtype, ctx), []
            return
        self._pool = _pool
        self._ticket = _pool.ticket()  # before the piece, or an interrupt would leave it lent
        piece = _pool.take(self._ticket, (rounded(size), np.dtype(dtype), ctx), idle)
        self.array = reshaped(rows_of(piece, 0, size), shape)

    def __del__(self):
        ticket = getattr(self, '_ticket', None)
        if ticket is not None:  # it has none after an early interrupt
            self._pool.give_back(ticket, not self.shown, self.idle)

    @property
    def idle(self) -> bool:
        """Whether the engine does not use the memory."""
        return not self.handed


def rounded(size: int) -> int:
    """Return a size at most an eighth larger, so that memory fits arrays of about this size."""
    step = 1 << max(0, size.bit_length() - 4)
    return -(-size // step) * step


class _Pool:
    """Keep free pieces of memory, and pieces that are lent.

    The pool refers to lent pieces, so the garbage collector never finalizes a piece together with
    its `Memory`. Pieces come back whenever and wherever that collector runs, so `give_back` takes
    no lock, and the next `take` does the rest.

    An interrupt may come anywhere. It may lose a piece, but a later `take` works, no piece is lent
    twice, and free memory is never counted too high.
    """

    def __init__(self):
        self._lock = threading.Lock()
        self._tickets = itertools.count()
        self._lent: dict[int, tuple[tuple, NDArray]] = {}
        self._returned: deque[tuple[int, bool, bool]] = deque()
        # (dtype, ctx, idle) -> (size, ticket of the last use, piece), the smallest first
        self._free: dict[tuple, list[tuple[int, int, NDArray]]] = {}
        self._free_bytes = self._lent_bytes = 0
        self._peak = 0.0

    def ticket(self) -> int:
        """Return a ticket: a number for taking one piece of memory and giving it back."""
        return next(self._tickets)

    def take(self, ticket: int, key: tuple, idle: bool) -> NDArray:
        """Return a piece of (size, dtype, ctx) or somewhat more, from idle ones or from others."""
        with self._lock:
            self._settle()
            size, dtype, ctx = key
            pieces = self._free.get((dtype, ctx, idle), [])
            fitting = bisect.bisect_left(pieces, (size,))
            if fitting < len(pieces) and pieces[fitting][0] <= 2 * size:
                size = pieces[fitting][0]
                self._free_bytes -= _bytes((size, dtype, ctx))
                piece = pieces.pop(fitting)[2]
            else:
                piece = empty((size,), dtype.type, ctx)
            self._lent[ticket] = (size, dtype, ctx), piece
            self._lent_bytes += _bytes((size, dtype, ctx))
            self._peak = max(self._peak * _DECAY, self._lent_bytes)
            return piece

    def give_back(self, ticket: int, reusable: bool, idle: bool) -> None:
        """Take back the memory that was lent for a ticket, if any. Others may still see it unless
        `reusable`, and the engine may use it unless `idle`."""
        self._returned.append((ticket, reusable, idle))

    def _settle(self) -> None:
        while self._returned:
            ticket, reusable, idle = self._returned[0]
            key, piece = self._lent.pop(ticket, (None, None))
            if key is not None:
                self._lent_bytes -= _bytes(key)
            if key is not None and reusable:
                free = self._free.setdefault((*key[1:], idle), [])
                bisect.insort(free, (key[0], ticket, piece))
                self._free_bytes += _bytes(key)
            self._returned.popleft()
        while self._free_bytes > self._peak:  # sizes that are not asked for any more
            kind, pieces = min(
                ((kind, pieces) for kind, pieces in self._free.items() if pieces),
                key=lambda item: min(ticket for _, ticket, _ in item[1]),
            )
            oldest = min(pieces, key=lambda piece: piece[1])
            self._free_bytes -= _bytes((oldest[0],) + kind[:2])
            pieces.remove(oldest)


def _bytes(key) -> int:
    return key[0] * key[1].itemsize


_pool = _Pool()
