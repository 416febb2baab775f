"""Calls of `autograd.Function` in a scope: as in eager Gluon, one call for rows that meet."""

import contextlib
import sys

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd

import gluon_edbatch as edb
from tests.support.cases import in_one_test
from tests.support.tiers import in_turn, turns

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
    """A Function whose scale is an array that it holds."""

    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return x * self.scale

    def backward(self, dy):
        return dy * self.scale


class Single(autograd.Function):
    """A Function that takes one row only."""

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


def rows():
    return [nd.array(x) for x, _, _ in SAMPLES]


def assert_same(found, expected):
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * abs(other).max() + 1e-6)


@pytest.mark.parametrize('turn', turns(SCHEDULERS, [True, False]))
@in_one_test('number, name', enumerate(FUNCTIONS))
def test_results_and_gradients_are_as_eager(number, name, turn):
    scheduler, native = in_turn(number, turn, SCHEDULERS, [True, False])
    model = made(FUNCTIONS[name])
    expected, _ = trained(model, contextlib.nullcontext())
    for _ in range(3):  # the first scope meets them, the second compares, the third knows
        with edb.compile_options(native=native):
            found, _ = trained(model, edb.batching(scheduler))
        assert_same(found, expected)


@in_one_test('name', FUNCTIONS)
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


@pytest.mark.parametrize(
    ('name', 'why'),
    [
        ('mixes rows', 'other rows'),
        ('mixes rows backward', 'calls asscalar'),
        ('one row', 'several at once'),
    ],
)
def test_what_mixes_rows_runs_one_by_one_and_the_report_says_why(name, why):
    model = made(FUNCTIONS[name])
    for _ in range(3):
        _, scope = trained(model, edb.batching())
    report = scope.report()
    assert report.evaluations == 1
    (own,) = [kind for kind in report.types if kind.name.startswith('autograd.Function')]
    assert own.calls == own.batches == 15
    assert why in own.note
    assert own.note in str(scope.explain()).replace('\n    ', ' ')


class Counting(autograd.Function):
    """Changes an object that others see."""

    calls = [0]

    def forward(self, x):
        self.calls[0] += 1
        return x * 2

    def backward(self, dy):
        return dy * 2


class Failing(autograd.Function):
    """Raises where it is told to."""

    def __init__(self, where):
        super().__init__()
        self.place = where

    def forward(self, x):
        if self.place == 'forward' and x.sum().asscalar() > 50:
            raise ValueError('a large sum')
        return x * 2

    def backward(self, dy):
        if self.place == 'backward':
            return dy, dy
        return dy


FACTOR = 2.0


class Reads(autograd.Function):
    """Reads a global variable."""

    def forward(self, x):
        return x * FACTOR

    def backward(self, dy):
        return dy


def test_the_first_call_runs_eagerly_and_the_explanation_says_so():
    class First(Sign):
        """A class that nobody has called."""

    dense = made(None).cell
    with edb.batching() as scope:
        values = [dense(First()(dense(x))) for x in rows()]
    edb.forward(values)
    assert len(scope.report().forced) == 1
    text = ' '.join(str(scope.explain()).split())
    assert 'First runs eagerly: the first call of a class' in text


def test_side_effects_happen_as_often_as_in_eager_mode():
    dense, before = made(None).cell, Counting.calls[0]
    with edb.batching() as scope:
        edb.forward([dense(Counting()(dense(x))) for x in rows()])
    assert Counting.calls[0] == before + 4
    assert 'while it runs' in ' '.join(str(scope.explain()).split())


def test_an_error_in_forward_names_the_line_and_breaks_nothing():
    dense = made(None).cell
    for _ in range(2):
        with edb.batching():
            edb.forward([Failing('forward')(dense(x)) for x in rows()])
    with edb.batching():
        values = [Failing('forward')(dense(x) * 1) for x in rows()]
        values.append(Failing('forward')(dense(rows()[0]) * 0 + 100))
    with pytest.raises(edb.BatchError, match='a large sum[^/]*.*test_functions.py') as found:
        values[-1].asnumpy()
    assert 'recorded at' in str(found.value)
    with edb.batching():
        values = [Failing('forward')(dense(x)) for x in rows()]
    for value, x in zip(values, rows()):
        np.testing.assert_allclose(value.asnumpy(), 2 * dense(x).asnumpy(), rtol=1e-5)


def test_an_error_in_backward_names_the_line(capfd):
    dense = made(None).cell
    for _ in range(2):
        with autograd.record(), edb.batching():
            values = [Failing('backward')(dense(x)) for x in rows()]
            loss = edb.add_n(values).sum()
        with pytest.raises((mx.MXNetError, edb.BatchError)):
            loss.backward()
            nd.waitall()
            dense.weight.grad().asnumpy()
    assert 'test_functions.py' in capfd.readouterr().out
    with autograd.record(), edb.batching():
        loss = edb.add_n([Keeps()(dense(x)) for x in rows()]).sum()
    loss.backward()
    assert np.isfinite(dense.weight.grad().asnumpy()).all()


def test_what_it_reads_may_not_change_before_it_runs(monkeypatch):
    dense = made(None).cell
    with edb.batching():
        edb.forward([Reads()(dense(x)) for x in rows()])
    with edb.batching():
        values = [Reads()(dense(x)) for x in rows()]
    monkeypatch.setattr(sys.modules[__name__], 'FACTOR', 3.0)
    with pytest.raises(edb.StaleValueError, match='Reads reads FACTOR'):
        values[0].asnumpy()
    with edb.batching():
        values = [Reads()(dense(x)) for x in rows()]
    for value, x in zip(values, rows()):
        np.testing.assert_allclose(value.asnumpy(), 3 * dense(x).asnumpy(), rtol=1e-5)


