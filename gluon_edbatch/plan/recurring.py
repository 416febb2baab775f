"""Plans of calls that recur, as those of one structure with other numbers: they are made once.

Schedulers that keep schedules of graphs that recur (see `schedule.cache`) give the same object
again, so that a plan is looked for by its schedule, and what the graph does not tell is compared by
value. Only the first evaluation of a scope is: what later ones read of earlier ones lies anywhere.
"""

import threading
from collections import OrderedDict
from dataclasses import replace
from typing import Any, NamedTuple, Optional

import numpy as np

from ..graph.collect import Calls, FormTable
from ..schedule.protocol import Schedule
from .plan import Plan

_MOST = 16  # schedules of which a plan may be kept


class Planned(NamedTuple):
    """A plan, and whether it was there already."""

    plan: Plan
    recurs: bool = False


class _KeptPlan(NamedTuple):
    calls: Calls
    table: FormTable
    specs: list[tuple[int, Any]]  # of the user's arrays: which one, and its spec
    rows: np.ndarray  # of the values that are computed
    planned: Planned

    def fits(self, recording: Any, calls: Calls, table: FormTable) -> bool:
        """Whether these calls would be laid out the same."""
        arrays = recording.arrays
        return (
            table is self.table
            and all(map(_same, calls, self.calls))  # so there are as many arrays
            and all([arrays[index][0] == spec for index, spec in self.specs])
        )


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return len(one) == len(other) and one.tobytes() == other.tobytes()


class RecurringPlans:
    """The plans of the schedules that were met last, from their second time on; several threads may
    use it."""

    def __init__(self) -> None:
        # By schedule and identity of the forms; a reused identity is seen when plans are compared.
        self._kept: OrderedDict[tuple[Schedule, int], Optional[_KeptPlan]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """How many plans are kept."""
        return sum([kept is not None for kept in list(self._kept.values())])

    def find(
        self, recording: Any, calls: Calls, table: FormTable, schedule: Schedule
    ) -> Optional[Planned]:
        """The plan of such calls, if there is one: their rows are noted in the recording's
        locations."""
        kept = None if recording.ran else self._kept.get((schedule, id(table)))
        if kept is None or not kept.fits(recording, calls, table):
            return None
        recording.locations.row[kept.planned.plan.values] = kept.rows
        return kept.planned

    def keep(
        self,
        recording: Any,
        calls: Calls,
        table: FormTable,
        schedule: Schedule,
        planned: Planned,
    ) -> Planned:
        """Note a plan that was made; gives it as it is to be used. One in which rows are shared
        that hold the same numbers is of these numbers only."""
        if recording.ran or any([arena.shared for arena in planned.plan.arenas]):
            return planned
        key = schedule, id(table)
        with self._lock:
            again = key in self._kept
            if again:
                plan = replace(planned.plan, tables={})
                planned = planned._replace(plan=plan)
                specs = [
                    (index, recording.arrays[index][0])
                    for arena in plan.arenas
                    for _, index in arena.arrays
                ]
                rows = recording.locations.row[plan.values]
                known = planned._replace(recurs=True)
                kept = _KeptPlan(calls, table, specs, rows, known)
            self._kept[key] = kept if again else None
            self._kept.move_to_end(key)
            while len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        return planned
