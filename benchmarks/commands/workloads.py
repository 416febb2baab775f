"""Measure samples a second of a per-sample Gluon model: batched, eager, batched by hand.

    python -m benchmarks treelstm-sick --mode train --scheduler depth,manual --json

``benchmarks/measure.py`` describes what is measured, and by which rule.
"""

import argparse
import json
from dataclasses import replace
from importlib.util import find_spec
from itertools import groupby

from ..arguments import (
    add_machine_arguments,
    add_mode_argument,
    add_workload_arguments,
    names,
    settings_of,
    sizes,
)
from ..output import complain, tables
from ..runner import MeasurementError, measure_in_turn
from ..settings import BATCHED, EAGER, RIVALS, SYSTEMS, Settings
from ..workloads import WORKLOADS

NOT_IN_ALL = ('fsm-reuse', 'lazy-unbatched', 'manual-shared', 'manual-torch-shared')


def run(options: argparse.Namespace) -> int:
    """Measure all cells; those that fail are reported, and the others go on."""
    cells = _cells(options)
    rows, failed = [], False
    for _, group in groupby(cells, lambda cell: replace(cell, system='')):
        for _, row in measure_in_turn(list(group), apart=len(cells) > 1):
            if isinstance(row, MeasurementError):
                complain(row)
                failed = True
                continue
            rows.append(row)
            if options.json:
                print(json.dumps(row), flush=True)
    if rows and not options.json:
        print(tables(rows))
    return 1 if failed else 0


def _cells(options: argparse.Namespace) -> list[Settings]:
    systems = options.scheduler
    if systems == ['all']:
        systems = _all_systems(options.workload)
    return [
        settings_of(options, mode=mode, system=system, batch_size=batch_size)
        for mode in options.mode
        for batch_size in options.batch_size
        for system in systems
    ]


def _systems(text: str) -> list[str]:
    return ['all'] if text == 'all' else names(SYSTEMS)(text)


def _all_systems(workload: str) -> list[str]:
    """Return the systems that the workload and this machine have."""
    systems = [
        name for name in (*BATCHED, *EAGER, *WORKLOADS[workload].rivals) if name not in NOT_IN_ALL
    ]
    if 'manual-torch' in systems and find_spec('torch') is None:
        complain('leaving out manual-torch, as PyTorch is not installed')
        systems.remove('manual-torch')
    return systems


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``python -m benchmarks workloads``."""
    parser.epilog = f"""systems (--scheduler; several with commas, or "all"):
  {', '.join(BATCHED)}
      the per-sample model in gluon_edbatch.batching() with that scheduler; "fsm-reuse" uses what
      each sample recorded before again (gluon_edbatch.Reuse), as in later epochs
  {', '.join(EAGER)}
      the same model as Gluon runs it, one sample at a time
  {', '.join(RIVALS)}
      the same model written for the purpose: "plain" one sample at a time in Gluon alone,
      "manual" batched by hand, in Gluon and in PyTorch; "shared" projects each distinct word of
      a minibatch once, which "all" leaves out; "fused" has MXNet's LSTM layer in the place of
      cells

Several systems, modes or sizes are measured in turn, each in a process of its own."""
    parser.add_argument('workload', choices=sorted(WORKLOADS))
    add_mode_argument(parser, ['train'])
    parser.add_argument(
        '--batch-size',
        type=sizes,
        default='256',
        metavar='N[,N…]',
        help='samples in a minibatch (default: 256)',
    )
    parser.add_argument(
        '--scheduler',
        type=_systems,
        default='agenda',
        metavar='NAME[,NAME…]',
        help='which systems; see below (default: agenda)',
    )
    parser.add_argument(
        '--optimizer',
        choices=('sgd', 'adagrad', 'adam'),
        default='sgd',
        help='the same for all systems (default: sgd)',
    )
    parser.add_argument(
        '--learning-rate',
        type=float,
        default=0.05,
        metavar='LR',
        help='of the optimizer (default: 0.05)',
    )
    add_workload_arguments(parser)
    add_machine_arguments(parser)
