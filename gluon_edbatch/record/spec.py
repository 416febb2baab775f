"""What is known of a value before it is computed: shape, dtype and context."""
from typing import Dict, Tuple

import mxnet as mx
import numpy as np


class Spec:
    """Shape, dtype and context of a value; equal ones are one object (see `spec_of`).

    Attributes
    ----------
    shape : tuple of int
        Whole shape; axis 0 counts rows.
    dtype : type
        NumPy scalar type, as ``NDArray.dtype`` gives it.
    ctx : mxnet.Context
        Device.
    rows : int
        ``shape[0]``.
    row_shape : tuple of int
        ``shape[1:]``.
    arena : tuple
        Key of the arena that rows of this kind live in: (row_shape, dtype, ctx).
    """

    __slots__ = ('shape', 'dtype', 'ctx', 'rows', 'row_shape', 'arena')

    def __init__(self, shape: Tuple[int, ...], dtype: type, ctx: mx.Context):
        self.shape = shape
        self.dtype = dtype
        self.ctx = ctx
        self.rows = shape[0]
        self.row_shape = shape[1:]
        self.arena = (self.row_shape, dtype, ctx)

    def __repr__(self) -> str:
        return f'{np.dtype(self.dtype).name}{self.shape}@{self.ctx}'


_interned: Dict[tuple, Spec] = {}


def spec_of(shape: Tuple[int, ...], dtype, ctx: mx.Context) -> Spec:
    """The one `Spec` with this shape (at least one axis), dtype and context."""
    key = (shape, dtype, ctx.device_typeid, ctx.device_id)
    spec = _interned.get(key)
    if spec is None:
        spec = _interned.setdefault(key, Spec(tuple(shape), np.dtype(dtype).type, ctx))
    return spec
