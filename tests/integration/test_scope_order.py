"""Scopes may end in any order, in one thread: by hand, in generators, in asyncio tasks."""

import asyncio
import contextvars
import gc
import threading
import weakref

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mxnet import autograd
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.record.hooks import current_recording, suspended


@pytest.fixture(name='net', scope='module')
def make_net():
    """A Dense of which calls can follow each other."""
    net = nn.Dense(4, in_units=4, activation='tanh')
    net.initialize(mx.init.Normal(0.5))
    return net


@pytest.fixture(name='x', scope='module')
def make_x():
    """A sample."""
    return mx.nd.array([[0.1, -0.2, 0.3, 0.4]])


@given(steps=st.lists(st.integers(0, 9), max_size=24), record=st.booleans())
def test_any_order(net, x, steps, record):
    """0 begins a scope, 1 to 5 end one of those that are open, and the rest call."""
    opened, values = [], [(x, x.asnumpy())]
    with autograd.record() if record else autograd.predict_mode():
        for step in steps:
            if step == 0:
                opened.append(edb.batching().__enter__())
            elif step <= 5 and opened:
                opened.pop(step % len(opened)).__exit__(None, None, None)
            else:
                argument, number = values[step % len(values)]
                value = net(argument)
                assert isinstance(value, edb.LazyArray) == bool(opened)
                with autograd.pause(), suspended():
                    expected = net(mx.nd.array(number)).asnumpy()
                values.append((value, expected))
        while opened:
            opened.pop(0).__exit__(None, None, None)
    assert current_recording() is None
    for value, expected in values:
        np.testing.assert_allclose(value.asnumpy(), expected, rtol=1e-4, atol=1e-6)


def test_a_generator_that_holds_a_scope_while_others_begin_and_end(net, x):
    expected = [x.asnumpy()]
    for _ in range(6):
        expected.append(net(mx.nd.array(expected[-1])).asnumpy())

    def steps():
        with edb.batching():
            value = x
            while True:
                value = net(value)
                yield value

    generator, found = steps(), []
    for _ in range(3):
        found.append(next(generator))
        with edb.batching():
            found.append(next(generator))
            found[-1].asnumpy()
    never = next(generator)
    del generator
    gc.collect()
    assert current_recording() is None
    for value, wanted in zip(found, expected[1:]):
        np.testing.assert_allclose(value.asnumpy(), wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(edb.StaleValueError, match='GeneratorExit'):  # that has left its scope
        never.asnumpy()


def test_tasks_within_a_scope_record_into_it(net, x):
    async def task(times):
        value = x
        for _ in range(times):
            value = net(value)
            await asyncio.sleep(0)
        return value

    async def main():
        with edb.batching() as scope:
            values = await asyncio.gather(*[task(times) for times in (1, 3, 2)])
        return scope, values

    scope, values = asyncio.run(main())
    outcome = edb.forward(values)
    assert scope.report().batches == 3
    np.testing.assert_allclose(outcome[0].asnumpy(), net(x).asnumpy(), rtol=1e-5)
    np.testing.assert_allclose(outcome[1].asnumpy(), net(net(net(x))).asnumpy(), rtol=1e-5)
    np.testing.assert_allclose(outcome[2].asnumpy(), net(net(x)).asnumpy(), rtol=1e-5)


def test_a_task_that_outlives_the_scope_it_began_in(net, x):
    async def late(closed):
        await closed.wait()
        return net(x)

    async def main():
        closed = asyncio.Event()
        with edb.batching():
            task = asyncio.ensure_future(late(closed))
            await asyncio.sleep(0)
        closed.set()
        return await task

    assert not isinstance(asyncio.run(main()), edb.LazyArray)


def test_gradients_of_tasks_with_scopes_of_their_own(net, x):
    async def task(times):
        with edb.batching():
            value = x
            for _ in range(times):
                value = net(value)
                await asyncio.sleep(0)
        return value

    async def main():
        return await asyncio.gather(*[task(times) for times in (1, 3, 2)])

    def gradient(values):
        loss = mx.nd.add_n(*[value.sum() for value in values])
        loss.backward()
        return net.weight.grad().asnumpy()

    with autograd.record():
        found = gradient(asyncio.run(main()))
    with autograd.record():
        expected = gradient([net(x), net(net(net(x))), net(net(x))])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_a_thread_that_inherits_the_context_does_not_record(net, x):
    """asyncio.to_thread and copy_context().run take a scope's context to another thread."""
    found = []
    with edb.batching():
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(lambda: found.append(net(x)),))
        thread.start()
        thread.join()
        inside = net(x)
    assert not isinstance(found[0], edb.LazyArray)
    np.testing.assert_allclose(inside.asnumpy(), found[0].asnumpy(), rtol=1e-5)


def test_a_scope_that_another_thread_ends(net, x):
    """A garbage collector that runs in another thread ends a generator, and with it the scope."""
    scope = edb.batching().__enter__()
    lazy = net(x)
    thread = threading.Thread(target=scope.__exit__, args=(None, None, None))
    thread.start()
    thread.join()
    assert current_recording() is None and not isinstance(net(x), edb.LazyArray)
    np.testing.assert_allclose(lazy.asnumpy(), net(x).asnumpy(), rtol=1e-5)


def test_a_scope_ends_once(net, x):
    outer = edb.batching().__enter__()
    with edb.batching() as inner:
        net(x)
    inner.__exit__(None, None, None)
    assert isinstance(net(x), edb.LazyArray), 'the second end of one scope has ended another'
    outer.__exit__(None, None, None)
    outer.__exit__(ValueError, ValueError(), None)
    assert current_recording() is None


def test_recordings_of_scopes_that_ended_out_of_order_are_let_go(net, x):
    first, second = edb.batching().__enter__(), edb.batching().__enter__()
    net(x)
    ended = [weakref.ref(scope._recording) for scope in (first, second)]
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    del first, second
    gc.collect()
    assert [reference() for reference in ended] == [None, None]


def test_a_mode_that_changed_in_an_inner_scope_is_that_of_the_outer_one(net, x):
    with edb.batching():
        record = autograd.record()
        with edb.batching():
            record.__enter__()
        value = net(x)
        record.__exit__(None, None, None)
    value.backward()
    found = net.weight.grad().asnumpy().copy()
    with autograd.record():
        value = net(x)
    value.backward()
    np.testing.assert_allclose(found, net.weight.grad().asnumpy(), rtol=1e-5)
