"""Ragged arguments without padding: the rewritten subgraphs against the padded ones."""

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet import autograd, gluon
from mxnet._ctypes.ndarray import CachedOp
from mxnet.gluon import nn
from mxnet.ndarray.sparse import csr_matrix

import gluon_edbatch as edb
from gluon_edbatch.mx.segment_matrix import segment_matrix
from gluon_edbatch.subgraph.ir import Subgraph
from gluon_edbatch.subgraph.segments import PARENTS, SEGMENTS, by_segments
from gluon_edbatch.testing import assert_matches_eager

F = mx.sym
H = 4
SHAPES = {'x': (5, 3, H), 'y': (5, 3, H), 'z': (5, H)}

# What a cell may do with ragged x and y (zero at the padding) and with z (N, H).
COVERED = {
    'sum': lambda x, y, z: F.sum(x, axis=1),
    'sum, axis kept': lambda x, y, z: F.broadcast_add(
        F.sum(x, axis=1, keepdims=True), F.expand_dims(z, axis=1)
    ),
    'gated': lambda x, y, z: F.sum(F.sigmoid(x) * y, axis=1),
    'forget gate': lambda x, y, z: (
        z
        + F.sum(
            F.Activation(
                F.broadcast_add(
                    F.FullyConnected(x, num_hidden=H, flatten=False, no_bias=True, name='fc'),
                    F.expand_dims(z, axis=1),
                ),
                act_type='sigmoid',
            )
            * y,
            axis=1,
        )
    ),
    'product with own': lambda x, y, z: F.sum(F.broadcast_mul(F.reshape(z, (0, 1, -1)), x), axis=1),
    'clipped': lambda x, y, z: F.sum(y * F.clip(x, -0.5, 0.5), axis=1) + z,
}
NOT_COVERED = {
    'softmax': lambda x, y, z: F.sum(F.softmax(x, axis=1) * y, axis=1),
    'mean': lambda x, y, z: F.mean(x, axis=1),
    'max': lambda x, y, z: F.max(x, axis=1),
    'other axis': lambda x, y, z: F.sum(F.sum(x, axis=2, keepdims=True), axis=1),
    'slice': lambda x, y, z: F.sum(F.slice_axis(x, axis=1, begin=0, end=2), axis=1),
    'split': lambda x, y, z: F.sum(F.split(x, num_outputs=2, axis=2)[0], axis=1),
    'across rows': lambda x, y, z: F.sum(
        F.broadcast_add(x, F.reshape(F.sum(z, axis=0), (1, 1, -1))), axis=1
    ),
}


def graph(function):
    return F.Group([function(F.var('x'), F.var('y'), F.var('z'))])


def outputs_and_gradients(symbol, values):
    inputs = {name: values[name] for name in symbol.list_inputs()}
    trained = {name: value for name, value in inputs.items() if name not in (PARENTS, SEGMENTS)}
    for value in trained.values():
        value.attach_grad()
    with autograd.record():
        out = CachedOp(symbol)(*inputs.values())
        loss = (out * mx.nd.arange(out.size).reshape(out.shape)).sum()
    loss.backward()
    return out.asnumpy(), {name: value.grad.asnumpy() for name, value in trained.items()}


