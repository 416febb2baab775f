"""Runs in float64 of models that make, keep and ask for float32: nothing in them stays so."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.record import hooks
from gluon_edbatch.testing.closeness import Measured
from gluon_edbatch.testing.matches_eager import _Model
from tests.support.cases import in_one_test
from tests.support.models import ndarrays, started

KEPT = nd.array([[0.3, -0.7, 0.1]])
THIRD = np.float32(1) / np.float32(3)


class Traced(gluon.HybridBlock):
    """Constants and dtypes within a block that is traced."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.dense = nn.Dense(3, in_units=4)

    def hybrid_forward(self, F, x):
        y = self.dense(x)
        y = y + F.broadcast_mul(F.ones((1, 3)), F.arange(0, 3).reshape((1, 3))) * 0.1
        y = y * F.one_hot(F.argmax(y, axis=1), 3) + F.cast(y, dtype='float32')
        return F.broadcast_add(y, F.full((1, 1), 0.25))


class OfWords(gluon.HybridBlock):
    """A block without floating-point arguments or parameters."""

    def hybrid_forward(self, F, words):
        return F.one_hot(words, 4) * 0.1


class Square(autograd.Function):
    """A function with a gradient of its own, with constants in both."""

    def forward(self, x):
        self.save_for_backward(x)
        return x * x * nd.ones((1, 3))

    def backward(self, dy):
        (x,) = self.saved_tensors
        return dy * 2 * x * nd.ones((1, 3))


class Layer(edb.AutoBatchMixin, gluon.Block):
    """A model of one layer, and what it makes of that."""

    def __init__(self, rest, **kwargs):
        super().__init__(**kwargs)
        self.rest = rest
        with self.name_scope():
            self.dense = nn.Dense(3, in_units=4)
            self.lstm = gluon.rnn.LSTMCell(5, input_size=3)
            self.traced = Traced()
            self.words = OfWords()
        self.kept = nd.array([[0.1, 0.2, 0.3]])

    def forward(self, x):
        return self.rest(self, x)


def written(net, x):
    """A result of which a part is written."""
    result = nd.empty((2, 3))
    result[0:1] = net.dense(x)
    return result[0:1]


WORDS = nd.array([2], dtype='int32')

MODELS = {
    'zeros': lambda net, x: net.dense(x) + nd.zeros((1, 3)),
    'ones, full and arange': lambda net, x: (
        net.dense(x) * nd.ones((1, 3)) + nd.full((1, 3), 0.1) + nd.arange(3).reshape((1, 3))
    ),
    'array of a list': lambda net, x: net.dense(x) + nd.array([[0.1, 0.2, 0.3]]),
    'array of NumPy': lambda net, x: net.dense(x) + nd.array(np.full((1, 3), THIRD)),
    'array with a dtype': lambda net, x: net.dense(x) * nd.array([[1, 2, 3]], dtype='float32'),
    'NumPy for a block': lambda net, x: net.dense(x) + net.dense(np.full((1, 4), THIRD)),
    'array for a block': lambda net, x: net.dense(x) + net.dense(nd.ones((1, 4))),
    'large array for a block': lambda net, x: (
        net.dense(x) + net.dense(nd.ones((1, 4 * 4096)).slice_axis(axis=1, begin=0, end=4))
    ),
    'begin_state': lambda net, x: net.lstm(net.dense(x), net.lstm.begin_state(1))[0],
    'begin_state of ones': lambda net, x: net.lstm(
        net.dense(x), net.lstm.begin_state(1, func=nd.ones)
    )[0],
    'begin_state with a dtype': lambda net, x: net.lstm(
        net.dense(x), net.lstm.begin_state(1, dtype='float32')
    )[0],
    'unroll': lambda net, x: net.lstm.unroll(2, [net.dense(x), net.dense(x)], layout='NTC')[0][1],
    'astype': lambda net, x: net.dense(x).astype('float32') * net.dense(x).astype(np.float32),
    'float16': lambda net, x: net.dense(x).astype('float16').astype('float32'),
    'one_hot': lambda net, x: net.dense(x) * nd.one_hot(nd.array([1]), 3),
    'like': lambda net, x: net.dense(x) * nd.ones_like(net.dense(x)) + nd.zeros_like(nd.ones(3)),
    'kept by the model': lambda net, x: net.dense(x) * net.kept,
    'kept for a block': lambda net, x: (
        net.lstm(net.kept, [nd.zeros((1, 5)), nd.ones((1, 5))])[0]
        + net.lstm(net.dense(x), net.lstm.begin_state(1))[0]
    ),
    'kept elsewhere': lambda net, x: edb.nd.broadcast_add(KEPT, net.dense(x)),
    'weights kept elsewhere': lambda net, x: nd.dot(net.dense(x), KEPT.reshape((3, 1))),
    'function with a gradient': lambda net, x: Square()(net.dense(x)),
    'traced': lambda net, x: net.traced(x),
    'traced without floats': lambda net, x: net.words(WORDS) * net.dense(x).sum(),
    'random': lambda net, x: (
        mx.random.seed(3) or net.dense(x) + nd.random.uniform(shape=(1, 3)) * 0.1
    ),
    'numbers': lambda net, x: (net.dense(x) * 0.1 - 3) / 7,
    'nothing that is float32': lambda net, x: net.dense(x),
}


def in_float64(model, samples, blocks, inputs=(), train=True):
    """What a model gives in float64, eagerly and batched."""
    with_copies = _Model(model, samples, False, blocks, inputs, 0)
    exact = with_copies.exact(train)
    batched = with_copies.batched_in_float64(train, 'agenda')
    for run in (exact, batched):
        if isinstance(run, Exception):
            raise run
    return exact, batched


