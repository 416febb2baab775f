"""Score relatedness on SICK as a task of the training program."""

from pathlib import Path

import mxnet as mx

from example.common.options import add_size
from example.common.task import SPLITS
from example.common.word_task import WordTask

from .data import LAYOUT, Pair, build_pairs, load_split, tokens_of
from .metrics import agreement, expected_scores
from .model import SICKModel, score_loss

__all__ = ['SICKTask']


class SICKTask(WordTask):
    """Score how related two sentences are, from their dependency trees. One sample is one pair."""

    name = 'tree_lstm'
    description = 'Train a child-sum Tree-LSTM to tell how related two sentences are (SICK).'
    sample = Path(__file__).with_name('sample')
    layout = LAYOUT
    unit, units = 'pair', 'pairs'
    columns = {'pearson': 'Pearson r', 'spearman': 'Spearman rho', 'mse': 'MSE'}
    best_by = 'pearson'
    optimizer = 'adagrad'
    # Gluon's 1e-7 makes every weight's first steps as long as the learning rate however small its
    # gradient is, which blows differences of rounding up to differences of the loss in ten steps.
    optimizer_options = {'eps': 1e-5}
    defaults = {'epochs': 12, 'batch_size': 25, 'lr': 0.05, 'weight_decay': 1e-4}
    shape = (*WordTask.shape, 'sim_hidden')

    @classmethod
    def add_options(cls, data, model) -> None:
        super().add_options(data, model)
        add_size(model, '--sim-hidden', 50, 'H', 'width of the layer that compares two sentences')

    def __init__(self, options, state=None):
        raw = {split: load_split(Path(options.data) / split) for split in SPLITS}
        self.settle_words(
            options, state, tokens_of(raw['train']), tokens_of(raw['dev'] + raw['test'])
        )
        self.samples = {split: build_pairs(raw[split], self.words.ids) for split in SPLITS}

    def build(self):
        options = self.options
        mx.random.seed(options.seed)
        net = SICKModel(len(self.words.vocab), options.embed, options.hidden, options.sim_hidden)
        self.initialize(net, net.tree_lstm.embed.weight, scale=0.5)
        return net

    def criterion(self):
        return score_loss()

    def loss(self, net, criterion, sample: Pair):
        return criterion(net(sample.left, sample.right), sample.target)

    def predict(self, net, sample: Pair):
        return net(sample.left, sample.right)

    def measure(self, rows, samples):
        return agreement(expected_scores(rows), [pair.score for pair in samples])
