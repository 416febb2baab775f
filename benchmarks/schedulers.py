"""Measure how many batches each scheduler needs for a workload's graphs, and how long it takes."""

import argparse
import time
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np

from gluon_edbatch.graph.graph import Graph
from gluon_edbatch.schedule import (
    FSMScheduler,
    Policy,
    QLearningConfig,
    Schedule,
    Scheduler,
    get_scheduler,
    learn_policy,
    lower_bound,
)

from .graphs import GraphSource

__all__ = ['line_of', 'measure_schedulers']

BEAM_SIZE = 32  # the only size for the beam search
BEAM_MINIBATCHES = 3
LESSONS = (4, 32), (16, 1)  # (minibatches, samples in each) to learn from
Row = dict[str, Any]


def measure_schedulers(workload: str, options: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of a workload, by the options of the command "schedulers"."""
    source = GraphSource(workload, options.data, options.mode, options.hidden)
    half = len(source.samples) // 2
    policy, learn_s = None, 0.0
    if 'fsm' in options.scheduler:
        policy, learn_s = _policy(workload, source, source.samples[:half], options)
    for size in options.batch_size:
        held_out = _draw(source, source.samples[half:], options.minibatches, size, options.seed + 1)
        for name in options.scheduler:
            if name == 'beam' and size != BEAM_SIZE:
                continue
            graphs = held_out[:BEAM_MINIBATCHES] if name == 'beam' else held_out
            scheduler = FSMScheduler(policy, cache=0) if name == 'fsm' else get_scheduler(name)
            row = _row(workload, scheduler, size, graphs, learn_s if name == 'fsm' else 0.0)
            yield {**row, 'decides': _decides(policy) if name == 'fsm' else ''}


def _decides(policy: Policy) -> str:
    """Return what chooses the types: the policy's table, or its rule if the table is empty."""
    return 'table' if policy.table else policy.unseen


def _row(
    workload: str, scheduler: Scheduler, size: int, graphs: Sequence[Graph], learn_s: float
) -> Row:
    results = [_timed(scheduler, graph) for graph in graphs]
    batches = np.mean([len(schedule) for schedule, _ in results])
    bound = np.mean([lower_bound(graph) for graph in graphs])
    return {
        'workload': workload,
        'scheduler': scheduler.name,
        'batch_size': size,
        'nodes': round(float(np.mean([len(graph) for graph in graphs])), 1),
        'types': int(max((graph.type_counts > 0).sum() for graph in graphs)),
        'batches': round(float(batches), 2),
        'lower_bound': round(float(bound), 2),
        'ratio': round(float(batches / bound), 4),
        'schedule_ms': round(1e3 * float(np.mean([seconds for _, seconds in results])), 3),
        'learn_s': round(learn_s, 2),
        'unseen_states': round(
            float(np.mean([schedule.unseen_states for schedule, _ in results])), 2
        ),
        'minibatches': len(graphs),
    }


def _timed(scheduler: Scheduler, graph: Graph) -> tuple[Schedule, float]:
    """Return a schedule, and the least time of three, without derived arrays from before."""
    seconds = []
    for _ in range(1 if scheduler.name == 'beam' else 3):
        fresh = Graph(
            graph.types, graph.offsets, graph.inputs, graph.num_types, graph.alone, graph.type_names
        )
        begin = time.perf_counter()
        schedule = scheduler.schedule(fresh)
        seconds.append(time.perf_counter() - begin)
    return schedule, min(seconds)


def _policy(
    workload: str, source: GraphSource, samples: Sequence[Any], options: argparse.Namespace
) -> tuple[Policy, float]:
    path = options.policies and options.policies / f'{workload}.json'
    if path and path.exists():
        return Policy.load(path), 0.0
    graphs = [
        graph
        for count, size in LESSONS
        for graph in _draw(source, samples, count, size, options.seed)
    ]
    begin = time.perf_counter()
    policy = learn_policy(graphs, options.encoding, QLearningConfig(seed=options.seed))
    learn_s = time.perf_counter() - begin
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        policy.save(path)
    return policy, learn_s


def _draw(
    source: GraphSource, samples: Sequence[Any], count: int, size: int, seed: int
) -> list[Graph]:
    """Return minibatches of random samples, which may occur in several of them."""
    random = Random(seed)
    return [source.graph(random.sample(samples, min(size, len(samples)))) for _ in range(count)]


def line_of(row: Row) -> str:
    """Return a row as text."""
    return (
        '{workload:20} {scheduler:11} {batch_size:5} samples {nodes:9.1f} nodes of {types:2} '
        'types {batches:8.2f} batches {ratio:7.4f} x bound {schedule_ms:9.3f} ms'
        '{unseen_states:8.2f} unseen'
    ).format(**row)
