"""`assert_matches_eager` on models that are right, and on these with something wrong."""

import warnings
from contextlib import contextmanager

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.record import hooks
from gluon_edbatch.testing import assert_matches_eager
from gluon_edbatch.testing import matches_eager as eager
from tests.support.cases import in_one_test
from tests.support.models import TreeLSTM, ndarrays, random_trees, started
from tests.support.tiers import sampled

FAST = dict(schedulers=['agenda'], hybridized=[False])
WIDTH, WORDS = 12, 30


class Reader(edb.AutoBatchMixin, gluon.Block):
    """A loss at each step, from zeros that the model makes: the classes' gradients cancel."""

    def __init__(self, scale=1.0, **kwargs):
        super().__init__(**kwargs)
        self.scale = scale
        with self.name_scope():
            self.embed = nn.Embedding(WORDS, WIDTH)
            self.cell = gluon.rnn.LSTMCell(WIDTH, input_size=2 * WIDTH)
            self.out = nn.Dense(2, in_units=WIDTH)
        self.loss = gluon.loss.SoftmaxCrossEntropyLoss()

    def forward(self, words):
        state, before, losses = self.cell.begin_state(1), nd.zeros((1, WIDTH)), []
        for word in words:
            before, state = self.cell(nd.concat(self.embed(word), before, dim=1), state)
            losses.append(self.loss(self.out(before), nd.array([word % 2])))
        return nd.add_n(*losses) * self.scale


class Attention(edb.AutoBatchMixin, gluon.Block):
    """Attention whose keys have a bias: its gradient is 0, as scores that all grow weigh the
    same; its terms cancel within a sample."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = nn.Embedding(WORDS, WIDTH)
            self.keys = nn.Dense(WIDTH, in_units=WIDTH)
            self.out = nn.Dense(3, in_units=WIDTH)
        self.query = nd.ones((1, WIDTH)) * 0.3

    def forward(self, words):
        rows = [self.embed(word) for word in words]
        scores = [(self.keys(row) * self.query).sum(axis=1, keepdims=True) for row in rows]
        weights = nd.softmax(nd.concat(*scores, dim=1), axis=1)
        parts = nd.split(weights, num_outputs=len(rows), axis=1)
        parts = parts if isinstance(parts, list) else [parts]
        return self.out(nd.add_n(*[row * part for row, part in zip(rows, parts)]))


def sentences(count=4, seed=0):
    """Word ids of some samples."""
    generator = np.random.RandomState(seed)
    lengths = generator.randint(2, 9, size=count)
    return [generator.randint(WORDS, size=length).tolist() for length in lengths]


MODELS = {
    'dense': (lambda: nn.Dense(3, in_units=4), lambda: ndarrays(5, (1, 4))),
    'tree': (TreeLSTM, lambda: random_trees(4)),
    'reader': (Reader, sentences),
    'reader, gradients that are tiny': (lambda: Reader(1e-6), sentences),
    'attention': (Attention, sentences),
}


@contextmanager
def one_gradient_wrong(monkeypatch, parameter, factor, only_float32=False):
    """While it lasts, batched runs give one parameter's gradient times a factor."""
    batched = eager._Model.batched

    def wrong(model, *args, **kwargs):
        run = batched(model, *args, **kwargs)
        for name, gradient in run.arrays.items():
            if name.startswith(f'gradient of {parameter} ') and (
                not only_float32 or gradient.dtype == np.float32
            ):
                gradient *= gradient.dtype.type(factor)
        return run

    with monkeypatch.context() as patch:
        patch.setattr(eager._Model, 'batched', wrong)
        yield


def names_of_gradients(comparison):
    """Parameters whose gradients are not 0."""
    exact = comparison.exact(True)
    return [
        name.split(' ')[2]
        for name, gradient in exact.arrays.items()
        if name.startswith('gradient of ') and np.abs(gradient).max() > 1e-9 * exact.added[name]
    ]


