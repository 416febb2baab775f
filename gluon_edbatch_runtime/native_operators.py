"""Native programs of operators between cells that are common: sums, products, concatenations."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import numpy as np

from gluon_edbatch_core.native.row_program import MOST_COLUMNS, CheckedProgram, RowsOf, row_program
from gluon_edbatch_core.plan.call_type import Argument, Kind

_FUNCTIONS = {
    1: {'sigmoid': 'Sigmoid', 'tanh': 'Tanh', 'relu': 'Relu', 'exp': 'Exp', 'square': 'Square',
        '_copy': 'Affine'},
    2: {f'{kind}_{short}': name for kind in ('broadcast', 'elemwise') for short, name in (
        ('add', 'Add'), ('sub', 'Subtract'), ('mul', 'Multiply'), ('div', 'Divide'))},
}  # fmt: skip


class NativeForm(NamedTuple):
    """A type's program for the native executor, with its weights."""

    program: CheckedProgram
    weights: list[np.ndarray]  # of each parameter


def native_operator(
    op: str, attrs: dict[str, Any], arguments: Sequence[Argument], outputs: Sequence[Any]
) -> Optional[NativeForm]:
    """Return the program of an operator that treats rows alone, or sums ragged values; None if it
    has none here."""
    dtypes = {each.arena[1] for each in arguments} | {each.arena[1] for each in outputs}
    rows = [RowsOf(math.prod(each.arena[0]), each.rows, each.kind is Kind.RAGGED)
            for each in arguments]  # fmt: skip
    widths = [each.width * each.rows for each in rows]
    if len(outputs) != 1 or len(dtypes) != 1 or not dtypes <= {np.dtype('f4'), np.dtype('f8')}:
        return None
    width, count = math.prod(outputs[0].arena[0]), len(arguments)
    if sum(widths) + width > MOST_COLUMNS:
        return None
    views: list[Any] = [[place, 0, own] for place, own in enumerate(widths)]
    function = _FUNCTIONS.get(count, {}).get(op)
    if function is not None and set(widths) == {width} and not attrs:
        kind = ('Unary', 'Binary')[count - 1]
        spread = [0] * 2 if count == 2 else []
        views += [None] * (2 - count)
        reals = [1.0, -0.0] if op == '_copy' else []  # what it multiplies by and adds
        steps = [[kind, [count, 0, width], *views, -1, -1, [function, *spread], reals]]
    elif op == 'sum' and rows[0].ragged:
        steps = [['SegmentSum', [1, 0, width], views[0], None, -1, -1, [0], []]]
    elif op == 'Concat' and attrs.get('dim', 1) == 1:
        begins = np.cumsum([0, *widths]).tolist()
        steps = [['Load', [count, begin, own], None, None, -1, -1, [place, 0, 1], []]
                 for place, (begin, own) in enumerate(zip(begins, widths))]  # fmt: skip
    else:
        return None
    registers = [[own, each.ragged, 'Input', place, each.rows]
                 for place, (own, each) in enumerate(zip(widths, rows))]  # fmt: skip
    entry = {
        'registers': [*registers, [width, False, 'Output', 0, 1]],
        'instructions': steps,
        'parameters': [],
    }
    return NativeForm(row_program(entry, rows, [RowsOf(width)], []), [])
