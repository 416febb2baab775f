"""Fuse operators whose results depend on how many values there are, but are no list of them.

Attention weights ``softmax(batch_dot(q, r, transpose_b=True))`` of a ragged r are (1, 1, K). So are
``softmax(dot(q, m, transpose_b=True))`` of matrices m (K, H) whose numbers of rows differ. Such a
result stays an *expression*. An operator that reads it becomes part of it. Once a result does not
depend on the number of values (``batch_dot(weights, r)``), the whole expression is recorded as one
call, as that of a block would be. So it has one type for any number of values. An expression that
is read in another way is recorded operator by operator, with its length.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple, Optional

import mxnet as mx
from mxnet.ndarray import NDArray

from ..errors import RecordError
from ..ops import op_of
from ..ops.attrs import Shape
from ..ops.whole import NoRule
from ..subgraph.matrices import of_any_rows
from ..subgraph.node_type import Kind, Mode
from ..subgraph.spec import Spec, spec_of
from ..subgraph.trace import Operator, StaticGraph, trace_operators
from .calls import Form
from .element_calls import stacked
from .forms import key_of
from .lazy import ARITHMETIC, METHODS, LazyArray, RaggedArray, operand
from .packed import unpacked
from .remembered import decide_padding_anew, keep, operator_maker, operator_types, tracing

_MOST_NUMBERS = 16  # attributes of one operator, as each makes other types
_MOST_KINDS = 4096  # of operators on matrices
_STORE = LazyArray.__dict__['_store']
_numbers: dict[tuple, set[tuple]] = {}  # by operator, and the expressions that it reads
# By operator and kinds of arguments: shapes of the first call, and matrices that differ in rows.
_first_shapes: dict[tuple, tuple[tuple[Shape, ...], frozenset[int]]] = {}


@dataclass(frozen=True, eq=False)
class Expression:
    """Operators, each on values or on results of operators before it; and what is known of them."""

    operators: tuple[Operator, ...]
    matrices: tuple[int, ...]  # positions of values of which the rows are the values along an axis
    mode: Mode  # in which they were called
    result: Spec  # for some number of values
    # the axes of the result that depend on it: on that of which argument, and how much longer
    axes: dict[int, tuple[int, int]]
    form: Callable[[Sequence[LazyArray]], Optional[Form]]  # if there are no such axes

    def length(self, values: Sequence[LazyArray], position: int) -> int:
        """Return how many values an argument has."""
        return values[position].shape[0 if position in self.matrices else 1]

    def record(self, recording: Any, values: Sequence[LazyArray]) -> Any:
        """Record operator by operator, with the lengths of the values; return the last result."""
        results: list[Any] = []
        with recording.in_mode(self.mode):
            values = [stacked(recording, value) for value in values]
            for op, attrs, inputs in self.operators:
                args = [values[place] if place >= 0 else results[~place] for place in inputs]
                results.append(recording.operator(op, attrs, args, False))
        return results[-1]


class ExpressionArray(LazyArray):
    """A lazy value that is an expression. It becomes a recorded value when that is needed."""

    __slots__ = ()

    def __init__(self, recording: Any, expression: Expression, values: Sequence[LazyArray]):
        _STORE.__set__(self, (recording, expression, values, recording.user_place()))

    def __del__(self):
        pass  # the base class's would free a handle

    def recorded(self) -> LazyArray:
        """Record the expression, and return this object as the value."""
        recording, expression, values, place = _STORE.__get__(self)
        recording.check_alive()
        begin = len(recording.node_forms)
        value = expression.record(recording, values)
        recording.move_calls(begin, *place)
        self.__class__ = LazyArray
        self._store, self._id = value._store, value._id
        return self

    _store = property(lambda self: self.recorded()._store)
    _id = property(lambda self: self.recorded()._id)

    @property
    def shape(self) -> tuple[int, ...]:
        """Tuple of array dimensions."""
        _, expression, values, _ = _STORE.__get__(self)
        shape = list(expression.result.shape)
        for axis, (source, longer) in expression.axes.items():
            shape[axis] = expression.length(values, source) + longer
        return tuple(shape)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(_STORE.__get__(self)[1].result.shape)

    @property
    def dtype(self):
        """NumPy scalar type."""
        return _STORE.__get__(self)[1].result.dtype

    @property
    def context(self) -> mx.Context:
        """Device of the value."""
        return _STORE.__get__(self)[1].result.ctx

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


def fused(
    recording: Any,
    op: str,
    attrs: tuple,
    args: Sequence[Any],
    matrices: frozenset[int] = frozenset(),
) -> Any:
    """Return the result of an operator on ragged values, matrices or expressions, recorded as one
    call with these, or a new expression; None if neither is proved to be right."""
    reads = _reads(recording, args, matrices)
    if reads is None:
        return None
    parts, values = reads
    places: dict[Any, int] = {}
    pattern = tuple([places.setdefault(_identity(value), len(places)) for value in values])
    key = op, attrs, *[part.key for part in parts], pattern
    known = recording.forms_by_key.get(key)
    values = [values[pattern.index(place)] for place in range(len(places))]
    if known is None:
        known = _expression(recording, op, attrs, parts, pattern, values) or False
        recording.forms_by_key[key] = known
    if not known:
        return None
    if not known.axes:
        form = known.form(values)
        result = None if form is None else recording.append_call(form, values)
    elif any([value.__class__ is RaggedArray and not value._ids for value in values]):
        return None
    else:
        result = ExpressionArray(recording, known, values)
        _keep(recording, result)
    recording.joined = op, attrs, args, result
    return result


def fused_again(recording: Any, op: str, attrs: tuple, args: Sequence[Any]) -> Any:
    """Return the result of an operator that was fused on other arguments of these classes; None if
    it is not to be fused with these."""
    if any([arg.__class__ is not LazyArray for arg in args]):
        return fused(recording, op, attrs, args)
    matrices = rows_that_differ(op, attrs, args)
    return fused(recording, op, attrs, args, matrices) if matrices else None


class _FusedInput(NamedTuple):
    """An argument of an operator: an expression, or a value."""

    key: Any  # what expressions of one kind have in common
    expression: Optional[Expression] = None
    is_matrix: bool = False


def _reads(
    recording: Any, args: Sequence[Any], matrices: frozenset[int]
) -> Optional[tuple[list[_FusedInput], list[LazyArray]]]:
    """Return what an operator reads, and all values of that; None if the operator cannot join."""
    parts: list[Any] = []
    values: list[Any] = []
    lengths = set()
    for arg in args:
        if arg.__class__ is not ExpressionArray:
            parts.append(None)
            continue
        owner, inner, own, _ = _STORE.__get__(arg)
        if owner is not recording or inner.mode != recording.mode:
            return None
        parts.append(_FusedInput(inner, inner))
        lengths.update([inner.length(own, place) for place in inner.matrices])
    for position, arg in enumerate(args):
        if parts[position] is not None:
            values.extend(_STORE.__get__(arg)[2])
            continue
        if not (arg.__class__ is LazyArray and not arg._store.packed):
            if recording.is_weight(arg):
                return None
            (arg,) = unpacked(recording, recording.values([arg]))
        is_matrix = position in matrices or (
            arg.__class__ is LazyArray and arg.ndim > 1 and arg.shape[0] in lengths
        )
        parts[position] = _FusedInput(
            arg._store.spec.arena if is_matrix else key_of(arg), None, is_matrix
        )
        values.append(arg)
    return parts, values


def _identity(value: Any) -> Any:
    return ('ragged', id(value._ids)) if value.__class__ is RaggedArray else value._id


def rows_that_differ(op: str, attrs: tuple, leaves: Sequence[Any]) -> frozenset[int]:
    """Return the positions of matrices that have other numbers of rows in other calls."""
    shapes = tuple([leaf.shape for leaf in leaves])
    key = op, attrs, *[(leaf.shape[1:], leaf.dtype) for leaf in leaves]
    if len(_first_shapes) > _MOST_KINDS:
        _first_shapes.clear()
    first, known = _first_shapes.setdefault(key, (shapes, frozenset()))
    differ = frozenset(
        [i for i, (one, other) in enumerate(zip(shapes, first)) if one != other and len(one) > 1]
    )
    if differ - known:
        known |= differ
        _first_shapes[key] = first, known
        decide_padding_anew()
    return known


def _expression(
    recording: Any,
    op: str,
    attrs: tuple,
    parts: Sequence[_FusedInput],
    pattern: Sequence[int],
    values: Sequence[LazyArray],
) -> Optional[Expression]:
    """Return what is known of an operator with the expressions that it reads; None if it is not
    recorded with them. `pattern` has the places in `values` of all values that these read."""
    if op_of(op).number is not None:
        if len(_numbers) > _MOST_KINDS:
            _numbers.clear()
        joined = [part.expression and part.expression.operators for part in parts]
        met = _numbers.setdefault((op, *joined), set())
        if len(met) >= _MOST_NUMBERS and attrs not in met:
            return None
        met.add(attrs)
    if recording.mode.numpy:
        return None
    operators: dict[Operator, int] = {}
    matrices: set[int] = set()
    inputs: list[int] = []
    left = iter(pattern)
    for part in parts:
        if part.expression is None:
            inputs.append(next(left))
            matrices.update(inputs[-1:] if part.is_matrix else ())
            continue
        inner = part.expression
        count = 1 + max([place for _, _, read in inner.operators for place in read])
        moved = [next(left) for _ in range(count)]
        matrices.update([moved[place] for place in inner.matrices])
        results: list[int] = []
        for name, options, read in inner.operators:
            own = tuple([moved[place] if place >= 0 else ~results[~place] for place in read])
            results.append(operators.setdefault((name, options, own), len(operators)))
        inputs.append(~results[-1])
    last = operators.setdefault((op, attrs, tuple(inputs)), len(operators))
    ordered, mode = tuple(operators)[: last + 1], recording.mode
    try:
        if matrices:
            return _of_matrices(recording, values, ordered, tuple(sorted(matrices)), mode)
        return _of_ragged(recording, values, ordered, mode)
    except (RecordError, NoRule, mx.base.MXNetError):
        return None


def _graph(operators: tuple[Operator, ...], count: int) -> StaticGraph:
    graph = trace_operators('+'.join([op for op, _, _ in operators]), operators, count)
    if len(graph.subgraph.heads) > 1:
        raise NoRule('an operator with several results')
    return graph


def _of_ragged(
    recording: Any, values: Sequence[LazyArray], operators: tuple[Operator, ...], mode: Mode
) -> Optional[Expression]:
    """Return an expression of ragged values."""
    graph = _graph(operators, len(values))
    form = recording._form_of(operator_maker(graph.name, operators), values, lambda: graph)
    node_type = form.node_type
    axes = {} if node_type.neutral or node_type.elements else node_type.ragged_axes
    if node_type.alone or axes is None:
        return None
    return Expression(operators, (), mode, node_type.outputs[0], axes, lambda _: form)


def _of_matrices(
    recording: Any,
    values: Sequence[LazyArray],
    operators: tuple[Operator, ...],
    matrices: tuple[int, ...],
    mode: Mode,
) -> Optional[Expression]:
    """Return an expression of matrices, whose rows are packed (see `packed`)."""
    if any([value.__class__ is RaggedArray for value in values]):
        return None
    specs = [
        (value._store.spec, Kind.PACKED if place in matrices else Kind.ROWS)
        for place, value in enumerate(values)
    ]
    key = 'matrices', operators, tuple([(spec.arena, kind) for spec, kind in specs])
    lifted: Any = operator_types.get(key)
    if lifted is None:
        own = [spec for spec, _ in specs]
        lifted = of_any_rows(_graph(operators, len(values)), own, matrices) or False
        with tracing:
            keep(operator_types, key, lifted)
    if not lifted:
        return None
    shape, dtype = lifted.result
    result = spec_of(shape, dtype, specs[0][0].ctx)
    if lifted.axes:
        return Expression(operators, matrices, mode, result, lifted.axes, lambda _: None)
    maker = operator_maker(lifted.graph.name, (operators, matrices))
    node_type = recording.type_of(maker, specs, lambda: lifted.graph, packed=(False,))
    if node_type.alone or node_type.whole or not recording.runs(node_type):
        return None
    forms: dict[int, Form] = {}

    def form_for(values: Sequence[LazyArray]) -> Optional[Form]:
        length, *others = {values[place].shape[0] for place in matrices}
        if not others and length not in forms:
            forms[length] = recording.new_form(node_type, 1, length=length)
        return None if others else forms[length]

    return Expression(operators, matrices, mode, result, {}, form_for)


def _keep(recording: Any, value: ExpressionArray) -> None:
    """Remember a value, which is recorded as its scope ends if somebody still refers to it."""
    kept = recording.expressions
    kept.append(value)
    if len(kept) % _MOST_KINDS == 0:  # of many, most are gone
        recording.expressions = [each for each in kept if _is_held(each, 4)]


def _is_held(value: Any, own: int) -> bool:
    """Return whether there are other references than `own` to an expression that is none yet."""
    return value.__class__ is ExpressionArray and sys.getrefcount(value) > own


def record_held(expressions: list[Any]) -> None:
    """Record the expressions that somebody still refers to, as their scope ends."""
    while expressions:
        value = expressions.pop()
        if _is_held(value, 3):
            value.recorded()
