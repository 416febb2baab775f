"""Bucketing: decide which calls are padded because their arguments differ in lengths only.

`padded_calls` records such a call.
"""

import weakref
from collections.abc import Sequence
from typing import Any, Callable, Optional, Union

from mxnet import gluon
from mxnet.ndarray import NDArray

from ..errors import EdbError
from ..ops import op_of
from ..ops.attrs import Shape
from ..subgraph.node_type import Argument, Kind, Mode, NodeType
from ..subgraph.padded import PaddedGraph, differing_axes, padded_graph
from ..subgraph.spec import Spec
from ..subgraph.trace import StaticGraph, describe
from .calls import Callee, Form
from .forms import Forms
from .lazy import LazyArray, RaggedArray
from .packed import LAY_OUT, PackedCall, but_for_lengths, is_packed, packed_call
from .padded_calls import CUT, PAD, PaddedCall, buckets_of, padded_call
from .remembered import (
    Maker,
    decide_padding_anew,
    keep,
    tracing,
    types_of,
)
from .stores import Store

Call = Union[PackedCall, PaddedCall]
# Shapes of the first call of each kind, until a call with other shapes is seen; then ().
_first_shapes: 'weakref.WeakKeyDictionary[gluon.Block, dict[tuple, tuple]]' = (
    weakref.WeakKeyDictionary()
)
_NONE: dict[tuple, tuple] = {}


class Family:
    """Remember a block's calls whose arguments differ in lengths only, with their types."""

    def __init__(self, shapes: Sequence[Shape], mode: Mode, dtypes: Sequence[Any]):
        # What runs in place of the calls; None before two of them were seen that differ.
        self.padded: Optional[PaddedGraph] = None
        self._mode, self._dtypes = mode, dtypes
        # Types of the calls on packed values, by options, context and axes.
        self.packed: dict[tuple, Optional[NodeType]] = {}
        self._shapes = shapes  # of the first call

    def padded_for(
        self, shapes: Sequence[Shape], trace: Callable[[], StaticGraph]
    ) -> Optional[PaddedGraph]:
        """Return the padded graph for a call with arguments of these shapes, or None."""
        axes = differing_axes(self._shapes, shapes)
        if axes is None:
            return None
        known = {} if self.padded is None else self.padded.axes
        axes = {**known, **axes}
        if axes and axes != known:
            try:
                self.padded = _padded_graph(trace(), self._shapes, axes, self._mode, self._dtypes)
            except EdbError as error:  # the call itself raises it, too
                self.padded = PaddedGraph(None, axes, reason=str(error))
            decide_padding_anew()
        return self.padded if self.padded is not None and self.padded.takes(shapes) else None


def _padded_graph(
    graph: StaticGraph,
    shapes: Sequence[Shape],
    axes: dict[int, int],
    mode: Mode,
    dtypes: Sequence[Any],
) -> PaddedGraph:
    numpy = mode.numpy and not graph.scalars  # else it is in terms of mx.nd already
    return padded_graph(graph, shapes, axes, mode.training, dtypes, numpy)


def padded_block_call(
    forms: Forms, callee: Callee, template: tuple, leaves: Sequence[Any]
) -> Optional[Call]:
    """Return how to record a block's call on packed or padded arrays; None if it is recorded as
    usual.

    `template` is the structure of the arguments (see `flatten`), and `leaves` are the values in it.
    """
    specs = [leaf._store.spec for leaf in leaves]
    if (
        not forms.options.buckets
        or () in [leaf._store.shape for leaf in leaves]
        or RaggedArray in map(type, leaves)
        or True in [spec.eager for spec in specs]
    ):
        return None
    key = template, *[(len(leaf._store.shape), leaf.dtype) for leaf in leaves]
    if _first_shapes.get(callee.block, _NONE).get(key) == _shapes(leaves):
        return None  # no others were seen
    calls = callee.families.setdefault(key, {})
    stores = [leaf._store for leaf in leaves]  # which tell packed values from others
    place = tuple(
        stores + [_padded_store(forms, leaf) for leaf in leaves] if forms.pads else stores
    )
    call = calls.get(place)
    if call is None or call.changed():
        call = calls[place] = _new_block_call(forms, callee.block, key, leaves)
    return call


