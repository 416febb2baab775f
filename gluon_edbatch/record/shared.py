"""The user's arrays that an operator's calls share: weights, like a block's parameters."""

import sys
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Optional

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from ..mx.arrays import gradient_stype
from ..mx.mutation_guard import PLAIN_OR_GUARDED
from ..ops import op_of
from ..subgraph.spec import device_of

_LARGE = 1 << 16  # elements
_MOST_TYPES = 512
_MOST_ARRAYS = 64  # of one operator in a recording; more are data


class SharedArray:
    """An array as a type's parameter, with the interface of `gluon.Parameter` that is needed."""

    _deferred_init = ()
    _grad_stype = 'default'

    def __init__(self, name: str, array: NDArray):
        self.name = name
        self.shape, self.dtype = array.shape, array.dtype
        # To autograd's tape, which knows whether anybody wants it.
        self.grad_req = 'write' if np.issubdtype(array.dtype, np.floating) else 'null'
        self._ctx = array.ctx
        self._data = [array]

    def data(self, ctx: mx.Context) -> NDArray:
        """Return the array; raise RuntimeError if it is on another device."""
        if ctx != self._ctx:
            raise RuntimeError(f'the array {self.name} is on {self._ctx}')
        return self._data[0]

    def is_forgotten(self) -> bool:
        """Return whether there are no other references to the array."""
        return sys.getrefcount(self._data[0]) <= 2  # the list, and the argument of this call

    def variable(self) -> mx.sym.Symbol:
        """Return the Symbol that stands for the array in a graph."""
        return mx.sym.var(self.name, shape=self.shape, dtype=self.dtype)


class Sharing:
    """Decide which arrays are weights that an operator's calls share.

    An array does not tell whether it is data of one sample or a weight. Weights of layers, arrays
    with their own gradient, and large arrays count as weights. An array that batches cannot read
    where it is counts as data (see `device_of`).
    """

    def __init__(self):
        # By id: the array, which they hold; whether batches can read it; whether it is a weight.
        self._known: dict[int, tuple[NDArray, bool, bool]] = {}
        self._of_operator: dict[str, set] = {}

    def positions(self, op: str, args: Sequence[Any]) -> tuple[int, ...]:
        """Return the positions of shared weights; empty if every argument would be one."""
        found = [
            position
            for position, arg in enumerate(args)
            if arg.__class__ in PLAIN_OR_GUARDED
            and (self._is_readable(arg) if position in op_of(op).weights else self.is_weight(arg))
        ]
        known = self._of_operator.setdefault(op, set())
        known.update([id(args[position]) for position in found])
        if len(found) == len(args) or len(known) > _MOST_ARRAYS:
            return ()
        return tuple(found)

    def data_among(self, args: Sequence[Any]) -> Optional[int]:
        """Return the position of the array that is data: the first that is not a weight, else the
        first array. None without arrays."""
        found = [position for position, arg in enumerate(args) if isinstance(arg, NDArray)]
        data = [
            position
            for position in found
            if args[position].__class__ not in PLAIN_OR_GUARDED
            or not self.is_weight(args[position])
        ]
        return next(iter(data + found), None)

    def is_weight(self, array: NDArray) -> bool:
        """Return whether an array counts as a weight, not as data of one sample."""
        return self._facts(array)[2]

    def _is_readable(self, array: NDArray) -> bool:
        return self._facts(array)[1]

    def _facts(self, array: NDArray) -> tuple[NDArray, bool, bool]:
        known = self._known.get(id(array))
        if known is None:
            readable = device_of(array) == array.ctx
            known = self._known[id(array)] = (
                array,
                readable,
                readable and (array.size >= _LARGE or gradient_stype(array) is not None),
            )
        return known


class SharedTypes:
    """Keep the types of operators on shared arrays. Types hold their arrays, so types are dropped
    when nothing else refers to an array, or when they are the least recently used."""

    def __init__(self):
        self._types: OrderedDict[tuple, tuple[list[SharedArray], dict]] = OrderedDict()

    def of(
        self, op: str, positions: Sequence[int], arrays: Sequence[NDArray]
    ) -> tuple[list[SharedArray], dict]:
        """Return the parameters for arrays at these positions, and the types that have them."""
        key = (op, *positions, *map(id, arrays))
        known = self._types.pop(key, None)
        if known is None:
            self._forget()
        if known is None or any(
            shared.shape != array.shape or shared.dtype != array.dtype
            for shared, array in zip(known[0], arrays)
        ):
            known = (
                [
                    SharedArray(f'array{position}', array)
                    for position, array in zip(positions, arrays)
                ],
                {},
            )
        self._types[key] = known
        while len(self._types) > _MOST_TYPES:
            self._types.popitem(last=False)
        return known

    def _forget(self) -> None:
        for key in [
            key
            for key, (weights, _) in self._types.items()
            if any(weight.is_forgotten() for weight in weights)
        ]:
            del self._types[key]
