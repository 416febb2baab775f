"""The model, written for one sentence (after Kiperwasser and Goldberg 2016)."""

from typing import Any, List

import numpy as np
from mxnet import gluon
from tagger.model import BiLSTM

import gluon_edbatch as edb

from .data import Sentence
from .transitions import NOWHERE, SHIFT, Configuration, Features, num_actions, penalties

__all__ = ['Scorer', 'TokenEmbedding', 'TransitionParser']


class TokenEmbedding(gluon.HybridBlock):
    """A token's vector, (1, E + T), from the ids of word and tag."""

    def __init__(self, num_words: int, num_tags: int, word_dim: int, tag_dim: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.words = gluon.nn.Embedding(num_words, word_dim, sparse_grad=True)
            self.tags = gluon.nn.Embedding(num_tags, tag_dim)

    def hybrid_forward(self, F, word, tag):
        """One call a token."""
        return F.concat(self.words(word), self.tags(tag), dim=1)


class Scorer(gluon.HybridBlock):
    """Scores of actions, (1, A), from the vectors, each (1, V), of a decision's `Features`."""

    def __init__(self, vector_size: int, hidden_size: int, actions: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.hidden = gluon.nn.Dense(
                hidden_size, activation='tanh', in_units=len(Features._fields) * vector_size
            )
            self.scores = gluon.nn.Dense(actions, in_units=hidden_size)

    def hybrid_forward(self, F, third, second, top, front):
        """One call a decision."""
        return self.scores(self.hidden(F.concat(third, second, top, front, dim=1)))


class TransitionParser(edb.AutoBatchMixin, gluon.Block):
    """Greedy arc-hybrid parser.

    Parameters
    ----------
    num_words, num_tags, num_relations : int
        Sizes of the vocabularies.
    word_dim, tag_dim : int
        Widths of the embeddings.
    hidden_size : int
        H, of each LSTM.
    scorer_size : int
        Of the hidden layer that scores actions.
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
        """Scores (number of steps, number of actions) where the oracle decides; its way is known,
        so nothing has to be looked at."""
        vectors = self._vectors(sentence)
        return edb.concat([self._scores(vectors, features) for features in sentence.steps])

    def parse(self, sentence: Sentence):
        """For `gluon_edbatch.run_concurrently`: heads and relations, (number of words, 2)."""
        vectors, state = self._vectors(sentence), Configuration(len(sentence))
        yield  # all of them at once, not as they come to be looked at
        while not state.done:
            features, action = state.features(), SHIFT
            if features.top != NOWHERE:
                scores = yield self._scores(vectors, features)
                action = int((scores[0] + self._penalties[state.legal()]).argmax())
            state.apply(action)
        return np.array([state.heads, state.relations]).T

    def _vectors(self, sentence: Sentence) -> List[Any]:
        """(1, 2H) by position."""
        values = [self.embed(word, tag) for word, tag in sentence.tokens]
        for layer in self.layers:
            values = [edb.nd.concat(*both, dim=1) for both in zip(*layer(values))]
        return values + [self.nothing(0)]  # the last is at position -1, NOWHERE

    def _scores(self, vectors: List[Any], features: Features):
        return self.scorer(*[vectors[position] for position in features])
