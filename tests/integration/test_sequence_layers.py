"""Library layers and loops along whole sentences of different lengths."""

import functools

import mxnet as mx
import numpy as np
import pytest
from mxnet import gluon
from mxnet.gluon import nn, rnn

import gluon_edbatch as edb
from gluon_edbatch.testing import assert_matches_eager
from tests.support.tiers import sampled

WIDTH = 5
LENGTHS = (5, 6, 9, 5, 11, 12)


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


def among_others(layer):
    """A block of which a layer is a part: alone, a convolution costs less by length."""
    net = nn.HybridSequential()
    net.add(layer, nn.HybridLambda(lambda F, x: F.tanh(F.sigmoid(x * 2 + 1) * 3)))
    return started(net)


def batches(model, samples, name=None):
    """Batches of a block in the second scope: the first learns that lengths differ."""
    name = name or type(model).__name__
    for _ in range(2):
        with edb.batching() as scope:
            values = [model(x) for x in samples]
        edb.forward([each[0] if isinstance(each, (list, tuple)) else each for each in values])
    return sum(entry.batches for entry in scope.report().types if name in entry.name)


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
    assert batches(net, samples) == 1
    with edb.compile_options(native=False):
        assert batches(net, samples) == 1


class SentenceEncoder(gluon.HybridBlock):
    """A recurrent layer, what is left of a sentence, and a layer after that."""

    def __init__(self, layout, end):
        super().__init__()
        self.axis, self.end = int(layout == 'NTC'), end
        with self.name_scope():
            self.words = rnn.GRU(4, layout=layout, bidirectional=True, input_size=WIDTH)
            self.out = nn.Dense(3, flatten=False, in_units=8)

    def hybrid_forward(self, F, x):
        return self.out(self.end(F, self.words(x), self.axis))


# SequenceLast without lengths writes outside of an array in eager MXNet's backward pass.
LEFT = {
    'all': lambda F, h, axis: F.sigmoid(h),
    'first': lambda F, h, axis: F.slice_axis(h, axis=axis, begin=0, end=1),
    'last': lambda F, h, axis: F.slice_axis(h, axis=axis, begin=-1, end=None),
    'last of steps': lambda F, h, axis: F.slice_axis(
        F.swapaxes(h, 0, 1) if axis else h, axis=0, begin=-1, end=None
    ).reshape((-3, -2)),
    'largest': lambda F, h, axis: F.max(h, axis=axis),
    'least': lambda F, h, axis: F.min(h * 2, axis=axis),
    'mean': lambda F, h, axis: F.mean(F.tanh(h), axis=axis),
    'sum': lambda F, h, axis: F.sum(h, axis=axis),
}


@pytest.mark.parametrize('left', LEFT)
@pytest.mark.parametrize('layout', ['NTC', 'TNC'])
def test_what_is_left_of_sentences_is_in_their_batch(layout, left):
    net = started(SentenceEncoder(layout, LEFT[left]))
    samples = sentences((1, None, WIDTH) if layout == 'NTC' else (None, 1, WIDTH), (5, 1, 9, 2))
    assert_matches_eager(net, samples, schedulers=['fsm'])
    assert batches(net, samples) == 1


@pytest.mark.parametrize('function', ['', 'tanh'])
def test_several_rows_for_a_sentence(function):
    """The last word's columns as rows, and maybe an operator on these."""

    def columns(F, h):
        last = F.slice_axis(h, axis=1, begin=-1, end=None)
        rows = F.reshape(last, shape=(-1, 1))
        return getattr(F, function)(rows) if function else rows

    net = nn.HybridSequential()
    net.add(rnn.GRU(4, layout='NTC', input_size=WIDTH), nn.HybridLambda(columns))
    assert_matches_eager(started(net), sentences((1, None, WIDTH)), schedulers=['fsm'])


@pytest.mark.parametrize('axis', [0, 1])
def test_sequence_last_takes_the_last_word(axis):
    take = {'last': lambda F, h, axis: F.SequenceLast(h, axis=axis)}
    net = started(SentenceEncoder('TNC' if axis == 0 else 'NTC', take['last']))
    samples = sentences((None, 1, WIDTH) if axis == 0 else (1, None, WIDTH), (5, 1, 9, 2))
    values = []
    for native in (True, False):
        with edb.compile_options(native=native):
            assert batches(net, samples) == 1
            values.append([value.asnumpy() for value in net_values(net, samples)])
    net.end = LEFT['last']
    wanted = [net(x).asnumpy().reshape(1, 3) for x in samples]
    for found in values:
        np.testing.assert_allclose(np.concatenate(found), np.concatenate(wanted), rtol=1e-5)


