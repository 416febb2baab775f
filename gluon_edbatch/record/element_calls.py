"""Record calls whose results keep the ragged axis as calls for each value.

`subgraph.elements` makes the graphs of these calls.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import numpy as np
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import RecordError

from ..ops.attrs import Attrs
from ..subgraph.elements import SubgraphPart
from ..subgraph.node_type import Kind
from ..subgraph.spec import Spec, spec_of
from ..subgraph.structure import unflatten
from .calls import Form
from .forms import Forms
from .lazy import EmptyArray, RaggedArray, ragged_of
from .remembered import Maker
from .sites import current_site
from .stores import ShownAs, Store

Specs = list[tuple[Spec, Kind]]
_AXIS = 1


class PartCall(NamedTuple):
    """Tell how one part of a call, for each value or for all at once, is recorded (see
    `subgraph.elements.SubgraphPart`)."""

    form: Form
    inputs: tuple[int, ...]

    def of(self, values: Sequence[NDArray]) -> list[NDArray]:
        """Return the arguments of this part among the values of the call."""
        return [values[position] for position in self.inputs]


class ElementCalls(NamedTuple):
    """Tell how a call of a form is recorded value by value."""

    template: tuple  # with `leaves`, the structure of its results: see `StaticGraph`
    leaves: tuple[int, ...]
    whole: Optional[PartCall]  # of all values
    each: Optional[PartCall]  # of one
    # For each output the axis along which it is ragged, if it is. Where that is not axis 1, a call
    # by length has it, which is not computed if nobody looks at it.
    axes: tuple[Optional[int], ...]

    def fit(self, leaves: Sequence[NDArray]) -> bool:
        """Return whether all ragged arguments have equally many values."""
        if self.each is None:
            return True
        places = [position for position in self.each.inputs if position < len(leaves)]
        return len({leaves[i].shape[1] for i in places if _is_ragged(leaves[i])}) == 1

    def record(self, recording: Any, form: Form, leaves: Sequence[NDArray]) -> Any:
        """Record one call of a form; return its results as lazy values."""
        of_all: list[Any] = []
        if self.whole is not None:
            of_all = recording.append_call(self.whole.form, self.whole.of(leaves))
        results = self._by_length(recording, form, leaves)
        outputs, others = iter(self._of_each(recording, [*leaves, *of_all])), iter(of_all)
        for place, axis in enumerate(self.axes):
            if axis is None:
                results[place] = next(others)
            elif axis == _AXIS:
                results[place] = next(outputs)
        return unflatten(self.template, iter([results[leaf] for leaf in self.leaves]))

    def _by_length(self, recording: Any, form: Form, leaves: Sequence[NDArray]) -> list[Any]:
        if {*self.axes} <= {None, _AXIS}:
            return [None] * len(self.axes)
        if self.is_of_none(leaves):
            return [
                None if axis in (None, _AXIS) else EmptyArray(recording, store.spec, (axis,))
                for axis, store in zip(self.axes, form.stores)
            ]
        base = recording.next_value
        form = recording.append_by_length(form, leaves)
        return [recording.value_type(store, base + at) for at, store in enumerate(form.stores)]

    def is_of_none(self, leaves: Sequence[NDArray]) -> bool:
        """Return whether the ragged arguments have no values."""
        return not all([leaf._ids for leaf in leaves if _is_ragged(leaf)])

    def _of_each(self, recording: Any, values: Sequence[NDArray]) -> list[RaggedArray]:
        if self.each is None:
            return []
        form, read = self.each.form, self.each.of(values)
        count = next(len(leaf._ids) for leaf in read if _is_ragged(leaf))
        base = recording.append_calls(
            form,
            [list(leaf._ids) if _is_ragged(leaf) else [leaf._id] * count for leaf in read],
        )
        end = recording.next_value
        return [
            ragged_of(store, list(range(base + output, end, form.outputs)))
            for output, store in enumerate(form.stores)
        ]


def _is_ragged(leaf: NDArray) -> bool:
    return isinstance(leaf, RaggedArray)


def stacked(recording: Any, ragged: Any) -> Any:
    """Return a ragged argument as one dense value; other arguments as they are."""
    if not _is_ragged(ragged):
        return ragged
    if not ragged._ids:
        raise RecordError(
            f'a ragged value has no values, and how many it has counts for an operator\n'
            f'  called at {current_site()}'
        )
    key = recording.mode, ragged._store, tuple(ragged._ids)
    known = recording.stacked_values.get(key)
    if known is None:
        store = store_of_stacked(recording, ragged)
        if store is None:
            shape = (0, len(ragged._ids), *ragged._store.shape[1:])
            value = recording.operator('Reshape', (('shape', str(shape)),), [ragged])
            known = value._store, value._id
        else:
            rows = recording.concat([recording.value_type(ragged._store, i) for i in ragged._ids])
            known = store, rows._id
        recording.stacked_values[key] = known
    return recording.value_type(*known)


def store_of_stacked(recording: Any, ragged: RaggedArray) -> Optional[Store]:
    """Return the store of a ragged argument as a packed sentence; None if its values have several
    rows, or none."""
    spec, count = ragged._store.spec, len(ragged._ids)
    if spec.shape[:1] != (1,) or spec.eager or not count or not ragged._store.shape:
        return None
    return recording.store(spec.of_rows(count), ShownAs((1, count, *spec.shape[1:]), 1))


def taken(recording: Any, ragged: RaggedArray, which: Any = slice(None), *others: Any) -> Any:
    """Return the value at a position of the ragged axis, or the ragged values of a slice. `others`
    are keys for the axes of each value. None if the keys cannot be applied so."""
    ids, store = ragged._ids, ragged._store
    if type(which) is int and not ids:
        raise IndexError(f'{current_site()}: index {which} of a ragged value that has no values')
    if type(which) is int and -len(ids) <= which < len(ids):
        value = ragged._sharing_memory(recording.value_type(store, ids[which]))
        return value[(slice(None), *others)] if others else value
    if type(which) is not slice or (ids and not ids[which]):
        return None
    if not others:
        return ragged_of(store, ids[which])
    key = slice(None), *others
    if not ids:  # of the values that it would have
        shape = np.empty(store.spec.shape, bool)[key].shape
        return ragged_of(recording.store(spec_of(shape, store.spec.dtype, store.spec.ctx)), [])
    return recording.ragged([recording.value_type(store, each)[key] for each in ids[which]])


def rearranged(
    recording: Any, op: str, attributes: tuple[tuple[str, str], ...], leaves: Sequence[Any]
) -> Any:
    """Return the result of an operator that only reorders values along the ragged axis, without a
    computation; None for any other operator."""
    if op not in ('Concat', 'slice_axis', 'reverse'):
        return None
    attrs, rank, store = Attrs(attributes), leaves[0].ndim, leaves[0]._store
    if op == 'Concat' and attrs.axis('dim', rank, 1) == _AXIS:
        full = [leaf for leaf in leaves if not _is_ragged(leaf) or leaf._ids]
        if len(full) == 1 < len(leaves):
            return recording.operator('_copy', (), full)
        if 0 < len(full) < len(leaves):
            count = ('num_args', str(len(full)))
            others = tuple([pair for pair in attributes if pair[0] != 'num_args'])
            return recording.operator(op, (*others, count), full)
    if any(not _is_ragged(leaf) or leaf._store is not store for leaf in leaves):
        return None
    ids = [value for leaf in leaves for value in leaf._ids]
    if op == 'slice_axis' and attrs.axis('axis', rank) == 1:
        (begin,), end = attrs.integers('begin'), attrs.integers('end')
        ids = ids[begin : end[0] if end else None]
    elif op == 'reverse' and attrs.axes(rank) == {1}:
        ids = ids[::-1]
    elif op != 'Concat' or attrs.axis('dim', rank, 1) != 1:
        return None
    return ragged_of(store, ids) if ids or not any([leaf._ids for leaf in leaves]) else None


def element_calls(forms: Forms, form: Form, maker: Maker, specs: Specs) -> Optional[ElementCalls]:
    """Return how calls of a form, on arguments of these specs, are recorded for each value; None if
    they are recorded as one call."""
    elements = form.node_type.elements
    if elements is None:
        return None

    def call_of(part: SubgraphPart, name: str, specs: Specs) -> Optional[PartCall]:
        own = [specs[position] for position in part.inputs]
        made = forms.make_form(maker._replace(head=(*maker.head, name)), own, lambda: part.graph)
        made.block, made.mutable = form.block, form.mutable
        proved = made.node_type.neutral and not made.node_type.alone
        return PartCall(made, part.inputs) if proved else None

    whole = None
    if elements.whole is not None:
        whole = call_of(elements.whole, 'all values', specs)
        if whole is None:
            return None
        specs = [*specs, *[(store.spec, Kind.ROWS) for store in whole.form.stores]]
    each = None
    if elements.each is not None:
        each = call_of(elements.each, 'each value', [(spec, Kind.ROWS) for spec, _ in specs])
        if each is None:
            return None
    return ElementCalls(form.template, form.leaves, whole, each, elements.axes)
