"""Passes: the same results and gradients, by fewer or faster operators."""

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given, settings
from mxnet import autograd, gluon

import gluon_edbatch as edb
from gluon_edbatch.subgraph import passes
from gluon_edbatch.subgraph.ir import Subgraph
from gluon_edbatch.subgraph.options import CompileOptions
from gluon_edbatch.subgraph.passes import PASSES, apply_passes
from gluon_edbatch.subgraph.passes.faster_operators import operators
from gluon_edbatch.subgraph.passes.mended_gradients import gradients
from gluon_edbatch.testing import assert_matches_eager
from tests.support.cases import in_one_test
from tests.support.models import started
from tests.support.random_blocks import PARAMETERS, H, assert_unchanged, blocks, shapes_of

F = mx.sym
ALL = CompileOptions()
X, Y = F.var('edb_input0', dtype='float32'), F.var('edb_input1', dtype='float32')
ANY = F.var('edb_input0')  # of a dtype that is not known
W, V, U, BIAS, ROW = (
    F.var(name, shape=shape, dtype='float32') for name, shape in PARAMETERS.items()
)


def ops(symbol):
    """Names of operators, sorted."""
    return sorted(Subgraph(symbol).operators)


def with_fix(one):
    """A pass and the one that always runs."""
    return lambda symbol, shapes: gradients(one(symbol, shapes), shapes)


@pytest.mark.parametrize('one', PASSES, ids=lambda one: one.option or one.apply.__name__)
@settings(max_examples=40)
@given(symbol=blocks())
def test_random_blocks(one, symbol):
    assert_unchanged(with_fix(one.apply), symbol)


@settings(max_examples=40)
@given(symbol=blocks(16))
def test_random_blocks_by_all_passes(symbol):
    assert_unchanged(
        lambda symbol, shapes: apply_passes(symbol, shapes, CompileOptions(), 'cpu')[0], symbol
    )


@in_one_test(
    'one, before, after',
    [
        (operators, F.tanh(X) * F.sigmoid(X), ['Activation', 'Activation', 'elemwise_mul']),
        (operators, F.relu(F.softsign(X)), None),
        (operators, X**2, ['square']),
        (operators, X**3, None),
        (operators, F.Group(list(F.split(X, num_outputs=4, axis=1))), ['slice_axis'] * 4),
        (operators, F.Group(list(F.split(X, num_outputs=4, axis=1, squeeze_axis=True))), None),
        (operators, F.Group(list(F.split_v2(X, (1, 2), axis=-1))), ['slice_axis'] * 3),
        (operators, F.dot(X, W, transpose_b=True), ['FullyConnected']),
        (operators, F.dot(X, W), ['FullyConnected', 'transpose']),
        (operators, F.dot(X, U), ['FullyConnected', 'transpose']),
        (operators, F.dot(X, Y, transpose_a=True), None),
        (operators, F.broadcast_add(F.dot(X, W), ROW), ['FullyConnected', 'Reshape', 'transpose']),
        (operators, F.broadcast_add(BIAS, F.dot(X, W, transpose_b=True)), ['FullyConnected']),
        (
            operators,
            F.broadcast_add(F.dot(X, W, transpose_b=True), Y),
            ['FullyConnected', 'broadcast_add'],
        ),
        (operators, F.tanh(ANY), None),
        (gradients, X + Y, ['add_n']),
        (gradients, F.tanh(X) + F.tanh(Y), None),
    ],
)
def test_what_becomes_what(one, before, after):
    symbol = before if len(before.list_outputs()) > 1 else F.Group([before])
    graph = Subgraph(symbol)
    found = one(graph, shapes_of(symbol))
    if after is None:
        assert found is graph
    else:
        assert sorted(found.operators) == after
    if 'Dropout' not in ops(symbol):
        assert_unchanged(with_fix(one), symbol)


def test_numbers_of_activations():
    x = mx.nd.array(np.linspace(-12, 12, 4001).reshape(1, -1))
    for name in ('tanh', 'sigmoid'):
        np.testing.assert_allclose(
            mx.nd.Activation(x, act_type=name).asnumpy(),
            getattr(mx.nd, name)(x).asnumpy(),
            atol=1e-6,
        )


