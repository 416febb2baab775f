"""Sentiment of every phrase of a sentence's tree, as `gluon_edbatch.serving` serves it.

A folder with this file, the words, the parameters and the page is all that is needed: copy it, and
put your own model into it.
"""

import json
from pathlib import Path
from typing import Any, Dict, List, Tuple

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.gluon import nn
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import Annotated

import gluon_edbatch as edb

MOST_WORDS, DEEPEST = 300, 200
Place = Annotated[int, Field(ge=0, lt=2 * MOST_WORDS)]


class Request(BaseModel):
    """A binary tree. Its nodes have numbers: words come first; then each merge makes another node
    of two that have no parent yet."""

    model_config = ConfigDict(extra='forbid', strict=True)

    words: List[Annotated[str, Field(min_length=1, max_length=100)]] = Field(
        min_length=1, max_length=MOST_WORDS
    )
    merges: List[Tuple[Place, Place]] = Field(max_length=MOST_WORDS)


class Tree:
    """A leaf has the id of a word, an inner node two children."""

    __slots__ = ('token', 'children')

    def __init__(self, token: Any = None, children: Tuple['Tree', ...] = ()):
        self.token, self.children = token, children


def tree_of(request: Request, ids: Dict[str, int]) -> Tree:
    """The tree of a request.

    Raises
    ------
    ValueError
        If it is none; the message says where.
    """
    count = len(request.words)
    if len(request.merges) != count - 1:
        raise ValueError(f'{count} words are one tree after {count - 1} merges')
    nodes = [Tree(ids.get(word.lower(), 0)) for word in request.words]
    depths, has_parent = [1] * count, [False] * (2 * count)
    for number, pair in enumerate(request.merges):
        for place in pair:
            if place >= len(nodes) or has_parent[place]:
                raise ValueError(f'merge {number} takes node {place}, which is not there, or taken')
            has_parent[place] = True
        nodes.append(Tree(children=(nodes[pair[0]], nodes[pair[1]])))
        depths.append(1 + max(depths[pair[0]], depths[pair[1]]))
        if depths[-1] > DEEPEST:
            raise ValueError(f'the tree is deeper than {DEEPEST} nodes')
    return nodes[-1]


class Leaf(gluon.HybridBlock):
    """h and c of a word."""

    def __init__(self, vocab_size: int, embed_dim: int, hidden_size: int):
        super().__init__()
        with self.name_scope():
            self.embed = nn.Embedding(vocab_size, embed_dim)
            self.cell_state = nn.Dense(hidden_size, in_units=embed_dim)
            self.output_gate = nn.Dense(hidden_size, in_units=embed_dim)

    def hybrid_forward(self, F, token):
        """token (N,)"""
        word = self.embed(token)
        c = self.cell_state(word)
        output = F.Activation(self.output_gate(word), act_type='sigmoid')
        return output * F.Activation(c, act_type='tanh'), c


class TreeLSTM(edb.AutoBatchMixin, gluon.Block):
    """Scores (n, 5) of the classes of a tree's n nodes, children before their parents."""

    def __init__(self, vocab_size: int, embed_dim: int, hidden_size: int):
        super().__init__()
        with self.name_scope():
            self.leaf = Leaf(vocab_size, embed_dim, hidden_size)
            self.scores = nn.Dense(5, in_units=hidden_size)
            self.cell = edb.rnn.NaryTreeLSTMCell(hidden_size, input_size=None)

    def forward(self, tree: Tree):
        """One tree."""
        vectors: List[Any] = []
        self._encode(tree, vectors)
        return mx.nd.softmax(self.scores(edb.concat(vectors)))

    def _encode(self, tree: Tree, vectors: List[Any]):
        if tree.children:
            states = [self._encode(child, vectors) for child in tree.children]
            state = self.cell(None, states)
        else:
            state = self.leaf(tree.token)
        vectors.append(state[0])
        return state


def answer(chances: np.ndarray) -> Dict[str, Any]:
    """From very negative (0) to very positive (4): the class of each node, children before their
    parents, left before right, and how likely it is."""
    likely = chances.max(axis=1).astype(float)
    return {'sentiment': chances.argmax(axis=1).tolist(), 'chance': likely.round(3).tolist()}


def load(folder: Path) -> edb.serving.Served:
    """What is served."""
    shape = json.loads((folder / 'words.json').read_text(encoding='utf-8'))
    ids = {word: number for number, word in enumerate(shape['words'])}
    net = TreeLSTM(len(ids), shape['embed'], shape['hidden'])
    net.load_parameters(str(folder / 'net.params'))
    return edb.serving.Served(
        predict=net,
        request=Request,
        read=lambda request: tree_of(request, ids),
        write=answer,
        warm_up=json.loads((folder / 'warm_up.json').read_text(encoding='utf-8')),
    )
