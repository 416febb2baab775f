"""Types of calls and their forms, made from a bundle's manifest, for recording and running."""

import threading
from array import array as Column
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import numpy as np

from .bundle.cell_program import CellProgram
from .calls import Form, Store, store_of
from .errors import RecordError

_FLAT: list[dict[str, Any]] = [{'name': 'edb_input0'}, {'op': '_copy', 'inputs': [[0, 0]]}]


class Argument(NamedTuple):
    """An argument of a type. Its kind is 'rows' (one value), 'ragged' (any number, by value) or
    'flat' (any number, one after the other)."""

    kind: str
    row_shape: tuple[int, ...]
    dtype: np.dtype


class Output(NamedTuple):
    """A result of a type; `factor` is how many rows there are for each row of the arguments."""

    row_shape: tuple[int, ...]
    dtype: np.dtype
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
        self.serial = -1
        self.products: dict[Any, Any] = {}  # see projections.py
        self._forms: dict[int, Form] = {}

    def __repr__(self) -> str:
        return self.stable_name

    def form(self, rows: int) -> Form:
        """Return the form of calls with `rows` rows."""
        form = self._forms.get(rows)
        return FORMS.make(self, rows) if form is None else form


class _Forms:
    """All forms of the process, which every recording shares, in columns for
    ``graph/collect.py``."""

    def __init__(self) -> None:
        self.forms: list[Form] = []
        self.form_summaries, self.output_rows = Column('q'), Column('q')
        self._types = 0
        self._lock = threading.Lock()

    def add(self, cell_type: CellType) -> None:
        """Number a type; schedulers see types in this order."""
        with self._lock:
            cell_type.serial, self._types = self._types, self._types + 1

    def make(self, cell_type: CellType, rows: int) -> Form:
        """Make a new form."""
        with self._lock:
            known: Optional[Form] = cell_type._forms.get(rows)
            if known is not None:
                return known
            stores: list[Store] = [
                store_of(output.row_shape, output.dtype, rows * output.factor)
                for output in cell_type.outputs
            ]
            form = Form(len(self.forms), cell_type, rows, stores)
            self.forms.append(form)
            self.form_summaries.extend(
                (cell_type.serial, rows, len(stores), cell_type.of_many, 0, 0)
            )
            self.output_rows.extend([store.rows for store in stores])
            cell_type._forms[rows] = form
            return form


FORMS = _Forms()
_concats: dict[tuple, CellType] = {}
_operators: dict[tuple, CellType] = {}


def concat_form(store: Store, rows: int) -> Form:
    """Return the form of values that are `rows` rows of others, one after the other."""
    found = _concats.get(store.arena)
    if found is None:
        shown = 'x'.join(map(str, store.row_shape)) or '1'
        found = CellType(
            f'concat[{shown}]',
            [Argument('flat', *store.arena)],
            [Output(*store.arena, 1)],
            0,
            CellProgram(_FLAT, [(1, 0)], {}),
        )
        FORMS.add(found)
        found = _concats.setdefault(store.arena, found)
    return found.form(rows)


def operator_form(op: str, stores: Sequence[Store], attrs: dict[str, Any]) -> Form:
    """Return the form of an operator's calls."""
    rows = {store.rows for store in stores}
    if len(rows) != 1:
        raise RecordError(f'{op} of values with different numbers of rows: {sorted(rows)}')
    key = (op, *attrs.items(), *[store.arena for store in stores])
    found = _operators.get(key)
    if found is None:
        found = _operators.setdefault(key, _operator(op, stores, attrs))
    return found.form(rows.pop())


def _operator(op: str, stores: Sequence[Store], attrs: dict[str, Any]) -> CellType:
    nodes: list[dict[str, Any]] = [{'name': f'edb_input{place}'} for place in range(len(stores))]
    inputs = [[place, 0] for place in range(len(stores))]
    nodes.append({'op': op, 'attrs': attrs, 'inputs': inputs})
    shown = ', '.join('x'.join(map(str, store.row_shape)) or '1' for store in stores)
    made = CellType(
        f'{op}[{shown}]',
        [Argument('rows', *store.arena) for store in stores],
        [Output(_row_shape(op, stores, attrs), stores[0].dtype, 1)],
        0,
        CellProgram(nodes, [(len(stores), 0)], {}),
    )
    FORMS.add(made)
    return made


def _row_shape(op: str, stores: Sequence[Store], attrs: dict[str, Any]) -> tuple[int, ...]:
    """Return the row shape of an operator's result."""
    shapes, rest = [store.row_shape for store in stores], {store.row_shape for store in stores}
    shape = list(shapes[0])
    if op == 'Concat' and attrs['dim'] <= len(shape):
        axis = attrs['dim'] - 1
        rest = {each[:axis] + each[axis + 1 :] for each in shapes if len(each) == len(shape)}
        rest |= {each for each in shapes if len(each) != len(shape)}
        shape[axis] = sum(each[axis] for each in shapes if len(each) == len(shape))
    if len(rest) != 1 or len({store.dtype for store in stores}) != 1:
        shown = ', '.join(map(str, stores))
        raise RecordError(f'{op} of values that do not fit: {shown}')
    return tuple(shape)
