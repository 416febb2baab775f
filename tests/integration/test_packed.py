"""Whole sentences of different lengths as rows, one after the other, without padding."""

import contextlib
from collections import Counter
from dataclasses import replace

import mxnet as mx
import numpy as np
import pytest
from gluonnlp.model.transformer import TransformerEncoder
from mxnet import autograd, gluon

import gluon_edbatch as edb
from gluon_edbatch.ops.registry import OPS
from gluon_edbatch.testing import assert_matches_eager
from tests.support.cases import in_one_test
from tests.support.oracle import plans_moved_by_hand
from tests.support.tiers import sampled

pytestmark = pytest.mark.skipif(not edb.native_available(), reason='no native operators')

UNITS, HEADS = 8, 2
LENGTHS = (5, 6, 9, 11, 12, 7, 1, 10, 2, 5)


def sentences(lengths=LENGTHS, seed=0, units=UNITS):
    draw = np.random.RandomState(seed)
    arrays = [mx.nd.array(draw.normal(size=(1, length, units))) for length in lengths]
    for array in arrays:
        array.attach_grad()
    return arrays


def batches(model, samples):
    """Names of types and how many batches each has, once it is known that lengths differ."""
    for _ in range(2):
        with edb.batching() as scope:
            values = [model(x) for x in samples]
        edb.forward(values)
    found: Counter[str] = Counter()
    for entry in scope.report().types:  # of one name with other constants, too
        found[str(entry.name)] += entry.batches
    return found


def test_plans_move_the_rows_of_packed_sentences():
    model = Layer(lambda F, x: F.softmax(x, axis=1))
    model.initialize()
    with plans_moved_by_hand() as plans:
        batches(model, sentences())
    assert any(batch.node_type.packed for plan in plans for batch in plan.batches)


class Attention(gluon.HybridBlock):
    """Attention of a query to a sentence."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.key = gluon.nn.Dense(UNITS, flatten=False, in_units=UNITS)

    def hybrid_forward(self, F, query, memory):
        weights = F.softmax(F.batch_dot(self.key(memory), query.expand_dims(2)), axis=1)
        return F.batch_dot(weights, memory, transpose_a=True).reshape((0, -1))


def _backwards(F, x):
    return F.reverse(x % 9.0, axis=1)


def test_what_the_package_lays_out_is_nothing_to_mend():
    encode, attend = (
        gluon.nn.HybridLambda(_backwards),
        Attention(),
    )  # one that is not packed, one that is
    for block in (encode, attend):
        block.initialize()
    for _ in range(2):
        with edb.batching() as scope:
            edb.forward([attend(mx.nd.ones((1, UNITS)), encode(x)) for x in sentences()])
    (found,) = [one for one in scope.explain().places if one.operation == 'lay out a sentence']
    assert {why.cause for why in found.reasons} == {edb.Cause.PADDED}


class Heads(gluon.HybridBlock):
    """Attention of a query to a sentence, by heads."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.query, self.key = [
                gluon.nn.Dense(UNITS, flatten=False, in_units=UNITS) for _ in range(2)
            ]

    def hybrid_forward(self, F, query, memory):
        queries, keys = [
            F.split(layer(x), num_outputs=HEADS, axis=2)
            for layer, x in ((self.query, query), (self.key, memory))
        ]
        weights = [F.softmax(F.batch_dot(q, k, transpose_b=True)) for q, k in zip(queries, keys)]
        return F.concat(*[F.batch_dot(w, k) for w, k in zip(weights, keys)], dim=2)


def test_what_is_computed_of_the_query_ahead_may_be_several_values():
    """A part of a call without the sentence has results of its own, however many."""
    attend = Heads()
    attend.initialize()
    queries = [mx.nd.ones((1, 1, UNITS)) * i for i in range(4)]
    assert_matches_eager(attend, zip(queries, sentences((5, 6, 9, 11))), unpack=True)


