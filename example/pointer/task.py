"""Put words in order as a task of the training program."""

from pathlib import Path

import mxnet as mx
import numpy as np
from mxnet import gluon

import gluon_edbatch as edb
from example import transition_parser
from example.common.errors import DataError
from example.common.options import add_size
from example.common.task import SPLITS
from example.common.vocab_task import VocabTask, build_vocab, saved_vocabs
from example.transition_parser.data import LAYOUT, load_split

from .data import shuffle
from .metrics import OrderScore, score
from .model import PointerNetwork, Surprise

__all__ = ['PointerTask']


class PointerTask(VocabTask):
    """Predict the order of words. One sample is one sentence, in lower case.

    Attributes
    ----------
    vocabs : dict
        ``words`` -> `gluonnlp.Vocab`.
    """

    name = 'pointer'
    description = 'Train a pointer network to put shuffled words in order (Universal Dependencies).'
    sample = Path(transition_parser.__file__).with_name('sample')  # its files are read here, too
    layout = LAYOUT
    columns = {'pairs': 'pairs', 'places': 'places', 'sentences': 'sentences'}
    best_by = 'pairs'
    defaults = {'hidden': 100, 'lr': 3e-3}
    shape = (*VocabTask.shape, 'embed')
    training = (*VocabTask.training, 'longest')

    @classmethod
    def add_options(cls, data, model) -> None:
        add_size(data, '--longest', 15, 'N', 'leave out sentences that have more words')
        add_size(model, '--embed', 100, 'D', "width of the words' embedding")

    def __init__(self, options, state=None):
        self.options = options
        sentences = {split: self._sentences(split) for split in SPLITS}
        self.vocabs = (
            saved_vocabs(state)
            if state
            else {
                'words': build_vocab(
                    (word for words in sentences['train'] for word in words), min_freq=2
                )
            }
        )
        self.samples = {
            split: [
                shuffle(words, self.vocabs['words'][words], [number, len(words)])
                for number, words in enumerate(sentences[split])
            ]
            for split in SPLITS
        }

    def _sentences(self, split: str) -> list[list[str]]:
        trees = load_split(self.options.data, split)
        sentences = [[word.lower() for word in tree.words] for tree in trees]
        kept = [words for words in sentences if 2 <= len(words) <= self.options.longest]
        if not kept:
            raise DataError(
                f'{self.options.data}: no sentence for {split} has 2 to {self.options.longest} '
                'words (--longest)'
            )
        return kept

    def build(self):
        options = self.options
        mx.random.seed(options.seed)
        net = PointerNetwork(len(self.vocabs['words']), options.embed, options.hidden)
        net.embed.weight.init = mx.init.Normal(0.3)
        net.initialize(mx.init.Xavier(), ctx=options.ctx)
        return net

    def criterion(self) -> gluon.HybridBlock:
        return Surprise()

    def loss(self, net, criterion, sample):
        return criterion(net(sample))

    def predict(self, net, sample):
        return self.predict_all(net, [sample])[0]

    def predict_all(self, net, samples):
        """Return the positions as they are written: all sentences advance together."""
        return [mx.nd.array(np.concatenate(edb.run_concurrently(samples, net.write)))]

    def measure(self, rows: np.ndarray, samples) -> OrderScore:
        ends = np.cumsum([len(sample) for sample in samples])
        written = np.split(rows.astype(int), ends[:-1])
        names = [np.array(sample.names) for sample in samples]
        return score(
            [of[order] for of, order in zip(names, written)],
            [of[sample.order] for of, sample in zip(names, samples)],
        )

    def describe(self) -> str:
        return f'of at most {self.options.longest} words; {super().describe()}'
