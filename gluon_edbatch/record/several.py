"""Join several values to one: by concatenating their rows, or as a ragged value."""

from collections.abc import Sequence
from typing import Any, Optional

import mxnet as mx
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import RecordError
from gluon_edbatch_core.short_repr import brief

from ..subgraph.additions import SUM
from ..subgraph.node_type import Kind
from ..subgraph.spec import Spec, spec_of
from ..subgraph.trace import trace_operator
from .calls import Form
from .element_calls import stacked
from .inputs import is_array
from .lazy import LazyArray, RaggedArray, nested_refused, one_kind_needed, ragged_of
from .packed import unpacked
from .remembered import operator_maker
from .sites import current_site


def concat(recording: Any, args: Sequence[Any]) -> LazyArray:
    """Record a value that has the rows of some values, one after the other."""
    args = list(args)
    result = recording.concat_plain(args)
    if result is not None:
        return result
    values = [stacked(recording, value) for value in recording.values(args)]
    values = unpacked(recording, values)
    leaves = _of_one_kind(recording, values)
    arenas = {leaf._store.spec.arena for leaf in leaves}
    if len(arenas) != 1:
        shapes = ', '.join(sorted(str(leaf._store.spec) for leaf in leaves))
        raise RecordError(
            f'values of different kinds cannot be put together along axis 0: '
            f'{shapes}\n  called at {current_site()}'
        )
    rows = sum(leaf._store.spec.rows for leaf in leaves)
    return recording.concat_call(concat_form(recording, leaves[0]._store.spec, rows), leaves)


def concat_form(recording: Any, spec: Spec, rows: int) -> Form:
    """Return the form of concatenations of values with rows of this kind, `rows` rows in all."""
    key = 'concat', spec.arena

    def of_any_rows() -> Form:
        return recording.make_form(
            operator_maker('concat rows'),
            [(spec, Kind.FLAT)],
            lambda: trace_operator('_copy', (), 1)._replace(name='concat'),
        )

    return recording.form_by(
        (*key, rows),
        lambda: recording.new_form(recording.form_by(key, of_any_rows).node_type, rows),
    )


def form_of_any_number(recording: Any, form: Form) -> Form:
    """Return the form that adds or joins any number of values, as `form` does a fixed number."""
    spec = form.node_type.output_specs(form.rows)[0]
    if form.node_type.joins_rows:
        return concat_form(recording, spec, spec.rows)
    op, attrs = SUM
    return recording.make_form(
        operator_maker(op, attrs), [(spec, Kind.RAGGED)], lambda: trace_operator(op, attrs, 1)
    )


def ragged_unknown(
    recording: Any,
    values: Sequence[Any],
    shape: Optional[tuple[int, ...]],
    dtype: Any,
    ctx: Optional[mx.Context],
) -> RaggedArray:
    """Make a ragged value of values that are not all lazy and of one kind."""
    if not values:
        if not shape:
            raise RecordError(
                f'ragged() of no values needs their shape: ragged(values, '
                f'shape=(1, hidden_size))\n  called at {current_site()}'
            )
        return ragged_of(recording.store(spec_of(shape, dtype, ctx or recording.ctx)), [])
    rows = recording.handed_out_rows(values)
    if rows is not None:
        return ragged_of(*rows)
    for value in values:
        if isinstance(value, RaggedArray):
            raise RecordError(nested_refused())
        if not is_array(value):
            raise RecordError(
                f'ragged() takes arrays, not {brief(value)}\n  called at {current_site()}'
            )
    values = _of_one_kind(recording, unpacked(recording, recording.values(values)))
    stores = {value._store for value in values}
    if len(stores) > 1:
        raise RecordError(one_kind_needed(store.spec for store in stores))
    store = stores.pop()
    if not store.shape:
        raise RecordError(
            f'ragged() takes values with rows, and got one with no axes: give '
            f'value.reshape(1)\n  called at {current_site()}'
        )
    return ragged_of(store, [recording.handed_out(value)._id for value in values])


def _of_one_kind(recording: Any, values: Sequence[NDArray]) -> Sequence[NDArray]:
    """Return values to join; if one is on the user's own tape (see `execute.eager`), all are."""
    if not any(value._store.spec.eager for value in values):
        return values
    return [value if value._store.spec.eager else _eager_copy(recording, value) for value in values]


def _eager_copy(recording: Any, value: LazyArray) -> LazyArray:
    spec = value._store.spec
    key = 'eager copy', spec
    form = recording.forms_by_key.get(key)
    if form is None:
        form = recording.forms_by_key[key] = recording.make_form(
            operator_maker('eager copy'),
            [(spec, Kind.ROWS)],
            lambda: trace_operator('_copy', (), 1)._replace(name='copy'),
            eager=True,
        )
    return recording.append_call(form, [value])
