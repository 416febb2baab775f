"""Run one evaluation: graph, schedule, plan, execute, backward."""

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Callable, Optional, Union

import numpy as np
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import BatchError, EdbError
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
from gluon_edbatch_core.plan.padded_batches import without_much_padding
from gluon_edbatch_core.plan.plan import Plan
from gluon_edbatch_core.plan.split_batches import hoist, look_ups_apart
from gluon_edbatch_core.schedule import Schedule, Scheduler

from .. import debug
from ..mx.modes import modes
from ..mx.run_ahead import under_way, wait_for_engine
from ..record.hooks import suspended
from ..record.recording import Recording
from ..record.scopes import place
from ..record.sites import Site, site_at
from ..record.stores import Arena, EagerArena, forgotten
from ..subgraph.node_type import NodeType
from ..subgraph.spec import ArenaKey
from ..subgraph.split import hoisted, looked_up
from .backward import BackwardPass, origins
from .clock import Clock, span
from .counts import EvaluationCounts, Work, eager_counts
from .eager import EagerCalls, that_read_no_batch
from .executable import executable, is_faster_eagerly
from .execution_state import ExecutionState
from .steps import capabilities_of, is_run, steps
from .verify import needs_verification, verify

Results = dict[ArenaKey, Union[Arena, EagerArena]]
_MOST_CALLS = 1 << 17  # of one part of an evaluation; their arenas are some 100 MB


