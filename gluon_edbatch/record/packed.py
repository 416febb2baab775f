"""Pack sequences of different lengths: record calls on them as calls on packed values.

A sequence that is one value, (1, L, ...), is packed as L rows. Sequences of all lengths lie in one
arena, one after the other, and a batch of them needs no padding. Users see the usual shape. Calls
that work position by position read the rows as they are. Others, such as attention, get the end of
each sequence (`Kind.PACKED`), if a backend supports that. A sequence (L, 1, ...) is L rows already.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Optional

import mxnet as mx

from ..ops.attrs import Shape
from ..subgraph.node_type import NodeType
from ..subgraph.padded import ProvedPadding
from ..subgraph.padding_proof import all_linked
from ..subgraph.sentences import inverse, lengths_first
from ..subgraph.spec import Spec, spec_of
from .calls import Callee, Form, Nothing, Number, Ragged
from .forms import Forms
from .lazy import LazyArray
from .packed_types import one_row, packed_kind, packed_spec, type_of_packed
from .remembered import Maker, Remembered, remember
from .stores import Store, StoreKind

LAY_OUT = 'lay out a sentence'  # as rows, or rows as a sentence: an operator that no user calls


class PackedCall:
    """Tell all recordings how calls with packed arguments at some positions are recorded, for any
    length.

    `along` tells where these arguments have their positions: (L, 1, ...) at 0, (1, L, ...) at 1.
    `results` tells of each result which axes have lengths; none if it is no packed sentence.
    """

    def __init__(self, node_type: NodeType, padding: ProvedPadding):
        self.node_type = node_type
        self.along = dict(sorted(padding.axes.items()))
        self.positions, self.axes = tuple(self.along), tuple(self.along.values())
        self.results = tuple([tuple([each.axis for each in own]) for own in padding.results])
        self.linked = padding.linked  # pairs of arguments that must be equally long
        self.is_one_length = all_linked(padding.axes, padding.linked)
        self.shortest = padding.least_length
        self.kinds: dict[Any, Remembered] = {}  # what makes forms, by lengths

    def lengths(self, leaves: Sequence[LazyArray]) -> dict[int, int]:
        """Return the length of each packed argument, by position. None at all if some that must be
        equal differ, a window does not fit, or an argument does not fit the type."""
        lengths = {}
        for position, (leaf, argument) in enumerate(zip(leaves, self.node_type.arguments)):
            store, axis = leaf._store, self.along.get(position)
            if axis is not None:
                fits = (not axis or store.shape[0] == 1) and store.packed in (0, axis)
                lengths[position] = store.shape[axis] if fits else 0
                spec = packed_spec(leaf, axis) if fits else store.spec
            else:
                spec = self._spec_of_other(store.spec)
                if store.packed or spec.rows != argument.rows:
                    return {}
            if spec.arena is not argument.arena:
                return {}
        shortest = min(lengths.values())
        equal = all(lengths[one] == lengths[other] for one, other in self.linked)
        return lengths if equal and shortest >= max(self.shortest, 1) else {}

    def _spec_of_other(self, spec: Spec) -> Spec:
        return spec if self.node_type.axes else one_row(spec)

    @property
    def of_pairs(self) -> bool:
        """Whether a result has a row for each pair of positions."""
        return any(len(axes) > 1 for axes in self.results)

    def form(
        self, forms: Forms, lengths: Mapping[int, int], callee: Optional[Callee] = None
    ) -> Form:
        """Return a recording's form of calls on sequences of these lengths, by position."""
        every = tuple(lengths.values())
        length = every[0] if self.is_one_length else every
        form = forms.forms_by_key.get((self, length))
        if form is None or form.changed():
            block, mutable = (callee.block, callee.mutable) if callee else (None, None)
            kind = self.kinds.get(length)
            form = None if kind is None else forms.form_again(kind, block, mutable)
            if form is None:
                rows = 1 if self.node_type.packed else every[0]
                own = block, mutable, lengths, self.results
                form = forms.new_form(self.node_type, rows, *own)
                remember(self.kinds, length, forms.remembered_form(form))
            forms.forms_by_key[self, length] = form
        return form

    def values(self, recording: Any, leaves: Sequence[LazyArray]) -> list[LazyArray]:
        """Return the arguments of a call, with sentences packed as rows, and states as one row."""
        values, along = list(leaves), self.along
        for position, leaf in enumerate(leaves):
            spec = leaf._store.spec
            if along.get(position):
                values[position] = packed_value(recording, leaf, along[position])
            elif position not in along and self._spec_of_other(spec) is not spec:
                array, store = recording.held(leaf), recording.store(one_row(spec))
                values[position] = _in_shape(recording, leaf, array, store)
        return values

    def record(
        self, recording: Any, leaves: Sequence[LazyArray], callee: Optional[Callee] = None
    ) -> Any:
        """Record one call of a callee, or of an operator, on packed values; return its results as
        lazy values, or None if the arguments do not fit (see `lengths`)."""
        lengths = self.lengths(leaves)
        if not lengths:
            return None
        form = self.form(recording, lengths, callee)
        return recording.append_call(form, self.values(recording, leaves))

    def find_again(
        self, recording: Any, callee: Callee, kinds: Sequence[Any], leaves: Sequence[LazyArray]
    ) -> None:
        """Let the search of calls.py find calls with arguments of these kinds and any length."""
        if not self.is_one_length or {Number, Ragged, Nothing}.intersection(kinds):
            return
        places = [at for at, kind in enumerate(kinds) if kind.__class__ is StoreKind]
        found, along = list(kinds), self.along
        for position, (at, leaf) in enumerate(zip(places, leaves)):
            store = leaf._store
            if position in along:
                if along[position] > 1 and not store.packed:  # what it stands for has axis 1
                    return
                if kinds[at].any_length is None:
                    return
                found[at] = kinds[at].any_length
            elif store.spec.rows > 1:  # states, which the search does not turn
                return
        recording.sentences_at[callee.first.after_all(found)] = self


