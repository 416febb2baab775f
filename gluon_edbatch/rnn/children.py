"""Base class of cells that take any number of children, in no order."""

from collections.abc import Sequence
from typing import Any, ClassVar, Optional

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.ndarray import NDArray

from ..api.functional import ragged
from ..record.hooks import current_recording


def add_parameters(cell: gluon.HybridBlock, init: Any, **shapes: tuple[int, ...]) -> None:
    """Add parameters to a cell, each as an attribute; a size of 0 is inferred later."""
    with cell.name_scope():
        for name, shape in shapes.items():
            parameter = cell.params.get(name, shape=shape, init=init, allow_deferred_init=True)
            setattr(cell, name, parameter)


def without_input(cell: gluon.HybridBlock, like: NDArray) -> NDArray:
    """Return zeros as input, which change nothing: a graph that Gluon has compiled takes one
    structure of arguments only."""
    return mx.nd.zeros((like.shape[0], cell.i2h_weight.shape[1]), like.ctx, like.dtype)


class ChildrenCell(gluon.HybridBlock):
    """A cell whose last argument, the list of a node's children, becomes ragged arguments. It
    becomes one if a child is one value (`values_of_child` is 1), and k if a child is a tuple of
    k."""

    values_of_child: ClassVar[int]

    def __init__(self, hidden_size: int, prefix: Optional[str] = None, params: Any = None) -> None:
        super().__init__(prefix=prefix, params=params)
        self._hidden_size = hidden_size
        self._state_shape = (1, hidden_size)

    def ragged_children(self, x: Any, children: Sequence[Any]) -> tuple[NDArray, ...]:
        """Return the ragged arguments; `x` tells dtype and context if there are no children."""
        if x is None and not children:
            raise ValueError(f'{self.name} needs an input or children')
        parts: list[Sequence[Any]] = [children]
        if self.values_of_child > 1:
            parts = [[child[i] for child in children] for i in range(self.values_of_child)]
        like = parts[0][0] if x is None else x
        if isinstance(like, NDArray):
            dtype, ctx = like.dtype, like.ctx
        else:  # a NumPy array, which becomes one as mx.nd.array does it
            dtype, ctx = np.float32 if like.dtype == np.float64 else like.dtype, None
        if not children and current_recording() is None:  # their sum is zero, as that of zeros is
            module = mx.np if mx.util.is_np_array() else mx.nd
            zeros = module.zeros((1, *self._state_shape), ctx=ctx, dtype=dtype)
            return (zeros,) * self.values_of_child
        return tuple(ragged(part, self._state_shape, dtype, ctx) for part in parts)

    def forward(self, x: Any, *children: Any) -> Any:
        """Run the cell: eagerly with the list of children, in a recorded call with ragged
        arguments."""
        if len(children) == 1 and isinstance(children[0], (list, tuple)):
            children = self.ragged_children(x, children[0])
        return super().forward(x, *children)

    forward.recorded = True  # type: ignore[attr-defined]
