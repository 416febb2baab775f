"""Sentences of several lengths in one call, and results with two axes of lengths."""

import mxnet as mx
import numpy as np
import pytest
from gluonnlp.model.bert import BERTEncoder
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.record.stores import SEVERAL, ShownAs
from gluon_edbatch.subgraph.spec import spec_of
from gluon_edbatch.testing import assert_matches_eager

UNITS = 6
ONE, OTHER = (5, 6, 9, 1, 12, 7), (3, 6, 2, 8, 1, 7)


def sentences(lengths, seed=0, axis=1):
    draw = np.random.RandomState(seed)
    arrays = [draw.normal(size=(1, length, UNITS)) for length in lengths]
    arrays = [mx.nd.array(array.swapaxes(0, 1) if axis == 0 else array) for array in arrays]
    for array in arrays:
        array.attach_grad()
    return arrays


def pairs():
    return list(zip(sentences(ONE), sentences(OTHER, 1)))


def batches(model, samples, **options):
    """How many batches each type has, once it is known that lengths differ."""
    for _ in range(2):
        with edb.compile_options(**options), edb.batching() as scope:
            values = [model(x) for x in samples]
        edb.forward(values)
    return {entry.name: entry.batches for entry in scope.report().types}


def crossed(F, x, y):
    """Attend from each word of one sentence to all words of the other."""
    weights = F.softmax(F.batch_dot(x, y, transpose_b=True), axis=2)
    return F.batch_dot(weights, y) + x


def both_ways(F, x, y):
    """Attend both ways, as BiDAF does."""
    scores = F.batch_dot(x, y, transpose_b=True)
    from_y = F.softmax(F.max(scores, axis=2), axis=1)
    context = F.batch_dot(F.softmax(scores, axis=2), y)
    summary = F.batch_dot(F.expand_dims(from_y, axis=1), x)
    return F.concat(x, context, x * context, F.broadcast_mul(x, summary), dim=2)


FUNCTIONS = {
    'crossed': crossed,
    'both ways': both_ways,
    'scores': lambda F, x, y: F.batch_dot(x, y, transpose_b=True),
    'weights': lambda F, x, y: F.softmax(F.batch_dot(x, y, transpose_b=True), axis=1),
    'of both': lambda F, x, y: F.concat(F.sum(x, axis=1), F.max(y, axis=1), dim=1),
    'joined': lambda F, x, y: F.concat(x, y, x, dim=1),
    'joined along axis 2': lambda F, x, y: F.concat(
        F.swapaxes(x, 1, 2), F.swapaxes(y, 1, 2), dim=2
    ),
    'mean of both': lambda F, x, y: F.mean(F.softmax(F.concat(x, y, dim=1), axis=1), axis=1),
    'attention to both': lambda F, x, y: crossed(F, x, F.concat(y * 2, x, dim=1)),
    'sum of both': lambda F, x, y: F.concat(x, y, dim=1) + F.concat(y, x, dim=1),
    'without the first': lambda F, x, y: F.slice_axis(
        F.concat(x, y, dim=1), axis=1, begin=1, end=None
    ),
    'axes 0 and 2': lambda F, x, y: F.transpose(
        F.batch_dot(y, x, transpose_b=True), axes=(2, 0, 1)
    ),
}


@pytest.mark.parametrize('native', [True, False])
@pytest.mark.parametrize('in_block', [True, False])
@pytest.mark.parametrize('name', FUNCTIONS)
def test_two_sentences(name, in_block, native):
    dense = nn.Dense(UNITS, flatten=False, in_units=UNITS)
    dense.initialize(mx.init.Normal(0.5))
    block = nn.HybridLambda(FUNCTIONS[name])

    def model(pair):
        x, y = map(dense, pair)
        return block(x, y) if in_block else FUNCTIONS[name](mx.nd, x, y)

    samples = pairs()
    assert_matches_eager(
        model, samples, blocks=[dense], schedulers=['fsm'], hybridized=[False], atol=1e-5
    )
    most = {'both ways': 9, 'attention to both': 6}.get(name, 4) if not in_block else 2
    if name != 'axes 0 and 2' or in_block:
        assert sum(batches(model, samples, native=native).values()) <= most


