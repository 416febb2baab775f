"""Classify whole sentences as a task of the training program."""

from pathlib import Path
from typing import NamedTuple

import mxnet as mx
import numpy as np
from mxnet import gluon

from example import tree_sst
from example.common.task import SPLITS
from example.common.word_task import WordTask
from example.tree_sst.data import LAYOUT, tokens_of

from .data import NUM_CLASSES, Sentence, build_sentences, load_split
from .model import LSTMAcceptor

__all__ = ['AcceptorTask', 'Accuracy']


class Accuracy(NamedTuple):
    """Share of sentences that got the right class."""

    accuracy: float

    def __str__(self) -> str:
        return f'accuracy {self.accuracy:.4f}'


class AcceptorTask(WordTask):
    """Tell positive sentences from negative ones. One sample is one sentence."""

    name = 'sequence_acceptor'
    description = 'Train an LSTM to tell positive sentences from negative ones (SST).'
    sample = Path(tree_sst.__file__).with_name('sample')  # its files are read here, too
    layout = LAYOUT
    unit, units = 'sentence', 'sentences'
    columns = {'accuracy': 'accuracy'}
    best_by = 'accuracy'
    embed_width = 100
    defaults = {'hidden': 100}

    def __init__(self, options, state=None):
        raw = {split: load_split(Path(options.data) / f'{split}.txt') for split in SPLITS}
        self.settle_words(
            options, state, tokens_of(raw['train']), tokens_of(raw['dev'] + raw['test'])
        )
        self.samples = {split: build_sentences(raw[split], self.words.ids) for split in SPLITS}

    def build(self):
        options = self.options
        mx.random.seed(options.seed)
        net = LSTMAcceptor(len(self.words.vocab), options.embed, options.hidden, NUM_CLASSES)
        self.initialize(net, net.embed.weight, scale=0.1)
        return net

    def criterion(self):
        return gluon.loss.SoftmaxCrossEntropyLoss()

    def loss(self, net, criterion, sample: Sentence):
        return criterion(net(sample.tokens), sample.label)

    def predict(self, net, sample: Sentence):
        return net(sample.tokens)

    def measure(self, rows, samples):
        labels = np.concatenate([sample.label for sample in samples])
        return Accuracy(float((rows.argmax(axis=1) == labels).mean()))
