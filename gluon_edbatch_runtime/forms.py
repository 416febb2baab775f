"""Types of calls and their forms, made from a bundle's manifest, for recording and running."""

import itertools
import threading
from array import array as Column
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gluon_edbatch_core.bundle.cell_program import CellProgram, NotInNumPy
from gluon_edbatch_core.bundle.numpy_operators import OPERATORS
from gluon_edbatch_core.errors import RecordError

from .calls import NUMBER, Form, Store, store_of

# All forms of the process, which recordings share, and what ``graph/collect.py`` reads of them.
FORMS: list[Form] = []
SUMMARIES, OUTPUT_ROWS = Column('q'), Column('q')
TYPES = Column('q')  # which type each form has; summaries have its family
_lock = threading.Lock()
_serials = itertools.count()
_families: dict[Any, int] = {}


class Argument(NamedTuple):
    """An argument of a type. Its kind is 'rows' (one value), 'ragged' (any number, by value) or
    'flat' (any number, one after the other). `arena` is its row shape and dtype, and `factor` how
    many rows a value has for each row of the call."""

    kind: str
    arena: tuple[tuple[int, ...], np.dtype]
    factor: int = 1


class Output(NamedTuple):
    """A result of a type. `arena` is its row shape and dtype, and `factor` how many rows there are
    for each row of the call."""

    arena: tuple[tuple[int, ...], np.dtype]
    factor: int


class CellType:
    """The batch signature of a cell's calls.

    Policies use the name, which is that of the exported type. `nested` is the structure of a call's
    results, with the number of an output in place of each. `fills` tells whether an empty ragged
    argument gets a value of zeros. `scheduler` is the bundle's.

    A type of `whole` values has one row for each call, whatever the rows of its arguments, and runs
    call by call. A scheduler sees types of one `family` as one type: they differ in shapes only.
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
        whole: bool = False,
        family: Any = None,
    ):
        self.stable_name, self.arguments, self.outputs = name, list(arguments), list(outputs)
        self.nested, self.program, self.fills, self.scheduler = nested, program, fills, scheduler
        self.counted = [argument for argument in arguments if argument.kind != 'rows']
        self.of_many = len(self.counted)
        self.is_ragged = any(argument.kind == 'ragged' for argument in arguments)
        self.whole, self.number = whole, next(_serials)
        self.serial = self.number  # schedulers see types in this order
        if family is not None:
            self.serial = _families.setdefault(family, self.number)
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
                TYPES.append(self.number)
                SUMMARIES.extend((self.serial, rows, len(stores), self.of_many, 0, 0))
                OUTPUT_ROWS.extend([store.rows for store in stores])
            return form

    def run(self, inputs: Any, outs: Any, segments: Any = None, known: Any = None) -> None:
        """Compute a batch: see `CellProgram.run`."""
        if not self.whole:
            self.program.run(inputs, outs, segments, known)
            return
        for call in range(len(outs[0]) // self.outputs[0].factor):
            self.program.run(_parts(inputs, self.arguments, call), _parts(outs, self.outputs, call))


def _parts(arrays: Sequence[np.ndarray], kinds: Sequence[Any], call: int) -> list[np.ndarray]:
    """Return what one call has of the arrays of a batch."""
    return [array[call * each.factor : (call + 1) * each.factor]
            for array, each in zip(arrays, kinds)]  # fmt: skip


def zeros_of(arena: tuple[tuple[int, ...], np.dtype], rows: int) -> np.ndarray:
    """Return rows of zeros of a shape and dtype."""
    row_shape, dtype = arena
    return np.zeros((rows, *row_shape), dtype)


_operators: dict[tuple, CellType] = {}  # which all bundles share


def concat_form(store: Store, rows: int) -> Form:
    """Return the form of values that are `rows` rows of others, one after the other."""
    key = ('concat', store.arena)
    if key not in _operators:
        output = Output(store.arena, 1)
        made = CellType(f'concat[{_shown([store])}]', [Argument('flat', store.arena)], [output], 0,
                        _program_of('_copy', {}, 1))  # fmt: skip
        _operators.setdefault(key, made)
    return _operators[key].form(rows)


_calls: dict[tuple, 'AnyCall'] = {}  # of operators


def operator_form(op: str, stores: Sequence[Store], attrs: dict[str, Any]) -> Form:
    """Return the form of an operator's calls."""
    named = {name: tuple(each) if isinstance(each, list) else each for name, each in attrs.items()}
    key = (op, len(stores), *named.items())
    if key not in _calls:
        if op not in OPERATORS:
            raise RecordError(f'there is no operator {op}')
        try:
            program = _program_of(op, named, len(stores))
        except (NotInNumPy, KeyError, ValueError) as error:
            raise RecordError(f'{op} {attrs} cannot be computed: {error}') from None
        several = len(program.heads)
        nested: Any = 0 if several == 1 else list(range(several))
        _calls.setdefault(key, AnyCall(op, program, nested, family=(op, len(stores))))
    return _calls[key].form(stores)


