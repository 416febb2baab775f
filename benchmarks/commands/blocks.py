"""Measure single cells by rows: hybridized Gluon against what gluon_edbatch compiles.

    python -m benchmarks blocks --json > results/blocks.jsonl
    python -m benchmarks blocks lstm treelstm-inner --gates apart --rows 32,256

The command measures the execution of one batch only, forward, and forward with backward, in turn (A
B A B …). It prints medians of microseconds a call, and the median of their ratio. "cpu" is the
processor time over all threads, which a busy machine disturbs less. By default each argument of the
compiled batch is gathered by index, as states of trees are; plain Gluon reads whole arrays.
"operators" counts those of a compiled call, gathers included; a native operator is one.
"""

import argparse
import json

from ..arguments import (
    add_machine_arguments,
    add_names_argument,
    check_compile_options,
    listed,
    names,
    positive,
    sizes,
)

NAMES = ('lstm', 'gru', 'mv', 'treelstm-leaf', 'treelstm-inner', 'treegru-leaf', 'treegru-inner')
GATES = ('apart', 'fused')


def run(options: argparse.Namespace) -> None:
    """Measure each cell by number of rows, and print the rows."""
    from ..blocks import BlockSettings, block_table, measure_block

    check_compile_options('--off', options.off)
    for cell in options.cells or NAMES:
        for gates in options.gates:
            rows = []
            for count in options.rows:
                rows += measure_block(
                    BlockSettings(
                        cell=cell,
                        fused=gates == 'fused',
                        rows=count,
                        hidden=options.matrix_hidden if cell == 'mv' else options.hidden,
                        embed=options.embed,
                        reads=options.reads,
                        off=options.off,
                        repeat=options.repeat,
                        seconds=options.seconds,
                        threads=options.threads,
                        seed=options.seed,
                        ctx=options.ctx,
                    )
                )
                if options.json:
                    print('\n'.join(map(json.dumps, rows[-2:])), flush=True)
            if not options.json:
                print(block_table(rows) + '\n', flush=True)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``python -m benchmarks blocks``."""
    add_names_argument(parser, 'cells', NAMES)
    parser.add_argument(
        '--gates',
        type=names(GATES),
        default=GATES,
        metavar='apart|fused',
        help='a Dense layer for each gate; one for all, split by hand; both with '
        'a comma (default: both)',
    )
    parser.add_argument(
        '--rows',
        type=sizes,
        default='1,4,16,32,64,256,1024',
        metavar='N[,N…]',
        help='of the batch (default: 1,4,16,32,64,256,1024)',
    )
    parser.add_argument(
        '--hidden', type=positive, default=256, metavar='H', help='width of the cell (default: 256)'
    )
    parser.add_argument(
        '--matrix-hidden',
        type=positive,
        default=64,
        metavar='H',
        help='width of the matrix-vector cell (default: 64)',
    )
    parser.add_argument(
        '--embed', type=positive, default=256, metavar='E', help='width of the input (default: 256)'
    )
    parser.add_argument(
        '--reads',
        choices=('gather', 'slice'),
        default='gather',
        help='how the compiled batch reads its arguments (default: gather)',
    )
    parser.add_argument(
        '--off',
        type=listed,
        default=[],
        metavar='NAME[,NAME…]',
        help='compile options that are off (see gluon_edbatch.CompileOptions)',
    )
    add_machine_arguments(parser, seconds=0.05)
