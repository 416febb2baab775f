"""Fuse operators whose results depend on how many values there are, but are no list of them.

Attention weights ``softmax(batch_dot(q, r, transpose_b=True))`` of a ragged r are (1, 1, K). So are
``softmax(dot(q, m, transpose_b=True))`` of matrices m (K, H) whose numbers of rows differ. Weights
of a packed sentence for itself are (1, L, L). Such a result stays an *expression*. An operator that
reads it becomes part of it. Once a result does not depend on the number of values, or has it along
one axis (``batch_dot(weights, r)``), the whole expression is recorded as one call, as that of a
block would be. So it has one type for any number of values. An expression that is read in another
way is recorded operator by operator, with its length.

Cython compiles this module where a compiler is present, as `calls`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Optional

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import RecordError

from ..ops import op_of
from ..ops.attrs import Attrs
from ..ops.whole import NoRule
from ..subgraph.node_type import Mode
from ..subgraph.padding_proof import Along
from ..subgraph.spec import Spec, spec_of
from ..subgraph.trace import INPUT, Operator, StaticGraph, trace_operators
from .element_calls import stacked
from .families import operator_padding
from .forms import key_of
from .lazy import (
    ARITHMETIC,
    METHODS,
    RAGGED,
    VALUES,
    LazyArray,
    LazyNumpyArray,
    RaggedArray,
    operand,
    refuse_none,
    without_elements,
)
from .packed import packed_call
from .remembered import decide_padding_anew, operator_maker
from .scopes import place
from .stores import SEVERAL

_MOST_NUMBERS = 16  # attributes of one operator, as each makes other types
_MOST_KINDS = 4096  # of operators on matrices
_KINDS = *VALUES, *RAGGED
_STORE = LazyArray.__dict__['_store']
_numbers: dict[tuple, set[tuple]] = {}  # by operator, and the expressions that it reads
# By an operator with its keyword arguments, and kinds of arguments: what it was fused as.
FUSED: dict[tuple, tuple[str, tuple]] = {}
# By operator and kinds of arguments: rows of the first call, and matrices that differ in rows.
_first_rows: dict[tuple, tuple[list[int], list[int]]] = {}


@dataclass(frozen=True, eq=False)
class Expression:
    """Operators, each on values or on results of operators before it; and what is known of them."""

    operators: tuple[Operator, ...]
    matrices: frozenset[int]  # positions of values of which the rows are the values along an axis
    mode: Mode  # in which they were called
    result: Spec  # for some number of values
    axes: tuple[Along, ...]  # those of the result that depend on it
    # records these operators as one call; returns None if that is not possible
    call: Callable[[Sequence[LazyArray]], Any]

    def length(self, values: Sequence[LazyArray], position: int) -> int:
        """Return how many values an argument has."""
        value = values[position]
        if position in self.matrices:
            return value.shape[0]
        return value.shape[value._store.packed or 1]

    def record(self, recording: Any, values: Sequence[LazyArray]) -> Any:
        """Record one call, else operator by operator with the lengths of the values; return the
        last result."""
        results: list[Any] = []
        with recording.in_mode(self.mode):
            found = self.call(values)
            if found is not None:
                return found
            values = [stacked(recording, value) for value in values]
            for op, attrs, inputs in self.operators:
                args = [values[place] if place >= 0 else results[~place] for place in inputs]
                results.append(recording.operator(op, attrs, args, False))
        return results.pop()


class _Fused(LazyArray if TYPE_CHECKING else object):  # type: ignore[misc]
    """What expressions of both modes share."""

    __slots__ = ()

    def __init__(self, recording: Any, expression: Expression, values: Sequence[LazyArray]):
        _STORE.__set__(self, (recording, expression, values, place()))

    def __del__(self):
        pass  # the base class's would free a handle

    def recorded(self) -> LazyArray:
        """Record the expression, and return this object as the value."""
        recording, expression, values, called_at = _STORE.__get__(self)
        recording.check_alive()
        if 0 in self.shape:
            refuse_none(self.shape)
        begin = len(recording.node_forms)
        value = expression.record(recording, values)
        recording.move_calls(begin, *called_at)
        self.__class__ = recording.value_type
        self._store, self._id = value._store, value._id
        return self

    _store = property(lambda self: self.recorded()._store)
    _id = property(lambda self: self.recorded()._id)

    @property
    def shape(self) -> tuple[int, ...]:
        """Tuple of array dimensions."""
        _, expression, values, _ = _STORE.__get__(self)
        shape = list(expression.result.shape)
        for along in expression.axes:
            lengths = {place: expression.length(values, place) for place in along.positions}
            shape[along.axis] = along.length(lengths)
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

    def evaluated(self) -> NDArray:
        """Return the value as an ordinary NDArray (see `LazyArray.evaluated`)."""
        if 0 in self.shape:
            refused = partial(refuse_none, self.shape)
            return without_elements(self.shape, _STORE.__get__(self)[1].result, refused)
        return super().evaluated()

    def made(self) -> None:
        """Return None: no array that was made in the scope."""

    def _recorded(self, function: Callable[..., Any], **options: Any) -> Any:
        if _STORE.__get__(self)[0].active():
            return function(self, **options)
        return self.recorded()._recorded(function, **options)


class ExpressionArray(_Fused, LazyArray):
    """A lazy value that is an expression. It becomes a recorded value when that is needed."""

    __slots__ = ()


class ExpressionNumpyArray(_Fused, LazyNumpyArray):
    """An expression in NumPy mode."""

    __slots__ = ()

    @property
    def dtype(self):
        """A ``numpy.dtype``."""
        return np.dtype(_STORE.__get__(self)[1].result.dtype)


EXPRESSIONS = ExpressionArray, ExpressionNumpyArray  # by mode, as `VALUES`


def _arithmetic(eager: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(eager)
    def method(self, other):
        return eager(self, operand(self, other))

    return method


for _class, _plain, _names in (
    (ExpressionArray, NDArray, ARITHMETIC),
    (ExpressionNumpyArray, mx.np.ndarray, [*ARITHMETIC, 'matmul', 'rmatmul']),
):
    for _name in METHODS:
        setattr(_class, _name, getattr(_plain, _name))
    for _name in _names:
        setattr(_class, f'__{_name}__', _arithmetic(getattr(_plain, f'__{_name}__')))


def fused(
    recording: Any,
    op: str,
    attrs: tuple,
    args: Sequence[Any],
    matrices: Sequence[int] = (),
) -> Any:
    """Return the result of an operator on ragged values, matrices or expressions, recorded as one
    call with these, or a new expression; None if neither is proved to be right."""
    parts: list[Any] = []
    key: list[Any] = [op, attrs]
    values: list[Any] = []
    if not _read(recording, args, matrices, parts, key, values):
        return None
    of_all = tuple(key)
    known = recording.forms_by_key.get(of_all)
    if known is None:
        pattern = [item for item in key if item.__class__ is int]
        known = _expression(recording, op, attrs, parts, pattern, values) or False
        if known or not any(map(_is_without_values, values)):
            recording.forms_by_key[of_all] = known
    if not known:
        return None
    if not known.axes:
        result = known.call(values)
    else:
        result = EXPRESSIONS[known.mode.numpy](recording, known, values)
        recording.keep_expression(result)
    recording.joined = op, attrs, args, result
    return result


def _read(
    recording: Any,
    args: Sequence[Any],
    matrices: Sequence[int],
    parts: list,
    key: list,
    values: list,
) -> bool:
    """Append what an operator reads: for each argument its expression, or whether it is a matrix,
    to `parts`; each value once to `values`; and to `key` what such calls have in common, with the
    places of their values. Return False if the operator cannot join."""
    places: dict[Any, int] = {}
    lengths = _lengths(args)
    for position, arg in enumerate(args):
        kind = arg.__class__
        if kind in EXPRESSIONS:
            owner, part, own, _ = _STORE.__get__(arg)
            if owner is not recording or part.mode != recording.mode:
                return False
            key.append(part)
        else:
            if kind not in _KINDS or arg._store.recording is not recording:
                if recording.is_weight(arg):
                    return False
                (arg,) = recording.values([arg])
            store, own = arg._store, (arg,)
            shape = store.shape
            part = (
                arg.__class__ is recording.value_type
                and not store.packed
                and (position in matrices or (len(shape) > 1 and shape[0] in lengths))
            )
            key.append(store.spec.arena if part else _kind_of(arg))
        parts.append(part)
        for value in own:
            place = places.setdefault(_identity(value), len(places))
            key.append(place)
            if place == len(values):
                if not isinstance(value, RaggedArray):  # the user's may be written to
                    value = recording.value_type(value._store, value._id)
                values.append(value)
    return True


def _kind_of(arg: Any) -> object:
    store = arg._store
    return store.token.any_length if store.packed else key_of(arg)


def _is_without_values(value: Any) -> bool:
    return isinstance(value, RaggedArray) and not value._ids


def _identity(value: Any) -> Any:
    return ('ragged', id(value._ids)) if isinstance(value, RaggedArray) else value._id


def _lengths(args: Sequence[Any]) -> list[int]:
    """Return how many values the expressions among some arguments depend on."""
    lengths = []
    for arg in args:
        if arg.__class__ in EXPRESSIONS:
            _, expression, values, _ = _STORE.__get__(arg)
            lengths += [values[place]._store.shape[0] for place in expression.matrices]
    return lengths


def fused_again(recording: Any, joined: tuple[str, tuple], args: Sequence[Any]) -> Any:
    """Return the result of an operator that was fused on other arguments of these classes; None if
    it is not to be fused with these."""
    op, attrs = joined
    for arg in args:
        if arg.__class__ is not recording.value_type or arg._store.packed:
            return fused(recording, op, attrs, args)
    matrices = rows_that_differ(op, attrs, args)
    return fused(recording, op, attrs, args, matrices) if matrices else None


def fused_kind(arg: Any) -> Any:
    """Return a key for arguments like this one in any scope."""
    kind = arg.__class__
    if kind is ExpressionArray:
        return _STORE.__get__(arg)[1].operators
    return (kind, arg._store.spec.arena, arg._store.packed) if kind in _KINDS else kind


def rows_that_differ(op: str, attrs: tuple, leaves: Sequence[Any]) -> Sequence[int]:
    """Return the positions of matrices that have other numbers of rows in other calls."""
    stores = [leaf._store for leaf in leaves]
    rows = [store.shape[0] if store.shape else 0 for store in stores]
    key = op, attrs, *[store.spec.arena for store in stores]
    found = _first_rows.get(key)
    if found is None:
        if len(_first_rows) > _MOST_KINDS:
            _first_rows.clear()
        found = _first_rows.setdefault(key, (rows, []))
    first, known = found
    for position, count in enumerate(rows):
        if count != first[position] and position not in known:
            known.append(position)
            decide_padding_anew()
    return known


def _expression(
    recording: Any,
    op: str,
    attrs: tuple,
    parts: Sequence[Any],
    pattern: Sequence[int],
    values: Sequence[LazyArray],
) -> Optional[Expression]:
    """Return what is known of an operator with the expressions that it reads; None if it is not
    recorded with them. `pattern` has the places in `values` of all values that these read."""
    if op_of(op).number is not None:
        if len(_numbers) > _MOST_KINDS:
            _numbers.clear()
        joined = [isinstance(part, Expression) and part.operators for part in parts]
        met = _numbers.setdefault((op, *joined), set())
        if len(met) >= _MOST_NUMBERS and attrs not in met:
            return None
        met.add(attrs)
    draws = op_of(op).draws(Attrs(attrs), recording.mode.training)  # once for all that reads it
    if draws:
        return None
    operators: dict[Operator, int] = {}
    matrices: set[int] = set()
    inputs: list[int] = []
    left = iter(pattern)
    for part in parts:
        if not isinstance(part, Expression):
            place = next(left)
            inputs.append(place)
            matrices.update((place,) if part else ())
            continue
        count = 1 + max([place for _, _, read in part.operators for place in read])
        moved = [next(left) for _ in range(count)]
        matrices.update([moved[place] for place in part.matrices])
        results: list[int] = []
        for name, options, read in part.operators:
            own = tuple([moved[place] if place >= 0 else ~results[~place] for place in read])
            results.append(operators.setdefault((name, options, own), len(operators)))
        inputs.append(~results.pop())
    last = operators.setdefault((op, attrs, tuple(inputs)), len(operators))
    ordered, mode = tuple(operators)[: last + 1], recording.mode
    try:
        found = None
        if not matrices and not any([value._store.packed for value in values]):
            found = _of_ragged(recording, values, ordered, mode)
            if found is not None and len(found.axes) < 2:
                return found
        return _of_sentences(recording, values, ordered, frozenset(matrices), mode) or found
    except (RecordError, NoRule, mx.base.MXNetError):
        return None


def _name_of(operators: tuple[Operator, ...]) -> str:
    return '+'.join([op for op, _, _ in operators])


def _graph(operators: tuple[Operator, ...], count: int) -> StaticGraph:
    graph = trace_operators(_name_of(operators), operators, count)
    if len(graph.subgraph.heads) > 1:
        raise NoRule('an operator with several results')
    return graph


def _of_ragged(
    recording: Any, values: Sequence[LazyArray], operators: tuple[Operator, ...], mode: Mode
) -> Optional[Expression]:
    """Return an expression of ragged values."""
    maker = operator_maker(_name_of(operators), operators)
    form = recording._form_of(maker, values, lambda: _graph(operators, len(values)))
    node_type = form.node_type
    axes = () if node_type.neutral or node_type.elements else node_type.ragged_axes
    if node_type.alone or axes is None:
        return None
    call = partial(recording.append_call, form)
    return Expression(operators, frozenset(), mode, node_type.outputs[0], axes, call)


def _of_sentences(
    recording: Any,
    values: Sequence[LazyArray],
    operators: tuple[Operator, ...],
    matrices: frozenset[int],
    mode: Mode,
) -> Optional[Expression]:
    """Return an expression of packed sentences, ragged values and matrices, whose result has their
    lengths along several axes, or along that of rows, until one call is recorded."""
    values = [stacked(recording, value) for value in values]
    if any([value._store.packed == SEVERAL or not value._store.shape for value in values]):
        return None
    maker = operator_maker(_name_of(operators), operators)
    axes = {i: value._store.packed for i, value in enumerate(values) if value._store.packed}
    axes.update(dict.fromkeys(sorted(matrices), 0))
    if not axes:
        return None  # a ragged value of single rows, which are stacked
    trace = partial(_graph, operators, len(values))
    padding, known = operator_padding(recording, maker, trace, axes, values)
    if padding.graph is None:
        return None
    packed = packed_call(recording, maker, padding, known, values)

    def call(values: Sequence[LazyArray]) -> Any:
        if any(map(_is_without_values, values)):
            return None
        values = [stacked(recording, value) for value in values]
        return None if packed is None else packed.record(recording, values)

    (along,) = padding.results
    if len(along) > 1 or (matrices and along):
        result = known.get(values[0].ctx)
        if result is None:
            shapes = {INPUT % i: value.shape for i, value in enumerate(values)}
            dtypes = {INPUT % i: value.dtype for i, value in enumerate(values)}
            ((shape, dtype),) = padding.graph.subgraph.results(shapes, dtypes)
            result = known[values[0].ctx] = spec_of(shape, dtype, values[0].ctx)
        return Expression(operators, matrices, mode, result, along, call)
    if packed is None:
        return None
    return Expression(operators, matrices, mode, packed.node_type.outputs[0], (), call)