def packed_before(recording: Any, callee: Callee, key: tuple) -> Optional[PackedCall]:
    """Return how packed calls with arguments of these kinds are recorded, if one was in this scope
    or an earlier one. `key` is from `but_for_lengths`."""
    known = callee.first.packed.get(key)
    if known is None or known.node_type in recording.watched:
        return known
    return known if recording.watch_type(known.node_type) else None


def known_packed(recording: Any, callee: Callee, args: Sequence[Any]) -> Optional[PackedCall]:
    """Return how an operator's packed calls are recorded, if one of another length was."""
    if not callee.first.packed or not all(
        [arg.__class__ is recording.value_type and arg._store.packed for arg in args]
    ):
        return None
    return packed_before(recording, callee, but_for_lengths([arg._store.token for arg in args]))


def but_for_lengths(kinds: Sequence[Any]) -> tuple:
    """Return kinds of arguments without the lengths of sequences."""
    return tuple(
        [
            kind.any_length if kind.__class__ is StoreKind and kind.any_length is not None else kind
            for kind in kinds
        ]
    )


def packed_call(
    forms: Forms,
    maker: Maker,
    padding: ProvedPadding,
    known: dict[Any, Any],
    leaves: Sequence[LazyArray],
) -> Optional[PackedCall]:
    """Return how calls with a proved padding are recorded on packed values, which `known`
    remembers; None if that is impossible."""
    if padding.graph is None:
        return None
    if any(leaves[i]._store.packed not in (0, axis) for i, axis in padding.axes.items()):
        return None
    key = forms.options, leaves[0].ctx, tuple(padding.axes.items())
    if key not in known:
        node_type = type_of_packed(forms, maker, padding, leaves)
        known[key] = None if node_type is None else PackedCall(node_type, padding)
    packed = known[key]
    if packed is None or not packed.node_type.fits():
        return None
    forms.watch_parameters(maker.name, packed.node_type)
    return packed


