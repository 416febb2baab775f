"""Find the user's line that recorded a call: two words per node, made a line only on demand.

The user's line is the nearest outside this package, MXNet and installed libraries. If a library
such as gluonnlp made the call, its line is kept, too.
"""

import dis
import os
import sys
import sysconfig
from collections.abc import Iterator
from functools import lru_cache
from itertools import takewhile
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any, NamedTuple, Optional

import mxnet
from greenlet import getcurrent

import gluon_edbatch_core

USER, PASSED, LIBRARY = 0, 1, 2  # kinds of code; what is passed is in nobody's line
_MXNET = os.path.dirname(os.path.abspath(mxnet.__file__)) + os.sep
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_CORE = os.path.dirname(os.path.abspath(gluon_edbatch_core.__file__))
_PASSED = (_MXNET, _PACKAGE + os.sep, _CORE + os.sep)
_GLUON = os.path.join(_MXNET, 'gluon') + os.sep  # layers, cells and losses, which call others
_BLOCK = os.path.join(_GLUON, 'block.py')  # which calls all of them
_INSTALLED = 'site-packages', 'dist-packages'
_STANDARD = sysconfig.get_path('stdlib') + os.sep, '<frozen '
# By id, because hashing a code object hashes all its contents; the code is kept to pin the id.
_codes: dict[int, CodeType] = {}
_kinds: dict[int, int] = {}
# Codes of libraries that the user's code called, as numbers below -1.
_called: list[tuple[CodeType, CodeType, int]] = []
_called_numbers: dict[tuple[int, int, int], int] = {}


class Site(NamedTuple):
    """A source line of the user, and in `library` the line of the library that made the call."""

    filename: str
    line: int
    library: tuple['Site', ...] = ()

    def __str__(self) -> str:
        inner = [f' → {_installed(each.filename)}:{each.line}' for each in self.library]
        return ''.join([f'{_cell(self.filename) or self.filename}:{self.line}', *inner])


def kind_of(code: CodeType, names: dict[str, Any]) -> int:
    """Return whose code it is: `USER`, `PASSED` for this package's and MXNet's, or `LIBRARY`.
    `names` are its global names."""
    kind = _kinds.get(id(code))
    if kind is None:
        _codes[id(code)] = code
        kind = _kinds[id(code)] = kind_of_file(code.co_filename, names.get('__name__', ''))
    return kind


def kind_of_file(filename: str, module: str = '') -> int:
    """Return whose file it is, as `kind_of`; `module` is the name of its module."""
    if filename == '<string>':  # the functions of mx.nd are made at import
        return PASSED if module.startswith('mxnet.') else USER
    path = os.path.abspath(filename)
    if path.startswith(_GLUON) and path != _BLOCK:
        return LIBRARY
    if path.startswith(_PASSED):
        return PASSED
    if filename.startswith(_STANDARD) or not set(_INSTALLED).isdisjoint(path.split(os.sep)):
        return LIBRARY
    return USER


def place_of(frame: FrameType) -> tuple[FrameType, Optional[FrameType]]:
    """Return the frame of the user's line that runs or called `frame`, and the frame of the
    library's line that made the call, if one did."""
    library = None
    for outer in _outwards(frame):
        kind = kind_of(outer.f_code, outer.f_globals)
        if kind == USER:
            return outer, library
        if kind == LIBRARY and library is None:
            library = outer
    return library or outer, None  # a library may be the program


def _outwards(frame: Optional[FrameType]) -> Iterator[FrameType]:
    sample = getcurrent()
    while frame is not None:
        yield frame
        frame = frame.f_back
        if frame is None and hasattr(sample, 'contents'):  # see api/suspended.py
            sample = sample.parent
            frame = sample.gr_frame


def _installed(filename: str) -> str:
    """Return a library's file name relative to the folder of installed libraries."""
    parts = filename.split(os.sep)
    where = [place for place, part in enumerate(parts) if part in _INSTALLED]
    return os.sep.join(parts[where[-1] + 1 :]) if where else filename


def _cell(filename: str) -> Optional[str]:
    """Return the name of a notebook's cell as its reader knows it, In[3]; None for other files."""
    ipython: Any = sys.modules.get('IPython')
    shell = ipython.get_ipython() if ipython else None
    named = getattr(getattr(shell, 'compile', None), 'format_code_name', None)
    found = named(filename) if named else None
    return found[1] if found else None


def through_library(library: CodeType, user: CodeType, instruction: int) -> int:
    """Return a number for a library's code as called at an instruction of the user's code."""
    key = id(library), id(user), instruction
    number = _called_numbers.get(key)
    if number is None:
        _called.append((library, user, instruction))
        number = _called_numbers[key] = -1 - len(_called)
    return number


@lru_cache(maxsize=1 << 12)
def site_at(code: int, instruction: int) -> Site:
    """Return file and line of an instruction; `code` is an id, or a number of `through_library`."""
    if code >= 0:
        return site_of(_codes[code], instruction)
    library, user, called_at = _called[-2 - code]
    return site_of(user, called_at)._replace(library=(site_of(library, instruction),))


def site_of(code: CodeType, lasti: int) -> Site:
    """Return file and line of an instruction in a code object."""
    begun = takewhile(lambda start: start[0] <= lasti, dis.findlinestarts(code))
    numbers = [number for _, number in begun if number is not None]
    return Site(code.co_filename, numbers[-1] if numbers else code.co_firstlineno)


def current_site() -> Site:
    """Return the user's line that is running now."""
    return site_above(sys._getframe(1))


def site_above(frame: FrameType) -> Site:
    """Return the user's line that runs or called this frame."""
    user, library = place_of(frame)
    inner = () if library is None else (_line_of(library),)
    return _line_of(user)._replace(library=inner)


def _line_of(frame: FrameType) -> Site:
    return Site(frame.f_code.co_filename, frame.f_lineno)


def site_of_error(error: BaseException) -> Site:
    """Return the innermost of the user's lines that an exception has passed."""
    site = None
    for frame, line in walk_tb(error.__traceback__):
        kind = kind_of(frame.f_code, frame.f_globals)
        here = Site(frame.f_code.co_filename, line)
        if kind == USER:
            site = here
        elif kind == LIBRARY and site is not None:
            site = site._replace(library=(here,))
    return site or current_site()
