"""Keep track of the scope that a thread or asyncio task has entered.

Cython compiles this module where a compiler is present, as `calls`.
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
        """Record a call of a block and return its results; subclasses implement it."""
        raise NotImplementedError


def current_recording():
    """Return the innermost scope that is open in this thread or asyncio task, or None."""
    scope = interpreter.recording()
    while scope is not None and (scope.closed or scope.thread != interpreter.thread()):
        scope = scope.outer  # scopes may end in any order, and threads inherit contexts
    return scope


def enter(scope: Optional[Any]) -> None:
    """Make this thread or asyncio task record into another scope, or into none."""
    interpreter.record_into(scope)


def leave(scope: Any) -> None:
    """Close a scope for this thread or task and for tasks begun in it; may be called again."""
    scope.closed = True
    if interpreter.recording() is scope:
        outer = current_recording()
        interpreter.record_into(outer)
        scope.outer = None
        if outer is not None:
            outer.update_mode()  # it may have changed meanwhile


def place():
    """Return the user's present instruction, as `sites.site_at` takes it."""
    frame = interpreter.user_frame()
    return interpreter.code_of(frame), interpreter.instruction_of(frame)
