"""Types of calls and their forms, made from a bundle's manifest, for recording and running."""

import itertools
import threading
from array import array as Column
from collections.abc import Sequence
from functools import partial
from typing import Any, Callable, NamedTuple, Optional

import numpy as np

from gluon_edbatch_core.bundle.cell_program import CellProgram, NotInNumPy
from gluon_edbatch_core.bundle.numpy_operators import OPERATORS
from gluon_edbatch_core.errors import RecordError
from gluon_edbatch_core.plan.call_type import Argument, CallType, Kind, Split

from .calls import NUMBER, Form, Store, store_of
from .native_operators import NativeForm, native_operator

# All forms of the process, which recordings share, and what ``graph/collect.py`` reads of them.
FORMS: list[Form] = []
SUMMARIES, OUTPUT_ROWS = Column('q'), Column('q')
TYPES = Column('q')  # which type each form has; summaries have its family
_lock = threading.Lock()
_serials = itertools.count()
_families: dict[Any, int] = {}
ArenaKey = tuple[tuple[int, ...], np.dtype]  # row shape and dtype


class Output(NamedTuple):
    """A result of a type: row shape and dtype of its arena, and how many rows there are for each
    row of the call."""

    arena: ArenaKey
    rows: int


class CellType(CallType):
    """The batch signature of a cell's calls.

    Policies use the name, which is that of the exported type. `nested` is the structure of a call's
    results, with the number of an output in place of each. `fills` tells whether an empty ragged
    argument gets a value of zeros. `scheduler` is the bundle's.

    A type of `whole` values has one row for each call, whatever the rows of its arguments, and runs
    call by call. A scheduler sees types of one `family` as one type: they differ in shapes only.

    The native executor runs a type with a `native` form; `program` is NumPy's, None for a part of a
    type. `splits` has the parts of it, by what is known beforehand.
    """

    alone = random = is_taped = False
    masked, has_one_length = None, True

    def __init__(
        self,
        name: str,
        arguments: Sequence[Argument],
        outputs: Sequence[Output],
        nested: Any,
        program: Optional[CellProgram],
        fills: bool = False,
        scheduler: Any = None,
        whole: bool = False,
        family: Any = None,
        native: Optional[NativeForm] = None,
        splits: Sequence[Split] = (),
    ):
        self.stable_name, self.arguments, self.outputs = name, list(arguments), list(outputs)
        self.nested, self.program, self.fills, self.scheduler = nested, program, fills, scheduler
        self.counted = [argument for argument in arguments if argument.kind.counted]
        self.is_ragged = any(argument.kind is Kind.RAGGED for argument in arguments)
        self.factors = [output.rows for output in outputs]
        self.whole, self.number = whole, next(_serials)
        self.serial = self.number  # schedulers see types in this order
        if family is not None:
            self.serial = _families.setdefault(family, self.number)
        self.native, self._splits = native, list(splits)
        self.addition = 0  # a number that sums of one kind share: see `as_sums` of graph/collect.py
        self.item_size = outputs[0].arena[1].itemsize
        self.frames: dict[Any, Any] = {}  # see evaluation.py
        self._forms: dict[int, Form] = {}

    def split(self, known: frozenset[int]) -> Optional[Split]:
        """Return the parts of the type if the most of these arguments are known; else None."""
        found = [each for each in self._splits if known.issuperset(each.positions)]
        return max(found, key=lambda each: len(each.positions), default=None)

    def __repr__(self) -> str:
        return self.stable_name

    def form(self, rows: int) -> Form:
        """Return the form of calls with `rows` rows."""
        with _lock:
            form = self._forms.get(rows)
            if form is None:
                stores = [store_of(shape, dtype, rows * times)
                          for (shape, dtype), times in self.outputs]  # fmt: skip
                form = self._forms[rows] = Form(len(FORMS), self, rows, stores)
                FORMS.append(form)
                TYPES.append(self.number)
                addition = self.addition if rows == 1 else 0
                SUMMARIES.extend((self.serial, rows, len(stores), self.of_many, 0, addition))
                OUTPUT_ROWS.extend([store.rows for store in stores])
            return form

    def run(self, inputs: Any, outs: Any, segments: Any = None) -> None:
        """Compute a batch by NumPy: see `CellProgram.run`."""
        assert self.program is not None  # parts of types run natively
        if not self.whole:
            self.program.run(inputs, outs, segments)
            return
        for call in range(len(outs[0]) // self.outputs[0].rows):
            self.program.run(_parts(inputs, self.arguments, call), _parts(outs, self.outputs, call))


def _parts(arrays: Sequence[np.ndarray], kinds: Sequence[Any], call: int) -> list[np.ndarray]:
    """Return what one call has of the arrays of a batch."""
    return [array[call * each.rows : (call + 1) * each.rows]
            for array, each in zip(arrays, kinds)]  # fmt: skip


def zeros_of(arena: ArenaKey, rows: int) -> np.ndarray:
    """Return rows of zeros of a shape and dtype."""
    row_shape, dtype = arena
    return np.zeros((rows, *row_shape), dtype)


_operators: dict[tuple, CellType] = {}  # which all bundles share


def concat_form(store: Store, rows: int) -> Form:
    """Return the form of values that are `rows` rows of others, one after the other."""
    key = ('concat', store.arena)
    if key not in _operators:
        given, made_of = [Argument(store.arena, Kind.FLAT, False)], [Output(store.arena, 1)]
        made = CellType(f'concat[{_shown([store])}]', given, made_of, 0,
                        _program_of('_copy', {}, 1),
                        native=native_operator('_copy', {}, given, made_of))  # fmt: skip
        _operators.setdefault(key, made)
    return _operators[key].form(rows)


def stack_form(store: Store, count: int) -> Form:
    """Return the form of one value that has so many values of one row along axis 1."""
    key = ('stack', store.arena, count)
    if key not in _operators:
        row_shape, dtype = store.arena
        given = [Argument(store.arena, Kind.FLAT, False, count)]
        made_of = [Output(((count, *row_shape), dtype), 1)]
        made = CellType(
            f'stack[{count}x{_shown([store])}]', given, made_of, 0,
            _program_of('Reshape', {'shape': (-1, count, *row_shape)}, 1),
            family=('stack', len(row_shape)), native=native_operator('_copy', {}, given, made_of),
        )  # fmt: skip
        _operators.setdefault(key, made)
    return _operators[key].form(1)


_ADDITIONS = 'broadcast_add', 'elemwise_add'


def _sum_type(arena: ArenaKey) -> CellType:
    """Return the type of sums of any number of values of one row."""
    key = ('sum', arena)
    if key not in _operators:
        given, made_of = [Argument(arena, Kind.RAGGED, False)], [Output(arena, 1)]
        attrs = {'axis': 1}
        made = CellType(f'sum[{_shown([store_of(*arena, 1)])}]', given, made_of, 0,
                        _program_of('sum', attrs, 1, {0}),
                        native=native_operator('sum', attrs, given, made_of))  # fmt: skip
        _operators.setdefault(key, made)
    return _operators[key]


def form_of_sum(form: int) -> int:
    """Return the form that adds any number of values as additions of form `form` add two."""
    return _sum_type(FORMS[form].type.outputs[0].arena).form(1).index


_calls: dict[tuple, 'AnyCall'] = {}  # of operators


def operator_form(op: str, stores: Sequence[Store], attrs: dict[str, Any]) -> Form:
    """Return the form of an operator's calls."""
    key = (op, len(stores), *attrs.items())
    if key not in _calls:
        if op not in OPERATORS:
            raise RecordError(f'there is no operator {op}')
        try:
            program = _program_of(op, attrs, len(stores))
        except (NotInNumPy, KeyError, ValueError) as error:
            raise RecordError(f'{op} {attrs} cannot be computed: {error}') from None
        several = len(program.heads)
        nested: Any = 0 if several == 1 else list(range(several))
        native = partial(native_operator, op, attrs)
        made = AnyCall(op, program, nested, family=(op, len(stores)), native=native)
        _calls.setdefault(key, made)
    return _calls[key].form(stores)


def _program_of(
    op: str,
    attrs: dict[str, Any],
    count: int,
    ragged: set[int] = frozenset(),  # type: ignore
) -> CellProgram:
    nodes: list[dict[str, Any]] = [{'name': f'edb_input{place}'} for place in range(count)]
    in_manifest: Any = {key: list(each) if isinstance(each, tuple) else each
                   for key, each in attrs.items()}  # fmt: skip
    inputs = [[place, 0] for place in range(count)]
    nodes.append({'op': op, 'attrs': in_manifest, 'inputs': inputs})
    outputs = in_manifest['num_outputs'] if op == 'SliceChannel' else 1
    return CellProgram(nodes, [(count, place) for place in range(outputs)], {}, ragged)


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
        native: Optional[Callable[..., Optional[NativeForm]]] = None,
    ):
        self._name, self._program, self._nested, self._native = name, program, nested, native
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
        arguments = [
            Argument(each.arena, Kind.ROWS, False, each.rows if whole else 1) for each in stores
        ]
        outputs = [Output((each.shape[1:], each.dtype), len(each) // count) for each in results]
        key = whole, tuple(arguments), tuple(outputs)
        if key not in self._types:
            adds = self._name in _ADDITIONS and not whole
            ranks = tuple([len(each.row_shape) for each in stores])
            varies = whole or any([rank > 1 for rank in ranks])
            make = None if whole else self._native
            self._types[key] = CellType(
                shown, arguments, outputs, self._nested, self._program, False, self._scheduler,
                whole, (self._family, ranks) if varies else None,
                make and make(arguments, outputs),
            )  # fmt: skip
            if adds and {each.arena for each in arguments} == {outputs[0].arena}:
                self._types[key].addition = 2 * _sum_type(outputs[0].arena).number
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
        arguments = [Argument(each.arena, Kind.ROWS, False) for each in (store, NUMBER)]
        program = CellProgram(nodes, [(3, 0)], {})
        new = CellType(f'{op} with a number', arguments, [Output(store.arena, 1)], 0, program)
        made = _operators.setdefault(key, new)
    return made.form(1)
