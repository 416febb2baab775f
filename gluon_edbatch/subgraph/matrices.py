"""Prove that one graph serves matrices of any numbers of rows, each the only value of its call.

``softmax(dot(q, m, transpose_b=True))`` of a matrix m (K, H) has a type for each K. With one axis
more in front (see `lift`), m is (N, K, H), as a ragged argument is; the proof about padding then
covers every K.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

from ..ops import op_of
from ..ops.attrs import Shape
from .lift import lift
from .padding_proof import all_linked, padding_of
from .spec import Spec
from .trace import INPUT, StaticGraph

_ROWS, _CALLS = 7, 5  # of a matrix, and in a batch, while shapes are inferred


class OfAnyRows(NamedTuple):
    """A graph whose one batch signature provably serves matrices of any numbers of rows."""

    result: tuple[Shape, Any]  # shape for some number of rows, and dtype
    # the axes of the result that depend on it: on that of which argument, and how much longer
    axes: dict[int, tuple[int, int]]
    graph: Optional[StaticGraph]  # of matrices (N, K, ...), if there are no such axes


def of_any_rows(
    graph: StaticGraph, specs: Sequence[Spec], matrices: Sequence[int]
) -> Optional[OfAnyRows]:
    """Return what is proved of a graph with one result.

    Parameters
    ----------
    graph : StaticGraph
    specs : sequence of Spec
        Of the arguments of one call.
    matrices : sequence of int
        Positions of the matrices among them; calls with several give all of them equally many rows.

    Returns
    -------
    OfAnyRows or None
        None without a proof, if another argument has several rows, or if the graph draws noise.

    Raises
    ------
    NoRule
        If an operator has no rule for an axis more.
    """
    names = [INPUT % place for place in range(len(specs))]
    along = [names[place] for place in matrices]
    shapes = {
        name: (_ROWS, *spec.row_shape) if name in along else spec.shape
        for name, spec in zip(names, specs)
    }
    if any([name not in along and shape[0] != 1 for name, shape in shapes.items()]) or any(
        [op_of(op).noise for op in graph.subgraph.operators]
    ):
        return None
    dtypes = {name: spec.dtype for name, spec in zip(names, specs)}
    (result,) = graph.subgraph.results(shapes, dtypes)
    of_calls = {
        name: (_CALLS, *(shape if name in along else shape[1:])) for name, shape in shapes.items()
    }
    lifted = lift(graph.subgraph, shapes, along, as_values=True)
    padding = padding_of(lifted, of_calls, dict.fromkeys(along, 1), True, dtypes=dtypes)
    if not padding.neutral or padding.shortest or not all_linked(along, padding.linked):
        return None
    axes = {
        axis - 1: (names.index(name), longer) for axis, (name, longer) in padding.results[0].items()
    }
    by_rows = None if axes else graph._replace(subgraph=lift(graph.subgraph, shapes, along))
    return OfAnyRows(result, axes, by_rows)
