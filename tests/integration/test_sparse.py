"""Tables with row_sparse gradients train inside a scope as they do outside."""

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.execute import backward, sparse_tables
from gluon_edbatch.execute.sparse_tables import with_dense_gradient
from gluon_edbatch.testing import assert_matches_eager
from gluon_edbatch_core.errors import BatchError
from tests.support.models import (
    EMBED,
    HIDDEN,
    VOCAB,
    Reader,
    TreeLSTM,
    random_trees,
    sentences,
    started,
)
from tests.support.plans import assert_sound, plan_of
from tests.support.tiers import sampled

SENTENCES = [[1, 2, 3, 1], [5], [6, 7, 8], [9, 1]]
BOTH_ENDS = dict(schedulers=['agenda', 'depth'])  # with native operators, and without


def table(sparse=True):
    return nn.Embedding(VOCAB, EMBED, sparse_grad=sparse)


class Word(gluon.HybridBlock):
    """What a word gives, in one call with its look-up.

    Parameters
    ----------
    kind : str
        What is special.
    sparse : bool
        Whether the gradients of its tables are row_sparse.
    """

    def __init__(self, kind='plain', sparse=True):
        super().__init__()
        self.kind = kind
        with self.name_scope():
            self.embed = table(sparse)
            self.other = table(sparse) if kind in TWO_TABLES else None
            if kind == 'tied':
                self.dense = nn.Dense(
                    VOCAB, in_units=EMBED, params=self.embed.params, use_bias=False
                )
            elif kind != 'results only':
                self.dense = nn.Dense(HIDDEN, in_units=EMBED, flatten=False)

    def hybrid_forward(self, F, token):
        word = self.embed(token)
        if self.kind == 'results only':
            return self.other(token), word
        result = F.tanh(self.dense(word))
        if self.kind == 'twice':
            result = result + self.dense(self.embed(VOCAB - 1 - token)) * result
        elif self.kind == 'two tables':
            result = F.concat(result, self.other(token), word, dim=-1)
        elif self.kind == 'a result':
            return word, result, word + 1
        elif self.kind == 'chosen by itself':
            result = result + self.dense(self.other(F.argmax(result, axis=-1)))
        elif self.kind == 'folded':
            result = result + F.reshape(
                self.dense(self.other(F.reshape(F.stack(token, token, axis=1), (-1,)))),
                (-1, 2, HIDDEN),
            ).sum(axis=1)
        elif self.kind == 'constant':
            places = self.dense(self.other(F.arange(4)))
            result = F.broadcast_add(result, F.sum(places, axis=0, keepdims=True))
        return result


TWO_TABLES = ('two tables', 'results only', 'chosen by itself', 'folded', 'constant')
WORDS = ('plain', 'twice', 'a result', 'tied') + TWO_TABLES


