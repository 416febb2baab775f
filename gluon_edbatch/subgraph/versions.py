"""Versions of dicts and classes, by which ``fingerprint.py`` sees changes; ``versions.pxd`` has the
C.

CPython gives each dict and class a new number whenever it is changed. Python code cannot read these
numbers, so this form reports everything as changed.
"""

from typing import Any, Optional

OBJECT, DICT, TYPE, FUNCTION = range(4)  # sorts of what has versions


def entry(kind: int, value: Any) -> Optional[tuple]:
    """Return the version of an object for `unchanged`; None if it has none."""
    return None


def unchanged(entries: list[tuple]) -> bool:
    """Return whether all objects in `entries` are unchanged. Each must be reachable from the
    entries before it."""
    return False
