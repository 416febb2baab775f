"""Run models that are written for one sample outside of scopes."""

from collections.abc import Sequence
from typing import Any, Optional

import mxnet as mx
from mxnet.ndarray import NDArray

from ..record import hooks
from .functional import as_arrays


class eagerly:
    """Let HybridBlocks take numbers and NumPy arrays while a mixin model runs eagerly."""

    def __init__(self, ctx: Optional[mx.Context]) -> None:
        self._ctx = ctx

    def __enter__(self) -> None:
        hooks.install(self)
        hooks.local.eager = self._convert

    def __exit__(self, *_: Any) -> None:
        hooks.local.eager = None
        try:
            hooks.remove(self)
        except BaseException:
            hooks.remove(self)
            raise

    def _convert(self, args: Sequence[Any]) -> Sequence[Any]:
        if all(isinstance(arg, NDArray) for arg in args):
            return args
        return as_arrays(args, self._ctx)
