"""Types of calls and their forms, made from a bundle's manifest, for recording and running."""

import itertools
import threading
from array import array as Column
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .bundle.cell_program import CellProgram
from .calls import Form, Store, store_of
from .errors import RecordError

# All forms of the process, which recordings share, and what ``graph/collect.py`` reads of them.
FORMS: list[Form] = []
SUMMARIES, OUTPUT_ROWS = Column('q'), Column('q')
_lock = threading.Lock()
_serials = itertools.count()


class Argument(NamedTuple):
    """An argument of a type. Its kind is 'rows' (one value), 'ragged' (any number, by value) or
    'flat' (any number, one after the other). `arena` is its row shape and dtype."""

    kind: str
    arena: tuple[tuple[int, ...], np.dtype]


class Output(NamedTuple):
    """A result of a type. `arena` is its row shape and dtype, and `factor` how many rows there are
    for each row of the arguments."""

    arena: tuple[tuple[int, ...], np.dtype]
    factor: int


class CellType:
    """The batch signature of a cell's calls.

    Policies use the name, which is that of the exported type. `nested` is the structure of a call's
    results, with the number of an output in place of each. `fills` tells whether an empty ragged
    argument gets a value of zeros. `scheduler` is the bundle's.
    """

    alone = False  # as graph/collect.py asks for it

    def __init__(
        self,
        name: str,
        arguments: Sequence[Argument],
        outputs: Sequence[Output],
        nested: Any,
        program: CellProgram,
        fills: bool = False,
        scheduler: Any = None,
    ):
        self.stable_name, self.arguments, self.outputs = name, list(arguments), list(outputs)
        self.nested, self.program, self.fills, self.scheduler = nested, program, fills, scheduler
        self.counted = [argument for argument in arguments if argument.kind != 'rows']
        self.of_many = len(self.counted)
        self.is_ragged = any(argument.kind == 'ragged' for argument in arguments)
        self.serial = next(_serials)  # schedulers see types in this order
        self.products: dict[Any, Any] = {}  # see projections.py
        self._forms: dict[int, Form] = {}

    def __repr__(self) -> str:
        return self.stable_name

    def form(self, rows: int) -> Form:
        """Return the form of calls with `rows` rows."""
        with _lock:
            form = self._forms.get(rows)
            if form is None:
                stores = [store_of(*each.arena, rows * each.factor) for each in self.outputs]
                form = self._forms[rows] = Form(len(FORMS), self, rows, stores)
                FORMS.append(form)
                SUMMARIES.extend((self.serial, rows, len(stores), self.of_many, 0, 0))
                OUTPUT_ROWS.extend([store.rows for store in stores])
            return form


def zeros_of(arena: tuple[tuple[int, ...], np.dtype], rows: int) -> np.ndarray:
    """Return rows of zeros of a shape and dtype."""
    row_shape, dtype = arena
    return np.zeros((rows, *row_shape), dtype)


_operators: dict[tuple, CellType] = {}  # which all bundles share


def concat_form(store: Store, rows: int) -> Form:
    """Return the form of values that are `rows` rows of others, one after the other."""
    key = ('concat', store.arena)
    if key not in _operators:
        argument = Argument('flat', store.arena)
        made = _operator('concat', '_copy', {}, [argument], store.row_shape)
        _operators.setdefault(key, made)
    return _operators[key].form(rows)


def operator_form(op: str, stores: Sequence[Store], attrs: dict[str, Any]) -> Form:
    """Return the form of an operator's calls."""
    rows = {store.rows for store in stores}
    if len(rows) != 1:
        raise RecordError(f'{op} of values with different numbers of rows: {sorted(rows)}')
    key = (op, *attrs.items(), *[store.arena for store in stores])
    if key not in _operators:
        arguments = [Argument('rows', store.arena) for store in stores]
        made = _operator(op, op, attrs, arguments, _row_shape(op, stores, attrs))
        _operators.setdefault(key, made)
    return _operators[key].form(rows.pop())


def _operator(
    name: str,
    op: str,
    attrs: dict[str, Any],
    arguments: Sequence[Argument],
    row_shape: tuple[int, ...],
) -> CellType:
    """Return the type of an operator's calls."""
    count = len(arguments)
    nodes: list[dict[str, Any]] = [{'name': f'edb_input{place}'} for place in range(count)]
    inputs = [[place, 0] for place in range(count)]
    nodes.append({'op': op, 'attrs': attrs, 'inputs': inputs})
    shown = ', '.join('x'.join(map(str, each.arena[0])) or '1' for each in arguments)
    output = Output((row_shape, arguments[0].arena[1]), 1)
    return CellType(
        f'{name}[{shown}]', arguments, [output], 0, CellProgram(nodes, [(count, 0)], {})
    )


def _row_shape(op: str, stores: Sequence[Store], attrs: dict[str, Any]) -> tuple[int, ...]:
    """Return the row shape of an operator's result."""
    shapes = [store.row_shape for store in stores]
    shape = shapes[0]
    axis = attrs['dim'] - 1 if op == 'Concat' else len(shape)
    rest = {(len(each), *each[:axis], *each[axis + 1 :]) for each in shapes}
    if len(rest) != 1 or len({store.dtype for store in stores}) != 1:
        shown = ', '.join(map(str, stores))
        raise RecordError(f'{op} of values that do not fit: {shown}')
    if axis >= len(shape):
        return shape
    return (*shape[:axis], sum([each[axis] for each in shapes]), *shape[axis + 1 :])