SEEN = []
POSITIVE, MIXED = ([[[a, a]] for a in values] for values in ((1.0, 2.0, 3.0), (1.0, -5.0, 2.0)))


class ByMean(autograd.Function):
    """Decides by a value that all rows have a part in."""

    def forward(self, x):
        self.factor = 2.0 if x.mean() > 0 else 0.5
        return x * self.factor

    def backward(self, dy):
        return dy * self.factor


class ByNorm(ByMean):
    def forward(self, x):
        self.factor = 1.0 if x.norm().asscalar() < 7 else 0.5
        return x * self.factor


class ClipsGradient(autograd.Function):
    def forward(self, x):
        return x * 1

    def backward(self, dy):
        return dy if dy.norm() < 1e3 else dy * 0.5


class Logs(ClipsGradient):
    def backward(self, dy):
        SEEN.append(float(dy.sum().asscalar()))
        return dy


class LogsLarge(autograd.Function):
    def forward(self, x):
        if x.min() < 0:
            SEEN.append(1)
        return x * 2

    def backward(self, dy):
        return dy * 2


def _outcome(function, rows, batched, scale=1.0):
    """Results, gradients, and what was seen by others."""
    SEEN.clear()
    xs = [nd.array(row) for row in rows]
    for x in xs:
        x.attach_grad()
    with autograd.record():
        with edb.batching() if batched else contextlib.nullcontext():
            values = [function()(edb.nd.broadcast_mul(x, nd.ones((1, 2)))) for x in xs]
            total = edb.add_n([value.sum() * scale for value in values])
    total.backward()
    nd.waitall()
    arrays = [array.asnumpy() for array in [*values, *[x.grad for x in xs]]]
    return arrays, sorted(SEEN)


@pytest.mark.parametrize('function', [ByMean, ByNorm, ClipsGradient, Logs, LogsLarge, Centred])
def test_what_one_batch_cannot_show(function):
    """Minibatches after the first one decide otherwise, or have other numbers of rows."""
    steps = [(POSITIVE, 1.0), (MIXED, 1.0), (MIXED, 600.0), ([row * 3 for row in MIXED], 1.0)]
    for rows, scale in steps:
        (found, seen), (wanted, expected) = (
            _outcome(function, rows, batched, scale) for batched in (True, False)
        )
        for one, other in zip(found, wanted):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        assert seen == expected


class Masked(autograd.Function):
    def forward(self, x, mask):
        return x if mask is None else x * mask

    def backward(self, dy):
        return dy


def test_an_argument_may_be_none():
    with edb.batching():
        values = [Masked()(edb.nd.relu(nd.ones((1, 2)) * i), None) for i in range(3)]
    assert [value.asnumpy().tolist() for value in values] == [[[0, 0]], [[1, 1]], [[2, 2]]]


class Dropping(autograd.Function):
    """Draws a decision for each call."""

    def forward(self, x):
        self.keep = float(np.random.rand() < 0.9)
        return x * self.keep

    def backward(self, dy):
        return dy * self.keep


def test_each_call_draws_its_own_noise():
    np.random.seed(0)
    mixed = 0
    for _ in range(30):
        with edb.batching():
            values = [Dropping()(edb.nd.relu(nd.ones((1, 2)))) for _ in range(8)]
        mixed += len({float(value.asnumpy().sum()) for value in edb.forward(values)}) == 2
    assert mixed > 5


class Gate(gluon.HybridBlock):
    """Calls a Function, as works where it is not hybridized."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.dense = gluon.nn.Dense(8, in_units=8)

    def hybrid_forward(self, F, x):
        return Sign()(self.dense(x)) * x


def test_a_function_in_hybrid_forward_is_recorded():
    model = made(None)
    gate = Gate()
    gate.initialize(mx.init.Normal(0.5))
    model.function = lambda x, i: gate(x)
    expected, _ = trained(model, contextlib.nullcontext())
    expected.append(gate.dense.weight.grad().asnumpy())
    for _ in range(2):
        found, scope = trained(model, edb.batching())
        assert_same([*found, gate.dense.weight.grad().asnumpy()], expected)
    assert scope.report().evaluations == 1
    assert 'autograd.Function Sign' in str(scope.report())


def test_values_of_several_rows_share_batches():
    dense = made(None).cell
    for _ in range(3):
        xs = [nd.array(np.random.RandomState(n).randn(n, 8)) for n in (1, 3, 2, 5)]
        with edb.batching() as scope:
            values = [Keeps()(dense(x)) for x in xs]
        for value, x in zip(values, xs):
            expected = 1 / (1 + np.exp(-dense(x).asnumpy()))
            np.testing.assert_allclose(value.asnumpy(), expected, rtol=1e-5)
    assert scope.report().batches == 2


def test_a_function_is_called_once():
    dense, sign = made(None).cell, Sign()
    with edb.batching():
        sign(dense(rows()[0]))
        with pytest.raises(AssertionError, match='only be called once'):
            sign(dense(rows()[1]))


def test_a_cast_to_its_own_dtype_needs_no_call_and_stops_gradients_under_pause():
    dense, x = made(None).cell, rows()[0]
    with autograd.record(), edb.batching() as scope:
        h = dense(x)
        same = h.astype('float32')
        with autograd.pause():
            apart = h.astype('float32')
        loss = (same * apart).sum()
    loss.backward()
    assert [kind.name for kind in scope.report().types if kind.name.startswith('Cast')] == [
        'Cast[8]'
    ]
    found = dense.bias.grad().asnumpy()
    with autograd.record():
        h = dense(x)
        loss = (h * h.detach()).sum()
    loss.backward()
    np.testing.assert_allclose(found, dense.bias.grad().asnumpy(), rtol=1e-5)