@pytest.mark.parametrize('in_block', [True, False])
def test_weights_of_attention_that_are_returned_and_read(in_block):
    dense = nn.Dense(UNITS, flatten=False, in_units=UNITS)
    dense.initialize(mx.init.Normal(0.5))

    def attend(F, x):
        weights = F.softmax(F.batch_dot(x, x, transpose_b=True), axis=2)
        return weights, F.batch_dot(weights, x)

    block = nn.HybridLambda(attend)
    samples = sentences(ONE)

    def results():
        with autograd.record():
            values = [block(dense(x)) if in_block else attend(mx.nd, dense(x)) for x in samples]
            loss = sum((weights**3).sum() + (y * y).sum() for weights, y in values)
        loss.backward()
        return [a.asnumpy() for pair in values for a in pair] + [x.grad.asnumpy() for x in samples]

    expected = results()
    for _ in range(2):
        with edb.batching() as scope:
            found = results()
    for one, other in zip(found, expected):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    names = {entry.name: entry.batches for entry in scope.report().types}
    assert sum(names.values()) <= 20, names


def test_arguments_that_must_be_equally_long():
    """A sum of a sentence and another fits where lengths are equal, and is refused elsewhere."""
    block = nn.HybridLambda(lambda F, x, y, z: F.batch_dot(F.tanh(x * y), z, transpose_b=True))
    samples = list(zip(sentences(ONE), sentences(ONE, 1), sentences(OTHER, 2)))
    assert_matches_eager(lambda each: block(*each), samples, schedulers=['fsm'], atol=1e-5)
    assert list(batches(lambda each: block(*each), samples).values()) == [1]
    with edb.batching(), pytest.raises(edb.RecordError, match='does not accept'):
        block(samples[0][0], samples[1][1], samples[0][2])


