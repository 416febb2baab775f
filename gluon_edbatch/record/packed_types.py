"""Find the batch signature of calls on packed sentences of any length (see `packed`)."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Optional
from weakref import WeakSet

import mxnet as mx
import numpy as np

from gluon_edbatch_core.errors import RecordError

from ..ops.attrs import Shape
from ..ops.whole import NoRule
from ..subgraph.elements import by_position, does_the_same_to_rows
from ..subgraph.node_type import Kind, NodeType, is_sparse
from ..subgraph.padded import ProvedPadding
from ..subgraph.padding_proof import all_linked
from ..subgraph.sentences import sentences_first, whole_sentences
from ..subgraph.spec import Spec, spec_of
from .lazy import LazyArray
from .remembered import Maker
from .stores import ShownAs

_packed: 'WeakSet[NodeType]' = WeakSet()  # the types of packed calls


def type_of_packed(
    forms: Any, maker: Maker, padding: ProvedPadding, leaves: Sequence[LazyArray]
) -> Optional[NodeType]:
    """Return the type of packed calls: by position, else of sentences in rows, else lifted."""
    makes = [_type_by_position]
    if not any(map(is_sparse, padding.graph.parameters.values())):
        makes += [_type_of_sentences, _type_lifted, _type_of_whole_sentences]
    for make in makes:
        try:
            node_type = make(forms, maker, padding, leaves)
        except (RecordError, NoRule, mx.base.MXNetError):  # its shapes fit some lengths only
            continue
        if node_type is not None and forms.runs(node_type):
            _packed.add(node_type)
            return node_type
    return None


def _type_by_position(
    forms: Any, maker: Maker, padding: ProvedPadding, leaves: Sequence[LazyArray]
) -> Optional[NodeType]:
    """Return a type of rows; None unless each position depends on that of the arguments only."""
    shapes = [leaf.shape for leaf in leaves]
    if not _is_in_rows(padding, shapes) or 0 in padding.axes.values():
        return None
    graph = by_position(padding.graph, shapes, padding.axes)
    if graph is None:
        return None
    specs = [(packed_spec(leaf, padding.axes[i]), Kind.ROWS) for i, leaf in enumerate(leaves)]
    if {*padding.axes.values()} != {1} or not does_the_same_to_rows(padding.graph.subgraph):
        maker = _of_positions(maker, padding)
    node_type = forms.type_of(maker, specs, lambda: graph)
    apart = not (node_type.alone or node_type.whole) and {*node_type.factors} == {1}
    return node_type if apart else None


def _type_of_sentences(
    forms: Any, maker: Maker, padding: ProvedPadding, leaves: Sequence[LazyArray]
) -> Optional[NodeType]:
    """Return a type of which each sentence is a row of its graph, whatever its length."""
    shapes = [leaf.shape for leaf in leaves]
    along = [own[0].axis if own else None for own in padding.results]
    if not _is_in_rows(padding, shapes) or (0 in along and {*padding.axes.values()} != {0}):
        return None
    specs = [
        (one_row(spec) if kind is Kind.ROWS else spec, kind)
        for spec, kind in _specs_of_one(padding, leaves)
    ]
    if any(spec.rows != 1 for spec, kind in specs if kind is Kind.ROWS):
        return None
    if {*padding.axes.values()} != {1}:
        maker = _of_positions(maker, padding)
    graph = sentences_first(padding.graph, shapes, padding.axes, along)
    packed = tuple([tuple([each._replace(axis=1) for each in own]) for own in padding.results])
    facts = {'packed': packed, 'shortest': padding.least_length}
    node_type = forms.type_of(maker, specs, lambda: graph, **facts)
    return None if node_type.alone or node_type.whole else node_type


def _type_lifted(
    forms: Any, maker: Maker, padding: ProvedPadding, leaves: Sequence[LazyArray]
) -> Optional[NodeType]:
    """Return a type of sentences whose lifted graph is one for all lengths; None if it is not."""
    specs = _specs_of_one(padding, leaves)
    if any(spec.rows != 1 for spec, kind in specs if kind is Kind.ROWS):
        return None
    axes = [[each.axis for each in own] for own in padding.results]
    shapes = [leaf.shape for leaf in leaves]
    subgraph = whole_sentences(padding.graph.subgraph, shapes, padding.axes, axes)
    graph = padding.graph._replace(subgraph=subgraph)
    results = tuple(
        [
            tuple([each._replace(axis=place) for place, each in enumerate(own, 1)])
            for own in padding.results
        ]
    )
    facts = {'packed': results, 'shortest': padding.least_length}
    maker = maker._replace(head=(*maker.head, 'lifted', tuple(padding.axes.items())))
    node_type = forms.type_of(maker, specs, lambda: graph, **facts)
    if node_type.alone or node_type.whole or node_type.layout is None:
        return None
    return _of_numbers(node_type)


def _of_numbers(node_type: NodeType) -> Optional[NodeType]:
    """Return the type, or None if it has truth values, which MXNet does not transpose."""
    dtypes = [argument.arena.dtype for argument in node_type.arguments]
    dtypes += [spec.dtype for spec in node_type.outputs]
    return None if np.bool_ in dtypes else node_type


def _specs_of_one(padding: ProvedPadding, leaves: Sequence[LazyArray]) -> list[tuple[Spec, Kind]]:
    return [
        (packed_spec(leaf, padding.axes[position]), Kind.PACKED)
        if position in padding.axes
        else (leaf._store.spec, Kind.ROWS)
        for position, leaf in enumerate(leaves)
    ]


def _type_of_whole_sentences(
    forms: Any, maker: Maker, padding: ProvedPadding, leaves: Sequence[LazyArray]
) -> Optional[NodeType]:
    """Return a type whose graph is of one call, and is lifted for each length."""
    if not forms.options.whole_values:
        return None
    facts = {'packed': padding.results, 'shortest': padding.least_length}
    axes = tuple(sorted(padding.axes.items()))
    specs = _specs_of_one(padding, leaves)
    return _of_numbers(forms.type_of(maker, specs, lambda: padding.graph, axes=axes, **facts))


def _is_in_rows(padding: ProvedPadding, shapes: Sequence[Shape]) -> bool:
    """Return whether packed arguments have one length, which results have along one axis at most:
    all along the first, as (L, 1, ...), or none."""
    axes = {*padding.axes.values()}
    return (
        (axes == {0} or 0 not in axes)
        and all(
            axis or (len(shapes[i]) > 2 and shapes[i][1] == 1) for i, axis in padding.axes.items()
        )
        and all_linked(padding.axes, padding.linked)
        and all(len(along) <= 1 for along in padding.results)
    )


def _of_positions(maker: Maker, padding: ProvedPadding) -> Maker:
    return maker._replace(head=(*maker.head, 'positions', tuple(padding.axes.items())))


def is_packed(node_type: NodeType) -> bool:
    """Return whether calls on packed values have this type."""
    return node_type in _packed


def one_row(spec: Spec) -> Spec:
    """Return the spec of states (S, 1, ...) as one row, (1, S, ...); other specs as they are."""
    if spec.rows == 1 or spec.shape[1:2] != (1,):
        return spec
    return spec_of((1, spec.rows, *spec.shape[2:]), spec.dtype, spec.ctx)


def packed_spec(value: LazyArray, axis: int) -> Spec:
    """Return the spec of a value whose positions are along an axis, with a row for each."""
    spec = value._store.spec
    return spec if value._store.packed or not axis else packed_kind(spec, axis)[0]


@lru_cache(1 << 12)  # each sentence asks
def packed_kind(spec: Spec, axis: int) -> tuple[Spec, ShownAs]:
    """Return what `Recording.store` takes for values of a spec that are packed along an axis."""
    shape = spec.shape
    rows = shape[axis], *shape[1:axis], *shape[axis + 1 :]
    return spec_of(rows, spec.dtype, spec.ctx), ShownAs(shape, axis)