def packed_beside(recording: Any, leaves: list[LazyArray]) -> list[LazyArray]:
    """Return values with arrays of the user packed, too, that are as long as a packed one."""
    packed = [leaf._store for leaf in leaves if leaf._store.packed > 0]
    lengths = {store.shape[store.packed]: store.packed for store in packed}
    found = list(leaves)
    for place, leaf in enumerate(leaves):
        axes = {axis: lengths[size] for axis, size in enumerate(leaf.shape) if size in lengths}
        same = [axis for axis, other in axes.items() if axis == other]
        axis = (same or [*axes, 0])[0]
        if axis and not leaf._store.packed and recording.held(leaf) is not None:
            found[place] = packed_value(recording, leaf, axis)
    return found


def packed_value(
    recording: Any, leaf: LazyArray, axis: int = 1, is_free: bool = False
) -> LazyArray:
    """Return a value with L positions along an axis, (1, L, ...), as L rows, packed once for all
    calls; any other as it is, and one that takes a call to pack if it must be free."""
    store = leaf._store
    if store.packed or len(store.shape) < 2 or store.shape[0] != 1:
        return leaf
    known = recording.packed.get(leaf._id)
    if known is None or known._store.packed != axis or known._store.shape != store.shape:
        array = recording.held(leaf)
        if is_free and array is None:
            return leaf
        rows = recording.store(*packed_kind(store.spec, axis))
        order = () if axis == 1 else lengths_first(len(store.shape), (axis,))
        known = recording.packed[leaf._id] = _in_shape(recording, leaf, array, rows, order)
    return known


def _in_shape(
    recording: Any, leaf: LazyArray, array: Any, store: Store, order: Sequence[int] = ()
) -> LazyArray:
    """Return a value, or the array that it holds, with the same elements as a value of another
    store, transposed if there is an `order` of its axes."""
    spec = store.spec
    if array is not None:
        recording.arrays.append((spec, recording.in_shape(array, spec.shape, order)))
        return recording.value_type(store, -2 * len(recording.arrays))
    form = _reshaping_form(recording, leaf._store.spec, spec.shape, order)
    return recording.value_type(store, recording.append_call(form, [leaf])._id)


def in_one_row(recording: Any, leaf: LazyArray) -> LazyArray:
    """Return a value (k,) as one row, (1, k)."""
    spec = leaf._store.spec
    store = recording.store(spec_of((1, *spec.shape), spec.dtype, spec.ctx))
    return _in_shape(recording, leaf, recording.held(leaf), store)


def unpacked(recording: Any, args: Sequence[Any]) -> list[Any]:
    """Return arguments with packed values in the shape that users see."""
    return [
        unpacked(recording, arg)
        if arg.__class__ in (list, tuple)
        else _unpack(recording, arg)
        if arg.__class__ is recording.value_type and arg._store.packed
        else arg
        for arg in args
    ]


def _unpack(recording: Any, value: LazyArray) -> LazyArray:
    known = recording.packed.get(value._id)
    if known is None or known.shape != value.shape or known._store.packed:
        form = _unpacking_form(recording, value._store)
        known = recording.packed[value._id] = recording.append_call(form, [value])
        recording.packed[known._id] = recording.value_type(value._store, value._id)
    return known


def _unpacking_form(forms: Forms, store: Store) -> Form:
    key = 'unpack', store
    form = forms.forms_by_key.get(key)
    if form is None:
        order = lengths_first(len(store.shape), store.axes)
        shape = tuple([store.shape[axis] for axis in order])
        form = _reshaping_form(forms, store.spec, shape, inverse(order))
        forms.forms_by_key[key] = form
    return form


def _reshaping_form(forms: Forms, spec: Spec, shape: Shape, order: Sequence[int] = ()) -> Form:
    """Return the form of a reshape, after or before its longer one of both shapes is transposed."""
    packs, moves = len(shape) < len(spec.shape), [*order] != sorted(order)

    def lay_out(x: mx.sym.Symbol) -> mx.sym.Symbol:
        x = mx.sym.transpose(x, order) if moves and packs else x
        x = mx.sym.reshape(x, shape)
        return mx.sym.transpose(x, order) if moves and not packs else x

    return forms.form_of_rewriting(LAY_OUT, spec, lay_out, shape=shape, order=order)
