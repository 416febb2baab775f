"""Classify every phrase of a sentence's tree by sentiment, served by `gluon_edbatch.serving`.

A folder with this file, the words, the parameters and the page is all that is needed: copy it, and
put your own model into it.
"""

import json
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.gluon import nn
from pydantic import BaseModel, ConfigDict, Field

import gluon_edbatch as edb

MOST_WORDS = 300
Place = Annotated[int, Field(ge=0, lt=2 * MOST_WORDS)]


class Request(BaseModel):
    """A binary tree. Its nodes have numbers: words come first; then each merge makes another node
    of two that have no parent yet."""

    model_config = ConfigDict(extra='forbid', strict=True)

    words: list[Annotated[str, Field(min_length=1, max_length=100)]] = Field(
        min_length=1, max_length=MOST_WORDS
    )
    merges: list[tuple[Place, Place]] = Field(max_length=MOST_WORDS)


class Tree(NamedTuple):
    """Ids of words, and the pairs of nodes that are merged."""

    tokens: list[int]
    merges: list[tuple[int, int]]


def tree_of(request: Request, ids: dict[str, int]) -> Tree:
    """Return the tree of a request.

    Raises
    ------
    ValueError
        If the request is not a tree; the message says where.
    """
    count, merges = len(request.words), request.merges
    if len(merges) != count - 1:
        raise ValueError(f'{count} words are one tree after {count - 1} merges')
    taken: set[int] = set()
    for number, pair in enumerate(merges):
        taken.update(pair)
        if len(taken) != 2 * number + 2 or max(pair) >= count + number:
            raise ValueError(
                f'merge {number} takes nodes {pair[0]} and {pair[1]}: not there, or taken'
            )
    return Tree([ids.get(word.lower(), 0) for word in request.words], merges)


class Leaf(gluon.HybridBlock):
    """Compute h and c of a word."""

    def __init__(self, vocab_size: int, embed_dim: int, hidden_size: int):
        super().__init__()
        with self.name_scope():
            self.embed = nn.Embedding(vocab_size, embed_dim)
            self.cell_state = nn.Dense(hidden_size, in_units=embed_dim)
            self.output_gate = nn.Dense(hidden_size, in_units=embed_dim)

    def hybrid_forward(self, F, token):
        """Compute states of tokens (N,)."""
        word = self.embed(token)
        c = self.cell_state(word)
        output = F.Activation(self.output_gate(word), act_type='sigmoid')
        return output * F.Activation(c, act_type='tanh'), c


class TreeLSTM(edb.AutoBatchMixin, gluon.Block):
    """Compute chances (n, 5) of the classes of a tree's n nodes, by their numbers."""

    def __init__(self, vocab_size: int, embed_dim: int, hidden_size: int):
        super().__init__()
        with self.name_scope():
            self.leaf = Leaf(vocab_size, embed_dim, hidden_size)
            self.scores = nn.Dense(5, in_units=hidden_size)
            self.cell = edb.rnn.NaryTreeLSTMCell(hidden_size, input_size=None)

    def forward(self, tree: Tree):
        """Return the chances of one tree's nodes."""
        states = [self.leaf(token) for token in tree.tokens]
        for left, right in tree.merges:
            states.append(self.cell(None, [states[left], states[right]]))
        return mx.nd.softmax(self.scores(edb.concat([vector for vector, _ in states])))


def answer(chances: np.ndarray) -> dict[str, Any]:
    """Return the class of each node, by its number, from very negative (0) to very positive (4),
    and how likely it is."""
    likely = chances.max(axis=1).astype(float)
    return {'sentiment': chances.argmax(axis=1).tolist(), 'chance': likely.round(3).tolist()}


def load(folder: Path) -> edb.serving.Served:
    """Return the model to serve."""
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