@pytest.mark.parametrize('training', [True, False])
def test_bert_with_dropout_is_one_batch(training):
    net = BERTEncoder(
        num_layers=1, num_heads=2, units=UNITS, hidden_size=8, max_length=20, dropout=0.3
    )
    net.initialize(mx.init.Normal(0.3))
    samples = sentences(ONE, axis=0)

    def model(x):
        return net(x)[0]

    for _ in range(2):
        with autograd.record(train_mode=training), edb.batching() as scope:
            values = [model(x) for x in samples]
        for value in values:
            assert np.isfinite(value.asnumpy()).all()
    assert scope.report().batches <= 2
    if not training:
        for x, value in zip(samples, values):
            np.testing.assert_allclose(value.asnumpy(), model(x).asnumpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('shape', [(None, UNITS), (None, 2, UNITS), (1, 2, None)])
def test_values_whose_rows_depend_on_each_other(shape):
    """A softmax along any axis of other values than (1, L, C) and (L, 1, C)."""
    axis = shape.index(None)
    block = nn.HybridLambda(lambda F, x: F.tanh(F.softmax(x, axis=axis)) * x)
    draw = np.random.RandomState(0)
    samples = [
        mx.nd.array(draw.normal(size=[length if each is None else each for each in shape]))
        for length in ONE
    ]
    for x in samples:
        x.attach_grad()
    assert_matches_eager(block, samples, schedulers=['fsm'])
    assert list(batches(block, samples).values()) == [1]


def test_lengths_are_told_apart_when_calls_are_reused():
    """Results (1, 6) and (1, 6) of lengths 2 and 3, and 3 and 2."""
    block = nn.HybridLambda(lambda F, x, y: F.tanh(F.batch_dot(x, y, transpose_b=True)))
    lengths = [(2, 3), (3, 2), (6, 1), (1, 6), (2, 3)]
    samples = [
        (sentences([one], i)[0], sentences([other], 9 + i)[0])
        for i, (one, other) in enumerate(lengths)
    ]
    reuse = edb.Reuse(check_every=2)
    for _ in range(4):
        with edb.batching():
            values = [reuse(i, block, *pair) for i, pair in enumerate(samples)]
        for pair, value in zip(samples, values):
            assert value.shape == block(*pair).shape
            np.testing.assert_allclose(
                value.asnumpy(), block(*pair).asnumpy(), rtol=1e-4, atol=1e-5
            )


def test_sentences_are_joined_outside_of_their_scope():
    dense = nn.Dense(2, flatten=False, in_units=UNITS)
    dense.initialize()
    samples = sentences((3, 2, 2, 3))
    for _ in range(2):
        with edb.batching():
            values = [dense(x) for x in samples]
        one, other = values[1:3]
        for found, expected in (
            (edb.concat([one, other], dim=0), np.concatenate([one.asnumpy(), other.asnumpy()])),
            (edb.concat([one], dim=0), one.asnumpy()),
            (edb.stack([one, other], axis=0), np.stack([one.asnumpy(), other.asnumpy()])),
        ):
            np.testing.assert_array_equal(found.asnumpy(), expected)


def test_noise_of_weights_is_drawn_once():
    """Weights of attention that are returned and read have one mask of dropout."""
    dense = nn.Dense(UNITS, flatten=False, in_units=UNITS)
    dense.initialize()
    samples, nd = sentences(ONE), mx.nd
    for _ in range(2):
        with autograd.record(), edb.batching():
            kept = []
            for x in map(dense, samples):
                weights = nd.softmax(nd.batch_dot(x, x, transpose_b=True))
                weights = nd.Dropout(weights, p=0.5)
                kept.append((x, weights, nd.batch_dot(weights, x)))
        for x, weights, context in kept:
            expected = np.matmul(weights.asnumpy(), x.asnumpy())
            np.testing.assert_allclose(context.asnumpy(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('native', [True, False])
def test_self_attention_of_ragged_values_by_operators(native):
    dense, nd = nn.Dense(UNITS, in_units=UNITS), edb.nd
    dense.initialize()
    draw = np.random.RandomState(0)
    samples = [[mx.nd.array(draw.normal(size=(1, UNITS))) for _ in range(n)] for n in ONE]

    def model(words):
        ragged = edb.ragged(list(map(dense, words)))
        weights = nd.softmax(nd.batch_dot(ragged, ragged, transpose_b=True))
        return nd.batch_dot(weights, ragged).sum(axis=1)

    assert_matches_eager(model, samples, blocks=[dense], schedulers=['fsm'], atol=1e-5)
    assert sum(batches(model, samples, native=native).values()) <= 4


class Encoder(gluon.HybridBlock):
    """An LSTM of each of two sentences, and attention between them."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.lstm = gluon.rnn.LSTM(UNITS, layout='NTC', input_size=UNITS)

    def hybrid_forward(self, F, x, y):
        return both_ways(F, self.lstm(x), self.lstm(y))


def test_recurrent_layers_of_two_sentences():
    net = Encoder()
    net.initialize(mx.init.Normal(0.5))
    assert_matches_eager(
        lambda pair: net(*pair), pairs(), blocks=[net], schedulers=['fsm'], atol=1e-5
    )


@pytest.mark.parametrize('dtype', ['float64', 'float16', 'int32', 'int64', 'uint8'])
def test_joined_sentences_of_other_dtypes(dtype):
    """Positions may be larger than the numbers of a dtype."""
    join = nn.HybridLambda(lambda F, x, y: F.tile(F.concat(x, y, dim=1), reps=(1, 2, 1)))
    samples = [[(x * 9).astype(dtype) for x in pair] for pair in pairs()]
    samples += [[mx.nd.ones((1, n, UNITS), dtype=dtype) * k for k, n in enumerate((300, 2), 1)]]
    for _ in range(2):
        with edb.batching() as scope:
            values = [join(x, y) for x, y in samples]
        for (x, y), found in zip(samples, values):
            np.testing.assert_array_equal(found.asnumpy(), join(x, y).asnumpy())
    assert scope.report().batches <= 3  # much longer ones pad no others


def test_values_of_one_shape_with_other_axes_of_lengths_are_told_apart():
    """(1, 4, 4, 4) of 16 rows may have its lengths along axes 1 and 2, or 2 and 3."""
    spec = spec_of((16, 4), np.float32, mx.cpu())
    with edb.batching() as scope:
        stores = [
            scope._recording.store(spec, ShownAs((1, 4, 4, 4), SEVERAL, axes))
            for axes in ((1, 2), (2, 3))
        ]
        assert stores[0].token is not stores[1].token
        assert stores[0].spec is stores[1].spec
