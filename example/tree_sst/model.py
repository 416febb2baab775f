"""The models, written for one tree. All compute scores of five classes at each node.

With ``sparse_grad=True`` the gradients of words' vectors are row_sparse: they hold the words of a
minibatch only. MXNet's optimizers update only these, "lazily": the others keep their vectors and
Adam's moments, and decay neither.
"""

from abc import ABC, abstractmethod
from typing import Any

import mxnet as mx
from mxnet import gluon
from mxnet.gluon import nn

import gluon_edbatch as edb

from .data import NUM_CLASSES, Tree
from .encode import classes

__all__ = [
    'MODELS',
    'MVRNN',
    'ONE_WIDTH',
    'OperatorTreeNN',
    'RANK',
    'SentimentModel',
    'TreeGRU',
    'TreeLSTM',
    'TreeNN',
    'TreeTransformer',
    'TwoCellTreeLSTM',
]

RANK = 3  # of what a word's matrix has besides its diagonal


class SentimentModel(edb.AutoBatchMixin, gluon.Block, ABC):
    """Compute scores (n, 5) of the classes of a tree's n nodes, children before their parents.

    Parameters
    ----------
    leaf : HybridBlock
        State of a word from its id, (1,). Its ``embed`` has the words' vectors.
    hidden_size : int
        H, the width of the part of a node's state that is classified.
    """

    def __init__(self, leaf: gluon.HybridBlock, hidden_size: int, **kwargs):
        super().__init__(**kwargs)
        self.leaf = leaf
        with self.name_scope():
            self.scores = nn.Dense(NUM_CLASSES, in_units=hidden_size)

    def forward(self, tree: Tree):
        vectors: list[Any] = []
        self._encode(tree, vectors)
        return self.scores(edb.concat(vectors))

    def _encode(self, tree: Tree, vectors: list[Any]):
        """Return the state of a node; append the vectors of all nodes below, then its own."""
        if tree.children:
            left, right = tree.children
            state = self.compose(tree, self._encode(left, vectors), self._encode(right, vectors))
        else:
            state = self.word(tree.token)
        vectors.append(self.vector(state))
        return state

    def word(self, token: int):
        """Return the state of a leaf."""
        return self.leaf(token)

    @abstractmethod
    def compose(self, tree: Tree, left, right):
        """Return the state of an inner node from those of its children."""

    def vector(self, state):
        """Return the part of a state that is classified, (1, H)."""
        return state[0]


class LSTMLeaf(gluon.HybridBlock):
    """Compute h and c of a word, as Tai et al. do for the treebank: with an output gate only."""

    def __init__(
        self, vocab_size: int, embed_dim: int, hidden_size: int, sparse_grad: bool = False, **kwargs
    ):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = nn.Embedding(vocab_size, embed_dim, sparse_grad=sparse_grad)
            self.cell_state = nn.Dense(hidden_size, in_units=embed_dim)
            self.output_gate = nn.Dense(hidden_size, in_units=embed_dim)

    def hybrid_forward(self, F, token):
        """Compute states of tokens (N,)."""
        word = self.embed(token)
        c = self.cell_state(word)
        output = F.Activation(self.output_gate(word), act_type='sigmoid')
        return output * F.Activation(c, act_type='tanh'), c


class TreeLSTM(SentimentModel):
    """A binary Tree-LSTM with words at the leaves (Tai, Socher and Manning, 2015)."""

    def __init__(
        self, vocab_size: int, embed_dim: int, hidden_size: int, sparse_grad: bool = False, **kwargs
    ):
        super().__init__(
            LSTMLeaf(vocab_size, embed_dim, hidden_size, sparse_grad), hidden_size, **kwargs
        )
        with self.name_scope():
            self.cell = edb.rnn.NaryTreeLSTMCell(hidden_size, input_size=None)

    def compose(self, tree, left, right):
        return self.cell(None, [left, right])


class TwoCellTreeLSTM(TreeLSTM):
    """A binary Tree-LSTM with two cells; an inner node's kind chooses one."""

    def __init__(
        self, vocab_size: int, embed_dim: int, hidden_size: int, sparse_grad: bool = False, **kwargs
    ):
        super().__init__(vocab_size, embed_dim, hidden_size, sparse_grad, **kwargs)
        with self.name_scope():
            self.other_cell = edb.rnn.NaryTreeLSTMCell(hidden_size, input_size=None)

    def forward(self, tree: Tree):
        return classes(self, tree)


