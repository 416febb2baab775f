"""Classify phrases by sentiment as a task of the training program."""

from pathlib import Path

import mxnet as mx
from mxnet import gluon

from example.common.errors import OptionError
from example.common.task import SPLITS
from example.common.word_task import WordTask

from .data import LAYOUT, Sample, build_samples, load_split, tokens_of
from .metrics import accuracy
from .model import MODELS, ONE_WIDTH

__all__ = ['SentimentTask']

HIDDEN = {'mvrnn': 25}  # a matrix a node has the square of that
DEFAULT_HIDDEN = 150


class SentimentTask(WordTask):
    """Classify each phrase of a sentence into five classes. One sample is one tree."""

    name = 'tree_sst'
    description = 'Train a tree model to tell the sentiment of every phrase of a sentence (SST).'
    sample = Path(__file__).with_name('sample')
    layout = LAYOUT
    unit, units = 'tree', 'trees'
    columns = {'root': 'root accuracy', 'nodes': 'of all nodes'}
    best_by = 'root'
    embed_width = 300
    defaults = {'hidden': None}
    shape = ('model', *WordTask.shape)
    training = (*WordTask.training, 'dense_grad')

    @classmethod
    def add_options(cls, data, model) -> None:
        model.add_argument(
            '--model',
            choices=MODELS,
            default='treelstm',
            help=f'--hidden is {DEFAULT_HIDDEN} if it is not given, and '
            f'{HIDDEN["mvrnn"]} for mvrnn; --embed is the same for '
            f'{" and ".join(ONE_WIDTH)} (default: treelstm)',
        )
        model.add_argument(
            '--dense-grad',
            action='store_true',
            help='let every step update the vectors of all words, and decay their '
            'moments and weights, as in training without sparse gradients; '
            'otherwise only those of the words in the minibatch',
        )
        super().add_options(data, model)

    def __init__(self, options, state=None):
        _settle_widths(options)
        raw = {split: load_split(Path(options.data) / f'{split}.txt') for split in SPLITS}
        self.settle_words(
            options, state, tokens_of(raw['train']), tokens_of(raw['dev'] + raw['test'])
        )
        self.samples = {split: build_samples(raw[split], self.words.ids) for split in SPLITS}

    def build(self):
        options = self.options
        mx.random.seed(options.seed)
        net = MODELS[options.model](
            len(self.words.vocab), options.embed, options.hidden, sparse_grad=not options.dense_grad
        )
        self.initialize(net, net.leaf.embed.weight, scale=0.1)
        return net

    def criterion(self):
        return gluon.loss.SoftmaxCrossEntropyLoss()

    def loss(self, net, criterion, sample: Sample):
        return criterion(net(sample.tree), sample.labels)

    def predict(self, net, sample: Sample):
        return net(sample.tree)

    def measure(self, rows, samples):
        return accuracy(rows, [sample.labels for sample in samples])

    def describe(self):
        return f'model {self.options.model}, {super().describe()}'


def _settle_widths(options) -> None:
    options.hidden = options.hidden or HIDDEN.get(options.model, DEFAULT_HIDDEN)
    if options.model in ONE_WIDTH:
        if options.embed not in (None, options.hidden):
            raise OptionError(
                f'--model {options.model} has one width for words and phrases: leave '
                f'out --embed {options.embed}, or give --hidden {options.embed}'
            )
        options.embed = options.hidden