@pytest.mark.parametrize('name, seed', sampled(3, MODELS, range(2)))
def test_right_models_pass(name, seed):
    make, samples = MODELS[name]
    assert_matches_eager(started(make(), seed=seed), samples())


@pytest.mark.parametrize('name, only_float32', sampled(3, MODELS, [False, True]))
def test_each_gradient_that_is_wrong_by_a_thousandth_fails(name, only_float32, monkeypatch):
    make, samples = MODELS[name]
    net, samples = started(make()), samples()
    comparison = eager._Comparison(eager._Model(net, samples, False, [net], [], 0), None, 0.0)
    comparison.run(True, False, ['agenda'])
    names = names_of_gradients(comparison)
    assert len(names) >= 2
    for parameter in names:
        with one_gradient_wrong(monkeypatch, parameter, 1.001, only_float32):
            with pytest.raises(AssertionError, match=f'gradient of {parameter} '):
                comparison.run(True, False, ['agenda'])


@pytest.mark.parametrize('name, only_float32', sampled(3, ['reader', 'tree'], [False, True]))
def test_wrong_by_a_thousandth_where_eager_is_inexact(name, only_float32, monkeypatch):
    """Eager gradients are 3e-5 of the scale off, as those of some kernels of MXNet are."""
    make, samples = MODELS[name]
    net, samples = started(make()), samples()
    comparison = eager._Comparison(eager._Model(net, samples, False, [net], [], 0), None, 0.0)
    run_eagerly, generator = eager._Model.eager, np.random.RandomState()

    def inexact(model, *args):
        generator.seed(0)  # each time the same, as a kernel is
        run = run_eagerly(model, *args)
        for name, gradient in run.arrays.items():
            if name.startswith('gradient of ') and gradient.dtype == np.float32:
                noise = generator.uniform(-1, 1, gradient.shape) * 3e-5 * np.abs(gradient).max()
                gradient += noise.astype(np.float32)
        return run

    with monkeypatch.context() as patch:
        patch.setattr(eager._Model, 'eager', inexact)
        comparison.run(True, False, ['agenda'])
        for parameter in names_of_gradients(comparison):
            with one_gradient_wrong(patch, parameter, 1.001, only_float32):
                with pytest.raises(AssertionError, match=f'gradient of {parameter} '):
                    comparison.run(True, False, ['agenda'])


def test_gradient_that_is_zero_is_judged_by_what_cancels():
    """The gradient is rounding alone, eagerly and batched; judged by its own scale, all fail."""
    net, samples = started(Attention()), sentences()
    run = eager._Model(net, samples, False, [net], [], 0).exact(True)
    name = next(name for name in run.arrays if 'dense0_bias' in name)
    assert np.abs(run.arrays[name]).max() < 1e-12 < 1e-3 < run.added[name]
    assert_matches_eager(net, samples)


# --- what eager Gluon does itself ----------------------------------------------------------------


class WrongIfHybridized(gluon.HybridBlock):
    """A block whose hybridized calls give something else, as by a fault of MXNet."""

    def __init__(self, by=0.5, **kwargs):
        super().__init__(**kwargs)
        self.by = by
        with self.name_scope():
            self.dense = nn.Dense(3, in_units=4)

    def hybrid_forward(self, F, x):
        return self.dense(x)

    def _call_cached_op(self, *args):
        if isinstance(self.by, Exception):
            raise self.by
        return super()._call_cached_op(*args) + self.by


@pytest.mark.parametrize('by', [0.5, float('nan'), ValueError('structure does not match')])
def test_hybridized_gluon_that_differs_from_itself_is_a_warning(by):
    net = started(WrongIfHybridized(by))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        assert_matches_eager(net, ndarrays(3, (1, 4)), schedulers=['agenda'])
    message = 'eager Gluon differs from itself when it is hybridized'
    about = [one for one in caught if str(one.message).startswith(message)]
    assert len(about) == 2  # in inference, and in training
    for one in about:
        assert one.filename == __file__ and len(str(one.message)) < 700
        assert 'rtol' not in str(one.message)