def _padded_store(forms: Forms, leaf: LazyArray) -> Optional[Store]:
    """Return the store of the padded value that a value was cut from, if there is one."""
    known = forms.padded.get(leaf._id)
    return None if known is None else known.value._store


def _new_block_call(
    forms: Forms, block: gluon.Block, key: tuple, leaves: Sequence[LazyArray]
) -> Optional[Call]:
    template, shapes = key[0], _shapes(leaves)
    with tracing:
        first = _first_shapes.setdefault(block, {}).setdefault(key, shapes)
    if first == shapes:
        return None
    if first:
        _first_shapes[block][key] = ()
        decide_padding_anew()
    mutable = forms.model.containers_of(block)
    mark = forms.model.mark_of(block)
    types = types_of(block, mark)
    family = types.setdefault(
        ('family', forms.mode, *key),
        Family(first or shapes, forms.mode, [leaf.dtype for leaf in leaves]),
    )
    padded = family.padded_for(shapes, lambda: forms.trace(block, template, leaves))
    if padded is None:
        return None
    maker = Maker(describe(block), types, (template, ()), (template, mark))
    packed = packed_call(forms, maker, padded, family.packed, leaves, block, mutable)
    if packed is not None:
        return packed
    if padded.graph is None or any(leaf._store.packed for leaf in leaves):
        return None
    return _padded_call(forms, maker, padded, leaves, block, mutable)


def _padded_call(
    forms: Forms,
    maker: Maker,
    padded: PaddedGraph,
    leaves: Sequence[LazyArray],
    block: Optional[gluon.Block] = None,
    mutable: Optional[tuple] = None,
) -> PaddedCall:
    axes = tuple(padded.axes.items())

    def of_padded(specs: list[Spec]) -> Form:
        place = block, maker.head, axes, *specs
        form = forms.forms_by_key.get(place)
        if form is None or form.mutable is not mutable:
            rows = [(spec, Kind.ROWS) for spec in specs]
            form = forms.make_form(maker, rows, lambda: padded.graph, padded=axes)
            form.block, form.mutable = block, mutable
            forms.forms_by_key[place] = form
        return form

    specs, buckets = [leaf._store.spec for leaf in leaves], buckets_of(padded, leaves, forms.padded)
    return padded_call(padded, specs, buckets, forms.form_of_rewriting, of_padded)


def _shapes(leaves: Sequence[Any]) -> tuple[Shape, ...]:
    return tuple([leaf._store.shape for leaf in leaves])


def packed_operator_call(
    forms: Forms,
    op: str,
    attrs: tuple[tuple[str, str], ...],
    leaves: Sequence[Any],
    shared: tuple[int, ...] = (),
    arrays: Sequence[NDArray] = (),
) -> Optional[PackedCall]:
    """Return how to record an operator with packed arguments, and weights at the positions
    `shared`; None if it is not recorded packed."""
    stores = [leaf._store for leaf in leaves]
    if () in [store.shape for store in stores]:
        return None
    packed = tuple([store.packed for store in stores])
    key = ('packed', op, attrs, packed, shared, *map(id, arrays), *but_for_lengths(stores))
    if key not in forms.forms_by_key:
        axes = {i: store.packed for i, store in enumerate(stores) if store.packed}
        maker, graph = forms.maker_of_operator(op, attrs, leaves, shared, arrays)
        padded, known = proved_padding(forms, maker, graph, axes, leaves)
        forms.shared.update([(id(array), array) for array in arrays])
        call = forms.forms_by_key[key] = packed_call(forms, maker, padded, known, leaves)
        if call is not None:
            forms.forms_by_key[(call.node_type,)] = call
    return forms.forms_by_key[key]


