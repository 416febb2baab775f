"""Measure each optimisation: workloads with all of them, without one at a time, without any.

    python -m benchmarks ablation --data DATA --json > results/ablation.jsonl
    python -m benchmarks ablation lattice-lstm --mode infer --batch-size 64 --hidden 64

All variants run in one process on the same model and the same minibatches, in turn (A B A B …).
"ratio" is the median over the repeats of the speed without an option by that with everything on:
0.8 means that the option makes the workload 1.25 times as fast. "cpu ratio" is that of the
processor time over all threads, which a busy machine disturbs less. "types changed" counts the
workload's types on which an option has an effect.
"""

import argparse

from ..arguments import (
    add_batching_arguments,
    add_machine_arguments,
    add_mode_argument,
    add_names_argument,
    add_workload_arguments,
    check_compile_options,
    listed,
    settings_of,
)
from ..output import print_rows
from ..settings import MODES
from ..workloads import WORKLOADS

DEFAULT = ('treelstm-sick', 'treelstm-sst', 'bilstm-tagger')


def run(options: argparse.Namespace) -> None:
    """Measure each workload with and without optimisations, and print the rows."""
    from gluon_edbatch import CompileOptions

    from ..ablation import ablation_table, measure_ablation

    switched = options.option or CompileOptions.names()
    check_compile_options('--option, --without', [*switched, *options.without])
    for workload in options.workloads or DEFAULT:
        for mode in options.mode:
            settings = settings_of(options, workload=workload, mode=mode, system=options.scheduler)
            print_rows(
                measure_ablation(settings, switched, options.without), options.json, ablation_table
            )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``python -m benchmarks ablation``."""
    add_names_argument(parser, 'workloads', sorted(WORKLOADS), ', '.join(DEFAULT))
    parser.add_argument(
        '--option',
        type=listed,
        metavar='NAME[,NAME…]',
        help='only these options are switched off in turn (default: all, see '
        'gluon_edbatch.CompileOptions)',
    )
    parser.add_argument(
        '--without',
        type=listed,
        default=[],
        metavar='NAME[,NAME…]',
        help='options that are off in all variants, such as native',
    )
    add_mode_argument(parser, MODES)
    add_batching_arguments(parser)
    add_workload_arguments(parser)
    add_machine_arguments(parser)
