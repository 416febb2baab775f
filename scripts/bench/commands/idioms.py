"""What a call costs as users write it: NDArrays, begin_state, methods, mx.nd, NumPy operands.

    python scripts/benchmark.py idioms
    python scripts/benchmark.py idioms 'y.tanh()' 'mx.nd.tanh(y)' --json

Every sample has an input of its own. "recorded" is what the call takes in a scope, "and run" its
share of the evaluation that follows, of everything recorded, and "eager" the same in hybridized
Gluon without a scope; each without autograd, and forward under it.
"""

import argparse

from ..arguments import add_machine_arguments, positive
from ..output import print_rows


def run(options: argparse.Namespace) -> None:
    """Measure, case by case."""
    from ..idioms import CASES, idiom_table, measure_idiom

    unknown = set(options.idioms) - set(CASES)
    if unknown:
        raise ValueError(f'no idiom {", ".join(sorted(unknown))}; there are {", ".join(CASES)}')
    rows = []
    for name in options.idioms or CASES:
        rows += measure_idiom(
            name,
            options.calls,
            options.hidden,
            options.repeat,
            options.seconds,
            options.ctx,
            options.seed,
        )
    print_rows(rows, options.json, idiom_table)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Of this command."""
    parser.add_argument('idioms', nargs='*', metavar='IDIOM', help='as the table has it')
    parser.add_argument(
        '--calls', type=positive, default=256, metavar='N', help='a round (default: 256)'
    )
    parser.add_argument(
        '--hidden', type=positive, default=8, metavar='H', help='width of values (default: 8)'
    )
    add_machine_arguments(parser, seconds=0.05)
