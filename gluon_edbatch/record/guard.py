"""Parameters and input arrays as they were when recorded: copied only if touched too early.

A recorded call reads its arrays later. Copying them all at once would cost a pass over every
parameter, and MXNet tells nobody when an array is written. So while a recording has calls to
run, the arrays that these read carry the class `GuardedArray`; the first access from anywhere
else gives each such recording a copy, then the array is an ordinary one again.
"""
import ctypes
import threading
import weakref
from typing import Dict

from mxnet.base import _LIB, NDArrayHandle, check_call
from mxnet.ndarray import NDArray
from mxnet.ndarray.ndarray import NDArrayBase

_handle = NDArrayBase.handle  # the slot itself, which GuardedArray shadows
_lock = threading.RLock()
# id of an array -> who reads it; the owners hold the arrays
_guards: Dict[int, 'weakref.WeakSet[ArrayGuards]'] = {}


def raw_handle(array: NDArray) -> NDArrayHandle:
    """The handle of an array without a touch, for a use that neither reads nor writes it."""
    return _handle.__get__(array)


def detached(array: NDArray) -> NDArray:
    """A new NDArray object on the same memory that no tape knows; does not count as a touch."""
    handle = NDArrayHandle()
    check_call(_LIB.MXNDArrayDetach(_handle.__get__(array), ctypes.byref(handle)))
    return NDArray(handle)


class GuardedArray(NDArray):
    """An NDArray that a pending recording reads. Looking at its handle ends the guard."""

    __slots__ = ()

    @property
    def handle(self):
        """The array's handle, for whoever is about to read or write it."""
        _touched(self)
        return _handle.__get__(self)

    @handle.setter
    def handle(self, value):
        _touched(self)
        _handle.__set__(self, value)

    def __del__(self):
        check_call(_LIB.MXNDArrayFree(_handle.__get__(self)))


def _touched(array: NDArray) -> None:
    with _lock:
        owners = _guards.pop(id(array), ())
        if array.__class__ is GuardedArray:
            array.__class__ = NDArray
        for owner in owners:
            owner.keep_copy(array)


class ArrayGuards:
    """The arrays that one recording reads.

    Attributes
    ----------
    arrays : dict
        id -> the user's array.
    """

    def __init__(self):
        self.arrays: Dict[int, NDArray] = {}
        self._copies: Dict[int, NDArray] = {}

    def watch(self, array: NDArray) -> None:
        """From now on, keep this array's present values at hand."""
        key = id(array)
        if key in self.arrays:
            return
        with _lock:
            self.arrays[key] = array
            if array.__class__ in (NDArray, GuardedArray):
                array.__class__ = GuardedArray
                _guards.setdefault(key, weakref.WeakSet()).add(self)
            else:  # sparse arrays and the like have other layouts
                self.keep_copy(array)

    def keep_copy(self, array: NDArray) -> None:
        """Remember the values that `array` has now."""
        source = detached(array)
        self._copies[id(array)] = source.copy()

    def values(self, array: NDArray) -> NDArray:
        """An array, unknown to any tape, with the values that `array` had when first watched."""
        copied = self._copies.get(id(array))
        return detached(array) if copied is None else copied

    def release(self) -> None:
        """End all guards; later changes of the arrays are nobody's business any more."""
        with _lock:
            for key, array in self.arrays.items():
                owners = _guards.get(key)
                if owners is not None:
                    owners.discard(self)
                    if not owners:
                        del _guards[key]
                        array.__class__ = NDArray
            self.arrays.clear()
            self._copies.clear()

    __del__ = release
