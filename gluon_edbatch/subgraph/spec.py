"""Describe a value before it is computed: shape, dtype and context."""

from typing import NamedTuple

import mxnet as mx
import numpy as np


class ArenaKey(NamedTuple):
    """What rows in one arena have in common: shape of a row, dtype, context.

    Equal keys are one object, so they compare and hash by identity. They are looked up for every
    argument, and hashing a context is slow."""

    row_shape: tuple[int, ...]
    dtype: type
    ctx: mx.Context
    # whether they are results of calls that run eagerly (see `execute.eager`): there is no memory
    # in which they lie one after the other
    eager: bool = False

    def __str__(self) -> str:
        return f'{self.dtype.__name__}{self.row_shape} on {self.ctx}'


for _name in ('__eq__', '__ne__', '__hash__'):
    setattr(ArenaKey, _name, getattr(object, _name))


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
    eager : bool
        See `ArenaKey`.
    rows : int
        ``shape[0]``.
    row_shape : tuple of int
        ``shape[1:]``.
    arena : ArenaKey
        Key of the arena that rows of this kind live in.
    """

    __slots__ = ('shape', 'dtype', 'ctx', 'eager', 'rows', 'row_shape', 'arena')

    def __init__(self, shape: tuple[int, ...], arena: ArenaKey):
        self.shape = shape
        self.rows = shape[0]
        self.arena = arena
        self.row_shape, self.dtype, self.ctx, self.eager = arena

    def of_rows(self, rows: int) -> 'Spec':
        """Return the spec with another number of rows."""
        return spec_of((rows, *self.row_shape), self.dtype, self.ctx, self.eager)

    def __repr__(self) -> str:
        return f'{np.dtype(self.dtype).name}{self.shape}@{self.ctx}'


def device_of(array: mx.nd.NDArray) -> mx.Context:
    """Return the device of what is computed from an array. Host memory that processes share
    (``cpu_shared``, of a DataLoader's workers) or that is pinned (``cpu_pinned``) counts as
    ``cpu``: operators mix the three, but a CachedOp takes ``cpu`` only."""
    ctx = array.ctx
    return mx.cpu() if ctx.device_type in ('cpu_shared', 'cpu_pinned') else ctx


_specs: dict[tuple, Spec] = {}
_arenas: dict[tuple, ArenaKey] = {}


def spec_of(shape: tuple[int, ...], dtype, ctx: mx.Context, eager: bool = False) -> Spec:
    """Return the one `Spec` with this shape (at least one axis), dtype and context."""
    key = (shape, dtype, ctx.device_typeid, ctx.device_id, eager)
    spec = _specs.get(key)
    if spec is None:
        shape, dtype = tuple(shape), np.dtype(dtype).type
        arena = _arenas.setdefault(
            (shape[1:], dtype, *key[2:]), ArenaKey(shape[1:], dtype, ctx, eager)
        )
        spec = _specs.setdefault((shape, dtype, *key[2:]), Spec(shape, arena))
        _specs[key] = spec
    return spec
