"""Label relations of words as a task of the training program."""

from pathlib import Path
from typing import NamedTuple

import mxnet as mx
import numpy as np

from example import transition_parser
from example.common.errors import OptionError
from example.common.options import add_size
from example.common.task import SPLITS
from example.common.vocab_task import VocabTask, build_vocab, saved_vocabs
from example.transition_parser.data import LAYOUT, Tree, load_split

from .data import Graph
from .model import KINDS, GraphTagger

__all__ = ['Accuracy', 'GraphTask']


class Accuracy(NamedTuple):
    """Share of words that got the right relation."""

    accuracy: float

    def __str__(self) -> str:
        return f'accuracy {self.accuracy:.4f}'


class GraphTask(VocabTask):
    """Label relations of words to their heads, when neighbours are known, but not which of two is
    the head. One sample is one sentence.

    Attributes
    ----------
    vocabs : dict
        ``words``, ``relations`` -> `gluonnlp.Vocab`.
    """

    name = 'graph_attention'
    description = 'Train a graph network to tell relations of words (Universal Dependencies).'
    sample = Path(transition_parser.__file__).with_name('sample')  # its files are read here, too
    layout = LAYOUT
    columns = {'accuracy': 'accuracy'}
    best_by = 'accuracy'
    defaults = {'hidden': 100, 'lr': 5e-3}
    shape = (*VocabTask.shape, 'embed', 'model', 'layers', 'heads')

    @classmethod
    def add_options(cls, data, model) -> None:
        model.add_argument(
            '--model',
            choices=sorted(KINDS),
            default='attention',
            help='what a word makes of its neighbours: a sum of their messages, the greatest of '
            'their numbers, or a mean weighted by attention',
        )
        add_size(model, '--embed', 100, 'D', "width of the words' embedding")
        add_size(model, '--layers', 2, 'N', 'how many steps away a word sees others')
        add_size(model, '--heads', 2, 'N', 'of attention; they share --hidden')

    def __init__(self, options, state=None):
        self.options = options
        if options.model == 'attention' and options.hidden % options.heads:
            raise OptionError(f'--heads {options.heads} cannot share --hidden {options.hidden}')
        trees = {split: load_split(options.data, split) for split in SPLITS}
        self.vocabs = (
            saved_vocabs(state)
            if state
            else {
                'words': build_vocab(
                    (word.lower() for tree in trees['train'] for word in tree.words), min_freq=2
                ),
                'relations': build_vocab(
                    relation for tree in trees['train'] for relation in tree.relations
                ),
            }
        )
        self.samples = {split: list(map(self.graph, trees[split])) for split in SPLITS}

    def graph(self, tree: Tree) -> Graph:
        """Return the sample of a tree."""
        words = self.vocabs['words'][[word.lower() for word in tree.words]]
        return Graph(words, tree.heads, self.vocabs['relations'][list(tree.relations)])

    def build(self):
        options = self.options
        mx.random.seed(options.seed)
        net = GraphTagger(
            options.model,
            len(self.vocabs['words']),
            len(self.vocabs['relations']),
            options.embed,
            options.hidden,
            options.layers,
            options.heads,
        )
        net.embed.weight.init = mx.init.Normal(0.3)
        net.initialize(mx.init.Xavier(), ctx=options.ctx)
        return net

    def loss(self, net, criterion, sample):
        return criterion(net(sample), sample.relations)

    def measure(self, rows: np.ndarray, samples) -> Accuracy:
        right = np.concatenate([sample.relations for sample in samples])
        return Accuracy(float((rows.argmax(axis=1) == right).mean()))

    def describe(self) -> str:
        options = self.options
        return f'{self.sizes}; {options.model}, hidden {options.hidden}, embedding {options.embed}'