class Cell(gluon.HybridBlock):
    """tanh(W E[token] + U h), and the most probable next word."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.embed = table()
            self.own = nn.Dense(HIDDEN, in_units=EMBED)
            self.before = nn.Dense(HIDDEN, in_units=HIDDEN)
            self.score = nn.Dense(VOCAB, in_units=HIDDEN)

    def hybrid_forward(self, F, token, state):
        state = F.tanh(self.own(self.embed(token)) + self.before(state))
        return state, F.argmax(self.score(state), axis=1)


def along(cell, chosen=False):
    """Run the cell over words, or over the words that it chooses itself after the first."""

    def run(words):
        state = mx.nd.zeros((1, HIDDEN))
        token = mx.nd.array(words[:1])
        for word in words:
            state, following = cell(token if chosen else mx.nd.array([word]), state)
            token = following
        return state

    return run


def look_ups_of(plan):
    return [batch for batch in plan.batches if batch.node_type.tables]


def recorded_plan(run, samples, scheduler='agenda'):
    with autograd.record():
        plan = plan_of(lambda: [run(sample) for sample in samples], scheduler)
    assert_sound(plan)
    return plan


def one_step(net, run, samples, batched):
    """The gradients after a backward pass of the sum of all that `run` gives."""
    with autograd.record():
        if batched:
            with edb.batching():
                values = [run(sample) for sample in samples]
            loss = edb.stack(values).square().sum()
        else:
            loss = mx.nd.stack(*[run(sample) for sample in samples]).square().sum()
    loss.backward()
    return {
        name: parameter.grad().copy()
        for name, parameter in net.collect_params().items()
        if parameter.grad_req != 'null'
    }


def assert_same(found, expected):
    assert list(found) == list(expected)
    for name, wanted in expected.items():
        assert found[name].stype == wanted.stype
        if wanted.stype == 'row_sparse':
            np.testing.assert_array_equal(found[name].indices.asnumpy(), wanted.indices.asnumpy())
        np.testing.assert_allclose(found[name].asnumpy(), wanted.asnumpy(), rtol=1e-4, atol=1e-6)


# --- ways to look up -----------------------------------------------------------------------------


def test_a_table_alone():
    net = started(table())
    tokens = [
        mx.nd.array([3]),
        mx.nd.array([3, 5, 3]),
        mx.nd.array([[1, 0]]),
        mx.nd.array([7]),
        mx.nd.array([2], dtype='int32'),
    ]
    assert_matches_eager(net, tokens)
    for batch in look_ups_of(recorded_plan(net, tokens)):
        assert not batch.hoisted  # they are written where they belong


def test_no_row_is_touched_that_was_not_looked_up():
    net = Reader()
    net.embed = table()
    gradients = one_step(started(net), net, [[3, 5, 3], [7]], True)
    assert gradients[net.embed.weight.name].indices.asnumpy().tolist() == [3, 5, 7]


@pytest.mark.parametrize('sparse, kind', sampled(2, [True, False], WORDS))
def test_look_ups_inside_a_call(kind, sparse):
    net = started(Word(kind, sparse))
    assert_matches_eager(net, [mx.nd.array([token]) for token in (3, 1, 3, 0)], **BOTH_ENDS)


@pytest.mark.parametrize('kind', ['plain', 'twice', 'two tables', 'a result', 'results only'])
def test_several_rows_and_axes(kind):
    net = started(Word(kind))
    assert_matches_eager(net, [mx.nd.array(ids) for ids in ([3, 4], [1], [5, 3, 3])], **BOTH_ENDS)
    assert_matches_eager(
        net, [mx.nd.array(ids) for ids in ([[3, 4]], [[1, 1], [2, 0]])], **BOTH_ENDS
    )


@pytest.mark.parametrize('kind', WORDS)
def test_what_is_looked_up_apart(kind):
    net = started(Word(kind))
    tables = [
        found.name
        for batch in look_ups_of(recorded_plan(net, [mx.nd.array([token]) for token in (3, 1, 3)]))
        for found in batch.node_type.tables
    ]
    assert len(tables) == {
        'twice': 2,
        'two tables': 2,
        'results only': 2,
        'chosen by itself': 2,
    }.get(kind, 1)


@settings(max_examples=10)
@given(st.integers(0, 999), st.integers(2, 8))
def test_trees(seed, count):
    trees = random_trees(count, seed=seed)
    recorded_plan(TREES, trees)
    assert_matches_eager(TREES, trees, schedulers=['agenda'], hybridized=[False])


TREES = TreeLSTM()
TREES.embed = table()
started(TREES)


@pytest.mark.parametrize(
    'options',
    [{}, dict(hoisting=False), dict(native=False)],
    ids=['all', 'no hoisting', 'not native'],
)
def test_a_type_in_several_batches_looks_up_once(options):
    net = started(Cell())
    run = along(net)
    with edb.compile_options(**options):
        plan = recorded_plan(run, SENTENCES)
    (batch,) = look_ups_of(plan)
    assert batch.rows == 10
    assert (
        sum(
            other.node_type.serial == batch.node_type.serial and not other.hoisted
            for other in plan.batches
        )
        > 1
    )
    with edb.compile_options(**options):
        assert_matches_eager(run, SENTENCES, blocks=[net])


def test_ids_that_the_evaluation_itself_computes():
    net = started(Cell())
    run = along(net, chosen=True)
    plan = recorded_plan(run, SENTENCES)
    assert len(look_ups_of(plan)) == max(map(len, SENTENCES))
    assert_matches_eager(run, SENTENCES, blocks=[net])


class Drawn(gluon.HybridBlock):
    """The vector of a word drawn at random, and the word."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.embed = table()

    def hybrid_forward(self, F, weights):
        word = F.argmax(F.Dropout(weights, p=0.5), axis=1)
        return self.embed(word), word


