#!/usr/bin/env python3
"""How many batches each scheduler needs, and how long it takes to say so.

    python scripts/benchmark_schedulers.py --data DATA --json > results/schedulers.jsonl
    python scripts/benchmark_schedulers.py --data DATA lattice-gru --policies results/policies
    python scripts/benchmark_schedulers.py --plot results/schedulers.jsonl --out results

The graphs are those that the examples' per-sample models record; "types" are theirs (`ragged`
arguments of any length are one type). Nothing is run. For each workload, scheduler and size of a
minibatch, one row: means over minibatches drawn from the
second half of the training samples. The policy of the FSM is learned from minibatches of the first
half, or read from a file if --policies names a directory that has it. "ratio" is the number of
batches by the lower bound of ED-Batch, which need not be reachable; "unseen_states" says how often
a minibatch had a state without an entry in the policy's table.
"""
import argparse
import json
import sys
import time
from pathlib import Path
from random import Random
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

ROOT = Path(__file__).resolve().parents[1]
for _directory in (ROOT / 'example', ROOT):     # the root: also without an installation
    if str(_directory) not in sys.path:
        sys.path.append(str(_directory))

import numpy as np  # noqa: E402
from bench.graphs import GraphSource  # noqa: E402
from bench.schedule_plots import plot  # noqa: E402
from bench.settings import MODES  # noqa: E402
from bench.workloads import WORKLOADS  # noqa: E402
from gluon_edbatch.graph import Graph  # noqa: E402
from gluon_edbatch.schedule import (  # noqa: E402
    FSMScheduler, Policy, QLearningConfig, Schedule, Scheduler, get_scheduler, learn_policy,
    lower_bound)

SCHEDULERS = ('depth', 'agenda', 'sufficient', 'fsm', 'beam')
BEAM_SIZE = 32          # the only size for the beam search
BEAM_MINIBATCHES = 3
LESSONS = (4, 32), (16, 1)      # (minibatches, samples in each) to learn from
Row = Dict[str, Any]


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Command line; gives the exit status."""
    options = _parser().parse_args(arguments)
    if options.plot:
        rows = [json.loads(line) for line in options.plot.read_text().splitlines() if line]
        options.out.mkdir(parents=True, exist_ok=True)
        for workload in dict.fromkeys(row['workload'] for row in rows):
            plot([row for row in rows if row['workload'] == workload], workload,
                 options.out / f'schedulers-{workload}.{options.format}')
        return 0
    for workload in options.workloads or sorted(WORKLOADS):
        for row in measure(workload, options):
            print(json.dumps(row) if options.json else _line(row), flush=True)
    return 0


def measure(workload: str, options: argparse.Namespace) -> Iterator[Row]:
    """The rows of a workload."""
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
            yield _row(workload, scheduler, size, graphs, learn_s if name == 'fsm' else 0.0)


def _row(workload: str, scheduler: Scheduler, size: int, graphs: Sequence[Graph],
         learn_s: float) -> Row:
    results = [_timed(scheduler, graph) for graph in graphs]
    batches = np.mean([len(schedule) for schedule, _ in results])
    bound = np.mean([lower_bound(graph) for graph in graphs])
    return {
        'workload': workload, 'scheduler': scheduler.name, 'batch_size': size,
        'nodes': round(float(np.mean([len(graph) for graph in graphs])), 1),
        'types': int(max((graph.type_counts > 0).sum() for graph in graphs)),
        'batches': round(float(batches), 2), 'lower_bound': round(float(bound), 2),
        'ratio': round(float(batches / bound), 4),
        'schedule_ms': round(1e3 * float(np.mean([seconds for _, seconds in results])), 3),
        'learn_s': round(learn_s, 2),
        'unseen_states': round(float(np.mean(
            [schedule.unseen_states for schedule, _ in results])), 2),
        'minibatches': len(graphs),
    }


def _timed(scheduler: Scheduler, graph: Graph) -> Tuple[Schedule, float]:
    """A schedule, and the least time of three: nothing derived from the graph is there before."""
    seconds = []
    for _ in range(1 if scheduler.name == 'beam' else 3):
        fresh = Graph(graph.types, graph.offsets, graph.inputs, graph.num_types, graph.alone,
                      graph.type_names)
        begin = time.perf_counter()
        schedule = scheduler.schedule(fresh)
        seconds.append(time.perf_counter() - begin)
    return schedule, min(seconds)


def _policy(workload: str, source: GraphSource, samples: Sequence[Any],
            options: argparse.Namespace) -> Tuple[Policy, float]:
    path = options.policies and options.policies / f'{workload}.json'
    if path and path.exists():
        return Policy.load(path), 0.0
    graphs = [graph for count, size in LESSONS
              for graph in _draw(source, samples, count, size, options.seed)]
    begin = time.perf_counter()
    policy = learn_policy(graphs, options.encoding, QLearningConfig(seed=options.seed),
                          progress=None)
    learn_s = time.perf_counter() - begin
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        policy.save(path)
    return policy, learn_s


def _draw(source: GraphSource, samples: Sequence[Any], count: int, size: int, seed: int
          ) -> List[Graph]:
    """Minibatches of random samples, which may occur in several of them."""
    random = Random(seed)
    return [source.graph(random.sample(samples, min(size, len(samples)))) for _ in range(count)]


def _line(row: Row) -> str:
    return ('{workload:20} {scheduler:11} {batch_size:5} samples {nodes:9.1f} nodes of {types:2} '
            'types {batches:8.2f} batches {ratio:7.4f} x bound {schedule_ms:9.3f} ms'
            '{unseen_states:8.2f} unseen').format(**row)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('workloads', nargs='*', metavar='WORKLOAD', choices=[*sorted(WORKLOADS), []],
                        help=f'some of {", ".join(sorted(WORKLOADS))} (default: all)')
    parser.add_argument('--data', type=Path, metavar='DIR',
                        help='holds the data sets (default: the samples that come with the '
                             'examples)')
    parser.add_argument('--mode', choices=MODES, default='infer',
                        help='what is recorded: losses, too, or not (default: infer)')
    parser.add_argument('--hidden', type=int, default=16, metavar='H',
                        help='width of cells and embeddings: a policy is for types of some shape '
                             '(default: 16)')
    parser.add_argument('--json', action='store_true', help='one JSON object a line')
    parser.add_argument('--scheduler', type=lambda text: text.split(','), default=SCHEDULERS,
                        metavar='NAME[,NAME…]', help=f'(default: {",".join(SCHEDULERS)})')
    parser.add_argument('--batch-size', type=lambda text: [int(size) for size in text.split(',')],
                        default=[1, 32, 64, 256], metavar='N[,N…]', help='(default: 1,32,64,256)')
    parser.add_argument('--minibatches', type=int, default=20, metavar='N',
                        help='held-out minibatches of each size (default: 20)')
    parser.add_argument('--encoding', metavar='NAME',
                        help='state encoding of the policy (default: the first that does)')
    parser.add_argument('--policies', type=Path, metavar='DIR',
                        help='read WORKLOAD.json there, or write it')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--plot', type=Path, metavar='FILE',
                        help='measure nothing: draw the rows of a file, a picture a workload')
    parser.add_argument('--out', type=Path, default=Path('.'), metavar='DIR')
    parser.add_argument('--format', choices=('png', 'svg', 'pdf'), default='png')
    return parser


if __name__ == '__main__':
    sys.exit(main())
