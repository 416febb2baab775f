"""Models written for one sample, and generators of samples, that several test files use."""

from typing import NamedTuple, Optional

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.gluon import nn

import gluon_edbatch as edb

VOCAB, EMBED, HIDDEN, CLASSES = 11, 3, 4, 5


class Tree(NamedTuple):
    """A node with a word and children."""

    token: int
    children: tuple['Tree', ...] = ()

    def depth(self) -> int:
        """Number of levels."""
        return 1 + max([child.depth() for child in self.children], default=0)

    def size(self) -> int:
        """Number of nodes."""
        return 1 + sum(child.size() for child in self.children)


def random_tree(
    generator: np.random.RandomState, nodes: int, arity: int = 4, vocab: int = VOCAB
) -> Tree:
    """Return a tree with this many nodes and up to `arity` children a node."""
    sizes: list[int] = []
    left = nodes - 1
    for slot in range(min(arity, left)):
        size = left if slot == arity - 1 else generator.randint(1, left + 1)
        sizes.append(size)
        left -= size
        if not left:
            break
    return Tree(
        int(generator.randint(vocab)),
        tuple(random_tree(generator, size, arity, vocab) for size in sizes),
    )


def random_trees(count: int, seed: int = 0, largest: int = 9, arity: int = 4) -> list[Tree]:
    """Return trees of one node up to `largest`."""
    generator = np.random.RandomState(seed)
    return [random_tree(generator, generator.randint(1, largest + 1), arity) for _ in range(count)]


def binary_tree(generator: np.random.RandomState, leaves: int) -> Tree:
    """Return a tree whose nodes have two children or none."""
    token = int(generator.randint(VOCAB))
    if leaves == 1:
        return Tree(token)
    left = generator.randint(1, leaves)
    return Tree(token, (binary_tree(generator, left), binary_tree(generator, leaves - left)))


def binary_trees(count: int, seed: int = 0, most: int = 5) -> list[Tree]:
    """Return binary trees with one leaf up to `most`."""
    generator = np.random.RandomState(seed)
    return [binary_tree(generator, generator.randint(1, most + 1)) for _ in range(count)]


def started(
    net: gluon.Block, seed: int = 0, dtype: str = 'float32', ctx: Optional[mx.Context] = None
) -> gluon.Block:
    """Return the block with parameters drawn from `seed`; deferred ones stay deferred."""
    mx.random.seed(seed)
    net.initialize(mx.init.Uniform(0.5), ctx=ctx)
    if dtype != 'float32':
        net.cast(dtype)
    return net


def arrays(count: int, shape: tuple[int, ...], seed: int = 0, dtype='float32') -> list[np.ndarray]:
    """Return NumPy arrays of one shape."""
    generator = np.random.RandomState(seed)
    return [generator.uniform(-1, 1, shape).astype(dtype) for _ in range(count)]


def ndarrays(
    count: int,
    shape: tuple[int, ...],
    seed: int = 0,
    dtype='float32',
    gradient: bool = False,
    ctx: Optional[mx.Context] = None,
) -> list[mx.nd.NDArray]:
    """Return NDArrays of one shape, with gradients attached if asked."""
    made = [mx.nd.array(array, ctx, dtype) for array in arrays(count, shape, seed, dtype)]
    if gradient:
        for array in made:
            array.attach_grad()
    return made


def dense(units=3, in_units=4, **kwargs):
    """Return an initialised Dense."""
    net = nn.Dense(units, in_units=in_units, **kwargs)
    net.initialize(mx.init.Xavier())
    return net


def rows(count, size=4, seed=0):
    """Return `count` samples of one row."""
    values = np.random.RandomState(seed).randn(count, 1, size).astype(np.float32)
    return [mx.nd.array(value) for value in values]


