"""Decide which calls are packed because their arguments differ in lengths only.

`packed` records such a call.
"""

import weakref
from collections.abc import Sequence
from typing import Any, Callable, Optional

from mxnet import gluon
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import EdbError

from ..ops import op_of
from ..ops.attrs import Shape
from ..ops.numbers import Numbered
from ..subgraph.elements import by_position, does_the_same_to_rows
from ..subgraph.node_type import Argument, Kind, Mode, NodeType
from ..subgraph.padded import ProvedPadding, differing_axes, proved_padding
from ..subgraph.trace import StaticGraph, describe
from .calls import Callee, Form
from .forms import Forms
from .lazy import LazyArray, RaggedArray
from .packed import LAY_OUT, PackedCall, packed_call
from .packed_types import is_packed
from .remembered import (
    Maker,
    decide_padding_anew,
    keep,
    tracing,
    types_of,
)
from .stores import SEVERAL, ShownAs

# Shapes of the first call of each kind, until a call with other shapes is seen; then ().
_first_shapes: 'weakref.WeakKeyDictionary[gluon.Block, dict[tuple, tuple]]' = (
    weakref.WeakKeyDictionary()
)


class Family:
    """Remember a block's calls whose arguments differ in lengths only, with their types."""

    def __init__(self, shapes: Sequence[Shape], mode: Mode, dtypes: Sequence[Any]):
        self.padding: Optional[ProvedPadding] = None  # None before two calls that differ
        self._mode, self._dtypes = mode, dtypes
        self.packed: dict[Any, Any] = {}  # how calls on packed values are recorded
        self._shapes = shapes  # of the first call

    def padding_for(
        self, shapes: Sequence[Shape], trace: Callable[[], StaticGraph]
    ) -> Optional[ProvedPadding]:
        """Return what is proved for a call with arguments of these shapes; None if nothing is."""
        axes = differing_axes(self._shapes, shapes)
        if axes is None:
            return None
        known = {} if self.padding is None else self.padding.axes
        axes = {**known, **axes}
        if axes and axes != known:
            try:
                self.padding = _proved(trace(), self._shapes, axes, self._mode, self._dtypes)
            except EdbError as error:  # the call itself raises it, too
                self.padding = ProvedPadding(None, axes, reason=str(error))
            decide_padding_anew()
        return self.padding if self.padding is not None and self.padding.takes(shapes) else None


def _proved(
    graph: StaticGraph,
    shapes: Sequence[Shape],
    axes: dict[int, int],
    mode: Mode,
    dtypes: Sequence[Any],
) -> ProvedPadding:
    numpy = mode.numpy and not graph.scalars  # else it is in terms of mx.nd already
    return proved_padding(graph, shapes, axes, mode.training, dtypes, numpy)


def packed_block_call(
    forms: Forms, callee: Callee, template: tuple, leaves: Sequence[Any]
) -> Optional[PackedCall]:
    """Return how to record a block's call on packed arrays; None if it is recorded as usual.

    `template` is the structure of the arguments (see `flatten`), and `leaves` are the values in it.
    """
    specs = [leaf._store.spec for leaf in leaves]
    if (
        not forms.options.buckets
        or () in [leaf._store.shape for leaf in leaves]
        or any([isinstance(leaf, RaggedArray) for leaf in leaves])
        or True in [spec.eager for spec in specs]
    ):
        return None
    key = template, *[(len(leaf._store.shape), leaf.dtype) for leaf in leaves]
    shapes = _shapes(leaves)
    block = callee.block
    with tracing:
        first = _first_shapes.setdefault(block, {}).setdefault(key, shapes)
    if first == shapes:
        return None
    if first:
        _first_shapes[block][key] = ()
        decide_padding_anew()
    mark = forms.model.mark_of(block)
    types = types_of(block, mark)
    family = types.setdefault(
        ('family', forms.mode, *key),
        Family(first or shapes, forms.mode, [leaf.dtype for leaf in leaves]),
    )
    padding = family.padding_for(shapes, lambda: forms.trace(block, template, leaves))
    if padding is None:
        return None
    maker = Maker(describe(block), types, (template, ()), (template, mark))
    return packed_call(forms, maker, padding, family.packed, leaves)


def _shapes(leaves: Sequence[Any]) -> tuple[Shape, ...]:
    return tuple([leaf._store.shape for leaf in leaves])


