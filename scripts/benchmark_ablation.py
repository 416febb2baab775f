#!/usr/bin/env python3
"""What each optimisation brings: workloads with all of them, without one at a time, without any.

    python scripts/benchmark_ablation.py --data DATA --json > results/ablation.jsonl
    python scripts/benchmark_ablation.py lattice-lstm --mode infer --batch-size 64 --hidden 64

All variants run in one process on the same model and the same minibatches, in turn (A B A B …).
"ratio" is the median over the repeats of the speed without an option by that with everything on,
so that 0.8 says that the option makes the workload 1.25 times as fast; "cpu ratio" the same of
the processor time over all threads, which a busy machine disturbs less. "types changed" says how
many of the workload's types an option makes a difference to.
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

from bench.arguments import (add_machine_arguments, add_workload_arguments, names,  # noqa: E402
                             positive)
from bench.machine import set_threads, use_cpus  # noqa: E402
from bench.settings import BATCHED, MODES, Settings  # noqa: E402
from bench.workloads import WORKLOADS  # noqa: E402

DEFAULT = ('treelstm-sick', 'treelstm-sst', 'bilstm-tagger')


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Command line; gives the exit status."""
    options = _parser().parse_args(arguments)
    set_threads(options.threads)                # before anything loads MXNet
    try:
        if options.cpus is not None:
            use_cpus(options.cpus)
        return _measure(options)
    except (OSError, ValueError) as error:
        print(f'benchmark_ablation.py: {error}', file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _measure(options: argparse.Namespace) -> int:
    from bench.ablation import ablation_table, measure_ablation
    from gluon_edbatch import CompileOptions
    switched = options.option or CompileOptions.names()
    try:
        CompileOptions().but(**dict.fromkeys([*switched, *options.without], False))
    except TypeError as error:
        raise ValueError(f'--option, --without: {error}') from None
    for workload in options.workloads or DEFAULT:
        for mode in options.mode:
            rows = measure_ablation(Settings(
                workload=workload, mode=mode, system=options.scheduler,
                batch_size=options.batch_size, hidden=options.hidden, embed=options.embed,
                data=options.data, threads=options.threads, repeat=options.repeat,
                minibatches=options.minibatches, seconds=options.seconds, seed=options.seed,
                ctx=options.ctx), switched, options.without)
            text = '\n'.join(map(json.dumps, rows)) if options.json else ablation_table(rows) + '\n'
            print(text, flush=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter,
                                     description=__doc__)
    parser.add_argument('workloads', nargs='*', metavar='WORKLOAD',
                        choices=[*sorted(WORKLOADS), []],
                        help=f'some of {", ".join(sorted(WORKLOADS))} (default: '
                             f'{", ".join(DEFAULT)})')
    parser.add_argument('--option', type=lambda text: text.split(','), metavar='NAME[,NAME…]',
                        help='only these options are switched off in turn (default: all, see '
                             'gluon_edbatch.CompileOptions)')
    parser.add_argument('--without', type=lambda text: text.split(','), default=[],
                        metavar='NAME[,NAME…]',
                        help='options that are off in all variants, such as native')
    parser.add_argument('--mode', type=names(MODES), default=MODES, metavar='train|infer',
                        help='both with a comma (default: both)')
    parser.add_argument('--batch-size', type=positive, default=64, metavar='N',
                        help='samples in a minibatch (default: 64)')
    parser.add_argument('--scheduler', choices=BATCHED, default='fsm', help='(default: fsm)')
    add_workload_arguments(parser)
    add_machine_arguments(parser)
    return parser


if __name__ == '__main__':
    sys.exit(main())
