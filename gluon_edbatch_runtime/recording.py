"""Record one scope's calls, and evaluate them, from columns of numbers to arrays."""

import threading
from collections.abc import Sequence
from typing import Any, Optional

import numpy as np

from gluon_edbatch_core.bundle.numpy_operators import OPERATORS
from gluon_edbatch_core.errors import RecordError, StaleValueError
from gluon_edbatch_core.graph.collect import (
    LEFT_OUT,
    Calls,
    FormTable,
    Pending,
    ancestors,
    as_sums,
    form_table,
    to_graph,
)
from gluon_edbatch_core.graph.edges import kinds_of
from gluon_edbatch_core.graph.graph import Graph
from gluon_edbatch_core.plan.layout import make_plan
from gluon_edbatch_core.plan.plan import Plan
from gluon_edbatch_core.plan.split_batches import hoist
from gluon_edbatch_core.recorded_columns import Locations
from gluon_edbatch_core.schedule import FSMScheduler, Schedule, Scheduler

from .arrays import Array
from .calls import (
    CURRENT,
    NUMBER,
    CallLog,
    Cell,
    Form,
    Ragged,
    Unknown,
    Value,
    new_value,
    recorded,
    store_of,
)
from .evaluation import Evaluation, by_type, capabilities, check_lengths
from .forms import (
    FORMS,
    OUTPUT_ROWS,
    SUMMARIES,
    TYPES,
    ArenaKey,
    CellType,
    form_of_sum,
    number_form,
    operator_form,
    stack_form,
    zeros_of,
)


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
        self.results: list[dict[ArenaKey, np.ndarray]] = []  # of each evaluation
        self._left_out = False  # whether partial sums were, which nobody read
        self._fixed: dict[int, tuple[Array, Value]] = {}  # by id
        self._lock = threading.RLock()

    number_arena = NUMBER.arena  # for plan/layout.py

    def zeros(self, form: Form, place: int) -> int:
        """Return the number of a value of zeros for a ragged argument."""
        return self.small(zeros_of(form.type.counted[place].arena, form.rows)).number

    def array(self, given: Any) -> Value:
        """Return a value with a copy of the user's array, which has at least one axis; float64
        becomes float32."""
        array = np.array(given, np.float32 if given.dtype == np.float64 else None)
        store = store_of(array.shape[1:], array.dtype, len(array))
        self.arrays.append((store, array))
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
        return recorded(self, stack_form(store, len(numbers)), (ragged,))

    @staticmethod
    def operate(op: str, *values: Any, **attrs: Any) -> Any:
        """Record an operator of `numpy_operators` on values, or compute it: outside scopes, and of
        arrays. Raise RecordError if shapes do not fit."""
        return operator_calls(op, attrs)(*values)

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
            return self.arrays[-value.number // 2 - 1][1].copy()
        if not self.locations.known(value.number):
            self.evaluate(asked=value.number)
        row = self.locations.row.item(value.number)
        results = self.results[self.locations.evaluation.item(value.number)]
        return results[value.store.arena][row : row + value.store.rows].copy()

    def evaluate(self, wanted: Optional[Sequence[int]] = None, asked: Optional[int] = None) -> None:
        """Compute the values `wanted`, or all that wait, of which `asked` is read now."""
        if self.void:
            raise StaleValueError(
                'an exception left the scope of this value before it was computed'
            )
        with self._lock, np.errstate(over='ignore'):  # see `sigmoid`
            table = form_table(self)
            calls = waiting = self._pending.calls(self, table)
            known = self.locations.evaluation
            others = [] if asked is None else [asked]
            read = np.array(others if wanted is None else wanted, np.int64)
            as_written = self._left_out and self._restore(calls, read)
            if as_written:
                calls = waiting = self._pending.calls(self, table)
            edges = calls.edges(known)
            if wanted is not None:
                calls, edges = ancestors(calls, edges, read, known)
            if table.additions is not None and not as_written:
                calls, sums = as_sums(calls, table, waiting.args, read, form_of_sum)
                if sums is not None:
                    table, edges = form_table(self), calls.edges(known)
                    number = len(self.results)
                    self._left_out |= bool(self._pending.leave_out(sums, calls, number, known))
            if not len(calls):
                return
            kinds, forms = kinds_of(calls.forms, table.types)
            types = [FORMS[form].type for form in forms]
            graph = to_graph(kinds, edges, types)
            schedule = (self.scheduler or _scheduler_of(types)).schedule(graph)
            plan = self._planned(calls, table, schedule, len(types))
            evaluation = Evaluation(self, plan)
            self._pending.ran(calls)
            self.locations.evaluation[plan.values] = len(self.results)
            self.results.append(evaluation.results())
            self.evaluations.append((graph, schedule))

    def _restore(self, calls: Calls, read: np.ndarray) -> bool:
        """Let partial sums that were left out wait again if a call or a reader needs one; return
        whether one does."""
        known = self.locations.evaluation
        needed = any([(known[values[values >= 0]] == LEFT_OUT).any()
                      for values in (calls.args, read)])  # fmt: skip
        if needed:
            self._pending.restore(known)
            self._left_out = False
        return needed

    def _planned(self, calls: Calls, table: FormTable, schedule: Schedule, families: int) -> Plan:
        kinds, forms = kinds_of(calls.forms, np.array(TYPES[: len(table.types)]))
        types = [FORMS[form].type for form in forms]
        if len(types) > families:
            schedule = by_type(schedule, kinds)
        check_lengths(calls, kinds, types)
        own = list(map(capabilities, types))
        plan = make_plan(self, calls, table, types, own, kinds, schedule)
        return hoist(plan, own, self.given_numbers, lambda kind, known, _: kind.split(known))

    def rows_lying(self, evaluation: int, key: ArenaKey) -> int:
        """Return how many rows of a kind an evaluation has."""
        return len(self.results[evaluation][key])

    def given_numbers(self, first: int, last: int) -> np.ndarray:
        """Return a range of the user's numbers."""
        return _exact(self.numbers[first:last]).astype(np.float32)


class OperatorCalls(Cell):
    """Calls of an operator with some attributes."""

    def __init__(self, op: str, attrs: dict[str, Any]):
        super().__init__(op, 0)
        self._attrs = attrs

    def resolve(self, log: Recording, args: Sequence[Any]) -> Form:
        """Return the form of a new kind of call."""
        if any([isinstance(arg, (int, float, Ragged, list, tuple)) or arg is None for arg in args]):
            raise Unknown
        return operator_form(self.name, [log.value(arg).store for arg in args], self._attrs)

    def call_unknown(self, log: Recording, args: Sequence[Any]) -> Any:
        """Record a call with arguments of other kinds, or compute one of arrays."""
        if not any([isinstance(arg, (Value, Ragged)) for arg in args]):
            return _of_arrays(self.name, args, self._attrs)
        own = tuple([log.value(arg) for arg in args])
        return recorded(log, self.resolve(log, own), own)

    def run_eagerly(self, args: Sequence[Any]) -> Any:
        """Compute a call outside of scopes."""
        result = self.call_unknown(Recording(), args)
        if isinstance(result, (list, tuple)):
            return [each.asnumpy() if isinstance(each, Value) else each for each in result]
        return result.asnumpy() if isinstance(result, Value) else result


_operators: dict[tuple, OperatorCalls] = {}


def operator_calls(op: str, attrs: dict[str, Any]) -> OperatorCalls:
    """Return the calls of an operator with these attributes."""
    given = {name: tuple(each) if isinstance(each, list) else each for name, each in attrs.items()}
    key = (op, *given.items())
    if key not in _operators:
        _operators[key] = OperatorCalls(op, given)
    return _operators[key]


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
