"""Programs as readers of *Dive into Deep Learning* write them, in NumPy mode, each for one sample:
results, gradients and training are eager's."""

import math

import numpy as onp
import pytest
from mxnet import gluon, init, np, npx
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.testing import assert_matches_eager
from tests.support.cases import in_one_test
from tests.support.models import random_tree
from tests.support.tiers import sampled

WORDS, WIDTH, CLASSES = 11, 4, 3


@pytest.fixture(autouse=True)
def numpy_mode():
    """MXNet in NumPy mode, for one test."""
    npx.set_np()
    yield
    npx.reset_np()


def sentences(count=6, seed=3):
    """Lists of numbers of words."""
    generator = onp.random.RandomState(seed)
    return [generator.randint(0, WORDS, generator.randint(2, 7)).tolist() for _ in range(count)]


def trees(count=6, seed=4):
    """Trees."""
    generator = onp.random.RandomState(seed)
    return [random_tree(generator, int(generator.randint(1, 9))) for _ in range(count)]


class Scratch(edb.AutoBatchMixin, gluon.Block):
    """Parameters by name, as a chapter 'from scratch' has them."""

    shapes: dict = {}

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embedding = nn.Embedding(WORDS, WIDTH)
            for name, shape in self.shapes.items():
                setattr(self, name, self.params.get(name, shape=shape))

    def of(self, names):
        """Return the parameters' arrays."""
        return [getattr(self, name).data() for name in names.split()]


class GRU(Scratch):
    """A gated recurrent unit of dot products; the last state is classified."""

    shapes = {
        **{f'W_x{gate}': (WIDTH, WIDTH) for gate in 'zrh'},
        **{f'W_h{gate}': (WIDTH, WIDTH) for gate in 'zrh'},
        **{f'b_{gate}': (WIDTH,) for gate in 'zrh'},
        'W_hq': (WIDTH, CLASSES),
        'b_q': (CLASSES,),
    }

    def forward(self, words):
        W_xz, W_hz, b_z, W_xr, W_hr, b_r = self.of('W_xz W_hz b_z W_xr W_hr b_r')
        W_xh, W_hh, b_h, W_hq, b_q = self.of('W_xh W_hh b_h W_hq b_q')
        H = np.zeros((1, WIDTH))
        for X in self.embedding(np.array(words)):
            X = X.reshape(1, -1)
            Z = npx.sigmoid(np.dot(X, W_xz) + np.dot(H, W_hz) + b_z)
            R = npx.sigmoid(np.dot(X, W_xr) + np.dot(H, W_hr) + b_r)
            H_tilda = np.tanh(np.dot(X, W_xh) + np.dot(R * H, W_hh) + b_h)
            H = Z * H + (1 - Z) * H_tilda
        return H @ W_hq + b_q


class LSTM(Scratch):
    """A long short-term memory; outputs of all steps are concatenated."""

    shapes = {
        'W_x': (WIDTH, 4 * WIDTH),
        'W_h': (WIDTH, 4 * WIDTH),
        'b': (4 * WIDTH,),
        'W_q': (WIDTH, CLASSES),
    }

    def forward(self, words):
        W_x, W_h, b, W_q = self.of('W_x W_h b W_q')
        H, C = np.zeros((1, WIDTH)), np.zeros((1, WIDTH))
        outputs = []
        for word in words:
            X = self.embedding(word).reshape(1, WIDTH)
            i, f, o, u = np.split(X @ W_x + H @ W_h + b, 4, axis=1)
            C = npx.sigmoid(f) * C + npx.sigmoid(i) * np.tanh(u)
            H = npx.sigmoid(o) * np.tanh(C)
            outputs.append(np.dot(H, W_q))
        return np.concatenate(outputs, axis=0), (H, C)


class AttentionPooling(Scratch):
    """Nadaraya-Watson: a Gaussian kernel with one trained number, as the book has it."""

    shapes = {'w': (1,)}

    def forward(self, words):
        keys = np.array([word / WORDS for word in words])
        values = np.sin(keys) + keys**0.8
        (w,) = self.of('w')
        queries = self.embedding(words[0]).reshape(-1)
        queries = queries.repeat(len(words)).reshape((-1, len(words)))
        self.attention_weights = npx.softmax(-(((queries - keys) * w) ** 2) / 2)
        return npx.batch_dot(
            np.expand_dims(self.attention_weights, 1),
            np.expand_dims(np.broadcast_to(values, (WIDTH, len(words))), -1),
        ).reshape(-1)


