"""What every scheduler must keep to, whoever wrote it."""

from dataclasses import replace

import numpy as np

from ..graph.graph import Graph
from ..schedule.bound import lower_bound
from ..schedule.protocol import Schedule, Scheduler
from .closeness import ensure


def check_scheduler(scheduler: Scheduler, graph: Graph) -> Schedule:
    """Raise ``AssertionError`` unless a scheduler treats a graph as it must.

    The schedule must pass `check_schedule` and be the same twice (from an equal graph, and from
    the same one again), and the graph must be left as it was.

    Parameters
    ----------
    scheduler : Scheduler
        The scheduler.
    graph : Graph
        Any graph, also an empty one.

    Returns
    -------
    Schedule
        What the scheduler made of the graph.
    """
    arrays = {name: getattr(graph, name).copy() for name in ('types', 'offsets', 'inputs', 'alone')}
    twin = replace(graph, **arrays)
    schedule = scheduler.schedule(graph)
    for name, array in arrays.items():
        ensure(
            np.array_equal(getattr(graph, name), array),
            f'{scheduler!r} changed {name} of the graph',
        )
    check_schedule(schedule, graph)
    for other in (twin, graph):
        again = scheduler.schedule(other)
        ensure(
            np.array_equal(again.bounds, schedule.bounds)
            and np.array_equal(again.order, schedule.order),
            f'{scheduler!r} gave two schedules for one graph',
        )
    return schedule


def check_schedule(schedule: Schedule, graph: Graph) -> None:
    """Raise ``AssertionError`` unless a schedule is one of the graph.

    Every node once; producers before consumers, not in the same batch; one type a batch, whose
    nodes ascend; nodes that must run alone do; no fewer batches than the lower bound (then the
    schedule, or the bound, is wrong).

    Parameters
    ----------
    schedule : Schedule
        The batches.
    graph : Graph
        The graph that they are to run.
    """
    fault = schedule.fault(graph)
    ensure(not fault, fault)
    bound = lower_bound(graph)
    ensure(len(schedule) >= bound, f'{len(schedule)} batches, below the lower bound of {bound}')
