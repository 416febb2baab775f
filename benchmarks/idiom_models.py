"""Measure models as users write them: attention and masks, whole sentences, and NumPy mode.

Each model runs in batches and, in turn, in hybridized Gluon without a scope.
"""

import time
from collections.abc import Sequence
from itertools import cycle, islice
from typing import Any, Callable, NamedTuple

import mxnet as mx
import numpy as np
from gluonnlp.model.bert import BERTEncoder
from gluonnlp.model.transformer import TransformerEncoder
from mxnet import autograd, gluon
from mxnet.gluon import nn, rnn

import gluon_edbatch as edb
from example.common.words import build_words
from example.tree_lstm.data import Pair, build_pairs, load_split, tokens_of
from example.tree_lstm.model import SICKModel
from example.tree_lstm.task import SICKTask

from .contexts import context
from .machine import machine_info
from .numpy_sick import NumPySICKModel
from .output import aligned, rounded

__all__ = ['MODELS', 'Model', 'Side', 'measure_model', 'model_table']

Row = dict[str, Any]

LONGEST = 12  # words
# How many words sentences have, at least and at most.
LENGTHS = {'one length': (LONGEST, LONGEST), 'many lengths': (2, LONGEST), '5 to 60 words': (5, 60)}


class Model(NamedTuple):
    """A model, and its arguments.

    Attributes
    ----------
    make : callable
        Returns a new block, not initialised, for a width.
    data : callable
        Returns samples for a generator of random numbers, a width and the number of samples.
    numpy : bool
        In MXNet's NumPy mode.
    """

    make: Callable[[int], gluon.Block]
    data: Callable[[np.random.RandomState, int, int], list[Any]]
    numpy: bool = False


# --- attention to memories of different lengths --------------------------------------------------


class Attention(gluon.HybridBlock):
    """Attention of a query (N, H) to memory (N, K, H), of which `lengths` (N,) count if given."""

    def __init__(self, weigh: Callable[..., Any]):
        super().__init__()
        self._weigh = weigh

    def hybrid_forward(self, F, query, memory, *lengths):
        """Attend; each call is one sample."""
        scores = F.squeeze(F.batch_dot(memory, F.expand_dims(query, axis=2)), axis=2)
        weights = F.expand_dims(self._weigh(F, scores, memory, *lengths), axis=2)
        return F.squeeze(F.batch_dot(weights, memory, transpose_a=True), axis=1)


class Attends(edb.AutoBatchMixin, gluon.Block):
    """Attend from the last word of a sentence to all words."""

    def __init__(self, width: int, weigh: Callable[..., Any], masked: bool):
        super().__init__()
        self._masked = masked
        with self.name_scope():
            self.word = nn.Dense(width, in_units=width)
            self.attention = Attention(weigh)

    def forward(self, sentence):
        words = [self.word(word) for word in sentence]
        lengths = [np.array([len(words)], 'float32')] if self._masked else []
        return self.attention(words[-1], edb.ragged(words), *lengths)


def _kept(F: Any, memory: Any, lengths: Any) -> Any:
    places = F.contrib.arange_like(memory, axis=1).reshape((1, -1))
    return F.broadcast_lesser(places, lengths.reshape((-1, 1)))


def _masked(F: Any, scores: Any, lengths: Any) -> Any:
    return F.SequenceMask(scores, lengths, use_sequence_length=True, axis=1, value=-1e9)


def _chosen(F: Any, scores: Any, memory: Any, lengths: Any) -> Any:
    return F.where(_kept(F, memory, lengths), scores, F.ones_like(scores) * -1e9)


WEIGHTS: dict[str, Callable[..., Any]] = {
    'no mask': lambda F, s, m: F.softmax(s, axis=1),
    'softmax(use_length=True)': lambda F, s, m, n: F.softmax(
        s, F.cast(n, 'int32'), axis=1, use_length=True
    ),
    'SequenceMask': lambda F, s, m, n: F.softmax(_masked(F, s, n), axis=1),
    'arange_like < n, where': lambda F, s, m, n: F.softmax(_chosen(F, s, m, n), axis=1),
    'arange_like < n, -1e9': lambda F, s, m, n: F.softmax(s + (1 - _kept(F, m, n)) * -1e9, axis=1),
}


# --- whole sentences -----------------------------------------------------------------------------


