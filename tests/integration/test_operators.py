"""edb.nd.<op> and plain mx.nd functions: recorded in the scope, MXNet's own outside."""

import mxnet as mx
import numpy as np
import pytest

import gluon_edbatch as edb
from gluon_edbatch.testing import assert_matches_eager
from tests.support.models import arrays, ndarrays

UNARY = [
    'relu',
    'sigmoid',
    'tanh',
    'exp',
    'square',
    'sin',
    'abs',
    'softmax',
    'log_softmax',
    'zeros_like',
    'sign',
    'floor',
    'erf',
    'softsign',
    'negative',
    'BlockGrad',
    'identity',
]


@pytest.mark.parametrize('name', UNARY)
def test_unary(name):
    # MXNet's own log_softmax is off by some 1e-6; native operators are not.
    assert_matches_eager(
        getattr(edb.nd, name),
        ndarrays(4, (1, 5), gradient=True),
        hybridized=[False],
        rtol=3e-5 if name == 'log_softmax' else None,
    )


@pytest.mark.parametrize(
    'name, attrs',
    [
        ('Activation', {'act_type': 'softrelu'}),
        ('LeakyReLU', {'slope': 0.2}),
        ('sum', {'axis': 1}),
        ('slice_axis', {'axis': 1, 'begin': 1, 'end': 3}),
        ('reshape', {'shape': (0, -1, 1)}),
        ('expand_dims', {'axis': 1}),
        ('clip', {'a_min': 0, 'a_max': 0.5}),
        ('topk', {'k': 2, 'ret_typ': 'value'}),
        ('SliceChannel', {'num_outputs': 5}),
        ('split_v2', {'indices_or_sections': 5, 'axis': 1}),
        ('sum', {}),
        ('transpose', {}),
        ('one_hot', {'depth': 3}),
    ],
)
def test_with_attributes(name, attrs):
    assert_matches_eager(
        lambda x: getattr(edb.nd, name)(x, **attrs),
        ndarrays(4, (1, 5), gradient=name != 'one_hot'),
        hybridized=[False],
    )


@pytest.mark.parametrize(
    'name',
    [
        'broadcast_add',
        'elemwise_mul',
        'maximum',
        'dot',
        'concat',
        'add_n',
        'stack',
        'broadcast_greater',
    ],
)
def test_binary(name):
    def model(x, y):
        return getattr(edb.nd, name)(x, y.T if name == 'dot' else y)

    assert_matches_eager(
        model,
        list(zip(ndarrays(4, (1, 5), gradient=True), ndarrays(4, (1, 5), 1, gradient=True))),
        unpack=True,
        hybridized=[False],
    )


def test_plain_functions_in_the_scope_are_recorded():
    with edb.batching() as scope:
        xs = [edb.nd.identity(x) for x in ndarrays(3, (1, 4))]
        values = [mx.nd.concat(mx.nd.tanh(x), mx.nd.sigmoid(data=x), dim=1) for x in xs]
        assert all(isinstance(value, edb.LazyArray) for value in values)
        assert type(mx.nd.tanh(mx.nd.ones((2, 2)))) is mx.nd.NDArray, 'no value: not recorded'
    edb.forward(values)
    assert (scope.report().nodes, scope.report().batches) == (12, 4)
    assert not scope.report().forced


def test_numpy_arrays_are_accepted_in_the_scope():
    with edb.batching():
        values = [edb.nd.broadcast_add(x, edb.nd.identity(x)) for x in arrays(3, (1, 4))]
    for value, x in zip(values, arrays(3, (1, 4))):
        np.testing.assert_allclose(value.asnumpy(), 2 * x, rtol=1e-6)


def test_outside_a_scope_they_are_mxnets():
    x = mx.nd.ones((1, 2))
    assert type(edb.nd.tanh(x)) is mx.nd.NDArray
    assert edb.nd.tanh.__name__ == 'tanh' and edb.nd.tanh.__doc__ == mx.nd.tanh.__doc__


def test_no_such_operator():
    with pytest.raises(AttributeError, match="MXNet has no operator 'no_such_thing'"):
        edb.nd.no_such_thing  # noqa: B018


def test_operators_of_one_kind_batch_whatever_the_line():
    with edb.batching() as scope:
        xs = [edb.nd.identity(x) for x in ndarrays(3, (1, 4))]
        values = [xs[0] * 2, 2 * xs[1], mx.nd.NDArray.__mul__(xs[2], 2), xs[0] * 3]
    edb.forward(values)
    assert (
        sorted(kind.calls for kind in scope.report().types) == [3, 4] or scope.report().batches == 3
    )


def test_several_outputs():
    def model(x):
        first, second = mx.nd.split(x + 1, num_outputs=2, axis=1)
        mean, var = mx.nd.moments(x * 2, axes=(1,))
        return [first, second * first, mean, var]

    assert_matches_eager(
        lambda x: model(edb.nd.identity(x)),
        ndarrays(3, (1, 4), gradient=True),
        hybridized=[False],
        rtol=5e-5,
    )
