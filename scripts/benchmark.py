#!/usr/bin/env python3
"""How many samples a second a per-sample Gluon model runs at: batched, eager, batched by hand.

    python scripts/benchmark.py treelstm-sick --mode train --scheduler depth,manual --json

What is measured, and by which rule, is said in ``bench/measure.py``.
"""
import argparse
import json
import sys
from dataclasses import replace
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import List, Optional, Sequence

ROOT = Path(__file__).resolve().parents[1]
for _directory in (ROOT / 'example', ROOT):     # the root: also without an installation
    if str(_directory) not in sys.path:
        sys.path.append(str(_directory))

from bench.arguments import (add_machine_arguments, add_workload_arguments, names,  # noqa: E402
                             sizes)
from bench.machine import set_threads, use_cpus  # noqa: E402
from bench.output import tables  # noqa: E402
from bench.runner import MeasurementError, measure_in_turn  # noqa: E402
from bench.settings import BATCHED, EAGER, MODES, RIVALS, SYSTEMS, Settings  # noqa: E402
from bench.workloads import WORKLOADS  # noqa: E402

NOT_IN_ALL = ('fsm-reuse', 'lazy-unbatched', 'manual-shared', 'manual-torch-shared')


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Command line; gives the exit status."""
    options = _parser().parse_args(arguments)
    set_threads(options.threads)                # before anything loads MXNet
    try:
        if options.cpus is not None:
            use_cpus(options.cpus)
    except ValueError as error:
        print(f'benchmark.py: {error}', file=sys.stderr)
        return 2
    if options.scheduler == ['all']:
        options.scheduler = _all_systems(options.workload)
    cells = _cells(options)
    rows, failed = [], False
    try:
        for _, group in groupby(cells, lambda cell: replace(cell, system='')):
            for settings, row in measure_in_turn(list(group), apart=len(cells) > 1):
                if isinstance(row, MeasurementError):
                    print(f'benchmark.py: {row}', file=sys.stderr)
                    failed = True
                    continue
                rows.append(row)
                if options.json:
                    print(json.dumps(row), flush=True)
    except KeyboardInterrupt:
        return 130
    if rows and not options.json:
        print(tables(rows))
    return 1 if failed else 0


def _cells(options: argparse.Namespace) -> List[Settings]:
    return [Settings(
        workload=options.workload, mode=mode, system=system, batch_size=batch_size,
        hidden=options.hidden, embed=options.embed, data=options.data,
        threads=options.threads, repeat=options.repeat, minibatches=options.minibatches,
        seconds=options.seconds, seed=options.seed, optimizer=options.optimizer,
        learning_rate=options.learning_rate, ctx=options.ctx)
        for mode in options.mode for batch_size in options.batch_size
        for system in options.scheduler]


def _systems(text: str) -> List[str]:
    return ['all'] if text == 'all' else names(SYSTEMS)(text)


def _all_systems(workload: str) -> List[str]:
    """Those that the workload and this machine have."""
    systems = [name for name in (*BATCHED, *EAGER, *WORKLOADS[workload].rivals)
               if name not in NOT_IN_ALL]
    if 'manual-torch' in systems and find_spec('torch') is None:
        print('benchmark.py: leaving out manual-torch, as PyTorch is not installed',
              file=sys.stderr)
        systems.remove('manual-torch')
    return systems


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__,
        epilog=f'''systems (--scheduler; several with commas, or "all"):
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

Several systems, modes or sizes are measured in turn, each in a process of its own.''')
    parser.add_argument('workload', choices=sorted(WORKLOADS))
    parser.add_argument('--mode', type=names(MODES), default='train', metavar='train|infer',
                        help='both with a comma (default: train)')
    parser.add_argument('--batch-size', type=sizes, default='256', metavar='N[,N…]',
                        help='samples in a minibatch (default: 256)')
    parser.add_argument('--scheduler', type=_systems, default='agenda', metavar='NAME[,NAME…]',
                        help='which systems; see below (default: agenda)')
    parser.add_argument('--optimizer', choices=('sgd', 'adagrad', 'adam'), default='sgd',
                        help='the same for all systems (default: sgd)')
    parser.add_argument('--learning-rate', type=float, default=0.05, metavar='LR',
                        help='of the optimizer (default: 0.05)')
    add_workload_arguments(parser)
    add_machine_arguments(parser)
    return parser


if __name__ == '__main__':
    sys.exit(main())
