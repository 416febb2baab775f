"""Library encoders and attention cells on whole sentences of different lengths."""

import contextlib
from dataclasses import replace

import mxnet as mx
import numpy as np
import pytest
from gluonnlp.model import attention_cell
from gluonnlp.model.bert import BERTEncoder
from gluonnlp.model.transformer import TransformerEncoder
from mxnet import autograd, gluon

import gluon_edbatch as edb
from gluon_edbatch.ops import axis_rules as padding
from gluon_edbatch.ops.axis_rules import At
from gluon_edbatch.ops.registry import OPS
from gluon_edbatch.subgraph.padded import bucket_of
from gluon_edbatch.testing import assert_matches_eager
from tests.support.cases import in_one_test
from tests.support.tiers import sampled

UNITS, HEADS = 8, 2
LENGTHS = (3, 4, 3, 3, 4, 1)


def encoder(kind):
    cls = {'transformer': TransformerEncoder, 'bert': BERTEncoder}[kind]
    net = cls(units=UNITS, hidden_size=12, num_layers=2, num_heads=HEADS, max_length=9, dropout=0.0)
    net.initialize(mx.init.Normal(0.3))
    return net


def sentences(axis, lengths=LENGTHS, seed=0):
    """Arrays (1, length, UNITS) with gradients; the length on another axis if asked."""
    draw = np.random.RandomState(seed)
    arrays = [
        mx.nd.array(np.moveaxis(draw.normal(size=(1, length, UNITS)), 1, axis))
        for length in lengths
    ]
    for array in arrays:
        array.attach_grad()
    return arrays


def batches_of(scope, name):
    return sum(entry.batches for entry in scope.report().types if entry.name.startswith(name))


MANY = (5, 6, 9, 11, 12, 7, 1, 10, 2)
NATIVE = pytest.mark.skipif(not edb.native_available(), reason='no native operators')
BACKENDS = [False, pytest.param(True, marks=NATIVE)]


@pytest.mark.parametrize(
    'kind, valid',
    sampled(5, ['transformer', 'bert'], ['no lengths', 'lengths', 'shorter lengths']),
)
def test_encoders_batch_by_length(kind, valid):
    axis = 1 if kind == 'transformer' else 0
    net = encoder(kind)
    shorter = {'no lengths': None, 'lengths': 0, 'shorter lengths': 1}[valid]

    def model(x):
        lengths = None
        if shorter is not None:
            lengths = mx.nd.array([max(1, x.shape[axis] - shorter)])
        return net(x, valid_length=lengths)[0]

    samples = sentences(axis)
    # Attention of BERT's exists in single precision only, where the gradient of the keys' bias,
    # which is zero, is what rounding leaves.
    assert_matches_eager(model, samples, blocks=[net], schedulers=['fsm'], atol=1e-5)
    with edb.batching() as scope:
        values = [model(x) for x in samples]
    edb.forward(values)
    assert batches_of(scope, type(net).__name__) == 1


CELLS = {
    'additive': lambda: attention_cell.MLPAttentionCell(UNITS),
    'dot': lambda: attention_cell.DotProductAttentionCell(scaled=True),
    'heads': lambda: attention_cell.MultiHeadAttentionCell(
        attention_cell.DotProductAttentionCell(scaled=True), UNITS, UNITS, UNITS, HEADS
    ),
}


@pytest.mark.parametrize('masked', [False, True])
@pytest.mark.parametrize('name', CELLS)
def test_attention_cells_batch_by_length(name, masked):
    cell = CELLS[name]()
    cell.initialize(mx.init.Normal(0.3))

    def model(sample):
        query, memory = sample
        mask = None
        if masked:
            mask = mx.nd.array(np.arange(memory.shape[1]) < 2).reshape((1, 1, -1))
        return cell(query, memory, memory, mask)

    samples = list(zip(sentences(1, [1] * len(LENGTHS), seed=1), sentences(1)))
    assert_matches_eager(model, samples, blocks=[cell], schedulers=['fsm'])
    with edb.batching() as scope:
        values = [model(sample)[0] for sample in samples]
    edb.forward(values)
    assert batches_of(scope, type(cell).__name__) == 1


