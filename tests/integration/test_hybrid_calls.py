"""Calls of hybridized blocks, and operators, in scopes whose calls run at once: what Gluon and
MXNet do around them in Python is done otherwise there, with the same results."""

import gc
import weakref

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.execute import whole_scopes
from gluon_edbatch.record.lazy import ComputedArray

WIDTH = 4


@pytest.fixture(autouse=True)
def now(monkeypatch):
    """All scopes but the first of their kind run their calls at once."""
    monkeypatch.setattr(whole_scopes.ScopeTrial, 'decided', True)
    monkeypatch.setattr(whole_scopes.ScopeTrial, 'faster_at_once', True)


def dense(**options):
    layer = nn.Dense(WIDTH, in_units=WIDTH, **options)
    layer.initialize(mx.init.Normal(0.5))
    layer.hybridize()
    return layer


def in_scope(run, times=3):
    """What it gives in the last of some scopes that begin on one line."""
    for _ in range(times):
        with edb.batching() as scope:
            result = run()
    assert 'ran at once' in str(scope)
    return result


def row(factor=1):
    return nd.array(np.linspace(-1, 1, WIDTH)[None] * factor)


def of_arrays(result):
    """The same with NumPy arrays."""
    if isinstance(result, (list, tuple)):
        return [of_arrays(each) for each in result]
    return result.asnumpy()


def assert_as_eager(run):
    np.testing.assert_equal(of_arrays(in_scope(run)), of_arrays(run()))


def test_nothing_of_gluon_is_between(monkeypatch):
    layer, x = dense(), row()
    expected = layer(x).asnumpy()
    in_scope(lambda: layer(x))
    monkeypatch.setattr(gluon.block, '_flatten', None)
    monkeypatch.setattr(gluon.Parameter, 'data', None)
    found = in_scope(lambda: layer(x))
    assert type(found) is ComputedArray
    np.testing.assert_array_equal(found.asnumpy(), expected)


def test_structures_of_arguments_and_results():
    cell = gluon.rnn.LSTMCell(WIDTH, input_size=WIDTH)
    maybe = nn.HybridLambda(lambda F, x, y=None: x if y is None else F.broadcast_add(x, y))
    nested = nn.HybridLambda(lambda F, x, two: [x * 2, [two[0] + two[1], [x]]])
    for block in (cell, maybe, nested):
        block.initialize(mx.init.Normal(0.5))
        block.hybridize()
    assert_as_eager(lambda: cell(row(), [row(2), row(3)]))
    assert_as_eager(lambda: maybe(row(), row(2)))
    assert_as_eager(lambda: maybe(row(), row(2), None))
    assert_as_eager(lambda: nested(row(), (row(2), row(3))))


def test_other_arguments_than_at_first_are_left_to_gluon():
    layer = dense()
    in_scope(lambda: layer(row()))
    with pytest.raises(edb.RecordError, match='takes arrays and numbers'):
        in_scope(lambda: layer([row()]), 1)
    far = nn.HybridLambda(lambda F, x, y: F.broadcast_add(x, y))
    far.hybridize()
    in_scope(lambda: far(row(), row()))
    with pytest.raises(edb.RecordError, match='context|device'):
        in_scope(lambda: far(row(), row().as_in_context(mx.cpu(1))), 1)


def seven_times(F, x, weight, bias):
    """What another layer does with the same parameters."""
    return F.FullyConnected(x * 7, weight, bias, num_hidden=WIDTH)


@pytest.mark.parametrize(
    'change',
    [
        lambda layer: layer.hybridize(False),
        lambda layer: layer.hybridize(static_alloc=True, static_shape=True),
        lambda layer: layer.weight.set_data(nd.ones((WIDTH, WIDTH))),
        lambda layer: layer.initialize(mx.init.One(), force_reinit=True),
        lambda layer: layer.cast('float64') or layer.cast('float32'),
        lambda layer: setattr(layer, 'forward', lambda x: x * 7),
        lambda layer: setattr(layer, 'hybrid_forward', seven_times) or layer.hybridize(),
        lambda layer: layer.weight.reset_ctx(mx.cpu(0)),
    ],
)
@pytest.mark.parametrize('within', [False, True])
def test_changes_of_blocks_are_seen(change, within):
    layer, other = dense(), dense()
    for mine, its in zip(layer.collect_params().values(), other.collect_params().values()):
        its.set_data(mine.data())
    in_scope(lambda: twice(layer))
    if not within:
        change(layer)
        change(other)
    found = in_scope(lambda: twice(layer, change if within else None), 1)
    expected = twice(other, change if within else None)
    for mine, its in zip(found, expected):
        np.testing.assert_allclose(mine.asnumpy(), its.asnumpy(), rtol=1e-6)


