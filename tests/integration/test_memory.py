"""Memory stays flat over training, and nothing holds what nobody can use any more."""

import gc
import weakref

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.execute import evaluate
from gluon_edbatch.execute.evaluate import Evaluator
from gluon_edbatch.mx import mutation_guard as guard
from tests.support.aftermath import assert_hooks_gone, assert_minibatch_right, assert_unguarded
from tests.support.memory import Model, assert_flat, minibatch, settle
from tests.support.models import dense, rows

pytestmark = pytest.mark.usefixtures('aftermath')


def training_step(scheduler='agenda', size=64, minibatches=1000):
    """A function that trains one step on the next of some random minibatches."""
    model = Model(size)
    model.initialize()
    trainer = gluon.Trainer(model.collect_params(), 'adam')
    generator, drawn = np.random.RandomState(0), []

    def step(number):
        if len(drawn) < minibatches:
            drawn.append(minibatch(generator))
        trees = drawn[number % minibatches]
        with autograd.record():
            with edb.batching(scheduler):
                losses = [(model(tree) ** 2).sum(axis=1) for tree in trees]
            loss = edb.stack(losses).mean()
        loss.backward()
        trainer.step(1)
        return loss

    return step


def test_training_60_steps():
    # oneDNN keeps a primitive for every number of rows, so minibatches recur
    # (each takes more than 1 MB; memory that is handed on is up to an eighth larger than needed)
    assert_flat(training_step(minibatches=20), 30, 60, 4e6)


def types_alive():
    return [item for item in gc.get_objects() if isinstance(item, type)]


def test_a_step_makes_no_types():
    """A step makes no types of ctypes arrays: they are cycles for Python's garbage collector."""
    step = training_step(minibatches=1)
    for _ in range(3):
        step(0)
    settle()
    before = {id(item) for item in types_alive()}
    gc.disable()
    try:
        step(0)
        assert not [item for item in types_alive() if id(item) not in before]
    finally:
        gc.enable()


@pytest.mark.slow
@pytest.mark.parametrize('scheduler', ['agenda', 'depth'])
def test_training_300_steps(scheduler):
    # here they do not, so the warm-up is long
    assert_flat(training_step(scheduler), 150, 300, 20e6)


@pytest.mark.slow
def test_training_10000_steps():
    # a step that left 400 bytes behind would show
    assert_flat(training_step(size=16, minibatches=20), 500, 10_000, 4e6)


def test_inference_100_steps():
    model = Model()
    model.initialize()
    generator = np.random.RandomState(0)

    def step(_number):
        edb.concat(model.batch(minibatch(generator))).asnumpy()

    assert_flat(step, 40, 100, 10e6)


@pytest.mark.parametrize('lazy', [False, True], ids=['ndarrays', 'lazy'])
def test_losses_kept_over_many_minibatches(lazy):
    """A list of losses costs the losses, not the minibatches; and the values stay right."""
    net = nn.Dense(1000, in_units=1000)
    net.initialize()
    kept, expected = [], []

    def step(number):
        sample = mx.nd.full((1, 1000), 1 + number % 5)
        with autograd.record():
            with edb.batching():
                losses = [(net(sample) ** 2).sum(axis=1) for _ in range(50)]
            total = edb.stack(losses).mean()
        total.backward()
        kept.append(losses[0] if lazy else total)
        expected.append(1 + number % 5)
        mx.nd.waitall()  # what a slow engine has not done yet is no leak

    # a minibatch has 50 rows of 1000 floats several times: 200 kB each
    assert_flat(step, 10, 60, 6e6)
    first = kept[0].asnumpy().item()
    for value, factor in zip(kept, expected):
        np.testing.assert_allclose(value.asnumpy().item(), first * factor**2, rtol=1e-4)


def test_kept_values_hold_their_own_kind_only():
    """LazyArrays of one kind keep that kind's arena, not the tapes of the whole minibatch."""
    net = nn.Dense(4000, in_units=100)
    net.initialize()
    kept = []

    def step(_number):
        with autograd.record():
            with edb.batching():
                hidden = [net(row) for row in rows(30, 100)]
                losses = [(value**2).sum(axis=1) for value in hidden]
            total = edb.stack(losses).sum()
        total.backward()
        kept.append(losses)

    assert_flat(step, 10, 60, 14e6)  # 30 x 4000 floats are 480 kB


def test_losses_kept_without_backward():
    """Never differentiated, but evaluated and dropped: nothing stays."""
    net = nn.Dense(2000, in_units=100)
    net.initialize()

    def step(_number):
        with autograd.record():
            with edb.batching():
                losses = [(net(row) ** 2).sum(axis=1) for row in rows(30, 100)]
            edb.stack(losses).sum().asnumpy()

    assert_flat(step, 10, 60, 10e6)


def test_abandoned_scopes_are_freed():
    """Recorded, never evaluated, dropped."""
    net = nn.Dense(10, in_units=20_000)
    net.initialize()

    def step(_number):
        with edb.batching():
            for _ in range(5):
                net(np.ones((1, 20_000), np.float32))

    assert_flat(step, 10, 100, 10e6)


def test_abandoned_scope_with_arrays_is_freed():
    """The NDArrays that it would have read are freed with it."""
    net = nn.Dense(10, in_units=20_000)
    net.initialize()

    def step(_number):
        with edb.batching():
            for _ in range(5):
                net(mx.nd.ones((1, 20_000)))

    assert_flat(step, 10, 100, 10e6)