def net_values(net, samples):
    """Results of a block in a scope."""
    with edb.batching():
        return [net(x) for x in samples]


@pytest.mark.parametrize('dtype', ['float32', 'float64'])
@pytest.mark.parametrize('layout', ['NTC', 'TNC'])
def test_weights_that_are_not_trained_get_no_gradient(layout, dtype):
    net = started(rnn.LSTM(4, layout=layout, input_size=WIDTH))
    net.cast(dtype)
    net.collect_params('.*h2h_weight').setattr('grad_req', 'null')
    net.collect_params('.*i2h_bias').setattr('grad_req', 'add')
    shape = (1, None, WIDTH) if layout == 'NTC' else (None, 1, WIDTH)
    samples = [x.astype(dtype) for x in sentences(shape)]
    assert_matches_eager(net, samples, schedulers=['fsm'])
    assert batches(net, samples) == 1


def test_a_sentence_of_one_word_has_both_layouts():
    for layout in ('TNC', 'NTC'):
        net = started(rnn.RNN(4, layout=layout, input_size=WIDTH))
        many = [mx.nd.array(np.random.RandomState(1).normal(size=(3, 1, WIDTH)))]
        samples = sentences((1, 1, WIDTH), (1, 1)) + many + [many[0].reshape((1, 3, WIDTH))]
        assert_matches_eager(net, [*samples, *samples], schedulers=['fsm'])


def test_layers_that_go_both_ways_and_drop_values_are_one_batch():
    net = started(
        rnn.LSTM(4, 2, 'NTC', dropout=0.5, bidirectional=True, input_size=WIDTH, prefix='lstm_')
    )
    samples = sentences((1, None, WIDTH))
    eager = [net(x).asnumpy() for x in samples]
    with edb.batching():
        values = [net(x) for x in samples]
    for one, other in zip(values, eager):
        np.testing.assert_allclose(one.asnumpy(), other, rtol=1e-4, atol=1e-5)
    assert batches(net, samples) == 1


@pytest.mark.parametrize(
    'kind, layers, both, layout',
    sampled(6, RECURRENT, [1, 2], [False, True], ['NTC', 'TNC']),
)
def test_states_that_are_asked_for_are_those_of_the_last_word(kind, layers, both, layout):
    net = started(
        RECURRENT[kind](4, num_layers=layers, layout=layout, bidirectional=both, input_size=WIDTH)
    )

    def model(x):
        outputs, states = net(x, net.begin_state(1))
        return [outputs, *states]

    samples = sentences((1, None, WIDTH) if layout == 'NTC' else (None, 1, WIDTH))
    assert_matches_eager(model, samples, blocks=[net], schedulers=['fsm'])
    assert batches(model, samples, name=type(net).__name__) == 1


def test_states_that_are_given_are_read():
    net = started(rnn.LSTM(4, layout='NTC', input_size=WIDTH))
    other = [mx.nd.ones((1, 1, 4)) / 3 for _ in range(2)]

    def model(x):
        ones = [mx.nd.ones((1, 1, 4)), mx.nd.zeros((1, 1, 4))]
        return [net(x, ones)[0], net(x, other)[0], net(x, net(x, other)[1])[0]]

    assert_matches_eager(model, sentences((1, None, WIDTH)), blocks=[net], schedulers=['fsm'])


@pytest.mark.parametrize(
    'kind, layers, both, layout',
    sampled(6, RECURRENT, [1, 2], [False, True], ['NTC', 'TNC']),
)
def test_states_that_are_given_are_data_of_the_batch(kind, layers, both, layout):
    axis = layout.index('T')
    net = started(
        RECURRENT[kind](4, num_layers=layers, layout=layout, bidirectional=both, input_size=WIDTH)
    )
    shapes = [info['shape'] for info in net.state_info(1)]
    states = [sentences((None, *shape[1:]), [shape[0]] * len(LENGTHS)) for shape in shapes]
    samples = list(zip(sentences((1, None, WIDTH) if axis else (None, 1, WIDTH)), *states))

    def model(sample):
        outputs, ends = net(sample[0], [mx.nd.tanh(state) for state in sample[1:]])
        return [outputs.sum(axis=axis), *ends]

    assert_matches_eager(model, samples, blocks=[net])
    assert batches(model, samples, type(net).__name__) == 1


