"""Seven models that read values in the middle, as plain code and as generators."""

from collections.abc import Iterator, Sequence
from typing import Any, Callable, NamedTuple

import mxnet as mx
import numpy as np
from mxnet import gluon

import gluon_edbatch as edb
from example.adaptive.model import LITTLE, PonderingReader, Reading
from example.adaptive.task import AdaptiveTask
from example.beam_search.beam import Hypothesis, Search, expand, prune
from example.beam_search.model import VowelWriter
from example.beam_search.task import VowelTask
from example.common.options import parse
from example.pointer.model import PointerNetwork
from example.pointer.task import PointerTask
from example.transition_parser.model import TransitionParser
from example.transition_parser.task import ParserTask
from example.transition_parser.transitions import NOWHERE, SHIFT, Configuration

__all__ = ['MODELS', 'Model']


class Model(NamedTuple):
    """A model that reads values.

    Attributes
    ----------
    net : gluon.Block
        Its `forward` is plain code.
    steps : callable
        The same as a generator, for `run_concurrently`.
    samples : list
    trains : bool
        Whether results are losses, whose gradients are computed.
    """

    net: Any
    steps: Callable[[Any], Any]
    samples: list[Any]
    trains: bool = False


class Plain(edb.AutoBatchMixin, gluon.Block):
    """Plain code for the model of an example, which waits explicitly."""

    def __init__(self, net: gluon.Block, **kwargs):
        super().__init__(**kwargs)
        self.net: Any = net


class PlainParser(Plain):
    """The decisions of `TransitionParser`."""

    def forward(self, sentence):
        """Return heads and relations, as ``parse``."""
        net: TransitionParser = self.net
        places, state = net._places(sentence), Configuration(len(sentence))
        while not state.done:
            features, action = state.features(), SHIFT
            if features.top != NOWHERE:
                scores = net._scores(places, features).asnumpy()
                action = int((scores[0] + net._penalties[state.legal()]).argmax())
            state.apply(action)
        return np.array([state.heads, state.relations]).T


class PlainSearch(Plain):
    """The beam search of `VowelWriter`."""

    def forward(self, search):
        """Return the most probable text, as ``search``."""
        net: VowelWriter = self.net
        word, width, margin = search
        vectors = net._encode(word)
        live = [Hypothesis(0.0, '', 0, 0, net._begin)]
        while not live[0].complete:
            followed = [hypothesis for hypothesis in live if not hypothesis.complete]
            complete = live[len(followed) :]
            decoded = [net._decode(each.step(), vectors, each.states) for each in followed]
            log_probs = [scores.asnumpy() for scores, _ in decoded]
            for hypothesis, scores, (_, states) in zip(followed, log_probs, decoded):
                complete += expand(hypothesis, word.consonants, scores[0], states)
            live = prune(complete, width, margin)
        return live[0]


class PlainReader(Plain):
    """The early exit of `PonderingReader`."""

    def forward(self, sentence):
        """Return a `Reading`, as ``read``."""
        net: PonderingReader = self.net
        words = [net.embed(word) for word in sentence.words[0].tolist()]
        memory = edb.ragged(list(map(net.word, words, [net._nothing, *words])))
        state = mean = net._nothing
        left, cost = np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32)
        for steps in range(1, net.most + 1):
            state, mean, left, cost = net.step(state, mean, left, cost, memory)
            if steps == net.most or left.asnumpy()[0, 0] < LITTLE:
                break
        return Reading(net.answer(state, mean, left), cost, steps)


class PlainPointer(Plain):
    """The decoding of `PointerNetwork`."""

    def forward(self, sentence):
        """Return the positions in the predicted order, as ``write``."""
        net: PointerNetwork = self.net
        memory = net._read(sentence)
        word, context, states = net._no_word, net._no_state, memory.states
        order, left = [], np.ones(len(sentence), bool)
        for _ in sentence.words:
            states = net.step(word, context, *states)
            weights, context = net.pointer(states[0], memory.keys, memory.values)
            chances = weights.asnumpy()
            order.append(int(np.where(left, chances.reshape(-1), -1).argmax()))
            left[order[-1]] = False
            word = memory.words[order[-1]]
        return np.array(order)


