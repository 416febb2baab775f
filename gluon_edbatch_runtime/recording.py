"""Record one scope's calls, and evaluate them, from columns of numbers to arrays."""

import itertools
import threading
from collections.abc import Sequence
from typing import Any, Optional

import numpy as np

from gluon_edbatch_core.bundle.numpy_operators import OPERATORS
from gluon_edbatch_core.bundle.numpy_steps import Segments
from gluon_edbatch_core.errors import BatchError, RecordError, StaleValueError
from gluon_edbatch_core.graph.collect import (
    Calls,
    FormTable,
    Pending,
    ancestors,
    form_table,
    to_graph,
)
from gluon_edbatch_core.graph.edges import kinds_of
from gluon_edbatch_core.graph.graph import Graph, expand
from gluon_edbatch_core.recorded_columns import Locations
from gluon_edbatch_core.schedule import FSMScheduler, Schedule, Scheduler

from .arrays import Array
from .calls import CURRENT, NUMBER, CallLog, Form, Ragged, Value, new_value, recorded, store_of
from .forms import (
    FORMS,
    OUTPUT_ROWS,
    SUMMARIES,
    TYPES,
    CellType,
    concat_form,
    number_form,
    operator_form,
    zeros_of,
)
from .layout import Group, Layout, Read, by_length, by_type
from .projections import project, run_distinct


class Arena:
    """All rows of one shape and dtype: rows are given out first, and get memory later."""

    def __init__(self, row_shape: tuple[int, ...], dtype: np.dtype):
        self.rows = 0
        self.memory = np.empty((0, *row_shape), dtype)

    def add(self, rows: int) -> int:
        """Give out the next rows; return the first."""
        begin, self.rows = self.rows, self.rows + rows
        return begin

    def allocate(self) -> None:
        """Allocate memory for all rows; earlier contents are copied."""
        if len(self.memory) < self.rows:
            before = self.memory
            self.memory = np.empty((self.rows, *before.shape[1:]), before.dtype)
            self.memory[: len(before)] = before


class Arenas(dict[tuple, Arena]):
    """Arenas by row shape and dtype, made at first use."""

    def __missing__(self, key: tuple) -> Arena:
        self[key] = Arena(*key)
        return self[key]


