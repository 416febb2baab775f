"""Classify sentences by sentiment, in as many steps as each needs, as a task of the training
program."""

from typing import NamedTuple

import mxnet as mx
import numpy as np
from mxnet import gluon

import gluon_edbatch as edb
from example.common.options import add_size, nonnegative_float
from example.common.task import Task
from example.sentence_sst.task import SentenceTask
from example.tree_sst.data import NUM_CLASSES

from .model import PonderingReader, PonderLoss

__all__ = ['AdaptiveTask', 'Figures']


class Figures(NamedTuple):
    """`sentence_sst.metrics.Accuracy`, and the mean number of steps of a sentence."""

    five: float
    two: float
    steps: float

    def __str__(self) -> str:
        return f'five {self.five:.4f}  two {self.two:.4f}  steps {self.steps:.2f}'


class AdaptiveTask(SentenceTask):
    """Classify sentences into five classes. One sample is one sentence."""

    name = 'adaptive'
    description = 'Train a model that reads sentences until it knows their sentiment (SST).'
    columns = {**SentenceTask.columns, 'steps': 'steps'}
    defaults = {'hidden': 64, 'lr': 2e-3}
    shape = (*Task.shape, 'most')
    training = (*Task.training, 'price')

    @classmethod
    def add_options(cls, data, model) -> None:
        add_size(model, '--most', 8, 'N', 'steps at most')
        model.add_argument(
            '--price',
            type=nonnegative_float,
            default=0.01,
            metavar='P',
            help='of a step, in the loss',
        )

    def check_options(self) -> None:
        """Accept all options: any combination is valid."""

    def build(self):
        options = self.options
        mx.random.seed(options.seed)
        net = PonderingReader(len(self.vocabs['words']), NUM_CLASSES, options.hidden, options.most)
        net.embed.weight.init = mx.init.Normal(0.3)
        net.initialize(mx.init.Xavier(), ctx=options.ctx)
        return net

    def criterion(self) -> gluon.HybridBlock:
        return PonderLoss(self.options.price)

    def loss(self, net, criterion, sample):
        return self.loss_all(net, criterion, [sample])[0]

    def costs(self, objective, samples):
        """Return costs by number of words: counting calls would compute all values that decide."""
        return np.array([len(sample) for sample in samples], float)

    def loss_all(self, net, criterion, samples):
        """Return losses; all sentences advance together, in training, too."""
        readings = edb.run_concurrently(samples, net.read)
        return [
            criterion(reading.scores, reading.cost, sample.label)
            for reading, sample in zip(readings, samples)
        ]

    def predict(self, net, sample):
        return self.predict_all(net, [sample])[0]

    def predict_all(self, net, samples):
        """Return scores, with numbers of steps in the last column."""
        readings = edb.run_concurrently(samples, net.read)
        steps = mx.nd.array([[reading.steps] for reading in readings], ctx=self.options.ctx)
        return [mx.nd.concat(edb.concat([reading.scores for reading in readings]), steps, dim=1)]

    def measure(self, rows: np.ndarray, samples) -> Figures:
        return Figures(*super().measure(rows[:, :-1], samples), float(rows[:, -1].mean()))

    def describe(self) -> str:
        options = self.options
        return (
            f'words: {len(self.vocabs["words"])}; hidden {options.hidden}, at most {options.most} '
            f'steps for {options.price} each'
        )