class Positions(gluon.HybridBlock):
    """Adds to each element how far it is along an axis."""

    def __init__(self, axis):
        super().__init__()
        self.axis = axis

    def hybrid_forward(self, F, x):
        steps = F.contrib.arange_like(x, axis=self.axis, start=1)
        return F.broadcast_add(x, F.reshape(steps, shape=(-1, 1) if self.axis == 1 else (-1, 1, 1)))


@pytest.mark.parametrize('rows', [1, 2])
@pytest.mark.parametrize('axis', [0, 1])
def test_positions_along_an_axis(axis, rows):
    net = Positions(axis)
    samples = [mx.nd.random.normal(shape=(rows, 3, 2)) for _ in range(4)]
    assert_matches_eager(net, samples)
    with edb.batching() as scope:
        values = [net(x) for x in samples]
    edb.forward(values)
    assert batches_of(scope, 'Positions') == 1


def test_positions_of_all_elements():
    class All(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x + F.contrib.arange_like(x)

    assert_matches_eager(All(), [mx.nd.random.normal(shape=(2, 3)) for _ in range(4)])


def by_length(model, samples, name, **options):
    """Batches of the blocks of a name, in the second scope of a process: the first learns that
    arguments differ in their lengths."""
    for _ in range(2):
        with edb.batching(compile_options=edb.CompileOptions(**options)) as scope:
            values = [model(x) for x in samples]
        edb.forward([each[0] if type(each) is tuple else each for each in values])
    return batches_of(scope, name)


@pytest.mark.parametrize(
    'kind, valid',
    sampled(2, ['transformer', 'bert'], ['no lengths', 'lengths', 'shorter lengths']),
)
def test_encoders_have_one_signature_for_all_lengths(kind, valid):
    net, axis = encoder(kind), {'transformer': 1, 'bert': 0}[kind]
    shorter = {'no lengths': None, 'lengths': 0, 'shorter lengths': 1}[valid]

    def model(x):
        lengths = None
        if shorter is not None:
            lengths = mx.nd.array([max(1, x.shape[axis] - shorter)])
        return net(x, valid_length=lengths)[0]

    samples = sentences(axis, MANY)
    assert_matches_eager(model, samples, blocks=[net], schedulers=['fsm', 'agenda'], atol=1e-5)
    name = type(net).__name__
    assert by_length(model, samples, name, native=False) == 1
    assert by_length(model, samples, name, buckets=False) == len(MANY)


@pytest.mark.parametrize('masked', [False, True])
@pytest.mark.parametrize('name', CELLS)
def test_attention_over_memories_of_many_lengths(name, masked):
    cell = CELLS[name]()
    cell.initialize(mx.init.Normal(0.3))

    def model(sample):
        query, memory = sample
        mask = None
        if masked:
            mask = mx.nd.array([[np.arange(memory.shape[1]) < 2] * 2])
        return cell(query, memory, memory, mask)

    queries = sentences(1, [2] * len(MANY), seed=1)
    samples = list(zip(queries, sentences(1, MANY)))
    assert_matches_eager(model, samples, blocks=[cell], schedulers=['fsm'], atol=1e-5)
    assert by_length(model, samples, type(cell).__name__) == 1


def test_attention_of_a_sentence_to_another():
    cell = CELLS['heads']()
    cell.initialize(mx.init.Normal(0.3))
    samples = list(zip(sentences(1, (5, 6, 6, 5), seed=1), sentences(1, (9, 12, 11, 10))))

    def model(sample):
        return cell(sample[0], sample[1], sample[1])

    assert_matches_eager(model, samples, blocks=[cell], schedulers=['fsm'], atol=1e-5)
    assert by_length(model, samples, type(cell).__name__) == 1


class Classifier(gluon.Block):
    """Looks words up, encodes them, and makes one row of them, by plain operators."""

    def __init__(self, pooled):
        super().__init__()
        with self.name_scope():
            self.embed = gluon.nn.Embedding(20, UNITS)
            self.encoder = encoder('transformer')
            self.out = gluon.nn.Dense(3, in_units=UNITS)
        self.pooled = pooled

    def forward(self, ids):
        return self.out(self.pooled(self.encoder(self.embed(ids))[0]))


POOLED = {
    'mean': lambda y: y.mean(axis=1),
    'max': lambda y: y.max(axis=1),
    'first': lambda y: y.slice_axis(axis=1, begin=0, end=1).reshape((1, -1)),
    'squares': lambda y: (y * y + 1).sum(axis=1),
    'norms': lambda y: (y / y.norm(axis=2, keepdims=True)).mean(axis=1),
}


@pytest.mark.parametrize('name, given', sampled(3, POOLED, [mx.nd.array, np.array]))
def test_what_follows_is_packed_too(name, given):
    net = Classifier(POOLED[name])
    net.initialize(mx.init.Normal(0.3), force_reinit=True)
    draw = np.random.RandomState(0)
    samples = [given(draw.randint(0, 20, (1, length)).astype('float32')) for length in MANY]
    assert_matches_eager(net, samples, schedulers=['fsm'], atol=1e-5)
    by_length(net, samples, '')
    with edb.batching(compile_options=edb.CompileOptions(native=False)) as scope:
        values = [net(x) for x in samples]
    edb.forward(values)
    names = [entry.name for entry in scope.report().types]
    assert sum(each.startswith('Transformer') for each in names) == 1
    assert len(names) <= 8


class Along(gluon.HybridBlock):
    """What padding would change, among operators that it does not change."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def hybrid_forward(self, F, x):
        x = F.tanh(x * 2 + 1) * 3
        return F.tanh(F.sigmoid(self.function(F, x)) * 2 - 1)


CHANGED = {
    'every other': lambda F, x: F.slice(x, begin=(0, 0), end=(1, None), step=(1, 2)),
    'flat': lambda F, x: F.mean(F.Reshape(x, shape=(0, -1)), axis=1, keepdims=True),
    'outer': lambda F, x: F.sum(F.Reshape(x, shape=(0, -3)), axis=1, keepdims=True),
}


@pytest.mark.parametrize('name', CHANGED)
def test_what_padding_would_change_is_not_padded(name):
    net = Along(CHANGED[name])
    samples = sentences(1, MANY)
    assert_matches_eager(net, samples, schedulers=['fsm'], atol=1e-5)
    assert by_length(net, samples, 'Along') == len(MANY)


UNCHANGED = {
    'repeated': lambda F, x: F.max(F.repeat(x, 2, axis=1), axis=1, keepdims=True),
    'reverse': lambda F, x: F.reverse(x, axis=1),
    'convolution': lambda F, x: F.Convolution(
        F.transpose(x, axes=(0, 2, 1)),
        F.ones((1, UNITS, 3)),
        kernel=(3,),
        pad=(1,),
        num_filter=1,
        no_bias=True,
    ),
    'cumsum': lambda F, x: F.cumsum(x, axis=1),
    'last': lambda F, x: F.slice_axis(x, axis=1, begin=-1, end=None),
    'mean': lambda F, x: F.mean(x, axis=1, keepdims=True),
    'softmax': lambda F, x: F.softmax(x, axis=1),
    'softmax without an end': lambda F, x: F.log_softmax(x, axis=1),
    'scores': lambda F, x: F.softmax(F.batch_dot(x, x, transpose_b=True), axis=1),
    'both': lambda F, x: F.mean(F.batch_dot(x, x, transpose_b=True), axis=(1, 2), keepdims=True),
    'two': lambda F, x: F.sum(F.softmax(F.batch_dot(x, x, transpose_b=True)), axis=1),
    'positions': lambda F, x: F.broadcast_mul(
        x, F.reshape(F.contrib.arange_like(x, axis=1), shape=(1, -1, 1))
    ),
}


@in_one_test('name', UNCHANGED)
def test_what_padding_does_not_change(name):
    net = Along(UNCHANGED[name])
    samples = sentences(1, MANY)
    assert_matches_eager(net, samples, schedulers=['fsm'], atol=1e-5)
    assert by_length(net, samples, 'Along', native=False) == 1


@pytest.mark.parametrize(
    'op, rule',
    [('softmax', padding.finite), ('sum', lambda call: call.result.axis and At.FINITE)],
)
def test_a_wrong_mask_is_seen(op, rule, monkeypatch):
    monkeypatch.setitem(OPS, op, replace(OPS[op], axis=rule))
    net = Along(UNCHANGED['two'])
    with pytest.raises((AssertionError, edb.RowDependenceError)):
        assert_matches_eager(net, sentences(1, MANY), schedulers=['fsm'])


def test_lengths_that_must_be_equal():
    class Meeting(gluon.HybridBlock):
        def hybrid_forward(self, F, x, y):
            return F.tanh(F.sigmoid(x) + F.tanh(y) * 2) * 2

    net = Meeting()
    samples = list(zip(sentences(1, MANY), sentences(1, MANY, seed=1)))
    assert_matches_eager(lambda sample: net(*sample), samples)
    assert by_length(lambda sample: net(*sample), samples, 'Meeting', native=False) == 1
    with edb.batching(), pytest.raises(edb.RecordError, match='does not accept'):
        net(samples[0][0], samples[1][1])


def test_several_rows_are_not_padded():
    net = Along(UNCHANGED['softmax'])
    samples = [mx.nd.random.normal(shape=(2, length, UNITS)) for length in MANY]
    assert_matches_eager(net, samples)
    assert by_length(net, samples, 'Along') == len(MANY)


def test_rows_are_not_padded():
    net = Along(lambda F, x: x)
    samples = [mx.nd.random.normal(shape=(length, UNITS)) for length in MANY]
    assert_matches_eager(net, samples)
    assert by_length(net, samples, 'Along') == 1


@in_one_test('length', range(1, 200))
def test_at_most_a_half_is_padding(length):
    assert length <= bucket_of(length) <= 1.5 * length
    assert bucket_of(bucket_of(length)) == bucket_of(length)


@pytest.mark.parametrize('scoped', [1, 2])
def test_what_packed_calls_return_can_be_written_to_and_marked(scoped):
    net = encoder('transformer')
    samples = sentences(1, MANY)

    def results(scope):
        marked, totals, written = [], [], []
        with autograd.record():
            with scope:
                for x in samples:
                    y = net(x)[0]
                    y.attach_grad()
                    marked.append(y)
                    totals.append((y * y).mean(axis=1).sum())
                    with autograd.pause():
                        z = net(x)[0]
                        z[:, 0:1] = 3.0
                        written.append(z.max(axis=1))
            total = mx.nd.add_n(*[total.reshape((1,)) for total in totals])
        total.backward()
        values = [total, *written, *[each.grad for each in marked + samples]]
        return [value.asnumpy() for value in values]

    expected = results(contextlib.nullcontext())
    for _ in range(scoped):
        found = results(edb.batching())
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, atol=1e-5, rtol=1e-5)


def test_what_is_reused_may_become_packed():
    net = Classifier(POOLED['mean'])
    net.initialize(mx.init.Normal(0.3), force_reinit=True)
    draw = np.random.RandomState(0)
    samples = [draw.randint(0, 20, (1, length)).astype('float32') for length in MANY]
    expected = [net(mx.nd.array(x)).asnumpy() for x in samples]
    reuse = edb.Reuse(check_every=2)
    for _ in range(4):
        with edb.batching():
            values = [reuse(number, net, x) for number, x in enumerate(samples)]
        for value, wanted in zip(values, expected):
            np.testing.assert_allclose(value.asnumpy(), wanted, atol=1e-5)
    assert reuse.checked > len(MANY)
