"""Operators of MXNet's registry by their names, as functions of Symbols."""

from typing import Any, Callable, Dict, Set, Tuple

import mxnet as mx

from ..errors import UnrecordableError
from .invoke import operator_handle, operator_name

_WITHOUT_RESULTS = frozenset(['reset_arrays'])  # MXNet crashes if they are put into a graph


def symbol_function(op: str) -> Callable[..., mx.sym.Symbol]:
    """The function of ``mx.sym`` that makes a node of this operator; which takes no dtype for
    float64, other than that of ``mx.nd``, and must not be given any.

    Raises
    ------
    UnrecordableError
        If there is none.
    """
    if op in _WITHOUT_RESULTS:
        raise UnrecordableError(f'{op} has no results')
    function = _in_mx_sym(op)

    def without_none(*symbols: mx.sym.Symbol, **attrs: Any) -> mx.sym.Symbol:
        return function(
            *symbols,
            **{
                key: value for key, value in attrs.items() if key != 'dtype' or str(value) != 'None'
            },
        )

    return without_none


def _in_mx_sym(op: str) -> Callable[..., mx.sym.Symbol]:
    for prefix in ('_contrib_', '_linalg_', '_random_', '_image_', '_sparse_'):
        module = getattr(mx.sym, prefix.strip('_'))
        if op.startswith(prefix) and hasattr(module, op[len(prefix) :]):
            return getattr(module, op[len(prefix) :])
    for module in (mx.sym.op, mx.sym._internal):
        if hasattr(module, op):
            return getattr(module, op)
    alias = op[len('_np_') :]  # of _np_cumsum, but not of _np_max
    if (
        op.startswith('_np_')
        and hasattr(mx.sym.op, alias)
        and operator_handle(alias) == operator_handle(op)
    ):
        return getattr(mx.sym.op, alias)
    raise UnrecordableError(f'MXNet has no function of Symbols for {op}')


def registered() -> Set[str]:
    """MXNet's own names of all operators; aliases and gradients left out."""
    return {
        name
        for name in map(own_name, mx.operator.get_all_registered_operators())
        if 'backward' not in name and not name.startswith('edb_')
    }


def own_name(op: str) -> str:
    """The name that an operator has in graphs, whichever of its aliases is given."""
    return operator_name(operator_handle(op))


def infer_shape(symbol: mx.sym.Symbol, shapes: Dict[str, Tuple[int, ...]]):
    """As ``Symbol.infer_shape``, which prints its arguments if shapes do not fit."""
    return symbol._infer_shape_impl(False, **shapes)
