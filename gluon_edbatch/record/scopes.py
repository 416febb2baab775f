"""Which scope a thread or asyncio task has entered.

Compiled by Cython where a compiler is present, as `calls` is.
"""

import threading
from typing import Any, Optional

from . import interpreter
from .sites import kind_of, through_library

interpreter.prepare_frames(kind_of, through_library)
interpreter.prepare_scopes()


class _ThreadState(threading.local):
    eager: Any = None  # converts arguments while a mixin model runs outside any scope


local = _ThreadState()


class Entered:
    """A scope that a thread or asyncio task has entered."""

    def __init__(self):
        self.outer: Optional[Entered] = None  # the scope around this one, while this one is open
        self.thread = interpreter.thread()  # that entered it
        self.closed = False

    def call_block(self, block, args):
        """What a call of a block gives."""
        raise NotImplementedError


def current_recording():
    """The innermost scope that is open in this thread or asyncio task, or None."""
    scope = interpreter.recording()
    while scope is not None and (scope.closed or scope.thread != interpreter.thread()):
        scope = scope.outer  # scopes may end in any order, and threads inherit contexts
    return scope


def enter(scope: Optional[Any]) -> None:
    """Make this thread or asyncio task use another scope, or none."""
    interpreter.record_into(scope)


def leave(scope: Any) -> None:
    """Nobody uses it any more: neither this thread or task, whichever scope it entered last, nor a
    task that began within the scope. May be called again."""
    scope.closed = True
    if interpreter.recording() is scope:
        outer = current_recording()
        interpreter.record_into(outer)
        scope.outer = None
        if outer is not None:
            outer.update_mode()  # it may have changed meanwhile


def place():
    """Where the user's code is, as `sites.site_at` takes it."""
    frame = interpreter.user_frame()
    return interpreter.code_of(frame), interpreter.instruction_of(frame)
