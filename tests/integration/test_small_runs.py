"""Small evaluations run in the thread that asks for them, and see and give what eager ones do."""

import os
import threading
from contextlib import nullcontext

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.execute.execution_state import ExecutionState
from gluon_edbatch.execute.native import native_run
from gluon_edbatch.execute.native.library import address
from gluon_edbatch.mx import mutation_guard as guard
from gluon_edbatch.mx import pool
from gluon_edbatch.mx.invoke import run_for_effect
from tests.support.models import ndarrays

WIDTH, WIDE = 8, 64


@pytest.fixture
def given_to_engine(monkeypatch):
    """How many runs and gathers MXNet's engine got."""
    names, call = [], native_run.run_native

    def noted(name, *args, **options):
        names.append(name)
        run_for_effect(name, *args, **options)

    def noted_call(function, *args):
        names.extend(name for name in ['edb_push_backward'] if address(name) == function)
        return call(function, *args)

    for module in ('library', 'native_run'):
        monkeypatch.setattr(f'gluon_edbatch.execute.native.{module}.run_for_effect', noted)
    monkeypatch.setattr(native_run, 'run_native', noted_call)
    return names


def dense(value=None):
    net = nn.Dense(WIDTH, in_units=WIDTH, activation='tanh')
    net.initialize(mx.init.Normal(0.5) if value is None else mx.init.Constant(value))
    return net


def ran(net, samples):
    with edb.batching():
        values = [net(net(sample)) for sample in samples]
    return edb.concat(values).asnumpy()


def eager(net, samples):
    return np.concatenate([net(net(sample)).asnumpy() for sample in samples])


def test_few_calls_are_not_given_to_the_engine_and_many_are(given_to_engine):
    net = nn.Dense(WIDE, in_units=WIDE)
    net.initialize()
    few, many = ndarrays(5, (1, WIDE)), ndarrays(4000, (1, WIDE))
    ran(net, few), ran(net, few)  # proves them
    given_to_engine.clear()
    np.testing.assert_allclose(ran(net, few), eager(net, few), rtol=1e-5, atol=1e-6)
    assert given_to_engine == []
    ran(net, many)
    assert given_to_engine == ['edb_run_forward']


def test_training_is_given_to_the_engine(given_to_engine):
    net, samples = dense(), ndarrays(5, (1, WIDTH))
    for _ in range(3):
        given_to_engine.clear()
        with autograd.record(), edb.batching():
            loss = edb.add_n([net(sample) for sample in samples]).sum()
        loss.backward()
        mx.nd.waitall()
    assert given_to_engine == ['edb_run_forward', 'edb_push_backward']


@pytest.mark.parametrize('count', [1, 300])  # in memory that is pooled if there are many
def test_training_runs_inline_while_a_sample_waits(given_to_engine, count):
    def thought(sample):
        states = [net(sample)]
        for _ in range(3):
            yield states[-1]
            states.append(net(states[-1]) + states[0])
        return edb.concat(states).square().sum().reshape((1,))

    def kept_for_backward(scope):
        for results in scope._recording.results.values():
            for arena in results.values():
                yield arena.memory
                yield from [tape._workspace for tape in arena.origin[0]._state.tapes]

    def trained(batched):
        trainer = gluon.Trainer(net.collect_params(), 'sgd', {'learning_rate': 0.1}, kvstore=None)
        net.weight.set_data(before)
        for _ in range(6):
            given_to_engine.clear()
            with autograd.record():
                with edb.batching() if batched else nullcontext() as scope:
                    losses = edb.run_concurrently(samples, thought)
                    memories = list(kept_for_backward(scope)) if batched else []
                    assert not any([memory.idle for memory in memories if memory])
                assert batched == bool(memories)
                loss = edb.concat(losses).mean()
            loss.backward()
            trainer.step(1)
        return net.weight.data().asnumpy()

    net, samples = nn.Dense(WIDE, in_units=WIDE, use_bias=False), ndarrays(count, (1, WIDE))
    net.initialize(mx.init.Normal(0.1))
    before = net.weight.data().copy()
    found = trained(True)
    mx.nd.waitall()
    forward = [name for name in given_to_engine if name != 'edb_push_backward']
    assert forward == ['edb_gather', 'edb_run_forward']  # the last, which nobody waits for
    np.testing.assert_allclose(found, trained(False), rtol=1e-4, atol=1e-5)


def test_an_update_that_is_under_way_is_waited_for():
    net, samples = dense(), ndarrays(3, (1, WIDTH))
    ran(net, samples), ran(net, samples)
    large = mx.nd.ones((600, 600))
    for _ in range(5):
        for _ in range(20):  # what the engine is busy with
            large = mx.nd.dot(large, large) * 1e-3
        net.weight.set_data(net.weight.data() * 1.1 + large[:WIDTH, :WIDTH] * 0)
        found = ran(net, samples)
        np.testing.assert_allclose(found, eager(net, samples), rtol=1e-5, atol=1e-6)