class Layer(gluon.HybridBlock):
    """A function between layers that work position by position."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        with self.name_scope():
            self.before = gluon.nn.Dense(UNITS, flatten=False, in_units=UNITS)
            self.after = gluon.nn.Dense(3, flatten=False, in_units=UNITS)

    def hybrid_forward(self, F, x):
        return self.after(self.function(F, F.tanh(self.before(x))))


def heads(F, x):
    x = F.reshape(x, shape=(0, 0, HEADS, -1))
    return F.reshape(F.transpose(x, axes=(0, 2, 1, 3)), shape=(-1, 0, 0), reverse=True)


def joined(F, x):
    x = F.reshape(x, shape=(-1, HEADS, 0, 0), reverse=True)
    return F.reshape(F.transpose(x, axes=(0, 2, 1, 3)), shape=(0, 0, -1))


def attention(F, x, scale=lambda F, x: x, keys=lambda F, x: x):
    queries = heads(F, x)
    weights = F.softmax(scale(F, F.batch_dot(queries, keys(F, queries), transpose_b=True)))
    return joined(F, F.batch_dot(weights, heads(F, F.sigmoid(x))))


def one_head(F, x):
    return F.batch_dot(F.softmax(F.batch_dot(x, x * 2, transpose_b=True) * 0.4), F.sigmoid(x))


def swapped(F, x):
    x = F.swapaxes(F.reshape(x, shape=(0, 0, HEADS, -1)), 1, 2)
    weights = F.softmax(F.batch_dot(*[F.reshape(x, shape=(-3, 0, 0))] * 2, transpose_b=True))
    x = F.reshape(F.batch_dot(weights, F.reshape(x, shape=(-3, 0, 0))), shape=(-4, -1, HEADS, 0, 0))
    return F.reshape(F.swapaxes(x, 1, 2), shape=(0, 0, -1))


PACKED = {
    'position by position': lambda F, x: F.relu(x) * 2,
    'mean': lambda F, x: F.broadcast_add(x, F.mean(x, axis=1, keepdims=True)),
    'softmax': lambda F, x: F.softmax(x, axis=1),
    'first': lambda F, x: F.broadcast_mul(x, F.slice_axis(x, axis=1, begin=0, end=1)),
    'attention': attention,
    'one head': one_head,
    'one head of several': lambda F, x: one_head(F, attention(F, one_head(F, x))),
    'heads by swapping axes': swapped,
    'scaled': lambda F, x: attention(F, x, lambda F, scores: scores * 0.7),
    'scaled below zero': lambda F, x: attention(F, x, lambda F, scores: scores / -0.3),
    'keys scaled': lambda F, x: attention(F, x, keys=lambda F, k: F.contrib.div_sqrt_dim(k)),
    'queries by columns': lambda F, x: F.batch_dot(x, F.batch_dot(x, x, transpose_a=True)),
    'dropout that is off': lambda F, x: F.Dropout(attention(F, x), p=0.0),
    'reverse': lambda F, x: F.reverse(x, axis=1),
    'cumsum': lambda F, x: F.cumsum(x, axis=1),
    'last': lambda F, x: F.broadcast_mul(x, F.slice_axis(x, axis=1, begin=-1, end=None)),
    'scores plus a number': lambda F, x: attention(F, x, lambda F, scores: scores + 0.1),
    'a softmax of weights': lambda F, x: attention(F, x, lambda F, scores: F.softmax(scores)),
    'turned scores': lambda F, x: attention(F, x, lambda F, s: F.transpose(s, axes=(0, 2, 1))),
    'twice': lambda F, x: one_head(F, F.concat(x, x * 2, dim=1)),
    'first behind': lambda F, x: F.concat(x, F.slice_axis(x, axis=1, begin=0, end=1), dim=1),
    'between two': lambda F, x: F.concat(
        F.slice_axis(x, axis=1, begin=-1, end=None) * 2,
        F.reverse(x, axis=1),
        F.slice_axis(x, axis=1, begin=0, end=1),
        dim=1,
    ),
    'each twice': lambda F, x: F.softmax(F.repeat(x, repeats=2, axis=1), axis=1),
    'tiled': lambda F, x: F.cumsum(F.tile(x, reps=(1, 2, 1)), axis=1),
    'stacked': lambda F, x: F.sum(F.stack(x, F.sin(x), axis=1), axis=1),
}


@pytest.mark.parametrize('name', sampled(2, PACKED))
def test_functions_of_sentences(name):
    net = Layer(PACKED[name])
    net.initialize(mx.init.Normal(0.5))
    samples = sentences()
    assert_matches_eager(net, samples, blocks=[net], schedulers=['fsm'], atol=1e-5)
    found = batches(net, samples)
    ran = sum(count for each, count in found.items() if each.startswith('Layer'))
    assert ran == 1


@pytest.mark.parametrize('name', ['position by position', 'cumsum'])
@pytest.mark.parametrize('computed', [False, True])
def test_a_block_whose_sentences_lie_along_either_axis(name, computed):
    """Calls of one block differ in the second axis, and then in the third."""
    net = gluon.nn.HybridLambda(lambda F, x: F.tanh(PACKED[name](F, x)))
    before = gluon.nn.HybridLambda(lambda F, x: F.sigmoid(x))
    draw = np.random.RandomState(0)
    shapes = [(1, 5, 8), (1, 6, 8), (1, 5, 9), (1, 5, 7), (1, 7, 8), (1, 5, 8)]
    samples = [mx.nd.array(draw.normal(size=shape)) for shape in shapes]

    def model(x):
        return net(before(x) if computed else x)

    for _ in range(3):
        with edb.batching():
            found = [model(x) for x in samples]
        for value, x in zip(found, samples):
            np.testing.assert_allclose(value.asnumpy(), model(x).asnumpy(), rtol=1e-4, atol=1e-5)


ORDERS = {
    'argsort': lambda F, x: F.argsort(x, axis=1),
    'argsort, falling': lambda F, x: F.argsort(x, axis=1, is_ascend=False),
    'sort': lambda F, x: F.sort(x, axis=1),
    'positions': lambda F, x: F.topk(x, k=3, axis=1),
    'smallest positions': lambda F, x: F.topk(x, k=2, axis=1, is_ascend=True),
    'position': lambda F, x: F.topk(x, k=1, axis=1),
    'both': lambda F, x: F.topk(x, k=3, axis=1, ret_typ='both'),
    'all of both': lambda F, x: F.topk(x, k=0, axis=1, ret_typ='both'),
    'both of one': lambda F, x: F.topk(x, k=1, axis=1, ret_typ='both'),
    'values': lambda F, x: F.topk(x, k=3, axis=1, ret_typ='value'),
    'marks': lambda F, x: F.topk(x, k=3, axis=1, ret_typ='mask'),
    'mark': lambda F, x: F.topk(x, k=1, axis=1, ret_typ='mask'),
}


@pytest.mark.parametrize('native', [True, False])
@pytest.mark.parametrize('numbers', ['equal', 'infinite', 'none'])
@pytest.mark.parametrize('name', ORDERS)
def test_orders_are_those_of_each_sentence_alone(name, numbers, native):
    """Which of equal values comes first depends on how many there are, with infinite ones, too."""
    if not native and name in ('sort', 'values'):
        return  # of equal values MXNet's padded operator gives the gradient to others
    draw = np.random.RandomState(0)
    samples = []
    for length in (5, 17, 9, 21, 4, 40, 64, 16):
        array = draw.randint(0, 3, (1, length, 4)).astype('float32')
        if numbers == 'infinite':
            array = np.where(array == 0, -np.inf, np.where(array == 2, np.inf, array))
        array[draw.uniform(size=array.shape) < 0.2 * (numbers == 'none')] = np.nan
        samples.append(mx.nd.array(array))
        samples[-1].attach_grad()
    weights = mx.nd.array(draw.normal(size=(1, 64, 4)))
    order = gluon.nn.HybridLambda(lambda F, x: ORDERS[name](F, x * 1))

    def results(scope):
        with autograd.record():
            with scope:
                found = [order(x) for x in samples]
            found = [each if isinstance(each, list) else [each] for each in found]
            total = sum([(own[0] * weights[:, : own[0].shape[1]]).sum() for own in found])
        if name in ('sort', 'values', 'both', 'all of both', 'both of one'):
            total.backward()
        arrays = [value.asnumpy() for own in found for value in own]
        return arrays + [x.grad.asnumpy() for x in samples]

    expected = results(contextlib.nullcontext())
    for _ in range(2):
        with edb.compile_options(native=native):
            scope = edb.batching()
            found = results(scope)
        for mine, others in zip(found, expected):
            np.testing.assert_array_equal(mine, others)
    of_one = name in ('position', 'both of one', 'mark')
    assert scope.report().batches == (1 if native or of_one else len(samples))


def test_more_values_than_a_sentence_has_are_an_error():
    order = gluon.nn.HybridLambda(lambda F, x: F.topk(x, k=3, axis=1))
    with pytest.raises(edb.RecordError), edb.batching():
        edb.forward([order(x) for x in sentences((5, 6, 2, 7))])


@pytest.mark.parametrize('native', [True, False])
def test_a_long_sentence_pads_no_short_ones(native):
    """MXNet's operators take padded sentences: the long one has a batch of its own."""
    net = Layer(PACKED['cumsum'])
    net.initialize(mx.init.Normal(0.5))
    samples = sentences((3, 4, 400, 3, 4, 4))
    with edb.compile_options(native=native):
        assert_matches_eager(net, samples, blocks=[net], schedulers=['fsm'], atol=1e-5)
        found = batches(net, samples)
    assert [count for each, count in found.items() if each.startswith('Layer')] == [2]


