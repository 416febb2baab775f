"""Where in the user's code a call was recorded: two words per node, a line only when asked for."""

import dis
import os
import sys
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any, Dict, NamedTuple

import mxnet

_LIBRARY = tuple(
    os.path.dirname(os.path.abspath(path)) + os.sep
    for path in (mxnet.__file__, os.path.dirname(os.path.abspath(__file__)))
)
# By id, because hashing a code object hashes all its contents; the code is kept to pin the id.
user_codes: Dict[int, CodeType] = {}
_library_codes: Dict[int, CodeType] = {}


class Site(NamedTuple):
    """A place in a source file."""

    filename: str
    line: int

    def __str__(self) -> str:
        return f'{self.filename}:{self.line}'


def is_library(code: CodeType, names: Dict[str, Any]) -> bool:
    """Whether code with these global names is of this package or of MXNet."""
    if id(code) in _library_codes:
        return True
    if id(code) in user_codes:
        return False
    library = os.path.abspath(code.co_filename).startswith(_LIBRARY) or (
        code.co_filename == '<string>'  # the functions of mx.nd are made at import
        and names.get('__name__', '').startswith('mxnet.')
    )
    (_library_codes if library else user_codes)[id(code)] = code
    return library


def site_of(code: CodeType, lasti: int) -> Site:
    """File and line of an instruction."""
    line = code.co_firstlineno
    for offset, number in dis.findlinestarts(code):
        if offset > lasti:
            break
        if number is not None:
            line = number
    return Site(code.co_filename, line)


def current_site() -> Site:
    """The user's line that is running now."""
    return site_above(sys._getframe(1))


def site_above(frame: FrameType) -> Site:
    """The user's line that this frame is, or that called it."""
    while is_library(frame.f_code, frame.f_globals) and frame.f_back is not None:
        frame = frame.f_back
    return Site(frame.f_code.co_filename, frame.f_lineno)


def site_of_error(error: BaseException) -> Site:
    """The innermost of the user's lines that an exception has passed."""
    passed = [
        (frame, line)
        for frame, line in walk_tb(error.__traceback__)
        if not is_library(frame.f_code, frame.f_globals)
    ]
    if not passed:
        return current_site()
    frame, line = passed[-1]
    return Site(frame.f_code.co_filename, line)
