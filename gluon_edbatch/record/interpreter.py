"""What ``calls.py`` and ``scopes.py`` need of the interpreter, as Python; ``interpreter.pxd`` says
the same in C.

Compiled, they use the C form and never run what is here.
"""

import sys
import threading
from contextvars import ContextVar
from types import FrameType
from typing import Any

from .lazy import VALUES, LazyArray, RaggedArray
from .sites import PASSED, kind_of, place_of, through_library

_new = LazyArray.__new__
_entered: ContextVar = ContextVar('gluon_edbatch_scope', default=None)
thread = threading.get_ident


def recording() -> Any:
    """What `record_into` was given in this context, a thread's or an asyncio task's, or None."""
    return _entered.get()


def record_into(value: Any) -> None:
    """Of the scope that this context entered last; None outside."""
    _entered.set(value)


def get(known: dict[Any, Any], key: Any) -> Any:
    """What a dict has for a key, or None; C goes by who the key is, if the dict did not change
    since it was asked for it."""
    return known.get(key)


def any_in(hooks: Any) -> bool:
    """Whether there are any, as ``bool(hooks)``."""
    return bool(hooks)


def new_value(numpy: bool, store, value: int) -> LazyArray:
    """``VALUES[numpy](store, value)`` without the call of ``__init__``."""
    array = _new(VALUES[numpy])
    array._store = store
    array._id = value
    return array


def new_pair(numpy: bool, first, second, value: int) -> tuple[LazyArray, LazyArray]:
    """The two results of a call."""
    return new_value(numpy, first, value), new_value(numpy, second, value + 1)


def new_nested(numpy: bool, nested: Any, stores: list[Any], base: int) -> Any:
    """Lists and tuples of the values of some stores, as `nested` has them of their numbers."""
    if type(nested) is int:
        return new_value(numpy, stores[nested], base + nested)
    return type(nested)([new_nested(numpy, item, stores, base) for item in nested])


def new_ragged(store, values: list[int]) -> RaggedArray:
    """Values of a store, by number, as one argument."""
    return RaggedArray(store, values)


def user_frame() -> FrameType:
    """The nearest frame outside this package and MXNet, the user's or a library's."""
    frame = sys._getframe(1)
    while kind_of(frame.f_code, frame.f_globals) == PASSED and frame.f_back is not None:
        frame = frame.f_back
    return frame


def code_of(frame: FrameType) -> int:
    """What `sites.site_at` takes for the code of such a frame."""
    user, library = place_of(frame)
    if library is None:
        return id(user.f_code)
    return through_library(library.f_code, user.f_code, user.f_lasti)


def instruction_of(frame: FrameType) -> int:
    """The instruction at which a frame is."""
    return frame.f_lasti


def prepare_values(lazy: Any, numpy: type, ragged: type) -> None:
    """The base class's ``__del__`` would ask for a handle to free; a lazy value has none."""
    lazy.__del__ = _nothing


def _nothing(*_: Any) -> None:
    """What needs C: Python finds frames, scopes and types of blocks by itself, and hooked functions
    have other code (see `mx.methods`)."""


prepare_frames = prepare_scopes = prepare_calls = _nothing
redirect = direct_type = no_direct_types = _nothing
