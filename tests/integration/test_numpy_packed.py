"""Whole sentences of different lengths as rows, in MXNet's NumPy mode."""

import mxnet as mx
import numpy as onp
import pytest
from mxnet import autograd, gluon, np, npx
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.testing import assert_matches_eager
from tests.support.cases import in_one_test
from tests.support.tiers import sampled

pytestmark = pytest.mark.skipif(not edb.native_available(), reason='no native operators')

UNITS, HEADS = 8, 2
LENGTHS = (5, 6, 9, 11, 12, 7, 1, 10, 2, 5)


@pytest.fixture(autouse=True)
def numpy_mode():
    """MXNet in NumPy mode, for one test."""
    npx.set_np()
    yield
    npx.reset_np()


def sentences(lengths=LENGTHS, seed=0, units=UNITS):
    draw = onp.random.RandomState(seed)
    arrays = [np.array(draw.normal(size=(1, length, units)), dtype='float32') for length in lengths]
    for array in arrays:
        array.attach_grad()
    return arrays


def batches(model, samples):
    """Names of types and how many batches each has, once it is known that lengths differ."""
    for _ in range(2):
        with edb.batching() as scope:
            values = [model(x) for x in samples]
        edb.forward(values)
    return {str(entry.name): entry.batches for entry in scope.report().types}


