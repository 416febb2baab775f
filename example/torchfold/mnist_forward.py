"""Score the test images of MNIST by a network that is written for one image; see --help."""

import argparse
import sys
from pathlib import Path

if __package__ in (None, ''):  # run as a program: modules are found by package name
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from collections.abc import Sequence
from typing import NamedTuple, Optional

import gluon_edbatch as edb  # before MXNet, for later versions of NumPy

# isort: split
import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from example.common.options import positive_int
from example.torchfold.data import Digits, load_test
from example.torchfold.model import DigitNet, strips_of
from example.torchfold.program import (
    FOLDED,
    ONE_BY_ONE,
    add_data_options,
    difference,
    make_parser,
    report,
    run,
    seconds_in_turns,
)

__all__ = ['Sample', 'folded', 'main', 'note', 'one_by_one', 'samples_of']


class Sample(NamedTuple):
    """An image, in the form that each way to compute takes best, and its label."""

    strips: list[np.ndarray]
    arrays: list[NDArray]
    label: int


def samples_of(digits: Digits, ctx: mx.Context) -> list[Sample]:
    """Return images as strips."""
    samples = []
    for image, label in zip(*digits):
        strips = strips_of(image)
        samples.append(
            Sample(strips, [mx.nd.array(strip, ctx=ctx) for strip in strips], int(label))
        )
    return samples


def one_by_one(net: DigitNet, samples: Sequence[Sample]) -> NDArray:
    """Return scores (n, 10), an image at a time."""
    return mx.nd.concat(*[net(sample.arrays) for sample in samples], dim=0)


def note(fold: edb.Fold, sample: Sample):
    """Return a handle of the scores of an image, (1, 10)."""
    state = fold.add('begin').nobatch().split(2)
    for strip in sample.strips:
        state = fold.add('read', strip, *state).split(2)
    return fold.add('scores', state[0])


def folded(net: DigitNet, samples: Sequence[Sample]) -> NDArray:
    """Return scores (n, 10), in batches."""
    fold = edb.Fold()
    return fold.apply(net, [[note(fold, sample) for sample in samples]])[0]


def program(options: argparse.Namespace) -> None:
    """Classify the test images in batches and one by one."""
    samples = samples_of(load_test(options.data), options.ctx)[: options.images]
    minibatches = [
        samples[begin : begin + options.batch_size]
        for begin in range(0, len(samples), options.batch_size)
    ]
    net = DigitNet(options.hidden)
    net.initialize(mx.init.Xavier(), ctx=options.ctx)

    def scores(way) -> list[NDArray]:
        return [way(net, minibatch) for minibatch in minibatches]

    worst = difference(scores(folded), scores(one_by_one))
    print(
        f'{len(samples)} images in minibatches of {options.batch_size}; largest relative '
        f'difference between the two ways: {worst:.1e}'
    )
    print(
        report(
            seconds_in_turns(
                {ONE_BY_ONE: lambda: scores(one_by_one), FOLDED: lambda: scores(folded)},
                options.repeat,
            ),
            len(samples),
            'images',
        )
    )


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command line; return the exit status."""
    parser = make_parser('Scores of test images by a network without training.', 32)
    add_data_options(parser)
    parser.add_argument(
        '--images', type=positive_int, default=320, metavar='N', help='how many of them'
    )
    return run(parser, program, arguments)


if __name__ == '__main__':
    sys.exit(main())