@pytest.mark.parametrize('units, of_heads, layers', [(8, 2, 2), (20, 5, 1), (64, 1, 1)])
def test_encoders_are_one_batch(units, of_heads, layers):
    net = TransformerEncoder(
        units=units, hidden_size=12, num_layers=layers, num_heads=of_heads, max_length=40
    )
    net.initialize(mx.init.Normal(0.3))
    samples = sentences((33, 1, 17, 2, 16, 40, 3), units=units)
    assert_matches_eager(lambda x: net(x)[0], samples, blocks=[net], schedulers=['fsm'], atol=1e-4)
    found = batches(lambda x: net(x)[0], samples)
    assert [count for each, count in found.items() if each.startswith('Transformer')] == [1]


class Model(gluon.Block):
    """Looks words up, encodes them, and does something with the sentence."""

    def __init__(self, function, sparse=False):
        super().__init__()
        with self.name_scope():
            self.embed = gluon.nn.Embedding(20, UNITS, sparse_grad=sparse)
            self.encoder = TransformerEncoder(
                units=UNITS, hidden_size=12, num_layers=1, num_heads=HEADS, max_length=20
            )
            self.out = gluon.nn.Dense(3, in_units=UNITS)
        self.function = function

    def forward(self, ids):
        return self.out(self.function(self.encoder(self.embed(ids))[0]))


