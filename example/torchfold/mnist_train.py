"""Trains a network that is written for one image on MNIST, with Adam; see --help."""

import argparse
import sys
import time
from pathlib import Path

if __package__ in (None, ''):  # run as a program: modules are found by package name
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from typing import Optional, Sequence

import mxnet as mx
import numpy as np
from common.options import positive_float, positive_int
from mxnet import autograd, gluon
from mxnet.ndarray import NDArray
from tqdm import tqdm

import gluon_edbatch as edb
from torchfold.data import load_test, load_train
from torchfold.mnist_forward import Sample, folded, note, samples_of
from torchfold.model import DigitNet
from torchfold.program import (
    FOLDED,
    ONE_BY_ONE,
    add_data_options,
    make_parser,
    report,
    run,
    seconds_in_turns,
)

__all__ = ['FoldedTraining', 'OneByOneTraining', 'main']


class FoldedTraining:
    """Network and trainer; all images of a minibatch are computed together.

    Parameters
    ----------
    options : argparse.Namespace
        The command line.
    """

    grad_req = 'write'

    def __init__(self, options: argparse.Namespace):
        mx.random.seed(options.seed)
        self.net = DigitNet(options.hidden)
        self.net.initialize(mx.init.Xavier(), ctx=options.ctx)
        self.net.collect_params().setattr('grad_req', self.grad_req)
        self.loss = gluon.loss.SoftmaxCrossEntropyLoss()
        self.trainer = gluon.Trainer(
            self.net.collect_params(), 'adam', {'learning_rate': options.lr}
        )

    def step(self, minibatch: Sequence[Sample]) -> NDArray:
        """One update of the parameters; gives the sum of the losses."""
        fold = edb.Fold()
        nodes = [note(fold, sample) for sample in minibatch]
        with autograd.record():
            scores, labels = fold.apply(self.net, [nodes, [sample.label for sample in minibatch]])
            loss = self.loss(scores, labels).sum()
        loss.backward()
        self.trainer.step(len(minibatch))
        return loss


class OneByOneTraining(FoldedTraining):
    """The same, forward and backward for one image after the other; their gradients add up."""

    grad_req = 'add'

    def step(self, minibatch: Sequence[Sample]) -> NDArray:
        """One update of the parameters; gives the sum of the losses."""
        total = 0
        for sample in minibatch:
            label = mx.nd.array([sample.label], ctx=sample.arrays[0].ctx)
            with autograd.record():
                loss = self.loss(self.net(sample.arrays), label)
            loss.backward()
            total = total + loss
        self.trainer.step(len(minibatch))
        self.net.collect_params().zero_grad()
        return total


def accuracy(net: DigitNet, samples: Sequence[Sample]) -> float:
    """How many of the digits are told right."""
    right = 0
    for begin in range(0, len(samples), 256):
        some = samples[begin : begin + 256]
        found = folded(net, some).asnumpy().argmax(axis=1)
        right += int((found == [sample.label for sample in some]).sum())
    return right / len(samples)


def train(
    training: FoldedTraining,
    samples: Sequence[Sample],
    test: Sequence[Sample],
    options: argparse.Namespace,
) -> None:
    """Train all epochs, and print what was reached after each."""
    generator = np.random.RandomState(options.seed)
    for epoch in range(1, options.epochs + 1):
        order = generator.permutation(len(samples))
        losses, begin = [], time.perf_counter()
        for first in tqdm(
            range(0, len(order), options.batch_size),
            desc=f'epoch {epoch}',
            unit='minibatch',
            leave=False,
            disable=None,
        ):
            minibatch = [samples[i] for i in order[first : first + options.batch_size]]
            losses.append(training.step(minibatch))
        total = sum(float(loss.asscalar()) for loss in losses)
        speed = len(samples) / (time.perf_counter() - begin)
        print(
            f'epoch {epoch}  loss {total / len(samples):.4f}  test accuracy '
            f'{accuracy(training.net, test):.4f}  {speed:.0f} images/s',
            flush=True,
        )


def compare(samples: Sequence[Sample], options: argparse.Namespace) -> None:
    """Time some minibatches of training both ways, in turns."""
    size = options.batch_size
    minibatches = [
        samples[begin : begin + size] for begin in range(0, min(len(samples), 3 * size), size)
    ]

    def steps(training: FoldedTraining):
        return lambda: [training.step(minibatch) for minibatch in minibatches]

    print(
        report(
            seconds_in_turns(
                {
                    ONE_BY_ONE: steps(OneByOneTraining(options)),
                    FOLDED: steps(FoldedTraining(options)),
                },
                options.repeat,
            ),
            sum(map(len, minibatches)),
            'images',
        )
    )


def program(options: argparse.Namespace) -> None:
    """Time both ways to train, then train one way."""
    samples = samples_of(load_train(options.data), options.ctx)
    test = samples_of(load_test(options.data), options.ctx)
    print(
        f'{len(samples)} training and {len(test)} test images, minibatches of {options.batch_size}',
        flush=True,
    )
    compare(samples, options)
    train(
        (OneByOneTraining if options.unbatched else FoldedTraining)(options), samples, test, options
    )


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Command line; gives the exit status."""
    parser = make_parser('Train a classifier of digits.', 32)
    add_data_options(parser)
    parser.add_argument(
        '--epochs',
        type=positive_int,
        default=5,
        metavar='N',
        help='passes over the training images',
    )
    parser.add_argument('--lr', type=positive_float, default=3e-3, help='learning rate of Adam')
    parser.add_argument(
        '--unbatched',
        action='store_true',
        help='train one image at a time, which gives the same numbers',
    )
    return run(parser, program, arguments)


if __name__ == '__main__':
    sys.exit(main())
