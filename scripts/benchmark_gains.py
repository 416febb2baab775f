#!/usr/bin/env python3
"""What batching gains, on the workloads of DyNet's page on automatic batching.

    python scripts/benchmark_gains.py --data DATA --json > results/gains.jsonl
    python scripts/benchmark_gains.py bilstm-tagger-equal --data DATA

A workload's per-sample model runs in batches and, in turn (A B A B …), as Gluon runs it, one sample
at a time; bilstm-tagger-equal, whose sentences all have one length, against the same model batched
by hand: with its own cells, and with MXNet's fused LSTM layer. "gain" is how many times as many
samples a second run in batches (medians), "at least" how many times it should be: what DyNet gains,
and that by hand is at most 1.1 times faster. Widths are those of DyNet's programs, the optimizer is
Adam as there.
"""
import argparse
import json
import sys
from pathlib import Path
from typing import Optional, Sequence

ROOT = Path(__file__).resolve().parents[1]
for _directory in (ROOT / 'example', ROOT):     # the root: also without an installation
    if str(_directory) not in sys.path:
        sys.path.append(str(_directory))

from bench.arguments import add_machine_arguments, add_workload_arguments, positive  # noqa: E402
from bench.gains import COMPARISONS, gains_table, measure_gains  # noqa: E402
from bench.machine import set_threads, use_cpus  # noqa: E402
from bench.runner import MeasurementError  # noqa: E402
from bench.settings import BATCHED  # noqa: E402


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Command line; gives the exit status."""
    options = _parser().parse_args(arguments)
    set_threads(options.threads)                # before anything loads MXNet
    failed = False
    try:
        if options.cpus is not None:
            use_cpus(options.cpus)
        for workload in options.workloads or COMPARISONS:
            try:
                rows = _measure(workload, options)
            except MeasurementError as error:
                print(f'benchmark_gains.py: {workload}: {error}', file=sys.stderr)
                failed = True
                continue
            print('\n'.join(map(json.dumps, rows)) if options.json else gains_table(rows) + '\n',
                  flush=True)
    except ValueError as error:
        print(f'benchmark_gains.py: {error}', file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 1 if failed else 0


def _measure(workload: str, options: argparse.Namespace):
    return measure_gains(
        workload, options.hidden, options.embed, system=options.scheduler,
        batch_size=options.batch_size, data=options.data, threads=options.threads,
        repeat=options.repeat, minibatches=options.minibatches, seconds=options.seconds,
        seed=options.seed, optimizer='adam', learning_rate=0.001, ctx=options.ctx)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter,
                                     description=__doc__)
    parser.add_argument('workloads', nargs='*', metavar='WORKLOAD', choices=[*COMPARISONS, []],
                        help=f'some of {", ".join(COMPARISONS)} (default: all)')
    parser.add_argument('--batch-size', type=positive, default=64, metavar='N',
                        help='samples in a minibatch (default: 64)')
    parser.add_argument('--scheduler', choices=BATCHED, default='fsm', metavar='NAME',
                        help=f'how batches are chosen, one of {", ".join(BATCHED)} (default: fsm)')
    add_workload_arguments(parser, hidden=None, embed=None)
    add_machine_arguments(parser)
    return parser


if __name__ == '__main__':
    sys.exit(main())