class Experts(edb.AutoBatchMixin, gluon.Block):
    """A mixture of experts: in each layer, the gate's argmax chooses the expert."""

    def __init__(self, size: int, layers: int, experts: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.gates = gluon.nn.Sequential()
            self.layers = gluon.nn.Sequential()
            for _ in range(layers):
                self.gates.add(gluon.nn.Dense(experts, in_units=size))
                layer = gluon.nn.Sequential()
                for _ in range(experts):
                    layer.add(gluon.nn.Dense(size, in_units=size, activation='tanh'))
                self.layers.add(layer)

    def forward(self, x):
        """Return the result and the experts that were chosen."""
        chosen = []
        for gate, experts in zip(self.gates, self.layers):
            chosen.append(int(gate(x).asnumpy()[0].argmax()))
            x = experts[chosen[-1]](x)
        return x, chosen

    def steps(self, x) -> Iterator[Any]:
        """Do the same as a generator."""
        chosen = []
        for gate, experts in zip(self.gates, self.layers):
            scores = yield gate(x)
            chosen.append(int(scores[0].argmax()))
            x = experts[chosen[-1]](x)
        return x, chosen


class Compose(gluon.HybridBlock):
    """Make one state of the upper two of the stack, a tree LSTM for two children."""

    def __init__(self, size: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.gates = gluon.nn.Dense(5 * size, in_units=2 * size)

    def hybrid_forward(self, F, left_h, left_c, right_h, right_c):
        """Compute h and c."""
        sums = F.split(self.gates(F.concat(left_h, right_h, dim=1)), num_outputs=5, axis=1)
        i, o, u, left, right = sums
        c = F.sigmoid(i) * F.tanh(u) + F.sigmoid(left) * left_c + F.sigmoid(right) * right_c
        return F.sigmoid(o) * F.tanh(c), c


class Join(gluon.HybridBlock):
    """Concatenate arrays along the second axis."""

    def hybrid_forward(self, F, *arrays):
        """Return them as one."""
        return F.concat(*arrays, dim=1)


class Spinn(edb.AutoBatchMixin, gluon.Block):
    """SPINN (Bowman et al. 2016): the scores of a tracking LSTM say where to shift and to
    reduce."""

    def __init__(self, words: int, size: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.words = gluon.nn.Embedding(words, size)
            self.tracker = gluon.rnn.LSTMCell(size, input_size=3 * size)
            self.actions = gluon.nn.Dense(2, in_units=size)
            self.join = Join()
            self.compose = Compose(size)
        self._nothing = np.zeros((1, size), np.float32)

    def track(self, buffer, stack, states):
        """Return the scores of shift and reduce, and the tracker's states."""
        nothing = self._nothing
        front = buffer[-1] if buffer else nothing
        top = stack[-1][0] if stack else nothing
        second = stack[-2][0] if len(stack) > 1 else nothing
        h, states = self.tracker(self.join(front, top, second), states)
        return self.actions(h), states

    def act(self, reduce, buffer, stack):
        """Reduce, or shift."""
        if reduce:
            right, left = stack.pop(), stack.pop()
            stack.append(self.compose(*left, *right))
        else:
            stack.append((buffer.pop(), self._nothing))

    def forward(self, words):
        """Return the sentence's vector and the actions."""
        buffer, stack, actions = [self.words(word) for word in reversed(words)], [], []
        states = [self._nothing, self._nothing]
        while buffer or len(stack) > 1:
            scores, states = self.track(buffer, stack, states)
            reduce = not buffer
            if buffer and len(stack) > 1:
                reduce = bool(scores.asnumpy()[0].argmax())
            self.act(reduce, buffer, stack)
            actions.append(reduce)
        return stack[0][0], actions

    def steps(self, words) -> Iterator[Any]:
        """Do the same as a generator."""
        buffer, stack, actions = [self.words(word) for word in reversed(words)], [], []
        states = [self._nothing, self._nothing]
        while buffer or len(stack) > 1:
            scores, states = self.track(buffer, stack, states)
            reduce = not buffer
            if buffer and len(stack) > 1:
                reduce = bool((yield scores)[0].argmax())
            self.act(reduce, buffer, stack)
            actions.append(reduce)
        return stack[0][0], actions


class Coins(NamedTuple):
    """A sentence to write, and before which words the decoder reads the right one."""

    source: list[int]
    target: list[int]
    gold: list[bool]


class Scheduled(edb.AutoBatchMixin, gluon.Block):
    """Scheduled sampling (Bengio et al. 2015): a decoder reads the right word or its own."""

    def __init__(self, words: int, size: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.words = gluon.nn.Embedding(words, size)
            self.reader = gluon.rnn.GRUCell(size, input_size=size)
            self.writer = gluon.rnn.GRUCell(size, input_size=size)
            self.scores = gluon.nn.Dense(words, in_units=size)
            self.loss = gluon.loss.SoftmaxCrossEntropyLoss()
        self._begin = np.zeros((1, size), np.float32)

    def read(self, source):
        """Return the states after a sentence."""
        states = [self._begin]
        for word in source:
            _, states = self.reader(self.words(word), states)
        return states

    def forward(self, sample):
        """Return the loss of the sentence, and the words that were read."""
        states, word, losses, read = self.read(sample.source), 0, [], []
        for number, (right, gold) in enumerate(zip(sample.target, sample.gold), 1):
            h, states = self.writer(self.words(word), states)
            scores = self.scores(h)
            losses.append(self.loss(scores, np.array([right], np.float32)))
            if number < len(sample.target):
                word = right if gold else int(scores.asnumpy()[0].argmax())
                read.append(word)
        return edb.add_n(losses), read

    def steps(self, sample) -> Iterator[Any]:
        """Do the same as a generator."""
        states, word, losses, read = self.read(sample.source), 0, [], []
        for number, (right, gold) in enumerate(zip(sample.target, sample.gold), 1):
            h, states = self.writer(self.words(word), states)
            scores = self.scores(h)
            losses.append(self.loss(scores, np.array([right], np.float32)))
            if number < len(sample.target):
                word = right if gold else int((yield scores)[0].argmax())
                read.append(word)
        return edb.add_n(losses), read


def _of_example(task_class: Any, plain: Any, steps: str, *arguments: str) -> Model:
    task = task_class(parse(task_class, ['--seed=1', *arguments])[0])
    net = task.build()
    return Model(plain(net), getattr(net, steps), task.samples['train'])


def _search() -> Model:
    net, steps, words, _ = _of_example(VowelTask, PlainSearch, 'search')
    return Model(net, steps, [Search(word, 8, 2.0) for word in words])


def _started(net: gluon.Block, samples: Sequence[Any], trains: bool = False) -> Model:
    net.initialize(mx.init.Normal(0.5))
    return Model(net, net.steps, list(samples), trains)


def _words(number: int, least: int = 4, most: int = 20) -> list[list[int]]:
    random = np.random.RandomState(number)
    return [random.randint(1, 100, random.randint(least, most + 1)).tolist() for _ in range(256)]


def _experts() -> Model:
    numbers = np.random.RandomState(1).normal(size=(256, 1, 64)).astype(np.float32)
    return _started(Experts(64, 6, 8), numbers)


def _spinn() -> Model:
    return _started(Spinn(100, 64), _words(2))


def _scheduled() -> Model:
    random = np.random.RandomState(3)
    pairs = zip(_words(4), _words(5))
    samples = [Coins(one, two, (random.rand(len(two)) < 0.5).tolist()) for one, two in pairs]
    return _started(Scheduled(100, 64), samples, True)


MODELS: dict[str, Callable[[], Model]] = {
    'parser': lambda: _of_example(ParserTask, PlainParser, 'parse'),
    'beam': _search,
    'adaptive': lambda: _of_example(AdaptiveTask, PlainReader, 'read', '--price=0.01'),
    'pointer': lambda: _of_example(PointerTask, PlainPointer, 'write'),
    'experts': _experts,
    'spinn': _spinn,
    'scheduled': _scheduled,
}
