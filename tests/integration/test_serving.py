"""edb.serving: requests join and leave between rounds; each gets its result or its own error."""

import asyncio
import math
import random
import signal
import sys
import threading
import weakref
from concurrent.futures import CancelledError, Future

import mxnet as mx
import numpy as np
import pytest
from mxnet import gluon
from mxnet.base import MXNetError
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.serving import engine as engines
from gluon_edbatch.serving import scope_batch
from gluon_edbatch.serving.program_batch import PASSED_OVER, ProgramBatch
from gluon_edbatch_core.serving import continuous_batching
from gluon_edbatch_core.serving.continuous_batching import ContinuousBatching
from gluon_edbatch_core.serving.requests import LatencyEstimator, Request, RequestQueue
from gluon_edbatch_core.serving.sample_engine import INTERVAL_S, short_gil_intervals
from tests.support.models import HIDDEN, TreeLSTM, random_trees, started
from tests.support.processes import ROOT, start

TREES = random_trees(12, seed=4)


class Gate:
    """Where the evaluating thread waits, so that a test knows what comes when."""

    def __init__(self):
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self):
        self.reached.set()
        self.opened.wait()


class Walk(edb.AutoBatchMixin, gluon.Block):
    """So many steps of a cell, each of which is looked at; a sample is (steps, what happens)."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.embed, self.cell = nn.Embedding(9, HIDDEN), nn.Dense(HIDDEN, in_units=HIDDEN)

    def walk(self, sample):
        """What the last step gives."""
        steps, event = sample
        state = self.embed(steps % 9)
        for step in range(steps):
            state = self.cell(state)
            seen = yield state
            if step == 1 and event is not None:
                event()
        return seen

    def last(self, sample):
        """Return the last result without looking at values."""
        steps, event = sample
        if event is not None:
            event()
        state = self.embed(steps % 9)
        for _ in range(steps):
            state = self.cell(state)
        return {'state': state, 'steps': steps}


@pytest.fixture(autouse=True)
def nothing_goes_by_the_clock(monkeypatch):
    """Samples join in every round, however long it takes."""
    monkeypatch.setattr(continuous_batching, 'SHARE', 0.0)


@pytest.fixture
def net():
    return started(Walk())


@pytest.fixture
def made(monkeypatch):
    """All batches, in the order in which they were made."""
    found = []

    class Noted(engines.ScopeBatch):
        def __init__(self, *arguments):
            found.append(self)
            super().__init__(*arguments)

    monkeypatch.setattr(engines, 'ScopeBatch', Noted)
    return found


def keeps_values(engine):
    """Whether an engine's model keeps values from one sample for the next, if that is known."""
    (model,) = engine._batches._new_batch.args
    return model.keeps_values


def eager(net, steps):
    return edb.run_concurrently([(steps, None)], net.walk)[0]


def fail():
    raise KeyError('this sample is bad')


def test_results_are_eagers():
    net = started(TreeLSTM())
    with edb.serving.Engine(net, warm_up=TREES[:3], max_batch=5) as engine:
        futures = [engine.future(tree) for tree in TREES]
        for future, tree in zip(futures, TREES):
            for found, expected in zip(future.result(), net(tree)):
                assert type(found) is np.ndarray
                np.testing.assert_allclose(found, expected.asnumpy(), rtol=1e-5, atol=1e-6)
        assert engine.metrics().outcomes['answered'] == len(TREES)


def test_asyncio():
    net = started(TreeLSTM())

    async def ask():
        async with edb.serving.Engine(net, max_batch=5) as engine:
            return await asyncio.gather(*map(engine.submit, TREES))

    for found, tree in zip(asyncio.run(ask()), TREES):
        np.testing.assert_allclose(found[0], net(tree)[0].asnumpy(), rtol=1e-5, atol=1e-6)


def test_what_came_during_a_round_is_one_batch(net):
    gate = Gate()
    with edb.serving.Engine(net.last) as engine:
        first = engine.future((2, gate))
        gate.reached.wait()
        others = [engine.future((steps, None)) for steps in range(3, 10)]
        gate.opened.set()
        assert [other.result()['steps'] for other in others] == list(range(3, 10))
        assert first.result()['steps'] == 2
        assert engine.metrics().batch_size.number == 2
        assert engine.metrics().batch_size.total == 1 + len(others)


