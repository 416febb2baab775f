"""Library layers along whole sentences of different lengths: recurrent, convolution, pooling."""

import functools

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon import nn, rnn

import gluon_edbatch as edb
from gluon_edbatch.testing import assert_matches_eager
from tests.support.tiers import sampled

WIDTH = 5
LENGTHS = (5, 6, 9, 5, 11, 12)
PADDED = {6, 12}  # what these are padded to


def sentences(shape, lengths=LENGTHS):
    """Arrays with gradients, whose axis of None has each length."""
    draw = np.random.RandomState(0)
    arrays = []
    for length in lengths:
        own = [length if size is None else size for size in shape]
        arrays.append(mx.nd.array(draw.normal(size=own)))
        arrays[-1].attach_grad()
    return arrays


def started(net):
    net.initialize(mx.init.Normal(0.3))
    return net


def batches(net, samples):
    """Batches in the second scope: the first learns that lengths differ."""
    for _ in range(2):
        with edb.batching() as scope:
            values = [net(x) for x in samples]
        edb.forward(values)
    entries = [entry for entry in scope.report().types if type(net).__name__ in entry.name]
    return sum(entry.batches for entry in entries)


RECURRENT = {
    'lstm': rnn.LSTM,
    'gru': rnn.GRU,
    'tanh': functools.partial(rnn.RNN, activation='tanh'),
    'relu': rnn.RNN,
}


@pytest.mark.parametrize(
    'kind, layers, both, layout',
    sampled(8, RECURRENT, [1, 2], [False, True], ['NTC', 'TNC']),
)
def test_recurrent_layers_batch_over_lengths(kind, layers, both, layout):
    net = started(
        RECURRENT[kind](4, num_layers=layers, layout=layout, bidirectional=both, input_size=WIDTH)
    )
    samples = sentences((1, None, WIDTH) if layout == 'NTC' else (None, 1, WIDTH))
    assert_matches_eager(net, samples, schedulers=['fsm'])
    assert batches(net, samples) == len(PADDED)


def test_layers_that_go_both_ways_and_drop_values_batch_by_length():
    net = started(
        rnn.LSTM(4, 2, 'NTC', dropout=0.5, bidirectional=True, input_size=WIDTH, prefix='lstm_')
    )
    samples = sentences((1, None, WIDTH))
    eager = [net(x).asnumpy() for x in samples]
    with edb.batching():
        values = [net(x) for x in samples]
    for one, other in zip(values, eager):
        np.testing.assert_allclose(one.asnumpy(), other, rtol=1e-4, atol=1e-5)
    assert batches(net, samples) == len(set(LENGTHS))


@pytest.mark.parametrize('both', [False, True])
def test_states_that_are_asked_for_are_those_of_the_last_word(both):
    net = started(rnn.LSTM(4, 1, 'NTC', bidirectional=both, input_size=WIDTH))

    def model(x):
        outputs, (hidden, cell) = net(x, net.begin_state(1))
        return [outputs, hidden, cell]

    assert_matches_eager(model, sentences((1, None, WIDTH)), blocks=[net], schedulers=['fsm'])


CONVOLUTIONS = {
    'same': dict(kernel_size=3, padding=1),
    'valid': dict(kernel_size=3),
    'longer': dict(kernel_size=2, padding=2),
    'dilated': dict(kernel_size=3, padding=2, dilation=2, use_bias=False),
    'grouped': dict(kernel_size=3, padding=1, groups=5),
    'of one word': dict(kernel_size=1, activation='tanh'),
}


@pytest.mark.parametrize('kind', CONVOLUTIONS)
def test_convolutions_batch_over_lengths(kind):
    net = started(nn.Conv1D(WIDTH, in_channels=WIDTH, **CONVOLUTIONS[kind]))
    samples = sentences((1, WIDTH, None))
    assert_matches_eager(net, samples, schedulers=['fsm'])
    assert batches(net, samples) == len(PADDED)


@pytest.mark.parametrize('second', CONVOLUTIONS)
def test_a_second_convolution_sees_zeros_behind_the_first(second):
    net = nn.HybridSequential()
    net.add(nn.Conv1D(WIDTH, 3, padding=1, in_channels=WIDTH, activation='sigmoid'))
    net.add(nn.Conv1D(WIDTH, in_channels=WIDTH, **CONVOLUTIONS[second]))
    samples = sentences((1, WIDTH, None))
    assert_matches_eager(started(net), samples, schedulers=['fsm'])
    assert batches(net, samples) == len(PADDED)


def test_strides_batch_by_length():
    net = started(nn.Conv1D(4, 3, strides=2, in_channels=WIDTH))
    samples = sentences((1, WIDTH, None))
    assert_matches_eager(net, samples, schedulers=['fsm'])
    assert batches(net, samples) == len(set(LENGTHS))


POOLS = {
    'largest': nn.GlobalMaxPool1D,
    'windows': lambda: nn.MaxPool1D(3, strides=1),
    'padded windows': lambda: nn.MaxPool1D(3, strides=1, padding=1),
}


@pytest.mark.parametrize('pool', POOLS)
@pytest.mark.parametrize('padding', [0, 1])
def test_a_convolution_and_a_pool_are_one_call(pool, padding):
    net = nn.HybridSequential()
    net.add(nn.Conv1D(4, 3, padding=padding, in_channels=WIDTH), POOLS[pool]())
    samples = sentences((1, WIDTH, None))
    assert_matches_eager(started(net), samples, schedulers=['fsm'])
    assert batches(net, samples) == len(PADDED)


def test_a_sentence_shorter_than_the_window_is_the_error_of_eager_gluon():
    net = started(nn.Conv1D(4, 6, in_channels=WIDTH))
    samples = sentences((1, WIDTH, None), (6, 9, 5))
    with edb.batching():
        [net(x) for x in samples[:2]]
        with pytest.raises(edb.RecordError, match='Conv1D'):
            net(samples[2])


def test_images_of_different_heights_batch():
    net = started(nn.Conv2D(3, (3, 2), padding=(1, 0), in_channels=2))
    samples = sentences((1, 2, None, 4))
    assert_matches_eager(net, samples, schedulers=['fsm'])
    assert batches(net, samples) == len(PADDED)
