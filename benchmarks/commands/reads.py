"""Measure models that read values in the middle: plain code against ``yield``, and eager Gluon.

    python -m benchmarks reads
    python -m benchmarks reads parser pointer --samples 256

Plain code runs in ``net.batch(samples)``, the form with ``yield`` in ``edb.run_concurrently``. In
each round both run the same minibatch, in turns. Eager Gluon is hybridized and runs 8 of the
samples, one after the other. Scheduled sampling trains: its figures have gradients in them.
"""

import argparse

from ..arguments import add_machine_arguments, positive
from ..output import print_rows


def run(options: argparse.Namespace) -> None:
    """Measure each model, and print the rows."""
    from ..reading_models import MODELS
    from ..reads import measure_reads, reads_table

    unknown = set(options.models) - set(MODELS)
    if unknown:
        raise ValueError(f'no model {", ".join(sorted(unknown))}; there are {", ".join(MODELS)}')
    rows = [
        measure_reads(name, options.samples, options.repeat, options.seconds)
        for name in options.models or MODELS
    ]
    print_rows(rows, options.json, reads_table)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``python -m benchmarks reads``."""
    parser.add_argument('models', nargs='*', metavar='MODEL', help='as the table has it')
    parser.add_argument(
        '--samples', type=positive, default=64, metavar='N', help='a minibatch (default: 64)'
    )
    add_machine_arguments(parser)
