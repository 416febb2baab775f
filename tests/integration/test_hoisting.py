"""What depends on known arguments runs once for all batches of a type, with the same results."""

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.execute.cached import cached_backend as cached
from gluon_edbatch.testing import assert_matches_eager
from tests.support.models import TreeLSTM, random_trees, started
from tests.support.plans import assert_sound, plan_of

H = 4


class Chain(gluon.Block):
    """A recurrent cell along a sequence of words."""

    def __init__(self, cell):
        super().__init__()
        with self.name_scope():
            self.embed = nn.Embedding(20, H)
            self.cell = cell

    def forward(self, words):
        state = self.cell.begin_state(batch_size=1, func=mx.nd.zeros)
        for word in words:
            output, state = self.cell(self.embed(mx.nd.array([word])), state)
        return output


class Late(gluon.HybridBlock):
    """tanh(W x + s), and variations of what depends on x alone."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        with self.name_scope():
            self.dense = nn.Dense(H, in_units=H) if kind != 'no product' else nn.Activation('relu')

    def hybrid_forward(self, F, x, state):
        own = self.dense(x)
        after = F.tanh(own + state)
        if self.kind == 'used again':
            return after * own + x
        if self.kind == 'a result':
            return after, own
        return after


def chains(net, lengths):
    def run(length):
        x = [mx.nd.ones((1, H)) * 0.1 * (i + 1) for i in range(length)]
        state = mx.nd.zeros((1, H))
        for one in x:
            found = net(one, state)
            state = found[0] if isinstance(found, (tuple, list)) else found
        return found

    return run, lengths


def hoisted(plan):
    return [batch for batch in plan.batches if batch.hoisted]


def twice(record):
    """The plan of the second evaluation: the first compares types with calls run alone."""
    plan_of(record)
    return plan_of(record)


@pytest.mark.parametrize(
    'cell',
    [gluon.rnn.LSTMCell, gluon.rnn.GRUCell, gluon.rnn.RNNCell],
    ids=lambda cell: cell.__name__,
)
def test_recurrent_cells(cell):
    net = started(Chain(cell(H, input_size=H)))
    samples = [[1, 2, 3, 4], [5], [6, 7, 8], [9, 1]]
    (batch,) = hoisted(twice(lambda: [net(sample) for sample in samples]))
    assert batch.rows == 10
    assert_matches_eager(net, samples)


@settings(max_examples=20)
@given(st.integers(0, 999), st.integers(2, 8))
def test_trees(seed, count):
    trees = random_trees(count, seed=seed)
    plan = plan_of(lambda: [TREES(tree) for tree in trees])
    assert_sound(plan)
    assert_matches_eager(TREES, trees, schedulers=['agenda'], hybridized=[False])


TREES = started(TreeLSTM())


def words_of(tree):
    return [tree.token, *(word for child in tree.children for word in words_of(child))]


def test_trees_are_hoisted():
    plan = twice(lambda: [TREES(tree) for tree in random_trees(6)])
    (batch,) = hoisted(plan)
    late = [
        other
        for other in plan.batches
        if other.node_type.serial == batch.node_type.serial and not other.hoisted
    ]
    words = [word for tree in random_trees(6) for word in words_of(tree)]
    assert sum(other.rows for other in late) == len(words) and len(late) > 1
    assert batch.rows == len(set(words)) < len(words)  # each word once
    assert_sound(plan)


@pytest.mark.parametrize(
    'kind, expected', [('plain', 1), ('used again', 1), ('no product', 0), ('a result', 0)]
)
def test_what_is_hoisted(kind, expected):
    net = started(Late(kind))
    run, lengths = chains(net, [3, 1, 4])
    assert len(hoisted(twice(lambda: [run(length) for length in lengths]))) == expected
    assert_matches_eager(run, lengths, blocks=[net])


def test_arguments_that_the_type_itself_computes_are_not_known():
    net = started(Late('plain'))

    def run(length):
        x = state = mx.nd.ones((1, H))
        for _ in range(length):
            x = state = net(x, state)
        return state

    assert not hoisted(twice(lambda: [run(length) for length in (3, 1, 4)]))
    assert_matches_eager(run, [3, 1, 4], blocks=[net])


class BothWays(gluon.HybridBlock):
    """tanh(W x + V y), of which either may be there before."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.of_x, self.of_y = nn.Dense(H, in_units=H), nn.Dense(H, in_units=H)

    def hybrid_forward(self, F, x, y):
        return F.tanh(self.of_x(x) - 0.5 * self.of_y(y))


