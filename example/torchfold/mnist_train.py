"""Train a network that is written for one image on MNIST, with Adam; see --help."""

import argparse
import sys
import time
from pathlib import Path

if __package__ in (None, ''):  # run as a program: modules are found by package name
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from collections.abc import Sequence
from typing import Optional

import gluon_edbatch as edb  # before MXNet, for later versions of NumPy

# isort: split
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.ndarray import NDArray

from example.common.options import add_kvstore, positive_float, positive_int
from example.common.progress import progress_bar
from example.torchfold.data import load_test, load_train
from example.torchfold.mnist_forward import Sample, folded, note, samples_of
from example.torchfold.model import DigitNet
from example.torchfold.program import (
    FOLDED,
    ONE_BY_ONE,
    add_data_options,
    make_parser,
    report,
    run,
    seconds_in_turns,
)
from gluon_edbatch.data import BalancedSampler
from gluon_edbatch.distributed import Trainer, Workers, connect

__all__ = ['FoldedTraining', 'OneByOneTraining', 'main']


class FoldedTraining:
    """Train on minibatches whose images are computed together.

    Parameters
    ----------
    options : argparse.Namespace
        The command line.
    workers : gluon_edbatch.distributed.Workers, optional
        Workers that train together; by default this process alone.
    """

    grad_req = 'write'

    def __init__(self, options: argparse.Namespace, workers: Optional[Workers] = None):
        self.workers = workers or connect()
        mx.random.seed(options.seed)
        self.net = DigitNet(options.hidden)
        self.net.initialize(mx.init.Xavier(), ctx=options.ctx)
        self.net.collect_params().setattr('grad_req', self.grad_req)
        self.loss = gluon.loss.SoftmaxCrossEntropyLoss()
        self.trainer = Trainer(
            self.net.collect_params(), 'adam', {'learning_rate': options.lr}, workers=self.workers
        )

    def step(self, minibatch: Sequence[Sample], joined: int) -> NDArray:
        """Update the parameters once; return the sum of the losses. All workers have `joined`
        images."""
        fold = edb.Fold()
        nodes = [note(fold, sample) for sample in minibatch]
        with autograd.record():
            scores, labels = fold.apply(self.net, [nodes, [sample.label for sample in minibatch]])
            loss = self.loss(scores, labels).sum()
        loss.backward()
        self.trainer.step(joined)
        return loss


class OneByOneTraining(FoldedTraining):
    """Train on one image after the other, forward and backward; gradients are added."""

    grad_req = 'add'

    def step(self, minibatch: Sequence[Sample], joined: int) -> NDArray:
        """Update the parameters once; return the sum of the losses."""
        total = 0
        for sample in minibatch:
            label = mx.nd.array([sample.label], ctx=sample.arrays[0].ctx)
            with autograd.record():
                loss = self.loss(self.net(sample.arrays), label)
            loss.backward()
            total = total + loss
        self.trainer.step(joined)
        self.net.collect_params().zero_grad()
        return total


def accuracy(net: DigitNet, samples: Sequence[Sample]) -> float:
    """Return the share of digits that are recognised."""
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
    """Train all epochs, and print the accuracy after each."""
    workers = training.workers
    sampler = BalancedSampler(
        len(samples),
        options.batch_size,
        num_workers=workers.size,
        rank=workers.rank,
        seed=options.seed,
    )
    for epoch in range(1, options.epochs + 1):
        losses, begin = [], time.perf_counter()
        with progress_bar(
            total=len(sampler),
            desc=f'epoch {epoch}',
            unit='minibatch',
            leave=False,
            disable=True if workers.rank else None,
        ) as bar:
            for indices, joined in zip(sampler.epoch(epoch), sampler.joined_sizes):
                losses.append(training.step([samples[i] for i in indices], joined))
                bar.update()
        total = sum(float(loss.asscalar()) for loss in losses)
        total = float(workers.sum_numbers(np.array([total]))[0])
        speed = len(samples) / (time.perf_counter() - begin)
        if workers.rank == 0:
            print(
                f'epoch {epoch}  loss {total / len(samples):.4f}  test accuracy '
                f'{accuracy(training.net, test):.4f}  {speed:.0f} images/s',
                flush=True,
            )


def compare(samples: Sequence[Sample], options: argparse.Namespace) -> None:
    """Time minibatches of training in batches and one by one, in turns."""
    size = options.batch_size
    minibatches = [
        samples[begin : begin + size] for begin in range(0, min(len(samples), 3 * size), size)
    ]

    def steps(training: FoldedTraining):
        return lambda: [training.step(minibatch, len(minibatch)) for minibatch in minibatches]

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
    """Time training in batches and one by one, then train in one of these ways."""
    samples = samples_of(load_train(options.data), options.ctx)
    test = samples_of(load_test(options.data), options.ctx)
    with connect(options.kvstore) as workers:
        if workers.rank == 0:
            print(
                f'{len(samples)} training and {len(test)} test images, minibatches of '
                f'{options.batch_size}',
                flush=True,
            )
        if workers.size == 1:
            compare(samples, options)
        way = OneByOneTraining if options.unbatched else FoldedTraining
        train(way(options, workers), samples, test, options)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command line; return the exit status."""
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
    add_kvstore(parser)
    parser.add_argument(
        '--unbatched',
        action='store_true',
        help='train one image at a time, which gives the same numbers',
    )
    return run(parser, program, arguments)


if __name__ == '__main__':
    sys.exit(main())
