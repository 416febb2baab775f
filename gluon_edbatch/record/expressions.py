"""Fuse operators on ragged values whose results are not ragged along axis 1.

Attention weights ``softmax(batch_dot(q, r, transpose_b=True))`` of a ragged r are (1, 1, K), which
is no list of values. Such a result stays an *expression*. An operator that reads it becomes part of
it. Once a result does not depend on the number of values (``batch_dot(weights, r)``), the whole
expression is recorded as one call, as that of a block would be. So it has one type for any number
of values. An expression that is read in another way is recorded operator by operator, with its
length.
"""

import sys
from collections.abc import Sequence
from functools import wraps
from typing import Any, Callable, NamedTuple, Optional

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from ..errors import RecordError
from ..ops import op_of
from ..subgraph.node_type import Mode, NodeType
from ..subgraph.trace import Operator, trace_operators
from .element_calls import stacked
from .forms import key_of
from .lazy import ARITHMETIC, METHODS, LazyArray, RaggedArray, operand
from .packed import unpacked
from .remembered import operator_maker

_MOST_NUMBERS = 16  # attributes of one operator, as each makes other types
_STORE = LazyArray.__dict__['_store']
_numbers: dict[str, set[tuple]] = {}


class Expression(NamedTuple):
    """Operators, each on values or on results of operators before it."""

    operators: tuple[Operator, ...]
    values: tuple[LazyArray, ...]
    mode: Mode  # in which they were called

    def record(self, recording: Any) -> Any:
        """Record operator by operator, with the lengths of the ragged values; return the last
        result."""
        results: list[Any] = []
        with recording.in_mode(self.mode):
            values = [stacked(recording, value) for value in self.values]
            for op, attrs, inputs in self.operators:
                args = [values[place] if place >= 0 else results[~place] for place in inputs]
                results.append(recording.operator(op, attrs, args))
        return results[-1]


class ExpressionArray(LazyArray):
    """A lazy value that is an expression. It becomes a recorded value when that is needed."""

    __slots__ = ()

    def __init__(self, recording: Any, expression: Expression, node_type: NodeType):
        _STORE.__set__(self, (recording, expression, node_type))

    def __del__(self):
        pass  # the base class's would free a handle

    def recorded(self) -> LazyArray:
        """Record the expression, and return this object as the value."""
        recording, expression, _ = _STORE.__get__(self)
        recording.check_alive()
        value = expression.record(recording)
        self.__class__ = LazyArray  # type: ignore[assignment]
        self._store, self._id = value._store, value._id
        return self

    @property
    def _store(self):  # type: ignore[override]
        return self.recorded()._store

    @property
    def _id(self):  # type: ignore[override]
        return self.recorded()._id

    @property
    def shape(self) -> tuple[int, ...]:
        """Tuple of array dimensions."""
        _, expression, node_type = _STORE.__get__(self)
        shape = list(node_type.outputs[0].shape)
        for axis, (source, longer) in node_type.ragged_axes.items():
            shape[axis] = expression.values[source].shape[1] + longer
        return tuple(shape)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(_STORE.__get__(self)[2].outputs[0].shape)

    @property
    def dtype(self):
        """NumPy scalar type."""
        return _STORE.__get__(self)[2].outputs[0].dtype

    @property
    def context(self) -> mx.Context:
        """Device of the value."""
        return _STORE.__get__(self)[2].ctx

    ctx = context

    def made(self) -> None:
        """Return None: no array that was made in the scope."""

    def _recorded(self, function: Callable[..., Any], **options: Any) -> Any:
        if _STORE.__get__(self)[0].active():
            return function(self, **options)
        return self.recorded()._recorded(function, **options)


def _arithmetic(name: str) -> Callable[..., Any]:
    eager = getattr(NDArray, name)

    @wraps(eager)
    def method(self, other):
        return eager(self, operand(self, other))

    return method


for _name in METHODS:
    setattr(ExpressionArray, _name, getattr(NDArray, _name))
for _name in ARITHMETIC:
    setattr(ExpressionArray, f'__{_name}__', _arithmetic(f'__{_name}__'))


def fused(recording: Any, op: str, attrs: tuple, args: Sequence[Any]) -> Any:
    """Return the result of an operator on ragged values or expressions, recorded as one call with
    these, or a new expression; None if neither is proved to be right."""
    expression = _joined(recording, op, attrs, args)
    if expression is None:
        return None
    operators, values, _ = expression
    key = operators, *map(key_of, values)
    form = recording.forms_by_key.get(key)
    if form is None:
        form = recording.forms_by_key[key] = _form(recording, expression) or False
    if not form:
        return None
    if form.node_type.neutral:
        return recording.append_call(form, values)
    if form.node_type.ragged_axes is None:
        return recording._by_elements(form, values)
    if any([not value._ids for value in values if value.__class__ is RaggedArray]):
        return None
    value = ExpressionArray(recording, expression, form.node_type)
    recording.expressions.append(value)
    return value


def _joined(recording: Any, op: str, attrs: tuple, args: Sequence[Any]) -> Optional[Expression]:
    """Return an operator together with the expressions that it reads; None if it cannot join."""
    known = _numbers.setdefault(op, set())
    if op_of(op).number is not None and attrs not in known:
        if len(known) >= _MOST_NUMBERS:
            return None
        known.add(attrs)
    if recording.mode.numpy or recording.sharing.positions(op, args):
        return None
    operators: dict[Operator, int] = {}
    values: list[Any] = []
    places: dict[tuple, int] = {}

    def place_of(value: Any) -> int:
        ragged = value.__class__ is RaggedArray
        key = value._store, id(value._ids) if ragged else value._id, ragged
        if key not in places:
            places[key] = len(values)
            values.append(value)
        return places[key]

    inputs = []
    for arg in args:
        if arg.__class__ is not ExpressionArray:
            inputs.append(place_of(unpacked(recording, recording.values([arg]))[0]))
            continue
        owner, inner, _ = _STORE.__get__(arg)
        if owner is not recording or inner.mode != recording.mode:
            return None
        moved = list(map(place_of, inner.values))
        results: list[int] = []
        for name, options, read in inner.operators:
            own = tuple([moved[i] if i >= 0 else ~results[~i] for i in read])
            results.append(operators.setdefault((name, options, own), len(operators)))
        inputs.append(~results[-1])
    last = op, attrs, tuple(inputs)
    if last in operators:
        operators = {each: i for each, i in operators.items() if i <= operators[last]}
    operators[last] = len(operators)
    return Expression(tuple(operators), tuple(values), recording.mode)


def _form(recording: Any, expression: Expression) -> Any:
    """Return the form of the calls of an expression; None if MXNet refuses such arguments, or if it
    has several results."""
    operators, values, _ = expression
    name = '+'.join([op for op, _, _ in operators])
    try:
        form = recording._form_of(
            operator_maker(name, operators),
            values,
            lambda: trace_operators(name, operators, len(values)),
        )
    except (RecordError, mx.base.MXNetError):
        return None
    return form if form.outputs == 1 and not form.node_type.alone else None


def record_held(expressions: list[Any]) -> None:
    """Record the expressions that somebody still refers to, as their scope ends."""
    while expressions:
        value = expressions.pop()
        if value.__class__ is ExpressionArray and sys.getrefcount(value) > 2:
            value.recorded()


def without_expressions(args: Sequence[Any]) -> list[Any]:
    """Return arguments with recorded values in the place of expressions."""
    return [arg.recorded() if arg.__class__ is ExpressionArray else arg for arg in args]
