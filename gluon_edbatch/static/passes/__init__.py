"""Passes: functions from Symbol to Symbol that change the speed of a subgraph, not its results."""
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

import mxnet as mx

from ..options import CompileOptions
from .added_inputs import added_inputs
from .common_subexpressions import common_subexpressions
from .constants import constants
from .embeddings import embeddings
from .middle_axis import middle_axis
from .operators import operators
from .sums import sums

Shapes = Dict[str, Tuple[int, ...]]


class Pass(NamedTuple):
    """A function, and when it is applied.

    Attributes
    ----------
    option : str or None
        The name in `CompileOptions` that switches it; None if it must always run.
    apply : callable
        (symbol, shapes of its inputs) -> the symbol itself, or what takes its place.
    devices : tuple of str
        Where it was measured to help, or may be expected to.
    """

    option: Optional[str]
    apply: Callable[[mx.sym.Symbol, Shapes], mx.sym.Symbol]
    devices: Tuple[str, ...] = ('cpu', 'gpu')


PASSES = (
    Pass('constants', constants),
    Pass('operators', operators, ('cpu',)),
    Pass('middle_axis', middle_axis, ('cpu',)),
    Pass('common_subexpressions', common_subexpressions),
    Pass('sums', sums),
    Pass(None, embeddings),
    Pass(None, added_inputs),  # last: others make sums, too
)


def apply_passes(symbol: mx.sym.Symbol, shapes: Shapes, options: CompileOptions, device: str
                 ) -> Tuple[mx.sym.Symbol, List[str]]:
    """Those passes in turn that are switched on, and made for the device.

    Parameters
    ----------
    symbol : mxnet.symbol.Symbol
    shapes : dict
        Shapes of its inputs for some number of rows, from which ranks are taken.
    options : CompileOptions
    device : str
        ``'cpu'`` or ``'gpu'``

    Returns
    -------
    symbol : mxnet.symbol.Symbol
    changed : list of str
        The options whose passes changed something.
    """
    changed = []
    for one in PASSES:
        if device in one.devices and (one.option is None or getattr(options, one.option)):
            before, symbol = symbol, one.apply(symbol, shapes)
            if one.option is not None and symbol is not before:
                changed.append(one.option)
    return symbol, changed
