"""Scores of the test images of MNIST by a network that is written for one image; see --help."""
import argparse
import sys
from pathlib import Path

if __package__ in (None, ''):               # run as a program: modules are found by package name
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from typing import List, Optional, Sequence

import mxnet as mx
from mxnet.ndarray import NDArray
from torchfold.data import load_test
from torchfold.model import DigitNet
from torchfold.program import (FOLDED, ONE_BY_ONE, add_data_options, difference, make_parser,
                               report, run, seconds_in_turns)

import gluon_edbatch as edb

__all__ = ['folded', 'main', 'one_by_one']


def one_by_one(net: DigitNet, images: Sequence[NDArray]) -> NDArray:
    """Scores (n, 10), an image at a time."""
    return mx.nd.concat(*[net(image) for image in images], dim=0)


def folded(net: DigitNet, images: Sequence[NDArray]) -> NDArray:
    """Scores (n, 10), in batches."""
    fold = edb.Fold()
    scores = [fold.add('scores', fold.add('hidden', image)) for image in images]
    return fold.apply(net, [scores])[0]


def program(options: argparse.Namespace) -> None:
    """Classify the test images both ways."""
    digits = load_test(options.data)
    images = [mx.nd.array(image[None], ctx=options.ctx) for image in digits.images]
    minibatches = [images[begin:begin + options.batch_size]
                   for begin in range(0, len(images), options.batch_size)]
    net = DigitNet(options.hidden)
    net.initialize(mx.init.Xavier(), ctx=options.ctx)

    def scores(way) -> List[NDArray]:
        return [way(net, minibatch) for minibatch in minibatches]
    worst = difference(scores(folded), scores(one_by_one))
    print(f'{len(images)} images in minibatches of {options.batch_size}; largest relative '
          f'difference between the two ways: {worst:.1e}')
    print(report(seconds_in_turns({ONE_BY_ONE: lambda: scores(one_by_one),
                                   FOLDED: lambda: scores(folded)}, options.repeat),
                 len(images), 'images'))


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Command line; gives the exit status."""
    parser = make_parser('Scores of test images by a network without training.', 32)
    add_data_options(parser)
    return run(parser, program, arguments)


if __name__ == '__main__':
    sys.exit(main())
