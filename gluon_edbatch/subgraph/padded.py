"""Bucketing: pad calls on arrays of different lengths to a few lengths.

A sequence that is one value, (1, L, C), has a type for each L. If padding is proved to change
nothing (see `padding_proof`), the sequence is padded to the next bucket's length, and the result is
cut to its own. So no gradient comes from the padding. If masks need the length, it is a further
argument of the block's graph.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Optional

import mxnet as mx

from ..ops.attrs import Shape, unlike
from .ir import Subgraph
from .loops import FOREACH
from .numpy_mode import OTHER_LENGTHS, in_terms_of_nd
from .padding_proof import LENGTHS, of_length, padding_of
from .rowwise import Verdict, analyse
from .sentences import rows_apart
from .trace import INPUT, StaticGraph

_FEW = 4  # operators that cost less for each length than to pad and to cut
_DEAR = {'Convolution', 'RNN', FOREACH}  # operators that never do


class PaddedGraph(NamedTuple):
    """The graph that replaces a block's graph for padded arguments."""

    # with lengths, (1,) each, as further inputs; None where this is not proved, or for packed
    # arguments only
    graph: Optional[StaticGraph]
    axes: dict[int, int]  # by the position of an argument, the axis along which it is padded
    lengths: tuple[int, ...] = ()  # the arguments of which the lengths are further inputs
    linked: frozenset[tuple[int, int]] = frozenset()  # arguments that must have the same length
    # for each output the axes that are cut: the argument with the length, and how much more is left
    results: tuple[dict[int, tuple[int, int]], ...] = ()
    # the least lengths of arguments in which a window is to fit
    shortest: Mapping[int, int] = MappingProxyType({})
    pays: bool = False  # whether calls by their lengths cost more than to pad and to cut
    by_step: bool = False  # whether there is a loop over the length
    reason: str = ''  # why there is no graph
    original: Any = None  # the block's, for packed arguments; None where this is not proved

    @property
    def least_length(self) -> int:
        """The least length of arguments that are all equally long."""
        return max(self.shortest.values(), default=1)

    def takes(self, shapes: Sequence[Shape]) -> bool:
        """Return whether the graph is for arguments of these shapes: some lengths must be equal."""
        length = {position: shapes[position][axis] for position, axis in self.axes.items()}
        return (
            self.original is not None
            and all(length[a] == length[b] for a, b in self.linked)
            and all(length[position] >= least for position, least in self.shortest.items())
        )


def padded_length(length: int, by_step: bool = False) -> int:
    """Return the bucket for a length, the next of 1, 2, 3, 4, 6, 8, 12, 16, 24, … If each step is
    an run of its own (`by_step`), it costs about as much for few rows as for many: 1, 2, 4, 8, …"""
    step = 1 << max(0, (length - 1).bit_length() - 2 * (not by_step))
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


def padded_graph(
    graph: StaticGraph,
    shapes: Sequence[Shape],
    axes: dict[int, int],
    training: bool,
    dtypes: Sequence[Any],
    numpy: bool = False,
) -> PaddedGraph:
    """Return the graph for padded arguments of these shapes.

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
        return PaddedGraph(None, axes, reason=str(error))
    position = {INPUT % i: i for i in range(len(shapes))}
    if any(shapes[i][0] != 1 for i, axis in axes.items() if axis):
        return PaddedGraph(None, axes, reason='an argument has several rows')
    if 0 in axes.values():
        rows = {name: shape[1:] for name, shape in zip(position, shapes)}
        if analyse(graph.subgraph, rows, training).verdict is Verdict.PROVED:
            return PaddedGraph(None, axes, reason='its rows are batched, however many they are')
    known, along = dict(zip(position, shapes)), {INPUT % i: axis for i, axis in axes.items()}
    kinds = dict(zip(position, dtypes))
    padding = padding_of(graph.subgraph, known, along, of_results=True, dtypes=kinds)
    reason, padded = padding.reason, None
    lengths: tuple[int, ...] = ()
    if padding.neutral:
        masked = padding.masked or graph.subgraph
        subgraph, lengths = _with_arguments(masked, sorted(axes), len(shapes))
        padded = graph._replace(subgraph=subgraph)
    elif 'RNN' in graph.subgraph.operators:
        padding = padding_of(graph.subgraph, known, along, True, stops=True, dtypes=kinds)
    if not padding.neutral:
        return PaddedGraph(None, axes, reason=reason)
    return PaddedGraph(
        padded,
        axes,
        lengths,
        frozenset((position[one], position[other]) for one, other in padding.linked),
        tuple(
            {axis: (position[name], longer) for axis, (name, longer) in axes.items()}
            for axes in padding.results
        ),
        {position[name]: least for name, least in padding.shortest.items()},
        len(graph.subgraph.operators) > _FEW or not _DEAR.isdisjoint(graph.subgraph.operators),
        FOREACH in graph.subgraph.operators,
        reason,
        graph,
    )


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


def _with_arguments(
    graph: Subgraph, positions: list[int], count: int
) -> tuple[Subgraph, tuple[int, ...]]:
    """Return the graph with lengths as arguments after `count` others, and their inputs."""
    names = {position: LENGTHS % (INPUT % position) for position in positions}
    used = tuple([position for position, name in names.items() if name in graph.variables])
    renamed = {names[position]: INPUT % (count + i) for i, position in enumerate(used)}
    return graph.with_variables(renamed) if renamed else graph, used