class GRULeaf(gluon.HybridBlock):
    """Compute h of a word by a gated recurrent unit without a state before."""

    def __init__(
        self, vocab_size: int, embed_dim: int, hidden_size: int, sparse_grad: bool = False, **kwargs
    ):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = nn.Embedding(vocab_size, embed_dim, sparse_grad=sparse_grad)
            self.new = nn.Dense(hidden_size, in_units=embed_dim)
            self.gate = nn.Dense(hidden_size, in_units=embed_dim)

    def hybrid_forward(self, F, token):
        """Compute states of tokens (N,)."""
        word = self.embed(token)
        gate = F.Activation(self.gate(word), act_type='sigmoid')
        return gate * F.Activation(self.new(word), act_type='tanh')


class TreeGRU(SentimentModel):
    """A Tree-GRU with words at the leaves."""

    def __init__(
        self, vocab_size: int, embed_dim: int, hidden_size: int, sparse_grad: bool = False, **kwargs
    ):
        super().__init__(
            GRULeaf(vocab_size, embed_dim, hidden_size, sparse_grad), hidden_size, **kwargs
        )
        with self.name_scope():
            self.cell = edb.rnn.TreeGRUCell(hidden_size, input_size=None)

    def compose(self, tree, left, right):
        return self.cell(None, [left, right])

    def vector(self, state):
        return state


