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
from mxnet import gluon

from ..errors import RecordError
from ..ops import op_of
from ..ops.attrs import Shape
from ..subgraph.fingerprint import contents
from ..subgraph.ir import Subgraph
from ..subgraph.node_type import Kind, NodeType, is_sparse
from ..subgraph.padded import PaddedGraph
from ..subgraph.padding_proof import all_linked
from ..subgraph.sentences import sentences_first
from ..subgraph.spec import Spec, spec_of
from ..subgraph.trace import INPUT
from .calls import Callee, Form, Nothing, Number, Ragged, kept
from .forms import Forms
from .lazy import LazyArray
from .remembered import Maker, decide_padding_anew, remember
from .stores import Store

LAY_OUT = 'lay out a sentence'  # as rows, or rows as a sentence: an operator that no user calls

# The types of packed calls, and whether later scopes are to pack for their sake.
_pays: 'WeakKeyDictionary[NodeType, bool]' = WeakKeyDictionary()


class PackedCall(NamedTuple):
    """Tell how calls with packed arguments at some positions are recorded, for any length.

    Arguments are (1, L, ...), or (L, 1, ...) if `axis` is 0. `pays` tells if packing costs less
    than calls by length. `forms` maps lengths to forms. `block` and `mutable` are as in `Form`.
    """

    node_type: NodeType
    positions: tuple[int, ...]
    pays: bool
    block: Optional[gluon.Block]
    mutable: Optional[tuple]
    forms: dict[int, Form]
    kinds: dict[int, Any]  # what later scopes make the forms of, by length
    axis: int
    shortest: int = 1  # length

    def length(self, leaves: Sequence[LazyArray]) -> int:
        """Return the common length of all packed arguments; 0 if there are several lengths, or a
        window does not fit in it, or if another argument does not fit the type."""
        lengths = set()
        for position, leaf in enumerate(leaves):
            store = leaf._store
            if position in self.positions:
                lengths.add(store.shape[self.axis] if store.shape[1 - self.axis] == 1 else 0)
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
            or self.axis == 0
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
                own = self.block, self.mutable, length, self.axis == 1
                form = forms.new_form(self.node_type, rows, *own)
                remember(self.kinds, length, forms.remembered_form(form))
            self.forms[length] = form
        return form

    def values(self, recording: Any, leaves: Sequence[LazyArray]) -> list[LazyArray]:
        """Return the arguments of a call, with sentences packed as rows, and states as one row."""
        values = list(leaves)
        for position, leaf in enumerate(leaves):
            if position not in self.positions and leaf._store.spec.rows > 1:
                values[position] = _in_shape(recording, leaf, _one_row(leaf._store.spec))
            elif position in self.positions and self.axis:
                values[position] = packed_value(recording, leaf)
        return values

    def record(self, recording: Any, leaves: Sequence[LazyArray]) -> Any:
        """Record one call on packed values; return its results as lazy values."""
        form = self.form(recording, self.length(leaves))
        return recording.append_call(form, self.values(recording, leaves))

    def find_again(self, callee: Callee, kinds: Sequence[Any]) -> None:
        """Let the search of calls.py find calls with arguments of these kinds and any length."""
        stores = [(at, kind) for at, kind in enumerate(kinds) if kind.__class__ is Store]
        found = list(kinds)
        for position, (at, store) in enumerate(stores):
            if position in self.positions:
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
    axis = min(padded.axes.values())
    if (
        padded.original is None
        or not _is_one_length(padded, axis)
        or (axis == 0 and any([leaves[i].ndim < 3 or leaves[i].shape[1] != 1 for i in padded.axes]))
    ):
        return None
    key = forms.options, leaves[0].ctx, tuple(padded.axes)
    if key not in known:
        known[key] = _type_for(forms, maker, padded, leaves, axis)
    node_type = known[key]
    if node_type is None or not node_type.fits() or not _pays[node_type]:
        return None
    forms.watch_parameters(maker.name, node_type)
    positions, least = tuple(sorted(padded.axes)), padded.least_length
    return PackedCall(node_type, positions, padded.pays, block, mutable, {}, {}, axis, least)


