"""One evaluation: graph, schedule, plan, execute, backward, in a function that fits a screen."""
import time
from typing import Dict, List, Optional

import numpy as np

from .backward import BackwardPass, connect
from .errors import BatchError, EdbError
from .execute import Machine
from .pending import Calls, Pending, ancestors, form_table, to_graph
from .plan import Given, make_plan
from .record.hooks import suspended
from .record.lazy import Arena
from .record.recording import SCALAR_DTYPE, Recording
from .record.spec import spec_of
from .report import EvaluationCounts
from .schedule import Scheduler
from .static.node_type import Kind
from .static.verify import needs_verification, verify


class Evaluator:
    """Evaluates the calls of one recording, all or some, any number of times.

    Attributes
    ----------
    counts : list of EvaluationCounts
        One entry for each evaluation.
    """

    def __init__(self, recording: Recording, scheduler: Scheduler):
        self.recording = recording
        self.scheduler = scheduler
        self.pending = Pending(recording)
        self.counts: List[EvaluationCounts] = []
        self._results: Dict[int, Dict[tuple, Arena]] = {}

    def run(self, wanted: Optional[np.ndarray] = None) -> None:
        """Compute the values `wanted`, or all that is recorded."""
        recording, locations = self.recording, self.recording.locations
        recording.check_alive()
        with suspended():
            started = time.perf_counter()
            table = form_table(recording)
            calls = self.pending.calls(table)
            if wanted is not None:
                calls = ancestors(calls, wanted, locations.evaluation)
            if len(calls):
                recording.check_blocks()
                self._evaluate(calls, table, started)
                self.pending.ran(calls)
        if recording.closed and not self.pending:
            recording.finish()

    def _evaluate(self, calls: Calls, table, started: float) -> None:
        recording, locations = self.recording, self.recording.locations
        by_serial = {form.node_type.serial: form.node_type for form in recording.forms}
        types = [by_serial[serial] for serial in np.unique(table.types[calls.forms]).tolist()]
        graph = to_graph(calls, table, types, locations.evaluation)
        recorded = time.perf_counter()
        schedule = self.scheduler.schedule(graph)
        scheduled = time.perf_counter()
        plan = make_plan(calls, table, types, schedule, graph.types, self._given(), locations)
        BackwardPass.begin_evaluation()
        machine = Machine(recording, plan, self._results)
        for batch in plan.batches:
            self._run_batch(machine, batch, calls)
        connections = connect(machine)
        number = recording.evaluations
        recording.evaluations += 1
        self._publish(number, plan, machine, connections)
        for offset in range(int(table.outputs.max())):
            has = table.outputs[calls.forms] > offset
            locations.evaluation[calls.outputs[has] + offset] = number
        self.counts.append(EvaluationCounts(graph, schedule, plan, recorded - started,
                                            scheduled - recorded,
                                            time.perf_counter() - scheduled))

    def _given(self) -> Given:
        arrays = self.recording.arrays
        return Given(spec_of((1,), SCALAR_DTYPE, self.recording.ctx).arena,
                     [store.spec.arena for store, _ in arrays],
                     np.array([store.spec.rows for store, _ in arrays], np.int64))

    def _run_batch(self, machine, batch, calls) -> None:
        try:
            machine.run(batch)
            if needs_verification(batch.node_type, len(batch.nodes)):
                self._verify(machine, batch, calls)
        except EdbError:
            raise
        except Exception as error:
            raise BatchError(describe_failure(batch, calls, self.recording, error)) from error

    def _verify(self, machine, batch, calls) -> None:
        ragged = sum(argument.kind is Kind.RAGGED for argument in batch.node_type.arguments)
        first = calls.length_offsets[batch.nodes]
        lengths = calls.lengths[first[:, None] + np.arange(ragged)]
        rows = np.array([self.recording.forms[form].rows for form in calls.forms[batch.nodes]])
        verify(machine, batch, lengths, rows, str(self.recording.site(
            int(calls.ids[batch.nodes[0]]))))

    def _publish(self, number, plan, machine, connections) -> None:
        arenas = {arena.key: Arena(raw, connect_arena) for arena, raw, connect_arena
                  in zip(plan.arenas, machine.arenas, connections)}
        self._results[number] = arenas
        for store in self.recording.stores():
            arena = arenas.get(store.spec.arena)
            if arena is not None:
                store.arenas[number] = arena


def describe_failure(batch, calls, recording, error) -> str:
    """What ran, on what, and which of the user's lines recorded it."""
    sites = sorted({str(recording.site(int(node))) for node in calls.ids[batch.nodes[:1000]]})
    shown = '\n    '.join(sites[:5]) + ('\n    …' if len(sites) > 5 else '')
    return (f'a batch of {len(batch.nodes)} calls of {batch.node_type!r} failed: '
            f'{type(error).__name__}: {str(error).strip()}\n  recorded at\n    {shown}')
