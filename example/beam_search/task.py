"""Complete words without vowels as a task of the training program."""

from pathlib import Path
from typing import NamedTuple

import mxnet as mx
import numpy as np
from mxnet import gluon

import gluon_edbatch as edb
from example.common.options import add_size, positive_float
from example.common.task import Task

from .beam import Search
from .data import LAYOUT, Word, load_words
from .model import VowelWriter

__all__ = ['VowelScore', 'VowelTask']


class VowelScore(NamedTuple):
    """Shares of words that are written right, with a beam and with one hypothesis."""

    beam: float
    greedy: float

    def __str__(self) -> str:
        return f'beam {self.beam:.4f}  greedy {self.greedy:.4f}'


class VowelTask(Task):
    """Write words from their consonants. One sample is one word."""

    name = 'beam_search'
    description = 'Train a model that completes words without vowels, by beam search.'
    sample = Path(__file__).with_name('sample')
    layout = LAYOUT
    unit, units = 'word', 'words'
    columns = {'beam': 'beam', 'greedy': 'greedy'}
    best_by = 'beam'
    defaults = {'hidden': 100, 'lr': 2e-3}
    shape = (*Task.shape, 'embed')

    @classmethod
    def add_options(cls, data, model) -> None:
        add_size(model, '--embed', 30, 'D', "width of the letters' embedding")
        add_size(model, '--beam', 8, 'K', 'hypotheses for a word, at most')
        model.add_argument(
            '--margin',
            type=positive_float,
            default=2.0,
            metavar='M',
            help='hypotheses whose log-probability is that much below that of the '
            'best one are given up',
        )

    def __init__(self, options, state=None):
        self.options = options
        known = load_words(Path(options.data) / 'train.txt')
        new = set(known)
        unseen = [word for word in load_words(Path(options.data) / 'dev.txt') if word not in new]
        self.samples = {'train': list(map(Word, known)), 'dev': list(map(Word, unseen))}

    def state(self):
        return {}

    def build(self):
        mx.random.seed(self.options.seed)
        net = VowelWriter(self.options.hidden, self.options.embed)
        net.initialize(mx.init.Xavier(), ctx=self.options.ctx)
        return net

    def criterion(self) -> gluon.HybridBlock:
        return gluon.loss.SoftmaxCrossEntropyLoss(from_logits=True)

    def loss(self, net, criterion, sample):
        return criterion(net(sample), sample.actions)

    def predict(self, net, sample):
        return self.predict_all(net, [sample])[0]

    def predict_all(self, net, samples):
        """Return whether the text is right, with a beam and without: both searches of all words
        advance together."""
        widths = self.options.beam, 1
        searches = [
            Search(word, width, self.options.margin) for word in samples for width in widths
        ]
        found = edb.run_concurrently(searches, net.search)
        right = [best.text == search.word.text for best, search in zip(found, searches)]
        return [mx.nd.array(np.reshape(right, (-1, len(widths))))]

    def measure(self, rows: np.ndarray, samples) -> VowelScore:
        return VowelScore(*rows.mean(axis=0).tolist())

    def describe(self) -> str:
        return (
            f'dev: not among the words to train on; hidden {self.options.hidden}, embedding '
            f'{self.options.embed}, beam {self.options.beam}'
        )
