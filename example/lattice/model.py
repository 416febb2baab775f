"""The model, written for one lattice."""

import numpy as np
from mxnet import gluon

import gluon_edbatch as edb

from .data import Lattice
from .encode import encode, tags

__all__ = ['CELLS', 'LatticeRNN', 'LatticeTagger', 'Merge']

CELLS = {'lstm': gluon.rnn.LSTMCell, 'gru': gluon.rnn.GRUCell}


class Merge(gluon.HybridBlock):
    """Compute one state from those of several arcs into a position.

    A mean of the states, weighted for each unit apart: the weights are a softmax over the arcs,
    computed from h (Zhang and Yang, 2018, eq. 12 and 15, have the like for c alone).

    Inputs
        - **lengths**: (1,), number of states
        - **h**, **c**: the states, ragged values (1, H); c may be missing

    Outputs
        - **h**, or h and c, each (1, H)
    """

    def __init__(self, hidden_size: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.gate = gluon.nn.Dense(
                hidden_size, use_bias=False, flatten=False, in_units=hidden_size
            )  # a softmax cancels a bias

    def hybrid_forward(self, F, lengths, h, c=None):
        """Merge states: lengths (N,), h and c (N, K, H), padded with zeros."""
        gates = F.SequenceMask(self.gate(h), lengths, use_sequence_length=True, axis=1, value=-1e9)
        weights = F.softmax(gates, axis=1)
        merged = F.sum(weights * h, axis=1)
        return merged if c is None else (merged, F.sum(weights * c, axis=1))


class LatticeRNN(edb.AutoBatchMixin, gluon.Block):
    """A recurrent network over a lattice: h at every character, each (1, H).

    Each position has an arc for its character, from the position before, and an arc for each
    dictionary word that ends there, from its beginning. Characters and words have separate cells.

    Parameters
    ----------
    kind : str
        ``lstm`` or ``gru``.
    num_chars, num_words : int
        Sizes of the vocabularies.
    embed_dim, hidden_size : int
        E and H.
    """

    def __init__(
        self, kind: str, num_chars: int, num_words: int, embed_dim: int, hidden_size: int, **kwargs
    ):
        super().__init__(**kwargs)
        with self.name_scope():
            self.char_embed = gluon.nn.Embedding(num_chars, embed_dim)
            self.word_embed = gluon.nn.Embedding(num_words, embed_dim)
            self.char_cell = CELLS[kind](hidden_size, input_size=embed_dim)
            self.word_cell = CELLS[kind](hidden_size, input_size=embed_dim)
            self.merge = Merge(hidden_size)
        self.begin = [
            np.zeros(info['shape'], np.float32) for info in self.char_cell.state_info(batch_size=1)
        ]

    def forward(self, lattice: Lattice):
        return encode(self, lattice, self.begin)


class LatticeTagger(edb.AutoBatchMixin, gluon.Block):
    """Compute scores (number of characters, number of tags) for the tags of a lattice's characters.

    Parameters
    ----------
    kind, num_chars, num_words, embed_dim, hidden_size
        As for `LatticeRNN`.
    num_tags : int
    bidirectional : bool, default False
        Read the lattice from right to left as well, with a network of its own.
    """

    def __init__(
        self,
        kind: str,
        num_chars: int,
        num_words: int,
        num_tags: int,
        embed_dim: int,
        hidden_size: int,
        bidirectional: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self._bidirectional = bidirectional
        with self.name_scope():
            sizes = num_chars, num_words, embed_dim, hidden_size
            self.rightward = LatticeRNN(kind, *sizes)
            if bidirectional:
                self.leftward = LatticeRNN(kind, *sizes)
            self.scores = gluon.nn.Dense(num_tags, in_units=(1 + bidirectional) * hidden_size)

    def forward(self, lattice: Lattice):
        if not self._bidirectional:
            return tags(self, lattice, self.rightward.begin)
        states = edb.concat(self.rightward(lattice))
        backward = edb.concat(self.leftward(lattice.reversed())[::-1])
        return self.scores(edb.nd.concat(states, backward, dim=1))
