"""What a sample recorded is used again: the same results and gradients, or it is recorded anew."""

import threading

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.testing import assert_matches_eager
from tests.support.memory import Model, assert_flat, minibatch
from tests.support.models import HIDDEN, VOCAB, random_trees

NEVER = 10**9  # for check_every


class Scored(edb.AutoBatchMixin, gluon.Block):
    """A Tree-LSTM with a squared error; `twice` changes what is recorded."""

    def __init__(self):
        super().__init__()
        self.twice = False
        self.seen = 0
        with self.name_scope():
            self.embed = nn.Embedding(VOCAB, HIDDEN)
            self.cell = edb.rnn.ChildSumTreeLSTMCell(HIDDEN, input_size=HIDDEN)
            self.out = nn.Dense(2, in_units=HIDDEN)
            self.loss = gluon.loss.L2Loss()

    def forward(self, tree, target):
        hidden = []
        self.state(tree, hidden)
        return self.loss(self.out(edb.concat(hidden)).sum(axis=0, keepdims=True), target)

    def state(self, tree, hidden):
        """(h, c) of a tree; appends the h of each of its nodes."""
        children = [self.state(child, hidden) for child in tree.children]
        state = self.cell(self.embed(tree.token), children)
        if self.twice:
            state = self.cell(self.embed(0), [state])
        hidden.append(state[0])
        return state


def scored():
    net = Scored()
    net.initialize(mx.init.Normal(0.3))
    return net


def samples(count=6, seed=0):
    generator = np.random.RandomState(seed)
    return [
        (tree, generator.normal(size=(1, 2)).astype(np.float32))
        for tree in random_trees(count, seed)
    ]


def run(net, reuse, batch, keys=None):
    with edb.batching() as scope:
        values = [reuse(key, net, *sample) for key, sample in zip(keys or range(len(batch)), batch)]
    return scope, values


def numbers(values):
    return [value.asnumpy() for value in edb.forward(values)]


def test_matches_eager():
    net, batch, reuse = scored(), samples(), edb.Reuse(check_every=7)
    assert_matches_eager(lambda key: reuse(key, net, *batch[key]), range(len(batch)), blocks=[net])
    # in training and in inference, with and without native operators
    assert reuse.recorded - reuse.checked == 4 * len(batch)
    assert reuse.reused > 30 and reuse.checked > 5


def test_pieces_in_any_order_are_the_graph_that_recording_makes():
    net, batch, reuse = scored(), samples(), edb.Reuse(check_every=NEVER)
    run(net, edb.Reuse(), batch)  # the first scope with these calls adds otherwise
    run(net, reuse, batch)
    order = [3, 0, 0, 5, 2, 3]
    chosen = [batch[i] for i in order]
    reused, _ = run(net, reuse, chosen, order)
    fresh, _ = run(net, edb.Reuse(), chosen)
    assert reuse.reused == len(order)
    one, other = reused.graph(), fresh.graph()
    np.testing.assert_array_equal(one.types, other.types)
    np.testing.assert_array_equal(one.offsets, other.offsets)
    np.testing.assert_array_equal(one.inputs, other.inputs)
    assert one.type_names == other.type_names


def test_reused_beside_recorded():
    net, batch, reuse = scored(), samples(), edb.Reuse(check_every=NEVER)
    run(net, reuse, batch[:3])
    expected = [net(*sample).asnumpy() for sample in batch]
    with edb.batching():
        values = [
            net(*sample) if i % 2 else reuse(i, net, *sample) for i, sample in enumerate(batch)
        ]
        doubled = [2 * value for value in values]
    assert reuse.reused == 2
    for value, twice, right in zip(values, numbers(doubled), expected):
        np.testing.assert_allclose(value.asnumpy(), right, rtol=1e-5)
        np.testing.assert_allclose(twice, 2 * right, rtol=1e-5)


def test_training_is_that_without_reuse():
    def train(reuse):
        mx.random.seed(1)
        net = scored()
        trainer = gluon.Trainer(net.collect_params(), 'sgd', {'learning_rate': 0.1})
        losses = []
        for _ in range(4):
            with autograd.record():
                with edb.batching():
                    values = [
                        net(*sample) if reuse is None else reuse(key, net, *sample)
                        for key, sample in enumerate(samples())
                    ]
                loss = edb.concat(values).mean()
            loss.backward()
            trainer.step(1)
            losses.append(loss.asscalar())
        return losses

    reuse = edb.Reuse(check_every=NEVER)
    np.testing.assert_allclose(train(reuse), train(None), rtol=1e-5)
    assert reuse.reused == 3 * len(samples())


