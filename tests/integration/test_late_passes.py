"""Backward passes run when MXNet's engine comes to them, which may be after later evaluations."""

import contextlib
import gc
import itertools
import threading
import weakref

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.execute import execution_state
from gluon_edbatch.execute.backward import BackwardPass
from tests.support.cases import in_one_test
from tests.support.models import ndarrays, started
from tests.support.processes import HANG


@pytest.fixture
def held_up(monkeypatch):
    """Two events: the first backward pass is over; those after it may begin."""
    over, may_begin, count = threading.Event(), threading.Event(), itertools.count()
    run = BackwardPass.__call__

    def late(self, *arguments):
        if next(count):
            assert may_begin.wait(HANG)
        run(self, *arguments)
        over.set()

    monkeypatch.setattr(BackwardPass, '__call__', late)
    yield over, may_begin
    may_begin.set()


def two_kinds(net, samples):
    """Return losses in two arenas."""
    hidden = [net(x) for x in samples]
    return (
        [value.square().sum(axis=1) for value in hidden],
        [value.sin().sum(axis=1, keepdims=True) for value in hidden],
    )


LATE_PASSES = {
    'of one loss': lambda first, second: [edb.stack(first).sum() + edb.stack(second).sum()],
    'of two losses': lambda first, second: [edb.stack(first).sum(), edb.stack(second).sum()],
    'of one arena': lambda first, _: [edb.stack(first[:2]).sum(), edb.stack(first[2:]).sum()],
    'of lazy values': lambda first, second: [first[0], first[1], second[0]],
}


@in_one_test('later', [1, 3])
@in_one_test('kind', LATE_PASSES)
def test_passes_that_were_asked_for_before_later_evaluations(kind, later, held_up):
    """The engine may come to them when those have begun."""
    net, samples = started(nn.Dense(3, in_units=4)), ndarrays(5, (1, 4))
    net.collect_params().setattr('grad_req', 'add')

    def differentiate(values):
        losses = LATE_PASSES[kind](*values)
        with autograd.pause():
            net.collect_params().zero_grad()
        for loss in losses:
            loss.backward(retain_graph=loss is not losses[-1])
        return losses, values

    def evaluate():
        with autograd.record(), edb.batching():
            values = [net(x) for x in samples]
        edb.forward(values)

    with autograd.record():
        expected = two_kinds(net, samples)
        differentiate(expected)
        wanted = net.weight.grad().asnumpy()
        with edb.batching():
            values = two_kinds(net, samples)
        edb.forward(values)
        kept = differentiate(values)
    over, may_begin = held_up
    assert over.wait(HANG)
    evaluate()
    threading.Timer(0.1, may_begin.set).start()
    for _ in range(later - 1):
        evaluate()  # the third waits for them
    np.testing.assert_allclose(net.weight.grad().asnumpy(), wanted, rtol=1e-5, atol=1e-6)
    del kept


def test_tapes_are_freed_while_values_are_kept():
    """With the third evaluation after their backward pass."""
    net, samples = started(nn.Dense(3, in_units=4)), ndarrays(3, (1, 4))
    states, kept = [], []
    for _ in range(5):
        with autograd.record():
            with edb.batching():
                values = [net(x).sum() for x in samples]
            values[0].backward()
        kept.append(values)
        mx.nd.waitall()
        states.append(weakref.ref(list(BackwardPass._latest.references)[-1]()._state))
    gc.collect()
    assert [state() is None for state in states] == [True] * 2 + [False] * 3
    with pytest.raises(mx.base.MXNetError, match='CustomFunctionBackward'):
        kept[0][1].backward()
        net.weight.grad().asnumpy()


