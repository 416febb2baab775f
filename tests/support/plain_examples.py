"""Models of the examples as plain code, which reads values where their own `yield` them."""

import numpy as np

import gluon_edbatch as edb
from example.adaptive.model import LITTLE, PonderingReader, Reading
from example.beam_search.beam import Hypothesis, expand, prune
from example.beam_search.model import VowelWriter
from example.pointer.model import PointerNetwork
from example.transition_parser.model import TransitionParser
from example.transition_parser.transitions import NOWHERE, SHIFT, Configuration


class Parser(TransitionParser):
    """Does in `forward` what `parse` does."""

    def forward(self, sentence):
        places, state = self._places(sentence), Configuration(len(sentence))
        while not state.done:
            features, action = state.features(), SHIFT
            if features.top != NOWHERE:
                scores = self._scores(places, features).asnumpy()
                action = int((scores[0] + self._penalties[state.legal()]).argmax())
            state.apply(action)
        return np.array([state.heads, state.relations]).T


class Writer(VowelWriter):
    """Does in `forward` what `search` does."""

    def forward(self, search):
        word, width, margin = search
        vectors = self._encode(word)
        live = [Hypothesis(0.0, '', 0, 0, self._begin)]
        while not live[0].complete:
            followed = [hypothesis for hypothesis in live if not hypothesis.complete]
            complete = live[len(followed) :]
            decoded = [
                self._decode(hypothesis.step(), vectors, hypothesis.states)
                for hypothesis in followed
            ]
            log_probs = [scores.asnumpy() for scores, _ in decoded]
            for hypothesis, scores, (_, states) in zip(followed, log_probs, decoded):
                complete += expand(hypothesis, word.consonants, scores[0], states)
            live = prune(complete, width, margin)
        return live[0]


class Reader(PonderingReader):
    """Does in `forward` what `read` does."""

    def forward(self, sentence):
        words = [self.embed(word) for word in sentence.words[0].tolist()]
        memory = edb.ragged(list(map(self.word, words, [self._nothing, *words])))
        state = mean = self._nothing
        left, cost = np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32)
        for steps in range(1, self.most + 1):
            state, mean, left, cost = self.step(state, mean, left, cost, memory)
            if steps == self.most or left.asnumpy()[0, 0] < LITTLE:
                break
        return Reading(self.answer(state, mean, left), cost, steps)


class Pointing(PointerNetwork):
    """Does in `forward` what `write` does."""

    def forward(self, sentence):
        memory = self._read(sentence)
        word, context, states = self._no_word, self._no_state, memory.states
        order, left = [], np.ones(len(sentence), bool)
        for _ in sentence.words:
            states = self.step(word, context, *states)
            weights, context = self.pointer(states[0], memory.keys, memory.values)
            chances = weights.asnumpy()
            order.append(int(np.where(left, chances.reshape(-1), -1).argmax()))
            left[order[-1]] = False
            word = memory.words[order[-1]]
        return np.array(order)