@pytest.mark.parametrize('kind', [rnn.GRU, rnn.LSTM])
def test_a_decoder_begins_with_the_states_of_an_encoder(kind):
    encode, decode = (started(kind(WIDTH, layout='NTC', input_size=WIDTH)) for _ in range(2))
    samples = list(zip(sentences((1, None, WIDTH)), sentences((1, None, WIDTH), LENGTHS[::-1])))

    def model(sample):
        _, states = encode(sample[0], encode.begin_state(1))
        return decode(sample[1], states)[0]

    assert_matches_eager(model, samples, blocks=[encode, decode])
    assert batches(model, samples, encode.name) == batches(model, samples, decode.name) == 1


def test_states_of_another_shape_are_refused_as_eagerly():
    net = started(rnn.GRU(4, layout='NTC', input_size=WIDTH))
    (x,) = sentences((1, None, WIDTH), (3,))
    with pytest.raises(Exception, match='[Ss]hape|state'), edb.batching():
        net(x, net.begin_state(2))[0].asnumpy()


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
    net = among_others(nn.Conv1D(WIDTH, in_channels=WIDTH, **CONVOLUTIONS[kind]))
    samples = sentences((1, WIDTH, None))
    assert_matches_eager(net, samples, schedulers=['fsm'])
    assert batches(net, samples) == 1


@pytest.mark.parametrize('second', CONVOLUTIONS)
def test_a_second_convolution_sees_zeros_behind_the_first(second):
    net = nn.HybridSequential()
    net.add(nn.Conv1D(WIDTH, 3, padding=1, in_channels=WIDTH, activation='sigmoid'))
    net.add(nn.Conv1D(WIDTH, in_channels=WIDTH, **CONVOLUTIONS[second]))
    samples, net = sentences((1, WIDTH, None)), among_others(net)
    assert_matches_eager(net, samples, schedulers=['fsm'])
    assert batches(net, samples) == 1


class TextCNN(gluon.HybridBlock):
    """Two convolutions over (N, L, C), and what becomes of their results."""

    def __init__(self, end, size, dilation, padding=None):
        super().__init__()
        self.end = end
        same = dilation * (size - 1) // 2  # keeps the length
        around = {'padding': same if padding is None else padding, 'dilation': dilation}
        with self.name_scope():
            self.first = nn.Conv1D(4, size, in_channels=WIDTH, activation='tanh', **around)
            self.second = nn.Conv1D(3, size, in_channels=4, use_bias=False, **around)

    def hybrid_forward(self, F, x):
        return self.end(F, self.second(self.first(F.swapaxes(x, 1, 2)) * 2))


ENDS = {
    'rows': lambda F, y: F.swapaxes(y, 1, 2),
    'max': lambda F, y: F.max(y, axis=2),
    'min': lambda F, y: F.min(y, axis=2),
    'mean': lambda F, y: F.mean(F.sigmoid(y), axis=2),
    'sum': lambda F, y: F.sum(y + y.square(), axis=2),
    'pool': lambda F, y: F.flatten(F.Pooling(y, global_pool=True, pool_type='max', kernel=(1,))),
}


@pytest.mark.parametrize('end', ENDS)
@pytest.mark.parametrize('size, dilation', [(1, 1), (3, 1), (5, 2)])
def test_convolutions_that_keep_the_length_are_products_of_rows(end, size, dilation):
    net = started(TextCNN(ENDS[end], size, dilation))
    assert_is_one_native_batch(net, sentences((1, None, WIDTH), (*LENGTHS, 1, 2)))


@pytest.mark.parametrize('end', ['max', 'min', 'sum', 'pool'])
@pytest.mark.parametrize('size, dilation', [(2, 1), (4, 1), (3, 2)])
def test_convolutions_that_give_fewer_values_are_products_of_rows(end, size, dilation):
    net = started(TextCNN(ENDS[end], size, dilation, padding=0))
    assert_is_one_native_batch(net, sentences((1, None, WIDTH), (9, 11, 12, 10, 9)))


@pytest.mark.parametrize('end', ['mean', 'rows'])
def test_other_ends_of_convolutions_that_give_fewer_values(end):
    net = started(TextCNN(ENDS[end], 3, 1, padding=0))
    assert_matches_eager(net, sentences((1, None, WIDTH), (9, 7, 12)), schedulers=['fsm'])


