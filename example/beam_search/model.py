"""The model, written for one word: an LSTM that writes with hard monotonic attention
(Aharoni and Goldberg 2017), here to the next consonant."""

from typing import Any

import numpy as np
from mxnet import gluon

import gluon_edbatch as edb
from example.tagger.model import BiLSTM

from .beam import Hypothesis, Search, expand, prune
from .data import END, NUM_ACTIONS, NUM_LETTERS, Step, Word, letter_id

__all__ = ['Decoder', 'VowelWriter']


class Decoder(gluon.HybridBlock):
    """Compute how likely each next letter of a word is.

    Inputs
        - **letter**: id of the letter written last
        - **vector**: (1, V) of the next consonant
        - **h**, **c**: states, each (1, H)

    Outputs
        - log-probabilities of the actions, (1, A), and the next h and c
    """

    def __init__(self, hidden_size: int, letter_dim: int, vector_size: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = gluon.nn.Embedding(NUM_LETTERS, letter_dim)
            self.cell = gluon.rnn.LSTMCell(hidden_size, input_size=letter_dim + vector_size)
            self.scores = gluon.nn.Dense(NUM_ACTIONS, in_units=hidden_size)

    def hybrid_forward(self, F, letter, vector, h, c):
        """Write one letter; each call is one step of a hypothesis."""
        output, (h, c) = self.cell(F.concat(self.embed(letter), vector, dim=1), [h, c])
        return F.log_softmax(self.scores(output)), h, c


class VowelWriter(edb.AutoBatchMixin, gluon.Block):
    """Write the vowels of words.

    Parameters
    ----------
    hidden_size : int
        H, of each LSTM.
    letter_dim : int
        Width of a letter's vector.
    """

    def __init__(self, hidden_size: int, letter_dim: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = gluon.nn.Embedding(NUM_LETTERS, letter_dim)
            self.encoder = BiLSTM(hidden_size, letter_dim)
            self.decoder = Decoder(hidden_size, letter_dim, 2 * hidden_size)
        self._begin = (np.zeros((1, hidden_size), np.float32),) * 2

    def forward(self, word: Word):
        """Return log-probabilities of actions, (number of steps, number of actions), along the
        word."""
        vectors, states, rows = self._encode(word), self._begin, []
        for step in word.steps:
            log_probs, states = self._decode(step, vectors, states)
            rows.append(log_probs)
        return edb.concat(rows)

    def search(self, search: Search):
        """Return the most probable text that is found, as a complete `Hypothesis`; for
        `gluon_edbatch.run_concurrently`."""
        word, width, margin = search
        vectors = self._encode(word)
        yield  # all of them at once
        live = [Hypothesis(0.0, '', 0, 0, self._begin)]
        while not live[0].complete:
            followed = [hypothesis for hypothesis in live if not hypothesis.complete]
            complete = live[len(followed) :]
            decoded = [
                self._decode(hypothesis.step(), vectors, hypothesis.states)
                for hypothesis in followed
            ]
            log_probs = yield [scores for scores, _ in decoded]
            for hypothesis, scores, (_, states) in zip(followed, log_probs, decoded):
                complete += expand(hypothesis, word.consonants, scores[0], states)
            live = prune(complete, width, margin)
        return live[0]

    def _encode(self, word: Word) -> list[Any]:
        """Return (1, 2H) for each consonant and the end."""
        letters = [*map(letter_id, word.consonants), END]
        directions = self.encoder([self.embed(letter) for letter in letters])
        return [edb.nd.concat(*both, dim=1) for both in zip(*directions)]

    def _decode(self, step: Step, vectors: list[Any], states: Any):
        log_probs, *states = self.decoder(step.letter, vectors[step.position], *states)
        return log_probs, states