def padded_operator_call(
    forms: Forms, op: str, attrs: tuple[tuple[str, str], ...], leaves: Sequence[Any]
) -> Optional[PaddedCall]:
    """Return how to record an operator on results of padded calls; None if it is not recorded
    padded."""
    if any(leaf.__class__ is RaggedArray or not leaf._store.shape for leaf in leaves):
        return None
    known = [(i, forms.padded.get(leaf._id)) for i, leaf in enumerate(leaves)]
    axes = tuple([(i, value.axes) for i, value in known if value is not None])
    if not axes or any(len(of_value) > 1 for _, of_value in axes):
        return None
    stores = [leaf._store for leaf in leaves] + [_padded_store(forms, leaf) for leaf in leaves]
    key = ('padded', op, attrs, axes, *stores)
    if key not in forms.forms_by_key:
        own = {position: axis for position, (axis,) in axes}
        maker, graph = forms.maker_of_operator(op, attrs, leaves)
        proved, _ = proved_padding(forms, maker, graph, own, leaves)
        forms.forms_by_key[key] = (
            _padded_call(forms, maker, proved, leaves)
            if proved.graph is not None and proved.takes(_shapes(leaves))
            else None
        )
    return forms.forms_by_key[key]


def serves_padding(node_type: NodeType) -> bool:
    """Return whether calls of a type are packed or padded, or only pad, cut or pack values."""
    return bool(node_type.padded) or node_type.name in (PAD, CUT, LAY_OUT) or is_packed(node_type)


def why_not_padded(block: Optional[gluon.Block], types: Sequence[NodeType]) -> str:
    """Explain why calls of these types are not padded to one length; empty if that would not help.

    `types` are two or more types of one `block`, or of one operator if `block` is None.
    """
    shapes = [[_shape(argument) for argument in node_type.arguments] for node_type in types]
    pairs = [differing_axes(shapes[0], others) for others in shapes[1:]]
    if block is None and not op_of(types[0].made_with[0]).batches:
        return ''  # no operator of MXNet's
    if any(serves_padding(node_type) or node_type.ragged or node_type.eager for node_type in types):
        return ''
    if not any(pairs):
        ranks = {tuple(map(len, own)) for own in shapes}
        return 'several axes of one argument differ' if None in pairs and len(ranks) == 1 else ''
    if not types[0].options.buckets:
        return 'the compile option buckets is off'
    padded = (
        _operator_padded(types[0], shapes[0], pairs)
        if block is None
        else _of_family(block, types[0])
    )
    if padded is None:
        return ''
    if padded.graph is None:
        return padded.reason
    if block is None:
        return 'an operator on its own is padded only with what padded blocks return'
    if not padded.pays:
        return '' if types[0].whole else 'so few operators cost less by length'
    return 'arguments that must be equally long are not'


def _of_family(block: gluon.Block, node_type: NodeType) -> Optional[PaddedGraph]:
    template, mark = node_type.made_with
    arenas = [argument.arena for argument in node_type.arguments]
    kinds = [(len(arena.row_shape) + 1, arena.dtype) for arena in arenas]
    family = types_of(block, mark).get(('family', node_type.mode, template, *kinds))
    return None if family is None else family.padded


def _operator_padded(
    node_type: NodeType, shapes: Sequence[Shape], pairs: Sequence[Optional[dict[int, int]]]
) -> Optional[PaddedGraph]:
    if node_type.parameters:
        return None
    axes = {position: axis for pair in pairs if pair for position, axis in pair.items()}
    dtypes = [argument.arena.dtype for argument in node_type.arguments]
    return _padded_graph(node_type.traced, shapes, axes, node_type.mode, dtypes)


def _shape(argument: Argument) -> Shape:
    return (argument.rows, *argument.arena[0])


def proved_padding(
    forms: Forms,
    maker: Maker,
    trace: Callable[[], StaticGraph],
    axes: dict[int, int],
    leaves: Sequence[LazyArray],
) -> tuple[PaddedGraph, dict[tuple, Optional[NodeType]]]:
    """Return the proved padding of an operator on arguments that are padded along these axes, and a
    dict of types on packed ones."""
    shapes, pairs = _shapes(leaves), tuple(axes.items())
    alike = [
        (shape[: axes[i]] + shape[axes[i] + 1 :] if i in axes else shape, leaf.dtype)
        for i, (shape, leaf) in enumerate(zip(shapes, leaves))
    ]
    key = ('padded', forms.mode, *maker.head, pairs, *alike)
    known = maker.types.get(key)
    if known is None:
        dtypes = [leaf.dtype for leaf in leaves]
        known = _padded_graph(trace(), shapes, axes, forms.mode, dtypes), {}
        with tracing:
            keep(maker.types, key, known)
    return known
