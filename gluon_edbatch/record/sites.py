"""Where in the user's code a call was recorded: two words per node, a line only when asked for."""
import dis
import os
import sys
from types import CodeType, FrameType
from typing import Dict, NamedTuple

import mxnet

_LIBRARY = tuple(os.path.dirname(os.path.abspath(path)) + os.sep for path in
                 (mxnet.__file__, os.path.dirname(os.path.abspath(__file__))))
# By id, because hashing a code object hashes all its contents; the code is kept to pin the id.
user_codes: Dict[int, CodeType] = {}
library_codes: Dict[int, CodeType] = {}


class Site(NamedTuple):
    """A place in a source file."""

    filename: str
    line: int

    def __str__(self) -> str:
        return f'{self.filename}:{self.line}'


def is_library(frame: FrameType) -> bool:
    """Whether this frame runs code of this package or of MXNet."""
    code = frame.f_code
    if id(code) in library_codes:
        return True
    if id(code) in user_codes:
        return False
    library = os.path.abspath(code.co_filename).startswith(_LIBRARY) or (
        code.co_filename == '<string>'  # the functions of mx.nd are made at import
        and frame.f_globals.get('__name__', '').startswith('mxnet.'))
    (library_codes if library else user_codes)[id(code)] = code
    return library


def user_frame(frame: FrameType) -> FrameType:
    """The nearest frame at or above `frame` outside this package and MXNet."""
    while is_library(frame) and frame.f_back is not None:
        frame = frame.f_back
    return frame


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
    frame = user_frame(sys._getframe(1))
    return Site(frame.f_code.co_filename, frame.f_lineno)
