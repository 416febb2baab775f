"""The model, written for one sequence."""

from collections.abc import Sequence

import numpy as np
from mxnet import gluon

import gluon_edbatch as edb

__all__ = ['LSTMAcceptor']


class LSTMAcceptor(edb.AutoBatchMixin, gluon.Block):
    """Compute scores (1, C) of the classes of a sequence: an LSTM reads it, a layer scores its last
    state.

    Gradients of the vectors of tokens are row_sparse, as DyNet's are: they hold those of the
    minibatch only. Where calls are not batched, dense ones would take most of the time, as each
    look-up would have one of the whole table's size.

    Parameters
    ----------
    vocab_size, num_classes : int
        C is the number of classes.
    embed_dim, hidden_size : int
        Widths of the embedding and of the LSTM.
    sparse_grad : bool, default True
        Whether these gradients are row_sparse.
    """

    def __init__(
        self,
        vocab_size: int,
        embed_dim: int,
        hidden_size: int,
        num_classes: int,
        sparse_grad: bool = True,
        **kwargs,
    ):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = gluon.nn.Embedding(vocab_size, embed_dim, sparse_grad=sparse_grad)
            self.cell = gluon.rnn.LSTMCell(hidden_size, input_size=embed_dim)
            self.scores = gluon.nn.Dense(num_classes, in_units=hidden_size)
        self._begin = [np.zeros((1, hidden_size), np.float32)] * 2

    def forward(self, sequence: Sequence[int]):
        if not len(sequence):
            raise ValueError('an acceptor reads a sequence of one token or more')
        states = self._begin
        for token in sequence:
            output, states = self.cell(self.embed(token), states)
        return self.scores(output)