def _is_one_length(padded: PaddedGraph, axis: int) -> bool:
    """Return whether packed arguments have one length along an axis, 0 or 1, which results have
    along that axis at most."""
    return (
        axis in (0, 1)
        and {*padded.axes.values()} == {axis}
        and all_linked(padded.axes, padded.linked)
        and all(
            {*axes.items()} <= {(axis, (source, 0)) for source in padded.axes}
            for axes in padded.results
        )
    )


def _type_for(
    forms: Any, maker: Maker, padded: PaddedGraph, leaves: Sequence[LazyArray], axis: int
) -> Optional[NodeType]:
    by_position = axis == 1 and len(leaves) == 1 and _is_by_position(padded.original.subgraph)
    kind = Kind.ROWS if by_position else Kind.PACKED
    specs = [
        (_packed_spec(leaf) if axis else leaf._store.spec, kind)
        if position in padded.axes
        else (_one_row(leaf._store.spec), Kind.ROWS)
        for position, leaf in enumerate(leaves)
    ]
    if not by_position and (
        any(spec.rows != 1 for spec, kind in specs if kind is Kind.ROWS)
        or any(map(is_sparse, padded.original.parameters.values()))
    ):
        return None
    facts: dict[str, Any] = {}
    graph, of_results = padded.original, tuple(map(bool, padded.results))
    if not by_position:
        facts = {'packed': of_results, 'shortest': padded.least_length}
    try:
        if axis == 0:
            maker = maker._replace(head=(*maker.head, 'steps first'))
        if not by_position:
            shapes = [leaf.shape for leaf in leaves]
            graph = sentences_first(graph, shapes, padded.axes, axis, of_results)
        node_type = forms.type_of(maker, specs, lambda: graph, **facts)
    except (RecordError, mx.base.MXNetError):  # its shapes fit some lengths only
        return None
    if node_type.alone or node_type.whole or not forms.runs(node_type):
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


def packed_value(recording: Any, leaf: LazyArray) -> LazyArray:
    """Return a value (1, L, ...) as L rows, packed once for all calls; any other as it is."""
    if leaf._store.packed or leaf.ndim < 2 or leaf.shape[0] != 1:
        return leaf
    known = recording.packed.get(leaf._id)
    if known is None:
        packed = _in_shape(recording, leaf, _packed_spec(leaf), leaf.shape)
        known = recording.packed[leaf._id] = packed
    return known


def _one_row(spec: Spec) -> Spec:
    """Return the spec of states (S, 1, ...) as one row, (1, S, ...); other specs as they are."""
    if spec.rows == 1 or spec.shape[1:2] != (1,):
        return spec
    return spec_of((1, spec.rows, *spec.shape[2:]), spec.dtype, spec.ctx)


def _in_shape(
    recording: Any, leaf: LazyArray, spec: Spec, shown: Optional[Shape] = None
) -> LazyArray:
    """Return a value with the same elements in another shape, which users see as `shown`."""
    array, store = recording.held(leaf), recording.store(spec, shown)
    if array is not None:
        recording.arrays.append((spec, recording.in_shape(array, spec.shape)))
        return recording.value_type(store, -2 * len(recording.arrays))
    form = _reshaping_form(recording, leaf._store.spec, spec.shape)
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
    if known is None:
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
        form = forms.forms_by_key[key] = _reshaping_form(forms, store.spec, store.shape)
    return form


def _reshaping_form(forms: Forms, spec: Spec, shape: Shape) -> Form:
    return forms.form_of_rewriting(LAY_OUT, spec, lambda x: mx.sym.reshape(x, shape), shape=shape)


def _packed_spec(value: LazyArray) -> Spec:
    spec = value._store.spec
    return spec if value._store.packed else spec_of(spec.shape[1:], spec.dtype, spec.ctx)


def _is_by_position(graph: Subgraph) -> bool:
    """Return whether each position of the result depends on that position of the argument only."""
    (head,) = graph.heads[:1]
    chain = {INPUT % 0}
    for node in graph.nodes:
        if node.is_variable:
            continue
        inputs = [graph.nodes[entry.node] for entry in node.inputs]
        if (
            not op_of(node.op).by_value(node.attrs)
            or inputs[0].name not in chain
            or not all(other.is_variable for other in inputs[1:])
        ):
            return False
        chain = {node.name}
    return len(graph.heads) == 1 and graph.nodes[head.node].name in chain
