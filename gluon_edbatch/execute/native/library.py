r"""Load the native operators' library for this processor into MXNet.

The library is optional. Without it, or with ``GLUON_EDBATCH_NATIVE=0``, everything runs as
`CachedOp`\ s. An installed package has a library for each level of the instruction set, and loads
the best one that ``/proc/cpuinfo`` allows. ``GLUON_EDBATCH_NATIVE=v3`` takes another level. If none
was built, or sources were edited since, one is compiled at first use for this processor;
``GLUON_EDBATCH_NATIVE=native`` always does that. It is kept in ``$GLUON_EDBATCH_CACHE``, or else in
the user's cache folder, under a name that tells sources, compiler and processor.

``CXX`` may have flags. ``g++ -fsanitize=address`` finds memory errors if Python runs with
``LD_PRELOAD`` of the compiler's ``libasan.so``; ``-DEDB_SHARE_ALL`` shares the smallest batch.
"""

import ctypes
import math
import os
import platform
import sys
import tempfile
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Optional

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from ...mx.arrays import run_native, wait_for
from ...mx.host import upload
from ...mx.invoke import load_operators, run_for_effect
from .compiler import (
    BUILT,
    FOR_THIS_PROCESSOR,
    BuildError,
    compile_library,
    features,
    find_compiler,
    fingerprint,
    level_flags,
    levels,
    library_name,
)

_MXNET = Path(mx.__file__).parent
_lock = threading.Lock()


def available() -> bool:
    """Return whether the native operators are loaded. The first call loads, and may compile, them.

    Returns
    -------
    bool
    """
    return loaded() is not None


@cache  # after the first call, a fork cannot find the lock taken
def loaded() -> Optional[Path]:
    """Return the library that was loaded; None if there is none."""
    with _lock:  # or two threads would compile it
        return _load()


@cache
def address(name: str) -> int:
    """Return the address of a C function of the loaded library, for `mx.arrays.run_native`."""
    return ctypes.cast(getattr(ctypes.CDLL(str(loaded())), name), ctypes.c_void_p).value or 0


def level() -> Optional[str]:
    """Return the loaded library's instruction set and origin: ``'v3'``, or ``'v3, compiled at first
    use'``, which may use more of this processor. None if there is none."""
    library = loaded()
    if library is None:
        return None
    if library.parent == BUILT:
        return library.stem.rpartition('-')[0]  # see `library_name`
    return ', '.join([*_runnable()[-1:], 'compiled at first use'])


@cache
def _load() -> Optional[Path]:
    if _wanted() == '0':
        return None
    try:
        return _load_built() or _load_into_mxnet(compiled())
    except BuildError as error:
        print(f'gluon_edbatch: running without native operators, slower: {error}', file=sys.stderr)
        return None


def _load_built() -> Optional[Path]:
    path = built()
    try:
        return path and _load_into_mxnet(path)
    except BuildError as error:  # such as one that needs a newer C library
        print(f'gluon_edbatch: {error}', file=sys.stderr)
        return None


def _load_into_mxnet(path: Path) -> Path:
    try:
        load_operators(path)
    except mx.MXNetError as error:
        reason = str(error).strip().splitlines()[-1]
        raise BuildError(
            f'MXNet cannot load {path} ({reason}); remove the file, and it is compiled anew'
        ) from None
    return path


def build() -> Path:
    """Return the library for this processor, compiled if needed; raise `BuildError` on failure."""
    return built() or compiled()


def built() -> Optional[Path]:
    """Return the best library that came with the package; None if this processor can run none.
    Raise `BuildError` if the processor lacks a requested level."""
    if _wanted() == 'native':
        return None
    for level in reversed(_runnable()):
        path = BUILT / library_name(level, _MXNET)
        if path.exists():
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


def compiled() -> Path:
    """Return a library in the cache, of the requested level or for this processor, compiled if
    needed. Raise `BuildError` if that fails."""
    is_native = _wanted() in ('1', 'native')
    flags = FOR_THIS_PROCESSOR if is_native else level_flags(*_runnable())
    compiler = find_compiler()
    made_for = compiler, *flags, platform.machine(), *sorted(features())
    path = _cache() / f'edb_native_{fingerprint(_MXNET, *made_for)}.so'
    if path.exists():
        return path
    print('gluon_edbatch: compiling native operators (once, about half a minute)', file=sys.stderr)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = Path(folder) / path.name
            compile_library(compiler, _MXNET, flags, made)
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


def gather(
    sources: Sequence[NDArray],
    rows: Sequence[np.ndarray],
    target: NDArray,
    begin: int,
    now: bool = False,
) -> bool:
    """Copy rows of some arrays, one after the other, to the rows of another from `begin` on, by one
    call of a native operator.

    MXNet's operators take 150 microseconds for each source, and an evaluation of samples that
    joined one by one has some dozen sources.

    `rows` are int64, for each source; autograd does not know `target`. With `now` this thread
    copies: the target must be new, and the sources computed. Returns False, and does nothing, if
    native operators do not run here.
    """
    if target.ctx.device_type != 'cpu' or not available():
        return False
    counts = [len(each) for each in rows]
    table = np.empty(2 + 2 * sum(counts), np.int64)
    table[0] = math.prod(target.shape[1:]) * np.dtype(target.dtype).itemsize
    table[1] = begin
    table[2::2] = 0 if len(rows) == 1 else np.repeat(np.arange(len(counts)), counts)
    table[3::2] = rows[0] if len(rows) == 1 else np.concatenate(rows)
    if now:
        handles = [source.handle for source in sources]
        wait_for(handles)  # a user may have written to them
        run_native(address('edb_gather_inline'), table, [*handles, target.handle])
        return True
    arrays = [upload(table, target.ctx), *sources, target]
    run_for_effect(
        'edb_gather',
        [array.handle for array in arrays],
        inputs=str(len(arrays)),
        written=str(len(arrays) - 1),
    )
    return True