def with_rows(y):
    """Rows of two sentences."""
    return edb.concat([y, y * 2]).mean(axis=(0, 1)).reshape((1, -1))


FOLLOWED = {
    'mean': lambda y: y.mean(axis=1),
    'first': lambda y: y.slice_axis(axis=1, begin=0, end=1).reshape((1, -1)),
    'last': lambda y: y.slice_axis(axis=1, begin=-1, end=None).reshape((1, -1)),
    'a position': lambda y: y[:, 0],
    'sum with itself': lambda y: (y + y * y).sum(axis=1),
    'norms': lambda y: (y / y.norm(axis=2, keepdims=True)).mean(axis=1),
    'a flat view': lambda y: y.reshape((-1, UNITS)).sum(axis=0, keepdims=True),
    'concat': with_rows,
    'ragged': lambda y: mx.nd.mean(mx.nd.concat(y, y, dim=1), axis=1),
    'list': lambda y: mx.nd.add_n(y, y).max(axis=1),
    'a look': lambda y: y.mean(axis=1) * float(y.asnumpy().mean()),
}


@pytest.mark.parametrize('name', sampled(2, FOLLOWED))
def test_what_follows(name):
    given, sparse = (np.array, True) if len(name) % 2 else (mx.nd.array, False)
    net = Model(FOLLOWED[name], sparse)
    net.initialize(mx.init.Normal(0.3))
    draw = np.random.RandomState(0)
    samples = [given(draw.randint(0, 20, (1, length)).astype('float32')) for length in LENGTHS]
    assert_matches_eager(net, samples, blocks=[net], schedulers=['fsm'], atol=1e-5)
    if name != 'a look':
        found = batches(net, samples)
        assert [count for each, count in found.items() if each.startswith('Transformer')] == [1]


