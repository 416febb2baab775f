"""Scopes whose calls run while they are made: as in eager Gluon, and only where that was measured
to be faster."""

import threading

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.execute import whole_scopes
from gluon_edbatch.record.lazy import ComputedArray
from support.models import TreeLSTM, random_trees, started

WIDTH = 4


@pytest.fixture
def now(monkeypatch):
    """All scopes but the first of their kind run their calls at once, where they may."""
    monkeypatch.setattr(whole_scopes.ScopeTrial, 'decided', True)
    monkeypatch.setattr(whole_scopes.ScopeTrial, 'faster_at_once', True)
    monkeypatch.setattr(whole_scopes.ScopeTrial, '__str__', lambda trial: 'measured, for a test')


class FakeTime:
    """Processor time: so much for a scope that records, so much for one whose calls run at once, by
    its calls."""

    def __init__(self, monkeypatch, recorded, at_once):
        self.now = 0.0
        monkeypatch.setattr(whole_scopes, '_UNTIMED', 3)
        monkeypatch.setattr(whole_scopes.time, 'process_time', lambda: self.now)
        self._slow(monkeypatch, whole_scopes.Begun, 'end_recorded', recorded)
        self._slow(monkeypatch, whole_scopes.Begun, 'takes_too_long', at_once)

    def _slow(self, monkeypatch, owner, name, seconds):
        run = getattr(owner, name)

        def slower(*args, **kwargs):
            found = run(*args, **kwargs)
            self.now += seconds
            return found

        monkeypatch.setattr(owner, name, slower)


def dense(**options):
    layer = nn.Dense(WIDTH, in_units=WIDTH, **options)
    layer.initialize(mx.init.Normal(0.5))
    return layer


def rows(count=2):
    return [nd.array(np.linspace(-1, 1, WIDTH)[None] * (i + 1)) for i in range(count)]


def ran(values):
    """Whether they are what a scope gives whose calls run at once."""
    return all([type(value) is ComputedArray for value in values])


def scope_of(layer, count=2, **options):
    with edb.batching(compile_options=edb.CompileOptions(**options)) as scope:
        values = [layer(x) for x in rows(count)]
    edb.forward(values)
    return scope, values


def gradients(net, loss_of, samples, scope):
    """Outputs, and gradients of all parameters, from a scope or without one; twice, as the first
    scope of a kind records."""
    found: list = []
    trained = [each for each in net.collect_params().values() if each.grad_req != 'null']
    for _ in range(2):
        for parameter in trained:
            parameter.zero_grad()
        with autograd.record():
            if scope:
                with edb.batching():
                    values = [loss_of(sample) for sample in samples]
            else:
                values = [loss_of(sample) for sample in samples]
            total = edb.concat(values).sum()
        total.backward()
        found.append(
            [value.asnumpy() for value in values] + [each.grad().asnumpy() for each in trained]
        )
    return found, values


def assert_same(net, loss_of, samples, at_once=True):
    expected, _ = gradients(net, loss_of, samples, False)
    found, values = gradients(net, loss_of, samples, True)
    assert ran(values) == at_once
    for one in found:
        for mine, other in zip(one, expected[-1]):
            np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-6)


# --- results -------------------------------------------------------------------------------------


