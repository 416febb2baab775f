"""The model, written for one sentence: a sequence to sequence model that writes by pointing at what
it has read (Vinyals et al. 2015), with additive attention (Bahdanau et al. 2015)."""

from typing import Any, NamedTuple

import numpy as np
from mxnet import gluon

import gluon_edbatch as edb

from .data import Shuffled

__all__ = ['Copy', 'Pointer', 'PointerNetwork', 'Position', 'Step', 'Surprise']


class Position(gluon.HybridBlock):
    """Compute what each written word needs of a position that was read.

    Inputs
        - **h**: (N, H), state of the LSTM that reads
        - **name**: (N,), see `Shuffled`

    Outputs
        - key of attention, (N, H), and the name as (N, 1)
    """

    def __init__(self, hidden_size: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.key = gluon.nn.Dense(hidden_size, in_units=hidden_size)

    def hybrid_forward(self, F, h, name):
        """Compute keys; each call is one word that is read."""
        return self.key(h), F.reshape(name, shape=(-1, 1))


class Step(gluon.HybridBlock):
    """The LSTM that writes: h and c, (N, H) each, after a word.

    Inputs
        - **word**: (N, E), the vector of the word written last
        - **context**: (N, H), what was attended to then
        - **h**, **c**: (N, H)
    """

    def __init__(self, hidden_size: int, embed_dim: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.cell = gluon.rnn.LSTMCell(hidden_size, input_size=embed_dim + hidden_size)

    def hybrid_forward(self, F, word, context, h, c):
        """Compute states; each call is one word that is written."""
        _, states = self.cell(F.concat(word, context, dim=1), [h, c])
        return tuple(states)


class Pointer(gluon.HybridBlock):
    """Choose a position to copy from.

    Inputs
        - **h**: (N, H) of the LSTM that writes
        - **keys**, **memory**: (N, K, H), of what was read

    Outputs
        - probabilities of the positions, (N, K, 1), and the mean of the memory that they weight,
          (N, H)
    """

    def __init__(self, hidden_size: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.query = gluon.nn.Dense(hidden_size, use_bias=False, in_units=hidden_size)
            self.score = gluon.nn.Dense(1, use_bias=False, flatten=False, in_units=hidden_size)

    def hybrid_forward(self, F, h, keys, memory):
        """Compute probabilities; each call is one word that is written."""
        query = F.expand_dims(self.query(h), axis=1)
        weights = F.softmax(self.score(F.tanh(F.broadcast_add(keys, query))), axis=1)
        return weights, F.squeeze(F.batch_dot(weights, memory, transpose_a=True), axis=1)


class Copy(gluon.HybridBlock):
    """Compute the probability of copying a word: a `Pointer` whose answer is known.

    Inputs are the pointer's and
        - **names**: (N, K, 1) of the positions
        - **name**: (N,) of the word

    Outputs
        - probability of all positions together that have the word, (N, 1), and the mean, (N, H)
    """

    def __init__(self, pointer: Pointer, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.pointer = pointer

    def hybrid_forward(self, F, h, keys, memory, names, name):
        """Compute probabilities; each call is one word that is written."""
        weights, mean = self.pointer(h, keys, memory)
        there = F.broadcast_equal(names, F.reshape(name, shape=(-1, 1, 1)))
        return F.sum(weights * there, axis=1), mean


class Surprise(gluon.HybridBlock):
    """Compute the loss: minus the logarithm of probabilities (N, 1), as (N,)."""

    def hybrid_forward(self, F, probabilities):
        """Compute the loss; each call is one sentence."""
        return F.reshape(-F.log(probabilities + 1e-12), shape=(-1,))


class Memory(NamedTuple):
    """What was read: vectors of the words by position, the pointer's memory, and states."""

    words: list[Any]
    keys: Any
    values: Any
    names: Any
    states: Any


class PointerNetwork(edb.AutoBatchMixin, gluon.Block):
    """Put the words of a sentence in order, by a pointer network.

    Parameters
    ----------
    num_words : int
        Size of the vocabulary.
    embed_dim, hidden_size : int
        E, and H of both LSTMs.
    """

    def __init__(self, num_words: int, embed_dim: int, hidden_size: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = gluon.nn.Embedding(num_words, embed_dim, sparse_grad=True)
            self.reader = gluon.rnn.LSTMCell(hidden_size, input_size=embed_dim)
            self.position = Position(hidden_size)
            self.step = Step(hidden_size, embed_dim)
            self.pointer = Pointer(hidden_size)
            self.copy = Copy(self.pointer)
        self._no_word = np.zeros((1, embed_dim), np.float32)
        self._no_state = np.zeros((1, hidden_size), np.float32)

    def forward(self, sentence: Shuffled):
        """Return probabilities, (n, 1), of the right words, each after the right ones before."""
        memory = self._read(sentence)
        word, context, states, probabilities = self._no_word, self._no_state, memory.states, []
        for position in sentence.order:
            states = self.step(word, context, *states)
            probability, context = self.copy(
                states[0], memory.keys, memory.values, memory.names, sentence.names[position]
            )
            word = memory.words[position]
            probabilities.append(probability)
        return edb.concat(probabilities)

    def write(self, sentence: Shuffled):
        """Return the positions in the predicted order; for `gluon_edbatch.run_concurrently`."""
        memory = self._read(sentence)
        yield  # all sentences are read at once
        word, context, states = self._no_word, self._no_state, memory.states
        order, left = [], np.ones(len(sentence), bool)
        for _ in sentence.words:
            states = self.step(word, context, *states)
            weights, context = self.pointer(states[0], memory.keys, memory.values)
            chances = yield weights
            order.append(int(np.where(left, chances.reshape(-1), -1).argmax()))
            left[order[-1]] = False
            word = memory.words[order[-1]]
        return np.array(order)

    def _read(self, sentence: Shuffled) -> Memory:
        words = [self.embed(word) for word in sentence.words]
        outputs, states = [], [self._no_state] * 2
        for word in words:
            output, states = self.reader(word, states)
            outputs.append(output)
        keys, names = zip(*map(self.position, outputs, sentence.names))
        return Memory(words, edb.ragged(keys), edb.ragged(outputs), edb.ragged(names), states)