class Layer(gluon.HybridBlock):
    """A function between layers that work position by position."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.before = nn.Dense(UNITS, flatten=False, in_units=UNITS)
        self.after = nn.Dense(3, flatten=False, in_units=UNITS)

    def hybrid_forward(self, F, x):
        return self.after(self.function(F, F.np.tanh(self.before(x) * 2)))


def heads(F, x, count=HEADS):
    x = F.np.transpose(F.npx.reshape(x, (-2, -2, count, -1)), (0, 2, 1, 3))
    return F.npx.reshape(x, (-5, -2, -2))


def joined(F, x, count=HEADS):
    x = F.np.transpose(F.npx.reshape(x, (-6, -1, count, -2, -2)), (0, 2, 1, 3))
    return F.npx.reshape(x, (-2, -2, -5))


def attention(F, x, scale=lambda F, scores: scores):
    queries = heads(F, x)
    weights = F.npx.softmax(scale(F, F.npx.batch_dot(queries, queries, transpose_b=True)), axis=-1)
    return joined(F, F.npx.batch_dot(weights, heads(F, F.npx.sigmoid(x))))


def by_matmul(turn):
    """Heads as an axis of their own."""

    def function(F, x):
        def split(x):
            return F.np.swapaxes(F.npx.reshape(x, (-2, -2, HEADS, -1)), 1, 2)

        scores = F.np.matmul(split(x), turn(F, split(F.np.tanh(x))))
        context = F.np.matmul(F.npx.softmax(scores / 2), split(x * 2))
        return F.npx.reshape(F.np.swapaxes(context, 1, 2), (-2, -2, -5))

    return function


def of_one_head(product):
    def function(F, x):
        return F.np.matmul(F.npx.softmax(product(F, x, F.npx.sigmoid(x))), x * 2)

    return function


PACKED = {
    'matmul': by_matmul(lambda F, x: F.np.swapaxes(x, -1, -2)),
    'matmul of transposed': by_matmul(lambda F, x: F.np.transpose(x, (0, 1, 3, 2))),
    'one head': of_one_head(lambda F, x, y: F.np.matmul(x, F.np.swapaxes(y, 1, 2))),
    'one head, turned': of_one_head(
        lambda F, x, y: F.npx.batch_dot(x, F.np.transpose(y, (0, 2, 1)))
    ),
    'one head of batch_dot': of_one_head(lambda F, x, y: F.npx.batch_dot(x, y, transpose_b=True)),
    'position by position': lambda F, x: F.npx.relu(x) * 2,
    'mean': lambda F, x: x + F.np.mean(x, axis=1, keepdims=True),
    'softmax': lambda F, x: F.npx.softmax(x, axis=1),
    'attention': attention,
    'scaled': lambda F, x: attention(F, x, lambda F, scores: scores / 2**0.5),
    'dropout that is off': lambda F, x: F.npx.dropout(attention(F, x), p=0.0),
    'reverse': lambda F, x: F.np.flip(x, axis=1),
    'cumsum': lambda F, x: F.np.cumsum(x, axis=1),
    'turned scores': lambda F, x: attention(F, x, lambda F, s: F.np.transpose(s, (0, 2, 1))),
}


@in_one_test('name', PACKED)
def test_functions_of_sentences(name):
    net = Layer(PACKED[name])
    net.initialize(mx.init.Normal(0.5))
    samples = sentences()
    assert_matches_eager(net, samples, blocks=[net], schedulers=['fsm'], atol=1e-5)
    found = batches(net, samples)
    ran = sum(count for each, count in found.items() if each.startswith('Layer'))
    assert ran == 1


class Encoder(gluon.HybridBlock):
    """A layer of a transformer."""

    def __init__(self, units=UNITS, count=HEADS):
        super().__init__()
        self._units, self._count = units, count
        self.project = nn.Dense(3 * units, in_units=units, flatten=False)
        self.out = nn.Dense(units, in_units=units, flatten=False)
        self.norm = nn.LayerNorm(in_channels=units)
        self.inner = nn.Dense(12, in_units=units, flatten=False)
        self.outer = nn.Dense(units, in_units=12, flatten=False)
        self.last_norm = nn.LayerNorm(in_channels=units)

    def hybrid_forward(self, F, x):
        queries, keys, values = (
            heads(F, each, self._count) for each in F.np.split(self.project(x), 3, axis=-1)
        )
        scores = F.npx.batch_dot(queries, keys, transpose_b=True)
        weights = F.npx.softmax(scores / (self._units // self._count) ** 0.5, axis=-1)
        x = self.norm(x + self.out(joined(F, F.npx.batch_dot(weights, values), self._count)))
        return self.last_norm(x + self.outer(F.npx.relu(self.inner(x))))


@pytest.mark.parametrize('units, count', [(8, 2), (20, 5), (64, 1)])
def test_encoders_are_one_batch(units, count):
    net = Encoder(units, count)
    net.initialize(mx.init.Normal(0.3))
    samples = sentences((33, 1, 17, 2, 16, 40, 3), units=units)
    assert_matches_eager(net, samples, blocks=[net], schedulers=['fsm'], atol=1e-4)
    found = batches(net, samples)
    assert [count for each, count in found.items() if each.startswith('Encoder')] == [1]


class Total(gluon.HybridBlock):
    """What it returns has no axes, or all; operators before it make it worth packing."""

    def hybrid_forward(self, F, x):
        x = F.np.tanh(F.np.tanh(F.np.tanh(x * 2 + 1)))
        return F.np.sum(x), x, F.np.mean(x, axis=1)


def test_results_without_axes():
    net = Total()

    def model(x):
        total, all_of_it, mean = net(x)
        return [total * 2, all_of_it * total, mean + total]

    assert_matches_eager(model, sentences(), blocks=[net], schedulers=['fsm'], atol=1e-4)
    with edb.batching():
        for x in sentences():
            total, all_of_it, mean = net(x)
            assert (total.shape, all_of_it.shape, mean.shape) == ((), x.shape, (1, UNITS))
            assert isinstance(all_of_it, np.ndarray)


class Model(gluon.Block):
    """Looks words up, encodes them, and does something with the sentence."""

    def __init__(self, function):
        super().__init__()
        self.embed = nn.Embedding(20, UNITS)
        self.encoder = Encoder()
        self.out = nn.Dense(3, in_units=UNITS)
        self.function = function

    def forward(self, ids):
        return self.out(self.function(self.encoder(self.embed(ids))))


FOLLOWED = {
    'mean': lambda y: y.mean(axis=1),
    'first': lambda y: y[:, 0],
    'last': lambda y: y[:, -1],
    'some': lambda y: y[:, :1, 2:].sum(axis=(1, 2)) * y[0, 0:1],
    'sum with itself': lambda y: (y + y * y).sum(axis=1),
    'norms': lambda y: (y / np.sqrt((y * y).sum(axis=2, keepdims=True))).mean(axis=1),
    'a flat view': lambda y: y.reshape((-1, UNITS)).sum(axis=0, keepdims=True),
    'rows': lambda y: np.concatenate([y, y * 2]).mean(axis=(0, 1)).reshape((1, -1)),
    'a total': lambda y: (y * (y * y).sum()).mean(axis=1),
    'matrices': lambda y: np.matmul(np.swapaxes(y, 1, 2), y).sum(axis=2),
    'a dot': lambda y: np.dot(y[0].T, y[0]).sum(axis=0, keepdims=True),
    'a vector': lambda y: y[0].T.sum(axis=1)[None],
    'joined': lambda y: edb.concat([y.mean(axis=1), y[:, 0]]).sum(axis=0, keepdims=True),
    'a look': lambda y: y.mean(axis=1) * float(y.asnumpy().mean()),
}


@pytest.mark.parametrize('name', sampled(2, FOLLOWED))
def test_what_follows(name):
    given = onp.array if len(name) % 2 else np.array
    net = Model(FOLLOWED[name])
    net.initialize(mx.init.Normal(0.3))
    draw = onp.random.RandomState(0)
    samples = [given(draw.randint(0, 20, (1, length)).astype('float32')) for length in LENGTHS]
    assert_matches_eager(net, samples, blocks=[net], schedulers=['fsm'], atol=1e-5)
    if name != 'a look':
        found = batches(net, samples)
        assert [count for each, count in found.items() if each.startswith('Encoder')] == [1]


def test_results_are_arrays_of_numpy_mode():
    net = Encoder()
    net.initialize(mx.init.Normal(0.3))
    samples = sentences()
    expected = [net(x).asnumpy() for x in samples]
    for _ in range(2):
        with autograd.record():
            with edb.batching():
                found = [net(x) for x in samples]
                assert [y.shape for y in found] == [x.shape for x in samples]
            total = sum([(y * y).sum() for y in found])
        total.backward()
        for y, wanted in zip(edb.forward(found), expected):
            assert type(y) is np.ndarray
            onp.testing.assert_allclose(y.asnumpy(), wanted, rtol=1e-4, atol=1e-5)


def test_results_can_be_written_to():
    net = Encoder()
    net.initialize(mx.init.Normal(0.3))

    def results():
        kept = []
        for x in sentences():
            y = net(x)
            y[:, 0:1] = 3.0
            kept.append((y * 2).asnumpy())
        return kept

    expected = results()
    for _ in range(2):
        with edb.batching():
            found = results()
    for one, other in zip(found, expected):
        onp.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('native', [True, False])
def test_sentences_of_truth_values(native):
    """MXNet's operators do not write into arrays of bool, as masks of padding would."""
    choose = nn.HybridLambda(lambda F, m, x: F.np.where(m, F.npx.softmax(x, axis=1), x))
    dense = nn.Dense(UNITS, flatten=False, in_units=UNITS)
    dense.initialize()

    def model(x):
        y = dense(x)
        return choose(y > 0, y), (y > 0).sum(axis=1)

    samples = sentences()
    for _ in range(2):
        with edb.compile_options(native=native), edb.batching():
            values = [model(x) for x in samples]
        for x, found in zip(samples, values):
            for y, expected in zip(found, model(x)):
                onp.testing.assert_allclose(y.asnumpy(), expected.asnumpy(), rtol=1e-4, atol=1e-5)