def check(exact, batched):
    """Both are of float64 in all their numbers."""
    assert isinstance(exact, Measured) and isinstance(batched, Measured)
    wanted, got = exact.arrays, batched.arrays
    assert wanted.keys() == got.keys() == exact.added.keys()
    for name, array in wanted.items():
        assert array.dtype == got[name].dtype == np.float64, name
        scale = np.abs(array).max() + 1e-9
        np.testing.assert_allclose(got[name], array, rtol=0, atol=1e-13 * scale, err_msg=name)


@in_one_test('name', MODELS)
def test_all_is_float64(name):
    net = started(Layer(MODELS[name]))
    check(*in_float64(net, ndarrays(3, (1, 4), gradient=True), [net]))


def test_array_that_is_written():
    """In inference; eager Gluon refuses it on a tape."""
    net = started(Layer(written))
    exact, batched = in_float64(net, ndarrays(3, (1, 4)), [net], train=False)
    for name, array in exact.arrays.items():
        assert array.dtype == np.float64
        np.testing.assert_allclose(batched.arrays[name], array, rtol=1e-6)


@pytest.mark.parametrize('name', ['zeros', 'traced', 'traced without floats', 'astype', 'one_hot'])
def test_float32_runs_are_what_they_were(name):
    """What a run in float64 finds out of calls is not known to other runs, nor theirs to it."""
    net, samples = started(Layer(MODELS[name])), ndarrays(3, (1, 4))
    assert all(value.dtype == np.float32 for value in net.batch(samples))
    check(*in_float64(net, samples, [net]))
    with edb.batching():
        values = [net(sample) for sample in samples]
        assert all(value.dtype == np.float32 for value in values)
    assert all(value.dtype == np.float32 for value in edb.forward(values))
    other = started(Layer(MODELS[name]))
    check(*in_float64(other, samples, [other]))
    assert all(value.dtype == np.float32 for value in other.batch(samples))


def test_block_that_nobody_named():
    """The unnamed block's parameters stay float32, and are widened where operators read them."""
    net, other = started(nn.Dense(3, in_units=4)), started(nn.Dense(2, in_units=3))
    other.hybridize()
    other(nd.ones((1, 3)))
    samples = ndarrays(3, (1, 4))
    exact = _Model(lambda x: other(net(x)), samples, False, [net], [], 0).exact(True)
    named = _Model(lambda x: other(net(x)), samples, False, [net, other], [], 0).exact(True)
    for name, array in named.arrays.items():
        if name.startswith('result '):
            np.testing.assert_array_equal(exact.arrays[name], array)
    assert other._active and np.dtype(other.weight.dtype) == np.float32


def test_inputs_that_are_no_samples():
    net, bias = started(nn.Dense(3, in_units=4)), nd.array([[0.1, 0.2, 0.3]])
    bias.attach_grad()
    exact, batched = in_float64(
        lambda x: edb.nd.tanh(net(x) + bias), ndarrays(3, (1, 4)), [net], [bias]
    )
    check(exact, batched)
    assert np.abs(exact.arrays['gradient of input 0']).max() > 0
    assert bias.dtype == np.float32 and not bias.grad.asnumpy().any()


@pytest.fixture(name='numpy_mode')
def fixture_numpy_mode():
    """MXNet in NumPy mode, for one test."""
    mx.npx.set_np()
    yield
    mx.npx.reset_np()


def test_numpy_mode(numpy_mode):
    net = started(nn.Dense(3, in_units=4))
    samples = [mx.np.array(np.random.rand(1, 4)) for _ in range(3)]

    def model(x):
        y = net(x) * mx.np.array([[0.1, 0.2, 0.3]]) + mx.np.ones((1, 3)) + mx.np.zeros(3)
        y = y * mx.np.array(np.full((1, 3), 1 / 3))
        return y.astype('float32') + mx.np.full((1, 3), 0.1) + mx.np.arange(3)

    check(*in_float64(model, samples, [net]))


def hooked():
    """Return the functions that hooks replace."""
    return (
        mx.nd.register._imperative_invoke,
        mx.symbol.register._symbol_creator,
        mx.nd.ndarray._new_alloc_handle,
        mx.np.multiarray._new_alloc_handle,
        autograd.Function.__call__,
        mx.nd.array,
        mx.nd.full,
        mx.np.array,
        gluon.HybridBlock._call_cached_op.__code__,
        gluon.Block.__call__.__code__,
    )


def test_hooks_go_and_errors_too():
    before, net = hooked(), started(nn.Dense(3, in_units=4))
    seen = []

    def model(x):
        seen.append((net(x).dtype, hooked()[0] is before[0], mx.nd.zeros(1).dtype))
        raise KeyError('mine')

    with pytest.raises(KeyError):
        in_float64(model, ndarrays(1, (1, 4)), [net])
    assert set(seen) == {(np.float64, False, np.float64)}
    assert hooked() == before and hooks.local.eager is None
    assert mx.nd.zeros(1).dtype == np.float32 and np.dtype(net.weight.dtype) == np.float32


def test_other_threads_keep_float32():
    from concurrent.futures import ThreadPoolExecutor

    net, found = started(nn.Dense(3, in_units=4)), []
    with ThreadPoolExecutor(1) as pool:

        def elsewhere():
            with autograd.pause():
                return mx.nd.array([1.5]).dtype, (mx.nd.zeros(1) + mx.nd.ones(1)).dtype

        def model(x):
            found.extend(pool.submit(elsewhere).result())
            return net(x)

        in_float64(model, ndarrays(1, (1, 4)), [net])
    assert found and set(found) == {np.float32}
