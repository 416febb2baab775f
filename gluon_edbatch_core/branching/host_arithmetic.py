"""Compute numbers of samples as Python computes them."""

from typing import Any

import numpy as np

from ..errors import ProgramError, ProgramIndexError
from .program_graph import Calculate

NUMBERS = {'float': np.float64, 'int': np.int64, 'bool': np.bool_}
NEAR = 1e-5  # of the larger of two numbers that are compared, or of 1
ORDERED = ('lt', 'le', 'gt', 'ge')

_OPS: dict[str, Any] = {
    'add': np.add,
    'sub': np.subtract,
    'mul': np.multiply,
    'truediv': np.true_divide,
    'floordiv': np.floor_divide,
    'mod': np.mod,
    'pow': np.power,
    'index': lambda at, count: np.where(at < 0, at + count, at),
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
_REAL = frozenset('sqrt exp log tanh'.split())
ARITHMETIC = frozenset('add sub mul truediv floordiv mod pow index neg pos abs'.split())
_LARGEST = 2.0**63
COMPARED = frozenset('lt le gt ge eq ne'.split())


def calculate(step: Calculate, operands: list[Any], count: int) -> np.ndarray:
    """Compute numbers from numbers as Python does. Raise ProgramError where Python raises an error,
    and for comparisons with NaN."""
    with np.errstate(all='ignore'):
        made = np.asarray(_calculated(step, operands))
    return made if made.shape else np.full(count, made)


def _calculated(step: Calculate, operands: list[Any]) -> Any:
    op = step.op
    if op in ('max', 'min'):
        first, second = operands
        chosen = second > first if op == 'max' else second < first
        return np.where(chosen, second, first)
    if op in _WHOLE and np.asarray(operands[0]).dtype.kind != 'f':
        op = 'pos'  # it is an integer, of which a float would have too few digits
    if op in _REAL:  # NumPy has too few digits for those of a bool
        operands = [np.asarray(each, np.float64) for each in operands]
    if op in ARITHMETIC:
        operands = [np.multiply(each, 1) if _is_bool(each) else each for each in operands]
    wrong = _error_text(op, operands)
    if wrong:
        kind = ProgramIndexError if op == 'index' else ProgramError
        raise kind(f'{step.line}\n  {wrong}')
    made = np.asarray(_OPS[op](*operands))
    if made.dtype == np.int64 and op in ARITHMETIC:
        _check_size(step, _OPS[op](*[np.asarray(each, np.float64) for each in operands]))
    if op in _WHOLE:
        _check_size(step, made)
        made = made.astype(np.int64)
    return made


def are_near(first: Any, second: Any) -> Any:
    """Return where two numbers, or arrays, are so near that rounding may decide; never integers."""
    if _is_whole(first) and _is_whole(second):
        return False
    largest = np.maximum if isinstance(first, np.ndarray) or isinstance(second, np.ndarray) else max
    return abs(first - second) <= NEAR * largest(largest(abs(first), abs(second)), 1)


def have_near_ties(rows: np.ndarray) -> np.ndarray:
    """Return which rows (samples, elements) have two largest elements that are near."""
    if rows.shape[1] < 2:
        return np.zeros(len(rows), bool)
    largest = np.partition(rows, -2, axis=1)[:, -2:].astype(np.float64)
    return are_near(largest[:, 0], largest[:, 1])


def _is_whole(value: Any) -> bool:
    return value.dtype.kind in 'iub' if isinstance(value, np.ndarray) else isinstance(value, int)


def _error_text(op: str, operands: list[Any]) -> str:
    """Return why Python raises an error for these numbers, or does not know their kinds."""
    if op in ('truediv', 'floordiv', 'mod') and not np.all(operands[1]):
        return 'a number is divided by zero'
    if op == 'index' and np.any((operands[0] < -operands[1]) | (operands[0] >= operands[1])):
        return 'list index out of range'
    if op in COMPARED and any([np.isnan(each).any() for each in operands]):
        return 'what is compared is not a number (NaN)'
    if op in _WHOLE and not np.isfinite(operands[0]).all():
        return 'no integer can be made of NaN or infinity'
    if (op == 'sqrt' and np.any(np.less(operands[0], 0))) or (
        op == 'log' and np.any(np.less_equal(operands[0], 0))
    ):
        return f'{op} of a number that has none'
    return _error_text_of_power(*map(np.asarray, operands)) if op == 'pow' else ''


def _error_text_of_power(base: np.ndarray, exponent: np.ndarray) -> str:
    whole = base.dtype.kind == exponent.dtype.kind == 'i'
    if whole and (exponent < 0).any():
        return 'an integer to the power of a negative one is no integer: write float(n) ** m'
    if ((base == 0) & (exponent < 0)).any():
        return 'zero to the power of a negative number'
    if ((base < 0) & (exponent != np.trunc(exponent))).any():
        return 'a negative number to the power of one that is no integer'
    return ''


def _check_size(step: Calculate, numbers: Any) -> None:
    if np.any(np.abs(numbers) >= _LARGEST):
        raise ProgramError(f'{step.line}\n  an integer has more than 64 bits')


def _is_bool(value: Any) -> bool:
    return isinstance(value, (bool, np.bool_)) or getattr(value, 'dtype', None) == np.bool_


KNOWN = frozenset(_OPS).union(('max', 'min'))
