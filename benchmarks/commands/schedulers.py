"""Measure how many batches each scheduler needs, and how long it takes to schedule.

    python -m benchmarks schedulers --data DATA --json > results/schedulers.jsonl
    python -m benchmarks schedulers --data DATA lattice-gru --policies results/policies
    python -m benchmarks schedulers --plot results/schedulers.jsonl --out results

The graphs are those that the examples' per-sample models record; "types" are theirs (`ragged`
arguments of any length are one type). Nothing is run. For each workload, scheduler and size of a
minibatch, one row: means over minibatches drawn from the second half of the training samples. The
policy of "fsm" is learned from minibatches of the first half, or read from a file if --policies
names a directory that has it; the row says what decides. E_base, E_max, E_sort and E_path are
policies whose table decides alone, as in ED-Batch. "ratio" is the number of batches by the lower
bound of ED-Batch, which need not be reachable. "tighter_ratio" is by the bound that a search of
--effort states proves; "proved" counts minibatches for which it is the optimum. "unseen_states"
counts states of a minibatch without an entry in the policy's table. Small graphs, all proved:

    python -m benchmarks schedulers --data DATA treelstm2-sst lattice-gru --batch-size 4,5,6,7,8 \
        --characters 110 --minibatches 40 --scheduler sufficient,fsm --effort 3000000
"""

import argparse
import json
from pathlib import Path

from ..arguments import (
    add_data_argument,
    add_format_argument,
    add_names_argument,
    add_output_arguments,
    listed,
    positive,
    sizes,
)
from ..settings import MODES
from ..workloads import WORKLOADS

SCHEDULERS = ('depth', 'agenda', 'sufficient', 'E_base', 'E_max', 'E_sort', 'fsm', 'beam')


def run(options: argparse.Namespace) -> None:
    """Measure, or draw what was measured."""
    if options.plot:
        from ..schedule_plots import plot_file

        plot_file(options.plot, options.out, options.format)
        return
    from ..schedulers import line_of, measure_schedulers

    for workload in options.workloads or sorted(WORKLOADS):
        for row in measure_schedulers(workload, options):
            print(json.dumps(row) if options.json else line_of(row), flush=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``python -m benchmarks schedulers``."""
    add_names_argument(parser, 'workloads', sorted(WORKLOADS))
    add_data_argument(parser)
    parser.add_argument(
        '--mode',
        choices=MODES,
        default='infer',
        help='what is recorded: losses, too, or not (default: infer)',
    )
    parser.add_argument(
        '--hidden',
        type=positive,
        default=16,
        metavar='H',
        help='width of cells and embeddings: a policy is for types of some shape (default: 16)',
    )
    parser.add_argument(
        '--scheduler',
        type=listed,
        default=SCHEDULERS,
        metavar='NAME[,NAME…]',
        help=f'(default: {",".join(SCHEDULERS)})',
    )
    parser.add_argument(
        '--batch-size',
        type=sizes,
        default='1,32,64,256',
        metavar='N[,N…]',
        help='samples in a minibatch (default: 1,32,64,256)',
    )
    parser.add_argument(
        '--minibatches',
        type=positive,
        default=20,
        metavar='M',
        help='held-out minibatches of each size (default: 20)',
    )
    parser.add_argument(
        '--encoding',
        metavar='NAME',
        help='state encoding of "fsm", whose table decides then (default: what needs least)',
    )
    parser.add_argument(
        '--effort',
        type=int,
        default=100_000,
        metavar='STATES',
        help='of the search for a tighter bound, for each minibatch (default: 100000)',
    )
    parser.add_argument(
        '--characters',
        type=positive,
        metavar='N',
        help='cut lattices, so that those of a minibatch have N characters together',
    )
    parser.add_argument(
        '--policies', type=Path, metavar='DIR', help='read WORKLOAD.json there, or write it'
    )
    add_output_arguments(parser)
    parser.add_argument(
        '--plot',
        type=Path,
        metavar='FILE',
        help='measure nothing: draw the rows of a file, a picture a workload',
    )
    parser.add_argument(
        '--out', type=Path, default=Path('.'), metavar='DIR', help='where to draw (default: here)'
    )
    add_format_argument(parser)
