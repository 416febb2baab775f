"""Calls of `autograd.Function` in a scope: as in eager Gluon, one call for rows that meet."""

import contextlib

import gluon_edbatch as edb
import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd

SCHEDULERS = ('fsm', 'agenda', 'depth', 'unbatched')


class Reverse(autograd.Function):
    """Gradient reversal, by a factor of the instance."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * 1

    def backward(self, dy):
        return -self.factor * dy


class Sign(autograd.Function):
    """A straight-through estimator."""

    def forward(self, x):
        return x > 0

    def backward(self, dy):
        return dy


class Keeps(autograd.Function):
    """Saves a tensor, and another one as a plain attribute."""

    def forward(self, x):
        y = 1 / (1 + nd.exp(-x))
        self.save_for_backward(y)
        self.x = x
        return y

    def backward(self, dy):
        (y,) = self.saved_tensors
        return dy * y * (1 - y) * self.x


class InNumpy(autograd.Function):
    """Computes with NumPy."""

    def forward(self, x):
        self.slope = np.cos(x.asnumpy())
        return nd.array(np.sin(x.asnumpy()))

    def backward(self, dy):
        return nd.array(dy.asnumpy() * self.slope)


class Two(autograd.Function):
    """Two inputs, and two results with gradients that are not theirs."""

    def forward(self, x, y):
        self.save_for_backward(x, y)
        return x * y, x + y

    def backward(self, first, second):
        x, y = self.saved_tensors
        return 3 * first * y + second, first * x + 2 * second


class Centred(autograd.Function):
    """Mixes rows."""

    def forward(self, x):
        return x - x.mean(axis=0, keepdims=True) + 0.5 * x

    def backward(self, dy):
        return 1.5 * dy


class Clipped(autograd.Function):
    """Mixes rows in backward alone, and only where gradients are large."""

    def forward(self, x):
        return x * 2

    def backward(self, dy):
        return dy * min(1.0, 3.0 / (dy.norm().asscalar() + 1e-6))


class Scaled(autograd.Function):
    """Its scale is an array of its own."""

    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return x * self.scale

    def backward(self, dy):
        return dy * self.scale


class Single(autograd.Function):
    """Takes one row alone."""

    def forward(self, x):
        if len(x) != 1:
            raise ValueError('one row, please')
        return x + 1

    def backward(self, dy):
        return dy * 2


class Mean(autograd.Function):
    """Gives a row of four numbers for each eight, and a whole number that has no gradient."""

    def forward(self, x):
        return x.reshape((0, 4, 2)).mean(axis=2), x.argmax(axis=1).astype('int32')

    def backward(self, dy, _):
        return (nd.repeat(dy, 2, axis=1) + nd.zeros_like(_).astype('float32').reshape((-1, 1))) / 2


FUNCTIONS = {
    'reversal': lambda x, i: Reverse((0.5, 1.5)[i % 2])(x),
    'straight through': lambda x, i: Sign()(x) * x,
    'keeps state': lambda x, i: Keeps()(x),
    'NumPy': lambda x, i: InNumpy()(x),
    'two results': lambda x, i: nd.concat(*Two()(x, x * 2), dim=1)[:, 4:12],
    'mixes rows': lambda x, i: Centred()(x),
    'mixes rows backward': lambda x, i: Clipped()(x),
    'array attribute': lambda x, i: Scaled(nd.array([[(2.0, 3.0)[i % 2]] * 8]))(x),
    'one row': lambda x, i: Single()(x),
    'int result': lambda x, i: nd.concat(*[Mean()(x)[0]] * 2, dim=1) * 2,
    'chain': lambda x, i: Reverse(0.5)(Keeps()(Sign()(x) + x)),
    'no gradient needed': lambda x, i: nd.concat(*Two()(x, nd.ones((1, 8)) * 3), dim=1)[:, :8],
}


class Model(edb.AutoBatchMixin, gluon.Block):
    """Steps of which each reads the one before."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        with self.name_scope():
            self.cell = gluon.nn.Dense(8, in_units=8, activation='tanh')
            self.gate = gluon.nn.Dense(8, in_units=8)

    def forward(self, x, steps, which):
        for _ in range(steps):
            x = self.cell(x)
            x = x + self.function(self.gate(x), which)
        return x


def made(function):
    np.random.seed(1)
    mx.random.seed(1)
    model = Model(function)
    model.initialize(mx.init.Normal(0.5))
    return model


SAMPLES = [(np.random.RandomState(i).randn(1, 8), steps, i) for i, steps in enumerate((3, 5, 4, 3))]


def trained(model, scope, taped=True):
    """Results, and gradients of inputs and parameters."""
    xs = [nd.array(x) for x, _, _ in SAMPLES]
    for x in xs:
        x.attach_grad()
    with autograd.record() if taped else contextlib.nullcontext(), scope as entered:
        values = [model(x, steps, which) for x, (_, steps, which) in zip(xs, SAMPLES)]
    if not taped:
        return [value.asnumpy() for value in values], entered
    with autograd.record():
        loss = sum([(value * value).sum() * (1 + i) for i, value in enumerate(values)])
    loss.backward()
    parameters = [each.grad() for each in model.collect_params().values()]
    return [each.asnumpy() for each in (*values, *[x.grad for x in xs], *parameters)], entered


def assert_same(found, expected):
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * abs(other).max() + 1e-6)


@pytest.mark.parametrize('native', [True, False])
@pytest.mark.parametrize('scheduler', SCHEDULERS)
@pytest.mark.parametrize('name', FUNCTIONS)
def test_results_and_gradients_are_as_eager(name, scheduler, native):
    model = made(FUNCTIONS[name])
    expected, _ = trained(model, contextlib.nullcontext())
    for _ in range(3):  # the first scope meets them, the second compares, the third knows
        with edb.compile_options(native=native):
            found, _ = trained(model, edb.batching(scheduler))
        assert_same(found, expected)


@pytest.mark.parametrize('name', FUNCTIONS)
def test_results_without_autograd(name):
    model = made(FUNCTIONS[name])
    expected, _ = trained(model, contextlib.nullcontext(), taped=False)
    for _ in range(3):
        found, scope = trained(model, edb.batching(), taped=False)
        assert_same(found, expected)
    assert not scope.report().forced


def test_rows_that_meet_are_one_batch():
    model = made(FUNCTIONS['straight through'])
    for _ in range(2):
        _, scope = trained(model, edb.batching())
    report, text = scope.report(), str(scope.explain())
    assert report.evaluations == 1
    (own,) = [kind for kind in report.types if kind.name.startswith('autograd.Function Sign')]
    assert (own.calls, own.batches, own.note) == (15, 5, '')
    assert 'autograd.Function Sign' in text
    assert __file__.rsplit('/', 1)[1] in text


@pytest.mark.parametrize('name', ['mixes rows', 'mixes rows backward', 'one row'])
def test_what_mixes_rows_runs_one_by_one_and_the_report_says_why(name):
    model = made(FUNCTIONS[name])
    for _ in range(3):
        _, scope = trained(model, edb.batching())
    report = scope.report()
    assert report.evaluations == 1
    (own,) = [kind for kind in report.types if kind.name.startswith('autograd.Function')]
    assert own.calls == own.batches == 15
    assert 'several at once' in own.note if name == 'one row' else 'other rows' in own.note
    assert own.note in str(scope.explain()).replace('\n    ', ' ')