def assert_is_one_native_batch(net, samples):
    assert_matches_eager(net, samples, schedulers=['fsm'])
    for _ in range(2):
        with edb.batching() as scope:
            values = [net(x) for x in samples]
        edb.forward(values)
    (entry,) = [each for each in scope.report().types if each.name.startswith('TextCNN')]
    assert entry.batches == 1 and 'native' in entry.passes


def test_strides_batch_by_length():
    net = among_others(nn.Conv1D(4, 3, strides=2, in_channels=WIDTH))
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
    samples, net = sentences((1, WIDTH, None)), among_others(net)
    assert_matches_eager(net, samples, schedulers=['fsm'])
    assert batches(net, samples) == 1


def test_a_sentence_shorter_than_the_window_is_the_error_of_eager_gluon():
    net = among_others(nn.Conv1D(4, 6, in_channels=WIDTH))
    samples = sentences((1, WIDTH, None), (6, 9, 5))
    with edb.batching():
        [net(x) for x in samples[:2]]
        with pytest.raises(edb.RecordError, match='kernel size'):
            net(samples[2])


@pytest.mark.parametrize('end', ['rows', 'max'])
def test_a_sentence_shorter_than_the_window_is_no_number(end):
    """Where the end has no length, padding must not hide that the window does not fit."""
    net = started(TextCNN(ENDS[end], 3, 1))
    net.second = nn.Conv1D(3, 6, in_channels=4)
    net.second.initialize()
    for lengths in ((6, 9, 5), (6, 9, 7), (6, 9, 5)):
        with edb.batching():
            if 5 not in lengths:
                values = [net(x) for x in sentences((1, None, WIDTH), lengths)]
                continue
            [net(x) for x in sentences((1, None, WIDTH), lengths[:2])]
            with pytest.raises(edb.RecordError, match='ksize'):
                net(sentences((1, None, WIDTH), lengths[2:])[0])
    assert len(edb.forward(values)) == 3


def test_images_of_different_heights_batch():
    net = among_others(nn.Conv2D(3, (3, 2), padding=(1, 0), in_channels=2))
    samples = sentences((1, 2, None, 4))
    assert_matches_eager(net, samples, schedulers=['fsm'])
    assert batches(net, samples) == 1


class Steps(gluon.HybridBlock):
    """A loop of MXNet over the words of a sentence (1, length, WIDTH)."""

    def __init__(self, step, cell=None):
        super().__init__()
        self.step, self.cell = step, cell

    def hybrid_forward(self, F, x, state):
        return self.step(F, self.cell, F.swapaxes(x, 0, 1), state)


def last_state(F, cell, words, state):
    return F.contrib.foreach(cell, words, [state])[1][0]


def outputs_and_state(F, cell, words, state):
    outputs, states = F.contrib.foreach(cell, words, [state])
    return F.swapaxes(outputs, 0, 1), states[0]


def two_states(F, cell, words, state):
    outputs, (h, c) = F.contrib.foreach(cell, words, [state, state * 2])
    return F.concat(F.sum(outputs, axis=0), h, c, dim=1)


def two_sequences(F, cell, words, state):
    def step(inputs, states):
        word, other = inputs
        made = F.tanh(word * other + states[0])
        return made + other, [made]

    outputs, states = F.contrib.foreach(step, [words, F.sigmoid(words)], [state])
    return F.max(outputs, axis=0) + states[0]


def dense_steps(F, cell, words, state):
    def step(word, states):
        return cell(word + states[0]), [states[0] + word]

    return F.contrib.foreach(step, words, [state])[1][0]


LOOPS = {
    'last state': (last_state, lambda: rnn.GRUCell(WIDTH, input_size=WIDTH)),
    'outputs': (outputs_and_state, lambda: rnn.RNNCell(WIDTH, input_size=WIDTH)),
    'two states': (two_states, lambda: rnn.LSTMCell(WIDTH, input_size=WIDTH)),
    'two sequences': (two_sequences, lambda: None),
    'a layer': (dense_steps, lambda: nn.Dense(WIDTH, in_units=WIDTH)),
}