def masked_softmax(X, valid_lens):
    """Softmax over the last axis, of as many as are valid."""
    shape = X.shape
    if valid_lens.ndim == 1:
        valid_lens = valid_lens.repeat(shape[1], axis=0)
    else:
        valid_lens = valid_lens.reshape(-1)
    X = npx.sequence_mask(
        X.reshape(-1, shape[-1]), valid_lens, use_sequence_length=True, value=-1e6, axis=1
    )
    return npx.softmax(X).reshape(shape)


class DotProductAttention(nn.Block):
    """Scaled dot product."""

    def forward(self, queries, keys, values, valid_lens=None):
        scores = npx.batch_dot(queries, keys, transpose_b=True) / math.sqrt(queries.shape[-1])
        return npx.batch_dot(masked_softmax(scores, valid_lens), values)


class AdditiveAttention(nn.Block):
    """Additive attention with queries and keys of different sizes."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.W_k = nn.Dense(5, use_bias=False, flatten=False)
        self.W_q = nn.Dense(5, use_bias=False, flatten=False)
        self.w_v = nn.Dense(1, use_bias=False, flatten=False)

    def forward(self, queries, keys, values, valid_lens):
        features = np.expand_dims(self.W_q(queries), axis=2) + np.expand_dims(
            self.W_k(keys), axis=1
        )
        scores = np.squeeze(self.w_v(np.tanh(features)), axis=-1)
        return npx.batch_dot(masked_softmax(scores, valid_lens), values)


class Masked(Scratch):
    """Sentences padded by the user, and attention that leaves out the padding."""

    def __init__(self, attention, **kwargs):
        super().__init__(**kwargs)
        self.attention, self.out = attention(), nn.Dense(CLASSES)

    def forward(self, words):
        X = self.embedding(np.array([words + [0] * (8 - len(words))]))
        X = self.attention(X[:, :1], X, X, np.array([len(words)]))
        return self.out(X[:, -1])


class BiLSTM(Scratch):
    """Two directions, concatenated and stacked."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.cells = [Cell(), Cell()]
            for cell in self.cells:
                self.register_child(cell)
            self.out = nn.Dense(CLASSES)

    def forward(self, words):
        embedded = [self.embedding(word).reshape(1, -1) for word in words]
        ways = []
        for cell, inputs in zip(self.cells, (embedded, embedded[::-1])):
            state, outputs = [np.zeros((1, WIDTH))] * 2, []
            for X in inputs:
                *state, _ = cell(X, *state)
                outputs.append(state[0])
            ways.append(outputs)
        both = [np.concatenate([f, b], axis=1) for f, b in zip(ways[0], ways[1][::-1])]
        H = np.stack(both, axis=1)
        return self.out(np.concatenate((H[:, 0], H[:, -1], H.max(axis=1)), axis=-1))


class Cell(nn.HybridBlock):
    """One step; its third result is a mask."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.gates = nn.Dense(4 * WIDTH)

    def hybrid_forward(self, F, x, h, c):
        i, f, u, o = F.np.split(self.gates(F.np.concatenate([x, h], axis=1)), 4, axis=1)
        c = F.npx.sigmoid(f) * c + F.npx.sigmoid(i) * F.np.tanh(u)
        h = F.npx.sigmoid(o) * F.np.tanh(c)
        return h, c, h > 0


class TreeLSTM(Scratch):
    """Child-sum, without any block but the embedding."""

    shapes = {
        'W_iou': (WIDTH, 3 * WIDTH),
        'U_iou': (WIDTH, 3 * WIDTH),
        'W_f': (WIDTH, WIDTH),
        'U_f': (WIDTH, WIDTH),
        'b_f': (WIDTH,),
    }

    def forward(self, tree):
        h, c = self.state(tree)
        return np.concatenate([h, c]).mean(axis=0)

    def state(self, tree):
        W_iou, U_iou, W_f, U_f, b_f = self.of('W_iou U_iou W_f U_f b_f')
        x = self.embedding(tree.token).reshape(-1)
        children = [self.state(child) for child in tree.children]
        if children:
            hs = np.stack([h[0] for h, _ in children])
            cs = np.concatenate([c for _, c in children])
        else:
            hs = cs = np.zeros((1, WIDTH))
        i, o, u = np.split(x @ W_iou + hs.sum(axis=0) @ U_iou, 3)
        f = npx.sigmoid(np.dot(hs, U_f) + x.dot(W_f) + b_f)
        c = npx.sigmoid(i) * np.tanh(u) + (f * cs).sum(axis=0)
        return (npx.sigmoid(o) * np.tanh(c))[None], c.reshape(1, -1)


class TextCNN(Scratch):
    """Convolutions over a sentence, and the most of each."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.convs = nn.HybridSequential()
        self.convs.add(nn.Conv1D(3, 2, activation='relu'), nn.Conv1D(3, 2, activation='relu'))
        self.pool = nn.GlobalMaxPool1D()
        self.decoder = nn.Dense(CLASSES)

    def forward(self, words):
        embedded = self.embedding(np.array([words])).transpose(0, 2, 1)
        encoding = np.concatenate(
            [np.squeeze(self.pool(conv(embedded)), axis=-1) for conv in self.convs], axis=1
        )
        return self.decoder(encoding)


