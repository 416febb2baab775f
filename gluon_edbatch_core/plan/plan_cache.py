"""The plan cache: plans of equal calls with other numbers are made once.

Schedulers that keep schedules of recurring graphs (see `schedule.cache`) return one object for
them. So a plan is found by its schedule. What is not part of the graph is compared by value.
Only the first evaluation of a scope is cached: later ones read rows that may be anywhere.
"""

import threading
from collections import OrderedDict
from dataclasses import replace
from typing import Any, NamedTuple, Optional

import numpy as np

from ..graph.collect import Calls, FormTable
from ..schedule.protocol import Schedule
from .plan import Plan

_MOST = 64  # schedules of which a plan may be kept


class _KeptPlan(NamedTuple):
    calls: Calls
    table: FormTable
    specs: list[tuple[int, Any]]  # of the user's arrays: which one, and its spec
    rows: np.ndarray  # of the values that are computed
    plan: Plan

    def fits(self, recording: Any, calls: Calls, table: FormTable) -> bool:
        """Return whether these calls would get an equal plan."""
        arrays = recording.arrays
        return (
            table is self.table
            and all(map(_same, calls, self.calls))  # so there are as many arrays
            and all([arrays[index][0] == spec for index, spec in self.specs])
        )


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return len(one) == len(other) and one.tobytes() == other.tobytes()


class PlanCache:
    """Keep the plans of recent schedules, from their second use on; safe for threads."""

    def __init__(self) -> None:
        # By schedule and identity of the forms; a reused identity is seen when plans are compared.
        self._kept: OrderedDict[tuple[Schedule, int], Optional[_KeptPlan]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return how many plans are kept."""
        return sum([kept is not None for kept in list(self._kept.values())])

    def find(
        self, recording: Any, calls: Calls, table: FormTable, schedule: Schedule
    ) -> Optional[Plan]:
        """Return the plan of equal calls, or None; note rows in the recording's locations."""
        kept = None if recording.ran else self._kept.get((schedule, id(table)))
        if kept is None or not kept.fits(recording, calls, table):
            return None
        recording.locations.row[kept.plan.values] = kept.rows
        return kept.plan

    def keep(
        self,
        recording: Any,
        calls: Calls,
        table: FormTable,
        schedule: Schedule,
        plan: Plan,
    ) -> Plan:
        """Keep a new plan, and return it for use. A plan that shares rows of equal numbers is not
        kept, as it is for these numbers only."""
        if recording.ran or any([arena.shared for arena in plan.arenas]):
            return plan
        key = schedule, id(table)
        with self._lock:
            again = key in self._kept
            if again:
                plan = replace(plan, tables={})
                specs = [
                    (index, recording.arrays[index][0])
                    for arena in plan.arenas
                    for _, index in arena.arrays
                ]
                kept = _KeptPlan(calls, table, specs, recording.locations.row[plan.values], plan)
            self._kept[key] = kept if again else None
            self._kept.move_to_end(key)
            while len(self._kept) > _MOST:
                self._kept.popitem(last=False)
        return plan