class Words(edb.AutoBatchMixin, gluon.Block):
    """Numbers, NumPy arrays, lists of states, ragged arguments, operators of every kind."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = nn.Embedding(9, WIDTH)
            self.cell = gluon.rnn.LSTMCell(WIDTH, input_size=WIDTH)
            self.out = nn.Dense(WIDTH, in_units=WIDTH, activation='tanh')

    def forward(self, words):
        states, outputs = self.cell.begin_state(batch_size=1), []
        for word in words:
            h, states = self.cell(self.embed(word) * 0.5, states)
            outputs.append(h + np.full((1, WIDTH), 0.25, np.float32))
        several = edb.ragged(outputs)
        mean = edb.add_n(outputs) / len(outputs) + 1.0 - np.ones((1, WIDTH), np.float32)
        return self.out(mx.nd.concat(mean, several.sum(axis=1), dim=0).sum(axis=0, keepdims=True))


@pytest.mark.parametrize('hybridized', [False, True])
def test_models_match_eager(now, hybridized):
    trees, words = started(TreeLSTM()), started(Words())
    for net in (trees, words):
        net.hybridize(hybridized)

    def eager_words(sample):  # MXNet alone refuses NumPy arrays as operands
        with edb.batching(compile_options=edb.CompileOptions(at_once=False)):
            return words(sample)

    assert_same(trees, lambda tree: trees(tree)[0], random_trees(4))
    expected = [eager_words(sample).asnumpy() for sample in ([1, 2, 3], [4])]
    for _ in range(2):
        with edb.batching():
            values = [words(sample) for sample in ([1, 2, 3], [4])]
    assert ran(values)
    np.testing.assert_allclose([v.asnumpy() for v in values], expected, rtol=1e-5)


def test_inputs_with_gradients_and_tables_with_sparse_ones(now):
    table, layer, xs = nn.Embedding(9, WIDTH, sparse_grad=True), dense(), rows()
    table.initialize(mx.init.Normal(0.5))
    for x in xs:
        x.attach_grad()
    found = []
    for scope in (False, True):
        for _ in range(2):
            table.weight.zero_grad()
            with autograd.record():
                if scope:
                    with edb.batching():
                        values = [layer(table(nd.array([i]))) * layer(x) for i, x in enumerate(xs)]
                else:
                    values = [layer(table(nd.array([i]))) * layer(x) for i, x in enumerate(xs)]
                total = edb.stack(values).sum()
            total.backward()
        assert table.weight.grad().stype == 'row_sparse'
        found.append([x.grad.asnumpy() for x in xs] + [table.weight.grad().asnumpy()])
    assert ran(values)
    for one, other in zip(*found):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_other_modes_within_a_scope(now):
    layer = dense()
    for _ in range(2):
        with edb.batching():
            with autograd.record():
                taped = layer(rows()[0])
            free = layer(rows()[0])
    assert ran([taped, free])
    taped.backward()
    assert (layer.weight.grad().asnumpy() != 0).any()
    with pytest.raises(mx.MXNetError, match='computational graph'):
        free.backward()


def test_values_are_differentiated_one_by_one(now):
    """As recorded ones: each has a graph of its own."""
    layer = dense()
    for _ in range(2):
        layer.weight.zero_grad()
        with autograd.record(), edb.batching():
            shared = layer(rows()[0])
            first, second = shared * 2, shared * 3
        first.backward()
        one = layer.weight.grad().asnumpy()
        second.backward()
    assert ran([first, second])
    np.testing.assert_allclose(layer.weight.grad().asnumpy(), 1.5 * one, rtol=1e-5)


def test_numpy_and_writing(now):
    layer, numbers = dense(), np.arange(WIDTH, dtype=np.float32)
    for _ in range(2):
        with edb.batching():
            value = layer(rows()[0])
            expected = value.asnumpy()
            results = [value + numbers, numbers - value, value / np.float64(2), value > numbers]
            read = np.asarray(value)
            buffer = nd.zeros((2, WIDTH))
            buffer[1:2] = value
            other = layer(rows()[0])
            other += numbers
            other[:, 0] = 7
        with pytest.raises(edb.RecordError, match=r'numpy\.tanh of a recorded value'):
            np.tanh(value)
    assert ran([value, other, *results])
    wanted = [expected + numbers, numbers - expected, expected / 2, expected > numbers]
    for mine, theirs in zip(results, wanted):
        np.testing.assert_allclose(mine.asnumpy(), theirs, rtol=1e-6)
    np.testing.assert_array_equal(read, expected)
    np.testing.assert_array_equal(buffer.asnumpy()[1:], expected)
    expected += numbers
    expected[:, 0] = 7
    np.testing.assert_allclose(other.asnumpy(), expected, rtol=1e-6)


def test_forward_gives_ordinary_arrays_and_blocks_keep_theirs(now):
    same = nn.HybridLambda(lambda F, x: x)
    x = rows()[0]
    for _ in range(2):
        with edb.batching():
            value = same(x)
        array = edb.forward(value)
    assert ran([value]) and type(array) is nd.NDArray and type(x) is nd.NDArray
    array[:] = 3
    assert x.asnumpy().tolist() == [[3] * WIDTH]  # as in eager Gluon


def test_functions_of_the_package(now):
    layer = dense()

    def score(x):
        found = yield layer(x)
        return layer(x) * float(found[0, 0]) if found[0, 0] > 0 else layer(x + 1)

    def results():
        values = [layer(x) for x in rows()]
        several = edb.ragged(values)
        return [
            edb.stack(values),
            edb.concat(values),
            edb.add_n(values),
            several.sum(axis=1) * several.lengths,
            edb.nd.broadcast_add(values[0], np.ones((1, WIDTH), np.float32)),
            *edb.run_concurrently(rows(), score),
        ]

    found = []
    for options in ({'at_once': False}, {}, {}):
        with edb.batching(compile_options=edb.CompileOptions(**options)):
            values = results()
        found.append([value.asnumpy() for value in values])
    for one, other in zip(found[0], found[2]):
        np.testing.assert_allclose(one, other, rtol=1e-5)


def test_numpy_mode(now):
    with mx.util.np_shape(True), mx.util.np_array(True):
        layer = dense()
        x = mx.np.ones((1, WIDTH))
        expected = layer(x).asnumpy()
        for _ in range(2):
            with edb.batching() as scope:
                value = layer(x) + mx.np.ones((1, WIDTH))
        assert 'ran at once' in str(scope) and isinstance(value, mx.np.ndarray)
        np.testing.assert_allclose(value.asnumpy(), expected + 1, rtol=1e-5)


def test_deferred_parameters_and_hooks(now):
    outer = nn.HybridSequential()
    outer.add(nn.Dense(WIDTH), nn.Dense(2))
    outer.initialize()
    calls = []
    for net in (dense(), outer):
        net.register_forward_hook(lambda block, args, out: calls.append(out.shape))
        for _ in range(2):
            with edb.batching() as scope:
                values = [net(x) for x in rows(3)]
        assert ran(values) and scope.report().nodes == 3  # what runs inside does not count
    assert calls == [(1, WIDTH)] * 6 + [(1, 2)] * 6


def test_other_threads_and_scopes_inside_are_not_concerned(now):
    layer, found = dense(), []

    def elsewhere():
        found.append(type(layer(rows()[0])))
        with edb.batching():
            found.append(type(layer(rows()[0])))

    for _ in range(2):
        with edb.batching():
            value = layer(rows()[0])
            with edb.batching():
                inner = layer(value)
            after = layer(value)
            thread = threading.Thread(target=elsewhere)
            thread.start()
            thread.join()
    assert ran([value, after]) and type(inner) is edb.LazyArray
    assert found[0] is nd.NDArray and found[1] is edb.LazyArray
    np.testing.assert_allclose(inner.asnumpy(), after.asnumpy(), rtol=1e-6)


# --- what is not as expected ---------------------------------------------------------------------


def test_more_calls_than_lately_are_recorded(now):
    layer = dense()
    _, few = scope_of(layer, 1)
    assert not ran(few)
    (_, few), (scope, many) = scope_of(layer, 1), scope_of(layer, 9)
    assert ran(few) and ran(many[:4]) and type(many[4]) is edb.LazyArray
    report = scope.report()
    assert report.nodes == 9 and report.batches == 5
    assert sum(place.calls for place in scope.explain().places) == 9
    for x, value in zip(rows(9), many):
        np.testing.assert_allclose(value.asnumpy(), layer(x).asnumpy(), rtol=1e-5)
    assert not ran(scope_of(layer, 9)[1])  # which is another number of calls
    assert_same(layer, layer, rows(9))


def test_the_rest_is_on_the_same_tape(now):
    layer = dense()

    def chain(times):
        layer.weight.zero_grad()
        with autograd.record():
            with edb.batching():
                value = rows()[0]
                for _ in range(times):
                    value = layer(value)
            value.backward()
        return value, layer.weight.grad().asnumpy().copy()

    with edb.compile_options(at_once=False):
        _, expected = chain(7)
    chain(1)
    value, found = chain(7)
    assert type(value) is edb.LazyArray
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_another_block_or_mode_records(now):
    first, second = dense(), dense()
    for layer, at_once in ((first, False), (first, True), (second, False), (second, True)):
        assert ran(scope_of(layer)[1]) == at_once
    with autograd.record():
        assert not ran(scope_of(second)[1])
        assert ran(scope_of(second)[1])


def test_noise_never_depends_on_it(now):
    net = nn.HybridSequential()
    net.add(dense(), nn.Dropout(0.5))
    with autograd.train_mode():
        assert not any([ran(scope_of(net)[1]) for _ in range(3)])
    assert [ran(scope_of(net)[1]) for _ in range(2)] == [False, True]


def test_control_flow_is_recorded_each_time(now):
    """Hybridized Gluon gets the gradients of a branch that was not taken wrong."""

    def branch(F, x):
        return F.contrib.cond(F.sum(x) > 0, lambda: x * 2, lambda: x * 3)

    net = nn.HybridSequential()
    net.add(dense(), nn.HybridLambda(branch))
    assert not any([ran(scope_of(net)[1]) for _ in range(4)])


def test_what_gluon_refuses_is_recorded(now):
    """A hybridized block that sees another number of arrays in a list."""
    net = nn.HybridLambda(lambda F, *xs: F.add_n(*[x for several in xs for x in several]))
    net.hybridize()
    for count in (2, 2, 3, 3):
        with edb.batching():
            value = net(rows(count))
        np.testing.assert_allclose(value.asnumpy(), sum(rows(count)).asnumpy(), rtol=1e-6)
    assert type(value) is edb.LazyArray


def test_errors_are_those_of_a_scope(now):
    layer = dense()

    def run(last):
        with edb.batching():
            values = [layer(rows()[0])]
            if last is None:
                raise ValueError("user's")
            values.append(layer(last))
        return values

    run(rows()[0])
    for _ in range(2):
        with pytest.raises(edb.RecordError, match='does not accept.*1, 7') as error:
            run(nd.ones((1, WIDTH + 3)))
        assert 'test_whole_scopes' in str(error.value)
        with pytest.raises(ValueError, match="user's"):
            run(None)
    assert ran(run(rows()[0]))  # the user's errors are not held against it


def test_who_looks_at_graphs_gets_them(now):
    layer = dense()

    def recorded():
        with edb.batching() as scope:
            for x in rows():
                layer(x)
        return scope

    recorded()
    with pytest.raises(RuntimeError, match='ran at once'):
        recorded().graph()
    assert len(recorded().graph()) == 2


# --- decisions -----------------------------------------------------------------------------------


@pytest.mark.parametrize('at_once', [0.5, 0.9, 2.0])
def test_what_was_faster_stays(monkeypatch, at_once):
    layer = dense()
    FakeTime(monkeypatch, recorded=2.5, at_once=at_once)
    ways = [ran(scope_of(layer)[1]) for _ in range(40)]
    assert not any(ways[: 5 + whole_scopes._IN_TURN]) and any(ways)
    assert set(ways[30:]) == {at_once < 1.25}  # there are two calls
    scope, _ = scope_of(layer)
    if at_once == 0.5:
        (kind,) = scope.report().types
        assert kind.note == 'measured, 1e+03 ms a scope so, 2.5e+03 ms recorded'
        assert kind.passes == ('at_once',) and kind.calls == kind.batches == 2
        (place,) = scope.explain().places
        assert place.calls == 2 and kind.note in place.reasons[0].text
        assert ways.index(True) == 5 + whole_scopes._IN_TURN


def test_what_takes_too_long_is_given_up_at_once(monkeypatch):
    layer = dense()
    FakeTime(monkeypatch, recorded=1.0, at_once=1.0)
    tried = [values for _, values in [scope_of(layer, 9) for _ in range(30)] if ran(values[:1])]
    first, second = tried  # in the first, blocks may be hybridized
    assert ran(first) and ran(second[:2]) and not ran(second[2:3])


def test_many_small_calls_are_never_tried(monkeypatch):
    layer = dense()
    monkeypatch.setattr(whole_scopes, '_FEW', 5)
    FakeTime(monkeypatch, recorded=9.0, at_once=0.1)
    assert not any([ran(scope_of(layer, 6)[1]) for _ in range(30)])


def test_off_nothing_is_measured(monkeypatch):
    layer = dense()
    FakeTime(monkeypatch, recorded=9.0, at_once=0.1)
    assert not any([ran(scope_of(layer, at_once=False)[1]) for _ in range(30)])


def test_scopes_that_an_exception_left_do_not_count(monkeypatch):
    layer = dense()
    FakeTime(monkeypatch, recorded=2.0, at_once=0.1)
    for _ in range(30):
        with pytest.raises(ValueError, match='left'), edb.batching():
            value = layer(rows()[0])
            raise ValueError('left')
        assert type(value) is edb.LazyArray


def test_scopes_that_make_types_are_not_compared(monkeypatch):
    """Sentences of many lengths make types for a while, which takes longer than their calls."""
    net = nn.Dense(WIDTH, in_units=WIDTH, flatten=False)
    net.initialize()
    clock = FakeTime(monkeypatch, recorded=1.0, at_once=1.5)
    ways = []
    for length in [*range(1, 20), *[3] * 20]:
        with edb.batching():
            value = net(nd.ones((1, length, WIDTH)))
        if length != 3:
            clock.now += 9
        ways.append(ran([value]))
    assert any(ways) and not any(ways[-8:])


def test_errors_are_heard_once(monkeypatch):
    """Who waits for all that MXNet does must not keep what failed."""
    monkeypatch.setattr(whole_scopes, '_UNTIMED', 0)
    root = nn.HybridLambda('linalg_potrf')
    for _ in range(12):
        for sign in (1, -1):
            with edb.batching():
                value = root(sign * nd.eye(3).expand_dims(0))
            if sign > 0:
                assert value.asnumpy()[0, 0, 0] == 1
            else:
                with pytest.raises(mx.MXNetError, match='potrf'):
                    value.asnumpy()


def test_decisions_can_be_kept(monkeypatch, tmp_path):
    def begin(layer, count):
        return [ran(scope_of(layer, count)[1]) for _ in range(30)]

    fast, slow = dense(prefix='fast_'), dense(prefix='slow_')
    FakeTime(monkeypatch, recorded=2.5, at_once=0.5)
    assert begin(fast, 2)[-1]
    file = tmp_path / 'measured.json'
    edb.save_measured(file)
    monkeypatch.setattr(whole_scopes, '_UNTIMED', 1 << 30)
    try:
        edb.load_measured(file)
        again = dense(prefix='fast_')  # as another process makes it
        assert begin(again, 2) == [False] + 29 * [True]
        assert not any(begin(again, 9)) and not any(begin(slow, 2))
        assert begin(again, 2)[-1]
        scope, _ = scope_of(again)
        assert 'load_measured' in str(scope.report())
    finally:
        edb.load_measured(None)
    assert not any(begin(again, 2))
    file.write_text('{"at_once": 3}')
    with pytest.raises(edb.EdbError, match='not what save_measured'):
        edb.load_measured(file)
