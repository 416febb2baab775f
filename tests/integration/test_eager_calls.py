"""Large calls run eagerly, and all calls could."""

from contextlib import nullcontext
from types import SimpleNamespace

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd

import gluon_edbatch as edb
from gluon_edbatch.execute import evaluate
from gluon_edbatch.execute.eager import EagerCalls
from gluon_edbatch.execute.executable import executable, may_run_eagerly
from gluon_edbatch.testing import assert_matches_eager
from tests.support.models import TreeLSTM, random_trees, started

TREES = random_trees(4)


@pytest.fixture
def always(monkeypatch):
    """Let everything run eagerly that may."""
    monkeypatch.setattr(
        evaluate, 'is_faster_eagerly', lambda kind, *_: executable(kind).may_run_eagerly
    )


def evaluated(layer, count=2, width=4, **options):
    with edb.batching(compile_options=edb.CompileOptions().but(**options)) as scope:
        values = [layer(nd.full((1, width), i)) for i in range(count)]
    edb.forward(values)
    return scope


def dense(width=4, heavy=False):
    layer = gluon.nn.Dense(1 << 18 if heavy else 3, in_units=width)
    layer.initialize()
    return layer


# --- results -------------------------------------------------------------------------------------


class Pieces(gluon.Block):
    """Operators, numbers, arrays, ragged arguments, two outputs."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.cell = gluon.rnn.LSTMCell(6, input_size=5)
            self.out = gluon.nn.Dense(3, in_units=6)

    def forward(self, xs):
        states = self.cell.begin_state(batch_size=1)
        outputs = []
        for x in xs:
            h, states = self.cell(x * 0.5, states)
            outputs.append(h)
        several = edb.concat(outputs[:2] or outputs)
        return self.out(h + 1.25), several.sum(axis=0), edb.add_n(outputs)


@pytest.mark.parametrize('native', [False, True])
def test_trees_match_eager(always, native):
    with edb.compile_options(native=native):
        assert_matches_eager(started(TreeLSTM()), TREES, schedulers=['agenda'])


@pytest.mark.parametrize('native', [False, True])
def test_sequences_match_eager(always, native):
    generator = np.random.RandomState(0)
    net = started(Pieces())
    samples = [
        [nd.array(generator.uniform(-1, 1, (1, 5))) for _ in range(length)] for length in (1, 3, 2)
    ]
    for sample in samples:
        sample[0].attach_grad()
    with edb.compile_options(native=native):
        assert_matches_eager(net, samples, schedulers=['agenda'], hybridized=[False])


def test_inputs_with_gradients_get_them(always):
    layer, large = dense(8), nd.ones((1 << 14, 8))
    large.attach_grad()
    with autograd.record():
        with edb.batching() as scope:
            value = layer(large)
        value.sum().backward()
    assert 'at_once' in str(scope.report())
    weight = layer.weight.data().asnumpy()
    np.testing.assert_allclose(large.grad.asnumpy()[5], weight.sum(axis=0), rtol=1e-5)


def test_results_feed_batches(monkeypatch):
    """Large calls run at once, and the rest of the evaluation reads what they gave."""
    monkeypatch.setattr(
        evaluate, 'is_faster_eagerly', lambda kind, *_: kind.outputs[0].row_shape == (300,)
    )
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(300, in_units=4), gluon.nn.Dense(3, in_units=300))
    net.initialize(mx.init.Xavier())
    samples = [nd.full((1, 4), i / 8) for i in range(5)]
    assert_matches_eager(lambda x: net[1](net[0](x)), samples, blocks=[net], schedulers=['agenda'])
    with autograd.record(), edb.batching() as scope:
        values = [net[1](net[0](x.copy())) for x in samples]  # eager Gluon taped the others
    edb.forward(values)
    notes = {kind.name: (kind.note, kind.batches) for kind in scope.report().types}
    assert notes['Dense(dense0)[4]'.replace('dense0', net[0].name)][1] == 5
    assert notes['Dense(dense0)[300]'.replace('dense0', net[1].name)] == ('', 1)


@pytest.mark.parametrize('changed', ['input', 'weight'])
@pytest.mark.parametrize('recording', [False, True])
def test_what_changed_since_is_used_as_it_was(always, recording, changed):
    layer, x = dense(), nd.ones((1, 4))
    x.attach_grad()
    expected, weight = layer(x).asnumpy(), layer.weight.data().asnumpy()
    with autograd.record() if recording else nullcontext():
        with edb.batching():
            value = layer(x)
    if changed == 'input':
        x[:] = 7
    else:
        layer.weight.set_data(nd.zeros((3, 4)))
    np.testing.assert_allclose(value.asnumpy(), expected, rtol=1e-5)
    if recording:
        value.backward()
        np.testing.assert_allclose(x.grad.asnumpy()[0], weight.sum(axis=0), rtol=1e-5)


def test_gradients_of_tables_stay_sparse(always):
    table = gluon.nn.Embedding(50, 4, sparse_grad=True)
    table.initialize()
    with autograd.record():
        with edb.batching() as scope:
            values = [table(nd.array([i, 7])) for i in (3, 5)]
        loss = edb.concat(values).sum()
    loss.backward()
    grad = table.weight.grad()
    assert grad.stype == 'row_sparse' and 'at_once' in str(scope.report())
    assert grad.asnumpy()[[3, 5, 7, 0], 0].tolist() == [1, 1, 2, 0]


def test_values_can_be_written_to_and_differentiated_apart(always):
    layer = dense()
    with autograd.record():
        with edb.batching():
            first, second = (layer(nd.ones((1, 4))) for _ in range(2))
        first.backward()
        second.backward()
    with autograd.record(), edb.batching():
        value = layer(nd.ones((1, 4)))
    array = value.asnumpy()
    value += 1  # nobody else has its array
    np.testing.assert_array_equal(value.asnumpy(), array + 1)


def test_what_draws_noise_is_not_tried(always):
    net = gluon.nn.Dropout(0.5)
    results = []
    for at_once in (True, False):
        mx.random.seed(3)
        with autograd.train_mode():
            with edb.batching(compile_options=edb.CompileOptions(at_once=at_once)):
                values = [net(nd.ones((1, 32))) for _ in range(3)]
            results.append([value.asnumpy().tolist() for value in values])
    assert results[0] == results[1]


def test_errors_name_the_line(always, monkeypatch):
    def fail(calls, position):
        raise ValueError('out of order')

    monkeypatch.setattr(EagerCalls, 'run', fail)
    with pytest.raises(
        edb.BatchError, match=r'(?s)a batch of 1 calls of Dense.*out of order\n.*test_eager'
    ):
        with autograd.record():
            evaluated(dense())


# --- the static model ----------------------------------------------------------------------------


def ways(block, shape, count, train, **options):
    """How many calls of a block ran eagerly, and in how many batches the others."""
    samples = [nd.ones(shape) for _ in range(count)]
    with autograd.record() if train else nullcontext():
        with edb.batching(compile_options=edb.CompileOptions().but(**options)) as scope:
            values = [block(sample) for sample in samples]
        edb.forward(values)
    (kind,) = scope.report().types
    return ('at_once' in kind.passes, kind.batches)


@pytest.mark.parametrize('count', [1, 5])
@pytest.mark.parametrize('train', [False, True])
def test_large_calls_run_eagerly(count, train):
    block = gluon.nn.Activation('relu')
    assert ways(block, (1, 512, 256), count, train) == (True, count)
    assert ways(block, (1, 512, 256), count, train, at_once=False) == (False, 1)
    assert ways(block, (1, 512), count, train) == (False, 1)


@pytest.mark.parametrize(('device', 'may'), [('cpu', True), ('gpu', False)])
def test_calls_on_a_gpu_never_do(device, may):
    """MXNet hands its memory on."""
    node_type = SimpleNamespace(
        ctx=SimpleNamespace(device_type=device),
        mode=SimpleNamespace(training=False),
        graph=SimpleNamespace(function=None),
        eager=False,
        tables=(),
    )
    assert may_run_eagerly(node_type) == may


def test_calls_that_share_large_weights_are_batched():
    layer = gluon.nn.Dense(512, in_units=512)
    layer.initialize()
    assert ways(layer, (64, 512), 5, train=True) == (False, 1)
    assert ways(layer, (64, 512), 1, train=True) == (True, 1)


def test_reports_say_why():
    block = gluon.nn.Activation('relu')
    with autograd.record(), edb.batching() as scope:
        values = [block(nd.ones((1, 512, 256))) for _ in range(3)]
    edb.forward(values)
    (kind,) = scope.report().types
    assert kind.note == 'to copy their arrays into batches would take longer'
    (place,) = scope.explain().places
    (reason,) = [each for each in place.reasons if each.cause is edb.Cause.AT_ONCE]
    assert kind.note in reason.text and 'at_once=False' in reason.advice


def test_what_was_written_to_since_keeps_its_values_and_its_gradient():
    """A loss head reads an array that changes before it is evaluated."""
    x = nd.array([[1.0, 2.0, 3.0]])
    x.attach_grad()
    with autograd.record():
        with edb.batching():
            loss = edb.nd.MakeLoss(x, grad_scale=3)
        with autograd.pause():
            x[:] = 0
    assert loss.asnumpy().tolist() == [[1, 2, 3]]
    loss.backward()
    assert x.grad.asnumpy().tolist() == [[3, 3, 3]]
