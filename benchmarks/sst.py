"""Workloads on the Stanford Sentiment Treebank: the class of every phrase, by tree models."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import mxnet as mx
from mxnet import gluon

from example.common.words import build_words
from example.tree_sst.data import NUM_CLASSES, Sample, build_samples, load_split, tokens_of

from .contexts import context
from .settings import Settings
from .trees import layers
from .workloads import Products, Workload, data_directory

__all__ = [
    'MVRNNSST',
    'OperatorTreeNNSST',
    'SentimentWorkload',
    'TreeGRUSST',
    'TreeLSTMSST',
    'TreeNNSST',
    'TreeTransformerSST',
    'TwoCellTreeLSTMSST',
]


class SentimentWorkload(Workload):
    """Classify every phrase of the treebank's trees (or the example's own); a loss, and scores, at
    every node.

    ``--embed`` does not apply to models whose words and phrases have one width.
    """

    model: ClassVar[str]

    def __init__(self, settings: Settings):
        from example.tree_sst.model import ONE_WIDTH

        super().__init__(settings)
        phrases = load_split(data_directory(settings, 'sst', 'tree_sst') / 'train.txt')
        words = build_words(tokens_of(phrases))
        self.vocab_size = len(words.vocab)
        self.embed = settings.hidden if self.model in ONE_WIDTH else settings.embed
        self.samples = build_samples(phrases, words.ids)

    def build(self):
        from example.tree_sst.model import MODELS

        settings = self.settings
        mx.random.seed(settings.seed)
        net = MODELS[self.model](self.vocab_size, self.embed, settings.hidden, sparse_grad=True)
        net.initialize(mx.init.Xavier(), ctx=context(settings.ctx))
        return net, gluon.loss.SoftmaxCrossEntropyLoss()

    def predict(self, net, sample: Sample) -> Any:
        return net(sample.tree)

    def loss(self, net, loss, sample: Sample, eager: bool):
        labels = sample.labels
        if eager:
            labels = mx.nd.array(labels, ctx=context(self.settings.ctx))
        return loss(net(sample.tree), labels)

    def products(self, samples: Sequence[Sample]) -> Products:
        """Return the products of leaves and of inner nodes, and the scores' at every node."""
        nodes = sum(len(sample.labels) for sample in samples)
        inner = (nodes - len(samples)) // 2  # of a binary tree with n nodes (n - 1) / 2
        products = Counter({(self.settings.hidden, NUM_CLASSES): nodes})
        for wide, high, rows in self.cell_products(nodes - inner, inner):
            products[wide, high] += rows  # added up: widths may coincide
        return dict(products)

    @abstractmethod
    def cell_products(self, leaves: int, inner: int) -> list[tuple[int, int, int]]:
        """Return (columns in, columns out, rows) of the products of so many nodes of either
        sort."""

    def levels(self, samples: Sequence[Sample]) -> int:
        return max(len(layers(sample.tree)) for sample in samples)


class TreeLSTMSST(SentimentWorkload):
    """``treelstm-sst``: two products for a word at leaves, one for both children at inner nodes."""

    model = 'treelstm'

    def cell_products(self, leaves, inner):
        h = self.settings.hidden
        return [(self.embed, h, 2 * leaves), (2 * h, 5 * h, inner)]


class TwoCellTreeLSTMSST(TreeLSTMSST):
    """``treelstm2-sst``: two kinds of inner nodes, with the same products."""

    model = 'treelstm2'


class TreeGRUSST(SentimentWorkload):
    """``treegru-sst``: a word's two products at leaves; at inner nodes one of the children's sum,
    one of what the reset gates leave, and the reset gate's once a child."""

    model = 'treegru'

    def cell_products(self, leaves, inner):
        h = self.settings.hidden
        return [(self.embed, h, 2 * leaves), (h, h, 4 * inner)]


class MVRNNSST(SentimentWorkload):
    """``mvrnn-sst``: a word's matrix from its factors; at inner nodes two vectors through
    matrices, and products of both vectors and of both matrices."""

    model = 'mvrnn'

    def cell_products(self, leaves, inner):
        from example.tree_sst.model import RANK

        h = self.settings.hidden
        return [(RANK, h, h * leaves), (h, h, 2 * inner), (2 * h, h, (1 + h) * inner)]


class TreeNNSST(SentimentWorkload):
    """``treenn-sst``: one product at inner nodes, none at leaves."""

    model = 'treenn'

    def cell_products(self, leaves, inner):
        h = self.settings.hidden
        return [(2 * h, h, inner)]


class OperatorTreeNNSST(TreeNNSST):
    """``treenn-operators-sst``: the same products by operators instead of a cell."""

    model = 'treenn-operators'


class TreeTransformerSST(SentimentWorkload):
    """``tree-transformer``: of a phrase a product of both parts, its heads' queries and what they
    find, and two of a layer. Products of queries with memory are not among them."""

    model = 'tree-transformer'

    def cell_products(self, leaves, inner):
        h = self.settings.hidden
        return [(2 * h, h, 3 * inner), (h, 2 * h, 2 * inner)]  # two heads, a layer twice as wide

    def rival(self, system: str):
        return self.padded_rival(system, 'PaddedPhrases')
