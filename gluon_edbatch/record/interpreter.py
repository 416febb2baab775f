"""Access frames, scopes and new objects of Python's interpreter; ``interpreter.pxd`` does so in C.

Compiled modules use the C form, and ``calls.py`` and ``scopes.py`` use this one otherwise.
"""

import sys
import threading
from contextvars import ContextVar
from types import FrameType
from typing import Any

from .lazy import RAGGED, VALUES, LazyArray, RaggedArray
from .sites import PASSED, kind_of, place_of, through_library

_new = LazyArray.__new__
_entered: ContextVar = ContextVar('gluon_edbatch_scope', default=None)
thread = threading.get_ident


def recording() -> Any:
    """Return what `record_into` set in this context, a thread's or an asyncio task's, or None."""
    return _entered.get()


def record_into(value: Any) -> None:
    """Set the scope that this context, a thread's or an asyncio task's, records into, or None."""
    _entered.set(value)


def get(known: dict[Any, Any], key: Any) -> Any:
    """Return ``known.get(key)``; the C form looks by identity while the dict is unchanged."""
    return known.get(key)


def any_in(hooks: Any) -> bool:
    """Return whether there are any hooks, ``bool(hooks)``."""
    return bool(hooks)


def new_value(numpy: bool, store, value: int) -> LazyArray:
    """Return ``VALUES[numpy](store, value)`` without the call of ``__init__``."""
    array = _new(VALUES[numpy])
    array._store = store
    array._id = value
    return array


def new_pair(numpy: bool, first, second, value: int) -> tuple[LazyArray, LazyArray]:
    """Return the two results of a call as lazy values."""
    return new_value(numpy, first, value), new_value(numpy, second, value + 1)


def new_nested(numpy: bool, nested: Any, stores: list[Any], base: int) -> Any:
    """Return lazy values nested as `nested`, whose leaves are the indices of a call's results."""
    if type(nested) is int:
        return new_value(numpy, stores[nested], base + nested)
    return type(nested)([new_nested(numpy, item, stores, base) for item in nested])


def new_ragged(numpy: bool, store, values: list[int]) -> RaggedArray:
    """Return a ragged argument of some values, given by their numbers; all have one spec."""
    return RAGGED[numpy](store, values)


def user_frame() -> FrameType:
    """Return the nearest frame outside this package and MXNet, the user's or a library's."""
    frame = sys._getframe(1)
    while kind_of(frame.f_code, frame.f_globals) == PASSED and frame.f_back is not None:
        frame = frame.f_back
    return frame


def code_of(frame: FrameType) -> int:
    """Return the number for a frame's code that `sites.site_at` takes."""
    user, library = place_of(frame)
    if library is None:
        return id(user.f_code)
    return through_library(library.f_code, user.f_code, user.f_lasti)


def instruction_of(frame: FrameType) -> int:
    """Return the index of the instruction that a frame runs."""
    return frame.f_lasti


def frames_pass(serial: int) -> bool:
    """Return whether `let_frames_pass` was called for all frames that run; False if unknown."""
    return False


def let_frames_pass(serial: int) -> None:
    """Remember the code of all frames that run, under a number that is used once."""


def prepare_values(lazy: Any, numpy: type, ragged: type, numpy_ragged: type) -> None:
    """Replace ``__del__`` of lazy values, as the base class's frees a handle."""
    lazy.__del__ = _nothing


def _nothing(*_: Any) -> None:
    """Do nothing: only the C form needs this preparation."""


prepare_frames = prepare_scopes = prepare_calls = _nothing
redirect = direct_type = no_direct_types = _nothing
