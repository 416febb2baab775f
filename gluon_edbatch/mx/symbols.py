"""Operators of MXNet's registry by their names, as functions of Symbols."""

import itertools
from functools import partial
from typing import Any, Callable, Optional

import mxnet as mx
from mxnet.symbol.register import _symbol_creator

from gluon_edbatch_core.errors import UnrecordableError

from .invoke import count_attribute, operator_handle, operator_name

NUMPY = ('_np_', '_npi_', '_npx_')  # begin names of operators of NumPy mode
# In graphs MXNet crashes by these, or knows no shapes or gradients of their results.
_NOT_IN_GRAPHS = frozenset(
    'reset_arrays _npi_hstack _npi_dstack _np_atleast_1d _np_atleast_2d _np_atleast_3d '
    '_npi_copysign_scalar _npi_rcopysign_scalar'.split()
)
_serial = itertools.count()


def symbol_function(op: str) -> Callable[..., mx.sym.Symbol]:
    """Return the function of ``mx.sym`` that makes a node of this operator, ignoring a dtype of
    None. Raise `UnrecordableError` if there is none."""
    if op in _NOT_IN_GRAPHS:
        raise UnrecordableError(f'{op} cannot be put into a graph')
    function = in_mx_sym(op)
    if function is None and op.startswith(NUMPY):
        function = partial(_of_numpy, op)
    if function is None:
        raise UnrecordableError(f'MXNet has no function of Symbols for {op}')

    def without_none(*symbols: mx.sym.Symbol, **attrs: Any) -> mx.sym.Symbol:
        if str(attrs.get('dtype')) == 'None':
            attrs.pop('dtype', None)
        return function(*symbols, **attrs)

    return without_none


def without_casts_of_amp(symbol: mx.sym.Symbol) -> mx.sym.Symbol:
    """Return a symbol without casts of MXNet's AMP: batches compute in the parameters' dtypes."""
    if '"amp_' not in symbol.tojson(remove_amp_cast=False):
        return symbol
    return mx.sym.load_json(symbol.tojson())


def in_mx_sym(op: str) -> Optional[Callable[..., mx.sym.Symbol]]:
    """Return the function of ``mx.sym`` for an operator; None if it has no such function."""
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
    return None


def _of_numpy(op: str, *symbols: mx.sym.Symbol, **attrs: Any) -> mx.sym.Symbol:
    """Make a node as functions of ``mx.sym.np`` do, which take only Symbols of their own kind."""
    count = count_attribute(op)
    if count:
        attrs = {count: len(symbols), **attrs}
    return _symbol_creator(
        operator_handle(op),
        symbols,
        {},
        list(attrs),
        list(map(str, attrs.values())),
        f'{op.strip("_")}{next(_serial)}',
        False,
    )


def registered() -> set[str]:
    """Return MXNet's names of all operators, without aliases and gradients."""
    ops = map(operator_handle, mx.operator.get_all_registered_operators())
    return {
        name
        for name in map(operator_name, ops)
        if 'backward' not in name and not name.startswith('edb_')
    }


def infer_shape(symbol: mx.sym.Symbol, shapes: dict[str, tuple[int, ...]]):
    """Infer shapes as ``Symbol.infer_shape`` does, but print nothing if shapes do not fit."""
    return symbol._infer_shape_impl(False, **shapes)


def infer_type(symbol: mx.sym.Symbol, dtypes: dict[str, Any]):
    """Infer dtypes as ``Symbol.infer_type`` does, but print nothing if dtypes do not fit."""
    return symbol._infer_type_impl(False, **dtypes)
