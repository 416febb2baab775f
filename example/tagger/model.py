"""The model, written for one sentence."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from mxnet import gluon

import gluon_edbatch as edb

from .data import Sentence
from .encode import both_ways, spelling, tags

__all__ = ['BiLSTM', 'BiLSTMTagger', 'SpellingLSTM']


class BiLSTM(edb.AutoBatchMixin, gluon.Block):
    """Run two LSTMs over a sequence, one from each end.

    Parameters
    ----------
    hidden_size : int
        H, width of each LSTM.
    input_size : int
        E

    Inputs
        - **inputs**: list of (1, E)

    Outputs
        - lists of h of the LSTM from the left and of that from the right, each (1, H), both in
          the inputs' order
    """

    def __init__(self, hidden_size: int, input_size: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.rightward = gluon.rnn.LSTMCell(hidden_size, input_size=input_size)
            self.leftward = gluon.rnn.LSTMCell(hidden_size, input_size=input_size)
        self.begin = [np.zeros((1, hidden_size), np.float32)] * 2

    def forward(self, inputs: Sequence[Any]):
        return both_ways(self, inputs, self.begin)


class SpellingLSTM(edb.AutoBatchMixin, gluon.Block):
    """Compute a word's vector, (1, E), from its characters: the last states of a `BiLSTM`."""

    def __init__(self, num_chars: int, char_dim: int, embed_dim: int, **kwargs):
        super().__init__(**kwargs)
        if embed_dim % 2:
            raise ValueError(
                f'two LSTMs share the width of a word vector, which {embed_dim} '
                'does not allow: it must be even'
            )
        with self.name_scope():
            self.embed = gluon.nn.Embedding(num_chars, char_dim)
            self.bilstm = BiLSTM(embed_dim // 2, char_dim)

    def forward(self, chars: Sequence[int]):
        return spelling(self, chars, self.bilstm.begin)


class BiLSTMTagger(edb.AutoBatchMixin, gluon.Block):
    """Compute scores (number of tokens, number of tags) for the tags of a sentence's words.

    Parameters
    ----------
    num_words, num_tags : int
        Sizes of the vocabularies.
    embed_dim, hidden_size : int
        E, and H of each LSTM.
    layers : int, default 2
        Number of `BiLSTM`.
    num_chars : int, default 0
        Size of the vocabulary of characters; with 0, no word can be spelt.
    char_dim : int, default 20
        Width of a character's vector.
    sparse_grad : bool, default False
        Whether gradients of words' vectors are row_sparse.
    """

    def __init__(
        self,
        num_words: int,
        num_tags: int,
        embed_dim: int,
        hidden_size: int,
        layers: int = 2,
        num_chars: int = 0,
        char_dim: int = 20,
        sparse_grad: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = gluon.nn.Embedding(num_words, embed_dim, sparse_grad=sparse_grad)
            if num_chars:
                self.spelling = SpellingLSTM(num_chars, char_dim, embed_dim)
            self.layers = gluon.nn.Sequential()
            for layer in range(layers):
                self.layers.add(BiLSTM(hidden_size, 2 * hidden_size if layer else embed_dim))
            self.scores = gluon.nn.Dense(num_tags, in_units=2 * hidden_size)

    def forward(self, sentence: Sentence):
        begin = self.spelling.bilstm.begin if hasattr(self, 'spelling') else None
        return tags(self, sentence.tokens, self.layers[0].begin, begin)