def test_abandoned_scope_ends_its_guards():
    net = dense()
    before = len(guard._guards)
    with edb.batching() as scope:
        value = net(rows(1)[0])
    del scope, value
    gc.collect()
    assert len(guard._guards) == before
    assert_unguarded(net)


def test_abandoned_scope_that_failed_in_evaluation():
    class Broken(edb.AgendaScheduler):
        """Raises."""

        def schedule(self, graph):
            raise RuntimeError('broken')

    net = dense()
    with edb.batching(Broken()) as scope:
        value = net(rows(1)[0])
    with pytest.raises(RuntimeError, match='broken'):
        value.asnumpy()
    del scope, value
    gc.collect()
    assert_unguarded(net)


def test_partly_evaluated_scope_is_freed():
    net = dense(4)
    with edb.batching():
        values = [net(row) for row in rows(4)]
        unused = net(values[0])
    edb.forward(values)
    store = weakref.ref(values[0]._store.recording) if values[0]._store.recording else None
    del values, unused
    gc.collect()
    assert store is None or store() is None
    assert_unguarded(net)


@pytest.mark.parametrize('early', [False, True])
def test_partly_evaluated_scope_is_freed_under_autograd(early):
    """What autograd's tape has of it does not keep all else alive."""
    net = dense(4)
    with autograd.record():
        with edb.batching() as scope:
            values = [net(row) for row in rows(4)]
            if early:
                values[0].asnumpy()
            unused = net(values[0])
        loss = edb.stack(values).sum()
    loss.wait_to_read()
    recording = weakref.ref(scope._recording)
    del scope, values, unused, loss
    settle()
    assert recording() is None
    assert_unguarded(net)


def test_recording_is_freed_when_all_is_evaluated():
    """Values live on without the recording that made them."""
    net = dense()
    with edb.batching() as scope:
        values = [net(row) for row in rows(4)]
    recording = weakref.ref(scope._recording)
    edb.forward(values)
    del scope
    gc.collect()
    assert recording() is None
    np.testing.assert_allclose(values[0].asnumpy(), net(rows(1)[0]).asnumpy(), rtol=1e-6)


def test_a_large_scope_keeps_the_results_of_few_parts(monkeypatch):
    """Results of a part are dropped when neither a waiting call nor the user can read them."""
    net, last = dense(4), dense(3)
    kept = []
    forget = Evaluator._forget_what_was_read

    def then_count(evaluator, recording, table):
        forget(evaluator, recording, table)
        kept.append(len(recording.results))

    monkeypatch.setattr(evaluate, '_MOST_CALLS', 30)
    monkeypatch.setattr(Evaluator, '_forget_what_was_read', then_count)
    with edb.batching():
        values = []
        for row in rows(20):
            for _ in range(9):
                row = net(row)
            values.append(last(row))
    edb.forward(values)
    assert kept == [1, 1, 1, 1, 1, 1, 0]


def test_failed_scopes_are_freed():
    net = nn.Dense(10, in_units=20_000)
    net.initialize()

    def step(_number):
        with pytest.raises(ZeroDivisionError):
            with edb.batching():
                for _ in range(5):
                    net(mx.nd.ones((1, 20_000)))
                raise ZeroDivisionError

    assert_flat(step, 10, 100, 10e6)
    assert_unguarded(net)


def test_models_are_freed():
    """Types are kept with their blocks, not longer."""

    def once():
        net = dense()
        assert_minibatch_right(net)
        return weakref.ref(net), weakref.ref(net.weight)

    references = [once() for _ in range(3)]
    gc.collect()
    dead = [block() is None and weight() is None for block, weight in references]
    assert all(dead), f'{dead.count(False)} of 3 models are still alive'


def test_many_models():
    """A program that makes models in a loop, as a hyper-parameter search does."""

    def step(_number):
        net = nn.Dense(500, in_units=500)
        net.initialize()
        with autograd.record():
            with edb.batching():
                values = [net(row).sum(axis=1) for row in rows(3, 500)]
            loss = edb.stack(values).sum()
        loss.backward()

    assert_flat(step, 10, 40, 15e6)  # a model and its gradients are 2 MB


def test_backward_functions_are_freed():
    """MXNet's callbacks are dropped with the graph."""
    from gluon_edbatch.mx import custom_function

    step = training_step(size=8)
    for number in range(5):
        step(number)
    settle()
    before = len(custom_function._alive)
    for number in range(20):
        step(number)
    settle()
    assert len(custom_function._alive) <= before + 2


def test_reading_in_the_middle_is_flat():
    net = dense(64, 64)

    def step(number):
        with autograd.record():
            with edb.batching():
                value = mx.nd.ones((1, 64))
                for _ in range(10):
                    value = net(value) * 0.1
                    value.asnumpy()
                loss = value.sum(axis=1)
        loss.backward()
        if number % 10 == 0:
            assert_hooks_gone()

    assert_flat(step, 20, 60, 10e6)


def test_new_shapes_are_bounded_by_what_was_seen():
    """Types of many shapes are compiled once each, not once a minibatch."""
    net = nn.HybridSequential()
    net.add(nn.Dense(8, in_units=4, flatten=False), nn.Activation('tanh'))
    net.initialize()

    def step(number):
        with edb.batching():
            values = [net(mx.nd.ones((1, 1 + (number + i) % 6, 4))) for i in range(6)]
        edb.forward(values)

    assert_flat(step, 20, 80, 10e6)
