"""Dropout in native batches: what is dropped, that gradients fit it, and that a seed repeats it."""

import mxnet as mx
import numpy as np
import pytest
from gluonnlp.model.transformer import TransformerEncoder
from mxnet import autograd, gluon
from mxnet.gluon import nn, rnn

import gluon_edbatch as edb

WIDTH, LENGTHS = 4, (5, 3, 6, 1, 3)


def sentences(dtype='float32'):
    draw = np.random.RandomState(0)
    return [mx.nd.array(draw.normal(size=(1, n, WIDTH)), dtype=dtype) for n in LENGTHS]


def trained(net):
    return [each for each in net.collect_params().values() if each.grad_req != 'null']


def run(net, samples, seed=3):
    """Outputs, gradients of parameters, and the report, of one step."""
    mx.random.seed(seed)
    with autograd.record():
        with edb.batching() as scope:
            outputs = [net(x) for x in samples]
        loss = sum([(value * value).sum() for value in outputs])
    loss.backward()
    gradients = [each.grad().asnumpy() for each in trained(net)]
    return [value.asnumpy() for value in outputs], gradients, scope.report()


@pytest.mark.parametrize('dropped', [0.1, 0.5, 0.9])
def test_elements_are_dropped_or_enlarged_and_so_are_gradients(dropped):
    net = nn.Dropout(dropped)
    samples = [mx.nd.ones((1, 1000)) * (1 + place) for place in range(8)]
    for x in samples:
        x.attach_grad()
    with autograd.record():
        with edb.batching() as scope:
            outputs = [net(x) for x in samples]
        loss = sum([value.sum() for value in outputs])
    loss.backward()
    assert scope.report().batches == 1
    masks = np.concatenate([x.grad.asnumpy() for x in samples])
    for x, value in zip(samples, outputs):
        np.testing.assert_allclose(value.asnumpy(), (x * x.grad).asnumpy(), rtol=1e-6)
    assert set(np.unique(masks * (1 - dropped)).round(5)) == {0, 1}
    spread = 4 * np.sqrt(dropped * (1 - dropped) / masks.size)
    assert abs((masks == 0).mean() - dropped) < spread
    shares = [np.corrcoef(masks[0] != 0, row != 0)[0, 1] for row in masks[1:]]
    assert max(map(abs, shares)) < 0.15  # no row draws the noise of another


class Sentence(gluon.HybridBlock):
    """Sum what a layer returns for the words of a sentence."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def hybrid_forward(self, F, x):
        return F.sum(F.tanh(self.layer(x)), axis=1)


class First(gluon.HybridBlock):
    """Return the outputs of an encoder without its weights of attention."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def hybrid_forward(self, F, x):
        return self.encoder(x)[0]


def encoder():
    own = dict(units=WIDTH, hidden_size=8, num_layers=2, num_heads=2, dropout=0.3)
    return First(TransformerEncoder(**own))


def stacked(layer, **own):
    return layer(WIDTH, 2, 'NTC', dropout=0.4, input_size=WIDTH, **own)


class Twice(gluon.HybridBlock):
    """Attention whose weights pass a second dropout, which drops nothing."""

    def hybrid_forward(self, F, x):
        weights = F.softmax(F.batch_dot(x, x, transpose_b=True))
        return F.batch_dot(F.Dropout(F.Dropout(weights, p=0.5), p=0), x)


LAYERS = {
    'attention': encoder,
    'lstm': lambda: stacked(rnn.LSTM),
    'gru, both ways': lambda: stacked(rnn.GRU, bidirectional=True),
}


def started(make, dtype='float32'):
    net = Sentence(LAYERS[make]())
    net.initialize(mx.init.Normal(0.5))
    net.hybridize()
    net.cast(dtype)
    with edb.batching():  # parameters get their shapes, and lengths are seen to differ
        [net(x) for x in sentences(dtype)]
    run(net, sentences(dtype))
    return net


@pytest.mark.parametrize('name', LAYERS)
def test_sentences_are_one_batch_whose_noise_a_seed_repeats(name):
    net = started(name)
    first, again, other = (run(net, sentences(), seed) for seed in (5, 5, 6))
    assert sum(each.batches for each in first[2].types if 'Sentence' in each.name) == 1
    for one, two in zip(first[0] + first[1], again[0] + again[1]):
        np.testing.assert_array_equal(one, two)
    assert all(abs(one - two).max() > 1e-6 for one, two in zip(first[0], other[0]))


def test_a_dropout_of_nothing_leaves_the_noise_before_it():
    net, samples = Sentence(Twice()), sentences()
    for x in samples:
        x.attach_grad()
    run(net, samples)
    first, again, other = (run(net, samples, seed) for seed in (5, 5, 6))
    assert first[2].batches == 1
    for one, same in zip(first[0], again[0]):
        np.testing.assert_array_equal(one, same)
    assert any(abs(one - two).max() > 1e-3 for one, two in zip(first[0], other[0]))


@pytest.mark.parametrize('name', LAYERS)
def test_gradients_are_those_of_what_was_computed(name):
    """By differences in float64, with one seed for all runs."""
    net, samples = started(name, 'float64'), sentences('float64')
    _, gradients, _ = run(net, samples)
    draw, step = np.random.RandomState(1), 1e-5
    for parameter, gradient in zip(trained(net), gradients):
        way, values = draw.normal(size=parameter.shape), parameter.data().asnumpy()
        sums = []
        for sign in (1, -1):
            parameter.set_data(mx.nd.array(values + sign * step * way, dtype='float64'))
            sums.append(sum([(value**2).sum() for value in run(net, samples)[0]]))
        parameter.set_data(mx.nd.array(values, dtype='float64'))
        found, expected = (gradient * way).sum(), (sums[0] - sums[1]) / (2 * step)
        assert abs(found - expected) < 1e-5 * max(1, abs(expected)), parameter.name


def test_threads_and_blocks_draw_the_same():
    net = nn.HybridSequential()
    net.add(nn.Dense(64, in_units=64), nn.Dropout(0.5), nn.Dense(64, in_units=64))
    net.initialize(mx.init.Normal(0.1))
    samples = [mx.nd.random.normal(shape=(1, 64)) for _ in range(600)]
    before = edb.get_num_threads()
    try:
        found = []
        for threads in (1, 2):
            edb.set_num_threads(threads)
            found.append(run(net, samples)[0])
    finally:
        edb.set_num_threads(before)
    np.testing.assert_allclose(*map(np.concatenate, found), rtol=1e-5, atol=1e-6)


def test_nothing_is_dropped_in_predict_mode():
    net = started('attention')
    with edb.batching():
        values = [net(x) for x in sentences()]
    for value, x in zip(values, sentences()):
        np.testing.assert_allclose(value.asnumpy(), net(x).asnumpy(), rtol=1e-4, atol=1e-5)
