"""How long a thread that computes keeps others from running Python.

The event loop waits 5 ms by Python's default for each turn that the evaluating thread leaves it,
which is as long as the evaluation of a small batch."""

import sys
import threading
from typing import Any

SECONDS = 0.0005


class ShortTurns:
    """A context in which turns are no longer than `SECONDS`, in the whole process; several may be
    open. After the last one they are as they were before the first."""

    _lock = threading.Lock()
    _open = 0
    _before = 0.0

    def __enter__(self) -> 'ShortTurns':
        cls = ShortTurns
        with cls._lock:
            if not cls._open:
                cls._before = sys.getswitchinterval()
                sys.setswitchinterval(min(cls._before, SECONDS))
            cls._open += 1
        return self

    def __exit__(self, *_: Any) -> None:
        cls = ShortTurns
        with cls._lock:
            cls._open -= 1
            if not cls._open:
                sys.setswitchinterval(cls._before)
