"""The model, written for one sentence (after Kiperwasser and Goldberg 2016)."""

from typing import Any

import numpy as np
from mxnet import gluon

import gluon_edbatch as edb
from example.tagger.model import BiLSTM

from .data import Sentence
from .transitions import NOWHERE, SHIFT, Configuration, Features, num_actions, penalties

__all__ = ['Scorer', 'TokenEmbedding', 'TransitionParser']


class TokenEmbedding(gluon.HybridBlock):
    """Compute a token's vector, (1, E + T), from the ids of word and tag."""

    def __init__(self, num_words: int, num_tags: int, word_dim: int, tag_dim: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.words = gluon.nn.Embedding(num_words, word_dim, sparse_grad=True)
            self.tags = gluon.nn.Embedding(num_tags, tag_dim)

    def hybrid_forward(self, F, word, tag):
        """Compute vectors; each call is one token."""
        return F.concat(self.words(word), self.tags(tag), dim=1)


class Places(gluon.nn.Dense):
    """Compute what a token's vector, (1, V), adds to a hidden layer, (1, H), in each place of a
    decision's `Features`. Several decisions share a token's products."""

    def hybrid_forward(self, F, x, weight, bias):
        """Compute sums; each call is one token. The front, which always exists, adds the bias."""
        size, units = self._in_units // len(Features._fields), {'num_hidden': self._units}
        *stack, front = [
            F.slice_axis(weight, axis=1, begin=place * size, end=(place + 1) * size)
            for place in range(len(Features._fields))
        ]
        sums = [F.FullyConnected(x, each, no_bias=True, **units) for each in stack]
        return (*sums, F.FullyConnected(x, front, bias, **units))


class Scores(gluon.nn.Dense):
    """Compute scores of actions, (1, A), from what the vectors of a decision's `Features` add to
    the hidden layer, (1, H) each."""

    def hybrid_forward(self, F, third, second, top, front, weight, bias):
        """Compute scores; each call is one decision."""
        hidden = F.Activation(third + second + top + front, act_type='tanh')
        return super().hybrid_forward(F, hidden, weight, bias)


class Scorer(gluon.Block):
    """Score the actions of a decision by two layers: `hidden` is called for each token, `scores`
    with its results for the four tokens of a decision."""

    def __init__(self, vector_size: int, hidden_size: int, actions: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.hidden = Places(hidden_size, in_units=len(Features._fields) * vector_size)
            self.scores = Scores(actions, in_units=hidden_size)


class TransitionParser(edb.AutoBatchMixin, gluon.Block):
    """A greedy arc-hybrid parser.

    Parameters
    ----------
    num_words, num_tags, num_relations : int
        Sizes of the vocabularies.
    word_dim, tag_dim : int
        Widths of the embeddings.
    hidden_size : int
        H, of each LSTM.
    scorer_size : int
        Width of the hidden layer that scores actions.
    layers : int, default 2
        Number of `BiLSTM`.
    """

    def __init__(
        self,
        num_words: int,
        num_tags: int,
        num_relations: int,
        word_dim: int,
        tag_dim: int,
        hidden_size: int,
        scorer_size: int,
        layers: int = 2,
        **kwargs,
    ):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = TokenEmbedding(num_words, num_tags, word_dim, tag_dim)
            self.layers = gluon.nn.Sequential()
            for layer in range(layers):
                self.layers.add(
                    BiLSTM(hidden_size, 2 * hidden_size if layer else word_dim + tag_dim)
                )
            self.nothing = gluon.nn.Embedding(1, 2 * hidden_size)  # stands at NOWHERE
            self.scorer = Scorer(2 * hidden_size, scorer_size, num_actions(num_relations))
        self._penalties = penalties(num_relations)

    def forward(self, sentence: Sentence):
        """Return scores (number of steps, number of actions) where the oracle decides. No value is
        read, as the oracle's path is known."""
        places = self._places(sentence)
        return edb.concat([self._scores(places, features) for features in sentence.steps])

    def parse(self, sentence: Sentence):
        """Return heads and relations, (number of words, 2); for
        `gluon_edbatch.run_concurrently`."""
        places, state = self._places(sentence), Configuration(len(sentence))
        yield  # all of them at once, not as they come to be looked at
        while not state.done:
            features, action = state.features(), SHIFT
            if features.top != NOWHERE:
                scores = yield self._scores(places, features)
                action = int((scores[0] + self._penalties[state.legal()]).argmax())
            state.apply(action)
        return np.array([state.heads, state.relations]).T

    def _places(self, sentence: Sentence) -> list[Any]:
        """Return what the vector at each position adds to the scorer's hidden layer, by place."""
        values = [self.embed(word, tag) for word, tag in sentence.tokens]
        for layer in self.layers:
            values = [edb.nd.concat(*both, dim=1) for both in zip(*layer(values))]
        values.append(self.nothing(0))  # the last is at position -1, NOWHERE
        return [self.scorer.hidden(value) for value in values]

    def _scores(self, places: list[Any], features: Features):
        return self.scorer.scores(*[places[where][place] for place, where in enumerate(features)])
