"""Choose what to call for a noted op, so that a scope records its operators."""

from typing import Any, Callable, Optional

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import RecordError

from ..api import nd
from ..mx.mutation_guard import GuardedArray
from .handles import NotedCall


class Targets:
    """Choose what to call in one replay, and convert arguments that are not values of handles.

    A scope records calls of HybridBlocks, and operators on its own values. Other functions would
    compute with the user's arrays eagerly, so they get these as values of the scope: lazy arrays
    that cannot be written to. Weights (arrays with their own gradient, and large ones) stay as they
    are, as operators on values can share them. Methods that were noted by name belong to `block`.
    """

    def __init__(self, recording: Any, block: Any):
        self._recording = recording
        self._block = block
        self._known: dict[int, Any] = {}  # by id; the calls keep the arrays

    def of(self, call: NotedCall) -> tuple[Callable, Optional[Callable]]:
        """Return what to call for an op, and a function to convert its other arguments."""
        op = call.op
        if isinstance(op, str):
            return _method(self._block, op), self._of_argument
        if isinstance(op, gluon.HybridBlock):
            return op, None
        name = getattr(op, '__name__', '')
        if mx.nd.op.__dict__.get(name) is op:
            return _operator(op, getattr(nd, name)), None
        return op, self._of_array

    def _of_array(self, item: Any) -> Any:
        """Return a dense NDArray as a value; anything else as it is."""
        if item.__class__ is not NDArray and item.__class__ is not GuardedArray:
            return item
        value = self._known.get(id(item))
        if value is None:
            recording = self._recording
            value = item
            if not recording.sharing.is_weight(item):
                (value,) = recording.values([item])
                value._array = item  # it may be a result, too
            self._known[id(item)] = value
        return value

    def _of_argument(self, item: Any) -> Any:
        """Return an argument of `Fold.add` as a value."""
        if item.__class__ is int:
            return self._recording.number(item)
        if isinstance(item, np.ndarray):
            return self._recording.values([item])[0]
        return self._of_array(item)


def _method(block: Any, name: str) -> Callable:
    if block is None:
        raise RecordError(
            'it was noted by name with add(): call apply(block, nodes) with the '
            'block whose method it is'
        )
    try:
        return getattr(block, name)
    except AttributeError:
        raise RecordError(f'{type(block).__name__} has no method {name!r}') from None


def _operator(op: Callable, recorded: Callable) -> Callable:
    """Return an operator of ``mx.nd`` as ``edb.nd`` has it, which takes the user's arrays, too."""

    def operator(*args: Any) -> Any:
        return recorded(*args) if all(map(_is_dense, args)) else op(*args)

    return operator


def _is_dense(arg: Any) -> bool:
    return not isinstance(arg, NDArray) or arg.stype == 'default'