def test_truth_values_of_two_sentences():
    """MXNet does not transpose them, as lifted graphs would."""

    def pairs(F, x, y):
        scores = F.np.matmul(x, F.np.swapaxes(y, 1, 2))
        return scores > 0, F.np.tanh(x) > 0, F.np.where(x > 0, x, -x)

    dense, block = nn.Dense(UNITS, flatten=False, in_units=UNITS), nn.HybridLambda(pairs)
    dense.initialize()
    samples = list(zip(sentences(), sentences()[::-1]))
    for _ in range(2):
        with edb.batching():
            values = [block(dense(x), dense(y)) for x, y in samples]
        for (x, y), found in zip(samples, values):
            for one, other in zip(found, block(dense(x), dense(y))):
                onp.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-4, atol=1e-5)


# --- operators outside of blocks that have two lengths ------------------------------------------


def attend(x, y, scores=npx.batch_dot):
    return npx.batch_dot(npx.softmax(scores(x, y, transpose_b=True)), y)


def masked(x, y):
    scores = npx.batch_dot(x, y, transpose_b=True)
    return npx.batch_dot(npx.softmax(np.where(scores > 0, scores, scores * 0.1) / np.sqrt(8.0)), y)


def both_ways(x, y):
    scores = npx.batch_dot(x, y, transpose_b=True) * 0.5
    read = npx.batch_dot(npx.softmax(scores, axis=2), y)
    best = np.expand_dims(npx.softmax(np.max(scores, axis=2)), 1)
    return np.concatenate([x, read, x * read, x * npx.batch_dot(best, x)], axis=2)


