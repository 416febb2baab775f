"""What a noted op is called as, and with, so that a scope records what it does."""

from typing import Any, Callable, NamedTuple, Optional

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.ndarray import NDArray

from ..api import nd
from ..errors import RecordError
from ..mx.mutation_guard import GuardedArray
from .handles import NotedCall


class Target(NamedTuple):
    """What is called in the place of an op; `convert` is given each argument that is no handle's
    value."""

    function: Callable[..., Any]
    convert: Optional[Callable[[Any], Any]]


class Targets:
    """What to call in one replay; methods that were noted by name are those of `block`.

    A scope records calls of HybridBlocks, and operators on its own values. An array of the user is
    none, so what other functions do with it would be done at once and alone; they get it as a value
    of the scope (see `ScopeValues`).
    """

    def __init__(self, recording: Any, block: Any):
        self._values = ScopeValues(recording)
        self._block = block
        self._callees: dict[Any, Target] = {}

    def of(self, call: NotedCall) -> Target:
        """What to call for an op."""
        op = call.op
        key = op if op.__class__ is str else id(op)
        callee = self._callees.get(key)
        if callee is None:
            callee = self._callees[key] = self._make(op)
        return callee

    def _make(self, op: Any) -> Target:
        if op.__class__ is str:
            return Target(_method(self._block, op), self._values.of_argument)
        if isinstance(op, gluon.HybridBlock):
            return Target(op, None)
        name = getattr(op, '__name__', '')
        if mx.nd.op.__dict__.get(name) is op:
            return Target(_operator(op, getattr(nd, name)), None)
        return Target(op, self._values.of_array)


class ScopeValues:
    """Arguments as values of a scope: lazy arrays, that cannot be written to.

    Weights (arrays with a gradient of their own, and large ones) stay as they are, as operators on
    values can share them.
    """

    def __init__(self, recording: Any):
        self._recording = recording
        self._known: dict[int, Any] = {}  # by id; the calls keep the arrays

    def of_array(self, item: Any) -> Any:
        """A dense NDArray as a value; anything else is handed through."""
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

    def of_argument(self, item: Any) -> Any:
        """The same for what `Fold.add` takes."""
        if item.__class__ is int:
            return self._recording.number(item)
        if isinstance(item, np.ndarray):
            return self._recording.values([item])[0]
        return self.of_array(item)


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
    """An operator of ``mx.nd``, as ``edb.nd`` has it: that takes arrays of the user, too."""

    def operator(*args: Any) -> Any:
        return recorded(*args) if all(map(_is_dense, args)) else op(*args)

    return operator


def _is_dense(arg: Any) -> bool:
    return not isinstance(arg, NDArray) or arg.stype == 'default'