def test_values_are_of_the_parameters_that_were_recorded(given_to_engine):
    net, samples = dense(), ndarrays(3, (1, WIDTH))
    ran(net, samples), ran(net, samples)
    expected = eager(net, samples)
    with edb.batching():
        values = [net(net(sample)) for sample in samples]
    given_to_engine.clear()
    net.weight.set_data(net.weight.data() * 0)
    np.testing.assert_allclose(edb.concat(values).asnumpy(), expected, rtol=1e-5, atol=1e-6)
    assert given_to_engine == ['edb_run_forward']  # of a copy of the weight


def test_another_thread_may_write_to_parameters_all_the_time():
    """What a result is of is the one or the other, never some of each."""
    net, samples = nn.Dense(WIDTH, in_units=WIDTH, use_bias=False), [mx.nd.ones((1, WIDTH))]
    net.initialize(mx.init.Constant(1))
    ran_once = lambda: _once(net, samples)  # noqa: E731
    ran_once(), ran_once()
    done, updates = threading.Event(), [0]

    def update():
        contents = [mx.nd.full((WIDTH, WIDTH), number) for number in (1, 2)]
        while not done.is_set():
            net.weight.set_data(contents[updates[0] % 2])
            updates[0] += 1

    thread = threading.Thread(target=update)
    thread.start()
    try:
        found = {float(number) for _ in range(300) for number in ran_once().ravel()}
        mixed = [row for _ in range(300) for row in [ran_once().ravel()] if len(set(row)) > 1]
    finally:
        done.set()
        thread.join()
    assert found <= {WIDTH * 1.0, WIDTH * 2.0} and not mixed and updates[0] > 0


def _once(net, samples):
    with edb.batching():
        values = [net(sample) for sample in samples]
    return edb.concat(values).asnumpy()


def test_whoever_touches_a_parameter_waits_for_a_run(monkeypatch):
    net, samples = dense(), ndarrays(3, (1, WIDTH))
    ran(net, samples), ran(net, samples)
    before, now_running, touched = net.weight.data().asnumpy(), threading.Event(), []
    run = native_run.run_native

    def touch():
        now_running.wait()
        net.weight.data()[:] = 0
        touched.append(True)

    def slowly(*args):
        now_running.set()
        thread.join(0.2)
        assert not touched
        return run(*args)

    monkeypatch.setattr(native_run, 'run_native', slowly)
    thread = threading.Thread(target=touch)
    thread.start()
    found = ran(net, samples)
    thread.join()
    assert touched and not net.weight.data().asnumpy().any()
    net.weight.set_data(mx.nd.array(before))
    np.testing.assert_allclose(found, eager(net, samples), rtol=1e-5, atol=1e-6)


def test_rounds_read_what_earlier_ones_computed(given_to_engine):
    net = dense()

    def rounds(call):
        states, read = ndarrays(4, (1, WIDTH)), []
        for number in range(6):
            states = [call(state) for state in states]
            read.append([float(state.sum().asscalar()) for state in states[: 1 + number % 3]])
        return read

    expected = rounds(net)
    for _ in range(3):
        given_to_engine.clear()
        with edb.batching():
            found = rounds(net)
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    assert given_to_engine == []


def test_rounds_that_read_what_the_engine_computed(given_to_engine):
    """An encoder that takes long is the engine's; what reads it later, of several evaluations, is
    not, though the engine has something else to do then."""
    net = nn.Dense(WIDE, in_units=WIDE)
    net.initialize()
    sizes, samples = [0, 8000, 16000], ndarrays(16000, (1, WIDE))
    with edb.batching():
        vectors = []
        for begin, end in zip(sizes, sizes[1:]):
            encoded = [net(sample) for sample in samples[begin:end]]
            encoded[0].asnumpy()
            vectors += encoded
        edb.concat([net(vectors[0] + vectors[-1]), net(vectors[1] + vectors[-2])]).asnumpy()
        given_to_engine.clear()
        others = [net(sample) for sample in samples]
        edb.forward(others)
        assert given_to_engine == ['edb_run_forward']
        found = edb.concat([net(vectors[2] + vectors[-1]), net(vectors[3] + vectors[-2])])
        found = found.asnumpy()
        assert given_to_engine == ['edb_run_forward']
    encoded = [net(samples[place]) for place in (2, -1, 3, -2)]
    expected = [net(encoded[0] + encoded[1]), net(encoded[2] + encoded[3])]
    np.testing.assert_allclose(
        found, np.concatenate([each.asnumpy() for each in expected]), rtol=1e-4, atol=1e-5
    )