def test_passes_for_a_device_only():
    graph = Subgraph(F.Group([F.tanh(X)]))
    shapes = shapes_of(graph.symbol)
    changed, names = apply_passes(graph, shapes, CompileOptions(), 'cpu')
    assert names == ['operators'] and changed.operators == ['Activation']
    assert apply_passes(graph, shapes, CompileOptions(), 'gpu') == (graph, [])


@pytest.mark.parametrize('name', [one.option for one in PASSES if one.option])
def test_passes_are_switched_by_their_names(name):
    twice = F.broadcast_add(F.tanh(X), F.tanh(X)) * 2 * 1
    symbol = F.Group([twice + F.dot(X, V) + F.sum(F.var('edb_input2'), axis=1)])
    only = CompileOptions.none().but(**{name: True})
    graph, shapes = Subgraph(symbol), shapes_of(symbol)
    assert apply_passes(graph, shapes, only, 'cpu')[1] == [name]
    assert name not in apply_passes(graph, shapes, CompileOptions().but(**{name: False}), 'cpu')[1]
    assert apply_passes(graph, shapes, CompileOptions.none(), 'cpu')[1] == []


def test_equal_graphs_pass_once(monkeypatch):
    monkeypatch.setattr(passes, '_passed', {})  # others are not to find what no pass saw
    applied = []
    monkeypatch.setattr(
        passes, 'PASSES', (PASSES[0]._replace(apply=lambda *args: applied.append(0) or args[0]),)
    )

    def passed(symbol, dtype='float32', rows=2, options=ALL):
        before = len(applied)
        graph, _ = apply_passes(
            Subgraph(symbol), {'edb_input0': (rows, 4)}, options, 'cpu', {'edb_input0': dtype}
        )
        assert graph.operators == ['_mul_scalar']
        return graph.nodes[1].attrs['scalar'], len(applied) > before

    assert passed(X * 2) == ('2', True)
    assert passed(X * 2) == ('2', False)  # an operator with another name
    assert passed(X * 3) == ('3', True)
    assert passed(X * 2, dtype='float64') == ('2', True)
    assert passed(X * 2, rows=3) == ('2', True)
    assert passed(X * 2, options=CompileOptions().but(hoisting=False)) == ('2', True)


def test_graphs_with_graphs_inside_are_not_told_apart_by_their_operators():
    def loop(factor):
        outputs, _ = F.contrib.foreach(lambda x, state: (x * factor + state, x), X, Y)
        return Subgraph(outputs)

    for factor in (2, 3):
        shapes = {'edb_input0': (3, 4), 'edb_input1': (4,)}
        dtypes = dict.fromkeys(shapes, 'float32')
        graph, _ = apply_passes(loop(factor), shapes, CompileOptions(), 'cpu', dtypes)
        (body,) = [node.bodies[0] for node in graph.nodes if node.bodies]
        assert [node.attrs['scalar'] for node in body.nodes if 'scalar' in node.attrs] == [
            str(factor)
        ]


def test_every_pass_has_an_option():
    assert {one.option for one in PASSES} - {None} <= set(CompileOptions.names())
    assert [one.apply for one in PASSES if one.option is None] == [gradients]
    assert PASSES[-1].apply is gradients and H == 4