def test_change_is_noticed():
    net, batch, reuse = scored(), samples(3), edb.Reuse(check_every=4)
    keys = ['first', 'second', 'third']
    run(net, reuse, batch, keys)
    net.twice = True  # of a plain Block, whose Python nobody sees
    run(net, reuse, batch, keys)
    with pytest.raises(edb.RecordError, match=r"'second' records is not .*test_reuse.py:\d+ on"):
        run(net, reuse, batch[1:2], keys[1:2])
    assert (reuse.reused, reuse.checked) == (3, 1)


@pytest.mark.parametrize('change', ['number', 'array', 'call', 'result'])
def test_each_difference_is_noticed(change):
    net, reuse = nn.Dense(2, in_units=2), edb.Reuse(check_every=1)
    net.initialize()
    embed = nn.Embedding(5, 2)
    embed.initialize()
    now = {'number': 1, 'array': np.ones((1, 2), np.float32), 'call': False, 'result': False}

    def model():
        value = net(embed(now['number'])) + net(now['array'])
        if now['call']:
            value = net(value)
        return (value, value) if now['result'] else value

    for _ in range(3):
        with edb.batching():
            reuse('sample', model)
    assert reuse.checked == 2
    now[change] = {'number': 2, 'array': np.zeros((1, 2), np.float32)}.get(change, True)
    with pytest.raises(edb.RecordError, match="'sample'"):
        with edb.batching():
            reuse('sample', model)


def test_recorded_anew_after_an_error():
    net, batch, reuse = scored(), samples(1), edb.Reuse(check_every=1)
    run(net, reuse, batch)
    net.twice = True
    with pytest.raises(edb.RecordError):
        run(net, reuse, batch)
    _, values = run(net, reuse, batch)
    np.testing.assert_allclose(numbers(values)[0], net(*batch[0]).asnumpy(), rtol=1e-5)


def assert_always_runs(function, times=3):
    """No call of `function` by reuse is saved, and all are right."""
    reuse = edb.Reuse(check_every=NEVER)
    for _ in range(times):
        with edb.batching():
            value = reuse('key', function)
        value.asnumpy()
    assert (reuse.recorded, reuse.reused, len(reuse)) == (times, 0, 0)


def dense():
    net = nn.Dense(2, in_units=2)
    net.initialize()
    return net


def test_off_where_values_are_read():
    net = dense()
    embed = nn.Embedding(5, 2)
    embed.initialize()

    def model():
        value = net(embed(1))
        return net(value) if value.sum().asscalar() > 0 else value

    assert_always_runs(model)


def test_off_for_ndarrays():
    net, given = dense(), mx.nd.ones((1, 2))
    assert_always_runs(lambda: net(given))


def test_off_for_large_ndarrays():
    net, given = nn.Dense(2, in_units=70_000), mx.nd.ones((1, 70_000))
    net.initialize()
    assert_always_runs(lambda: net(given))


def test_off_for_values_computed_elsewhere():
    net, reuse = dense(), edb.Reuse(check_every=NEVER)
    for _ in range(2):
        with edb.batching():
            outside = net(np.ones((1, 2), np.float32))
            value = reuse('key', net, outside)
        np.testing.assert_allclose(
            value.asnumpy(), net(net(mx.nd.ones((1, 2)))).asnumpy(), rtol=1e-5
        )
    assert (reuse.recorded, len(reuse)) == (2, 0)


def test_off_for_results_computed_elsewhere():
    net, reuse = dense(), edb.Reuse(check_every=NEVER)
    for _ in range(2):
        with edb.batching():
            outside = net(np.ones((1, 2), np.float32))
            assert reuse('key', lambda: outside) is outside
    assert len(reuse) == 0


def test_off_for_forward_hooks():
    net, seen = dense(), []
    net.register_forward_hook(lambda *_: seen.append(1))
    assert_always_runs(lambda: net(np.ones((1, 2), np.float32)))
    assert len(seen) == 3


def test_off_where_attributes_are_set():
    net = scored()
    tree, target = samples(1)[0]

    def model():
        net.seen += 1
        return net(tree, target)

    assert_always_runs(model)
    assert net.seen == 3


