"""Types of calls and their forms, made from a bundle's manifest, for recording and running."""

import itertools
import threading
from array import array as Column
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gluon_edbatch_core.bundle.cell_program import CellProgram
from gluon_edbatch_core.bundle.numpy_operators import OPERATORS
from gluon_edbatch_core.errors import RecordError

from .calls import NUMBER, Form, Store, store_of

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
_tried: dict[tuple, CellType] = {}  # types of operators, by numbers of rows that were tried


def concat_form(store: Store, rows: int) -> Form:
    """Return the form of values that are `rows` rows of others, one after the other."""
    key = ('concat', store.arena)
    if key not in _operators:
        argument = Argument('flat', store.arena)
        _operators.setdefault(key, _operator('concat', '_copy', {}, [argument], 1))
    return _operators[key].form(rows)


def operator_form(op: str, stores: Sequence[Store], attrs: dict[str, Any]) -> Form:
    """Return the form of an operator's calls."""
    rows = {store.rows for store in stores}
    if len(rows) != 1:
        raise RecordError(f'{op} of values with different numbers of rows: {sorted(rows)}')
    count = rows.pop()
    named = {name: tuple(each) if isinstance(each, list) else each for name, each in attrs.items()}
    key = (op, *named.items(), *[store.arena for store in stores])
    made = _tried.get((count, key))
    if made is None:
        arguments = [Argument('rows', store.arena) for store in stores]
        new = _operator(op, op, named, arguments, count)
        made = _operators.setdefault((key, new.outputs[0]), new)  # one type for all numbers of rows
        _tried[count, key] = made
    return made.form(count)


def number_form(op: str, store: Store, turned: bool) -> Form:
    """Return the form of an operator of a value of one row and a number, which is first if
    `turned`. The number is an argument, so that calls with any numbers are of one type."""
    key = (op, turned, store.arena)
    made = _operators.get(key)
    if made is None:
        shape = [-1] + [1] * len(store.row_shape)
        inputs = [[2, 0], [0, 0]] if turned else [[0, 0], [2, 0]]
        nodes: list[dict[str, Any]] = [{'name': 'edb_input0'}, {'name': 'edb_input1'}]
        nodes.append({'op': 'Reshape', 'attrs': {'shape': shape}, 'inputs': [[1, 0]]})
        nodes.append({'op': op, 'attrs': {}, 'inputs': inputs})
        arguments = [Argument('rows', store.arena), Argument('rows', NUMBER.arena)]
        program = CellProgram(nodes, [(3, 0)], {})
        new = CellType(f'{op} with a number', arguments, [Output(store.arena, 1)], 0, program)
        made = _operators.setdefault(key, new)
    return made.form(1)


def _operator(
    name: str, op: str, attrs: dict[str, Any], arguments: Sequence[Argument], rows: int
) -> CellType:
    """Return the type of an operator's calls on values of some rows. What it does to rows is tried:
    RecordError says that it mixes them, or that shapes do not fit."""
    count = len(arguments)
    nodes: list[dict[str, Any]] = [{'name': f'edb_input{place}'} for place in range(count)]
    inputs = [[place, 0] for place in range(count)]
    in_manifest = {key: list(each) if isinstance(each, tuple) else each
                   for key, each in attrs.items()}  # fmt: skip
    nodes.append({'op': op, 'attrs': in_manifest, 'inputs': inputs})
    shown = ', '.join('x'.join(map(str, each.arena[0])) or '1' for each in arguments)
    random = np.random.default_rng(0)
    given = [random.random((2 * rows, *each.arena[0])).astype(each.arena[1]) for each in arguments]
    try:
        function = OPERATORS[op].make(in_manifest)
        whole = function(*given)
        halves = [function(*[each[begin : begin + rows] for each in given]) for begin in (0, rows)]
    except (KeyError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        raise RecordError(f'{op}[{shown}] {attrs or ""} cannot be computed: {error}') from None
    joined = np.concatenate(halves) if halves[0].ndim else whole
    if joined.shape != whole.shape or not np.allclose(joined, whole, equal_nan=True):
        raise RecordError(f'{op}[{shown}] {attrs or ""} mixes rows: put it into a cell')
    factor, rest = divmod(len(halves[0]) if halves[0].ndim else 0, rows)
    if rest or not factor:
        raise RecordError(f'{op}[{shown}] {attrs or ""} leaves no rows: put it into a cell')
    output = Output((whole.shape[1:], whole.dtype), factor)
    return CellType(
        f'{name}[{shown}]', arguments, [output], 0, CellProgram(nodes, [(count, 0)], {})
    )
