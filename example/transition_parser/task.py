"""Parse dependencies as a task of the training program."""

from pathlib import Path

import mxnet as mx
import numpy as np

import gluon_edbatch as edb
from example.common.extras import nlp
from example.common.options import add_size
from example.common.task import SPLITS
from example.common.vocab_task import VocabTask, build_vocab, saved_vocabs

from .data import LAYOUT, ROOT, Sentence, Tree, load_split
from .metrics import AttachmentScore, score
from .model import TransitionParser

__all__ = ['ParserTask']


class ParserTask(VocabTask):
    """Predict heads and relations of words. One sample is one sentence.

    Attributes
    ----------
    vocabs : dict
        ``words``, ``tags``, ``relations`` -> `gluonnlp.Vocab`.
    left_out : int
        Number of training sentences left out, as their trees are not projective.
    """

    name = 'transition_parser'
    description = 'Train a transition-based dependency parser (Universal Dependencies).'
    sample = Path(__file__).with_name('sample')
    layout = LAYOUT
    columns = {'unlabelled': 'UAS', 'labelled': 'LAS'}
    best_by = 'unlabelled'
    defaults = {'batch_size': 32, 'hidden': 125}
    shape = (*VocabTask.shape, 'embed', 'tag_embed', 'layers', 'scorer_hidden')

    @classmethod
    def add_options(cls, data, model) -> None:
        add_size(model, '--embed', 100, 'D', "width of the words' embedding")
        add_size(model, '--tag-embed', 25, 'D', "width of the tags' embedding")
        add_size(model, '--layers', 2, 'N', 'how many BiLSTMs, one over the other')
        add_size(model, '--scorer-hidden', 100, 'H', 'width of the layer that scores actions')

    def __init__(self, options, state=None):
        self.options = options
        trees = {split: load_split(options.data, split) for split in SPLITS}
        self.vocabs = saved_vocabs(state) if state else _build_vocabs(trees['train'])
        self.samples = {split: list(map(self.sentence, trees[split])) for split in SPLITS}
        projective = [sentence for sentence in self.samples['train'] if sentence.steps]
        self.left_out = len(self.samples['train']) - len(projective)
        self.samples['train'] = projective

    def sentence(self, tree: Tree) -> Sentence:
        """Return the sample of a tree."""
        words = self.vocabs['words'][[*map(str.lower, tree.words), ROOT]]
        tags = self.vocabs['tags'][[*tree.tags, ROOT]]
        relations = self.vocabs['relations'][list(tree.relations)]
        return Sentence(list(zip(words, tags)), tree.heads, relations)

    def build(self):
        options = self.options
        mx.random.seed(options.seed)
        net = TransitionParser(
            *(len(self.vocabs[name]) for name in ('words', 'tags', 'relations')),
            options.embed,
            options.tag_embed,
            options.hidden,
            options.scorer_hidden,
            options.layers,
        )
        for parameter in net.collect_params('.*embedding.*_weight').values():
            parameter.init = mx.init.Normal(0.3)
        net.initialize(mx.init.Xavier(), ctx=options.ctx)
        return net

    def loss(self, net, criterion, sample):
        return criterion(net(sample), sample.actions)

    def predict(self, net, sample):
        return self.predict_all(net, [sample])[0]

    def predict_all(self, net, samples):
        """Return the decisions as one array: all sentences advance together."""
        return [mx.nd.array(np.concatenate(edb.run_concurrently(samples, net.parse)))]

    def measure(self, rows: np.ndarray, samples) -> AttachmentScore:
        return score(
            rows,
            np.concatenate(
                [np.stack([sample.heads, sample.relations], axis=1) for sample in samples]
            ),
        )

    def describe(self) -> str:
        return f'{self.left_out} more for training are not projective; {super().describe()}'


def _build_vocabs(trees: list[Tree]) -> dict[str, nlp.Vocab]:
    """Return the vocabularies; words seen once are the unknown word."""
    return {
        'words': build_vocab(
            (word for tree in trees for word in [*map(str.lower, tree.words), ROOT]), min_freq=2
        ),
        'tags': build_vocab(tag for tree in trees for tag in [*tree.tags, ROOT]),
        'relations': build_vocab(relation for tree in trees for relation in tree.relations),
    }