def test_runs_outside_of_scopes():
    net, reuse = dense(), edb.Reuse()
    value = reuse('key', net, mx.nd.ones((1, 2)))
    assert type(value) is mx.nd.NDArray and len(reuse) == 0


def test_modes_are_kept_apart():
    net, reuse = nn.HybridSequential(), edb.Reuse(check_every=NEVER)
    net.add(nn.Dense(50, in_units=2), nn.Dropout(0.5))
    net.initialize()

    def zeros():
        with edb.batching():
            value = reuse('key', net, np.ones((1, 2), np.float32))
        return (value.asnumpy() == 0).sum()

    assert zeros() == zeros() == 0
    with autograd.train_mode():
        assert zeros() > 5 and zeros() > 5
    assert zeros() == 0
    assert (reuse.recorded, reuse.reused) == (2, 3)


@pytest.mark.parametrize('change', ['attribute', 'hook', 'container'])
def test_blocks_that_are_not_as_they_were(change):
    class Scale(gluon.HybridBlock):
        """Multiplies."""

        def __init__(self):
            super().__init__()
            self.factor, self.factors, self.told = 2.0, [1.0], []

        def hybrid_forward(self, F, x):
            return x * self.factor * self.factors[0]

    net, reuse, told = Scale(), edb.Reuse(check_every=NEVER), []
    one = np.ones((1, 2), np.float32)

    def value():
        with edb.batching():
            result = reuse('key', net, one)
        return result.asnumpy()[0, 0]

    assert value() == value() == 2 and reuse.reused == 1
    if change == 'attribute':
        net.factor = 3.0
    elif change == 'container':
        net.factors[0] = 1.5
    else:
        net.register_forward_hook(lambda *_: told.append(1))
    assert value() == (2 if change == 'hook' else 3)
    assert len(told) == (change == 'hook')
    assert (reuse.recorded, reuse.reused) == (2, 1)


def test_parameters_have_their_present_values():
    net, reuse = dense(), edb.Reuse(check_every=NEVER)
    one = np.ones((1, 2), np.float32)
    for factor in (1, 2, 3):
        net.weight.set_data(mx.nd.full((2, 2), factor))
        with edb.batching():
            value = reuse('key', net, one)
        np.testing.assert_allclose(value.asnumpy(), [[2 * factor] * 2])
    assert reuse.reused == 2


def test_parameters_changed_within_a_scope():
    net, reuse = dense(), edb.Reuse(check_every=NEVER)
    one = np.ones((1, 2), np.float32)
    with edb.batching():
        reuse('key', net, one)
    with edb.batching():
        reuse('key', net, one)
        net.weight.set_data(mx.nd.full((2, 2), 5))
        with pytest.raises(edb.RecordError, match='was changed between two recorded calls'):
            reuse('key', net, one)


def test_numbers_of_another_context():
    net, reuse = nn.Embedding(5, 2), edb.Reuse(check_every=NEVER)
    net.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    for ctx in (mx.cpu(0), mx.cpu(1), mx.cpu(1)):
        with edb.batching(ctx=ctx):
            value = reuse('key', net, 3)
        assert value.ctx == ctx
        np.testing.assert_allclose(value.asnumpy(), net.weight.data(ctx)[3:4].asnumpy())
    assert (reuse.recorded, reuse.reused) == (2, 1)


def test_inputs_are_those_of_the_first_time():
    net, reuse, given = dense(), edb.Reuse(check_every=NEVER), np.ones((1, 2), np.float32)
    with edb.batching():
        first = reuse('key', net, given)
    given[:] = 7
    with edb.batching():
        second = reuse('key', net, given)
    np.testing.assert_array_equal(first.asnumpy(), second.asnumpy())


def test_numbers_that_are_not_exact_are_errors_with_the_line():
    net, reuse = nn.Embedding(5, 2), edb.Reuse(check_every=NEVER)
    net.initialize()

    def model():
        return net(16777217)

    for _ in range(2):
        with edb.batching():
            value = reuse('key', model)
        with pytest.raises(edb.RecordError, match='16777217.*\n.*test_reuse.py'):
            value.asnumpy()


