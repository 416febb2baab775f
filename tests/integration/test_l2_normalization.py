"""L2Normalization: of rows and of whole values, as a composition where it runs natively."""

from itertools import product

import mxnet as mx
import numpy as np
import pytest
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.execute.executable import executable
from gluon_edbatch.testing import assert_matches_eager
from tests.support.cases import in_one_test
from tests.support.tiers import in_turn, turns

ROWS = [
    ('instance', (1, 5)),
    ('instance', (2, 3, 4)),
    ('channel', (1, 3, 4)),
    ('channel', (2, 3, 2, 2)),
    ('spatial', (1, 3, 4)),
    ('spatial', (2, 3, 2, 2)),
]
WRITTEN = {
    'edb.nd': lambda x, **attrs: edb.nd.L2Normalization(x, **attrs),
    'mx.nd': lambda x, **attrs: mx.nd.L2Normalization(edb.nd.identity(x), **attrs),
    'block': lambda x, **attrs: nn.HybridLambda(lambda F, x: F.L2Normalization(x, **attrs))(x),
}


def samples(shape, dtype='float32'):
    random = np.random.RandomState(0)
    made = [mx.nd.array(random.uniform(-2, 2, shape), dtype=dtype) for _ in range(4)]
    made[1][0] = 0  # eps is all that is left
    for array in made:
        array.attach_grad()
    return made


def ran_natively(model, arrays):
    with edb.batching('agenda') as scope:
        values = [model(array) for array in arrays]
    edb.forward(values)
    return all(executable(form.node_type).native is not None for form in scope._recording.forms)


@pytest.mark.parametrize('turn', turns(['float32', 'float64'], [False, True]))
@in_one_test('number, case', enumerate(product(ROWS, WRITTEN)))
def test_rows(number, case, turn):
    (mode, shape), written = case
    dtype, native = in_turn(number, turn, ['float32', 'float64'], [False, True])

    def model(x):
        return WRITTEN[written](x, mode=mode, eps=1e-6)

    arrays = samples(shape, dtype)
    with edb.compile_options(native=native):
        assert_matches_eager(model, arrays, hybridized=[False], schedulers=['agenda'])
        assert ran_natively(model, arrays) == (native and edb.native_available())


@in_one_test('native', [False, True])
@in_one_test('mode, shape', ROWS)
def test_whole_values(mode, shape, native):
    """Beside an operator that mixes the rows of a value: one batch, also of several rows."""
    net = nn.HybridLambda(
        lambda F, x: F.broadcast_mul(F.L2Normalization(x, mode=mode), F.sum(x, axis=0, keepdims=1))
    )
    arrays = samples((4, *shape[1:]))
    with edb.compile_options(native=native):
        assert_matches_eager(net, arrays, blocks=[net], hybridized=[False], schedulers=['agenda'])
        with edb.batching('agenda') as scope:
            values = [net(array) for array in arrays]
        edb.forward(values)
        assert scope.report().batches == 1
        if mode != 'channel':
            assert ran_natively(net, arrays) == (native and edb.native_available())