def test_hybridized_gluon_that_only_rounds_otherwise_is_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter('error', UserWarning)
        assert_matches_eager(started(WrongIfHybridized(1e-5)), ndarrays(3, (1, 4)), rtol=1e-3)
        assert_matches_eager(started(TreeLSTM()), random_trees(3), schedulers=['agenda'])


def test_batched_that_differs_is_an_error_where_hybridized_gluon_does_too():
    net = started(WrongIfHybridized())

    def model(x):
        y = net(x)
        return y if hooks.current_recording() is None else y + 0.5

    with warnings.catch_warnings(), pytest.raises(AssertionError, match='agenda, hybridized'):
        warnings.simplefilter('ignore')
        assert_matches_eager(
            model, ndarrays(3, (1, 4)), blocks=[net], schedulers=['agenda'], hybridized=[True]
        )


# --- results that are no arrays ------------------------------------------------------------------


def wrong_if_batched(right, wrong):
    """A model that returns a value beside its scores."""
    net = started(nn.Dense(3, in_units=4))

    def model(x):
        return net(x), right if hooks.current_recording() is None else wrong

    return dict(model=model, samples=ndarrays(3, (1, 4)), blocks=[net], **FAST)


PLAIN = {
    'int': (7, 8),
    'float': (0.5, 0.50001),
    'string': ('a', 'b'),
    'bytes': (b'a', b'b'),
    'none': (None, 0),
    'bool': (True, False),
    'bool and int': (True, 1),
    'NumPy array': (np.arange(3), np.array([0, 1, 3])),
    'NumPy array of floats': (np.array([0.5, np.nan]), np.array([0.5, 0.0])),
    'NumPy array of strings': (np.array(['a', 'b']), np.array(['a', 'c'])),
    'another shape': (np.arange(3), np.arange(4)),
    'NumPy number': (np.int64(3), np.int64(4)),
    'nested': ({'a': [1, ('x', None)]}, {'a': [1, ('y', None)]}),
    'array and number': (nd.ones((1,)), 1),
}


@in_one_test('name', PLAIN)
def test_plain_values_are_compared(name):
    right, wrong = PLAIN[name]
    assert_matches_eager(**wrong_if_batched(right, right))
    assert_matches_eager(**wrong_if_batched(wrong, wrong))
    for one, other in ((right, wrong), (wrong, right)):
        with pytest.raises(AssertionError, match=r'result ?(\[|has structure)'):
            assert_matches_eager(**wrong_if_batched(one, other))


def test_numbers_that_were_read_are_rounded_as_arrays_are():
    net = started(nn.Dense(3, in_units=4))

    def model(x):
        y = net(x)
        return y, y.sum().asscalar(), float(y.max().asscalar()), y.asnumpy(), y.argmax().asscalar()

    assert_matches_eager(model, ndarrays(4, (1, 4)), blocks=[net], training=[False])


def test_results_without_any_array():
    assert_matches_eager(lambda x: len(x), [[1, 2], [3]])


def test_results_of_another_kind_are_refused():
    with pytest.raises(AssertionError, match='neither an array nor a plain value'):
        assert_matches_eager(lambda x: object(), [1])


def test_loss_in_float64_of_a_model_in_float32():
    """The tolerance is that of the float32 numbers from which the loss was computed."""
    net = started(nn.Dense(3, in_units=40))
    assert_matches_eager(
        lambda x: net(x).astype('float64').sum(axis=1), ndarrays(5, (1, 40)), blocks=[net]
    )


def test_gradients_under_autograd_are_left():
    net = started(Reader())
    assert_matches_eager(net, sentences())
    with autograd.record():
        loss = net(sentences()[0])
    loss.backward()
    assert loss.dtype == np.float32 and net.out.weight.grad().dtype == np.float32
    assert mx.nd.zeros(1).dtype == np.float32
