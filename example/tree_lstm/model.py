"""The model, written for one pair of trees."""

from mxnet import gluon

import gluon_edbatch as edb

from .data import NUM_CLASSES
from .encode import encode, relatedness

__all__ = ['SICKModel', 'Similarity', 'TreeLSTM', 'score_loss']


class TreeLSTM(edb.AutoBatchMixin, gluon.Block):
    """Run a child-sum Tree-LSTM over a dependency tree: the (h, c) of its root, each (1, H)."""

    def __init__(self, vocab_size: int, embed_dim: int, hidden_size: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = gluon.nn.Embedding(vocab_size, embed_dim)
            self.cell = edb.rnn.ChildSumTreeLSTMCell(hidden_size, input_size=embed_dim)

    def forward(self, tree):
        return encode(self, tree)


class Similarity(gluon.HybridBlock):
    """Compute log-probabilities of the scores 1 to 5 from the vectors of two sentences, (1, H)
    each."""

    def __init__(self, hidden_size: int, sim_hidden: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.hidden = gluon.nn.Dense(sim_hidden, in_units=2 * hidden_size)
            self.scores = gluon.nn.Dense(NUM_CLASSES, in_units=sim_hidden)

    def hybrid_forward(self, F, left, right):
        angle_and_distance = F.concat(left * right, F.abs(left - right), dim=1)
        hidden = F.Activation(self.hidden(angle_and_distance), act_type='sigmoid')
        return F.log_softmax(self.scores(hidden))


class SICKModel(edb.AutoBatchMixin, gluon.Block):
    """Compute the relatedness of two sentences: log-probabilities (1, 5) of the scores 1 to 5."""

    def __init__(
        self, vocab_size: int, embed_dim: int, hidden_size: int, sim_hidden: int, **kwargs
    ):
        super().__init__(**kwargs)
        with self.name_scope():
            self.tree_lstm = TreeLSTM(vocab_size, embed_dim, hidden_size)
            self.similarity = Similarity(hidden_size, sim_hidden)

    def forward(self, left, right):
        return relatedness(self, left, right)


def score_loss() -> gluon.loss.Loss:
    """Return the Kullback-Leibler divergence from a score's distribution, summed over the five
    scores."""
    return gluon.loss.KLDivLoss(from_logits=True)
