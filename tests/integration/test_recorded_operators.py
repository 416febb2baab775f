"""Operators and arithmetic on lazy values, and arrays that calls share: each kind is looked up once
in a scope, and what differs must not be taken for the same."""

from contextlib import nullcontext

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.ndarray import register

import gluon_edbatch as edb
from gluon_edbatch.mx.symbols import operator_handle
from gluon_edbatch.testing import assert_matches_eager
from tests.support.models import started

ARITHMETIC = {
    'add': lambda x, y: x + y,
    'subtract': lambda x, y: x - y,
    'multiply': lambda x, y: x * y,
    'divide': lambda x, y: x / y,
    'power': lambda x, y: abs(x) ** y,
    'modulo': lambda x, y: x % y,
    'equal': lambda x, y: x == y,
    'unequal': lambda x, y: x != y,
    'greater': lambda x, y: x > y,
    'lesser': lambda x, y: x < y,
    'at least': lambda x, y: x >= y,
    'at most': lambda x, y: x <= y,
}


def arrays(count, shape=(1, 4), seed=0):
    random = np.random.RandomState(seed)
    made = [mx.nd.array(random.uniform(0.5, 2, shape)) for _ in range(count)]
    for array in made:
        array.attach_grad()
    return made


@pytest.mark.parametrize('name', ARITHMETIC)
def test_arithmetic(name):
    """Arithmetic of values has numbers on either side, several of them in one scope."""
    function, dense = ARITHMETIC[name], started(gluon.nn.Dense(4, in_units=4))

    def model(x):
        y = dense(x)
        return (
            function(y, x * 2),
            function(y, 2),
            function(2, y),
            function(y, 3),
            function(y, 2.5),
            function(y, y),
            function(x + 0, y),
        )

    assert_matches_eager(
        model, arrays(5), blocks=[dense], hybridized=[False], schedulers=['agenda']
    )


def test_options_are_told_apart():
    """By value and by class: True is not 1, nor 1.0."""
    x = np.arange(12, dtype=np.float32).reshape(1, 3, 4)
    options = [
        dict(axis=1),
        dict(axis=2),
        dict(axis=1, keepdims=True),
        dict(axis=(1, 2)),
        dict(axis=1, keepdims=False),
        dict(axis=1, keepdims=1),
        {},
    ]
    with edb.batching('agenda') as scope:
        value = edb.nd.identity(mx.nd.array(x))
        results = [edb.nd.sum(value, **option) for option in options + options]
    for option, result in zip(options + options, results):
        expected = mx.nd.sum(mx.nd.array(x), **option)
        assert result.shape == expected.shape
        np.testing.assert_array_equal(result.asnumpy(), expected.asnumpy())
    assert scope.report().nodes == 15


def test_wrong_options_are_refused_each_time():
    with edb.batching():
        value = edb.nd.identity(mx.nd.ones((1, 4)))
        assert edb.nd.sum(value, axis=1).shape == (1,)
        for _ in range(2):
            with pytest.raises(Exception, match='axis'):
                edb.nd.sum(value, axis='1.5 or so')
            with pytest.raises(Exception, match='no such option|Cannot find argument'):
                edb.nd.sum(value, no_such_option=1)


def test_options_that_cannot_be_compared():
    with edb.batching():
        value = edb.nd.identity(mx.nd.ones((1, 4)))
        for _ in range(2):
            assert edb.nd.reshape(value, shape=[2, 2]).shape == (2, 2)
            assert edb.nd.sum(value, axis=[1]).shape == (1,)
            assert edb.nd.concat(value, mx.nd.zeros((1, 2)), dim=1).shape == (1, 6)


@pytest.mark.parametrize('parts', [2, 4])
def test_several_results(parts):
    dense = started(gluon.nn.Dense(4, in_units=4))

    def model(x):
        values = edb.nd.split(dense(x), num_outputs=parts, axis=1)
        assert isinstance(values, list)
        return values[::-1]

    assert_matches_eager(
        model, arrays(5), blocks=[dense], hybridized=[False], schedulers=['agenda']
    )


def test_operators_in_both_modes_of_autograd():
    """What was looked up outside of autograd.record() does not serve inside."""
    x = arrays(1)[0]
    with edb.batching():
        value = edb.nd.identity(x)
        plain = value * value
        with autograd.record():
            inner = edb.nd.identity(x)
            recorded = inner * inner + edb.nd.square(inner)
        again = value * value
    assert (plain.asnumpy() == again.asnumpy()).all()
    recorded.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), 4 * x.asnumpy(), rtol=1e-6)


def test_equal_small_arrays_are_one_value():
    dense = started(gluon.nn.Dense(2, in_units=4))
    array = np.zeros((1, 4), np.float32)
    with edb.batching() as scope:
        first = [dense(array), dense(np.zeros((1, 4), np.float32)), dense(np.zeros((1, 4)))]
        array[:] = 1  # they have the contents that they had
        later = [dense(array), dense(np.zeros((1, 4), np.float32))]
        number = dense.bias.data().asnumpy()
    assert len(scope._recording.arrays) == 2
    for value in first + later[1:]:
        np.testing.assert_allclose(value.asnumpy()[0], number, rtol=1e-6)
    np.testing.assert_allclose(later[0].asnumpy(), dense(mx.nd.ones((1, 4))).asnumpy(), rtol=1e-6)


@pytest.mark.parametrize(
    'other',
    [np.zeros((1, 4), np.int32), np.zeros((2, 2), np.float32), np.full((1, 4), -0.0, np.float32)],
)
def test_arrays_of_other_kinds_are_others(other):
    with edb.batching() as scope:
        edb.nd.identity(np.zeros((1, 4), np.float32))
        value = edb.nd.identity(other)
    assert len(scope._recording.arrays) == 2
    assert value.shape == other.shape and value.dtype == other.dtype
    np.testing.assert_array_equal(np.signbit(value.asnumpy()), np.signbit(other))


def test_an_operator_whose_function_of_symbols_takes_fewer_arrays_runs_at_once():
    """A running mean is an array for MXNet's operator; its functions make it up themselves."""
    attrs = {'sparseness_target': '0.3', 'penalty': '0.5'}
    found = []
    for batched in (False, True):
        x, mean = mx.nd.full((2, 3), 0.5), mx.nd.ones((3,))
        x.attach_grad()
        with edb.batching() if batched else nullcontext(), autograd.record():
            y = edb.nd.identity(x) if batched else x * 1
            value = register._imperative_invoke(
                operator_handle('IdentityAttachKLSparseReg'),
                [y, mean],
                list(attrs),
                list(attrs.values()),
                None,
                False,
                False,
            )
        value.backward()
        found.append([array.asnumpy() for array in (value, mean, x.grad)])
    for expected, got in zip(*found):
        np.testing.assert_array_equal(got, expected)
    assert np.abs(found[0][2] - 1).max() > 0.1


def test_a_power_of_integers_in_a_block():
    """A power of integers is a float if MXNet is asked for one; a square would stay an integer."""

    class Block(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return F._internal._power_scalar(x, scalar=2.0, is_int=False)

    block = Block()
    samples = [mx.nd.array([[i, 3]], dtype='int32') for i in range(3)]
    expected = [block(x) for x in samples]
    with edb.compile_options(native=False), edb.batching():
        values = edb.forward([block(edb.nd.identity(x)) for x in samples])
    for value, wanted in zip(values, expected):
        assert value.dtype == wanted.dtype == np.float64
        np.testing.assert_array_equal(value.asnumpy(), wanted.asnumpy())
