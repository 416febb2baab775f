"""Few or large calls run as in eager Gluon where that was measured to be faster, and only there."""

from contextlib import nullcontext

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd

import gluon_edbatch as edb
from gluon_edbatch.execute import choice, whole_scopes
from gluon_edbatch.execute.at_once import CallsAtOnce
from gluon_edbatch.execute.evaluate import Evaluator
from gluon_edbatch.record import forms
from gluon_edbatch.testing import assert_matches_eager
from support.models import TreeLSTM, random_trees, started

TREES = random_trees(4)


@pytest.fixture(autouse=True)
def nothing_is_measured(monkeypatch):
    """Here it is, as users have it, of types that no other test sees; not of whole scopes."""
    monkeypatch.setattr(forms, 'operator_types', {})
    monkeypatch.setattr(whole_scopes, '_UNTIMED', 1 << 30)
    monkeypatch.setattr(whole_scopes, '_UNTIMED_HEAVY', 1 << 30)


@pytest.fixture
def always(monkeypatch):
    """Whatever may run at once was found to be faster so."""
    monkeypatch.setattr(choice, '_FEW', 10**6)
    monkeypatch.setattr(choice.Trial, 'decided', True)
    monkeypatch.setattr(choice.Trial, 'faster_at_once', True)
    monkeypatch.setattr(choice.Trial, '__str__', lambda trial: 'measured, for a test')


class FakeTime:
    """Processor time that evaluations take: so much in batches, so much at once."""

    def __init__(self, monkeypatch, batched, at_once):
        self.now, self.evaluations = 0.0, []
        for name, seconds in {'_evaluate': batched, '_run_at_once': at_once}.items():
            self._slow(monkeypatch, name, seconds)
        monkeypatch.setattr(choice.time, 'process_time', lambda: self.now)

    def _slow(self, monkeypatch, name, seconds):
        run = getattr(Evaluator, name)

        def slower(evaluator, *args, **kwargs):
            self.now += seconds
            self.evaluations.append(name == '_run_at_once')
            return run(evaluator, *args, **kwargs)

        monkeypatch.setattr(Evaluator, name, slower)


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
    monkeypatch.setattr(choice, '_FEW', 0)
    monkeypatch.setattr(choice, '_LARGE', 4 * 300)
    monkeypatch.setattr(choice.Trial, 'decided', True)
    monkeypatch.setattr(choice.Trial, 'faster_at_once', True)
    monkeypatch.setattr(choice.Trial, '__str__', lambda trial: 'measured, for a test')
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

    monkeypatch.setattr(CallsAtOnce, 'run', fail)
    with pytest.raises(
        edb.BatchError, match=r'(?s)a batch of 1 calls of Dense.*out of order\n.*test_at'
    ):
        evaluated(dense())


# --- decisions -----------------------------------------------------------------------------------


@pytest.mark.parametrize('at_once', [1.0, 4.0])
def test_what_was_faster_stays(monkeypatch, at_once):
    layer = dense(heavy=True)
    clock = FakeTime(monkeypatch, batched=2.0, at_once=at_once)
    scopes = [evaluated(layer) for _ in range(30)]
    tried = 2 + 2 * choice._TIMED
    assert clock.evaluations[:4] == [False, False, True, False]
    assert set(clock.evaluations[:tried]) == {False, True}
    assert set(clock.evaluations[tried:]) == {at_once < 2}  # for good, whatever the time is now
    (kind,) = scopes[-1].report().types
    if at_once < 2:
        assert kind.passes == ('at_once',) and kind.batches == kind.calls == 2
        assert kind.note == 'measured, 500 ms a call so, 1e+03 ms in batches'
        assert kind.note in str(scopes[-1].report())
        (place,) = scopes[-1].explain().places
        reason = {reason.cause.name: reason for reason in place.reasons}['AT_ONCE']
        assert kind.note in reason.text and 'at_once=False' in reason.advice
    else:
        assert 'at_once' not in kind.passes and kind.batches == 1 and not kind.note


def test_other_numbers_of_calls_are_measured_apart(monkeypatch):
    layer = dense(heavy=True)
    clock = FakeTime(monkeypatch, batched=2.0, at_once=1.0)
    for _ in range(20):
        evaluated(layer)
    clock.evaluations.clear()
    evaluated(layer, count=9)
    assert clock.evaluations == [False]


def test_small_calls_are_tried_later_and_many_never(monkeypatch):
    clock = FakeTime(monkeypatch, batched=2.0, at_once=1.0)
    few, many = dense(), dense()
    for _ in range(choice._UNTIMED):
        evaluated(few)
    assert not any(clock.evaluations)
    for _ in range(choice._UNTIMED + 5):
        evaluated(many, count=choice._FEW + 1)
    assert not any(clock.evaluations)
    evaluated(few)
    assert clock.evaluations[-1]


def test_what_reads_batches_is_ruled_out(monkeypatch):
    """The second layer is heavy and reads what is computed in batches."""
    clock = FakeTime(monkeypatch, batched=2.0, at_once=1.0)
    monkeypatch.setattr(choice, '_FEW', 0)
    monkeypatch.setattr(choice, '_LARGE', 4 * (1 << 18))
    net = gluon.nn.HybridSequential()
    net.add(dense(), dense(3, heavy=True))
    for _ in range(20):
        evaluated(lambda x: net[1](net[0](x)))
    assert not any(clock.evaluations)


def test_off_nothing_is_measured(monkeypatch):
    layer = dense(heavy=True)
    clock = FakeTime(monkeypatch, batched=2.0, at_once=1.0)
    for _ in range(20):
        evaluated(layer, at_once=False)
    assert not any(clock.evaluations)
    monkeypatch.setattr(choice, 'choose', None)
    with edb.compile_options(at_once=False):
        evaluated(layer, at_once=False)


def test_training_is_timed_with_its_backward(monkeypatch):
    layer = dense(heavy=True)
    clock = FakeTime(monkeypatch, batched=1.0, at_once=2.0)
    for _ in range(20):
        with autograd.record():
            with edb.batching():
                value = layer(nd.ones((1, 4)))
            array = edb.forward(value)
        clock.now += 5 if not clock.evaluations[-1] else 1  # backward is much faster at once
        array.backward()
    assert all(clock.evaluations[-5:])


def test_after_an_error_the_next_evaluation_is_not_timed_with_it(monkeypatch):
    layer = dense(heavy=True)
    FakeTime(monkeypatch, batched=2.0, at_once=1.0)
    for _ in range(2):
        evaluated(layer)
    with monkeypatch.context() as broken:
        broken.setattr(Evaluator, '_run_chosen', None)
        with pytest.raises(TypeError):
            evaluated(layer)
    assert choice._running.timed is None
    evaluated(layer)


def test_what_failed_is_heard_while_ways_are_measured(monkeypatch):
    """MXNet raises an error once: who waits for all must not keep it, as others read anything."""
    monkeypatch.setattr(choice, '_UNTIMED', 0)
    good = nd.eye(3).expand_dims(0)

    def root(matrix):
        with edb.batching():
            value = edb.nd.linalg_potrf(matrix)
        return value.asnumpy()

    for _ in range(2 * choice._TIMED):  # each way, and once it is decided
        root(good)
        with pytest.raises(mx.MXNetError, match='potrf'):
            root(-good)