@pytest.mark.parametrize('name', COVERED)
@settings(max_examples=15)
@given(counts=st.lists(st.integers(0, 5), min_size=1, max_size=7).filter(any))
def test_the_same_results_and_gradients(name, counts):
    symbol = graph(COVERED[name])
    shapes = {key: shape for key, shape in SHAPES.items() if key in symbol.list_inputs()}
    rewritten = by_segments(Subgraph(symbol), shapes, {'x', 'y'} & set(shapes))
    assert rewritten is not None
    rows, total, longest = len(counts), sum(counts), max(counts)
    random = np.random.RandomState(0)
    long = {key: random.normal(size=(total, H)).astype(np.float32) for key in 'xy'}
    parents = np.repeat(np.arange(rows), counts)
    where = np.arange(longest) < np.array(counts)[:, None]
    values = {
        'z': mx.nd.array(random.normal(size=(rows, H))),
        'fc_weight': mx.nd.array(random.normal(size=(H, H))),
    }
    padded = dict(values)
    for key in 'xy':
        array = np.zeros((rows, longest, H), np.float32)
        array[where] = long[key]
        padded[key] = mx.nd.array(array)
        values[key] = mx.nd.array(long[key])
    values[PARENTS] = mx.nd.array(parents, dtype='int32')
    values[SEGMENTS] = segment_matrix(parents, rows, np.float32, mx.cpu())
    expected, expected_gradients = outputs_and_gradients(symbol, padded)
    found, gradients = outputs_and_gradients(rewritten.symbol, values)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    for key, gradient in gradients.items():
        wanted = expected_gradients[key]
        np.testing.assert_allclose(
            gradient, wanted[where] if key in 'xy' else wanted, rtol=1e-4, atol=1e-4, err_msg=key
        )


@pytest.mark.parametrize('name', NOT_COVERED)
def test_what_the_rules_do_not_cover_keeps_its_padding(name):
    symbol = graph(NOT_COVERED[name])
    shapes = {key: shape for key, shape in SHAPES.items() if key in symbol.list_inputs()}
    assert by_segments(Subgraph(symbol), shapes, {'x', 'y'} & set(shapes)) is None


@pytest.mark.parametrize('dtype', ['float32', 'float64'])
@pytest.mark.parametrize('ctx', [mx.cpu(0), mx.cpu(1)])
def test_segment_matrix(dtype, ctx):
    parents = np.array([0, 0, 2, 3, 3, 3])
    expected = csr_matrix((np.ones(6), parents, np.arange(7)), shape=(6, 5), dtype=dtype)
    found = segment_matrix(parents, 5, np.dtype(dtype).type, ctx)
    assert found.stype == 'csr' and found.ctx == ctx
    assert found.shape == (6, 5) and found.dtype == np.dtype(dtype).type
    np.testing.assert_array_equal(found.asnumpy(), expected.asnumpy())
    np.testing.assert_array_equal(found.indices.asnumpy(), expected.indices.asnumpy())
    np.testing.assert_array_equal(found.indptr.asnumpy(), expected.indptr.asnumpy())


class TwoRagged(gluon.HybridBlock):
    """Two ragged arguments that do not meet, so that their lengths may differ."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.dense = nn.Dense(H, in_units=H, flatten=False)

    def hybrid_forward(self, F, x, y):
        return F.sum(F.tanh(x) * 2, axis=1) + F.sum(self.dense(y) * y, axis=1)


class Forget(gluon.HybridBlock):
    """A sum of gated children."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.dense = nn.Dense(H, in_units=H, flatten=False)

    def hybrid_forward(self, F, children, x):
        gate = F.sigmoid(F.broadcast_add(self.dense(children), F.expand_dims(x, axis=1)))
        return F.sum(gate * children, axis=1)


@pytest.mark.parametrize('rows', [1, 3])
def test_cells_in_batches(rows):
    """Counts of children of all kinds in one batch, values of one row and of several."""
    cell = Forget()
    cell.initialize(mx.init.Xavier())

    def run(sample):
        x, count = sample
        states = [x * (i + 1) for i in range(count)]
        return cell(edb.ragged(states, shape=x.shape), x) + cell(edb.ragged([x]), x)

    samples = [(mx.nd.random.normal(shape=(rows, H)), i % 4) for i in range(9)]
    assert_matches_eager(run, samples, blocks=[cell])


def test_lengths_that_differ_keep_their_padding():
    block = TwoRagged()
    block.initialize(mx.init.Xavier())

    def run(sample):
        x, count = sample
        values = [x * (i + 1) for i in range(4)]
        return block(
            edb.ragged(values[:count], shape=(1, H)), edb.ragged(values[: 3 - count], shape=(1, H))
        )

    samples = [(mx.nd.random.normal(shape=(1, H)), i % 4) for i in range(9)]
    assert_matches_eager(run, samples, blocks=[block])