def test_a_type_in_two_ways_in_turn():
    """What runs natively of the one is not taken for the other."""
    net, before = started(BothWays()), started(nn.Dense(H, in_units=H))

    def run(case):
        known_first, length = case
        given = mx.nd.ones((1, H))
        state = before(given)  # a type that is the first one both ways
        for place in range(length):
            one = given * (0.1 * (place + 1))
            state = net(one, state) if known_first else net(state, one)
        return state

    for known_first in (True, False, True, False):
        cases = [(known_first, length) for length in (3, 1, 4)]
        assert_matches_eager(run, cases, blocks=[net, before])
        (batch,) = hoisted(twice(lambda: [run(case) for case in cases]))
        assert batch.rows == 4  # of eight, as lengths have the first places in common


def test_the_report_counts_batches_as_scheduled():
    for _ in range(2):
        with edb.batching() as scope:
            values = [TREES(tree) for tree in random_trees(6)]
        edb.forward(values)
    report = scope.report()
    assert sum(kind.batches for kind in report.types) == report.batches
    assert sum(kind.calls for kind in report.types) == report.nodes
    assert [kind.hoisted for kind in report.types if 'TreeLSTM' in kind.name] == [1]


def test_parameters_changed_between_evaluations_count():
    net = started(Late('plain'))
    run, lengths = chains(net, [3, 2])
    for _ in range(3):
        for parameter in net.collect_params().values():
            parameter.set_data(mx.nd.random.normal(shape=parameter.shape))
        with edb.batching():
            found = [run(length) for length in lengths]
        for value, length in zip(edb.forward(found), lengths):
            np.testing.assert_allclose(value.asnumpy(), run(length).asnumpy(), rtol=1e-5)


@pytest.mark.parametrize('grad_req', ['write', 'add', 'null'])
def test_grad_req(grad_req):
    net = started(Late('used again'))
    run, lengths = chains(net, [3, 1, 2])
    net.dense.bias.grad_req = grad_req  # (of a frozen weight, MXNet loses the bias's gradient)

    def gradients(batched):
        for parameter in net.collect_params().values():
            if parameter.grad_req != 'null':
                parameter.zero_grad()
        for _ in range(2):
            with autograd.record():
                if batched:
                    with edb.batching():
                        values = [run(length) for length in lengths]
                    loss = edb.stack(values).sum()
                else:
                    loss = mx.nd.add_n(*map(run, lengths)).sum()
            loss.backward()
        return [
            parameter.grad().asnumpy()
            for parameter in net.collect_params().values()
            if parameter.grad_req != 'null'
        ]

    for found, expected in zip(gradients(True), gradients(False)):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


class Chosen(gluon.HybridBlock):
    """The largest of W x + U h, as an integer and as a vector."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.own = nn.Dense(H, in_units=H)
            self.before = nn.Dense(H, in_units=H)

    def hybrid_forward(self, F, x, h):
        return F.cast(F.argmax(self.own(x) + self.before(h), axis=1, keepdims=True), 'int32')


class Vector(gluon.HybridBlock):
    """A vector for an integer."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.dense = nn.Dense(H, in_units=1)

    def hybrid_forward(self, F, chosen):
        return self.dense(F.cast(chosen, 'float32'))


def test_results_without_gradients_give_none_to_what_is_hoisted():
    chosen, vector = started(Chosen()), started(Vector(), seed=1)

    def run(length):
        state = mx.nd.zeros((1, H))
        for i in range(length):
            state = vector(chosen(mx.nd.ones((1, H)) * 0.1 * (i + 1), state))
        return state

    for native in (True, False):  # (there is no eager backward pass through integers in MXNet)
        for _ in range(3):
            with edb.compile_options(native=native), autograd.record():
                with edb.batching() as scope:
                    values = [run(length) for length in (3, 1, 4)]
                loss = edb.stack(values).sum()
            loss.backward()
            assert sum(kind.hoisted for kind in scope.report().types) == 1
            assert not any(
                parameter.grad().asnumpy().any() for parameter in chosen.collect_params().values()
            )


# --- rows that hold the same ---------------------------------------------------------------------

REPEATED = [[1, 2, 1, 2], [2], [1, 1, 2], [2, 1]]
ANOTHER = [[1, 2, 3, 4], [5], [6, 7, 8], [9, 1]]


class Words(Chain):
    """A cell on Python numbers, with any layer between word vectors and cell."""

    def __init__(self, cell, between=None):
        super().__init__(cell)
        with self.name_scope():
            self.between = between or nn.Activation('relu')

    def forward(self, words):
        state = self.cell.begin_state(batch_size=1, func=mx.nd.zeros)
        for word in words:
            output, state = self.cell(self.between(self.embed(mx.nd.array([word]))), state)
        return output


