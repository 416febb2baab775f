"""Functions with poles and tails: over their whole range, NaN and infinities as MXNet's."""

import math

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.execute.executable import executable
from tests.support.cases import in_one_test

_ENDS = [0.0, -0.0, np.inf, -np.inf, np.nan]
_TINY = [1e-40, 1e-20, -1e-10, 1e-3]
POINTS = {
    'gamma': [*_ENDS, *_TINY, -1, -2, 1, 2, 5.5, 34.9, 35.5, 36, 171, 172, -0.5, -1.5, -33.3]
    + [-171.5, -200.5, 1.4616, 9.99, 10.01],
    'gammaln': [*_ENDS, *_TINY, -1, -2, 1, 2, 0.999, 2.001, 5.5, 36, 1e10, 1e30, -0.5, -2.5, -1e30]
    + [-33.3, 1.4616, 9.99, 10.01],
    'erf': [*_ENDS, *_TINY, 0.5, -0.84, 0.85, 1.25, -2, 3.9, 5, -6.1, 9, 30],
    'erfinv': [*_ENDS, *_TINY, 1, -1, 1.5, -2, 0.1, 0.69, -0.7, 0.71, 0.9999, -0.9999999],
}
WRITTEN = {
    'edb.nd': lambda name: lambda x: getattr(edb.nd, name)(x),
    'mx.nd': lambda name: lambda x: getattr(mx.nd, name)(edb.nd.identity(x)),
    'block': lambda name: nn.HybridLambda(lambda F, x: getattr(F, name)(x)),
    'hybridized block': lambda name: _hybridized(lambda F, x: getattr(F, name)(x * 1)),
}


def _hybridized(function):
    block = nn.HybridLambda(function)
    block.hybridize()
    return block


def samples(name, dtype):
    points = np.array(POINTS[name], 'float32').astype(dtype).reshape(1, -1)
    made = [mx.nd.array(points * scale, dtype=dtype) for scale in (1, 1, 0.5)]
    for array in made:
        array.attach_grad()
    return made


def eager(name, given, dtype):
    """Results, and the gradients of their sums."""
    arrays = [mx.nd.array(array, dtype=dtype) for array in given]
    for array in arrays:
        array.attach_grad()
    with autograd.record():
        results = [getattr(mx.nd, name)(array) for array in arrays]
    autograd.backward(results)
    return [array.asnumpy() for array in [*results, *(array.grad for array in arrays)]]


def batched(model, arrays):
    """Return results in a scope, and whether all ran natively."""
    with autograd.record():
        with edb.batching('agenda') as scope:
            results = [model(array) for array in arrays]
        results = edb.forward(results)
    autograd.backward(results)
    native = all(executable(form.node_type).native is not None for form in scope._recording.forms)
    return [array.asnumpy() for array in [*results, *(array.grad for array in arrays)]], native


@in_one_test('native', [False, True])
@in_one_test('dtype', ['float32', 'float64'])
@in_one_test('written', WRITTEN)
@in_one_test('name', POINTS)
def test_whole_range(name, written, dtype, native):
    """Native ones are as near to float64 as their type allows; MXNet's own in float32 are not."""
    arrays = samples(name, dtype)
    with edb.compile_options(native=native):
        found, ran_natively = batched(WRITTEN[written](name), arrays)
    assert ran_natively == (native and edb.native_available())
    exact = eager(name, arrays, 'float64' if ran_natively else dtype)
    with np.errstate(over='ignore'):
        exact = [array.astype(dtype) for array in exact]
    rtol, atol = 1e-6 if dtype == 'float32' else 1e-10, np.finfo(dtype).tiny
    for one, other in zip(found, exact):
        np.testing.assert_allclose(one, other, rtol, atol)
    for one, other in zip(found[: len(arrays)], exact):
        zero = other == 0
        np.testing.assert_array_equal(np.signbit(one[zero]), np.signbit(other[zero]))


@pytest.mark.skipif(not edb.native_available(), reason='no native operators')
def test_tail_of_erfinv():
    """Nearer to one than MXNet's own is exact."""
    rests = 2.0 ** -np.arange(2, 54)
    with edb.batching('agenda'):
        results = [edb.nd.erfinv(mx.nd.array([1 - rests], dtype='float64')) for _ in range(2)]
    found = [math.erfc(value) for value in edb.forward(results)[0].asnumpy()[0]]
    np.testing.assert_allclose(found, rests, rtol=1e-12)
