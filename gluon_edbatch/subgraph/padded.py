"""Prove that arrays of different lengths may be padded, for calls of one batch signature.

Without that, a sequence that is one value, (1, L, C), has a signature for each L. With a proof that
padding changes nothing (see `padding_proof`), calls on sequences of any length have one signature,
and a backend pads a batch of them, or need not.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Optional

import mxnet as mx

from ..ops.attrs import Shape, unlike
from ..ops.whole import NoRule
from .ir import Subgraph
from .lift import lift
from .numpy_mode import OTHER_LENGTHS, in_terms_of_nd
from .padding_proof import Along, Padding, of_length, padding_of
from .rowwise import Verdict, analyse
from .sentences import rows_apart
from .trace import INPUT, StaticGraph

_LENGTH, _CALLS = 7, 5  # of a sentence, and in a batch, while shapes are inferred


class ProvedPadding(NamedTuple):
    """What is proved of the padding of some arguments of a graph."""

    graph: Any  # the block's `StaticGraph`, in terms of `mx.nd`; None without a proof
    axes: dict[int, int]  # by the position of an argument, the axis along which it is padded
    linked: frozenset[tuple[int, int]] = frozenset()  # arguments that must have the same length
    results: tuple[tuple[Along, ...], ...] = ()  # for each output the axes that have lengths
    # the least lengths of arguments in which a window is to fit
    shortest: Mapping[int, int] = MappingProxyType({})
    reason: str = ''  # why there is no proof

    @property
    def least_length(self) -> int:
        """The least length of arguments that are all equally long."""
        return max(self.shortest.values(), default=1)

    def takes(self, shapes: Sequence[Shape]) -> bool:
        """Return whether the graph is for arguments of these shapes: some lengths must be equal."""
        length = {position: shapes[position][axis] for position, axis in self.axes.items()}
        return (
            self.graph is not None
            and all(length[a] == length[b] for a, b in self.linked)
            and all(length[position] >= least for position, least in self.shortest.items())
        )


def bucket_of(length: int) -> int:
    """Return the bucket for a length, the next of 1, 2, 3, 4, 6, 8, 12, 16, 24, …"""
    step = 1 << max(0, (length - 1).bit_length() - 2)
    return -(-length // step) * step


def differing_axes(one: Sequence[Shape], other: Sequence[Shape]) -> Optional[dict[int, int]]:
    """Return the axis in which each array differs; None if one differs in anything else."""
    found = {}
    for position, (mine, others) in enumerate(zip(one, other)):
        axes = unlike(mine, others)
        if len(mine) != len(others) or len(axes) > 1:
            return None
        if axes:
            found[position] = axes[0]
    return found


def proved_padding(
    graph: StaticGraph,
    shapes: Sequence[Shape],
    axes: dict[int, int],
    training: bool,
    dtypes: Sequence[Any],
    numpy: bool = False,
) -> ProvedPadding:
    """Return what is proved of the padding of arguments of these shapes.

    Parameters
    ----------
    graph : StaticGraph
    shapes : sequence of tuple of int
        Shapes of the arguments of a call.
    axes : dict
        Maps the position of an argument to the axis along which it is padded.
    training : bool
        Whether calls are made in training mode.
    dtypes : sequence
        Dtypes of the arguments.
    numpy : bool, default False
        Whether the graph was traced in NumPy mode.
    """
    try:
        if numpy:
            graph = _in_terms_of_nd(graph, shapes, axes, dtypes)
        if 0 not in axes.values():
            graph = rows_apart(graph, shapes)
    except mx.base.MXNetError as error:  # the call itself raises it, too
        return ProvedPadding(None, axes, reason=str(error))
    names = [INPUT % i for i in range(len(shapes))]
    if any(shapes[i][0] != 1 for i, axis in axes.items() if axis):
        return ProvedPadding(None, axes, reason='an argument has several rows')
    if 0 in axes.values():
        rows = {name: shape[1:] for name, shape in zip(names, shapes)}
        if analyse(graph.subgraph, rows, training).verdict is Verdict.PROVED:
            return ProvedPadding(None, axes, reason='its rows are batched, however many they are')
    known, along = dict(zip(names, shapes)), {names[i]: axis for i, axis in axes.items()}
    kinds = dict(zip(names, dtypes))
    padding = padding_of(graph.subgraph, known, along, of_results=True, dtypes=kinds)
    if not padding.neutral:
        padding = padding_of(graph.subgraph, known, along, True, stops=True, dtypes=kinds)
    if not padding.neutral:
        lifted = _of_lifted(graph.subgraph, known, along, kinds)
        if lifted is None:
            return ProvedPadding(None, axes, reason=padding.reason)
        padding = lifted
    padding = padding.by_position(names)
    return ProvedPadding(graph, axes, padding.linked, padding.results, padding.shortest)


def _of_lifted(
    graph: Subgraph, shapes: dict[str, Shape], axes: dict[str, int], dtypes: dict[str, Any]
) -> Optional[Padding]:
    """Return what is proved of the lifted graph, as rules for matrices of one call are fewer: by
    ``dot`` of a matrix (K, H), for example, than by ``batch_dot``. None if nothing is."""
    if any(shape[0] != 1 for name, shape in shapes.items() if name not in axes):
        return None
    shapes = {
        name: of_length(shape, axes[name], _LENGTH) if name in axes else shape
        for name, shape in graph.known(shapes).items()
    }
    of_calls = {
        name: (_CALLS, *(shape if name in axes else shape[1:])) for name, shape in shapes.items()
    }
    try:
        lifted = lift(graph, shapes, list(axes), as_values=True)
    except (NoRule, mx.base.MXNetError):
        return None
    later = {name: 1 + axis for name, axis in axes.items()}
    padding = padding_of(lifted, of_calls, later, of_results=True, dtypes=dtypes)
    if not padding.neutral or padding.shortest:
        return None
    results = [[each._replace(axis=each.axis - 1) for each in own] for own in padding.results]
    return padding._replace(results=tuple(map(tuple, results)))


def _in_terms_of_nd(
    graph: StaticGraph, shapes: Sequence[Shape], axes: dict[int, int], dtypes: Sequence[Any]
) -> StaticGraph:
    names = [INPUT % i for i in range(len(shapes))]
    known = dict(zip(names, shapes))
    others = [
        {**known, **{names[i]: of_length(shapes[i], axis, length) for i, axis in axes.items()}}
        for length in OTHER_LENGTHS
    ]
    return in_terms_of_nd(graph, known, dict(zip(names, dtypes)), others)