def _program_of(op: str, attrs: dict[str, Any], count: int) -> CellProgram:
    nodes: list[dict[str, Any]] = [{'name': f'edb_input{place}'} for place in range(count)]
    in_manifest: Any = {key: list(each) if isinstance(each, tuple) else each
                   for key, each in attrs.items()}  # fmt: skip
    inputs = [[place, 0] for place in range(count)]
    nodes.append({'op': op, 'attrs': in_manifest, 'inputs': inputs})
    outputs = in_manifest['num_outputs'] if op == 'SliceChannel' else 1
    return CellProgram(nodes, [(count, place) for place in range(outputs)], {})


class AnyCall:
    """Calls of a program on values of any shapes: an operator, or a cell.

    What calls of some shapes compute is tried. If that is one thing for each row, calls of any
    numbers of rows are of one type. Else a type has calls of the same shapes, which run one by one.
    `may_batch` tells whether the first can be.
    """

    def __init__(
        self,
        name: str,
        program: CellProgram,
        nested: Any,
        may_batch: bool = True,
        scheduler: Any = None,
        family: Any = None,
    ):
        self._name, self._program, self._nested = name, program, nested
        self._may_batch, self._scheduler, self._family = may_batch, scheduler, family or object()
        self._forms: dict[tuple[Store, ...], Form] = {}
        self._types: dict[Any, CellType] = {}

    def form(self, stores: Sequence[Store]) -> Form:
        """Return the form of calls with arguments like these."""
        key = tuple(stores)
        form = self._forms.get(key)
        if form is None:
            form = self._forms[key] = self._new_form(key)
        return form

    def _new_form(self, stores: tuple[Store, ...]) -> Form:
        rows, random = {store.rows for store in stores}, np.random.default_rng(0)
        given = [random.random((2 * each.rows, *each.row_shape)).astype(each.dtype)
                 for each in stores]  # fmt: skip
        shown = f'{self._name}[{_shown(stores)}]'
        try:
            results = self._results([each[: len(each) // 2] for each in given])
        except Exception as error:
            raise RecordError(f'{shown} cannot be computed: {error}') from None
        if not all(map(len, results)):
            raise RecordError(f'{shown} has a result without rows')
        whole = not (self._may_batch and len(rows) == 1 and self._is_by_row(given))
        count = 1 if whole else rows.pop()
        arguments = [Argument('rows', each.arena, each.rows if whole else 1) for each in stores]
        outputs = [Output((each.shape[1:], each.dtype), len(each) // count) for each in results]
        key = whole, tuple(arguments), tuple(outputs)
        if key not in self._types:
            ranks = tuple([len(each.row_shape) for each in stores])
            varies = whole or any([rank > 1 for rank in ranks])
            self._types[key] = CellType(
                shown, arguments, outputs, self._nested, self._program, False, self._scheduler,
                whole, (self._family, ranks) if varies else None,
            )  # fmt: skip
        return self._types[key].form(count)

    def _results(self, given: Sequence[np.ndarray]) -> list[np.ndarray]:
        with np.errstate(all='ignore'):
            return list(map(np.atleast_1d, self._program.results(given)))

    def _is_by_row(self, given: Sequence[np.ndarray]) -> bool:
        """Return whether two times as many rows come to what the halves come to, in both orders:
        rows that are sorted already would tell nothing."""
        count = len(given[0]) // 2
        for arrays in (given, [each[::-1] for each in given]):
            halves = [each[:count] for each in arrays], [each[count:] for each in arrays]
            try:
                all_, one, other = map(self._results, (arrays, *halves))
            except Exception:  # as if a shape is an attribute
                return False
            for found, first, second in zip(all_, one, other):
                if len(first) % count or found.shape != (2 * len(first), *first.shape[1:]):
                    return False
                both = np.concatenate([first, second])
                if not np.allclose(found, both, 1e-3, 1e-5, equal_nan=True):
                    return False
        return True


def _shown(stores: Sequence[Store]) -> str:
    return ', '.join('x'.join(map(str, each.row_shape)) or '1' for each in stores)


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