class TreeLSTM(edb.AutoBatchMixin, gluon.Block):
    """Compute scores of the root of a tree, from a child-sum Tree-LSTM."""

    def __init__(self, hidden: int = HIDDEN, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = nn.Embedding(VOCAB, EMBED)
            self.cell = edb.rnn.ChildSumTreeLSTMCell(hidden, input_size=EMBED)
            self.score = nn.Dense(CLASSES, in_units=hidden)

    def encode(self, tree: Tree):
        """Return (h, c) of a node."""
        return self.cell(self.embed(tree.token), [self.encode(child) for child in tree.children])

    def forward(self, tree: Tree):
        """Return the scores of a tree's root, (1, CLASSES)."""
        return self.score(self.encode(tree)[0])


class BinaryTreeLSTM(edb.AutoBatchMixin, gluon.Block):
    """Compute the state of the root of a binary tree; words at the leaves only, or everywhere."""

    def __init__(self, words_inside: bool = True, hidden: int = HIDDEN, **kwargs):
        super().__init__(**kwargs)
        self.words_inside = words_inside
        with self.name_scope():
            self.embed = nn.Embedding(VOCAB, EMBED)
            self.cell = edb.rnn.NaryTreeLSTMCell(hidden, arity=2, input_size=EMBED)

    def forward(self, tree: Tree):
        """Return h and c of the root, (1, H) each."""
        children = [self(child) for child in tree.children]
        word = None if children and not self.words_inside else self.embed(tree.token)
        return self.cell(word, children)


class TreeGRU(edb.AutoBatchMixin, gluon.Block):
    """Compute the state of the root of a tree by a Tree-GRU; words at the leaves only, or
    everywhere."""

    def __init__(self, words_inside: bool = True, hidden: int = HIDDEN, **kwargs):
        super().__init__(**kwargs)
        self.words_inside = words_inside
        with self.name_scope():
            self.embed = nn.Embedding(VOCAB, EMBED)
            self.cell = edb.rnn.TreeGRUCell(hidden, input_size=EMBED)

    def forward(self, tree: Tree):
        """Return the state of the root, (1, H)."""
        children = [self(child) for child in tree.children]
        word = None if children and not self.words_inside else self.embed(tree.token)
        return self.cell(word, children)


class MVRNN(edb.AutoBatchMixin, gluon.Block):
    """Compute vector and matrix of the root of a binary tree."""

    def __init__(self, hidden: int = HIDDEN, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.vector = nn.Embedding(VOCAB, hidden)
            self.matrix = nn.Embedding(VOCAB, hidden * hidden)
            self.cell = edb.rnn.MVRNNCell(hidden)
        self._shape = (-1, hidden, hidden)

    def forward(self, tree: Tree):
        """Return vector and matrix of the root, (1, H) and (1, H, H)."""
        if tree.children:
            return self.cell(*[self(child) for child in tree.children])
        return self.vector(tree.token), self.matrix(tree.token).reshape(self._shape)


class Reader(edb.AutoBatchMixin, gluon.Block):
    """Run a recurrent cell over a sequence of word ids of any length."""

    def __init__(self, cell_class=gluon.rnn.LSTMCell, hidden: int = HIDDEN, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = nn.Embedding(VOCAB, EMBED)
            self.cell = cell_class(hidden, input_size=EMBED)
            self.score = nn.Dense(CLASSES, in_units=hidden)

    def forward(self, tokens):
        """Return scores after the last word, (1, CLASSES)."""
        states = self.cell.begin_state(batch_size=1, ctx=self.score.weight.list_ctx()[0])
        output = None
        for token in tokens:
            output, states = self.cell(self.embed(token), states)
        return self.score(output)


def sentences(count: int, seed: int = 0, longest: int = 6) -> list[list[int]]:
    """Return lists of word ids, of one word or more."""
    generator = np.random.RandomState(seed)
    return [
        generator.randint(VOCAB, size=generator.randint(1, longest + 1)).tolist()
        for _ in range(count)
    ]