def test_a_later_sample_joins_and_leaves_before_an_earlier_one(net):
    gate, order = Gate(), []
    with edb.serving.Engine(net.walk) as engine:
        long = engine.future((20, gate))
        long.add_done_callback(lambda _: order.append('long'))
        gate.reached.wait()
        short = engine.future((5, None))
        short.add_done_callback(lambda _: order.append('short'))
        gate.opened.set()
        np.testing.assert_allclose(short.result(), eager(net, 5), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(long.result(), eager(net, 20), rtol=1e-5, atol=1e-6)
        sizes = engine.metrics().batch_size
    assert order == ['short', 'long']
    assert (sizes.number, sizes.total) == (20, 25)  # each round of the short one was shared


@pytest.mark.parametrize('way', ['walk', 'last'])
def test_a_bad_sample_fails_alone(net, way):
    with edb.serving.Engine(getattr(net, way)) as engine:
        futures = [engine.future((steps, fail if steps == 4 else None)) for steps in range(2, 8)]
        for steps, future in zip(range(2, 8), futures):
            if steps == 4:
                with pytest.raises(KeyError, match='this sample is bad'):
                    future.result()
            else:
                future.result()
        assert engine.metrics().outcomes['failed'] == 1
        engine.future((3, None)).result()


@pytest.mark.parametrize('looks', [False, True])
def test_an_evaluation_that_fails_fails_for_one(looks):
    """cholesky of a matrix that has none is found when it runs, together with others."""

    def root(matrix):
        lazy = edb.nd.linalg_potrf(edb.nd.BlockGrad(mx.nd.array(matrix)))
        if looks:
            yield lazy
        return lazy

    def plain(matrix):
        return edb.nd.linalg_potrf(edb.nd.BlockGrad(mx.nd.array(matrix)))

    good = [np.eye(3)[None] * scale for scale in (1, 4, 9, 16, 25)]
    gate = Gate()

    def first(sample):
        if sample is None:
            gate()
            return None
        return (root if looks else plain)(sample)

    with edb.serving.Engine(first) as engine:
        engine.future(None)
        gate.reached.wait()
        futures = [engine.future(each) for each in (*good[:3], -np.eye(3)[None], *good[3:])]
        gate.opened.set()
        bad = futures.pop(3)
        for future, matrix in zip(futures, good):
            np.testing.assert_allclose(future.result(), np.sqrt(matrix), rtol=1e-5, atol=1e-6)
        with pytest.raises(Exception, match='potrf'):
            bad.result()


def test_queue_full(net):
    gate = Gate()
    with edb.serving.Engine(net.last, max_queue=3) as engine:
        engine.future((2, gate))
        gate.reached.wait()
        taken = [engine.future((2, None)) for _ in range(3)]
        with pytest.raises(edb.QueueFullError, match='3 requests wait already'):
            engine.future((2, None))
        gate.opened.set()
        for each in taken:
            each.result()
        assert engine.metrics().outcomes['refused'] == 1


@pytest.mark.parametrize('way', ['walk', 'last'])
def test_cancelled_before_it_began(net, way):
    gate, ran = Gate(), []
    with edb.serving.Engine(getattr(net, way)) as engine:
        engine.future((3, gate))
        gate.reached.wait()
        cancelled = engine.future((3, lambda: ran.append(1)))
        assert cancelled.cancel()
        gate.opened.set()
        engine.future((3, None)).result()
        with pytest.raises(CancelledError):
            cancelled.result()
    assert not ran and engine.metrics().outcomes['cancelled'] == 1


def test_a_task_that_is_cancelled_takes_its_sample_out(net):
    gate = Gate()

    async def ask():
        async with edb.serving.Engine(net.walk, max_rounds=10**9) as engine:
            task = asyncio.ensure_future(engine.submit((10**8, gate)))
            await asyncio.get_running_loop().run_in_executor(None, gate.reached.wait)
            task.cancel()
            gate.opened.set()
            with pytest.raises(asyncio.CancelledError):
                await task
        return engine.metrics().outcomes['cancelled']  # the engine came to its end

    assert asyncio.run(ask()) == 1


def test_deadline(net):
    with edb.serving.Engine(net.walk) as engine:
        with pytest.raises(edb.DeadlineError, match='the deadline passed'):
            engine.future((3, None), deadline=0.0).result()
        engine.future((3, None), deadline=600).result()
        assert engine.metrics().outcomes['expired'] == 1


def test_urgent_requests_are_first():
    queue = RequestQueue(10, LatencyEstimator())
    queue.open()
    for name, arrived, deadline in [
        ('a', 0, None),
        ('b', 0.1, 0.2),
        ('c', 0.2, 9),
        ('d', 0.3, 0.1),
    ]:
        queue.put([Request(name, Future(), arrived, deadline)])
    assert [request.sample for request in queue.take(10, 0)] == ['b', 'd', 'a', 'c']


def test_cancelled_requests_make_room():
    queue = RequestQueue(3, LatencyEstimator())
    queue.open()
    requests = [Request(number, Future(), number, None) for number in range(5)]
    queue.put(requests[:3])
    requests[1].reply.cancel()
    with pytest.raises(edb.QueueFullError, match='2 requests wait already, of 3'):
        queue.put(requests[3:])
    queue.put(requests[3:4])
    assert [request.sample for request in queue.take(10, 0)] == [0, 2, 3]


def test_what_cannot_be_in_time_is_refused_at_once():
    """100 requests a second."""
    estimator = LatencyEstimator()
    queue = RequestQueue(1000, estimator)
    queue.open()

    def put(deadline, count=1):
        queue.put([Request(None, Future(), 7.0, deadline) for _ in range(count)])

    put(0.001, 20)  # nothing is known yet, and then nobody waits
    for _ in range(1000):
        estimator.note_round(2, 0.02)
    queue.take(1000, 0)
    queue.begun.clear()
    put(0.001)  # as nothing is before it
    put(None, 30)
    put(0.011)  # before those without a deadline
    put(5.0)
    with pytest.raises(edb.QueueFullError, match=r'2 requests .* 20 ms, and 15 .*deadline'):
        put(0.015)
    queue.begun.update(queue.take(1, 0))
    with pytest.raises(edb.QueueFullError, match=r'2 requests'):
        put(0.015, 3)
    assert queue.refused == 4 and len(queue) == 32


def test_an_engine_knows_how_long_requests_take(net):
    """Each request that comes while others wait tells it; by a clock that nobody waits for."""
    gate, others = Gate(), Gate()
    with edb.serving.Engine(net.walk, max_batch=1) as engine:
        first = engine.future((3, gate))
        gate.reached.wait()
        waiting = [engine.future((3, each)) for each in (None, others, None)]
        gate.opened.set()
        others.reached.wait()  # by then two are done, while others waited
        try:
            assert engine._estimator.seconds(5) > engine._estimator.seconds(1) > 0
            with pytest.raises(edb.QueueFullError, match='deadline'):
                engine.future((3, None), deadline=1e-9)
            engine.future((3, None), deadline=600)
        finally:
            others.opened.set()
        for each in (first, *waiting):
            each.result()
        assert engine.metrics().outcomes['refused'] == 1


def test_how_long_requests_take_is_what_they_took_lately():
    estimator = LatencyEstimator()
    assert estimator.seconds(1000) == 0.0
    for done in (10, 0, 10, 1):  # the last speed is a tenth
        for _ in range(100):
            estimator.note_round(done, 0.1)
    assert estimator.seconds(10) == pytest.approx(1.0, rel=1e-3)


def test_more_than_may_be_waited_for_is_refused():
    """100 requests a second, half a second of which may be before one."""
    estimator = LatencyEstimator()
    queue = RequestQueue(1000, estimator, max_wait=0.5)
    queue.open()

    def put(count, deadline=None):
        queue.put([Request(None, Future(), 7.0, deadline) for _ in range(count)])

    put(60)  # nothing is known yet
    queue.begun = set(queue.take(60, 0))
    for _ in range(1000):
        estimator.note_round(2, 0.02)
    with pytest.raises(edb.QueueFullError, match=r'60 .* some 600 ms, and 500 are .*max_wait'):
        put(1)
    put(1, deadline=9.0)
    queue.begun = set(list(queue.begun)[:49])
    put(200)  # before which there are 50
    with pytest.raises(edb.QueueFullError, match='250 requests'):
        put(3)
    assert queue.refused == 4 and len(queue) == 201


def test_what_comes_beside_too_much_is_refused_at_once(net):
    gate = Gate()
    with edb.serving.Engine(net.last, [(2, None)], max_wait=0) as engine:
        taken = [engine.future((2, gate))]
        gate.reached.wait()
        with pytest.raises(edb.QueueFullError, match=r'1 requests are .* \(max_wait\)'):
            engine.future((2, None))
        taken.append(engine.future((2, None), deadline=600))
        gate.opened.set()
        for each in taken:
            each.result()
        assert engine.metrics().outcomes['refused'] == 1


def test_a_list_is_taken_where_there_is_nothing_to_do(net):
    """However long it takes: nothing is before it."""
    gate = Gate()

    async def ask():
        async with edb.serving.Engine(net.walk, [(2, None)], max_batch=4, max_wait=0) as engine:
            replies = engine.submit_all([(2, gate), *[(2, None)] * 100])
            await asyncio.to_thread(gate.reached.wait)
            with pytest.raises(edb.QueueFullError, match='max_wait'):
                engine.submit((2, None))
            gate.opened.set()
            await asyncio.gather(*replies)
            return engine.metrics().outcomes

    outcomes = asyncio.run(ask())
    assert (outcomes['answered'], outcomes['refused']) == (101, 1)


def test_nothing_is_taken_at_once():
    async def ask():
        async with edb.serving.Engine(lambda sample: sample) as engine:
            return engine.submit_all([])

    assert asyncio.run(ask()) == []


def test_threads_take_short_turns_while_an_engine_works(net):
    before = sys.getswitchinterval()
    with edb.serving.Engine(net.last) as one:
        one.future((2, None)).result()
        assert sys.getswitchinterval() == pytest.approx(INTERVAL_S)
        with short_gil_intervals():
            pass
        assert sys.getswitchinterval() == pytest.approx(INTERVAL_S)
    assert sys.getswitchinterval() == pytest.approx(before)


def test_where_more_come_than_leave_they_join_in_groups():
    queue = RequestQueue(100, LatencyEstimator())
    queue.open()
    for number in range(50):
        queue.put([Request(number, Future(), number, None)])
    assert len(queue.take(16, 0)) == 16
    assert queue.take(7, 9) == []
    assert len(queue.take(8, 8)) == 8
    assert len(queue.take(30, 2)) == 26


class Running:
    """A batch with three samples, whose first calls may run beside the rounds of others."""

    is_beginning = False

    def __len__(self):
        return 3

    def round(self, done, is_only):
        pass


def with_samples():
    served = ContinuousBatching(Running)
    served._add()
    return served


def test_rounds_without_joining_get_as_much_time(monkeypatch):
    monkeypatch.setattr(continuous_batching, 'SHARE', 1.0)
    empty, served = ContinuousBatching(Running), with_samples()
    assert empty.may_join and served.may_join
    for each in (empty, served):
        for _ in range(3):
            each.note_round(4.0, joined=True)
    assert empty.may_join and not served.may_join
    served.note_round(3.0, joined=False)
    assert not served.may_join
    served.note_round(1.0, joined=False)
    assert served.may_join


def test_what_those_who_join_need_first_is_part_of_their_joining(monkeypatch):
    monkeypatch.setattr(continuous_batching, 'SHARE', 1.0)
    served = with_samples()
    for _ in range(3):
        served.round()
        served.note_round(1.0, joined=True)
        monkeypatch.setattr(Running, 'is_beginning', True)
        served.round()
        served.note_round(3.0, joined=False)
        assert not served.may_join
        monkeypatch.setattr(Running, 'is_beginning', False)
    served.round()
    served.note_round(3.0, joined=False)
    assert not served.may_join
    served.note_round(1.0, joined=False)
    assert served.may_join


class Encoder:
    """What samples that join need first, where a test says when it is there."""

    def __init__(self, monkeypatch, error=None):
        self.over, self.joined = threading.Event(), 0
        self._error, hand_over = error, scope_batch.hand_over

        def handed_over(values):
            fence = hand_over(values)
            self.joined += 1
            return fence if self.joined % 2 else self  # of the others first, then of those

        monkeypatch.setattr(scope_batch, 'hand_over', handed_over)

    def wait_to_read(self):
        """Wait for the fence, as MXNet's function does."""
        assert self.over.wait(60)
        if self._error is not None:
            raise self._error


def batches_of(predict):
    model = scope_batch.ScopedModel(predict, edb.FSMScheduler(), edb.CompileOptions(), 100)
    return ContinuousBatching(lambda: scope_batch.ScopeBatch(model))


def in_rounds(net, samples):
    """Batches in which the first sample is on its way, and the others have just joined."""
    served = batches_of(net.walk)
    requests = [Request(sample, Future(), 0.0, None) for sample in samples]
    assert not served.admit(requests[:1]) and not served.round()
    assert not served.admit(requests[1:])
    return served, requests


def assert_all_done(served, net, requests, done):
    while len(served):
        done += served.round()
    assert sorted(map(id, done)) == sorted(map(id, requests))
    for request in requests:
        np.testing.assert_allclose(
            request.result, eager(net, request.sample[0]), rtol=1e-5, atol=1e-6
        )


def test_others_go_on_beside_what_those_who_join_need_first(net, monkeypatch):
    encoder = Encoder(monkeypatch)
    served, requests = in_rounds(net, [(4, None), (3, None), (2, None)])
    done = []
    for _ in range(3):
        assert len(served) == 3 and not done
        done += served.round()
        assert served._is_beginning() and encoder.joined == 2
    assert done == requests[:1] and len(served) == 2
    encoder.over.set()
    assert_all_done(served, net, requests, done)
    assert not served._is_beginning()
    served.close()


def test_what_those_who_join_need_first_fails(net, monkeypatch):
    encoder = Encoder(monkeypatch, MXNetError('out of memory'))
    served, requests = in_rounds(net, [(4, None), (3, None), (2, None)])
    assert not served.round() and served._is_beginning()
    encoder.over.set()
    assert served._newest._over.exception(60)
    monkeypatch.undo()
    done = served.round()  # all began again, in other scopes
    later = Request((3, None), Future(), 0.0, None)
    assert not served.admit([later])
    assert served._newest._scope.calls_recorded  # who comes is in a scope, too
    assert_all_done(served, net, [*requests, later], done)
    served.close()


def test_who_has_begun_does_not_begin_again(net, monkeypatch):
    """Though what others have recorded meanwhile is handed over, too."""
    encoder = Encoder(monkeypatch)
    encoder.over.set()
    served, requests = in_rounds(net, [(40, None), (3, None), (2, None)])
    done = []
    for _ in range(5):
        done += served.round()
    assert sorted(map(id, done)) == sorted(map(id, requests[1:]))
    assert_all_done(served, net, requests, done)
    served.close()


def test_all_wait_where_no_thread_can_be_had(net, monkeypatch):
    encoder = Encoder(monkeypatch)
    encoder.over.set()
    served, requests = in_rounds(net, [(4, None), (3, None), (2, None)])
    served._newest._model.waiter.shutdown()
    done = served.round()
    assert not served._is_beginning()
    assert_all_done(served, net, requests, done)
    served.close()


def test_nobody_begins_beside_others_where_there_are_several_scopes(net, monkeypatch):
    """An error of what nobody waits for would be told to another scope's samples."""
    encoder = Encoder(monkeypatch)
    encoder.over.set()
    served, requests = in_rounds(net, [(4, None)])
    others = [Request((steps, None), Future(), 0.0, None) for steps in (3, 5)]
    with monkeypatch.context() as patch:
        patch.setattr(scope_batch, 'MOST_CALLS', -1)
        done = served.admit(others[:1]) + served.round()
    done += served.admit(others[1:])
    assert [len(batch) for batch in served._batches] == [1, 2]
    while len(served):
        done += served.round()
        assert not served._is_beginning()
    assert_all_done(served, net, requests + others, done)
    served.close()


def test_what_else_is_yielded_is_handed_through_where_somebody_joins():
    class Masked(Walk):
        def walk(self, sample):
            began.append(sample)
            state, mask = self.embed(sample % 9), np.arange(3)
            for _ in range(sample):
                state, found = yield self.cell(mx.nd.array(state)), mask
                assert found is mask
            return state

    net, began = started(Masked()), []
    served = batches_of(net.walk)
    requests = [Request(steps, Future(), 0.0, None) for steps in (4, 3, 2)]
    done = served.admit(requests[:1]) + served.round() + served.admit(requests[1:])
    while len(served):
        done += served.round()
    assert began == [4, 3, 2]
    assert all(request.error is None and request.result.shape == (1, HIDDEN) for request in done)
    served.close()


def test_batches_are_closed_while_somebody_begins(net, monkeypatch):
    encoder = Encoder(monkeypatch)
    served, _ = in_rounds(net, [(4, None), (3, None)])
    assert not served.round() and served._is_beginning()
    encoder.over.set()
    served.close()
    assert not len(served) and not served._is_beginning()


def test_a_beginning_that_takes_long_is_evaluated_beside_rounds(monkeypatch):
    """By MXNet's engine, as it is where nobody stands in for it."""

    class Reader(edb.AutoBatchMixin, gluon.Block):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.cell = nn.Dense(512, in_units=512, activation='tanh')

        def read(self, steps):
            state = np.full((1, 512), steps / 9, np.float32)
            for _ in range(30):
                state = self.cell(state)
            yield
            for _ in range(steps):
                state = self.cell(state)
                seen = yield state
            return seen

    net, began, hand_over = Reader(), [], scope_batch.hand_over
    net.initialize(mx.init.Normal(1 / math.sqrt(512)))

    def handed_over(values):
        fence = hand_over(values)
        began.append(fence is not None)
        return fence

    monkeypatch.setattr(scope_batch, 'hand_over', handed_over)
    samples = [3, 9, 5, 4, 7, 2]
    expected = [edb.run_concurrently([each], net.read)[0] for each in samples]
    with edb.serving.Engine(net.read, max_batch=3) as engine:
        found = [engine.future(each) for each in samples]
        for future, result in zip(found, expected):
            np.testing.assert_allclose(future.result(), result, rtol=1e-4, atol=1e-5)
    assert any(began)


def test_a_sample_that_never_ends(net):
    with edb.serving.Engine(net.walk, max_rounds=5) as engine:
        endless, other = engine.future((10**9, None)), engine.future((4, None))
        with pytest.raises(edb.StepsError, match='5 times'):
            endless.result()
        other.result()


def test_scopes_take_turns(net, made, monkeypatch):
    """Where much is recorded, those that come are in another scope."""
    monkeypatch.setattr(scope_batch, 'MOST_CALLS', 10)
    monkeypatch.setattr(scope_batch, 'MOST_CALLS_FORGOTTEN', 10)
    gate = Gate()
    with edb.serving.Engine(net.walk, max_batch=3) as engine:
        engine.future((3, gate))
        gate.reached.wait()
        futures = [engine.future((steps, None)) for steps in range(2, 30)]
        gate.opened.set()
        for steps, future in zip(range(2, 30), futures):
            np.testing.assert_allclose(future.result(), eager(net, steps), rtol=1e-5, atol=1e-6)
    assert len(made) > 5


class Remembers(Walk):
    """A model that keeps what it computed for one sample, for other samples."""

    def __init__(self):
        super().__init__()
        self.known, self.remembers = {}, True

    def walk(self, sample):
        steps, event = sample
        state = self.embed(steps % 9)
        if self.remembers and steps % 3 == 0:
            state = self.known.setdefault(steps, state)
        for step in range(steps):
            state = self.cell(state)
            seen = yield state
            if step == 1 and event is not None:
                event()
        return seen


@pytest.mark.parametrize('warm_up', [(), [(3, None)], [(2, None), (3, None), (6, None)]])
def test_values_that_a_model_remembers(monkeypatch, warm_up):
    """Values that a model keeps stay readable, in whichever scope and however early they were
    computed."""
    monkeypatch.setattr(scope_batch, 'MOST_CALLS', 30)
    net = started(Remembers())
    with edb.serving.Engine(net.walk, warm_up, max_batch=4, max_wait=math.inf) as engine:
        for _ in range(3):
            futures = [engine.future((steps, None)) for steps in range(1, 12)]
            for steps, future in zip(range(1, 12), futures):
                found = future.result()
                net.remembers = False
                np.testing.assert_allclose(found, eager(net, steps), rtol=1e-5, atol=1e-6)
                net.remembers = True


def test_values_that_a_model_remembers_too_late():
    """Whoever reads what was forgotten hears of it, and nobody else suffers."""
    net, futures = started(Remembers()), []
    net.remembers = False
    with edb.serving.Engine(net.walk, warm_up=[(2, None), (3, None)]) as engine:
        net.remembers = True

        def third():
            futures.append(engine.future((3, None)))

        def second():
            futures.append(engine.future((10, third)))

        first = engine.future((3, second)).result()
        other = futures[0].result()
        with pytest.raises(edb.StaleValueError, match='test_serving.*for an earlier sample'):
            futures[1].result()
        net.remembers = False
        np.testing.assert_allclose(first, eager(net, 3), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(other, eager(net, 10), rtol=1e-5, atol=1e-6)


def test_a_forgotten_value_that_is_looked_at_at_once():
    """Before the sample waits for anything; from then on nothing is forgotten."""
    net, kept, futures = started(Walk()), [], []

    def predict(sample):
        steps, event = sample
        if steps == 0:
            return kept[0].asnumpy()
        if event is not None:
            kept.append(net.embed(steps % 9))
            yield kept[-1]
        return (yield from net.walk(sample))

    with edb.serving.Engine(predict, warm_up=[(2, None), (3, None)]) as engine:
        third = lambda: futures.append(engine.future((0, None)))  # noqa: E731
        second = lambda: futures.append(engine.future((10, third)))  # noqa: E731
        engine.future((3, second)).result()
        np.testing.assert_allclose(futures[0].result(), eager(net, 10), rtol=1e-5, atol=1e-6)
        with pytest.raises(edb.StaleValueError, match='test_serving.*for an earlier sample'):
            futures[1].result()
        assert keeps_values(engine)


def test_what_was_computed_for_those_who_left_is_forgotten(net, made):
    """A scope that always has samples keeps the results of those that are in it."""
    most, gate = [], Gate()

    def look():
        recording = made[-1]._scope._recording
        most.append((len(recording.ran), len(recording.results)))

    warm_up = [(2, None), (5, None)]
    with edb.serving.Engine(net.walk, warm_up, max_batch=4, max_wait=math.inf) as engine:
        first = engine.future((3, gate))
        gate.reached.wait()
        futures = [engine.future((4 + number % 5, look)) for number in range(200)]
        gate.opened.set()
        for number, future in enumerate(futures):
            expected = eager(net, 4 + number % 5)
            np.testing.assert_allclose(future.result(), expected, rtol=1e-5, atol=1e-6)
        first.result()
    evaluations, kept = most[-1]
    assert evaluations > 200 and kept < 20
    assert len(made) == 2  # that of the warm-up, and one


@pytest.mark.parametrize('error', [KeyError, MXNetError])
def test_a_bad_sample_does_not_look_like_one_that_remembers(net, error):
    """The traceback of its error has values, whether it was raised or came up where others' calls
    were evaluated."""

    def predict(sample):
        steps, sign = sample
        if sign is None:
            raise KeyError('this sample is bad')
        state = net.embed(steps % 9)
        seen = yield state
        matrix = mx.nd.array(sign * np.eye(3, dtype='f')[None])
        seen = yield edb.nd.linalg_potrf(matrix) + 0 * net.cell(state).sum()
        return seen

    bad = (3, None if error is KeyError else -1.0)
    with edb.serving.Engine(predict, max_batch=4) as engine:
        found = engine.future(bad).exception()
        assert isinstance(found, error)
        engine.update(lambda: None).result()
        engine.future((3, 1.0)).result()
        engine.update(lambda: None).result()
        assert keeps_values(engine) is False
        assert found.__traceback__ is not None


class Attends(edb.AutoBatchMixin, gluon.Block):
    """To a bank that is the same for all samples, and is rows once for those that share it."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.embed, self.cell = nn.Embedding(9, 64), nn.Dense(64, in_units=64, flatten=False)
        self.banks = [mx.nd.random.uniform(shape=(1, 1100 + size, 64)) for size in range(3)]

    def walk(self, number):
        bank = self.cell(mx.nd.tanh(self.banks[number % 3] * 0.5))
        state = self.embed(number % 9) + bank.mean(axis=1)
        for _ in range(2 + number % 3):
            state = self.cell(state)
            seen = yield state
        return seen


def test_what_samples_share_is_not_forgotten_with_the_first(monkeypatch):
    split = []
    monkeypatch.setattr(ContinuousBatching, '_split', lambda *arguments: split.append(arguments))
    net = started(Attends())
    with edb.serving.Engine(net.walk, warm_up=range(6), max_batch=4, max_wait=math.inf) as engine:
        assert keeps_values(engine) is False
        futures = [engine.future(number) for number in range(60)]
        for number, future in enumerate(futures):
            expected = edb.run_concurrently([number], net.walk)[0]
            np.testing.assert_allclose(future.result(), expected, rtol=1e-4, atol=1e-5)
    assert split == []


def test_a_function_that_calls_itself_does_not_look_like_one_that_remembers(net):
    """What it refers to is there until Python's garbage collector comes."""

    def predict(sample):
        def sum_of(begin, end):
            if end - begin == 1:
                return vectors[begin]
            return sum_of(begin, (begin + end) // 2) + sum_of((begin + end) // 2, end)

        vectors = [net.embed(word) for word in sample]
        return (yield sum_of(0, len(sample)))

    with edb.serving.Engine(predict, warm_up=[[1, 2], [3]]) as engine:
        engine.future([4, 5, 6]).result()
        engine.update(lambda: None).result()
        assert keeps_values(engine) is False


def test_garbage_is_collected_while_samples_come_and_go(net, monkeypatch):
    """A function that calls itself refers to itself; a scope that always has samples keeps Python's
    collector waiting."""
    alive = weakref.WeakSet()

    def predict(steps):
        def again(left):
            return net.cell(again(left - 1)) if left else net.embed(0)

        alive.add(again)
        most.append(len(alive))
        for _ in range(steps):
            seen = yield again(2)
        return seen

    most = []
    monkeypatch.setattr(scope_batch, '_CALLS_OF_GARBAGE', 100)
    with edb.serving.Engine(predict, warm_up=[1, 2], max_batch=4, max_wait=math.inf) as engine:
        futures = [engine.future(1 + number % 4) for number in range(400)]
        for future in futures:
            future.result()
    assert max(most) < 100


class Found:
    """What a user's function returns, with a value in it that it has waited for."""

    def __init__(self, state):
        self.state = state


@pytest.mark.parametrize('warm_up', [(), (1, 2)])
def test_values_in_an_object_that_is_the_result(net, warm_up):
    def predict(steps):
        state = net.embed(steps % 9)
        for _ in range(1 + steps % 4):
            state = net.cell(state)
            yield state
        return Found(state)

    with edb.serving.Engine(predict, warm_up=warm_up, max_batch=4, max_wait=math.inf) as engine:
        for _ in range(3):
            futures = [engine.future(steps) for steps in range(40)]
            for steps, future in enumerate(futures):
                found = future.result().state.asnumpy()
                expected = edb.run_concurrently([steps], predict)[0].state.asnumpy()
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
            engine.update(lambda: None).result()


@pytest.mark.parametrize('limit', ['MOST_CALLS', 'MOST_CALLS_FORGOTTEN', 'MOST_BYTES_GIVEN'])
def test_a_scope_is_full(net, made, monkeypatch, limit):
    """A scope is full of calls with readable results, of calls without, or of arrays."""

    def predict(number):
        state = net.cell(np.full((1, HIDDEN), number / 400, 'f'))
        for _ in range(2 + number % 3):
            if limit == 'MOST_CALLS':
                seen = yield state
                net.cell(state)
            state = net.cell(state)
            seen = yield state
        return seen

    def most(recording):
        return {
            'MOST_CALLS': len(recording.results),
            'MOST_CALLS_FORGOTTEN': len(recording.node_forms),
            'MOST_BYTES_GIVEN': len(recording.arrays),
        }[limit]

    monkeypatch.setattr(scope_batch, limit, 1000 if limit == 'MOST_BYTES_GIVEN' else 200)
    with edb.serving.Engine(predict, warm_up=[1, 2, 3], max_batch=4, max_wait=math.inf) as engine:
        engine.future(1).result()
        futures = [engine.future(number) for number in range(400)]
        results = [future.result() for future in futures]
    assert 5 < len(made) < 200
    assert all(
        [most(batch._scope._recording) < 300 for batch in made[1:] if batch._scope._recording]
    )
    for number in (0, 200, 399):
        expected = edb.run_concurrently([number], predict)[0]
        np.testing.assert_allclose(results[number], expected, rtol=1e-5, atol=1e-6)


class Wanders(edb.AutoBatchMixin, gluon.Block):
    """Ways that are drawn: a sample is a seed."""

    def __init__(self, width):
        super().__init__()
        with self.name_scope():
            self.embed = nn.Embedding(9, width)
            self.cells = nn.Sequential()
            for _ in range(2):
                self.cells.add(nn.Dense(width, in_units=width, activation='tanh'))
            self.scores = nn.Dense(3, in_units=width)
        self.begun = []

    def walk(self, seed):
        """Waits for some values, in one form or another, and goes on with old and new ones."""
        self.begun.append(seed)
        draw = random.Random(seed)
        values = [self.embed(draw.randrange(9)) for _ in range(draw.randint(1, 30))]
        if draw.random() < 0.5:
            yield
        for _ in range(draw.randint(1, 12)):
            for _ in range(draw.randint(1, 3)):
                one, other = draw.choice(values), draw.choice(values)
                values.append(draw.choice(list(self.cells))(one + other))
            some = draw.sample(values, min(len(values), draw.randint(1, 3)))
            seen = yield draw.choice([some[0], some, {'scores': self.scores(some[0])}, (some, 1)])
            if isinstance(seen, dict) and seen['scores'][0].argmax() == 0:
                values.append(self.cells[0](draw.choice(values)))
            if draw.random() < 0.1:
                yield
        return {'last': values[-3:], 'seen': seen}


@pytest.mark.parametrize('width', [8, 96])
@pytest.mark.parametrize('share', [0.0, 1.0])
def test_ways_that_are_drawn(monkeypatch, width, share):
    """Whatever is computed at once or by the engine, and forgotten when others have left: the
    results are eager ones."""
    monkeypatch.setattr(continuous_batching, 'SHARE', share)
    net, seeds = started(Wanders(width)), range(120)
    warm_up = range(1000, 1030)
    with edb.serving.Engine(net.walk, warm_up, max_batch=60, max_wait=math.inf) as engine:
        assert keeps_values(engine) is False
        futures = [engine.future(seed) for seed in seeds]
        results = [future.result() for future in futures]
    assert sorted(net.begun[-len(seeds) :]) == list(seeds)  # nobody had to begin again
    for seed, result in zip(seeds, results):
        expected = edb.run_concurrently([seed], net.walk)[0]
        for found, eager_one in zip(leaves(result), leaves(expected)):
            np.testing.assert_allclose(found, eager_one, rtol=1e-3, atol=1e-4)


def leaves(result):
    """What a sample gave, one array after the other."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (list, tuple)):
        return [leaf for each in result for leaf in leaves(each)]
    return [np.asarray(result.asnumpy() if isinstance(result, mx.nd.NDArray) else result)]


def test_a_scope_stays_while_others_wait(net, made):
    """Whole-graph models leave at the end of their round. Where nobody waits the scope is left, and
    parameters that somebody writes to between two rounds are the new ones."""

    def write(_):
        net.cell.bias.set_data(mx.nd.ones(HIDDEN))

    def ends(steps):
        return edb.run_concurrently([(steps, None)], net.last)[0]['state'].asnumpy()

    gate = Gate()
    with edb.serving.Engine(net.last, max_batch=1) as engine:
        expected = [ends(2), ends(3), ends(4)]
        futures = [engine.future((2, gate))]
        gate.reached.wait()
        futures += [engine.future((steps, None)) for steps in (3, 4)]
        futures[-1].add_done_callback(write)  # in the engine's thread, after the round
        futures.append(engine.future((5, None)))
        gate.opened.set()
        found = [future.result()['state'] for future in futures]
        assert engine.update(lambda: list(engine._batches._batches)).result() == []
        assert len(made) == 2  # one before that, and one after it
        engine.future((2, None)).result()
        assert len(made) == 3
    for one, other in zip(found, [*expected, ends(5)]):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_new_parameters(net):
    gate = Gate()

    def change():
        net.cell.bias.set_data(mx.nd.ones(HIDDEN))
        return 'changed'

    with edb.serving.Engine(net.walk) as engine:
        before_change = eager(net, 6)
        before = engine.future((6, gate))
        gate.reached.wait()
        updated, after = engine.update(change), engine.future((6, None))
        gate.opened.set()
        assert updated.result() == 'changed'
        np.testing.assert_allclose(before.result(), before_change, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(after.result(), eager(net, 6), rtol=1e-5, atol=1e-6)
        assert np.abs(after.result() - before.result()).max() > 0.1
        with pytest.raises(KeyError):
            engine.update(fail).result()
        engine.future((2, None)).result()


class Exits(gluon.Block):
    """Leaves when it is sure."""

    def __init__(self, depth=4):
        super().__init__()
        with self.name_scope():
            self.layers, self.heads = nn.Sequential(), nn.Sequential()
            for _ in range(depth):
                self.layers.add(nn.Dense(8, activation='tanh', in_units=8))
                self.heads.add(nn.Dense(3, in_units=8))

    def forward(self, x):
        for number, (layer, head) in enumerate(zip(self.layers, self.heads)):
            x = layer(x)
            scores = mx.nd.softmax(head(x))
            if scores.max().asscalar() > 0.5:
                return scores, number
        return scores, -1


def test_programs():
    net = Exits()
    net.initialize(mx.init.Normal(0.7))
    random = np.random.RandomState(5)
    samples = [mx.nd.array(random.uniform(-1, 1, (1, 8))) for _ in range(40)]
    expected = [net(sample) for sample in samples]
    assert len({number for _, number in expected}) > 2
    program = edb.compile_program(net, samples[0])
    nothing = mx.nd.full((1, 8), math.nan)
    with edb.serving.Engine(program, warm_up=samples[:4], max_batch=7) as engine:
        futures = [engine.future(sample) for sample in samples[:20]]
        futures += [engine.future(mx.nd.zeros((1, 9))), engine.future(nothing)]
        futures += [engine.future(sample) for sample in samples[20:]]
        with pytest.raises(edb.ProgramError, match='and the example'):
            futures.pop(20).result()
        with pytest.raises(edb.ProgramError, match='NaN|nan|number'):
            futures.pop(20).result()
        for future, (scores, number) in zip(futures, expected):
            found = future.result()
            np.testing.assert_allclose(found[0], scores.asnumpy(), rtol=1e-5, atol=1e-6)
            assert found[1] == number
        assert engine.metrics().outcomes['failed'] == 2


def test_who_leaves_a_program_early_does_not_wait_for_others():
    net = Exits()
    net.initialize(mx.init.Normal(0.7))
    random = np.random.RandomState(5)
    samples = [mx.nd.array(random.uniform(-1, 1, (1, 8))) for _ in range(40)]
    program = edb.compile_program(net, samples[0])
    depths = [net(sample)[1] % 5 for sample in samples]  # -1, at the very end, is 4
    order = sorted(range(40), key=depths.__getitem__)
    assert len(set(depths)) > 2

    def finished(ends_first):
        running, found = program.running(), []
        running.admit(range(40), samples)
        while len(running):
            found.append(sorted([number for number, _ in running.step(ends_first)]))
        return [each for each in found if each]

    assert len(finished(False)) < len(set(depths))
    groups = finished(True)
    assert [depths[group[0]] for group in groups] == sorted(set(depths))
    assert [number for group in groups for number in group] == order


def test_a_stream_of_new_samples_does_not_starve_others_in_a_program():
    """New samples run first; when others were passed over too often, they are in another batch."""
    net = Exits()
    net.initialize(mx.init.Normal(0.7))
    random = np.random.RandomState(5)
    samples = [mx.nd.array(random.uniform(-1, 1, (1, 8))) for _ in range(40)]
    program = edb.compile_program(net, samples[0])
    last = max(samples, key=lambda sample: net(sample)[1] % 5)  # -1 is at the very end
    served, made = ContinuousBatching(lambda: made.append(ProgramBatch(program)) or made[-1]), []
    first = Request(last, Future(), 0.0, None)
    done = served.admit([first])
    for _ in range(5 * PASSED_OVER):
        done += served.round() + served.admit([Request(last, Future(), 0.0, None)])
    assert first in done and len(made) > 1
    while len(served):
        done += served.round()
    for request in done:
        np.testing.assert_allclose(request.result[0], net(last)[0].asnumpy(), rtol=1e-5, atol=1e-6)


def test_warming_up_tells_errors(net):
    engine = edb.serving.Engine(net.walk, warm_up=[(3, fail)])
    with pytest.raises(KeyError, match='this sample is bad'):
        engine.start()
    with pytest.raises(edb.EngineClosedError):
        engine.future((3, None))


def test_an_engine_that_ends_tells_all(net):
    gate = Gate()

    def leave():
        raise SystemExit(3)

    engine = edb.serving.Engine(net.walk)
    engine.start()
    running = engine.future((9, gate))
    gate.reached.wait()
    futures = [engine.future((3, None)), engine.future((4, leave)), running]
    gate.opened.set()
    for future in futures:
        with pytest.raises(edb.EngineClosedError, match=r'ended by SystemExit\(3\)'):
            future.result()
    with pytest.raises(edb.EngineClosedError):
        engine.future((3, None))
    engine.close()


def test_an_engine_that_ends_tells_those_who_have_not_begun(net):
    gate = Gate()

    def leave():
        gate()
        raise SystemExit(3)

    engine = edb.serving.Engine(net.walk, max_batch=1)
    engine.start()
    futures = [engine.future((9, leave))]
    gate.reached.wait()
    futures += [engine.future((3, None)) for _ in range(2)]
    gate.opened.set()
    for future in futures:
        with pytest.raises(edb.EngineClosedError, match=r'ended by SystemExit\(3\)'):
            future.result()


def test_closed(net):
    engine = edb.serving.Engine(net.walk)
    with pytest.raises(edb.EngineClosedError, match='not started'):
        engine.future((3, None))
    with engine:
        last = engine.future((3, None))
        engine.stop()
        with pytest.raises(edb.EngineClosedError, match='told to stop'):
            engine.future((3, None))
    last.result()


@pytest.mark.parametrize('name', ['max_batch', 'max_queue', 'max_rounds'])
def test_numbers_are_checked(net, name):
    with pytest.raises(ValueError, match=f'{name} is 1 or more, not 0'):
        edb.serving.Engine(net.walk, **{name: 0})
    with pytest.raises(ValueError, match='max_wait is 0 or more, not nan'):
        edb.serving.Engine(net.walk, max_wait=math.nan)


def test_prometheus(net):
    with edb.serving.Engine(net.last) as engine:
        engine.future((3, None)).result()
    lines = engine.metrics().prometheus().splitlines()
    assert 'edb_requests_total{outcome="answered"} 1' in lines
    assert 'edb_batch_size_bucket{le="1"} 1' in lines and 'edb_batch_size_count 1' in lines
    assert 'edb_total_seconds_bucket{le="+Inf"} 1' in lines


def test_the_mean_of_a_histogram():
    histogram = edb.serving.Metrics().batch_size
    assert histogram.mean == 0
    histogram.counts[:2], histogram.total = [1, 1], 3.0
    assert histogram.mean == 1.5


DRAINING = """
import asyncio, signal, threading
import numpy as np
import gluon_edbatch as edb
from mxnet.gluon import nn

net = nn.Dense(2, in_units=3)
net.initialize()
reached, opened = threading.Event(), threading.Event()

def predict(row):
    if row is None:
        reached.set()
        opened.wait()
        return 0
    return net(row)

async def main():
    async with edb.serving.Engine(predict) as engine:
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        def on_signal():
            engine.stop()
            told.set()
        loop.add_signal_handler(signal.SIGTERM, on_signal)
        taken = [engine.submit(row) for row in [None, *[np.ones((1, 3), 'float32')] * 5]]
        await loop.run_in_executor(None, reached.wait)
        print('running', flush=True)
        await told.wait()
        try:
            engine.submit(None)
        except edb.EngineClosedError as error:
            print('refused', flush=True)
        opened.set()
        print(len(await asyncio.gather(*taken)), 'answered', flush=True)

asyncio.run(main())
"""


def test_sigterm_drains():
    with start([sys.executable, '-c', DRAINING], PYTHONPATH=str(ROOT)) as process:
        assert process.stdout.readline() == 'running\n'
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == 'refused\n6 answered\n', process.stderr.read()
        assert process.wait() == 0