class Sign(gluon.HybridBlock):
    """A vector for a zero of either sign."""

    def hybrid_forward(self, F, x):
        return F.broadcast_mul(F.arctan(1 / x).reshape((-1, 1)), F.ones((1, H)))


class Noisy(gluon.rnn.RNNCell):
    """A cell that drops some of its input."""

    def hybrid_forward(self, F, inputs, states, **weights):
        return super().hybrid_forward(F, F.Dropout(inputs, p=0.5), states, **weights)


def early_rows(net, samples, training=False):
    with autograd.record(train_mode=training):
        return [batch.rows for batch in hoisted(twice(lambda: [net(each) for each in samples]))]


@pytest.fixture(params=[False, True], ids=['native', 'cached'])
def shared(request, monkeypatch):
    """With either backend, as if each took what is read by index for free."""
    if not request.param:
        yield
        return
    capabilities = cached.capabilities
    monkeypatch.setattr(
        cached, 'capabilities', lambda kind: capabilities(kind)._replace(shares=True)
    )
    with edb.compile_options(native=False):
        yield


@pytest.mark.parametrize('cell', [gluon.rnn.RNNCell, gluon.rnn.LSTMCell])
def test_what_is_computed_of_the_same_word_is_computed_once(shared, cell):
    """The hoisted part of an RNN is as wide as its states, which the user may read."""
    net = started(Words(cell(H, input_size=H)))
    assert early_rows(net, REPEATED) == [2] and early_rows(net, ANOTHER) == [10]
    assert_matches_eager(net, REPEATED)
    assert_sound(twice(lambda: [net(words) for words in REPEATED]))


class TaggedWord(gluon.HybridBlock):
    """The vector of a word with its tag."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.words, self.tags = nn.Embedding(9, H - 2), nn.Embedding(4, 2)

    def hybrid_forward(self, F, word, tag):
        return F.concat(self.words(word), self.tags(tag), dim=1)


class TaggedWords(edb.AutoBatchMixin, gluon.Block):
    """Reads words with tags."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.embed, self.cell = TaggedWord(), gluon.rnn.LSTMCell(H, input_size=H)

    def forward(self, tokens):
        state = [np.zeros((1, H), np.float32)] * 2
        for word, tag in tokens:
            output, state = self.cell(self.embed(word, tag), state)
        return output


def test_what_is_computed_of_the_same_arguments_is_computed_once(shared):
    """Equal words with other tags, or equal tags with other words, are not equal."""
    net = started(TaggedWords())
    samples = [[(1, 2), (2, 1), (1, 2)], [(1, 1)], [(2, 1), (1, 2), (1, 1), (1, 2)]]
    assert early_rows(net, samples) == [3]
    assert early_rows(net, [[(1, 2), (2, 1), (1, 1)], [(3, 1), (3, 2)]]) == [5]
    assert_matches_eager(net, samples)


@pytest.mark.parametrize('shared', [True], indirect=True, ids=['cached'])
def test_zeros_of_either_sign_are_two(shared):
    net, sign = started(gluon.rnn.RNNCell(H, input_size=H)), started(Sign())

    def run(numbers):
        state = [mx.nd.zeros((1, H))]
        for number in numbers:
            output, state = net(sign(number), state)
        return output

    samples = [[0.0, -0.0, 0.0], [-0.0], [0.0, 0.0, -0.0, -0.0]]
    assert early_rows(run, samples) == [2]


def test_noise_is_drawn_for_each(shared):
    net = started(Words(gluon.rnn.RNNCell(H, input_size=H), nn.Dropout(0.5)))
    assert early_rows(net, REPEATED, training=True) in ([], [10])
    net = started(Words(Noisy(H, input_size=H)))
    assert early_rows(net, REPEATED, training=True) in ([], [10])


def test_gradients_of_given_arrays_are_added(shared):
    net = started(Late('plain'))
    given, other = mx.nd.ones((1, H)) * 0.1, mx.nd.ones((1, H)) * 0.2
    given.attach_grad()
    other.attach_grad()

    def run(places):
        state = mx.nd.zeros((1, H))
        for place in places:
            state = net((given, other)[place], state)
        return state

    samples = [[0, 0, 1, 0], [1], [0, 1, 0]]
    assert early_rows(run, samples) == [2]
    assert_matches_eager(run, samples, blocks=[net], inputs=[given, other])