@pytest.mark.parametrize('name', LOOPS)
def test_loops_of_mxnet_batch_over_lengths(name):
    step, make = LOOPS[name]
    net = started(Steps(step, make()))
    samples = list(zip(sentences((1, None, WIDTH)), sentences((1, WIDTH), [1] * len(LENGTHS))))

    def model(sample):
        return net(*sample)

    assert_matches_eager(model, samples, blocks=[net], schedulers=['fsm'])
    assert batches(model, samples, 'Steps') == 1


def test_what_reads_loops_is_packed_too():
    net = started(Steps(outputs_and_state, rnn.RNNCell(WIDTH, input_size=WIDTH)))
    many = [9, 10, 11, 12, 13, 14, 15, 16, 5]
    samples = list(zip(sentences((1, None, WIDTH), many), sentences((1, WIDTH), [1] * len(many))))

    def model(sample):
        outputs, state = net(*sample)
        return outputs.mean(axis=1) + state

    assert_matches_eager(model, samples, blocks=[net], schedulers=['fsm'])
    assert batches(model, samples, 'Steps') == 1
    assert batches(model, samples, 'mean') == 1


def test_a_loop_is_differentiated_once_for_each_result():
    net = started(Steps(outputs_and_state, rnn.RNNCell(WIDTH, input_size=WIDTH)))
    words, state = sentences((1, None, WIDTH)), mx.nd.ones((1, WIDTH))
    eager, batched = [], []
    for place in (0, 1):
        with mx.autograd.record():
            loss = sum((net(x, state)[place] ** 2).sum() for x in words)
        loss.backward()
        eager += [x.grad.asnumpy() for x in words]
    with mx.autograd.record():
        with edb.batching():
            results = [net(x, state) for x in words]
        losses = [sum((each[place] ** 2).sum() for each in results) for place in (0, 1)]
    for loss in losses:
        loss.backward(retain_graph=True)
        batched += [x.grad.asnumpy() for x in words]
    for one, other in zip(eager, batched):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)


def unsafe_far_from_words(F, cell, words, state):
    return F.contrib.foreach(lambda word, s: (word, [F.log(word * word + s[0])]), words, [state])[0]


def over_the_rows(F, cell, words, state):
    def step(word, states):
        return word, [states[0] + F.sum(word, axis=0, keepdims=True)]

    return F.contrib.foreach(step, words, [state])[1][0]


@pytest.mark.parametrize('step', [unsafe_far_from_words, over_the_rows])
def test_loops_that_padding_or_other_rows_might_change_run_one_by_one(step):
    net = started(Steps(step))
    samples = list(zip(sentences((1, None, WIDTH)), sentences((1, WIDTH), [1] * len(LENGTHS))))
    for sample in samples:
        sample[1][:] = sample[1] ** 2 + 9
    values = [net(*sample) for sample in samples]
    with edb.batching() as scope:
        batched = [net(*sample) for sample in samples]
    for one, other in zip(values, batched):
        np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-5)
    assert scope.report().batches == len(LENGTHS)


def noise_of_a_step(F, cell, words, state):
    def step(word, states):
        return word, [F.broadcast_add(states[0] + word, F.random.normal(shape=(1, WIDTH)))]

    return F.contrib.foreach(step, words, [state])[1][0]


def test_noise_that_depends_on_no_row_is_not_shared_by_samples():
    net = started(Steps(noise_of_a_step))
    words, state = sentences((1, None, WIDTH), [5])[0], mx.nd.zeros((1, WIDTH))
    samples = [(words.copy(), state) for _ in range(4)]
    with edb.batching():
        values = [net(*sample) for sample in samples]
    drawn = np.stack([value.asnumpy() for value in values])
    assert len(np.unique(drawn[:, 0, 0])) == len(samples)


def windows_in_steps(F, cell, words, state):
    def step(word, states):
        made = F.squeeze(cell(F.expand_dims(word, axis=1)), axis=1)
        return made, [states[0] + made]

    return F.contrib.foreach(step, words, [state])[1][0]


def sums_of_numbers(F, cell, words, state):
    numbers = F.reshape(F.slice_axis(words, axis=2, begin=0, end=1), shape=(-1,))
    return F.contrib.foreach(lambda x, s: (x, [s[0] + x]), numbers, [F.sum(state, axis=1)])[1][0]


def several_rows(F, cell, words, state):
    def step(word, states):
        return word, [F.broadcast_add(states[0], F.sum(word, axis=0, keepdims=True))]

    twice = F.concat(state, state * 2, dim=0)
    return F.contrib.foreach(step, words, [twice])[1][0]