def test_ids_that_are_drawn():
    net = started(Drawn())
    with autograd.record():
        with edb.batching():
            values = [net(mx.nd.ones((1, VOCAB))) for _ in range(20)]
        vectors, words = edb.forward(zip(*values))
        loss = edb.stack(vectors).sum()
    loss.backward()
    for vector, word in zip(vectors, words):
        np.testing.assert_array_equal(vector.asnumpy(), net.embed(word).asnumpy())
    used = {int(word.asscalar()) for word in words}
    assert set(net.embed.weight.grad().indices.asnumpy().tolist()) == used


class Sentence(gluon.HybridBlock):
    """A state for a sentence as a whole, whose rows are its words."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.embed = table()
            self.dense = nn.Dense(HIDDEN, in_units=EMBED)

    def hybrid_forward(self, F, tokens):
        return self.dense(F.sum(self.embed(tokens), axis=0, keepdims=True))


def test_calls_that_run_one_by_one():
    net = started(Sentence())
    assert_matches_eager(net, [mx.nd.array(words) for words in SENTENCES], **BOTH_ENDS)


class Bag(gluon.HybridBlock):
    """The sum of any number of words."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.embed = table()
            self.dense = nn.Dense(HIDDEN, in_units=EMBED)

    def hybrid_forward(self, F, tokens):
        return self.dense(F.sum(self.embed(tokens), axis=1))


def test_ragged_ids():
    net = started(Bag())
    assert_matches_eager(
        lambda words: net(edb.ragged([mx.nd.array([word]) for word in words], shape=(1,))),
        SENTENCES + [[4, 4, 4, 2]],
        blocks=[net],
        **BOTH_ENDS,
    )


def test_one_table_in_several_types_and_densely():
    net = nn.HybridSequential()
    net.add(table(), Word('twice'))
    net.add(nn.Dense(VOCAB, in_units=EMBED, params=net[0].params, use_bias=False))
    net[1].embed = net[0]
    started(net)

    def run(token):
        return net[2](net[0](token)), net[1](token)

    assert_matches_eager(
        run, [mx.nd.array([token]) for token in (3, 1, 3)], blocks=[net], **BOTH_ENDS
    )


def test_an_operator_with_a_table_as_an_array():
    net = started(table())

    def run(token):
        return (
            mx.nd.Embedding(
                token, net.weight.data(), input_dim=VOCAB, output_dim=EMBED, sparse_grad=True
            )
            * 2
        )

    assert_matches_eager(
        run, [mx.nd.array([token]) for token in (3, 1, 3)], blocks=[net], **BOTH_ENDS
    )


def test_float64():
    assert_matches_eager(
        started(Word(), dtype='float64'), [mx.nd.array([token]) for token in (3, 1)], **BOTH_ENDS
    )


# --- autograd ------------------------------------------------------------------------------------


def test_without_autograd_nothing_is_looked_up_apart():
    net = started(Word())
    tokens = [mx.nd.array([token]) for token in (3, 1, 3)]
    plan = plan_of(lambda: list(map(net, tokens)))
    assert not look_ups_of(plan) and len(plan.batches) == 1


def test_frozen_tables_are_not_looked_up_apart():
    net = started(Word())
    net.embed.weight.grad_req = 'null'
    tokens = [mx.nd.array([token]) for token in (3, 1, 3)]
    assert not look_ups_of(recorded_plan(net, tokens))
    assert_matches_eager(net, tokens, **BOTH_ENDS)
    net.embed.weight.grad_req = 'write'
    assert len(look_ups_of(recorded_plan(net, tokens))) == 1
    assert_matches_eager(net, tokens, **BOTH_ENDS)


def test_some_calls_are_not_recorded_by_autograd(monkeypatch):
    net = started(Word())

    def run(token):
        with autograd.pause():
            before = net(token + 1)
        return net(token) * before

    tokens = [mx.nd.array([token]) for token in (3, 1, 3)]
    inputs = []

    def noted(array):
        inputs.append(array.shape)
        return with_dense_gradient(array)

    monkeypatch.setattr(backward, 'with_dense_gradient', noted)
    found = one_step(net, run, tokens, True)
    assert inputs and net.embed.weight.shape not in inputs  # no dense gradient of zeros
    assert_same(found, one_step(net, run, tokens, False))


def test_several_evaluations_of_a_scope():
    net = started(Cell())
    net.score.collect_params().setattr('grad_req', 'null')

    def run(words):
        state = along(net)(words)
        state.asnumpy()
        return net(mx.nd.array([4]), state)[0] + state

    assert_same(one_step(net, run, SENTENCES, True), one_step(net, run, SENTENCES, False))


