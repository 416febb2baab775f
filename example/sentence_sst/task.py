"""Classify sentences by sentiment as a task of the training program."""

from pathlib import Path

import mxnet as mx
import numpy as np

from example import tree_sst
from example.common.errors import DataError, OptionError
from example.common.options import add_size
from example.common.task import SPLITS
from example.common.vocab_task import VocabTask, build_vocab, saved_vocabs
from example.tree_sst.data import LAYOUT, NUM_CLASSES, Phrase, load_split, tokens_of

from .data import Sentence
from .metrics import accuracy
from .model import SentenceTransformer

__all__ = ['SentenceTask']

LONGEST = 100  # words; the treebank's longest sentence has 56


class SentenceTask(VocabTask):
    """Classify sentences into five classes. One sample is one sentence, in lower case: the words
    and root label of a tree.

    Attributes
    ----------
    vocabs : dict
        ``words`` -> `gluonnlp.Vocab`.
    """

    name = 'sentence_sst'
    description = 'Train a Transformer to tell the sentiment of sentences (SST).'
    sample = Path(tree_sst.__file__).with_name('sample')  # its files are read here, too
    layout = LAYOUT
    columns = {'five': 'of five classes', 'two': 'of two'}
    best_by = 'five'
    defaults = {'hidden': 64, 'lr': 1e-3}
    shape = (*VocabTask.shape, 'layers', 'heads')

    @classmethod
    def add_options(cls, data, model) -> None:
        add_size(model, '--layers', 2, 'N', 'of the encoder')
        add_size(model, '--heads', 4, 'N', 'of attention; they share --hidden')

    def __init__(self, options, state=None):
        self.options = options
        self.check_options()
        raw = {split: load_split(Path(options.data) / f'{split}.txt') for split in SPLITS}
        self.vocabs = (
            saved_vocabs(state)
            if state
            else {'words': build_vocab(map(str.lower, tokens_of(raw['train'])), min_freq=2)}
        )
        self.samples = {split: list(map(self.sentence, raw[split])) for split in SPLITS}

    def check_options(self) -> None:
        """Raise `OptionError` if options do not go together."""
        if self.options.hidden % self.options.heads:
            raise OptionError(
                f'--heads {self.options.heads} cannot share --hidden {self.options.hidden}'
            )

    def sentence(self, phrase: Phrase) -> Sentence:
        """Return the sample of a tree."""
        words = [word.lower() for word in phrase.words()]
        if len(words) > LONGEST:
            raise DataError(
                f'{self.options.data}: a sentence has {len(words)} words; the model has '
                f'positions for {LONGEST}'
            )
        return Sentence(self.vocabs['words'][words], phrase.label)

    def build(self):
        options = self.options
        mx.random.seed(options.seed)
        net = SentenceTransformer(
            len(self.vocabs['words']),
            NUM_CLASSES,
            options.hidden,
            options.layers,
            options.heads,
            LONGEST,
        )
        net.embed.weight.init = mx.init.Normal(0.1)
        net.initialize(mx.init.Xavier(), ctx=options.ctx)
        net(Sentence([0], 0))  # gluonnlp's layers learn their widths from what they are given
        return net

    def loss(self, net, criterion, sample):
        return criterion(net(sample), sample.label)

    def measure(self, rows: np.ndarray, samples):
        return accuracy(rows, np.concatenate([sample.label for sample in samples]))

    def describe(self) -> str:
        options = self.options
        return (
            f'{self.sizes}; {options.layers} layers, hidden {options.hidden}, {options.heads} heads'
        )
