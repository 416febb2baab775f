"""Models whose code between cells treats whole values, with rows that operators mix."""

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.gluon import nn, rnn

import gluon_edbatch as edb
from gluon_edbatch import nd

WORDS, WIDTH, SIZE = 20, 6, 8


class Whole(edb.AutoBatchMixin, gluon.Block):
    """Embeds words; `make` adds layers."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = nn.Embedding(WORDS, WIDTH)
            self.make()

    def sentence(self, words):
        """Return (1, L, C)."""
        return self.embed(mx.nd.array(words)).expand_dims(0)


class Spans(Whole):
    """Score all spans of a sentence by their ends."""

    def make(self):
        self.encode = rnn.LSTM(SIZE, bidirectional=True, layout='NTC', input_size=WIDTH)
        self.score = nn.Dense(3, in_units=4 * SIZE)

    def forward(self, words):
        h = self.encode(self.sentence(words))
        ends = [(i, j) for i in range(len(words)) for j in range(i, min(i + 3, len(words)))]
        return edb.concat([self.score(nd.concat(h[:, i], h[:, j], dim=1)) for i, j in ends])


class Chain(Whole):
    """Sum over all tags of a sentence, with a Parameter for what follows what."""

    def make(self):
        self.encode = rnn.GRU(SIZE, num_layers=2, layout='NTC', input_size=WIDTH)
        self.tags = nn.Dense(4, in_units=SIZE, flatten=False)
        self.follows = self.params.get('follows', shape=(4, 4), init=mx.init.Uniform(0.3))

    def forward(self, words):
        emitted, follows = self.tags(self.encode(self.sentence(words))), self.follows.data()
        assert isinstance(follows, mx.nd.NDArray)
        alpha = emitted[:, 0]
        for place in range(1, len(words)):
            each = nd.broadcast_add(alpha.expand_dims(2), follows.expand_dims(0))
            most = each.max(axis=1, keepdims=True)
            alpha = most.squeeze(1) + nd.log(nd.exp(each - most).sum(axis=1)) + emitted[:, place]
        return nd.log(nd.sum(nd.exp(alpha), axis=1))


class Pairs(Whole):
    """Let two sentences attend to each other."""

    def make(self):
        self.encode = rnn.RNN(SIZE, activation='tanh', layout='NTC', input_size=WIDTH)
        self.project = nn.Dense(SIZE, activation='relu', flatten=False, in_units=4 * SIZE)
        self.score = nn.Dense(3, in_units=4 * SIZE)

    def forward(self, pair):
        a, b = [self.encode(self.sentence(words)) for words in pair]
        e = nd.batch_dot(a, b, transpose_b=True)
        seen_a = nd.batch_dot(e.softmax(axis=2), b)
        seen_b = nd.batch_dot(e.softmax(axis=1), a, transpose_a=True)
        u, v = [self.project(nd.concat(x, y, x - y, x * y, dim=2))
                for x, y in ((a, seen_a), (b, seen_b))]  # fmt: skip
        return self.score(nd.concat(u.mean(axis=1), u.max(1), nd.mean(v, 1), v.max(axis=1), dim=1))


class Windows(Whole):
    """Convolve over words."""

    def make(self):
        self.wide, self.narrow = nn.Conv1D(5, 3, in_channels=WIDTH), nn.Conv1D(5, 1, padding=1)
        self.narrow._in_channels = WIDTH

    def forward(self, words):
        x = self.sentence([*words, 0, 0]).transpose((0, 2, 1))
        return nd.concat(*[nd.relu(each(x)).max(axis=2) for each in (self.wide, self.narrow)])


class Frames(Whole):
    """Read images one after the other."""

    def make(self):
        self.see = nn.HybridSequential()
        self.see.add(nn.Conv2D(4, 3, in_channels=1, activation='relu'), nn.BatchNorm(in_channels=4),
                     nn.MaxPool2D(), nn.GlobalAvgPool2D(), nn.Flatten())  # fmt: skip
        self.read = rnn.GRU(SIZE, layout='NTC', input_size=4)

    def forward(self, images):
        seen = [self.see(mx.nd.array(image[None, None])) for image in images]
        h, states = self.read(nd.stack(*seen, axis=1), self.read.begin_state(1))
        return h[:, -1] - states[0][0], h.shape[1]


class Sets(Whole):
    """Any number of points, or none."""

    def make(self):
        self.each = nn.Dense(SIZE, activation='tanh', in_units=2, flatten=False,
                             bias_initializer=mx.init.Constant(0.3))  # fmt: skip

    def forward(self, points):
        z = self.each(edb.ragged([point[None] for point in points], shape=(1, 2)))
        weights = nd.softmax(nd.batch_dot(z, mx.nd.ones((1, SIZE, 1))), axis=1)
        weights = weights.squeeze(2).expand_dims(2)
        seen = nd.batch_dot(weights, z, transpose_a=True).squeeze(1)
        return nd.concat(nd.sum(z, axis=1), nd.max(z, axis=1), nd.mean(z, axis=1), seen,
                         nd.prod(z, axis=1), nd.norm(z, axis=1), dim=1)  # fmt: skip


class Writes(Whole):
    """Probabilities of words, each after those before: a mask, pick and slices."""

    def make(self):
        self.three = nn.Dense(3 * SIZE, flatten=False, in_units=WIDTH)
        self.out = nn.Dense(WORDS, flatten=False, in_units=SIZE)

    def forward(self, words):
        q, k, v = nd.split(self.three(self.sentence(words)), num_outputs=3, axis=2)
        mask = mx.nd.array(np.triu(np.full((len(words), len(words)), -1e9), 1)[None])
        weights = nd.softmax(nd.broadcast_add(nd.batch_dot(q, k, transpose_b=True) / 3, mask))
        scores = nd.log_softmax(self.out(nd.batch_dot(weights, v)), axis=-1)
        return -nd.pick(scores[:, :-1], mx.nd.array([words[1:]])).sum(axis=1)


class Rows(Whole):
    """Rows of one value, read, sorted and counted."""

    def make(self):
        self.score = nn.Dense(1, in_units=WIDTH)
        self.mixed = Mixed()

    def forward(self, words):
        h = self.embed(mx.nd.array(words))  # (L, C)
        order = nd.argsort(self.score(h)[:, 0], axis=0)
        best = h[int(nd.argmax(self.score(h), axis=0).asscalar())]
        found = nd.take(h, order, axis=0)[::-1]
        near = nd.dot(found, best.reshape((-1, 1))) / (nd.norm(found, axis=1, keepdims=True) + 1)
        return self.mixed(near * h.T[0, 0]), nd.tile(best, reps=(2, 1)).sum(), sum(row for row in h)


class Shifts(Whole):
    """Add a Parameter to each word."""

    def make(self):
        self.shift = self.params.get('shift', shape=(1, WIDTH), init=mx.init.Normal(1))

    def forward(self, words):
        shifted = [nd.tanh(self.embed(word) + self.shift.data()) for word in words]
        return nd.add_n(*shifted)


class Mixed(gluon.HybridBlock):
    """A cell whose rows depend on each other."""

    def hybrid_forward(self, F, x):
        """(L, C)."""
        return F.broadcast_sub(x, F.mean(x, axis=0, keepdims=True))


def _words(rng, least=2, most=9):
    return rng.randint(0, WORDS, rng.randint(least, most)).tolist()


MODELS = {
    Spans: _words, Chain: _words, Pairs: lambda rng: (_words(rng), _words(rng)), Windows: _words,
    Frames: lambda rng: rng.normal(size=(rng.randint(2, 5), 7, 7)).astype('f'),
    Sets: lambda rng: rng.normal(size=(rng.randint(0, 5), 2)).astype('f'), Writes: _words,
    Rows: _words, Shifts: _words,
}  # fmt: skip


def made(kind, count):
    """Return a model and samples."""
    mx.random.seed(4)
    net, rng = kind(prefix=f'{kind.__name__.lower()}_'), np.random.RandomState(4)
    net.initialize(mx.init.Xavier())
    return net, [MODELS[kind](rng) for _ in range(count)]