def test_a_second_backward_pass():
    net = started(Word('twice'))
    tokens = [mx.nd.array([token]) for token in (3, 1, 3)]
    expected = one_step(net, net, tokens, False)
    for parameter in net.collect_params().values():
        parameter.zero_grad()
    with autograd.record():
        with edb.batching():
            values = list(map(net, tokens))
        loss = edb.stack(values).square().sum()
    loss.backward(retain_graph=True)
    for parameter in net.collect_params().values():
        parameter.zero_grad()
    loss.backward()
    name = net.embed.weight.name
    assert_same({name: net.embed.weight.grad()}, {name: expected[name]})


def test_values_are_those_of_the_time_of_recording():
    net = started(Word())
    tokens = [mx.nd.array([token]) for token in (3, 1, 3)]
    expected = [net(token).asnumpy() for token in tokens]
    gradients = one_step(net, net, tokens, False)
    before = net.embed.weight.data().copy()
    with autograd.record():
        with edb.batching():
            values = list(map(net, tokens))
        with autograd.pause():
            net.embed.weight.data()[:] = 0
        loss = edb.stack(values).square().sum()
    np.testing.assert_allclose(
        np.stack([value.asnumpy() for value in values]), np.stack(expected), rtol=1e-5
    )
    loss.backward()
    assert not net.embed.weight.data().asnumpy().any()
    name = net.embed.weight.name
    assert_same({name: net.embed.weight.grad()}, {name: gradients[name]})
    net.embed.weight.set_data(before)


def test_a_look_up_does_not_copy_the_table():
    """Parameters are copied if somebody touches them; a look-up must not count as that."""
    net = started(Word())
    with autograd.record():
        with edb.batching() as scope:
            values = [net(mx.nd.array([token])) for token in (3, 1)]
            watched = scope._recording.model.of(net.embed.weight, mx.cpu())
        loss = edb.stack(values).sum()
    assert watched.copy is None
    loss.backward()
    assert net.embed.weight.grad().indices.asnumpy().tolist() == [1, 3]


@pytest.mark.parametrize('kind', ['alone', 'plain'])
def test_ids_that_are_given_need_no_compiled_graph(kind, monkeypatch):
    net = started(table() if kind == 'alone' else Word(kind))
    tokens = [mx.nd.array(ids) for ids in ([3, 4], [1, 2], [5, 3])]
    expected = one_step(net, net, tokens, False)
    monkeypatch.setattr(sparse_tables, 'run_unrecorded', None)
    assert_same(one_step(net, net, tokens, True), expected)


def test_only_look_ups_in_an_evaluation():
    net = started(table())
    tokens = [mx.nd.array([token]) for token in (3, 1, 3)]
    assert_same(one_step(net, net, tokens, True), one_step(net, net, tokens, False))


@pytest.mark.parametrize('kind', ['plain', 'results only', 'tied'])
def test_gradients_that_are_to_be_added_are_an_error(kind):
    net = started(Word(kind))
    net.collect_params().setattr('grad_req', 'add')
    with autograd.record():
        with edb.batching():
            value = net(mx.nd.array([3]))  # this line
        with pytest.raises(
            BatchError,
            match=r'(?s)cannot add; use .*sparse_grad=False.*'
            r'test_sparse\.py',
        ):
            edb.forward([value])


# --- training ------------------------------------------------------------------------------------

OPTIMIZERS = [
    ('sgd', dict(learning_rate=0.1, momentum=0.9, wd=0.01)),
    ('adam', dict(learning_rate=0.05, wd=0.01)),
]


@pytest.mark.parametrize('optimizer, options', OPTIMIZERS, ids=['sgd', 'adam'])
@pytest.mark.parametrize('kvstore', [None, 'device'], ids=['no kvstore', 'kvstore'])
def test_steps_of_a_trainer(optimizer, options, kvstore):
    def train(batched):
        net = Reader(gluon.rnn.GRUCell)
        net.embed = table()
        started(net)
        trainer = gluon.Trainer(net.collect_params(), optimizer, options, kvstore=kvstore)
        for step in range(4):
            one_step(net, net, sentences(3, seed=step), batched)
            trainer.step(3)
        return {
            name.split('_', 1)[1]: parameter.data()
            for name, parameter in net.collect_params().items()
        }

    assert_same(train(True), train(False))
