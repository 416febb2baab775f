"""LayerNorm of rows and of ragged values, each as one native instruction."""

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.execute.executable import executable
from gluon_edbatch.testing import assert_matches_eager
from tests.support.cases import in_one_test

WIDTH = 5


class Norm(nn.HybridSequential):
    """Before and behind layers, so that all gradients are told apart."""

    def __init__(self, dtype, axes=()):
        super().__init__()
        self._axes = axes
        with self.name_scope():
            self.norm = nn.LayerNorm(in_channels=WIDTH, epsilon=1e-3, prefix='norm_')
        self.initialize()
        for value in self.collect_params().values():
            value.set_data(mx.nd.random.uniform(-1, 1, (WIDTH,)))
        self.cast(dtype)

    def hybrid_forward(self, F, x):
        found = self.norm(F.tanh(x))
        return F.sum(found * found, axis=self._axes) if self._axes else found * found


def samples(shapes, dtype):
    random = np.random.RandomState(0)
    made = [mx.nd.array(random.uniform(-2, 2, shape), dtype=dtype) for shape in shapes]
    made[1][:] = 0.5  # of variance 0
    for array in made:
        array.attach_grad()
    return made


def assert_runs(model, arrays, net, native):
    with edb.compile_options(native=native):
        assert_matches_eager(model, arrays, blocks=[net], schedulers=['agenda'])
        with edb.batching('agenda') as scope:
            values = [model(array) for array in arrays]
        edb.forward(values)
    forms = [executable(form.node_type).native for form in scope._recording.forms]
    assert all(form is not None for form in forms) == (native and edb.native_available())
    assert scope.report().batches == 1


@in_one_test('native', [False, True])
@in_one_test('dtype', ['float32', 'float64'])
@in_one_test('shape', [(1, WIDTH), (1, 3, WIDTH), (2, WIDTH), (1, 2, 3, WIDTH)])
def test_rows(shape, dtype, native):
    net = Norm(dtype)
    assert_runs(net, samples([shape] * 4, dtype), net, native)


@pytest.mark.parametrize('native', [False, True])
@pytest.mark.parametrize('dtype', ['float32', 'float64'])
def test_ragged_values(dtype, native):
    net = Norm(dtype, axes=(1,))

    def model(array):
        return net(edb.ragged([array[k : k + 1] for k in range(len(array))]))

    arrays = samples([(length, WIDTH) for length in (3, 2, 1, 4)], dtype)
    with edb.compile_options(native=native):
        assert_matches_eager(model, arrays, blocks=[net], schedulers=['agenda'])


@pytest.mark.parametrize('native', [False, True])
def test_another_axis(native):
    """Has no native form, and runs all the same."""

    class Other(nn.HybridSequential):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(axis=1, in_channels=3)

        def hybrid_forward(self, F, x):
            return self.norm(x)

    net = Other()
    net.initialize()
    arrays = samples([(1, 3, WIDTH)] * 4, 'float32')
    with edb.compile_options(native=native):
        assert_matches_eager(net, arrays, blocks=[net], schedulers=['agenda'])


def test_of_one_number():
    """A row of one number is its own mean, so its gradient is exactly zero."""
    norm = nn.LayerNorm(in_channels=1)
    norm.initialize()
    norm.gamma.set_data(mx.nd.array([1.3]))
    arrays = [mx.nd.array([[value]]) for value in (0.1, 0.7, -1.9)]
    for array in arrays:
        array.attach_grad()
    with mx.autograd.record(), edb.batching():
        values = [norm(array * 3) for array in arrays]
    mx.autograd.backward(values, [mx.nd.array([[weight]]) for weight in (0.3, 0.7, 1.1)])
    assert [array.grad.asscalar() for array in arrays] == [0, 0, 0]