def packed_operator_call(
    forms: Forms,
    op: str,
    attrs: tuple[tuple[str, str], ...],
    leaves: Sequence[Any],
    shared: tuple[int, ...] = (),
    arrays: Sequence[NDArray] = (),
    numbered: Optional[Numbered] = None,
) -> Optional[PackedCall]:
    """Return how to record an operator with packed arguments, and weights at the positions
    `shared`; None if it is not recorded packed. `attrs` are those of `numbered` if it is given."""
    stores = [leaf._store for leaf in leaves]
    if SEVERAL in [store.packed for store in stores] or () in [store.shape for store in stores]:
        return None
    key = ('packed', op, attrs, shared, *map(id, arrays), *stores)
    if key not in forms.forms_by_key:
        axes = {i: store.packed for i, store in enumerate(stores) if store.packed}
        maker, graph = forms.maker_of_operator(op, attrs, leaves, shared, arrays, numbered)
        padding, known = operator_padding(forms, maker, graph, axes, leaves)
        forms.shared.update([(id(array), array) for array in arrays])
        forms.forms_by_key[key] = packed_call(forms, maker, padding, known, leaves)
    return forms.forms_by_key[key]


def form_of_pairs(
    forms: Forms, op: str, attrs: tuple[tuple[str, str], ...], leaves: Sequence[Any]
) -> Optional[Form]:
    """Return the form of an operator with one result that treats each pair of positions alike, on
    values that are packed so; None for any other."""
    store, count = leaves[0]._store, len(leaves)
    if store.packed != SEVERAL or any(leaf._store is not store for leaf in leaves):
        return None
    key = 'pairs', op, attrs, count, store
    if key not in forms.forms_by_key:
        maker, trace = forms.maker_of_operator(op, attrs, leaves)
        graph = trace()
        form = None
        if does_the_same_to_rows(graph.subgraph) and all(
            by_position(graph, [store.shape] * count, dict.fromkeys(range(count), axis))
            for axis in store.axes
        ):
            node_type = forms.type_of(maker, [(store.spec, Kind.ROWS)] * count, lambda: graph)
            (spec,) = node_type.output_specs(store.spec.rows)
            shown = ShownAs(store.shape, SEVERAL, store.axes)
            form = forms.add_form(node_type, store.spec.rows, [forms.store(spec, shown)])
        forms.forms_by_key[key] = form
    return forms.forms_by_key[key]


def serves_padding(node_type: NodeType) -> bool:
    """Return whether calls of a type are packed, or only pack values."""
    return node_type.name == LAY_OUT or is_packed(node_type)


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
    padding = (
        _padding_of_operator(types[0], shapes[0], pairs)
        if block is None
        else _of_family(block, types[0])
    )
    if padding is None:
        return ''
    if padding.graph is None:
        return padding.reason
    if block is None:
        return 'an operator on its own is padded only with what padded blocks return'
    return 'arguments that must be equally long are not'


def _of_family(block: gluon.Block, node_type: NodeType) -> Optional[ProvedPadding]:
    template, mark = node_type.made_with
    arenas = [argument.arena for argument in node_type.arguments]
    kinds = [(len(arena.row_shape) + 1, arena.dtype) for arena in arenas]
    family = types_of(block, mark).get(('family', node_type.mode, template, *kinds))
    return None if family is None else family.padding


def _padding_of_operator(
    node_type: NodeType, shapes: Sequence[Shape], pairs: Sequence[Optional[dict[int, int]]]
) -> Optional[ProvedPadding]:
    if node_type.parameters:
        return None
    axes = {position: axis for pair in pairs if pair for position, axis in pair.items()}
    dtypes = [argument.arena.dtype for argument in node_type.arguments]
    return _proved(node_type.traced, shapes, axes, node_type.mode, dtypes)


def _shape(argument: Argument) -> Shape:
    return (argument.rows, *argument.arena[0])


def operator_padding(
    forms: Forms,
    maker: Maker,
    trace: Callable[[], StaticGraph],
    axes: dict[int, int],
    leaves: Sequence[LazyArray],
) -> tuple[ProvedPadding, dict[Any, Any]]:
    """Return the proved padding of an operator on arguments that are padded along these axes, and a
    dict that remembers calls on packed ones (see `packed_call`)."""
    shapes, pairs = _shapes(leaves), tuple(axes.items())
    alike = [
        (shape[: axes[i]] + shape[axes[i] + 1 :] if i in axes else shape, leaf.dtype)
        for i, (shape, leaf) in enumerate(zip(shapes, leaves))
    ]
    key = ('padded', forms.mode, *maker.head, pairs, *alike)
    known = maker.types.get(key)
    if known is None:
        dtypes = [leaf.dtype for leaf in leaves]
        known = _proved(trace(), shapes, axes, forms.mode, dtypes), {}
        with tracing:
            keep(maker.types, key, known)
    return known
