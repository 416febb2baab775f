"""Find the native executor, or compile it.

A package that was built where there is a compiler has a library for each level of the instruction
set, and loads the best one that ``/proc/cpuinfo`` allows. ``GLUON_EDBATCH_NATIVE=v3`` takes another
level, and ``0`` none. If none was built, or sources were edited since, one is compiled at first use
for this processor; ``GLUON_EDBATCH_NATIVE=native`` always does that. It is kept in
``$GLUON_EDBATCH_CACHE``, or else in the user's cache folder, under a name that tells sources,
compiler and processor.

``CXX`` may have flags. ``g++ -fsanitize=address`` finds memory errors if Python runs with
``LD_PRELOAD`` of the compiler's ``libasan.so``; ``-DEDB_SHARE_ALL`` shares the smallest batch.
"""

import ctypes
import os
import platform
import sys
import tempfile
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Callable, Optional

import numpy as np

from .compiler import (
    BUILT,
    FOR_THIS_PROCESSOR,
    BuildError,
    Operators,
    compile_library,
    digest_of,
    features,
    find_compiler,
    fingerprint,
    level_flags,
    levels,
    library_name,
    sources_of,
)

_lock = threading.Lock()
_MOST_TEXT = 512


def load_best(operators: Optional[Operators], load: Callable[[Path], None]) -> Optional[Path]:
    """Return the library that `load` loaded: one that was built, else one that is compiled now.
    Return None, and say why, if there is none. `load` raises `BuildError` if it cannot load one."""
    if _wanted() == '0':
        return None
    with _lock:  # or two threads would compile it
        try:
            path = built(operators)
            if path is not None:
                try:
                    load(path)
                    return path
                except BuildError as error:  # such as one that needs a newer C library
                    print(f'gluon_edbatch: {error}', file=sys.stderr)
            path = compiled(operators)
            load(path)
            return path
        except BuildError as error:
            print(
                f'gluon_edbatch: running without native operators, slower: {error}', file=sys.stderr
            )
            return None


def level_of(library: Path) -> str:
    """Return a library's instruction set and origin: ``'v3'``, or ``'v3, compiled at first use'``,
    which may use more of this processor."""
    if library.parent == BUILT:
        return library.stem.split('-')[0]  # see `library_name`
    return ', '.join([*_runnable()[-1:], 'compiled at first use'])


def built(operators: Optional[Operators]) -> Optional[Path]:
    """Return the best library that came with the package; None if this processor can run none.
    Raise `BuildError` if the processor lacks a requested level."""
    if _wanted() == 'native':
        return None
    last = '*' if operators is None else digest_of(operators)  # any has the executor
    for level in reversed(_runnable()):
        for path in BUILT.glob(library_name(level, last)):
            return path
    return None


def _runnable() -> tuple[str, ...]:
    """Return the levels that this processor has, the best one last, or only the requested one."""
    here = features()
    runnable = tuple(level for level, needed in levels().items() if needed <= here)
    wanted = _wanted()
    if wanted in ('1', 'native'):
        return runnable
    if wanted not in runnable:
        raise BuildError(
            f'GLUON_EDBATCH_NATIVE={wanted}, where this processor has '
            f'{", ".join(("0", "1", "native", *runnable))}'
        )
    return (wanted,)


def _wanted() -> str:
    return os.environ.get('GLUON_EDBATCH_NATIVE') or '1'


def compiled(operators: Optional[Operators]) -> Path:
    """Return a library in the cache, of the requested level or for this processor, compiled if
    needed. Raise `BuildError` if that fails."""
    is_native = _wanted() in ('1', 'native')
    flags = FOR_THIS_PROCESSOR if is_native else level_flags(*_runnable())
    compiler = find_compiler()
    made_for = compiler, *flags, platform.machine(), *sorted(features())
    path = _cache() / f'edb_native_{fingerprint(sources_of(operators), *made_for)}.so'
    if path.exists():
        return path
    print('gluon_edbatch: compiling native operators (once, about half a minute)', file=sys.stderr)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = Path(folder) / path.name
            compile_library(compiler, operators, flags, made)
            os.replace(made, path)
    except OSError as error:
        raise BuildError(
            f'cannot write to {path.parent}: {error}; name another folder in GLUON_EDBATCH_CACHE'
        ) from None
    return path


def _cache() -> Path:
    folder = os.environ.get('GLUON_EDBATCH_CACHE')
    if folder:
        return Path(folder).absolute()
    try:
        return Path(os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache') / 'gluon_edbatch'
    except RuntimeError as error:
        raise BuildError(f'{error}; name a folder in GLUON_EDBATCH_CACHE') from None


# --- without MXNet -------------------------------------------------------------------------------


@cache
def executor() -> Optional[Any]:
    """Return the C function ``edb_run_arrays``; None if there is no library. The first call loads,
    and may compile, it."""
    found: list[Any] = []

    def load(path: Path) -> None:
        try:
            function = ctypes.CDLL(str(path)).edb_run_arrays
        except (OSError, AttributeError) as error:
            raise BuildError(f'{path} cannot be loaded ({error}); remove the file') from None
        function.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p,
                             ctypes.c_int64, ctypes.c_char_p, ctypes.c_int64]  # fmt: skip
        found.append(function)

    return found[-1] if load_best(None, load) else None


def addresses(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Return what `run_arrays` needs to know of contiguous arrays: (2, n) int64, where they begin,
    and how many elements they have."""
    found = [(each.__array_interface__['data'][0], each.size) for each in arrays]
    return np.array(found, np.int64).reshape(-1, 2).T


def run_arrays(words: np.ndarray, arrays: np.ndarray) -> None:
    """Run a table (`run_table.Table`) on the `addresses` of weights, then of arenas: arrays of its
    floating-point type. Raise RuntimeError if the table does not fit them."""
    message = ctypes.create_string_buffer(_MOST_TEXT)
    begins, sizes = np.ascontiguousarray(arrays)
    failed = executor()(  # type: ignore[misc]
        words.ctypes.data, len(words), begins.ctypes.data, sizes.ctypes.data, len(begins),
        message, _MOST_TEXT,
    )  # fmt: skip
    if failed:
        raise RuntimeError(message.value.decode(errors='replace'))