class Decisions(Scratch):
    """What looks at values and chooses, by Python and by np.where."""

    shapes = {'W': (WIDTH, WIDTH), 'b': (WIDTH,)}

    def forward(self, words):
        W, b = self.of('W b')
        x = self.embedding(words[0]).reshape(1, -1)
        for _ in words:
            x = x @ W.T + b
            x = np.where(x > 0, x, 0.1 * x)
            if np.linalg.norm(x) > 1:
                x = x / np.linalg.norm(x)
            x = np.maximum(x, -x.mean())
        return x[:, ::2].reshape(-1), x.argmax(), (x > 0).sum(), float(x.sum()) * np.ones(1)


PROGRAMS = {
    'gru': (GRU, sentences),
    'lstm': (LSTM, sentences),
    'attention pooling': (AttentionPooling, sentences),
    'dot product attention': (lambda: Masked(DotProductAttention), sentences),
    'additive attention': (lambda: Masked(AdditiveAttention), sentences),
    'bilstm': (BiLSTM, sentences),
    'tree lstm': (TreeLSTM, trees),
    'text cnn': (TextCNN, sentences),
    'decisions': (Decisions, sentences),
}


@pytest.mark.filterwarnings('ignore:ndarray.as_in_context')
@pytest.mark.parametrize('name, native', sampled(3, PROGRAMS, [True, False]))
def test_program(name, native):
    model, data = PROGRAMS[name]
    net = model()
    net.initialize(init.Normal(0.5))
    net(data()[0])
    with edb.compile_options(native=native):
        assert_matches_eager(net, data(), schedulers=['agenda', 'depth'], hybridized=[False])


# Of batches, how many there may be for each call that is recorded; 1 runs all one by one.
BATCHED = {name: 0.55 for name in PROGRAMS if name != 'decisions'}


@in_one_test('name', BATCHED)
def test_program_is_batched(name):
    model, data = PROGRAMS[name]
    net = model()
    net.initialize()
    net(data()[0])
    with edb.batching() as scope:
        values = [net(sample) for sample in data(12)]
    edb.forward(values)
    report = scope.report()
    assert report.batches <= BATCHED[name] * report.nodes, str(report)


# --- whole sentences -----------------------------------------------------------------------------

HEADS, MANY = 2, (5, 6, 9, 11, 12, 7, 1, 10, 2)


class Layer(nn.HybridBlock):
    """A layer of a Transformer's encoder, as in textbooks; the sentence is (1, length, WIDTH)."""

    def __init__(self, masked, **kwargs):
        super().__init__(**kwargs)
        self.masked = masked
        with self.name_scope():
            self.query, self.key, self.value, self.out = [
                nn.Dense(WIDTH, flatten=False, use_bias=False) for _ in range(4)
            ]
            self.norms = [nn.LayerNorm(), nn.LayerNorm()]
            self.wide = nn.Dense(2 * WIDTH, flatten=False, activation='relu')
            self.narrow = nn.Dense(WIDTH, flatten=False)
            for norm in self.norms:
                self.register_child(norm)

    def heads(self, F, x):
        x = F.npx.reshape(x, (-2, -2, HEADS, -1))
        return F.npx.reshape(F.np.transpose(x, (0, 2, 1, 3)), (-1, -2, -2), reverse=True)

    def hybrid_forward(self, F, x, length):
        query, key, value = (
            self.heads(F, dense(x)) for dense in (self.query, self.key, self.value)
        )
        scores = F.npx.batch_dot(query, key, transpose_b=True) / math.sqrt(WIDTH / HEADS)
        if self.masked:
            lengths = F.np.repeat(length, HEADS)
            scores = F.np.transpose(scores, (0, 2, 1))
            scores = F.npx.sequence_mask(scores, lengths, True, value=-1e6, axis=1)
            scores = F.np.transpose(scores, (0, 2, 1))
        mixed = F.npx.batch_dot(F.npx.softmax(scores, axis=-1), value)
        mixed = F.np.transpose(
            F.npx.reshape(mixed, (-1, HEADS, -2, -2), reverse=True), (0, 2, 1, 3)
        )
        y = self.norms[0](x + self.out(F.npx.reshape(mixed, (-2, -2, -1))))
        return self.norms[1](y + self.narrow(self.wide(y)))


