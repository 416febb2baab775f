"""Passes: functions from Symbol to Symbol that change the speed of a subgraph, not its results."""
from typing import Callable, Dict, Tuple

import mxnet as mx

from .added_inputs import added_inputs
from .middle_axis import middle_axis

Shape = Tuple[int, ...]
PASSES: Tuple[Callable[[mx.sym.Symbol, Dict[str, Shape]], mx.sym.Symbol], ...] = (
    middle_axis, added_inputs)


def apply_passes(symbol: mx.sym.Symbol, shapes: Dict[str, Shape]) -> mx.sym.Symbol:
    """All passes in turn.

    Parameters
    ----------
    symbol : mxnet.symbol.Symbol
    shapes : dict
        Shapes of its inputs for some number of rows, from which ranks are taken.
    """
    for one in PASSES:
        symbol = one(symbol, shapes)
    return symbol