def test_nested():
    net, reuse = dense(), edb.Reuse(check_every=NEVER)
    one = np.ones((1, 2), np.float32)

    def outer():
        return net(reuse('inner', net, one))

    values = []
    for _ in range(3):
        with edb.batching():
            values.append(reuse('outer', outer))
    assert (reuse.recorded, reuse.reused) == (2, 2)
    for value in values:
        np.testing.assert_allclose(
            value.asnumpy(), net(net(mx.nd.ones((1, 2)))).asnumpy(), rtol=1e-5
        )


def test_structures():
    net, reuse = dense(), edb.Reuse(check_every=NEVER)

    def model(number):
        value = net(np.full((1, 2), number, np.float32))
        return {'value': value, 'more': [(value + 1, 'name'), None]}

    for _ in range(2):
        with edb.batching():
            result = reuse('key', model, 3)
    assert reuse.reused == 1
    result = edb.forward(result)
    assert list(result) == ['value', 'more'] and result['more'][0][1] == 'name'
    np.testing.assert_allclose(result['more'][0][0].asnumpy(), result['value'].asnumpy() + 1)


def test_limit():
    net, reuse = dense(), edb.Reuse(limit=3, check_every=NEVER)

    def use(key):
        with edb.batching():
            reuse(key, net, np.ones((1, 2), np.float32))

    for key in (0, 1, 2, 0, 3):
        use(key)
    assert len(reuse) == 3
    use(0)  # was used after 1
    assert reuse.reused == 2
    use(1)
    assert reuse.reused == 2


@pytest.mark.parametrize('arguments', [{'limit': 0}, {'check_every': 0}])
def test_wrong_arguments(arguments):
    with pytest.raises(ValueError, match='at least 1'):
        edb.Reuse(**arguments)


def test_mixin():
    net, batch, reuse = scored(), samples(), edb.Reuse(check_every=NEVER)
    for _ in range(2):
        values = net.batch(batch, unpack=True, keys=range(len(batch)), reuse=reuse)
    assert reuse.reused == len(batch)
    for value, sample in zip(values, batch):
        np.testing.assert_allclose(value.asnumpy(), net(*sample).asnumpy(), rtol=1e-5)
    with pytest.raises(ValueError, match='together'):
        net.batch(batch, unpack=True, keys=range(len(batch)))
    with pytest.raises(ValueError, match='2 keys for 6 samples'):
        net.batch(batch, unpack=True, keys=[1, 2], reuse=reuse)


def test_threads():
    """Threads record concurrently into one cache, and evaluate one after the other."""
    net, batch, reuse = scored(), samples(), edb.Reuse(limit=4, check_every=5)
    expected = [net(*sample).asnumpy() for sample in batch]
    wrong, evaluating = [], threading.Lock()

    def work():
        for _ in range(10):
            _, values = run(net, reuse, batch)
            with evaluating:
                found = numbers(values)
            wrong.extend(
                i
                for i, (value, right) in enumerate(zip(found, expected))
                if not np.allclose(value, right, rtol=1e-4, atol=1e-6)
            )

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_is_flat():
    reuse = edb.Reuse(limit=40)
    model = Model(16)
    model.initialize()
    generator = np.random.RandomState(0)
    drawn = [minibatch(generator) for _ in range(5)]

    def step(number):
        with edb.batching():
            values = [
                reuse((number % 5, i), model, tree) for i, tree in enumerate(drawn[number % 5])
            ]
        edb.concat(values).asnumpy()

    assert_flat(step, 30, 60, 2e6)
    assert len(reuse) == 40


class FromState(edb.AutoBatchMixin, gluon.Block):
    """A sequence that begins with the same array each time."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.embed = nn.Embedding(VOCAB, HIDDEN)
            self.cell = gluon.rnn.LSTMCell(HIDDEN, input_size=HIDDEN)
        self.begin = [np.full((1, HIDDEN), 0.5, np.float32)] * 2

    def forward(self, tokens):
        states = self.begin
        for token in tokens:
            _, states = self.cell(self.embed(token), states)
        return states[0]


def test_arrays_that_samples_share():
    net, reuse = FromState(), edb.Reuse(check_every=NEVER)
    net.initialize(mx.init.Normal(0.3))
    batch = [([1, 2, 3],), ([2],), ([4, 1],)]
    expected = [net(*sample).asnumpy() for sample in batch]
    for _ in range(2):
        scope, values = run(net, reuse, batch)
        np.testing.assert_allclose(numbers(values), expected, rtol=1e-5)
        assert len(scope._recording.arrays) == 1  # both states of all samples
    assert (reuse.recorded, reuse.reused) == (3, 3)