class Encoder(edb.AutoBatchMixin, gluon.Block):
    """Two layers between an embedding and a classifier of the mean."""

    def __init__(self, masked=False, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embedding = nn.Embedding(WORDS, WIDTH)
            self.layers = [Layer(masked), Layer(masked)]
            for layer in self.layers:
                self.register_child(layer)
            self.out = nn.Dense(CLASSES)

    def forward(self, words):
        x = self.embedding(np.array([words])) * math.sqrt(WIDTH)
        for layer in self.layers:
            x = layer(x, np.array([len(words)], dtype='float32'))
        return self.out(x.mean(axis=1)), np.tanh(x)[:, -1], x.max()


def of_lengths(lengths=MANY):
    """Lists of numbers of words."""
    generator = onp.random.RandomState(5)
    return [generator.randint(0, WORDS, length).tolist() for length in lengths]


@pytest.mark.filterwarnings('ignore:The 1-th input to HybridBlock is not used')
@pytest.mark.parametrize('masked, native', sampled(3, [False, True], [True, False]))
def test_encoder_of_whole_sentences(masked, native):
    net = Encoder(masked)
    net.initialize(init.Normal(0.5))
    net([1, 2])
    for _ in range(2):  # the first scope learns that lengths differ
        with edb.compile_options(native=native), edb.batching() as scope:
            values = [net(words) for words in of_lengths()]
        edb.forward(values)
    batches = [each.batches for each in scope.report().types if each.name.startswith('Layer')]
    assert sum(batches) == 2
    with edb.compile_options(native=native):
        assert_matches_eager(net, of_lengths(), schedulers=['agenda'], hybridized=[False])


class OfLength(nn.HybridBlock):
    """What differs where there is one of a length only, or is another length."""

    def __init__(self, function):
        super().__init__()
        self.function, self.dense = function, nn.Dense(WIDTH, flatten=False)

    def hybrid_forward(self, F, x):
        x = F.np.tanh(self.dense(x)) * 2 - 1
        x = F.np.exp(x) + F.npx.sigmoid(x)
        return self.function(F, x)


FUNCTIONS = {
    'squeeze': lambda F, x: F.np.squeeze(x),
    'broadcast_to': lambda F, x: F.np.broadcast_to(x, (1, 5, WIDTH)),
    'sum': lambda F, x: F.np.sum(x),
    'mean': lambda F, x: F.np.mean(x, axis=1),
    'where': lambda F, x: F.np.where(x > 0, x, F.np.zeros_like(x)),
    'max': lambda F, x: F.np.max(x, axis=(1, 2)),
    'cumsum': lambda F, x: F.np.cumsum(x, axis=1),
    'flip': lambda F, x: F.np.flip(x, 1),
    'reshape': lambda F, x: x.reshape(-1),
    'last': lambda F, x: F.npx.slice(x, begin=(None, -1), end=(None, None)),
    'concatenate': lambda F, x: F.np.concatenate([x, x], axis=1),
}


@in_one_test('name', FUNCTIONS)
def test_what_is_padded_is_as_if_it_were_not(name):
    net = OfLength(FUNCTIONS[name])
    net.initialize(init.Normal(0.5))
    lengths = (5, 1) if name == 'broadcast_to' else (5, 3, 1, 9, 7, 5)
    data = [
        np.array(onp.random.RandomState(i).normal(size=(1, length, WIDTH)), dtype='float32')
        for i, length in enumerate(lengths)
    ]
    for array in data:
        array.attach_grad()
    for _ in range(2):
        assert_matches_eager(net, data, schedulers=['agenda'], hybridized=[False])
