"""What ``fingerprint.py`` needs to see that nothing was changed; ``versions.pxd`` says it in C.

In C, each dict and class has a number that is another after each change. Python does not see these
numbers, so that here nothing is known to be unchanged, and all is looked at again.
"""

from typing import Any, Optional

OBJECT, DICT, TYPE, FUNCTION = range(4)  # sorts of what has versions


def entry(kind: int, value: Any) -> Optional[tuple]:
    """What `unchanged` is to compare; None if it cannot."""
    return None


def unchanged(entries: list[tuple]) -> bool:
    """Whether all of this is as it was. Whatever is in it must be reached, by what does not change
    without changing its version, from what stands before it."""
    return False