@pytest.mark.parametrize('scoped', [1, 2])
def test_results_can_be_written_to_and_read(scoped):
    net = Model(lambda y: y)
    net.initialize(mx.init.Normal(0.3))
    samples = sentences()

    def results(scope):
        kept, totals = [], []
        with autograd.record():
            with scope:
                for x in samples:
                    y = net.encoder(x)[0]
                    totals.append((y * y).mean(axis=1).sum())
                    with autograd.pause():
                        z = net.encoder(x)[0]
                        z[:, 0:1] = 3.0
                    kept += [y, z]
            total = mx.nd.add_n(*[total.reshape((1,)) for total in totals])
        total.backward()
        assert [each.shape for each in kept[::2]] == [x.shape for x in samples]
        return [each.asnumpy() for each in [total, *kept, *[x.grad for x in samples]]]

    expected = results(contextlib.nullcontext())
    for _ in range(scoped):
        found = results(edb.batching())
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_results_live_longer_than_their_scope():
    net = Model(lambda y: y)
    net.initialize(mx.init.Normal(0.3))
    samples = sentences()
    for _ in range(2):
        with edb.batching():
            values = [net.encoder(x)[0] for x in samples]
        with edb.batching():
            again = [net.encoder(y)[0] for y in values]
    for x, y in zip(samples, again):
        expected = net.encoder(net.encoder(x)[0])[0].asnumpy()
        np.testing.assert_allclose(y.asnumpy(), expected, rtol=1e-4, atol=1e-5)


def test_sentences_recorded_before_are_recorded_again():
    net = Model(FOLLOWED['mean'])
    net.initialize(mx.init.Normal(0.3))
    samples = sentences()
    keep = edb.Reuse()
    for _ in range(4):
        with edb.batching():
            values = [keep(i, lambda x: net.encoder(x)[0] * 2, x) for i, x in enumerate(samples)]
        for x, y in zip(samples, values):
            np.testing.assert_allclose(
                y.asnumpy(), net.encoder(x)[0].asnumpy() * 2, rtol=1e-4, atol=1e-5
            )


@pytest.mark.parametrize('op', ['LayerNorm', 'FullyConnected'])
def test_a_wrong_program_is_seen(op, monkeypatch):
    """The first batch is compared with a sentence alone."""
    monkeypatch.setitem(OPS, op, replace(OPS[op], native=lambda call: call.alias(call.x)))
    net = TransformerEncoder(units=UNITS, hidden_size=UNITS, num_layers=1, num_heads=HEADS)
    net.initialize(mx.init.Normal(0.3))
    with pytest.raises(edb.RowDependenceError, match='another result in a batch than alone'):
        batches(lambda x: net(x)[0], sentences())


def attends(F, x):
    return F.batch_dot(F.softmax(F.batch_dot(x, x, transpose_b=True)), x)