class Evaluator:
    """Evaluate the calls of one recording, all or some, any number of times.

    The recording owns the evaluator, which does not refer to it. So both are freed with the last of
    the user's values.
    """

    def __init__(self, scheduler: Scheduler, timing: bool = False, keeps_counts: bool = True):
        self.scheduler = scheduler
        self._timing = timing
        self.pending = Pending()
        # One entry for each evaluation, if they are kept: with graph, schedule and plan.
        self.counts: deque[EvaluationCounts] = deque(maxlen=None if keeps_counts else 0)
        self.forced: list[Site] = []  # the user's lines that needed a value while recording,
        self.reasons: dict[Site, str] = {}  # why, for those that call something that runs eagerly,
        self.rounds: set[Site] = set()  # and those that let samples wait, by `run_concurrently`
        self.inside_s = 0.0  # seconds that these evaluations took
        self._forgotten = 0  # the results of the first so many evaluations are not kept,
        self.forgotten_calls = 0  # which had so many calls
        self.forgotten_sums = 0  # of which so many were never run: nobody read their partial sums
        self._lock = threading.RLock()

    def run(
        self,
        recording: Recording,
        wanted: Optional[np.ndarray] = None,
        asked: Optional[int] = None,
    ) -> None:
        """Compute the values `wanted`, or all that is recorded; see `Recording.flush`."""
        with self._lock:
            self._run(recording, wanted, asked)

    def _run(
        self, recording: Recording, wanted: Optional[np.ndarray], asked: Optional[int]
    ) -> None:
        started = time.perf_counter()
        asked_by = site_at(*place())
        if not recording.closed:
            self.forced.append(asked_by)
        # A slice of an array that a tape has read would be an output of that tape, and could not be
        # written to.
        with suspended(), modes(recording=False):
            table = form_table(recording)
            calls = waiting = self.pending.calls(recording, table)
            evaluation = recording.locations.evaluation
            read = np.array([] if asked is None else [asked], np.int64)
            read = read if wanted is None else wanted
            as_written = recording.left_out > 0 and self._restore(recording, calls, read)
            if as_written:
                calls = waiting = self.pending.calls(recording, table)
            edges = calls.edges(evaluation)
            if wanted is not None:
                calls, edges = ancestors(calls, edges, wanted, evaluation)
            sums = None
            if table.additions is not None and not as_written:
                calls, sums = as_sums(calls, table, waiting.args, read, recording.form_of_sum)
            if sums is not None:
                table, edges = form_table(recording), calls.edges(evaluation)
                recording.left_out += self.pending.leave_out(
                    sums, calls, len(recording.ran), evaluation
                )
            if self._forgotten:
                self._check_results(recording, calls)
            if len(calls):
                if not recording.is_over:  # else additions are left, which read no block
                    recording.check_blocks()
                types = _types(recording, calls, table)
                work = Work(calls, edges, table, *types, asked_by, started, sums)
                for part in _parts(recording, work):
                    self._run_part(recording, part)
                    if recording.closed and part is not work:
                        self._forget_what_was_read(recording, table)
        if recording.closed:
            recording.finish_if_done()
        else:
            self.inside_s += time.perf_counter() - started

    def _restore(self, recording: Recording, calls: Calls, read: np.ndarray) -> bool:
        """Schedule partial sums that were left out if a call reads one; return whether one does."""
        evaluation, args = recording.locations.evaluation, calls.args
        needed = any(
            [(evaluation[values[values >= 0]] == LEFT_OUT).any() for values in (args, read)]
        )
        if needed:
            self.pending.restore(evaluation)
            recording.left_out = self.forgotten_sums
        return needed

    def _run_part(self, recording: Recording, work: Work) -> None:
        """Run large calls eagerly, then batches, then calls that are always eager."""
        large = self._large_types(recording, work)
        eager = [kind.eager for kind in work.types]
        if not large and not any(eager):  # most often
            self._evaluate(recording, work)
            self.pending.ran(work.calls)
            return
        first = that_read_no_batch(recording, work.calls, work.edges, large)
        last = np.array(eager)[work.kinds]
        for chosen, run in (
            (first, self._run_eagerly),
            (~first & ~last, self._evaluate),
            (last, self._run_eagerly),
        ):
            if chosen.any():
                part = _part(recording, work, chosen)
                run(recording, part)
                self.pending.ran(part.calls)

    def _large_types(self, recording: Recording, work: Work) -> list[NodeType]:
        if self._timing or not (recording.options.at_once and is_ours(self.scheduler)):
            return []
        most = work.table.most_rows
        if not any([is_faster_eagerly(kind, 1, most) for kind in work.types]):  # most often
            return []
        calls = np.bincount(work.kinds).tolist()
        rows = np.bincount(work.kinds, work.table.rows[work.calls.forms]).astype(int).tolist()
        return [
            kind
            for kind, calls_of, rows_of in zip(work.types, calls, rows)
            if is_faster_eagerly(kind, calls_of, rows_of)
        ]

    def _run_eagerly(self, recording: Recording, work: Work) -> None:
        began = time.perf_counter()
        locations, count = recording.locations, len(work.calls)
        running = EagerCalls(recording, work.calls)
        clock = Clock(count) if self._timing else None
        for position in range(count):
            _run_call(running, position, work.calls, recording, clock)
        number = len(recording.ran)
        recording.results[number] = _publish(number, running.arenas, recording)
        recording.ran.append(work.calls.ids)
        locations.row[running.values] = running.rows
        locations.evaluation[running.values] = number
        self.counts.append(
            eager_counts(
                work,
                not recording.closed,
                began - work.started,
                time.perf_counter() - began,
                clock,
            )
        )

    def _forget_what_was_read(self, recording: Recording, table: FormTable) -> None:
        """Drop results except those that the user's values refer to, or that waiting calls read."""
        for number in np.flatnonzero(~self._read_later(recording, table)).tolist():
            recording.results.pop(number, None)

    def _read_later(self, recording: Recording, table: FormTable) -> np.ndarray:
        """Return which evaluations' results the waiting calls read."""
        read = self.pending.calls(recording, table).args
        numbers = [recording.locations.evaluation[read[read >= 0]]]
        left = self.pending.left_out()
        if recording.closed:
            numbers.append(recording.locations.evaluation[left.args[left.args >= 0]])
        read_later = np.zeros(len(recording.ran) + 1, bool)
        read_later[np.maximum(np.concatenate(numbers), -1)] = True  # -1 is the last
        return read_later[:-1]

    def forget(self, recording: Recording, evaluations: int) -> None:
        """Drop the results of the first `evaluations` evaluations that no waiting call reads.
        Reading such a value raises an error."""
        with self._lock:
            if evaluations > self._forgotten:
                read_later = self._read_later(recording, form_table(recording))
                numbers = range(self._forgotten, evaluations)
                gone = [number for number in numbers if not read_later[number]]
                recording.forget(gone)
                self.forgotten_calls += sum([len(recording.ran[number]) for number in gone])
                dropped = self.pending.forget(evaluations)
                self.forgotten_sums += dropped
                self.forgotten_calls += dropped
                self._forgotten = evaluations

    def _check_results(self, recording: Recording, calls: Calls) -> None:
        """Raise if a call reads a result that was forgotten."""
        read = calls.args[calls.args >= 0]
        numbers = recording.locations.evaluation[read]
        old = ((numbers >= 0) & (numbers < self._forgotten)) | (numbers == LEFT_OUT)
        for value, number in zip(read[old].tolist(), numbers[old].tolist()):
            if number not in recording.results:
                raise forgotten(recording.site_of_use(value))

    def kinds_left_out(self, recording: Recording) -> set[ArenaKey]:
        """Return the kinds of the partial sums that were left out."""
        forms = self.pending.forms_left_out()
        return {recording.forms[form].node_type.outputs[0].arena for form in forms}

    runs = staticmethod(is_run)

    def graph(self, recording: Recording) -> Graph:
        """Return the calls that wait, as a scheduler will see them."""
        with self._lock, suspended(), modes(recording=False):
            table = form_table(recording)
            calls = self.pending.calls(recording, table)
            nothing: np.ndarray = np.zeros(0, np.int64)
            if recording.left_out > 0 and self._restore(recording, calls, nothing):
                calls = self.pending.calls(recording, table)
            elif table.additions is not None:
                calls, _ = as_sums(calls, table, calls.args, nothing, recording.form_of_sum)
                table = form_table(recording)
            kinds, types = _types(recording, calls, table)
            return to_graph(kinds, calls.edges(recording.locations.evaluation), types)

    def _evaluate(self, recording: Recording, work: Work) -> None:
        locations = recording.locations
        calls, edges, _, kinds, types, asked_by, started, _ = work
        overheads = [capabilities_of(kind).overhead for kind in types]
        graph = to_graph(kinds, edges, types, overheads)
        recorded = time.perf_counter()
        schedule = self.scheduler.schedule(graph)
        if not is_ours(self.scheduler):
            fault = schedule.fault(graph)  # ours are tested for that
            if fault:
                raise BatchError(f'{self.scheduler!r} gave a wrong schedule: {fault}')
        schedule = _split(recording, work, schedule)
        scheduled = time.perf_counter()
        plan, is_cached = _planned(recording, work, schedule)
        if debug.LEVEL:
            debug.show(debug.SCHEDULES, self.scheduler.name, schedule.of_types(graph))
            debug.show(debug.PLANS, 'plan', plan)
        wait_for_engine()  # passes that are over by then need no waiting for
        BackwardPass.begin_evaluation()
        state = ExecutionState(recording, plan, calls, Clock(plan.size) if self._timing else None)
        for step in steps(plan):
            _run_step(state, step, calls, recording)
        state.finish()
        arenas = _arenas(state)
        if not state.is_over:
            under_way(_last_row(plan, arenas) if state.fence is None else state.fence)
        number = len(recording.ran)
        public: Results = {
            arena.key: rows for arena, rows in zip(plan.arenas, arenas) if arena.public
        }
        recording.results[number] = _publish(number, public, recording)
        recording.ran.append(calls.ids)
        locations.evaluation[plan.values] = number
        self.counts.append(
            EvaluationCounts(
                calls.ids,
                asked_by,
                not recording.closed,
                graph,
                schedule,
                plan,
                recorded - started,
                scheduled - recorded,
                time.perf_counter() - scheduled,
                state.clock,
                is_cached,
                executable(types[0]).plans,
                work.sums,
            )
        )