class Convolution(gluon.HybridBlock):
    """Convolve over the words of (N, L, C), three at a time."""

    def __init__(self, width: int):
        super().__init__()
        with self.name_scope():
            self.convolution = nn.Conv1D(width, 3, padding=1, in_channels=width)

    def hybrid_forward(self, F, x):
        """Convolve; each call is one sentence."""
        return F.swapaxes(self.convolution(F.swapaxes(x, 1, 2)), 1, 2)


class Loop(gluon.HybridBlock):
    """Call a GRU cell on each word of (N, L, C), in a loop of MXNet."""

    def __init__(self, width: int):
        super().__init__()
        with self.name_scope():
            self.cell = rnn.GRUCell(width, input_size=width)

    def hybrid_forward(self, F, x):
        """Return the state after each word."""
        words = F.swapaxes(x, 0, 1)
        first = F.zeros_like(F.squeeze(F.slice_axis(words, axis=0, begin=0, end=1), axis=0))
        outputs, _ = F.contrib.foreach(self.cell, words, [first])
        return F.swapaxes(outputs, 0, 1)


class MeanOf(edb.AutoBatchMixin, gluon.Block):
    """Return the mean of a layer's results for the words of a sentence, which lie along an axis."""

    def __init__(self, layer: gluon.Block, axis: int = 1):
        super().__init__()
        self.layer = layer
        self._axis = axis

    def forward(self, sentence):
        outputs = self.layer(sentence)
        outputs = outputs[0] if isinstance(outputs, (list, tuple)) else outputs
        return outputs.mean(axis=self._axis)


def _encoder(kind: Any, axis: int) -> Callable[[int], gluon.Block]:
    def make(width: int) -> gluon.Block:
        widths = {'units': width, 'hidden_size': 2 * width}
        return MeanOf(kind(num_layers=2, num_heads=2, dropout=0.0, **widths), axis)

    return make


LAYERS: dict[str, Callable[[int], gluon.Block]] = {
    'TransformerEncoder': _encoder(TransformerEncoder, 1),
    'BERTEncoder': _encoder(BERTEncoder, 0),
    'gluon.rnn.LSTM': lambda width: MeanOf(rnn.LSTM(width, layout='NTC', input_size=width)),
    'gluon.rnn.LSTM, both ways': lambda width: MeanOf(
        rnn.LSTM(width, layout='NTC', input_size=width, bidirectional=True)
    ),
    'Conv1D': lambda width: MeanOf(Convolution(width)),
    'foreach': lambda width: MeanOf(Loop(width)),
}


# --- in mx.nd and in NumPy mode ------------------------------------------------------------------


class Step(gluon.HybridBlock):
    """A step of an LSTM."""

    def __init__(self, width: int):
        super().__init__()
        with self.name_scope():
            self.i2h = nn.Dense(4 * width, in_units=width)
            self.h2h = nn.Dense(4 * width, in_units=width)

    def hybrid_forward(self, F, x, h, c):
        """Return states from x, h, c (N, H)."""
        i, f, u, o = F.split(self.i2h(x) + self.h2h(h), 4, axis=1)
        c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(u)
        return F.sigmoid(o) * F.tanh(c), c


class NumPyStep(Step):
    """A step of an LSTM in NumPy mode."""

    def hybrid_forward(self, F, x, h, c):
        """Return states from x, h, c (N, H)."""
        i, f, u, o = F.np.split(self.i2h(x) + self.h2h(h), 4, axis=1)
        c = F.npx.sigmoid(f) * c + F.npx.sigmoid(i) * F.np.tanh(u)
        return F.npx.sigmoid(o) * F.np.tanh(c), c


class LastToAll(edb.AutoBatchMixin, gluon.Block):
    """Attend from the last state of an LSTM to all states."""

    def __init__(self, width: int, step: Callable[[int], gluon.Block] = Step):
        super().__init__()
        self._width = width
        with self.name_scope():
            self.step = step(width)

    def states(self, sentence) -> list[Any]:
        """Return h of each word."""
        h = c = np.zeros((1, self._width), 'float32')
        states = []
        for word in sentence:
            h, c = self.step(word, h, c)
            states.append(h)
        return states

    def forward(self, sentence):
        states = self.states(sentence)
        memory = mx.nd.concat(*states, dim=0)
        weights = mx.nd.softmax(mx.nd.dot(states[-1], memory.T))
        return mx.nd.dot(weights, memory)