class WordLeaf(gluon.HybridBlock):
    """Return a word's vector (1, H), as it is."""

    def __init__(self, vocab_size: int, hidden_size: int, sparse_grad: bool = False, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = nn.Embedding(vocab_size, hidden_size, sparse_grad=sparse_grad)

    def hybrid_forward(self, F, token):
        """Return vectors of tokens (N,)."""
        return self.embed(token)


class OneMatrixCell(gluon.HybridBlock):
    """Compute a phrase's vector from those of its two parts: ``tanh([left, right] W^T + b)``, (1,
    H)."""

    def __init__(self, hidden_size: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.both = nn.Dense(hidden_size, activation='tanh', in_units=2 * hidden_size)

    def hybrid_forward(self, F, left, right):
        """Compute vectors from left and right (N, H)."""
        return self.both(F.concat(left, right, dim=1))


class TreeNN(SentimentModel):
    """A recursive network with one matrix (the plain one of Socher et al., 2013); embedding and
    hidden have one width."""

    def __init__(
        self, vocab_size: int, embed_dim: int, hidden_size: int, sparse_grad: bool = False, **kwargs
    ):
        _check_one_width(embed_dim, hidden_size)
        super().__init__(WordLeaf(vocab_size, hidden_size, sparse_grad), hidden_size, **kwargs)
        with self.name_scope():
            self.cell = OneMatrixCell(hidden_size)

    def compose(self, tree, left, right):
        return self.cell(left, right)

    def vector(self, state):
        return state


class OperatorTreeNN(TreeNN):
    """A recursive network with one matrix, written with operators in place of a cell, as DyNet's
    users do."""

    def compose(self, tree, left, right):
        weight, bias = self.cell.both.weight, self.cell.both.bias
        both = edb.nd.concat(left, right, dim=1)
        return edb.nd.tanh(
            edb.nd.FullyConnected(
                both, weight.data(left.ctx), bias.data(left.ctx), num_hidden=bias.shape[0]
            )
        )


class TransformerCell(gluon.HybridBlock):
    """A layer of a Transformer for one phrase: its two parts are the query for all phrases in it.

    Each head has its own query. Queries and means go through matrices, so memory needs none: its
    vectors are keys and values as they are.

    Inputs
        - **left**, **right**: (N, H), of the two parts
        - **memory**: (N, K, H), of all K phrases and words in it

    Outputs
        - (N, H)
    """

    def __init__(self, hidden_size: int, heads: int, **kwargs):
        super().__init__(**kwargs)
        self._heads, self._scale = heads, hidden_size**-0.5
        with self.name_scope():
            self.both = nn.Dense(hidden_size, activation='tanh', in_units=2 * hidden_size)
            self.queries = nn.Dense(heads * hidden_size, in_units=hidden_size)
            self.found = nn.Dense(hidden_size, in_units=heads * hidden_size)
            self.wide = nn.Dense(2 * hidden_size, activation='relu', in_units=hidden_size)
            self.narrow = nn.Dense(hidden_size, in_units=2 * hidden_size)
            self.norms = nn.HybridSequential()
            for _ in range(2):
                self.norms.add(nn.LayerNorm(in_channels=hidden_size))

    def hybrid_forward(self, F, left, right, memory):
        """Compute vectors; each call is one phrase."""
        phrase = self.both(F.concat(left, right, dim=1))
        queries = F.reshape(self.queries(phrase) * self._scale, shape=(0, self._heads, -1))
        weights = F.softmax(F.batch_dot(memory, queries, transpose_b=True), axis=1)
        return self.answer(phrase, F.batch_dot(weights, memory, transpose_a=True))

    def answer(self, phrase, found):
        """Return the phrase's vector from what its heads found, (N, heads, H), in memory."""
        phrase = self.norms[0](phrase + self.found(found))
        return self.norms[1](phrase + self.narrow(self.wide(phrase)))


class TreeTransformer(SentimentModel):
    """A Transformer that climbs the tree (Ahmed, Samee and Mercer, 2019). A phrase attends to all
    phrases in it (as in Nguyen et al., 2020), as two children are few to choose from. Embedding and
    hidden have one width.

    A state is a phrase's vector and a list of all in it, with itself.
    """

    def __init__(
        self,
        vocab_size: int,
        embed_dim: int,
        hidden_size: int,
        sparse_grad: bool = False,
        heads: int = 2,
        **kwargs,
    ):
        _check_one_width(embed_dim, hidden_size)
        super().__init__(WordLeaf(vocab_size, hidden_size, sparse_grad), hidden_size, **kwargs)
        with self.name_scope():
            self.cell = TransformerCell(hidden_size, heads)

    def word(self, token):
        vector = self.leaf(token)
        return vector, [vector]

    def compose(self, tree, left, right):
        inside = left[1] + right[1]
        vector = self.cell(left[0], right[0], edb.ragged(inside))
        return vector, [*inside, vector]


class MVLeaf(gluon.HybridBlock):
    """Compute vector and matrix of a word, (1, H) and (1, H, H).

    The initial matrix is the identity, with a small term of low rank. As in the paper it is U V +
    diag(d) with U (H, R) and V (R, H), R = 3, since free matrices would be most of the model.
    """

    def __init__(self, vocab_size: int, hidden_size: int, sparse_grad: bool = False, **kwargs):
        super().__init__(**kwargs)
        self._hidden_size = hidden_size

        def words(width, initializer=None):
            return nn.Embedding(
                vocab_size, width, weight_initializer=initializer, sparse_grad=sparse_grad
            )

        with self.name_scope():
            self.embed = words(hidden_size)
            self.left = words(hidden_size * RANK, mx.init.Normal(0.05))
            self.right = words(RANK * hidden_size, mx.init.Normal(0.05))
            self.diagonal = words(hidden_size, mx.init.One())
            self.identity = self.params.get_constant('identity', mx.nd.eye(hidden_size)[None])

    def hybrid_forward(self, F, token, identity):
        """Compute vectors and matrices of tokens (N,)."""
        size = self._hidden_size
        low_rank = F.batch_dot(
            F.reshape(self.left(token), shape=(-1, size, RANK)),
            F.reshape(self.right(token), shape=(-1, RANK, size)),
        )
        diagonal = F.expand_dims(self.diagonal(token), axis=1)
        return self.embed(token), low_rank + F.broadcast_mul(diagonal, identity)


class MeanOfChildren(mx.init.Initializer):
    """Initialise to [I, I] / 2 with a little noise: a phrase's matrix is then about the mean of its
    children's.

    Otherwise matrices would vanish on their way up the tree, and with them what they multiply.
    """

    def _init_weight(self, name, array):
        mean = mx.nd.tile(mx.nd.eye(array.shape[0], ctx=array.ctx) / 2, reps=(1, 2))
        array[:] = mean + mx.nd.random.normal(scale=0.01, shape=array.shape, ctx=array.ctx)


class MVRNN(SentimentModel):
    """A matrix-vector recursive network (Socher et al., 2012); embedding and hidden have one
    width."""

    def __init__(
        self, vocab_size: int, embed_dim: int, hidden_size: int, sparse_grad: bool = False, **kwargs
    ):
        _check_one_width(embed_dim, hidden_size)
        super().__init__(MVLeaf(vocab_size, hidden_size, sparse_grad), hidden_size, **kwargs)
        with self.name_scope():
            self.cell = edb.rnn.MVRNNCell(hidden_size, matrix_weight_initializer=MeanOfChildren())

    def compose(self, tree, left, right):
        return self.cell(left, right)


def _check_one_width(embed_dim: int, hidden_size: int) -> None:
    if embed_dim != hidden_size:
        raise ValueError(
            f'vectors of words and of phrases have one width, not {embed_dim} and {hidden_size}'
        )


MODELS: dict[str, type[SentimentModel]] = {
    'treelstm': TreeLSTM,
    'treegru': TreeGRU,
    'mvrnn': MVRNN,
    'treelstm2': TwoCellTreeLSTM,
    'treenn': TreeNN,
    'treenn-operators': OperatorTreeNN,
    'tree-transformer': TreeTransformer,
}
# those whose words and phrases have vectors of one width
ONE_WIDTH = ('mvrnn', 'treenn', 'treenn-operators', 'tree-transformer')