def test_memory_of_small_runs_is_used_again(given_to_engine, monkeypatch):
    """Memory is reused if the engine has not used it."""
    monkeypatch.setattr(pool, '_pool', pool._Pool())
    net, samples = nn.Dense(WIDE + 16, in_units=WIDE), ndarrays(300, (1, WIDE))
    net.initialize()

    def arena(engine):
        with edb.batching() as scope:
            values = [net(sample) for sample in samples]
            found = edb.run_concurrently(values, _looked_at)
            results = scope._recording.results[0].values()
            (only,) = [each for each in results if each.memory is not None]
            assert only.memory.idle
        if engine:
            edb.concat(values[1::2]).wait_to_read()  # MXNet's own operator takes rows of it
            assert not only.memory.idle
        expected = np.concatenate([net(each).asnumpy() for each in samples])
        np.testing.assert_allclose(np.concatenate(found), expected, rtol=1e-4, atol=1e-5)
        return only.memory._pool._lent[only.memory._ticket][1]

    for _ in range(2):  # proves them
        arena(engine=False)
    given_to_engine.clear()
    first = arena(engine=False)
    assert arena(engine=True) is first
    assert arena(engine=False) is not first
    assert given_to_engine == []


def test_another_thread_hands_memory_to_the_engine_meanwhile(monkeypatch):
    """Between the beginning of a small run that reads an arena and its end: the arena's memory is
    not idle then, as that operator may still read it."""
    net, last = nn.Dense(WIDE + 16, in_units=WIDE), nn.Dense(WIDE, in_units=WIDE + 16)
    net.initialize(), last.initialize()
    given, taken = ndarrays(300, (1, WIDE)), []

    def small_run(others):
        with edb.batching() as scope:
            values = [net(each) for each in given]
            edb.run_concurrently(values, _looked_at)
            later = [last(value) for value in values[:3]]
        results = scope._recording.results[0].values()
        (arena,) = [each for each in results if each.memory is not None]
        assert arena.memory.idle
        others(values)
        edb.run_concurrently(later, _looked_at)
        return arena.memory.idle

    for _ in range(3):
        assert small_run(lambda values: None)
    note_over = ExecutionState.note_over

    def meanwhile(values):
        def noted(state):
            thread = threading.Thread(target=lambda: taken.append(edb.concat(values[::2])))
            thread.start()
            thread.join()
            note_over(state)

        monkeypatch.setattr(ExecutionState, 'note_over', noted)

    assert not small_run(meanwhile)
    assert taken[0].shape == (150, WIDE + 16)


def _looked_at(value):
    return (yield value)


def test_values_that_the_user_wrote_to_are_read_as_written():
    net, sample = dense(), mx.nd.ones((1, WIDTH))

    def written(batched):
        state = net(sample)
        if batched:
            state.asnumpy()
        state[:, 2:4] = 5
        other = net(state)
        return state.asnumpy(), other.asnumpy(), net(other).asnumpy()

    for _ in range(3):
        with edb.batching():
            found = written(True)
    for one, other in zip(found, written(False)):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_a_weight_of_another_size_is_an_error_that_names_the_line(monkeypatch):
    net, samples = dense(), ndarrays(3, (1, WIDTH))
    ran(net, samples), ran(net, samples)
    forward = native_run.NativeRun.forward_inline

    def turned(run):
        run._weights.reverse()
        return forward(run)

    monkeypatch.setattr(native_run.NativeRun, 'forward_inline', turned)
    with pytest.raises(
        edb.BatchError, match=f'(?s)size that its type.*{os.path.basename(__file__)}'
    ):
        ran(net, samples)


@pytest.mark.filterwarnings('ignore:This process .* is multi-threaded')  # Python 3.12
def test_a_child_finds_the_lock_free():
    """Which another thread had when the process was forked."""
    held, leave = threading.Event(), threading.Event()

    def hold():
        with guard.no_touches():
            held.set()
            leave.wait(0.3)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if guard._lock.acquire(blocking=False) else 1)
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


def test_parameters_of_both_kinds_of_arrays_and_dtypes():
    for dtype in ('float32', 'float64'):
        net = gluon.nn.HybridSequential()
        net.add(nn.Dense(WIDTH, in_units=WIDTH), nn.LayerNorm(in_channels=WIDTH))
        net.initialize(mx.init.Normal(0.5))
        net.cast(dtype)
        samples = [sample.astype(dtype) for sample in ndarrays(4, (1, WIDTH))]
        for _ in range(3):
            found = ran(net, samples)
        np.testing.assert_allclose(found, eager(net, samples), rtol=1e-5, atol=1e-6)
