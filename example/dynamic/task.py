"""Train a network of the table as a task of the training program."""

from typing import NamedTuple

import mxnet as mx
import numpy as np
from mxnet import gluon

from example.common.errors import OptionError
from example.common.options import positive_float, positive_int
from example.common.task import Task
from example.torchfold.data import LAYOUT

from .compiled import HOSTS, host_of, run_compiled
from .data import images_of, read_splits
from .network import DynamicNetwork
from .networks import NETWORKS, SAMPLE, build, draw_samples

__all__ = ['DynamicTask', 'Figures']

_COUNTS = {'train': 12000, 'dev': 300, 'test': 1000}


class Figures(NamedTuple):
    """Shares of right answers and of samples whose path is not the longest one, and the mean of
    exits, blocks or words of a sample."""

    right: float
    early: float
    units: float

    def __str__(self) -> str:
        return f'right {self.right:.4f}  early {self.early:.4f}  units {self.units:.2f}'


class DynamicTask(Task):
    """Tell what an image shows. One sample is one image; in training a minibatch takes one path."""

    name = 'dynamic'
    description = 'Train a network whose path depends on what it computes (MNIST).'
    sample = SAMPLE
    layout = LAYOUT
    unit, units = 'image', 'images'
    columns = {'right': 'right', 'early': 'early', 'units': 'units'}
    best_by = 'right'
    batched = False
    defaults = {'lr': 5e-3, 'batch_size': 32, 'epochs': 5}
    shape = ('network',)
    training = (*Task.training, 'threshold', 'train_images')

    @classmethod
    def add_options(cls, data, model) -> None:
        names = list(NETWORKS)
        text = f'one of {", ".join(names)}'
        model.add_argument('--network', choices=names, default=names[0], metavar='NAME', help=text)
        model.add_argument(
            '--threshold',
            type=positive_float,
            metavar='P',
            help='exit, or run a block, where the probability is above it (default: 0.9, 0.5)',
        )
        counts = {'train': 'digits: all; canvases: 12000', 'dev': '300', 'test': '1000'}
        for split, default in counts.items():
            data.add_argument(
                f'--{split}-images',
                type=positive_int,
                metavar='N',
                help=f'images of {split} (default: {default})',
            )

    @classmethod
    def add_run_options(cls, running) -> None:
        running.add_argument(
            '--compile',
            action='store_true',
            help='at the end, run the test images through the compiled program, together, and '
            'compare with one by one',
        )
        running.add_argument(
            '--export',
            metavar='FOLDER',
            help='write the compiled program there, for hosts with MXNet or without (with '
            '--compile)',
        )
        running.add_argument(
            '--host',
            choices=list(HOSTS),
            help='what runs it: MXNet, or ONNX Runtime and NumPy, each by what was exported '
            '(default: MXNet, without exporting; with --compile)',
        )

    def __init__(self, options, state=None):
        self.options = options
        self.samples = {}
        if options.threshold is not None and NETWORKS[options.network].canvases:
            raise OptionError(f'--threshold: {options.network} says words until the end symbol')
        host_of(options.host)  # told before anything is trained
        for split, digits in read_splits(options.data).items():
            count = getattr(options, f'{split}_images') or _COUNTS[split]
            self.samples[split] = draw_samples(options.network, digits, split, count)

    def state(self):
        return {}

    def build(self) -> DynamicNetwork:
        options = self.options
        mx.random.seed(options.seed)
        sizes = {} if options.threshold is None else {'threshold': options.threshold}
        network = build(options.network, options.ctx, **sizes)
        self._most, self._units = network.most, network.units
        return network

    def criterion(self) -> gluon.HybridBlock:
        return gluon.loss.SoftmaxCrossEntropyLoss()

    def loss(self, net, criterion, sample):
        return self.loss_all(net, criterion, [sample])[0]

    def loss_all(self, net, criterion, samples):
        """Return the loss of a minibatch as one array."""
        images = mx.nd.array(images_of(samples), ctx=self.options.ctx)
        return [net.losses(images, [sample.target for sample in samples], criterion)]

    def predict(self, net, sample):
        """Return whether the answer is right, and how many units it took."""
        result = net(mx.nd.array(images_of([sample]), ctx=self.options.ctx))
        return mx.nd.array([net.judge(result, sample.target)])

    def measure(self, rows: np.ndarray, samples) -> Figures:
        right, units = rows.mean(axis=0)
        return Figures(float(right), float((rows[:, 1] < self._most).mean()), float(units))

    def describe(self) -> str:
        return f'{self.options.network}, at most {self._most} {self._units}'

    def conclude(self, net):
        options = self.options
        if options.compile or options.export or options.host:
            yield from run_compiled(self, net, options)