def is_ours(scheduler: Scheduler) -> bool:
    """Return whether a scheduler, and an inner one if there is any, is of this package."""
    inner = getattr(scheduler, 'scheduler', None)
    return type(scheduler).__module__.startswith('gluon_edbatch_core.') and (
        inner is None or is_ours(inner)
    )


def _types(recording, calls: Calls, table) -> tuple[np.ndarray, list[NodeType]]:
    """Return each call's index into the types that occur, and these types, by serial."""
    kinds, forms = kinds_of(calls.forms, table.types)
    return kinds, [recording.forms[form].node_type for form in forms]


def _parts(recording: Recording, work: Work) -> Iterator[Work]:
    """Yield the calls in parts, in recorded order. A part has so many calls that more would not
    make batches faster. Values between parts need less memory; with backward there is one part."""
    count = len(work.calls)
    parts = -(-count // _MOST_CALLS)
    if parts == 1 or work.table.taped[work.calls.forms].any():
        yield work
        return
    bounds = [count * number // parts for number in range(parts + 1)]
    for begin, end in zip(bounds, bounds[1:]):
        started = time.perf_counter() if begin else work.started
        part = _work_of(recording, work, work.calls.select(np.arange(begin, end)))
        yield part._replace(started=started)


def _part(recording: Recording, work: Work, kept: np.ndarray) -> Work:
    """Return the work of some of the calls, which may read results of earlier ones."""
    if kept.all():
        return work
    return _work_of(recording, work, work.calls.select(np.flatnonzero(kept)))


def _work_of(recording: Recording, work: Work, calls: Calls) -> Work:
    """Return the work of some of the calls."""
    edges = calls.edges(recording.locations.evaluation)
    kinds, types = _types(recording, calls, work.table)
    sums = None if work.sums is None else work.sums.among(calls.ids)
    return work._replace(calls=calls, edges=edges, kinds=kinds, types=types, sums=sums)


def _split(recording: Recording, work: Work, schedule: Schedule) -> Schedule:
    """Split batches of packed sentences that a backend would pad too much."""
    pads = [bool(kind.packed) and capabilities_of(kind).pads for kind in work.types]
    if not any(pads):
        return schedule
    forms = work.calls.forms
    length_of = np.array([form.length for form in recording.forms], np.int64)
    return without_much_padding(schedule, length_of[forms] * np.array(pads, bool)[work.kinds])


def _planned(recording: Recording, work: Work, schedule: Schedule) -> tuple[Plan, bool]:
    """Lay out the calls of a schedule, or return the plan that was made before, and whether it
    was."""
    plans = executable(work.types[0]).plans
    known = plans.find(recording, work.calls, work.table, schedule)
    if known is not None:
        return known, True
    capabilities = [capabilities_of(node_type) for node_type in work.types]
    plan = make_plan(
        recording, work.calls, work.table, work.types, capabilities, work.kinds, schedule
    )
    plan = look_ups_apart(hoist(plan, capabilities, recording.numbers, hoisted), looked_up)
    return plans.keep(recording, work.calls, work.table, schedule, plan), False


def _last_row(plan: Plan, arenas: Sequence[Arena]) -> NDArray:
    """Return a copy of a row that is written last; a view would keep its arena."""
    group = max(plan.groups, key=lambda group: group.numbers[-1])
    return arenas[group.writes[0].arena].raw._slice(0, 1).copy()


def _timed(state: ExecutionState, first: int, last: int, run: Callable[[], None]) -> None:
    if state.clock is None:
        run()
        return
    batches = state.plan.batches_between(first, last)
    names = dict.fromkeys(str(batch.node_type) for batch in batches)
    calls = sum([len(batch.nodes) for batch in batches])
    with span(f'{calls} calls in {len(batches)} batches: {", ".join(names)}'):
        state.clock.run(first, run)


def _run_call(
    running: EagerCalls, position: int, calls: Calls, recording: Recording, clock: Optional[Clock]
) -> None:
    try:
        if clock is None:
            running.run(position)
        else:
            with span(f'1 call, eager: {running.batch(position).node_type}'):
                clock.run(position, partial(running.run, position))
    except EdbError:
        raise
    except Exception as error:
        batch = running.batch(position)
        raise BatchError(describe_failure([batch], calls, recording, error)) from error


def _run_step(state, step, calls, recording) -> None:
    try:
        _timed(state, step.first, step.last, partial(step.run, state))
        for number in step.unproved:
            (batch,) = state.plan.batches_between(number, number + 1)
            if needs_verification(batch.node_type):
                verify(state, batch)
    except EdbError:
        raise
    except Exception as error:
        batches = state.plan.batches_between(step.first, step.last)
        raise BatchError(describe_failure(batches, calls, recording, error)) from error


def _arenas(state: ExecutionState) -> list[Arena]:
    """Return the arenas from which values are read."""
    return [
        Arena(raw, origin, memory, state.is_over)
        for raw, origin, memory in zip(state.arenas, origins(state), state.memories)
    ]


def _publish(number: int, arenas: Results, recording: Recording) -> Results:
    """Give the stores of a recording their results."""
    for store in recording.stores():
        arena = arenas.get(store.spec.arena)
        if arena is not None:
            store.arenas[number] = arena
    return arenas


def describe_failure(batches, calls, recording, error) -> str:
    """Describe a failed batch: what ran, on what, and which of the user's lines recorded it."""
    nodes = np.concatenate([batch.nodes for batch in batches])
    types = ', '.join(dict.fromkeys(repr(batch.node_type) for batch in batches))
    sites = sorted({str(recording.site(int(node))) for node in calls.ids[nodes[:1000]]})
    shown = '\n    '.join(sites[:5]) + ('\n    …' if len(sites) > 5 else '')
    return (
        f'a batch of {len(nodes)} calls of {types} failed: '
        f'{type(error).__name__}: {str(error).strip()}\n  recorded at\n    {shown}'
    )
