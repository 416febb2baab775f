"""Measure how many batches each scheduler needs for a workload's graphs, and how long it takes."""

import argparse
import time
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any, Optional

import numpy as np

from example.lattice.data import Lattice
from gluon_edbatch_core.graph.graph import Graph
from gluon_edbatch_core.schedule import (
    FSMScheduler,
    Policy,
    QLearningConfig,
    Schedule,
    Scheduler,
    fewest_batches,
    get_scheduler,
    learn_policy,
    lower_bound,
)
from gluon_edbatch_core.schedule.optimum import Fewest

from .graphs import GraphSource

__all__ = ['line_of', 'measure_schedulers']

BEAM_SIZE = 32  # the only size for the beam search
BEAM_MINIBATCHES = 3
ENCODINGS = ('E_base', 'E_max', 'E_sort', 'E_path')  # policies whose table decides alone
LESSONS = (4, 32), (16, 1)  # (minibatches, samples in each) to learn from
Row = dict[str, Any]


def measure_schedulers(workload: str, options: argparse.Namespace) -> Iterator[Row]:
    """Yield the rows of a workload, by the options of the command "schedulers"."""
    source = GraphSource(workload, options.data, options.mode, options.hidden)
    half = len(source.samples) // 2
    learned = {
        name: _policy(workload, source, source.samples[:half], options, name)
        for name in options.scheduler
        if name == 'fsm' or name in ENCODINGS
    }
    for size in options.batch_size:
        random = Random(options.seed + 1)
        length = options.characters and options.characters // size
        held_out = _draw(source, source.samples[half:], options.minibatches, size, random, length)
        bounds = [(lower_bound(graph), fewest_batches(graph, options.effort)) for graph in held_out]
        for name in options.scheduler:
            if name == 'beam' and size != BEAM_SIZE:
                continue
            count = BEAM_MINIBATCHES if name == 'beam' else len(held_out)
            policy, learn_s = learned.get(name, (None, 0.0))
            scheduler = FSMScheduler(policy, cache=0) if policy else get_scheduler(name)
            results = [_timed(scheduler, graph) for graph in held_out[:count]]
            yield {
                'workload': workload,
                'scheduler': name,
                'batch_size': size,
                **_row(held_out[:count], results, bounds[:count]),
                'learn_s': round(learn_s, 2),
                'decides': policy.decides if policy else '',
            }


def _row(
    graphs: Sequence[Graph],
    results: Sequence[tuple[Schedule, float]],
    bounds: Sequence[tuple[int, Fewest]],
) -> Row:
    """Return means over graphs."""
    batches = np.array([len(schedule) for schedule, _ in results])
    lower = np.array([bound for bound, _ in bounds])
    tighter = np.array([fewest.batches for _, fewest in bounds])
    return {
        'nodes': round(float(np.mean([len(graph) for graph in graphs])), 1),
        'types': int(max((graph.type_counts > 0).sum() for graph in graphs)),
        'batches': round(float(batches.mean()), 2),
        'lower_bound': round(float(lower.mean()), 2),
        'ratio': round(float(batches.mean() / lower.mean()), 4),
        'tighter_bound': round(float(tighter.mean()), 2),
        'proved': sum(
            fewest.proved or len(schedule) == fewest.batches
            for (schedule, _), (_, fewest) in zip(results, bounds)
        ),
        'tighter_ratio': round(float(batches.mean() / tighter.mean()), 4),
        'schedule_ms': round(1e3 * float(np.mean([seconds for _, seconds in results])), 3),
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
    workload: str,
    source: GraphSource,
    samples: Sequence[Any],
    options: argparse.Namespace,
    name: str,
) -> tuple[Policy, float]:
    path = options.policies and name == 'fsm' and options.policies / f'{workload}.json'
    if path and path.exists():
        return Policy.load(path), 0.0
    graphs = [
        graph
        for count, size in LESSONS
        for graph in _draw(source, samples, count, size, Random(options.seed))
    ]
    encoding = options.encoding if name == 'fsm' else name
    begin = time.perf_counter()
    policy = learn_policy(graphs, encoding, QLearningConfig(seed=options.seed))
    learn_s = time.perf_counter() - begin
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        policy.save(path)
    return policy, learn_s


def _draw(
    source: GraphSource,
    samples: Sequence[Any],
    count: int,
    size: int,
    random: Random,
    length: Optional[int] = None,
) -> list[Graph]:
    """Return minibatches of random samples, which may occur in several of them; lattices have at
    most so many characters."""
    drawn = [random.sample(samples, min(size, len(samples))) for _ in range(count)]
    return [source.graph(_cut(some, length) if length else some) for some in drawn]


def _cut(samples: Sequence[Any], length: int) -> list[Any]:
    """Return the beginnings of lattices; other samples stay as they are."""
    return [
        Lattice(sample.chars[:length], sample.arcs[:length], sample.tags[:length])
        if isinstance(sample, Lattice)
        else sample
        for sample in samples
    ]


def line_of(row: Row) -> str:
    """Return a row as text."""
    return (
        '{workload:20} {scheduler:11} {batch_size:5} samples {nodes:9.1f} nodes of {types:2} '
        'types {batches:8.2f} batches {ratio:7.4f} x bound {tighter_ratio:7.4f} x tighter bound '
        '({proved} of {minibatches} proved) {schedule_ms:9.3f} ms{unseen_states:8.2f} unseen '
        '{decides}'
    ).format(**row)
