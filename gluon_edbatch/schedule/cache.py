"""Schedules of graphs that recur: the same types and edges need not be scheduled again."""

import threading
from collections import OrderedDict
from typing import Optional

import numpy as np

from ..graph.graph import Graph
from .protocol import Schedule, Scheduler

_BEGIN = 256  # nodes and edges


class ScheduleCache:
    """The last `capacity` schedules, by the value of their graphs; several threads may use it."""

    def __init__(self, capacity: int) -> None:
        if capacity < 0:
            raise ValueError(f'capacity must be at least 0, not {capacity}')
        self.capacity = capacity
        self._schedules: OrderedDict[_Structure, Schedule] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._schedules)

    def get(self, graph: Graph) -> tuple['_Structure', Optional[Schedule]]:
        """The key of a graph, and its schedule if there is one."""
        key = _Structure(graph)
        with self._lock:
            schedule = self._schedules.get(key)
            if schedule is not None:
                self._schedules.move_to_end(key)
        return key, schedule

    def put(self, key: '_Structure', schedule: Schedule) -> None:
        """Keep a schedule under the key that `get` gave; the one used longest ago may go."""
        with self._lock:
            self._schedules[key] = schedule
            while len(self._schedules) > self.capacity:
                self._schedules.popitem(last=False)

    def clear(self) -> None:
        """Keep none."""
        with self._lock:
            self._schedules.clear()


class _Structure:
    """What makes the schedule of a graph, by value; only the beginning of a graph is hashed."""

    __slots__ = ('_arrays', '_names', '_hash')

    def __init__(self, graph: Graph) -> None:
        self._arrays = graph.types, graph.offsets, graph.inputs, graph.alone
        self._names = tuple(graph.type_names)
        begins = graph.types[:_BEGIN].tobytes(), graph.inputs[:_BEGIN].tobytes()
        self._hash = hash((len(graph), len(graph.inputs), *begins))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Structure)
            and self._names == other._names
            and all(
                mine is its or np.array_equal(mine, its)
                for mine, its in zip(self._arrays, other._arrays)
            )
        )


class CachedScheduler:
    """A scheduler that makes the schedule of a graph once.

    Parameters
    ----------
    scheduler : Scheduler
        Makes the schedules.
    capacity : int, default 64
        How many are kept.
    """

    def __init__(self, scheduler: Scheduler, capacity: int = 64) -> None:
        self.scheduler = scheduler
        self.cache = ScheduleCache(capacity)
        self.name = scheduler.name

    def __repr__(self) -> str:
        return f'CachedScheduler({self.scheduler!r}, capacity={self.cache.capacity})'

    def schedule(self, graph: Graph) -> Schedule:
        """What the scheduler makes of the graph, or made of an equal one."""
        key, schedule = self.cache.get(graph)
        if schedule is None:
            schedule = self.scheduler.schedule(graph)
            self.cache.put(key, schedule)
        return schedule
