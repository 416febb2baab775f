"""Measure calls and models as users write them: NDArrays, methods, mx.nd, masks, NumPy mode.

    python -m benchmarks idioms
    python -m benchmarks idioms 'y.tanh()' 'mx.nd.tanh(y)' --json

Every sample has its own input. "recorded" is the time of the call in a scope, "and run" its share
of the evaluation that follows. "eager" is the time in hybridized Gluon without a scope. Each is
measured without autograd, and forward under it. "times" is how many times as fast as eager Gluon a
minibatch is with the layer that makes y, whose batch is among "batches", too. Models have a table
of their own: forward, and with gradients in training.
"""

import argparse

from ..arguments import add_machine_arguments, positive
from ..output import print_rows


def run(options: argparse.Namespace) -> None:
    """Measure each idiom and model, and print the rows."""
    from ..idiom_models import MODELS, measure_model, model_table
    from ..idioms import CASES, idiom_table, measure_idiom

    unknown = set(options.idioms) - {*CASES, *MODELS}
    if unknown:
        there = ', '.join([*CASES, *MODELS])
        raise ValueError(f'no idiom {", ".join(sorted(unknown))}; there are {there}')
    for known, measure, table in (
        (CASES, measure_idiom, idiom_table),
        (MODELS, measure_model, model_table),
    ):
        rows = []
        for name in options.idioms or known:
            if name in known:
                rows += measure(
                    name,
                    options.calls,
                    options.hidden,
                    options.repeat,
                    options.seconds,
                    options.ctx,
                    options.seed,
                )
        if rows:
            print_rows(rows, options.json, table)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``python -m benchmarks idioms``."""
    parser.add_argument('idioms', nargs='*', metavar='IDIOM', help='as the table has it')
    parser.add_argument(
        '--calls', type=positive, default=256, metavar='N', help='a round (default: 256)'
    )
    parser.add_argument(
        '--hidden', type=positive, default=8, metavar='H', help='width of values (default: 8)'
    )
    add_machine_arguments(parser, seconds=0.05)
