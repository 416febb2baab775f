"""Pack sequences of different lengths: record calls on them as calls on packed values.

A sequence that is one value, (1, L, ...), is packed as L rows. Sequences of all lengths lie in one
arena, one after the other, and a batch of them needs no padding. Users see the usual shape. Calls
that work position by position read the rows as they are. Others, such as attention, get the end of
each sequence (`Kind.PACKED`), if a backend supports that. A sequence (L, 1, ...) is L rows already.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Optional
from weakref import WeakKeyDictionary

import mxnet as mx
import numpy as np
from mxnet import gluon

from ..errors import RecordError
from ..ops.attrs import Shape
from ..subgraph.elements import by_position, does_the_same_to_rows
from ..subgraph.fingerprint import contents
from ..subgraph.node_type import Kind, NodeType, is_sparse
from ..subgraph.padded import PaddedGraph
from ..subgraph.padding_proof import all_linked
from ..subgraph.sentences import sentences_first, with_positions
from ..subgraph.spec import Spec, spec_of
from .calls import Callee, Form, Nothing, Number, Ragged, kept
from .forms import Forms
from .lazy import LazyArray
from .remembered import Maker, decide_padding_anew, remember
from .stores import ShownAs, Store

LAY_OUT = 'lay out a sentence'  # as rows, or rows as a sentence: an operator that no user calls

# The types of packed calls, and whether later scopes are to pack for their sake.
_pays: 'WeakKeyDictionary[NodeType, bool]' = WeakKeyDictionary()


class PackedCall(NamedTuple):
    """Tell how calls with packed arguments at some positions are recorded, for any length.

    `axes` tells where these arguments have their positions: (L, 1, ...) at 0, (1, L, ...) at 1.
    `results` tells it of each result, with 0 for those that are no packed sentences. `pays` tells
    if packing costs less than calls by length. `forms` maps lengths to forms. `block` and `mutable`
    are as in `Form`.
    """

    node_type: NodeType
    positions: tuple[int, ...]
    pays: bool
    block: Optional[gluon.Block]
    mutable: Optional[tuple]
    forms: dict[int, Form]
    kinds: dict[int, Any]  # what later scopes make the forms of, by length
    axes: tuple[int, ...]
    results: tuple[int, ...]
    shortest: int = 1  # length

    def length(self, leaves: Sequence[LazyArray]) -> int:
        """Return the common length of all packed arguments; 0 if there are several lengths, or a
        window does not fit in it, or if another argument does not fit the type."""
        lengths = set()
        along = dict(zip(self.positions, self.axes))
        for position, leaf in enumerate(leaves):
            store = leaf._store
            if position in along:
                axis, arena = along[position], self.node_type.arguments[position].arena
                fits = store.shape[not axis] == 1 and store.packed in (0, axis)
                fits = fits and _packed_spec(leaf, axis).arena is arena
                lengths.add(store.shape[axis] if fits else 0)
            elif store.packed or (
                _one_row(store.spec).arena is not self.node_type.arguments[position].arena
            ):
                return 0
        length = lengths.pop()
        return length if not lengths and length >= self.shortest else 0

    def is_wanted(self, recording: Any, leaves: Sequence[LazyArray]) -> bool:
        """Return whether packing costs less than calls by length. It does if the arguments are
        packed already, or NumPy arrays."""
        return self.length(leaves) > 0 and (
            self.pays
            or 0 in self.axes
            or all(
                leaves[position]._store.packed or _is_free(recording, leaves[position])
                for position in self.positions
            )
        )

    def changed(self) -> bool:
        """Return whether containers among the block's attributes have changed (see `Form`)."""
        return self.mutable is not None and self.mutable[1] != contents(self.mutable[0])

    def form(self, forms: Forms, length: int) -> Form:
        """Return the form of calls on sequences of a length."""
        form = self.forms.get(length)
        if form is None:
            kind = self.kinds.get(length)
            form = None if kind is None else forms.form_again(kind, self.block, self.mutable)
            if form is None:
                rows = 1 if self.node_type.packed else length
                own = self.block, self.mutable, length, self.results
                form = forms.new_form(self.node_type, rows, *own)
                remember(self.kinds, length, forms.remembered_form(form))
            self.forms[length] = form
        return form

    def values(self, recording: Any, leaves: Sequence[LazyArray]) -> list[LazyArray]:
        """Return the arguments of a call, with sentences packed as rows, and states as one row."""
        values = list(leaves)
        along = dict(zip(self.positions, self.axes))
        for position, leaf in enumerate(leaves):
            if position not in along and leaf._store.spec.rows > 1:
                values[position] = _in_shape(recording, leaf, _one_row(leaf._store.spec))
            elif along.get(position):
                values[position] = packed_value(recording, leaf, along[position])
        return values

    def record(self, recording: Any, leaves: Sequence[LazyArray]) -> Any:
        """Record one call on packed values; return its results as lazy values."""
        form = self.form(recording, self.length(leaves))
        return recording.append_call(form, self.values(recording, leaves))

    def find_again(self, callee: Callee, kinds: Sequence[Any]) -> None:
        """Let the search of calls.py find calls with arguments of these kinds and any length."""
        stores = [(at, kind) for at, kind in enumerate(kinds) if kind.__class__ is Store]
        found, along = list(kinds), dict(zip(self.positions, self.axes))
        for position, (at, store) in enumerate(stores):
            if position in along:
                if along[position] > 1 and not store.packed:  # what it stands for has axis 1
                    return
                found[at] = store.any_length
            elif store.spec.rows > 1:  # states, which the search does not turn
                return
        if not {Number, Ragged, Nothing}.intersection(kinds):
            callee.first.after_all(found).sentences = self


