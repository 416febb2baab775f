"""Measure what batching gains, on the workloads of DyNet's page on automatic batching.

    python -m benchmarks gains --data DATA --json > results/gains.jsonl
    python -m benchmarks gains bilstm-tagger-equal --data DATA

A workload's per-sample model runs in batches and, in turn (A B A B …), eagerly, one sample at a
time. The sentences of bilstm-tagger-equal have one length: its rival is the model batched by hand,
with its own cells, and with MXNet's fused LSTM layer. "gain" is the ratio of samples a second
(medians). "at least" is the required gain: DyNet's, or at most 1.1 times slower than by hand.
Widths and optimizer (Adam) are those of DyNet's programs.
"""

import argparse

from ..arguments import (
    add_batching_arguments,
    add_machine_arguments,
    add_names_argument,
    add_workload_arguments,
    settings_of,
)
from ..gains import COMPARISONS, gains_table, measure_gains
from ..output import complain, print_rows
from ..runner import MeasurementError


def run(options: argparse.Namespace) -> int:
    """Measure what each workload gains; report one that fails, and go on with the others."""
    failed = False
    for workload in options.workloads or COMPARISONS:
        comparison = COMPARISONS[workload]
        settings = settings_of(
            options,
            workload=workload,
            mode='',
            system=options.scheduler,
            optimizer='adam',
            learning_rate=0.001,
            hidden=options.hidden or comparison.hidden,
            embed=options.embed or comparison.embed,
        )
        try:
            print_rows(measure_gains(settings), options.json, gains_table)
        except MeasurementError as error:
            complain(f'{workload}: {error}')
            failed = True
    return 1 if failed else 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``python -m benchmarks gains``."""
    add_names_argument(parser, 'workloads', list(COMPARISONS))
    add_batching_arguments(parser)
    add_workload_arguments(parser, hidden=None, embed=None)
    add_machine_arguments(parser)
