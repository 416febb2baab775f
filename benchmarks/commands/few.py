"""Measure few and large calls: in a scope, in batches alone, and in hybridized Gluon.

    python -m benchmarks few
    python -m benchmarks few convolution relu --samples 1 8

Large calls run eagerly: "scope" is with that, "in batches" with CompileOptions(at_once=False).
"""

import argparse

from ..arguments import add_machine_arguments, positive
from ..output import print_rows


def run(options: argparse.Namespace) -> None:
    """Measure each layer, and print the rows."""
    from ..few import LAYERS, few_table, measure_few

    unknown = set(options.layers) - set(LAYERS)
    if unknown:
        raise ValueError(f'no layer {", ".join(sorted(unknown))}; there are {", ".join(LAYERS)}')
    rows = []
    for name in options.layers or LAYERS:
        rows += measure_few(
            name, options.samples, options.repeat, options.seconds, options.ctx, options.seed
        )
    print_rows(rows, options.json, few_table)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``python -m benchmarks few``."""
    parser.add_argument('layers', nargs='*', metavar='LAYER', help='as the table has it')
    parser.add_argument(
        '--samples', type=positive, nargs='+', default=[1, 2, 4, 8], metavar='N', help='in a scope'
    )
    add_machine_arguments(parser, seconds=0.2)