@pytest.mark.parametrize('native', [True, False])
@pytest.mark.parametrize('number', [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize('begin', [0, 1])
def test_what_is_cut_off_a_sentence_may_be_infinite(begin, number, native):
    cut = gluon.nn.HybridLambda(
        lambda F, x: attends(F, F.slice_axis(x, axis=1, begin=begin, end=-1))
    )
    samples = sentences((5, 7, 3, 4, 9))
    expected = []
    for x in samples:
        x[:, -1] = number
        with autograd.record():
            y = cut(x)
        y.backward()
        expected.append((y.asnumpy(), x.grad.asnumpy()))
    for _ in range(2):
        with edb.compile_options(native=native), autograd.record():
            with edb.batching():
                values = [cut(x) for x in samples]
                edb.concat([y.sum().reshape((1,)) for y in values]).sum().backward()
        for x, y, (result, gradient) in zip(samples, values, expected):
            np.testing.assert_allclose(y.asnumpy(), result, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(x.grad.asnumpy(), gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('op', ['max', 'min', 'sort', 'argmax', 'argmin'])
@pytest.mark.parametrize('dtype', ['int32', 'int64', 'uint8', 'int8'])
def test_extremes_of_integers(dtype, op):
    """No integer is infinite, as padding would have to be."""
    block = gluon.nn.HybridLambda(lambda F, x: getattr(F, op)(F.swapaxes(x, 1, 2), axis=2))
    away = 200 if dtype == 'uint8' else -9
    samples = [(x * 2 + away).astype(dtype) for x in sentences()]
    for _ in range(2):
        with edb.batching():
            values = [block(x) for x in samples]
        for x, y in zip(samples, values):
            np.testing.assert_array_equal(y.asnumpy(), block(x).asnumpy())


@pytest.mark.parametrize('first', ['rows', 'sentences'])
@pytest.mark.parametrize('in_block', [True, False])
def test_axes_count_otherwise_in_rows_than_in_sentences(in_block, first):
    """A single operator moves another axis of (1, C) than of (1, L, C)."""
    widen = gluon.nn.HybridLambda(lambda F, x: F.tanh(F.expand_dims(x, axis=2)))
    dense = gluon.nn.Dense(UNITS, flatten=False, in_units=UNITS)
    dense.initialize()

    def model(x):
        wide = widen if in_block else lambda y: mx.nd.tanh(mx.nd.expand_dims(y, axis=2))
        row = wide(dense(x[:, 0])) if first == 'rows' else None
        sentence = wide(dense(x))
        return [wide(dense(x[:, 0])) if row is None else row, sentence]

    for lengths in (LENGTHS, LENGTHS[::-1]):
        samples = sentences(lengths)
        with edb.batching():
            values = [model(x) for x in samples]
        for x, found in zip(samples, values):
            for y, expected in zip(found, model(x)):
                assert y.shape == expected.shape
                np.testing.assert_allclose(y.asnumpy(), expected.asnumpy(), rtol=1e-4, atol=1e-5)


def test_sentences_and_ragged_values_are_joined_by_width():
    words = gluon.nn.Dense(UNITS, in_units=UNITS)
    sentences_of = gluon.nn.Dense(UNITS, flatten=False, in_units=UNITS)
    words.initialize()
    sentences_of.initialize()
    samples = sentences((5, 7, 3, 9, 6, 1))

    def model(x):
        ragged = edb.ragged([words(x[:, i]) for i in range(x.shape[1])])
        return mx.nd.concat(sentences_of(x), ragged, dim=2)

    for _ in range(2):
        with edb.compile_options(buckets=False), edb.batching():
            values = [model(x) for x in samples]
        for x, y in zip(samples, values):
            expected = np.concatenate([sentences_of(x).asnumpy(), words(x[0]).asnumpy()[None]], 2)
            np.testing.assert_allclose(y.asnumpy(), expected, rtol=1e-4, atol=1e-5)


class Spans(gluon.Block):
    """Some words of an encoded sentence, which each sample names."""

    def __init__(self, cut):
        super().__init__()
        self._cut = cut
        with self.name_scope():
            self.encoder = gluon.nn.Dense(UNITS, flatten=False, in_units=UNITS)
            self.after = gluon.nn.Dense(3, flatten=False, in_units=UNITS)

    def forward(self, sample):
        """Scores of the words that are cut out."""
        x, begin, end = sample
        return self.after(edb.nd.relu(self._cut(self.encoder(x), begin, end))).sum(axis=1)


CUTS = {
    'slice': lambda h, begin, end: h[:, begin:end],
    'slice of a slice': lambda h, begin, end: h[:, begin:][:, : end - begin],
    'reversed': lambda h, begin, end: h[:, ::-1] * h,
    'reversed, and fewer columns': lambda h, begin, end: edb.nd.concat(
        h[:, ::-1, 2:], h[:, ::-1, :2], dim=2
    ),
    'last two': lambda h, begin, end: h[:, -2:] + h[:, -1:],
    'slice_axis': lambda h, begin, end: h.slice_axis(axis=1, begin=begin, end=end),
    'word': lambda h, begin, end: h[:, begin].expand_dims(1),
    'take': lambda h, begin, end: edb.nd.take(h, mx.nd.array([begin, end - 1]), axis=1),
    'take one': lambda h, begin, end: mx.nd.take(h, mx.nd.array([end]), axis=1),
    'take beyond': lambda h, begin, end: mx.nd.take(h, mx.nd.array([end, -1, 99]), axis=1),
    'take and wrap': lambda h, begin, end: mx.nd.take(h, mx.nd.array([9]), axis=1, mode='wrap'),
    'columns': lambda h, begin, end: edb.nd.tile(
        mx.nd.take(h, mx.nd.array([begin, 1]), axis=2), (1, 1, UNITS // 2)
    ),
    'written': lambda h, begin, end: h[:, begin:end] * 2 + h[:, begin:end].mean(),
}


def spans(generator=None):
    """Sentences, and the first word and the one behind the last word of a span in each."""
    generator = generator or np.random.RandomState(2)
    samples = []
    for x in sentences(lengths=(*LENGTHS, *LENGTHS)):
        begin, end = sorted(generator.choice(x.shape[1] + 1, 2, replace=False).tolist())
        samples.append((x, begin, end))
    return samples


@in_one_test('name', CUTS)
@in_one_test('native', [True, False])
def test_spans_that_samples_name(name, native):
    net = Spans(CUTS[name])
    net.initialize(mx.init.Normal(0.3))
    with edb.compile_options(native=native):
        assert_matches_eager(net, spans(), blocks=[net.encoder, net.after], schedulers=['agenda'])


WIDTHS = len({end - begin for _, begin, end in spans()})
WHOLE = len({end for x, begin, end in spans() if end - begin == x.shape[1]})


# The first slice of a scope may have a type of its own, and a copy of all words has.
@in_one_test(
    'name, most',
    [
        ('slice', 1 + WIDTHS),
        ('slice_axis', 1 + WIDTHS + WHOLE),
        ('last two', 4),
        ('reversed', 1),
        ('take', 1),
        ('take beyond', 1),
    ],
)
def test_spans_of_one_width_are_one_batch(name, most):
    net = Spans(CUTS[name])
    net.initialize(mx.init.Normal(0.3))
    found = batches(net, spans())
    cuts = [each for each in found if each.startswith(('slice', 'take'))]
    assert cuts and sum(found[each] for each in cuts) <= most, found
    assert [count for each, count in found.items() if each.startswith('Dense')][1:] == [1]


class Beside(gluon.Block):
    """A layer over a sentence, and an operator on its result and on an array of the user."""

    def __init__(self, function):
        super().__init__()
        self._function = function
        with self.name_scope():
            self.layer = gluon.nn.Dense(UNITS, flatten=False, in_units=UNITS)

    def forward(self, x):
        """Use the array as the function says."""
        return self._function(self.layer(x), x.shape[1])


def given(length, *shape):
    """An array of the user with numbers of either sign, one for each sentence's length."""
    draw = np.random.RandomState(length)
    return mx.nd.array(draw.normal(size=[length if each is None else each for each in shape]))


BESIDE = {
    'mask': lambda h, n: h * (given(n, 1, None, 1) > 0),
    'array': lambda h, n: edb.nd.tanh(h + given(n, 1, None, UNITS)),
    'labels': lambda h, n: edb.nd.pick(edb.nd.log_softmax(h), given(n, 1, None) * 3),
    'columns': lambda h, n: edb.nd.concat(h, given(n, 1, None, 3), dim=2),
    'weights': lambda h, n: edb.nd.batch_dot(given(n, 1, 1, None), h),
    'products': lambda h, n: edb.nd.batch_dot(given(n, 1, None, 3), h, transpose_a=True),
    'choice': lambda h, n: edb.nd.where(given(n, 1, None, UNITS) > 0, h, h * 0.5),
    'of both': lambda h, n: edb.nd.batch_dot(h, given(n, 1, None, UNITS), transpose_b=True).sum(2),
    'of one width': lambda h, n: edb.nd.broadcast_mul(h, given(3, 1, 1, UNITS)),
}


@in_one_test('name', BESIDE)
@in_one_test('native', [True, False])
def test_arrays_of_the_user_beside_sentences(name, native):
    net = Beside(BESIDE[name])
    net.initialize(mx.init.Normal(0.3))
    samples = sentences(lengths=(*LENGTHS, UNITS))  # one that is as long as it is wide
    with edb.compile_options(native=native):
        assert_matches_eager(net, samples, blocks=[net.layer], schedulers=['agenda'])
    found = batches(net, samples)
    found = {each: count for each, count in found.items() if not each.startswith('lay out')}
    assert sum(found.values()) <= 8, found


@in_one_test('axis_of', ['reverse', 'slice_axis'])
def test_sequences_of_one_axis(axis_of):
    """Arrays (L,) have no rows beside their positions."""
    attrs = {'axis': 0} if axis_of == 'reverse' else {'axis': 0, 'begin': -1, 'end': None}
    net = gluon.nn.HybridLambda(lambda F, x: getattr(F, axis_of)(x, **attrs) * 2)
    samples = [mx.nd.array(np.arange(length) + 1.0) for length in LENGTHS]
    assert_matches_eager(net, samples, schedulers=['agenda'])
