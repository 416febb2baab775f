#!/usr/bin/env python3
"""Single cells by rows: plain Gluon, hybridized, against what gluon_edbatch compiles.

    python scripts/benchmark_blocks.py --json > results/blocks.jsonl
    python scripts/benchmark_blocks.py lstm treelstm-inner --gates apart --rows 32,256

Measured is the execution of one batch and nothing else, forward, and forward with backward, in
turn (A B A B …): medians of microseconds a call, and the median of their ratio, on the clock and
("cpu") of the processor time over all threads, which a busy machine disturbs less. By default each
argument of the compiled batch is gathered by index, as states of trees are; plain Gluon reads
whole arrays. "operators" counts those of a compiled call, gathers included; a native operator is
one.
"""
import argparse
import json
import sys
from pathlib import Path
from typing import Optional, Sequence

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:       # also without an installation
    sys.path.append(str(ROOT))

from bench.arguments import add_machine_arguments, names, positive, sizes  # noqa: E402
from bench.machine import set_threads, use_cpus  # noqa: E402

NAMES = ('lstm', 'gru', 'mv', 'treelstm-leaf', 'treelstm-inner', 'treegru-leaf', 'treegru-inner')
GATES = ('apart', 'fused')


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Command line; gives the exit status."""
    options = _parser().parse_args(arguments)
    set_threads(options.threads)                # before anything loads MXNet
    try:
        if options.cpus is not None:
            use_cpus(options.cpus)
        _measure(options)
    except (TypeError, ValueError) as error:
        print(f'benchmark_blocks.py: {error}', file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _measure(options: argparse.Namespace) -> None:
    from bench.blocks import BlockSettings, block_table, measure_block
    for cell in options.cells or NAMES:
        for gates in options.gates:
            rows = []
            for count in options.rows:
                rows += measure_block(BlockSettings(
                    cell=cell, fused=gates == 'fused', rows=count,
                    hidden=options.matrix_hidden if cell == 'mv' else options.hidden,
                    embed=options.embed, reads=options.reads, off=options.off,
                    repeat=options.repeat, seconds=options.seconds, threads=options.threads,
                    seed=options.seed, ctx=options.ctx))
                if options.json:
                    print('\n'.join(map(json.dumps, rows[-2:])), flush=True)
            if not options.json:
                print(block_table(rows) + '\n', flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter,
                                     description=__doc__)
    parser.add_argument('cells', nargs='*', metavar='CELL', choices=[*NAMES, []],
                        help=f'some of {", ".join(NAMES)} (default: all)')
    parser.add_argument('--gates', type=names(GATES), default=GATES, metavar='apart|fused',
                        help='a Dense layer for each gate; one for all, split by hand; both with '
                             'a comma (default: both)')
    parser.add_argument('--rows', type=sizes, default='1,4,16,32,64,256,1024', metavar='N[,N…]',
                        help='of the batch (default: 1,4,16,32,64,256,1024)')
    parser.add_argument('--hidden', type=positive, default=256, metavar='H',
                        help='width of the cell (default: 256)')
    parser.add_argument('--matrix-hidden', type=positive, default=64, metavar='H',
                        help='width of the matrix-vector cell (default: 64)')
    parser.add_argument('--embed', type=positive, default=256, metavar='E',
                        help='width of the input (default: 256)')
    parser.add_argument('--reads', choices=('gather', 'slice'), default='gather',
                        help='how the compiled batch reads its arguments (default: gather)')
    parser.add_argument('--off', type=lambda text: text.split(','), default=[],
                        metavar='NAME[,NAME…]',
                        help='compile options that are off (see gluon_edbatch.CompileOptions)')
    add_machine_arguments(parser, seconds=0.05)
    return parser


if __name__ == '__main__':
    sys.exit(main())
