"""Load the native operators into MXNet (see `gluon_edbatch_core.native.executor_library`)."""

import ctypes
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Optional

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from gluon_edbatch_core.native import executor_library
from gluon_edbatch_core.native.compiler import BuildError, Operators

from ...mx.arrays import run_native, wait_for
from ...mx.host import upload
from ...mx.invoke import load_operators, run_for_effect

OPERATORS = Operators(Path(__file__).with_name('src'), Path(mx.__file__).parent)


def available() -> bool:
    """Return whether the native operators are loaded. The first call loads, and may compile, them.

    Returns
    -------
    bool
    """
    return loaded() is not None


@cache  # after the first call, a fork cannot find a lock taken
def loaded() -> Optional[Path]:
    """Return the library that was loaded; None if there is none."""
    return executor_library.load_best(OPERATORS, _load_into_mxnet)


@cache
def address(name: str) -> int:
    """Return the address of a C function of the loaded library, for `mx.arrays.run_native`."""
    return ctypes.cast(getattr(ctypes.CDLL(str(loaded())), name), ctypes.c_void_p).value or 0


def level() -> Optional[str]:
    """Return the loaded library's instruction set and origin: ``'v3'``, or ``'v3, compiled at first
    use'``, which may use more of this processor. None if there is none."""
    path = loaded()
    return None if path is None else executor_library.level_of(path)


def _load_into_mxnet(path: Path) -> None:
    try:
        load_operators(path)
    except mx.MXNetError as error:
        reason = str(error).strip().splitlines()[-1]
        raise BuildError(
            f'MXNet cannot load {path} ({reason}); remove the file, and it is compiled anew'
        ) from None


def build() -> Path:
    """Return the library for this processor, compiled if needed; raise `BuildError` on failure."""
    return executor_library.built(OPERATORS) or executor_library.compiled(OPERATORS)


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
