"""Calls that only add values of one kind, of which several may run as one sum of any number.

`graph.edges.addition_trees` finds such calls in an evaluation by the numbers that are given here.
"""

import itertools
from typing import Any, Dict, Optional, Sequence

import numpy as np

from ..ops import Arithmetic, op_of
from .ir import Subgraph
from .options import CompileOptions
from .spec import ArenaKey

SUM = 'sum', (('axis', '1'),)  # the operator, of ragged values, that adds any number of values
_MOST = 1 << 12
_numbers: Dict[tuple, int] = {}
_count = itertools.count(1)  # a number that was given is never given again


def is_addition(graph: Subgraph) -> bool:
    """Return whether a subgraph is one operator that adds its inputs, or zero to its input."""
    operators = [node for node in graph.nodes if not node.is_variable]
    if len(operators) != 1 or len({*operators[0].inputs}) != len(operators[0].inputs):
        return False
    op = op_of(operators[0].op)
    adds_nothing = op.affine is not None and op.affine(operators[0].attrs) == (1.0, 0.0)
    return op.arithmetic is Arithmetic.SUM or adds_nothing


def kind_of_addition(
    graph: Subgraph,
    arguments: Sequence[Optional[ArenaKey]],
    mode: Any,
    options: CompileOptions,
    results: Sequence[ArenaKey],
) -> int:
    """Return a number that types share whose calls may be parts of one sum; 0 for other types.

    The number is odd for ``add_n``, each call of which is a sum of any number of values.

    Parameters
    ----------
    graph : Subgraph
    arguments : sequence of (ArenaKey or None)
        Where the rows of each argument live; None for an argument that is not a single value.
    mode : Mode
    options : CompileOptions
    results : sequence of ArenaKey
    """
    if {*arguments} != {*results} or len(arguments) != len(graph.variables):
        return 0
    kind = results[0]
    if kind.eager or kind.dtype not in (np.float32, np.float64) or not is_addition(graph):
        return 0
    if len(_numbers) >= _MOST:
        _numbers.clear()
    key = kind, mode, options
    return 2 * _numbers.setdefault(key, next(_count)) + ('add_n' in graph.operators)
