"""What a scope finds out of a kind of call, later scopes know, for as long as it is so."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon

import gluon_edbatch as edb
from gluon_edbatch.record import forms
from gluon_edbatch.record.recording import Recording
from gluon_edbatch.testing import assert_matches_eager

FACTOR = 2.0


class Scaled(gluon.HybridBlock):
    """A layer whose calls read an attribute, a list and a global variable."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.scale, self.shifts = 1.0, [0.5]
        with self.name_scope():
            self.dense = gluon.nn.Dense(4, in_units=3)

    def hybrid_forward(self, F, x, y):
        """x (N, 3), y (N, 4)"""
        return self.dense(x) * self.scale * FACTOR + y + self.shifts[0]


class Model(edb.AutoBatchMixin, gluon.Block):
    """Calls with numbers, arrays, containers, ragged values and operators."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = gluon.nn.Embedding(10, 3)
            self.layer = Scaled()
            self.cell = gluon.rnn.LSTMCell(4, input_size=4)
            self.tree = edb.rnn.ChildSumTreeLSTMCell(4, input_size=4)

    def forward(self, sample):
        """(words, given)"""
        words, given = sample
        values = [self.layer(self.embed(word), given) for word in words]
        h, (_, c) = self.cell(values[0], [given, values[-1]])
        leaf = self.tree(h.tanh(), [])
        top, _ = self.tree(c, [leaf, (h, c)])
        rows = edb.concat(values)
        return top + rows.sum(axis=0, keepdims=True), rows.tanh()


def samples(seed, count=5):
    draw = np.random.RandomState(seed)
    return [
        (draw.randint(0, 10, draw.randint(1, 6)).tolist(), draw.rand(1, 4).astype('float32'))
        for _ in range(count)
    ]


@pytest.fixture
def net():
    """An initialised model."""
    mx.random.seed(3)
    model = Model()
    model.initialize(mx.init.Normal(0.5))
    return model


@pytest.fixture
def unknown(monkeypatch):
    """How many calls were of kinds that no scope knew."""
    met = []
    original = Recording.call_unknown

    def counted(self, callee, args):
        met.append(callee)
        return original(self, callee, args)

    monkeypatch.setattr(Recording, 'call_unknown', counted)
    return met


def batched(net, given):
    """The numbers of all results."""
    with edb.batching('agenda'):
        results = [net(sample) for sample in given]
    return [array.asnumpy() for pair in edb.forward(results) for array in pair]


def assert_as_eager(net, given):
    """In a scope of its own and in eager Gluon."""
    for found, sample in zip(np.array_split(np.arange(2 * len(given)), len(given)), given):
        expected = [array.asnumpy() for array in net(sample)]
        results = batched(net, given)
        for position, array in zip(found, expected):
            np.testing.assert_allclose(results[position], array, rtol=1e-5, atol=1e-6)


def test_later_scopes_know_all_kinds(net, unknown):
    for _ in range(3):  # decisions on lengths that differ are made meanwhile
        batched(net, samples(0))
    del unknown[:]
    batched(net, samples(0))
    assert not unknown, [(callee.block, callee.place) for callee in unknown]
    assert_as_eager(net, samples(0))


def test_gradients_of_later_scopes(net):
    for seed in (0, 0, 1):
        given = samples(seed)
        assert_matches_eager(net, given)


def change_attribute(net):
    net.layer.scale = 3.0


def change_list(net):
    net.layer.shifts[0] = -1.0


def change_global(net):
    globals()['FACTOR'] = 5.0


def set_parameter(net):
    net.layer.dense.weight.set_data(mx.nd.ones((4, 3)))


def initialize_again(net):
    net.initialize(mx.init.Normal(0.1), force_reinit=True)


def replace_child(net):
    net.layer.dense = gluon.nn.Dense(4, in_units=3, activation='tanh')
    net.layer.dense.initialize()


@pytest.mark.parametrize(
    'change',
    [
        change_attribute,
        change_list,
        change_global,
        set_parameter,
        initialize_again,
        replace_child,
    ],
)
def test_changes_between_scopes_are_seen(net, change, monkeypatch):
    monkeypatch.setitem(globals(), 'FACTOR', 2.0)
    given = samples(0)
    for _ in range(2):
        before = batched(net, given)
    change(net)
    assert_as_eager(net, given)
    assert not np.allclose(batched(net, given)[0], before[0])


def test_hook_between_scopes_is_seen(net):
    given = samples(0)
    for _ in range(2):
        batched(net, given)
    net.layer.dense.register_forward_hook(lambda block, args, out: None)
    with pytest.raises(edb.RecordError, match='forward hook'):
        batched(net, given)


def test_cast_between_scopes(net):
    layer = net.layer.dense
    value = np.ones((1, 3))
    for dtype in ('float32', 'float64', 'float32'):
        layer.cast(dtype)
        for _ in range(2):
            with edb.batching():
                result = layer(mx.nd.array(value, dtype=dtype))
            assert result.dtype == np.dtype(dtype) and result.asnumpy().dtype == np.dtype(dtype)


def test_parameter_changed_between_two_scopes_that_wait(net):
    layer, value = net.layer.dense, np.ones((1, 3), 'float32')
    results = []
    for _ in range(3):
        with edb.batching():
            results.append(layer(value))
        layer.bias.set_data(layer.bias.data() + 1)
    first, second, third = [result.asnumpy() for result in results]
    np.testing.assert_allclose([second - first, third - second], 1, rtol=1e-6)


def test_changed_within_a_scope(net):
    layer, value = net.layer, np.ones((1, 3), 'float32')
    for _ in range(2):
        with edb.batching():
            one = layer(value, np.zeros((1, 4), 'float32'))
            layer.shifts[0] += 1
            other = layer(value, np.zeros((1, 4), 'float32'))
        np.testing.assert_allclose((other - one).asnumpy(), 1, rtol=1e-5)


def test_modes_and_options_have_kinds_of_their_own(net):
    dropout, value = gluon.nn.Dropout(0.5), np.ones((1, 100), 'float32')
    for _ in range(2):
        with edb.batching():
            same = dropout(net.layer.dense(value[:, :3]))
        with autograd.record(), edb.batching():
            half = dropout(mx.nd.ones((1, 100)))
        assert (half.asnumpy() == 0).any() and (same.asnumpy() != 0).all()
    for options in (edb.CompileOptions(), edb.CompileOptions.none()):
        for _ in range(2):
            with edb.batching(compile_options=options) as scope:
                result = net.layer.dense(value[:, :3])
            edb.forward(result)
            (form,) = scope._recording.forms
            assert form.node_type.options == options


def test_values_of_an_outer_scope_are_given(net):
    layer, value = net.layer.dense, np.ones((1, 3), 'float32')
    for _ in range(2):
        with edb.batching():
            first = mx.nd.slice_axis(layer(value), axis=1, begin=0, end=3)
            second = layer(first)
            with edb.batching():
                inner = layer(first)
        np.testing.assert_allclose(inner.asnumpy(), second.asnumpy(), rtol=1e-5)


def test_class_that_gets_a_call_of_its_own_in_a_scope():
    class Plain(gluon.nn.Dense):
        pass

    layer, value = Plain(2, in_units=3), np.ones((1, 3), 'float32')
    layer.initialize()
    with edb.batching():
        one = layer(value)
        Plain.__call__ = lambda self, x: 'its own'
        assert layer(value) == 'its own'
        del Plain.__call__
        other = layer(value)
    np.testing.assert_array_equal(one.asnumpy(), other.asnumpy())
    assert layer(mx.nd.array(value)).shape == (1, 2)


def test_numbers_that_vary_do_so_in_later_scopes(net):
    values = [np.full((1, 3), number, 'float32') for number in range(6)]
    for _ in range(3):
        with edb.batching() as scope:
            results = [
                mx.nd.slice_axis(net.layer.dense(value), axis=1, begin=i % 4, end=i % 4 + 1)
                for i, value in enumerate(values)
            ]
        found = [result.asnumpy().item() for result in results]
        expected = [
            net.layer.dense(mx.nd.array(value)).asnumpy()[0, i % 4]
            for i, value in enumerate(values)
        ]
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        assert scope.report().batches <= 3


def test_operators_that_refuse_ragged_values_are_asked_once(monkeypatch):
    """The operator gets a ragged value as one array, and is traced in the first scope only."""

    def attend(matrix):
        memory = edb.ragged([matrix[i : i + 1] for i in range(len(matrix))])
        weights = edb.nd.softmax(mx.nd.ones((1, 1, len(matrix))))
        return edb.nd.batch_dot(weights, memory)

    samples = [np.random.randn(length, 4).astype('f') for length in (2, 3, 3, 5)]
    made, make_type = [], forms.make_type
    monkeypatch.setattr(
        forms, 'make_type', lambda *args, **kw: made.append(args) or make_type(*args, **kw)
    )
    for number in range(3):
        with edb.batching() as scope:
            values = [attend(matrix) for matrix in samples]
        edb.forward(values)
        assert bool(made) == (number == 0)
        made.clear()
    assert scope.report().batches <= 12
    for value, matrix in zip(values, samples):
        np.testing.assert_allclose(value.asnumpy()[0], matrix.mean(0, keepdims=True), rtol=1e-5)
    assert_matches_eager(attend, samples, blocks=[])


def attention(query, memory):
    """Attention to a matrix (k, 4) by operators outside of blocks."""
    memory = mx.nd.array(memory)
    weights = edb.nd.softmax(edb.nd.dot(query, memory, transpose_b=True))
    return edb.nd.dot(weights, memory)


def test_later_scopes_know_how_operators_are_fused(unknown, monkeypatch):
    """For lengths that were met, no form is made, and none of MXNet's functions runs."""
    layer = gluon.nn.Dense(4, in_units=4)
    layer.initialize()
    draw = np.random.RandomState(0)
    given = [draw.rand(length, 4).astype('float32') for length in (3, 5, 2, 5)]
    made, fused = [], []
    new_form, fused_operation = forms.Forms.new_form, Recording.fused_operation
    monkeypatch.setattr(forms.Forms, 'new_form', lambda *args: made.append(args) or new_form(*args))
    monkeypatch.setattr(
        Recording, 'fused_operation', lambda *args: fused.append(args) or fused_operation(*args)
    )
    for place in range(4):
        if place == 3:
            del made[:], unknown[:], fused[:]
        with edb.batching('agenda'):
            results = [attention(layer(memory[-1:]), memory) for memory in given]
    assert (made, unknown, fused) == ([], [], [])
    for result, memory in zip(results, given):
        expected = attention(layer(mx.nd.array(memory[-1:])), memory)
        np.testing.assert_allclose(result.asnumpy(), expected.asnumpy(), rtol=1e-5)
