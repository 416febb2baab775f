"""Keep schedules of graphs that recur: equal types and edges are scheduled once."""

import threading
from collections import OrderedDict
from typing import Optional

import numpy as np

from ..graph.graph import Graph
from .protocol import Schedule, Scheduler

_BEGIN = 256  # nodes and edges


class ScheduleCache:
    """Keep the last `capacity` schedules, by the value of their graphs; safe for threads."""

    def __init__(self, capacity: int) -> None:
        if capacity < 0:
            raise ValueError(f'capacity must be at least 0, not {capacity}')
        self.capacity = capacity
        self._schedules: OrderedDict[_Structure, Schedule] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._schedules)

    def get(self, graph: Graph) -> tuple['_Structure', Optional[Schedule]]:
        """Return the key of a graph, and its schedule or None."""
        key = _Structure(graph)
        with self._lock:
            schedule = self._schedules.get(key)
            if schedule is not None:
                self._schedules.move_to_end(key)
        return key, schedule

    def put(self, key: '_Structure', schedule: Schedule) -> None:
        """Keep a schedule under a key of `get`; the one used longest ago may be dropped."""
        with self._lock:
            self._schedules[key] = schedule
            while len(self._schedules) > self.capacity:
                self._schedules.popitem(last=False)

    def clear(self) -> None:
        """Drop all schedules."""
        with self._lock:
            self._schedules.clear()


class _Structure:
    """What determines the schedule of a graph, by value; only the graph's beginning is hashed."""

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
    """Schedule a graph once, and keep its schedule.

    Parameters
    ----------
    scheduler : Scheduler
        Makes the schedules.
    capacity : int, default 64
        Number of schedules to keep.
    """

    def __init__(self, scheduler: Scheduler, capacity: int = 64) -> None:
        self.scheduler = scheduler
        self.cache = ScheduleCache(capacity)
        self.name = scheduler.name

    def __repr__(self) -> str:
        return f'CachedScheduler({self.scheduler!r}, capacity={self.cache.capacity})'

    def schedule(self, graph: Graph) -> Schedule:
        """Return the inner scheduler's schedule of the graph, made now or for an equal graph."""
        key, schedule = self.cache.get(graph)
        if schedule is None:
            schedule = self.scheduler.schedule(graph)
            self.cache.put(key, schedule)
        return schedule
