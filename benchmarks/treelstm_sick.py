"""Workload ``treelstm-sick``: relatedness of two sentences by a child-sum Tree-LSTM."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import mxnet as mx
import numpy as np

from example.common.words import build_words
from example.tree_lstm.data import NUM_CLASSES, Pair, Tree, build_pairs, load_split, tokens_of

from .contexts import context
from .settings import Settings
from .trees import layers
from .workloads import Products, Workload, data_directory

__all__ = ['TreeLSTMSick', 'initial_weights', 'weights_of']

SIM_HIDDEN = 50


class TreeLSTMSick(Workload):
    """A workload of SICK pairs (or the example's own) with the example's model. One sample is one
    pair."""

    def __init__(self, settings: Settings):
        super().__init__(settings)
        raw = load_split(data_directory(settings, 'sick', 'tree_lstm') / 'train')
        words = build_words(tokens_of(raw))
        self.vocab_size = len(words.vocab)
        self.samples = build_pairs(raw, words.ids)

    def build(self):
        from example.tree_lstm.model import (  # rivals can do without gluon_edbatch
            SICKModel,
            score_loss,
        )

        settings = self.settings
        mx.random.seed(settings.seed)
        net = SICKModel(self.vocab_size, settings.embed, settings.hidden, SIM_HIDDEN)
        net.initialize(mx.init.Xavier(), ctx=context(settings.ctx))
        return net, score_loss()

    def predict(self, net, sample: Pair) -> Any:
        return net(sample.left, sample.right)

    def loss(self, net, loss, sample: Pair, eager: bool):
        target = sample.target
        if eager:
            target = mx.nd.array(target, ctx=context(self.settings.ctx))
        return loss(net(sample.left, sample.right), target)

    def products(self, samples: Sequence[Pair]) -> Products:
        """Return the products: the input's and that of the children's sum at every node (at leaves
        of zeros, as in the eager cell), the forget gate's for each child, the comparison's layers
        for each pair."""
        h, e = self.settings.hidden, self.settings.embed
        nodes = sum(_count(pair.left) + _count(pair.right) for pair in samples)
        children = nodes - 2 * len(samples)
        products: Counter = Counter()  # added up: widths may coincide
        products[e, 4 * h] += nodes
        products[h, 3 * h] += nodes
        products[h, h] += children
        products[2 * h, SIM_HIDDEN] += len(samples)
        products[SIM_HIDDEN, NUM_CLASSES] += len(samples)
        return dict(products)

    def levels(self, samples: Sequence[Pair]) -> int:
        return max(len(layers(tree)) for pair in samples for tree in (pair.left, pair.right))

    def rival(self, system: str):
        settings = self.settings
        shared = system.endswith('-shared')
        weights = initial_weights(self.vocab_size, settings.embed, settings.hidden, settings.seed)
        if system == 'plain-hybridized':
            from .rivals.plain_gluon import PlainGluon

            return PlainGluon(weights, settings.optimizer, settings.learning_rate, settings.ctx)
        if system.startswith('manual-torch'):
            from .rivals.manual_torch import ManualTorch as Rival
        else:
            from .rivals.manual_gluon import ManualGluon as Rival
        return Rival(weights, settings.optimizer, settings.learning_rate, shared, settings.ctx)


def initial_weights(
    vocab_size: int, embed: int, hidden: int, seed: int = 0
) -> dict[str, np.ndarray]:
    """Return random parameters for the models batched by hand; gates in the order i, o, u, f."""
    rng = np.random.RandomState(seed)
    shapes = dict(
        embed=(vocab_size, embed),
        w=(4 * hidden, embed),
        b=(4 * hidden,),
        u_iou=(3 * hidden, hidden),
        u_f=(hidden, hidden),
        sim_w=(SIM_HIDDEN, 2 * hidden),
        sim_b=(SIM_HIDDEN,),
        out_w=(NUM_CLASSES, SIM_HIDDEN),
        out_b=(NUM_CLASSES,),
    )
    return {
        name: rng.normal(scale=0.05, size=shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def weights_of(net) -> dict[str, list[Any]]:
    """Return the example's parameters under the names of `initial_weights`, to be concatenated."""
    cell, similarity = net.tree_lstm.cell, net.similarity

    def gates(kind: str, names: str) -> list[Any]:
        return [getattr(cell, kind % name) for name in names]

    return dict(
        embed=[net.tree_lstm.embed.weight],
        w=gates('i2h_%s_weight', 'iouf'),
        b=gates('i2h_%s_bias', 'iouf'),
        u_iou=gates('h2h_%s_weight', 'iou'),
        u_f=gates('h2h_%s_weight', 'f'),
        sim_w=[similarity.hidden.weight],
        sim_b=[similarity.hidden.bias],
        out_w=[similarity.scores.weight],
        out_b=[similarity.scores.bias],
    )


def _count(tree: Tree) -> int:
    return sum(map(len, layers(tree)))
