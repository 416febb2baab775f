"""Keep schedules of graphs that recur: equal types and edges are scheduled once."""

import threading
from collections import OrderedDict
from typing import Optional

from ..graph.graph import Graph
from .protocol import Schedule, Scheduler

# What determines the schedule of a graph, by value: its arrays, and the names of its types.
Structure = tuple[tuple[bytes, ...], tuple[str, ...]]


class ScheduleCache:
    """Keep the last `capacity` schedules, by the value of their graphs; safe for threads."""

    def __init__(self, capacity: int) -> None:
        if capacity < 0:
            raise ValueError(f'capacity must be at least 0, not {capacity}')
        self.capacity = capacity
        self._schedules: OrderedDict[Structure, Schedule] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._schedules)

    def get(self, graph: Graph) -> tuple[Structure, Optional[Schedule]]:
        """Return the key of a graph, and its schedule or None."""
        arrays = graph.types, graph.offsets, graph.inputs, graph.alone
        key = tuple([array.tobytes() for array in arrays]), tuple(graph.type_names)
        with self._lock:
            schedule = self._schedules.get(key)
            if schedule is not None:
                self._schedules.move_to_end(key)
        return key, schedule

    def put(self, key: Structure, schedule: Schedule) -> None:
        """Keep a schedule under a key of `get`; the one used longest ago may be dropped."""
        with self._lock:
            self._schedules[key] = schedule
            while len(self._schedules) > self.capacity:
                self._schedules.popitem(last=False)

    def clear(self) -> None:
        """Drop all schedules."""
        with self._lock:
            self._schedules.clear()


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
