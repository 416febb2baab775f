"""Numbers of samples, computed as Python computes them."""

from typing import Any, List

import numpy as np

from ..errors import ProgramError
from .graph import Calculate

_OPS = {
    'add': np.add,
    'sub': np.subtract,
    'mul': np.multiply,
    'truediv': np.true_divide,
    'floordiv': np.floor_divide,
    'mod': np.mod,
    'pow': np.power,
    'and': np.bitwise_and,
    'or': np.bitwise_or,
    'xor': np.bitwise_xor,
    'lt': np.less,
    'le': np.less_equal,
    'gt': np.greater,
    'ge': np.greater_equal,
    'eq': np.equal,
    'ne': np.not_equal,
    'neg': np.negative,
    'pos': np.positive,
    'abs': np.abs,
    'not': np.logical_not,
    'float': np.float64,
    'int': np.trunc,
    'bool': np.bool_,
    'round': np.rint,
    'floor': np.floor,
    'ceil': np.ceil,
    'sqrt': np.sqrt,
    'exp': np.exp,
    'log': np.log,
    'tanh': np.tanh,
}
_WHOLE = frozenset('int round floor ceil'.split())
_COMPARED = frozenset('lt le gt ge eq ne'.split())


def calculate(step: Calculate, operands: List[Any], count: int) -> np.ndarray:
    """Numbers of numbers, as Python computes them.

    Raises
    ------
    ProgramError
        For what Python raises an error for, or compares and finds no number.
    """
    op = step.op
    if op in ('max', 'min'):
        first, second = operands
        chosen = second > first if op == 'max' else second < first
        return np.where(chosen, second, first)
    if op in ('truediv', 'floordiv', 'mod') and not np.all(operands[1]):
        raise ProgramError(f'{step.line}\n  a number is divided by zero')
    if op in _COMPARED and any([np.isnan(each).any() for each in operands]):
        raise ProgramError(f'{step.line}\n  what is compared is not a number (NaN)')
    if op in _WHOLE and not np.isfinite(operands[0]).all():
        raise ProgramError(f'{step.line}\n  no integer can be made of NaN or infinity')
    if op in ('sub', 'neg', 'pos', 'add', 'mul') and any([_is_bool(each) for each in operands]):
        operands = [np.multiply(each, 1) if _is_bool(each) else each for each in operands]
    with np.errstate(all='ignore'):
        made = np.asarray(_OPS[op](*operands))
    if op in _WHOLE:
        made = made.astype(np.int64)
    return made if made.shape else np.full(count, made)


def _is_bool(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_)) or getattr(value, 'dtype', None) == np.bool_


KNOWN = frozenset(_OPS).union(('max', 'min'))