def packed_before(recording: Any, callee: Callee, key: tuple) -> Optional[PackedCall]:
    """Return how packed calls with arguments of these kinds are recorded, if one was in this scope
    or an earlier one. `key` is from `but_for_lengths`."""
    packed = callee.packed.get(key)
    if packed is None and callee.known:
        known = callee.known.get(('packed', *kept(list(key))))
        if known is not None and (
            known.node_type in recording.watched or recording.watch_type(known.node_type)
        ):
            packed = known._replace(block=callee.block, mutable=callee.mutable, forms={})
            callee.packed[key] = packed
    return packed


def known_packed(recording: Any, callee: Callee, args: Sequence[Any]) -> Optional[PackedCall]:
    """Return how an operator's packed calls are recorded, if one of another length was."""
    if not (callee.packed or callee.known) or not all(
        [arg.__class__ is recording.value_type and arg._store.packed for arg in args]
    ):
        return None
    packed = packed_before(recording, callee, but_for_lengths([arg._store for arg in args]))
    return packed if packed is not None and packed.length(args) else None


def but_for_lengths(kinds: Sequence[Any]) -> tuple:
    """Return kinds of arguments without the lengths of sequences."""
    return tuple(
        [
            kind.any_length if kind.__class__ is Store and kind.any_length is not None else kind
            for kind in kinds
        ]
    )


def packed_call(
    forms: Forms,
    maker: Maker,
    padded: PaddedGraph,
    known: dict[tuple, Optional[NodeType]],
    leaves: Sequence[LazyArray],
    block: Optional[gluon.Block] = None,
    mutable: Optional[tuple] = None,
) -> Optional[PackedCall]:
    """Return how calls with a proved padding are recorded on packed values; None if that is
    impossible.

    `padded` has the proof. `known` remembers types by options, context and axes. `block` and
    `mutable` are as in `Form`.
    """
    if padded.original is None or not _is_one_length(padded):
        return None
    for i, axis in padded.axes.items():
        shape, lies_at = leaves[i].shape, leaves[i]._store.packed
        if (not axis and (len(shape) < 3 or shape[1] != 1)) or lies_at not in (0, axis):
            return None
    key = forms.options, leaves[0].ctx, tuple(padded.axes.items())
    if key not in known:
        known[key] = _type_for(forms, maker, padded, leaves)
    node_type = known[key]
    if node_type is None or not node_type.fits() or not _pays[node_type]:
        return None
    forms.watch_parameters(maker.name, node_type)
    positions, axes = zip(*sorted(padded.axes.items()))
    results = tuple([next(iter(along), 0) for along in padded.results])
    least = padded.least_length
    return PackedCall(
        node_type, positions, padded.pays, block, mutable, {}, {}, axes, results, least
    )


def _is_one_length(padded: PaddedGraph) -> bool:
    """Return whether packed arguments have one length, which results have along one axis at most:
    all along the first, or none."""
    return (
        ({*padded.axes.values()} == {0} or 0 not in padded.axes.values())
        and all_linked(padded.axes, padded.linked)
        and all(len(along) <= 1 for along in padded.results)
    )


