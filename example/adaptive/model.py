"""The model, written for one sentence: it takes steps until it decides to stop (Graves 2016).

All steps contribute to the answer. Each takes a share, its chance to stop, of what the steps before
have left, so shares can be learned (Eyzaguirre and Soto 2020). When almost nothing is left, the
model stops.
"""

from typing import Any, NamedTuple

import numpy as np
from mxnet import gluon

import gluon_edbatch as edb
from example.sentence_sst.data import Sentence

__all__ = ['Answer', 'PonderLoss', 'PonderingReader', 'Reading', 'Step', 'Word']

LITTLE = 0.05  # what may be left undone


class Word(gluon.HybridBlock):
    """Combine a word with the one before it.

    Inputs
        - **word**, **before**: (N, H)

    Outputs
        - (N, H)
    """

    def __init__(self, hidden_size: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.both = gluon.nn.Dense(hidden_size, activation='tanh', in_units=2 * hidden_size)

    def hybrid_forward(self, F, word, before):
        """Combine vectors; each call is one word."""
        return self.both(F.concat(word, before, dim=1))


class Step(gluon.HybridBlock):
    """Attend to all words once more.

    Inputs
        - **state**: (N, H)
        - **mean**: (N, H), the sum of states by their shares
        - **left**: (N, 1), what the shares leave of 1
        - **cost**: (N, 1), the sum of what was left before each step: how many are expected
        - **memory**: (N, K, H), of the words

    Outputs
        - state, mean, left and cost after the step
    """

    def __init__(self, hidden_size: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.query = gluon.nn.Dense(hidden_size, in_units=hidden_size)
            self.cell = gluon.rnn.GRUCell(hidden_size, input_size=hidden_size)
            self.halt = gluon.nn.Dense(1, in_units=hidden_size)

    def hybrid_forward(self, F, state, mean, left, cost, memory):
        """Take a step; each call is one step of a sentence."""
        scores = F.batch_dot(memory, F.expand_dims(self.query(state), axis=2))
        weights = F.softmax(scores, axis=1)
        context = F.squeeze(F.batch_dot(weights, memory, transpose_a=True), axis=1)
        state, _ = self.cell(context, [state])
        share = left * F.sigmoid(self.halt(state))
        mean = mean + F.broadcast_mul(share, state)
        # MXNet cannot differentiate `cost + left` in a hybridized block: storage_type_num_unknown.
        return state, mean, left - share, F.broadcast_add(cost, left)


class Answer(gluon.HybridBlock):
    """Compute scores (N, number of classes) after the last step, which gets what is left.

    Inputs are outputs of `Step`.
    """

    def __init__(self, num_classes: int, hidden_size: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.scores = gluon.nn.Dense(num_classes, in_units=hidden_size)

    def hybrid_forward(self, F, state, mean, left):
        """Compute scores; each call is one sentence."""
        return self.scores(mean + F.broadcast_mul(left, state))


class PonderLoss(gluon.HybridBlock):
    """Compute cross entropy (N,), and what steps cost.

    Parameters
    ----------
    price : float
        Cost of a step.
    """

    def __init__(self, price: float, **kwargs):
        super().__init__(**kwargs)
        self._price = price
        with self.name_scope():
            self.entropy = gluon.loss.SoftmaxCrossEntropyLoss()

    def hybrid_forward(self, F, scores, cost, label):
        """Compute the loss; each call is one sentence."""
        return self.entropy(scores, label) + self._price * F.reshape(cost, shape=(-1,))


class Reading(NamedTuple):
    """Scores and cost of a sentence, and how many steps it took."""

    scores: Any
    cost: Any
    steps: int


class PonderingReader(edb.AutoBatchMixin, gluon.Block):
    """Read sentences in as many steps as each needs.

    Parameters
    ----------
    num_words, num_classes : int
        Sizes of the vocabulary and of the answer.
    hidden_size : int
        H: width of words and states.
    most : int
        Most steps that are taken.
    """

    def __init__(self, num_words: int, num_classes: int, hidden_size: int, most: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = gluon.nn.Embedding(num_words, hidden_size, sparse_grad=True)
            self.word = Word(hidden_size)
            self.step = Step(hidden_size)
            self.answer = Answer(num_classes, hidden_size)
        self.most = most
        self._nothing = np.zeros((1, hidden_size), np.float32)

    def read(self, sentence: Sentence):
        """Return a `Reading`; for `gluon_edbatch.run_concurrently`."""
        words = [self.embed(word) for word in sentence.words[0].tolist()]
        memory = edb.ragged(list(map(self.word, words, [self._nothing, *words])))
        state = mean = self._nothing
        left, cost = np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32)
        for steps in range(1, self.most + 1):
            state, mean, left, cost = self.step(state, mean, left, cost, memory)
            if steps == self.most or (yield left)[0, 0] < LITTLE:
                break
        return Reading(self.answer(state, mean, left), cost, steps)

    def forward(self, sentence: Sentence) -> Reading:
        return edb.run_concurrently([sentence], self.read)[0]
