"""What every scheduler must keep to, whoever wrote it."""

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
    twin = Graph(
        graph.types.copy(),
        graph.offsets.copy(),
        graph.inputs.copy(),
        graph.num_types,
        graph.alone.copy(),
        graph.type_names,
    )
    schedule = scheduler.schedule(graph)
    for name in ('types', 'offsets', 'inputs', 'alone'):
        ensure(
            np.array_equal(getattr(graph, name), getattr(twin, name)),
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
    order, bounds = schedule.order, schedule.bounds
    ensure(order.dtype == np.int32, f'order is {order.dtype}, not int32')
    ensure(bounds.dtype == np.int64, f'bounds are {bounds.dtype}, not int64')
    sizes = np.diff(bounds)
    ensure(
        len(bounds) > 0 and bounds[0] == 0 and bounds[-1] == len(order),
        f'bounds do not go from 0 to the {len(order)} nodes in order',
    )
    ensure(bool((sizes > 0).all()), f'batches without nodes: {np.flatnonzero(sizes <= 0)}')
    ensure(
        np.array_equal(np.sort(order), np.arange(len(graph))),
        f'order does not hold each of the {len(graph)} nodes once',
    )

    batch = np.empty(len(graph), np.int64)
    batch[order] = np.repeat(np.arange(len(sizes)), sizes)
    early = np.flatnonzero(batch[graph.inputs] >= batch[graph.readers])
    if len(early):
        node, producer = graph.readers[early[0]], graph.inputs[early[0]]
        raise AssertionError(
            f'node {node} runs in batch {batch[node]} and reads node {producer}, '
            f'which runs in batch {batch[producer]}'
        )
    same = batch[order[1:]] == batch[order[:-1]]
    kinds = graph.types[order]
    ensure(not (same & (kinds[1:] != kinds[:-1])).any(), 'a batch holds nodes of two types')
    ensure(not (same & (order[1:] <= order[:-1])).any(), 'nodes do not ascend in a batch')
    ensure(
        not (same & graph.alone[kinds[1:]]).any(),
        'a batch holds two nodes of a type whose nodes must run alone',
    )
    bound = lower_bound(graph)
    ensure(len(schedule) >= bound, f'{len(schedule)} batches, below the lower bound of {bound}')