class Recording(CallLog):
    """The calls of one scope, and where their results are. The default scheduler is that of the
    bundle whose cells are called; `void` tells whether an exception left the scope."""

    def __init__(self, scheduler: Optional[Scheduler] = None):
        super().__init__()
        self.scheduler = scheduler
        self.evaluations: list[tuple[Graph, Schedule]] = []
        self.void = False
        self.form_summaries, self.output_rows = SUMMARIES, OUTPUT_ROWS  # for graph/collect.py
        self.locations, self._pending = Locations(), Pending()
        self._arenas = Arenas()
        self._number_rows = np.zeros(0, np.int64)  # those of the user that have rows already
        self._array_rows: list[int] = []
        self._filled = 0, 0  # numbers and arrays whose rows hold them
        self._zeros: dict[tuple, int] = {}
        self._fixed: dict[int, tuple[Array, Value]] = {}  # by id
        self._lock = threading.RLock()

    def zeros(self, form: Form, place: int) -> int:
        """Return the number of a value of zeros for a ragged argument."""
        arena = form.type.counted[place].arena
        if arena not in self._zeros:
            self._zeros[arena] = self.array(zeros_of(arena, form.rows)).number
        return self._zeros[arena]

    def array(self, given: Any) -> Value:
        """Return a value with a copy of the user's array, which has at least one axis; float64
        becomes float32."""
        array = np.array(given, np.float32 if given.dtype == np.float64 else None)
        self.arrays.append(array)
        store = store_of(array.shape[1:], array.dtype, len(array))
        return new_value(self, store, -2 * len(self.arrays))

    def value(self, given: Any) -> Value:
        """Return an argument as a value of this recording: arrays and others are copied."""
        if isinstance(given, Value):
            return given if given.log is self else self.array(given.asnumpy())
        if isinstance(given, Ragged):
            return self.stacked(given)
        if isinstance(given, Array) and given.fixed:
            if id(given) not in self._fixed:
                self._fixed[id(given)] = given, self.array(given)
            return self._fixed[id(given)][1]
        array = np.asarray(given)
        if not array.ndim:
            raise RecordError(f'an operator of values takes no numbers, as {given!r}')
        return self.array(array)

    def stacked(self, ragged: Ragged) -> Value:
        """Return ragged values as one value with their number as axis 1."""
        store, numbers = ragged.store, ragged.numbers
        if store is None:
            raise RecordError('ragged() of no values needs their shape')
        if ragged.log is not self:
            return self.array(ragged.log.stacked(ragged).asnumpy())
        if not numbers:
            return self.array(np.zeros((store.rows, 0, *store.row_shape), store.dtype))
        if store.rows > 1:
            values = [new_value(self, store, number) for number in numbers]
            return recorded(self, operator_form('stack', [store] * len(values), {'axis': 1}),
                            tuple(values))  # fmt: skip
        rows = recorded(self, concat_form(store, len(numbers)), (ragged,))
        shape = (1, len(numbers), *store.row_shape)
        return recorded(self, operator_form('Reshape', [rows.store], {'shape': shape}), (rows,))

    @staticmethod
    def operate(op: str, *values: Any, **attrs: Any) -> Any:
        """Record an operator of `numpy_operators` on values, or compute it: outside scopes, and of
        arrays. Raise RecordError if shapes do not fit."""
        if not any([isinstance(value, (Value, Ragged)) for value in values]):
            return _of_arrays(op, values, attrs)
        scope = CURRENT.get()
        log = Recording() if scope is None else scope
        own = tuple([log.value(value) for value in values])
        result = recorded(log, operator_form(op, [value.store for value in own], attrs), own)
        if scope is not None:
            return result
        outs = log.run_alone()
        return outs[0] if isinstance(result, Value) else outs

    @staticmethod
    def position(value: Value, axis: int, place: int) -> Value:
        """Record what is at a position of an axis. The position is an argument, so that calls with
        any are of one type."""
        size = value.shape[axis]
        if not -size <= place < size:
            raise IndexError(f'there are {size} positions, and none is {place}')
        form = operator_form('at', [value.store, NUMBER], {'axis': axis})
        return recorded(value.log, form, (value, place % size))

    @classmethod
    def with_number(cls, op: str, of_number: str, value: Any, other: Any) -> Any:
        """Record an operator of two values; `of_number` is its name if one is a number."""
        turned = of_number in _TURNED
        if isinstance(other, (int, float, np.number)):
            scope = CURRENT.get()
            if (
                scope is not None
                and isinstance(value, Value)
                and value.log is scope
                and value.store.rows == 1
                and (value.store.dtype == np.float32)
            ):
                form = number_form(f'broadcast_{op}', value.store, turned)
                return recorded(scope, form, (value, float(other)))
            return cls.operate(f'_{of_number}_scalar', value, scalar=float(other))
        if not isinstance(other, (Value, Ragged, np.ndarray)):
            raise RecordError(f'{op} of a value and {other!r}, which is no number and no value')
        return cls.operate(f'broadcast_{op}', *((other, value) if turned else (value, other)))

    def read(self, value: Value) -> np.ndarray:
        """Return the numbers of a value; run all that waits if they are not computed."""
        if value.number < 0:
            return self.arrays[-value.number // 2 - 1].copy()
        if not self.locations.known(value.number):
            self.evaluate()
        row = int(self.locations.row[value.number])
        return self._arenas[value.store.arena].memory[row : row + value.store.rows].copy()

    def evaluate(self, wanted: Optional[Sequence[int]] = None) -> None:
        """Compute the values `wanted`, or all that wait."""
        if self.void:
            raise StaleValueError(
                'an exception left the scope of this value before it was computed'
            )
        with self._lock, np.errstate(over='ignore'):  # see `sigmoid`
            table = form_table(self)
            calls = self._pending.calls(self, table)
            known = self.locations.evaluation
            edges = calls.edges(known)
            if wanted is not None:
                calls, edges = ancestors(calls, edges, np.array(wanted, np.int64), known)
            if not len(calls):
                return
            kinds, forms = kinds_of(calls.forms, table.types)
            types = [FORMS[form].type for form in forms]
            graph = to_graph(kinds, edges, types)
            schedule = (self.scheduler or _scheduler_of(types)).schedule(graph)
            order, bounds = schedule.order, schedule.bounds
            kinds, forms = kinds_of(calls.forms, np.array(TYPES[: len(table.types)]))
            families, types = len(types), [FORMS[form].type for form in forms]
            if len(types) > families:
                order, bounds = by_type(order, bounds, kinds)
            self._run(calls, table, kinds, types, order, bounds)
            self._pending.ran(calls)
            self.evaluations.append((graph, schedule))

    def run_alone(self) -> list[np.ndarray]:
        """Return the results of the only call, ten times as fast as by graph and schedule."""
        form = FORMS[self.node_forms[0]]
        numbers, lengths = self.node_args.since(0).tolist(), self.node_lengths.since(0).tolist()
        arguments = form.type.arguments
        later = len(arguments) - form.type.of_many  # where the values of ragged arguments begin
        singles = _exact(self.numbers or [0]).astype(np.float32)[:, None]
        given = [
            singles[-number // 2] if number % 2 else self.arrays[-number // 2 - 1]
            for number in numbers
        ]
        inputs, ragged, place = [], None, 0
        for argument in arguments:
            if argument.kind == 'rows':
                inputs.append(given[place])
                place += 1
                continue
            count = lengths.pop(0)
            none = zeros_of(argument.arena, 0)
            inputs.append(np.concatenate([none, *given[later : later + count]]))
            later += count
            if argument.kind == 'ragged':
                if ragged not in (None, count):
                    raise RecordError(
                        f'{form.type} got ragged arguments of different lengths in one call'
                    )
                ragged = count
        outs = [np.empty((store.rows, *store.row_shape), store.dtype) for store in form.stores]
        segments = None if ragged is None else Segments(form.rows, [1] * ragged)
        try:
            with np.errstate(over='ignore'):  # see `sigmoid`
                form.type.run(inputs, outs, segments)
        except Exception as error:
            raise _failed(form.type, error) from error
        return outs

    def _run(
        self,
        calls: Calls,
        table: FormTable,
        kinds: np.ndarray,
        types: list[CellType],
        order: np.ndarray,
        bounds: np.ndarray,
    ) -> None:
        order = by_length(calls, order, bounds, kinds, types)
        self._place_given()
        row_of, rows = self._with_given()
        layout = Layout(calls, table, order, bounds, kinds, types, self._arenas)
        groups = layout.groups(row_of, rows)
        for arena in self._arenas.values():
            arena.allocate()
        self._fill_given()
        project(groups, layout, row_of, self._arenas[NUMBER.arena].memory, calls, kinds)
        batches = [itertools.count() for _ in groups]
        for kind in layout.kinds:
            group = groups[kind]
            try:
                self._run_batch(group, next(batches[kind]))
            except Exception as error:
                raise _failed(group.type, error) from error
        values = len(self.locations.row)
        self.locations.row[:] = row_of[:values]
        outputs = expand(calls.outputs, table.outputs[calls.forms])
        self.locations.evaluation[outputs] = len(self.evaluations)

    def _run_batch(self, group: Group, number: int) -> None:
        segments: Optional[Segments] = None if group.segments is None else group.segments[number]
        arenas = self._arenas
        outs = [
            arenas[arena].memory[found[number][0] : found[number][1]]
            for arena, found in group.writes
        ]
        if group.known and run_distinct(group, number, outs):
            return
        program, known = group.type.program, group.known
        inputs = [
            None
            if position in known and program.projections[position].suffices
            else _rows(arenas[read.arena].memory, read, number)
            for position, read in enumerate(group.reads)
        ]
        products = {position: product.of(number) for position, product in known.items()}
        group.type.run(inputs, outs, segments, products)

    # --- what the user gave ----------------------------------------------------------------------

    def _place_given(self) -> None:
        """Give rows to numbers and arrays that have none yet."""
        more = len(self.numbers) - len(self._number_rows)
        if more:
            begin = self._arenas[NUMBER.arena].add(more)
            self._number_rows = np.concatenate([self._number_rows, begin + np.arange(more)])
        for array in self.arrays[len(self._array_rows) :]:
            self._array_rows.append(self._arenas[array.shape[1:], array.dtype].add(len(array)))

    def _fill_given(self) -> None:
        numbers, arrays = self._filled
        given = self.numbers[numbers:]
        if given:
            self._arenas[NUMBER.arena].memory[self._number_rows[numbers:]] = _exact(given)
        for array, row in zip(self.arrays[arrays:], self._array_rows[arrays:]):
            self._arenas[array.shape[1:], array.dtype].memory[row : row + len(array)] = array
        self._filled = len(self.numbers), len(self.arrays)

    def _with_given(self) -> tuple[np.ndarray, np.ndarray]:
        """Return first rows and numbers of rows by value; those of the user count from the end."""
        pairs = max(len(self._number_rows), len(self._array_rows))
        given = np.zeros((2, pairs, 2), np.int64)
        given[0, : len(self._number_rows), 1] = self._number_rows
        given[1, : len(self._number_rows), 1] = 1
        given[0, : len(self._array_rows), 0] = self._array_rows
        given[1, : len(self._array_rows), 0] = list(map(len, self.arrays))
        first, rows = given[:, ::-1].reshape(2, -1)
        return (
            np.concatenate([self.locations.row, first]),
            np.concatenate([self.locations.rows, rows]),
        )


_TURNED = 'rminus', 'rdiv', 'rpower', 'rmod'


def _of_arrays(op: str, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """Return what an operator makes of arrays."""
    given = [np.asarray(each) for each in arrays]
    given = [each.astype(np.float32) if each.dtype == np.float64 else each for each in given]
    try:
        with np.errstate(all='ignore'):
            found = OPERATORS[op].make(attrs)(*given)
    except (KeyError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        raise RecordError(f'{op} {attrs or ""} cannot be computed: {error}') from None
    made = [np.array(each, ndmin=1).view(Array)
            for each in (found if isinstance(found, list) else [found])]  # fmt: skip
    return made if isinstance(found, list) else made[0]


def _failed(kind: CellType, error: Exception) -> BatchError:
    return BatchError(f'a batch of calls of {kind} failed: {type(error).__name__}: {error}')


def _rows(memory: np.ndarray, read: Read, number: int) -> np.ndarray:
    begin, end = read.bounds[number], read.bounds[number + 1]
    if read.slices[number]:
        row = int(read.rows[begin]) if end > begin else 0
        return memory[row : row + end - begin]
    return memory.take(read.rows[begin:end], axis=0)


_EXACT = 2**24  # up to it whole numbers are exact in single precision
_UNTAUGHT = FSMScheduler(learn=False)


def _scheduler_of(types: Sequence[CellType]) -> Scheduler:
    """Return the scheduler of the one bundle that these types come from."""
    found = {kind.scheduler for kind in types if kind.scheduler is not None}
    return found.pop() if len(found) == 1 else _UNTAUGHT


def _exact(numbers: list[float]) -> np.ndarray:
    """Return the user's numbers in single precision; raise for an integer that is not exact."""
    found = np.array(numbers, np.float64)
    if np.abs(found).max() > _EXACT:
        wrong = [each for each in numbers if type(each) is int and abs(each) > _EXACT]
        if wrong:
            raise RecordError(f'{wrong[0]} is not exact in single precision: give it as an array')
    return found