def test_tapes_go_with_the_values():
    """MXNet's callbacks must not be in a cycle: until Python's collector came to it, each step
    had its memory, and later ones waited for the engine to free it."""
    net, samples = started(nn.Dense(3, in_units=4)), ndarrays(3, (1, 4))
    gc.collect()
    gc.disable()
    try:
        with autograd.record():
            with edb.batching():
                values = [net(x).sum() for x in samples]
            loss = edb.add_n(values)
        loss.backward()
        gone = threading.Event()
        watched = weakref.ref(
            list(BackwardPass._latest.references)[-1]()._state, lambda _: gone.set()
        )
        assert watched() is not None
        del values, loss
        assert gone.wait(HANG)  # MXNet deletes a function after its results are there
    finally:
        gc.enable()


def test_a_slow_engine_is_not_waited_for_in_each_step(monkeypatch):
    """Python keeps ahead of it."""
    net, samples, waited = started(nn.Dense(3, in_units=4)), ndarrays(3, (1, 4)), []
    trainer = gluon.Trainer(net.collect_params(), 'sgd', kvstore=None)
    run, matrix, handed_over = BackwardPass._run, mx.nd.ones((1000, 1000)), threading.Event()

    def slow(*arguments):
        mx.nd.dot(matrix, matrix)  # before it, in the engine
        run(*arguments)
        handed_over.set()

    monkeypatch.setattr(BackwardPass, '_run', slow)
    wait = mx.nd.waitall
    monkeypatch.setattr(mx.nd, 'waitall', lambda: waited.append(wait()))
    for number in range(20):
        with autograd.record():
            with edb.batching():
                losses = [net(x).sum() for x in samples]
            loss = edb.add_n(losses)
        handed_over.clear()
        loss.backward()
        trainer.step(1)
        assert number % 2 or handed_over.wait(HANG)
    wait()  # for the last pass, too
    assert len(waited) < 4, f'in {len(waited)} steps of 20'


READ_IN_TURNS = {
    'the last': lambda steps: [steps[-1][0].sum()],
    'all, the first one first': lambda steps: [edb.concat([step[0] for step in steps]).sum()],
    'all, the last one first': lambda steps: [edb.concat([step[0] for step in steps[::-1]]).sum()],
    'two arenas of each': lambda steps: [sum(step[0].sum() + step[1].sum() for step in steps)],
    'one after the other': lambda steps: [step[1].sum() for step in steps],
}


@in_one_test('native', [True, False])
@in_one_test('seen', [True, False])
@in_one_test('read', READ_IN_TURNS)
def test_gradients_through_evaluations_that_read_each_other(read, seen, native, monkeypatch):
    """A step reads results of the one before in another order, and of the first one. What is seen
    is on the tape before later steps read it."""
    if not native:
        monkeypatch.setattr(execution_state, 'gather', lambda *_: False)
    cell = started(nn.Dense(4, activation='tanh', in_units=8))
    head, first = started(nn.Dense(2, in_units=4), seed=1), started(nn.Dense(4, in_units=4), seed=2)
    samples, order = ndarrays(5, (1, 4)), [3, 0, 4, 1, 2]
    blocks = [cell, head, first]
    for x in samples:
        x.attach_grad('add')
    for block in blocks:
        block.collect_params().setattr('grad_req', 'add')

    def run(steps):
        states = begun = [first(x) for x in samples]
        for turn in (1, -1, 1, -1, 1):
            both = zip([states[place] for place in order], begun[::turn])
            states = [cell(mx.nd.concat(*pair, dim=1)) for pair in both]
            steps.append([value for state in states for value in (state, head(state))])
            yield steps[-1]
            if seen:
                edb.forward(steps[-1])

    def gradients(batched):
        for block in blocks:
            block.collect_params().zero_grad()
        for x in samples:
            x.grad[:] = 0
        steps = []
        with autograd.record():
            with edb.batching() if batched else contextlib.nullcontext():
                edb.run_concurrently([steps], run)
            losses = READ_IN_TURNS[read](steps)
        for loss in losses:
            loss.backward(retain_graph=True)
        arrays = [p.grad() for block in blocks for p in block.collect_params().values()]
        return [array.asnumpy() for array in [*arrays, *[x.grad for x in samples]]]

    for found, expected in zip(gradients(True), gradients(False)):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
