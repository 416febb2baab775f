"""Run calls that add or join values of one kind as calls with any number of arguments.

`graph.edges.addition_trees` finds such calls in an evaluation by the numbers that
`kind_of_addition` returns. A call whose result only another such call reads becomes part of that
call.
"""

import itertools
from collections.abc import Sequence
from typing import Any, Optional

import numpy as np

from ..ops import Arithmetic, op_of
from .ir import Subgraph
from .options import CompileOptions
from .spec import ArenaKey

SUM = 'sum', (('axis', '1'),)  # the operator, of ragged values, that adds any number of values
_MOST = 1 << 12
_numbers: dict[tuple, int] = {}
_count = itertools.count(1)  # a number that was given is never given again


def is_addition(graph: Subgraph) -> bool:
    """Return whether a subgraph is one operator that adds its inputs, or zero to its input."""
    operators = [node for node in graph.nodes if not node.is_variable]
    if len(operators) != 1 or len({*operators[0].inputs}) != len(operators[0].inputs):
        return False
    op, attrs = operators[0].op, operators[0].attrs
    adds_nothing = op == '_plus_scalar' and attrs.number('scalar', 1) == 0
    return op_of(op).arithmetic is Arithmetic.SUM or adds_nothing


def kind_of_addition(
    graph: Subgraph,
    arguments: Sequence[Optional[ArenaKey]],
    mode: Any,
    options: CompileOptions,
    results: Sequence[ArenaKey],
    joins: bool,
) -> int:
    """Return a number that types share whose calls may be parts of one call; 0 for other types.

    The number is odd for ``add_n`` and ``Concat`` along axis 0, as each call of these may have any
    number of arguments. An argument that is not a single value is None. `joins` says whether calls
    put the rows of their arguments one after the other.
    """
    if {*arguments} != {*results} or len(arguments) != len(graph.variables) or results[0].eager:
        return 0
    kind = results[0]
    if not joins and not (kind.dtype in (np.float32, np.float64) and is_addition(graph)):
        return 0
    if len(_numbers) >= _MOST:
        _numbers.clear()
    number = _numbers.setdefault((kind, mode, options, joins), next(_count))
    return 2 * number + (joins or 'add_n' in graph.operators)