@pytest.mark.parametrize(
    'op',
    [
        lambda F, w: F.clip(w, -2, 2),
        lambda F, w: F.mean(w, axis=0, keepdims=True),
        lambda F, w: F.reverse(w, axis=0),
        lambda F, w: F.split_v2(w, 2, axis=0)[1],
    ],
)
def test_gradients_of_several_batches_add_up(op):
    """The parameter is read by an operator for which MXNet ignores ``grad_req='add'``."""

    class Scaled(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.scale = self.params.get('scale', shape=(2, 3), init=mx.init.Normal(1))

        def hybrid_forward(self, F, x, scale):
            return F.tanh(x) * F.sum(
                F.broadcast_mul(F.expand_dims(x, 1), F.expand_dims(op(F, scale), 0)), axis=1
            )

    block = started(Scaled())

    def run(count):
        x = mx.nd.ones((1, 3))
        for _ in range(count):
            x = block(x)
        return x

    assert_matches_eager(run, [1, 4, 2], blocks=[block], schedulers=['agenda'])


@pytest.mark.parametrize('dtype', ['float16', 'float32', 'float64', 'int32'])
def test_operators_on_values_of_all_types(dtype):
    """Blocks and operators without parameters get their types from their arguments."""
    array = mx.nd.array([[-2, 0, 1, 3]], dtype=dtype)
    outer = edb.nd.tanh

    def run(x):
        middle = edb.nd.reshape(x, shape=(2, 2))
        return (
            (outer(x) * 3 * 2 + 0).sum(axis=1),
            x * 2 / 3,
            (x**2).clip(0, 4),
            middle.sum(axis=0),
            middle * x[:, :2],
        )

    with edb.batching('agenda', compile_options=edb.CompileOptions(native=False)) as scope:
        found = [run(array) for _ in range(2)]
    for values in edb.forward(found):
        for value, expected in zip(values, run(array)):
            np.testing.assert_allclose(value.asnumpy(), expected.asnumpy(), rtol=1e-3)
    (tanh,) = [kind for kind in scope.report().types if kind.name.startswith('tanh')]
    assert ('operators' in tanh.passes) == (dtype != 'int32')


@pytest.mark.parametrize('transposed', [False, True])
@pytest.mark.parametrize('frozen', ['weight', 'bias', ''])
def test_gradients_of_a_bias_that_became_part_of_a_product(transposed, frozen):
    """MXNet computes none for the bias of a product whose weight needs none."""

    class Affine(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.weight = self.params.get('weight', shape=(3, 3))
                self.bias = self.params.get('bias', shape=(1, 3), init=mx.init.Normal(1))

        def hybrid_forward(self, F, x, weight, bias):
            return F.broadcast_add(F.dot(x, weight, transpose_b=transposed), bias)

    block = started(Affine())
    for name in [frozen] if frozen else []:
        getattr(block, name).grad_req = 'null'
    samples = [mx.nd.random.normal(shape=(1, 3)) for _ in range(3)]
    for sample in samples[1:]:
        sample.attach_grad()
    assert_matches_eager(
        lambda x: block(block(x) * 2), samples, blocks=[block], schedulers=['agenda', 'depth']
    )


def test_gradients_that_mxnet_does_not_add():
    """`amp_cast` to the type that there is leaves them out."""

    def gradients(call):
        xs = [mx.nd.ones((2, 2)) * number for number in range(4)]
        for x in xs:
            x.attach_grad()
        with autograd.record():
            results = call(xs)
        autograd.backward(results[1:3])
        return [x.grad.asnumpy() for x in xs]

    def cast(x):
        return mx.nd.amp_cast(x, dtype='float32')

    def batched(xs):
        with edb.batching('agenda'):
            return edb.forward([cast(edb.nd.identity(x)) for x in xs])

    np.testing.assert_array_equal(gradients(batched), gradients(lambda xs: [cast(x) for x in xs]))


def test_axis_of_a_split_that_names_none():
    """MXNet's own default is 1, though its Python function gives 0."""

    class Halves(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            first, second = F._internal._split_v2(x, indices=(0,), sections=2)
            return F.tanh(first) * second

    assert_matches_eager(Halves(), [mx.nd.random.normal(shape=(3, 4)) for _ in range(3)])


def test_sums_of_images_with_one_that_all_calls_share():
    shared = mx.nd.ones((1, 1, 2, 2))
    xs = [mx.nd.full((1, 1, 2, 2), number) for number in range(3)]

    def scaled(x):
        return mx.nd.UpSampling(
            x, shared, scale=2, sample_type='nearest', num_args=2, multi_input_mode='sum'
        )

    with edb.batching('agenda'):
        found = [scaled(edb.nd.identity(x)) for x in xs]
    for value, x in zip(edb.forward(found), xs):
        np.testing.assert_array_equal(value.asnumpy(), scaled(x).asnumpy())