class NumPyLastToAll(LastToAll):
    """Attend from the last state of an LSTM to all states, in NumPy mode."""

    def __init__(self, width: int):
        super().__init__(width, NumPyStep)

    def forward(self, sentence):
        states = self.states(sentence)
        memory = mx.np.concatenate(states, axis=0)
        weights = mx.npx.softmax(mx.np.dot(states[-1], memory.T))
        return mx.np.dot(weights, memory)


class Hierarchical(edb.AutoBatchMixin, gluon.Block):
    """Attend to the words of each sentence, and to the sentences, by operators outside of blocks.

    The model is that of Yang et al., "Hierarchical Attention Networks", 2016, without its GRUs.
    """

    def __init__(self, width: int):
        super().__init__()
        self._width = width
        with self.name_scope():
            for name in ('of_words', 'of_sentences'):
                setattr(self, name, nn.Dense(width, 'tanh', flatten=False, in_units=width))
                setattr(self, f'weigh_{name}', nn.Dense(1, flatten=False, in_units=width))

    def forward(self, document):
        sentences = [
            self._attended(self.of_words, self.weigh_of_words, words) for words in document
        ]
        return self._attended(self.of_sentences, self.weigh_of_sentences, sentences)

    def _attended(self, layer: gluon.Block, weigh: gluon.Block, values: list[Any]) -> Any:
        ragged = edb.ragged(values)
        weights = edb.nd.softmax(weigh(layer(ragged)), axis=1)
        return edb.nd.batch_dot(weights, ragged, transpose_a=True).reshape((-1, self._width))


class Related(edb.AutoBatchMixin, gluon.Block):
    """The example's model for a pair of sentences, on the sample that comes with it."""

    def __init__(self, width: int, kind: Callable[..., gluon.Block] = SICKModel):
        super().__init__()
        with self.name_scope():
            self.model = kind(2500, 2 * width, width, 50)  # SICK has 2,412 words

    def forward(self, pair):
        return self.model(pair.left, pair.right)


# --- data ----------------------------------------------------------------------------------------


def _words(draw: np.random.RandomState, width: int, count: int) -> list[list[np.ndarray]]:
    """Return sentences of different lengths as lists of words, NumPy arrays (1, width) each."""
    lengths = draw.randint(2, LONGEST + 1, count).tolist()
    return [list(_draw(draw, (length, 1, width))) for length in lengths]


def _documents(draw: np.random.RandomState, width: int, count: int) -> list[Any]:
    """Return documents, lists of 2 to 8 sentences (see `_words`)."""
    return [_words(draw, width, draw.randint(2, 9)) for _ in range(count)]


def _sentences(axis: int, least: int, most: int) -> Callable[..., list[mx.nd.NDArray]]:
    """Return a function that makes sentences as NDArrays, (1, L, width) or (L, 1, width)."""

    def draw_them(draw: np.random.RandomState, width: int, count: int) -> list[mx.nd.NDArray]:
        lengths = draw.randint(least, most + 1, count).tolist()
        shapes = [(1, length, width) if axis else (length, 1, width) for length in lengths]
        return [mx.nd.array(_draw(draw, shape)) for shape in shapes]

    return draw_them


def _draw(draw: np.random.RandomState, shape: tuple[int, ...]) -> np.ndarray:
    return draw.uniform(-1, 1, shape).astype('float32')


def _pairs(draw: np.random.RandomState, width: int, count: int) -> list[Pair]:
    """Return pairs of the example's sample, repeated."""
    raw = load_split(SICKTask.sample / 'train')
    pairs = build_pairs(raw, build_words(tokens_of(raw)).ids)
    return list(islice(cycle(pairs), count))


MODELS = {
    **{
        f'attention to edb.ragged, {name}': Model(
            lambda width, weigh=weigh, masked=name != 'no mask': Attends(width, weigh, masked),
            _words,
        )
        for name, weigh in WEIGHTS.items()
    },
    **{
        f'{name}, {of}': Model(make, _sentences(int(name != 'BERTEncoder'), *LENGTHS[of]))
        for name, make in LAYERS.items()
        for of in LENGTHS
    },
    'LSTM with attention': Model(LastToAll, _words),
    'LSTM with attention, NumPy mode': Model(NumPyLastToAll, _words, numpy=True),
    'hierarchical attention by operators': Model(Hierarchical, _documents),
    'SICK Tree-LSTM': Model(Related, _pairs),
    'SICK Tree-LSTM, NumPy mode': Model(
        lambda width: Related(width, NumPySICKModel), _pairs, numpy=True
    ),
}