def test_loops_whose_arguments_have_several_numbers_of_rows_equal_eager():
    net = started(Steps(several_rows))
    samples = list(zip(sentences((1, None, WIDTH)), sentences((1, WIDTH), [1] * len(LENGTHS))))
    assert_matches_eager(lambda x: net(*x), samples, blocks=[net], schedulers=['fsm'])


@pytest.mark.parametrize('step', [windows_in_steps, sums_of_numbers])
def test_loops_of_other_shapes_equal_eager(step):
    """In inference: MXNet itself has no gradient of such a loop in a compiled graph."""
    net = started(Steps(step, nn.Conv1D(1, 3, padding=1, in_channels=1)))
    words, state = sentences((1, None, WIDTH)), mx.nd.ones((1, WIDTH))
    with edb.batching():
        values = [net(x, state) for x in words]
    for value, x in zip(values, words):
        np.testing.assert_allclose(value.asnumpy(), net(x, state).asnumpy(), rtol=1e-5, atol=1e-6)


class Random(gluon.HybridBlock):
    """A random stack of layers and operators on (1, length, WIDTH)."""

    def __init__(self, draw):
        super().__init__()
        self.steps, self.layers = [], []
        for _ in range(draw.randint(2, 5)):
            kind = draw.choice(['conv', 'pool', 'recurrent', 'dense', 'function', 'along', 'sum'])
            layer = self._layer(kind, draw)
            if layer is not None:
                self.register_child(layer)
            self.steps.append((kind, draw.randint(4)))
            self.layers.append(layer)
        self.end = draw.randint(4)

    @staticmethod
    def _layer(kind, draw):
        if kind == 'conv':
            window, gap = draw.randint(1, 4), draw.randint(1, 3)
            return nn.Conv1D(
                WIDTH,
                int(window),
                padding=int(draw.randint(0, 3)),
                dilation=int(gap),
                use_bias=bool(draw.randint(2)),
                in_channels=WIDTH,
            )
        if kind == 'pool':
            window = int(draw.randint(1, 4))
            return nn.MaxPool1D(window, strides=1, padding=int(draw.randint(0, window // 2 + 1)))
        if kind == 'recurrent':
            both = bool(draw.randint(2))
            layer = RECURRENT[draw.choice(list(RECURRENT))]
            return layer(
                WIDTH,
                num_layers=int(draw.randint(1, 3)),
                layout='NTC',
                bidirectional=both,
                input_size=WIDTH,
            )
        return nn.Dense(WIDTH, flatten=False, in_units=WIDTH) if kind == 'dense' else None

    def hybrid_forward(self, F, x):
        for (kind, which), layer in zip(self.steps, self.layers):
            if kind in ('conv', 'pool'):
                x = F.swapaxes(layer(F.swapaxes(x, 1, 2)), 1, 2)
            elif kind == 'recurrent':
                made = layer(x)
                x = made + x if layer._dir == 1 else F.slice_axis(made, axis=2, begin=2, end=7)
            elif kind == 'dense':
                x = layer(x)
            elif kind == 'function':
                x = (F.tanh, F.relu, F.exp, F.square)[which](F.sigmoid(x))
            elif kind == 'along':
                one = (F.softmax, F.log_softmax, F.cumsum, F.softmax)[which]
                x = one(x, axis=1)
            else:
                total = (F.sum, F.mean, F.max, F.min)[which](x, axis=1, keepdims=True)
                x = F.broadcast_mul(F.tanh(total), x)
        return x if self.end == 3 else (F.sum, F.mean, F.max)[self.end](x, axis=1)


def fits(net, lengths):
    """Whether eager Gluon runs the shortest sentence: windows may be longer than it."""
    try:
        net(mx.nd.ones((1, min(lengths), WIDTH))).wait_to_read()
    except (mx.MXNetError, ValueError):
        return False
    return True


@pytest.mark.parametrize('seed', sampled(4, range(60)))
def test_random_stacks_of_layers_over_lengths(seed):
    draw = np.random.RandomState(seed)
    net = started(Random(draw))
    lengths = draw.choice(range(2, 14), 6, replace=False).tolist()
    while not fits(net, lengths):
        lengths = [length + 1 for length in lengths]
    assert_matches_eager(net, sentences((1, None, WIDTH), lengths), schedulers=['fsm'], atol=1e-5)