def _type_for(
    forms: Any, maker: Maker, padded: PaddedGraph, leaves: Sequence[LazyArray]
) -> Optional[NodeType]:
    shapes = [leaf.shape for leaf in leaves]
    along = [next(iter(own), None) for own in padded.results]
    graph = None if 0 in padded.axes.values() else by_position(padded.original, shapes, padded.axes)
    kind = Kind.PACKED if graph is None else Kind.ROWS
    specs = [
        (_packed_spec(leaf, padded.axes[position]), kind)
        if position in padded.axes
        else (_one_row(leaf._store.spec), Kind.ROWS)
        for position, leaf in enumerate(leaves)
    ]
    if graph is None and (
        any(spec.rows != 1 for spec, kind in specs if kind is Kind.ROWS)
        or any(map(is_sparse, padded.original.parameters.values()))
    ):
        return None
    facts: dict[str, Any] = {}
    axes = tuple(padded.axes.items())
    if graph is None:
        if 0 in along and {*padded.axes.values()} != {0}:
            return None
        longer = [next((more for _, more in along.values()), None) for along in padded.results]
        facts = {'packed': tuple(longer), 'shortest': padded.least_length}
    try:
        if {*padded.axes.values()} != {1} or (
            graph is not None and not does_the_same_to_rows(padded.original.subgraph)
        ):
            maker = maker._replace(head=(*maker.head, 'positions', axes))
        if graph is None:
            graph = sentences_first(padded.original, shapes, padded.axes, along)
        node_type = forms.type_of(maker, specs, lambda: graph, **facts)
    except (RecordError, mx.base.MXNetError):  # its shapes fit some lengths only
        return None
    if node_type.alone or node_type.whole or not forms.runs(node_type):
        return None
    if not node_type.packed and {*node_type.factors} != {1}:
        return None
    _pays.setdefault(node_type, True)
    return node_type


def is_packed(node_type: NodeType) -> bool:
    """Return whether calls on packed values have this type."""
    return node_type in _pays


def packed_if_free(recording: Any, leaf: LazyArray) -> LazyArray:
    """Return a value (1, L, ...) as L rows if that takes no call; else as it is."""
    return packed_value(recording, leaf) if _is_free(recording, leaf) else leaf


def _is_free(recording: Any, leaf: LazyArray) -> bool:
    return leaf._id in recording.packed or recording.held(leaf) is not None


def packed_value(recording: Any, leaf: LazyArray, axis: int = 1) -> LazyArray:
    """Return a value with L positions along an axis, (1, L, ...), as L rows, packed once for all
    calls; any other as it is."""
    if leaf._store.packed or leaf.ndim < 2 or leaf.shape[0] != 1:
        return leaf
    known = recording.packed.get(leaf._id)
    if known is None or known._store.packed != axis or known.shape != leaf.shape:
        shown = ShownAs(leaf.shape, axis)
        known = _in_shape(recording, leaf, _packed_spec(leaf, axis), shown)
        recording.packed[leaf._id] = known
    return known


def _one_row(spec: Spec) -> Spec:
    """Return the spec of states (S, 1, ...) as one row, (1, S, ...); other specs as they are."""
    if spec.rows == 1 or spec.shape[1:2] != (1,):
        return spec
    return spec_of((1, spec.rows, *spec.shape[2:]), spec.dtype, spec.ctx)


def _in_shape(
    recording: Any, leaf: LazyArray, spec: Spec, shown: Optional[ShownAs] = None
) -> LazyArray:
    """Return a value with the same elements in another shape, which users see as `shown`."""
    array, store = recording.held(leaf), recording.store(spec, shown)
    order: Sequence[int] = ()
    if shown is not None and shown.axis > 1:
        order = tuple(np.argsort(with_positions(leaf.ndim, shown.axis)).tolist())
    if array is not None:
        recording.arrays.append((spec, recording.in_shape(array, spec.shape, order)))
        return recording.value_type(store, -2 * len(recording.arrays))
    form = _reshaping_form(recording, leaf._store.spec, spec.shape, order)
    return recording.value_type(store, recording.append_call(form, [leaf])._id)


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
    if form is None:  # once for all values of a length
        for other in forms.forms:
            if other.length and store in other.stores and not other.node_type.packed:
                _pays[other.node_type] = False  # by position, it is for what follows
                decide_padding_anew()
        shape, axis = store.spec.shape, store.packed
        order = with_positions(1 + len(shape), axis) if axis > 1 else ()
        form = _reshaping_form(forms, store.spec, (1, *shape), order)
        forms.forms_by_key[key] = form
    return form


def _reshaping_form(forms: Forms, spec: Spec, shape: Shape, order: Sequence[int] = ()) -> Form:
    """Return the form of a reshape, after or before its longer one of both shapes is transposed."""
    packs = len(shape) < len(spec.shape)

    def lay_out(x: mx.sym.Symbol) -> mx.sym.Symbol:
        x = mx.sym.transpose(x, order) if order and packs else x
        x = mx.sym.reshape(x, shape)
        return mx.sym.transpose(x, order) if order and not packs else x

    return forms.form_of_rewriting(LAY_OUT, spec, lay_out, shape=shape, order=order)


def _packed_spec(value: LazyArray, axis: int) -> Spec:
    """Return the spec of a value whose positions are along an axis, with a row for each."""
    spec = value._store.spec
    if value._store.packed or not axis:
        return spec
    shape = spec.shape
    return spec_of((shape[axis], *shape[1:axis], *shape[axis + 1 :]), spec.dtype, spec.ctx)
