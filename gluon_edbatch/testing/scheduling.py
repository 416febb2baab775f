"""Check what every scheduler must satisfy."""

from dataclasses import replace

import numpy as np

from gluon_edbatch_core.graph.graph import Graph
from gluon_edbatch_core.schedule.bound import lower_bound
from gluon_edbatch_core.schedule.protocol import Schedule, Scheduler

from .closeness import ensure


def check_scheduler(scheduler: Scheduler, graph: Graph) -> Schedule:
    """Raise ``AssertionError`` unless a scheduler treats a graph as it must.

    The schedule must pass `check_schedule`, and be equal for an equal graph, and for the same graph
    again. The graph must not change.

    Parameters
    ----------
    scheduler : Scheduler
        The scheduler.
    graph : Graph
        Any graph, even an empty one.

    Returns
    -------
    Schedule
        The schedule of the graph.
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

    A schedule has every node once, and producers in earlier batches than consumers. A batch has
    nodes of one type, ascending; nodes that must run alone do. With fewer batches than the lower
    bound, the schedule, or the bound, is wrong.

    Parameters
    ----------
    schedule : Schedule
        The batches.
    graph : Graph
        The graph that the batches run.
    """
    fault = schedule.fault(graph)
    ensure(not fault, fault)
    bound = lower_bound(graph)
    ensure(len(schedule) >= bound, f'{len(schedule)} batches, below the lower bound of {bound}')