def twice(block, change=None):
    """Two calls, and a change between them."""
    before = block(row())
    if change is not None:
        change(block)
    return [before, block(row(2))]


def test_classes_that_are_changed():
    class Layer(nn.Dense):
        pass

    layer = Layer(WIDTH, in_units=WIDTH)
    layer.initialize()
    layer.hybridize()
    in_scope(lambda: layer(row()))
    Layer.forward = lambda self, x: x * 7
    found = in_scope(lambda: layer(row()), 1)
    np.testing.assert_allclose(found.asnumpy(), 7 * row().asnumpy(), rtol=1e-6)


@pytest.mark.parametrize(
    'register', [nn.Dense.register_forward_hook, nn.Dense.register_forward_pre_hook]
)
def test_hooks_are_called(register):
    layer, called = dense(), []
    in_scope(lambda: layer(row()))
    hook = register(layer, lambda *_: called.append(1))
    in_scope(lambda: layer(row()), 1)
    assert called == [1]
    hook.detach()
    in_scope(lambda: layer(row()), 1)
    assert called == [1]


@pytest.mark.filterwarnings('ignore:register_op_hook')
def test_operators_are_watched():
    layer, names = dense(), []
    in_scope(lambda: layer(row()))
    layer.register_op_hook(lambda name, op, array: names.append(name))
    in_scope(lambda: layer(row()), 1).wait_to_read()
    assert names


def test_blocks_with_a_forward_of_their_own():
    """What their graphs give is fast, too, and theirs alone to return."""

    class Doubled(nn.Dense):
        def forward(self, x):
            return super().forward(x) * 2

    layer = Doubled(WIDTH, in_units=WIDTH)
    layer.initialize()
    layer.hybridize()
    assert_as_eager(lambda: layer(row()))


def test_sparse_results_and_several_outputs():
    sparse = nn.HybridLambda(lambda F, x: F.cast_storage(x, stype='row_sparse'))
    parts = nn.HybridLambda(lambda F, x: F.split(x, num_outputs=2))
    for block in (sparse, parts):
        block.hybridize()
    assert in_scope(lambda: sparse(row())).stype == 'row_sparse'
    assert_as_eager(lambda: parts(row()))


def test_gradients():
    layer, x = dense(), row()
    x.attach_grad()

    def gradients():
        with autograd.record():
            y = layer(x)
            loss = (y * y + nd.softmax(y, axis=-1)).sum()
        loss.backward()
        return [x.grad.asnumpy(), layer.weight.grad().asnumpy()]

    np.testing.assert_equal(in_scope(gradients), gradients())


def test_modes_of_dropout_are_those_of_the_call():
    net = nn.HybridSequential()
    net.add(dense(), nn.Dropout(0.5))
    net.hybridize()
    assert_as_eager(lambda: net(row()))


def test_arrays_that_a_recording_watches():
    layer, x = dense(), row()
    with edb.batching(compile_options=edb.CompileOptions(at_once=False)):
        waiting = layer(x)
    expected = layer(row()).asnumpy()
    found = in_scope(lambda: layer(x))
    layer.weight.set_data(nd.zeros((WIDTH, WIDTH)))
    np.testing.assert_array_equal(found.asnumpy(), expected)
    np.testing.assert_allclose(waiting.asnumpy(), expected, rtol=1e-6)


def test_operators():
    layer = dense()

    def run():
        y = layer(row())
        both = nd.concat(y, y, dim=0)
        return [
            y * 2 + 1,
            nd.split(both, num_outputs=2, axis=0),
            nd.split(both, num_outputs=1, axis=0),
            nd.sum(both, axis=(0, 1), keepdims=True),
            nd.slice_axis(both, axis=1, begin=1, end=None),
            nd.array([3]) + 1,
        ]

    assert_as_eager(run)
    results = in_scope(run)
    assert type(results[0]) is ComputedArray and type(results[-1]) is nd.NDArray
    assert isinstance(results[2], ComputedArray)


def test_errors_of_operators_are_those_of_mxnet():
    layer = dense()

    def messages(run):
        found = []
        for wrong in (
            lambda y: nd.dot(y, y),
            lambda y: nd.sum(y, axis='first'),
            lambda y: nd.broadcast_add(y, 3),
        ):
            try:
                run(lambda wrong=wrong: wrong(layer(row())))
            except Exception as error:
                found.append((type(error), str(error).splitlines()[-1]))
        return found

    in_scope(lambda: layer(row()))
    assert messages(lambda wrong: in_scope(wrong, 1)) == messages(lambda wrong: wrong())
    assert len(messages(lambda wrong: wrong())) == 3


def test_blocks_are_kept_by_nobody():
    layers = [dense()]
    in_scope(lambda: layers[0](row()))
    gone = weakref.ref(layers.pop())
    gc.collect()
    assert gone() is None
