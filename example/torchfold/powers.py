"""Compute powers by multiplying, a different number of times for each sample; see --help."""

import argparse
import sys
from pathlib import Path

if __package__ in (None, ''):  # run as a program: modules are found by package name
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from collections.abc import Sequence
from typing import Optional, Union

import gluon_edbatch as edb  # before MXNet, for later versions of NumPy

# isort: split
import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from example.torchfold.program import (
    FOLDED,
    ONE_BY_ONE,
    difference,
    make_parser,
    report,
    run,
    seconds_in_turns,
)

__all__ = ['main']

WIDTH, LARGEST = 64, 20


class Arithmetic:
    """An object with methods to note by name; it need not be a Block."""

    def multiply(self, one, other):
        """Return the product, element by element."""
        return one * other


def powers(
    fold: Union[edb.Fold, edb.Unfold],
    arithmetic: Arithmetic,
    bases: Sequence[NDArray],
    exponents: Sequence[int],
) -> NDArray:
    """Return each base to its power, one below the other."""
    results: list = []
    for base, exponent in zip(bases, exponents):
        result = base
        for _ in range(exponent - 1):
            result = fold.add('multiply', result, base)
        results.append(result)
    return fold.apply(arithmetic, [results])[0]


def program(options: argparse.Namespace) -> None:
    """Compute powers in batches and one by one, and compare them with Python's."""
    generator, arithmetic = np.random.RandomState(options.seed), Arithmetic()
    values = generator.uniform(0.5, 1.5, (options.batch_size, WIDTH))
    exponents = generator.randint(1, LARGEST + 1, options.batch_size)
    bases = [mx.nd.array(row[None], ctx=options.ctx) for row in values]
    ways = {
        ONE_BY_ONE: lambda: powers(edb.Unfold(arithmetic), arithmetic, bases, exponents),
        FOLDED: lambda: powers(edb.Fold(), arithmetic, bases, exponents),
    }
    expected = mx.nd.array(values ** exponents[:, None], ctx=options.ctx)
    worst = max(difference([way()], [expected]) for way in ways.values())
    print(
        f'{len(bases)} samples of {WIDTH} numbers to powers up to {LARGEST}; '
        f'largest relative difference from Python: {worst:.1e}'
    )
    print(report(seconds_in_turns(ways, options.repeat), len(bases), 'samples'))


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command line; return the exit status."""
    return run(make_parser('Powers by repeated multiplication.', 64), program, arguments)


if __name__ == '__main__':
    sys.exit(main())