PAIRS = {  # what is computed of two sentences, and the most batches of it
    'attend': (attend, 3),
    'by matmul': (lambda x, y: npx.softmax(np.matmul(x, np.swapaxes(y, 1, 2))) @ y, 4),
    'masked': (masked, 3),
    'both ways': (both_ways, 10),
    'returned': (lambda x, y: npx.batch_dot(x, y, transpose_b=True), 3),
    'arithmetic': (lambda x, y: (-((1 - x @ np.swapaxes(y, 1, 2)) ** 2)).max(axis=1), 4),
    'transposed': (
        lambda x, y: npx.batch_dot(
            npx.softmax(npx.batch_dot(x, y, transpose_b=True).transpose(0, 2, 1)), x
        ),
        3,
    ),
    'to a number': (lambda x, y: np.tanh(npx.batch_dot(x, y, transpose_b=True)).mean(), 3),
}


class Pair(edb.AutoBatchMixin, gluon.Block):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.one = nn.Dense(UNITS, flatten=False, in_units=UNITS)
        self.other = nn.Dense(UNITS, flatten=False, in_units=UNITS)

    def forward(self, x, y):
        return self.function(self.one(x), self.other(y))


@pytest.mark.parametrize('name', PAIRS)
def test_operators_outside_of_blocks_on_two_sentences(name):
    function, most = PAIRS[name]
    net = Pair(function)
    net.initialize(mx.init.Xavier())
    one, other = sentences(), sentences(LENGTHS[::-1], seed=1)
    made = batches(lambda at: net(one[at], other[at]), range(len(one)))
    assert sum(made.values()) <= most
    assert_matches_eager(lambda at: net(one[at], other[at]), range(len(one)), blocks=[net])


def test_a_result_with_two_lengths_is_an_array_of_numpy_mode():
    x, y = sentences((4, 6))
    with edb.batching():
        scores = npx.batch_dot(x * 1, y * 1, transpose_b=True)
        assert scores.shape == (1, 4, 6) and scores.ndim == 3
        assert isinstance(scores, np.ndarray) and scores.dtype == onp.float32
        first = scores[0, 0]
    expected = (x.asnumpy() @ y.asnumpy().swapaxes(1, 2))[0, 0]
    onp.testing.assert_allclose(first.asnumpy(), expected, rtol=1e-5, atol=1e-6)


# --- functions on ragged values -----------------------------------------------------------------

RAGGED = {
    'elementwise': lambda h, r: np.sum(np.tanh(r) * 2, axis=1),
    'broadcast': lambda h, r: np.mean(np.expand_dims(h, 1) * r, axis=1),
    'attention': lambda h, r: npx.batch_dot(
        npx.softmax(npx.batch_dot(np.expand_dims(h, 1), r, transpose_b=True)), r
    ),
    'weights returned': lambda h, r: npx.softmax(
        npx.batch_dot(np.expand_dims(h, 1), r, transpose_b=True)
    ),
    'largest': lambda h, r: np.max(np.concatenate([r, -r], axis=2), axis=1),
    'method': lambda h, r: r.sum(axis=1) + r[:, 0] + r.reshape(1, -1, UNITS).mean(axis=1),
}


@pytest.mark.parametrize('name', RAGGED)
def test_functions_on_ragged_values(name):
    draw = onp.random.RandomState(3)
    samples = [draw.normal(size=(n, UNITS)).astype('float32') for n in LENGTHS]
    dense = nn.Dense(UNITS, in_units=UNITS)
    dense.initialize(mx.init.Xavier())

    def model(at):
        rows = [np.array(row[None]) for row in samples[at]]
        return RAGGED[name](dense(rows[0]), edb.ragged([dense(row) for row in rows]))

    assert sum(batches(model, range(len(samples))).values()) <= 8
    assert_matches_eager(model, range(len(samples)), blocks=[dense])


def test_a_ragged_value_is_an_array_of_numpy_mode():
    rows = [np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])]
    with edb.batching():
        value = edb.ragged([row * 1 for row in rows])
        assert isinstance(value, np.ndarray) and value.dtype == onp.float32
        assert all(isinstance(row, np.ndarray) for row in value.values())
        double = value * 2
    assert isinstance(double.evaluated(), np.ndarray)
    onp.testing.assert_array_equal(double.asnumpy(), [[[2, 4], [6, 8]]])
