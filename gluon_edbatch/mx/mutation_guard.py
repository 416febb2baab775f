"""Keep parameters and large inputs as they were when recorded; copy them only if touched too early.

A recorded call reads its arrays later, and MXNet does not report writes. So the arrays that waiting
calls read get the class `GuardedArray`. The first access from elsewhere gives each such recording a
copy; then the array is an ordinary one again.
"""

import os
import threading
import weakref
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any, Callable, Optional

import mxnet as mx
from mxnet.base import _LIB, NDArrayHandle, check_call
from mxnet.ndarray import NDArray

from .arrays import alias, detached, handle_slot, raw_handle

_lock = threading.RLock()
# A child must not find it taken for good by a thread that it does not have.
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)
# id of an array -> who watches it; these hold the array, and strike themselves off when they go
_guards: dict[int, list['weakref.ref[MutationGuard]']] = {}


def _of_alias(name: str) -> property:
    return property(lambda array: getattr(alias(array), name), doc=getattr(NDArray, name).__doc__)


class _Guarded:
    """An array that a pending recording reads. Reading its handle ends the guard."""

    __slots__ = ()

    @property
    def handle(self):
        """The array's handle, for code that is about to read or write the array."""
        _touched(self)
        return handle_slot.__get__(self)

    @handle.setter
    def handle(self, value):
        _touched(self)
        handle_slot.__set__(self, value)

    # What does not look at the contents is no touch: models ask weights for their shapes.
    shape, dtype, context, stype = map(_of_alias, ('shape', 'dtype', 'context', 'stype'))
    ctx = context

    def __del__(self):
        check_call(_LIB.MXNDArrayFree(handle_slot.__get__(self)))


class GuardedArray(_Guarded, NDArray):
    """An NDArray that a pending recording reads."""

    __slots__ = ()


class GuardedNumpyArray(_Guarded, mx.np.ndarray):
    """An ``mx.np.ndarray`` that a pending recording reads."""

    __slots__ = ()


_GUARDED = {NDArray: GuardedArray, mx.np.ndarray: GuardedNumpyArray}
_PLAIN: dict[type, type] = {guarded: plain for plain, guarded in _GUARDED.items()}
PLAIN_OR_GUARDED = (*_GUARDED, *_PLAIN)  # classes of arrays that can be watched


def no_touches() -> AbstractContextManager[Any]:
    """Return a context manager that makes other threads wait before they touch a guarded array.

    Inside, do not wait for anything that runs Python: it may wait to touch such an array.
    """
    return _lock


def _touched(array: NDArray) -> None:
    with _lock:
        owners = _guards.pop(id(array), ())
        array.__class__ = _PLAIN.get(array.__class__, array.__class__)
        for reference in owners:
            watched = reference()
            if watched is not None:
                watched.keep_copy()


class MutationGuard:
    """Guard the present values of an array; `touched` is called before others use the array."""

    __slots__ = ('array', 'copy', '_touched', '_reference', '__weakref__')

    def __init__(self, array: NDArray, touched: 'weakref.WeakMethod[Callable[[], None]]'):
        self.array = array  # the user's
        self.copy: Optional[NDArray] = None  # its values when this was made, if touched since
        self._touched = touched
        self._reference: Any = weakref.ref(self)  # None when it is released
        self.watch_again()

    def watch_again(self) -> None:
        """Guard the present values of the array from now on."""
        with _lock:
            self.copy = None
            cls = self.array.__class__
            guarded = _GUARDED.get(cls)
            if guarded is None and cls not in _PLAIN:  # sparse arrays and others have other layouts
                self.keep_copy()
                return
            # First the owner: `release` ends both, if an interrupt comes between them.
            owners = _guards.setdefault(id(self.array), [])
            if self._reference not in owners:
                owners.append(self._reference)
            if guarded is not None:
                self.array.__class__ = guarded

    def keep_copy(self) -> None:
        """Copy the values, as others are about to use the array."""
        self.copy = detached(self.array).copy()
        touched = self._touched()
        if touched is not None:
            touched()

    @property
    def touched(self) -> bool:
        """Return whether others may have changed the array, or cannot be kept from it."""
        return self.copy is not None or self.array.__class__ not in _PLAIN

    def values(self) -> NDArray:
        """Return an array, unknown to any tape, with the guarded values."""
        return detached(self.array) if self.copy is None else self.copy

    def handle(self) -> NDArrayHandle:
        """Return the handle of an array with the guarded values, to be read immediately: it may be
        the user's array, and on a tape."""
        return raw_handle(self.array if self.copy is None else self.copy)

    def release(self) -> None:
        """End the guard: later changes of the array are not noticed.

        An interrupt may come after any step; the next call does what is left.
        """
        if getattr(self, '_reference', None) is not None:  # none after an early interrupt
            release_all([self])

    def __del__(self):
        try:
            self.release()
        except KeyboardInterrupt:  # Python prints it and goes on: nobody else would end the guard
            self.release()
            raise


def release_all(guards: Iterable[MutationGuard]) -> None:
    """End guards, as `MutationGuard.release` does one: a model has many."""
    with _lock:
        for guard in guards:
            array, reference = guard.array, guard._reference
            owners = _guards.get(id(array), [])
            if reference in owners:
                owners.remove(reference)
            if not owners:
                _guards.pop(id(array), None)
                array.__class__ = _PLAIN.get(array.__class__, array.__class__)
            guard._reference = None