class Side:
    """A model with its samples, in batches or not; all calls here are in the model's mode.

    Parameters
    ----------
    model : Model
    batched : bool
    width, count, seed : int
        See `Model`.
    ctx : Context
    """

    def __init__(
        self, model: Model, batched: bool, width: int, count: int, ctx: mx.Context, seed: int
    ):
        mx.random.seed(seed)
        self.net = model.make(width)
        self.net.initialize(mx.init.Xavier(), ctx=ctx)
        self.samples = model.data(np.random.RandomState(seed), width, count)
        self._scope: Any = None  # the last one
        self._batched = batched
        if not batched:
            self.net.hybridize()
        self.results()  # widths become known

    def results(self) -> mx.nd.NDArray:
        """Return the results of all samples, a row each."""
        if not self._batched:
            return edb.concat([self.net(sample) for sample in self.samples])
        with edb.batching() as scope:
            values = [self.net(sample) for sample in self.samples]
        self._scope = scope
        return edb.concat(values).copy()

    @property
    def batches(self) -> int:
        """Number of batches of the last minibatch; counting them takes no time of `seconds`."""
        return 0 if self._scope is None else self._scope.report().batches

    def seconds(self, training: bool) -> float:
        """Return the seconds of a minibatch, with gradients or without."""
        mx.nd.waitall()
        begin = time.perf_counter()
        if training:
            with autograd.record():
                loss = self.results().sum()
            loss.backward()
        else:
            self.results()
        mx.nd.waitall()
        return time.perf_counter() - begin


def measure_model(
    name: str,
    count: int = 256,
    width: int = 8,
    repeat: int = 7,
    seconds: float = 0.05,
    ctx: str = 'cpu',
    seed: int = 0,
) -> list[Row]:
    """Return the rows of a model, in inference and in training: the best of as many rounds as fill
    the repeats, µs a sample."""
    model = MODELS[name]

    def rows() -> list[Row]:
        with context(ctx):
            sides = [
                Side(model, batched, width, count, context(ctx), seed) for batched in (True, False)
            ]
            return [
                {
                    'model': name,
                    'mode': mode,
                    **_measured(sides, mode == 'train', repeat, seconds),
                    'calls': count,
                    'hidden': width,
                    'repeat': repeat,
                    'seed': seed,
                    **machine_info(),
                }
                for mode in ('infer', 'train')
            ]

    return (mx.util.use_np(rows) if model.numpy else rows)()


def _measured(sides: Sequence[Side], training: bool, repeat: int, seconds: float) -> Row:
    end = time.perf_counter() + repeat * seconds
    times: list[list[float]] = []
    while len(times) <= repeat or time.perf_counter() < end:
        times.append([side.seconds(training) for side in sides])
    batched, eager = 1e6 * np.min(times[1:], axis=0) / len(sides[0].samples)
    return {
        'batches': sides[0].batches,
        'batched_us': rounded(batched),
        'eager_us': rounded(eager),
        'times_as_fast': rounded(eager / batched),
    }


def model_table(rows: Sequence[Row]) -> str:
    """Return rows as a table, inference and training side by side."""
    row = rows[0]
    head = (
        f'µs a sample, best of {row["repeat"]} rounds of {row["calls"]} samples, hidden '
        f'{row["hidden"]}, on {row["cpus"]} x {row["cpu"]}'
    )
    fields = {'batches': '{:.0f}', 'batched_us': '{:.1f}', 'eager_us': '{:.1f}'}
    fields['times_as_fast'] = '{:.1f}'
    titles = 'batches', 'in batches', 'eager', 'times'
    cells = [['model', *titles, *(f'{title}, training' for title in titles)]]
    for pair in zip(rows[::2], rows[1::2]):
        numbers = [how.format(one[field]) for one in pair for field, how in fields.items()]
        cells.append([pair[0]['model'], *numbers])
    return '\n'.join([head, *aligned(cells, left=['model'])])
