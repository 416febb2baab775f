"""The models, written for one tree. All say the same of it: scores of five classes at each node."""
from abc import ABC, abstractmethod
from typing import Any, Dict, List, Type

import mxnet as mx
from mxnet import gluon
from mxnet.gluon import nn

import gluon_edbatch as edb

from .data import NUM_CLASSES, Tree

__all__ = ['MODELS', 'MVRNN', 'RANK', 'SentimentModel', 'TreeGRU', 'TreeLSTM', 'TwoCellTreeLSTM']


RANK = 3                # of what a word's matrix has besides its diagonal


class SentimentModel(edb.AutoBatchMixin, gluon.Block, ABC):
    """Scores (n, 5) of the classes of a tree's n nodes, children before their parents.

    Parameters
    ----------
    vocab_size, embed_dim, hidden_size : int
        Words, width of their vectors, width of a node's.
    """

    embed: nn.Embedding         # the words' vectors

    def __init__(self, vocab_size: int, embed_dim: int, hidden_size: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.scores = nn.Dense(NUM_CLASSES, in_units=hidden_size)
            self.embed = nn.Embedding(vocab_size, embed_dim)

    def forward(self, tree: Tree):
        vectors: List[Any] = []
        self._encode(tree, vectors)
        return self.scores(edb.concat(vectors))

    def _encode(self, tree: Tree, vectors: List[Any]):
        """State of a node; appends the vectors of all nodes below, then its own."""
        if tree.children:
            state = self.compose(tree, *[self._encode(child, vectors) for child in tree.children])
        else:
            state = self.read(tree.token)
        vectors.append(self.vector(state))
        return state

    @abstractmethod
    def read(self, token: int):
        """State of a leaf."""

    @abstractmethod
    def compose(self, tree: Tree, left, right):
        """State of an inner node."""

    def vector(self, state):
        """What of a state tells the class, (1, H)."""
        return state[0]


class TreeLSTM(SentimentModel):
    """Binary Tree-LSTM with words at the leaves (Tai, Socher and Manning, 2015)."""

    def __init__(self, vocab_size: int, embed_dim: int, hidden_size: int, **kwargs):
        super().__init__(vocab_size, embed_dim, hidden_size, **kwargs)
        with self.name_scope():
            self.cell = edb.rnn.NaryTreeLSTMCell(hidden_size, input_size=embed_dim)

    def read(self, token):
        return self.cell(self.embed(token), [])

    def compose(self, tree, left, right):
        return self.cell(None, [left, right])


class TwoCellTreeLSTM(TreeLSTM):
    """The same with a second cell for inner nodes; a node's kind says which of the two."""

    def __init__(self, vocab_size: int, embed_dim: int, hidden_size: int, **kwargs):
        super().__init__(vocab_size, embed_dim, hidden_size, **kwargs)
        with self.name_scope():
            self.other_cell = edb.rnn.NaryTreeLSTMCell(hidden_size, input_size=None)

    def compose(self, tree, left, right):
        cell = self.other_cell if tree.kind else self.cell
        return cell(None, [left, right])


class TreeGRU(SentimentModel):
    """Tree-GRU with words at the leaves."""

    def __init__(self, vocab_size: int, embed_dim: int, hidden_size: int, **kwargs):
        super().__init__(vocab_size, embed_dim, hidden_size, **kwargs)
        with self.name_scope():
            self.cell = edb.rnn.TreeGRUCell(hidden_size, input_size=embed_dim)

    def read(self, token):
        return self.cell(self.embed(token), [])

    def compose(self, tree, left, right):
        return self.cell(None, [left, right])

    def vector(self, state):
        return state


class MeanOfChildren(mx.init.Initializer):
    """[I, I] / 2 and a little noise: with it a phrase's matrix is about the mean of its children's.

    Otherwise matrices would vanish on their way up the tree, and with them what they multiply.
    """

    def _init_weight(self, name, array):
        mean = mx.nd.tile(mx.nd.eye(array.shape[0], ctx=array.ctx) / 2, reps=(1, 2))
        array[:] = mean + mx.nd.random.normal(scale=0.01, shape=array.shape, ctx=array.ctx)


class WordMatrix(gluon.HybridBlock):
    """A word's matrix, (1, H, H): the identity to start with, and a little of low rank.

    As in the paper, U V + diag(d) with U (H, R) and V (R, H), R = 3, since one free matrix a word
    would be most of the model.
    """

    def __init__(self, vocab_size: int, hidden_size: int, **kwargs):
        super().__init__(**kwargs)
        self._hidden_size = hidden_size
        with self.name_scope():
            self.left = nn.Embedding(vocab_size, hidden_size * RANK,
                                     weight_initializer=mx.init.Normal(0.05))
            self.right = nn.Embedding(vocab_size, RANK * hidden_size,
                                      weight_initializer=mx.init.Normal(0.05))
            self.diagonal = nn.Embedding(vocab_size, hidden_size,
                                         weight_initializer=mx.init.One())
            self.identity = self.params.get_constant('identity', mx.nd.eye(hidden_size)[None])

    def hybrid_forward(self, F, token, identity):
        """token (N,)"""
        size = self._hidden_size
        low_rank = F.batch_dot(F.reshape(self.left(token), shape=(-1, size, RANK)),
                               F.reshape(self.right(token), shape=(-1, RANK, size)))
        diagonal = F.expand_dims(self.diagonal(token), axis=1)
        return low_rank + F.broadcast_mul(diagonal, identity)


class MVRNN(SentimentModel):
    """Matrix-vector recursive network (Socher et al., 2012); embedding and hidden are one width."""

    def __init__(self, vocab_size: int, embed_dim: int, hidden_size: int, **kwargs):
        if embed_dim != hidden_size:
            raise ValueError(f'vectors of words and of phrases have one width, not {embed_dim} '
                             f'and {hidden_size}')
        super().__init__(vocab_size, embed_dim, hidden_size, **kwargs)
        with self.name_scope():
            self.matrix = WordMatrix(vocab_size, hidden_size)
            self.cell = edb.rnn.MVRNNCell(hidden_size,
                                          matrix_weight_initializer=MeanOfChildren())

    def read(self, token):
        return self.embed(token), self.matrix(token)

    def compose(self, tree, left, right):
        return self.cell(left, right)


MODELS: Dict[str, Type[SentimentModel]] = {
    'treelstm': TreeLSTM, 'treegru': TreeGRU, 'mvrnn': MVRNN, 'treelstm2': TwoCellTreeLSTM}
