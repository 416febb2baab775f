"""Calls that recur with other numbers have one plan, with the results of a new one."""

import threading

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch_core.plan import plan_cache
from tests.support.models import Tree, TreeLSTM, ndarrays, random_trees, sentences, started
from tests.support.tiers import sampled

WIDTH = 6
TIMES = 8  # a plan is kept from the second time on, once a policy is learned


class Attention(edb.AutoBatchMixin, gluon.Block):
    """Ragged values of given arrays."""

    def __init__(self):
        super().__init__()
        self.key = nn.Dense(WIDTH, in_units=WIDTH, flatten=False)
        self.attend = Attend()

    def forward(self, words):
        return self.attend(words[0], self.key(edb.ragged(words)))


class Attend(gluon.HybridBlock):
    def hybrid_forward(self, F, query, keys):
        scores = F.batch_dot(F.expand_dims(query, 1), F.transpose(keys, axes=(0, 2, 1)))
        return F.squeeze(F.batch_dot(F.softmax(scores), keys), axis=1)


class Sentence(edb.AutoBatchMixin, gluon.Block):
    """A sequence, its outputs, and numbers that vary."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, WIDTH)
        self.cell = gluon.rnn.LSTMCell(WIDTH, input_size=WIDTH)
        self.out = nn.Dense(3, in_units=WIDTH)

    def forward(self, words):
        states, outputs = self.cell.begin_state(1), []
        for place, word in enumerate(words):
            output, states = self.cell(self.embed(mx.nd.array([word])), states)
            outputs.append(self.out(output * (1 + 0.1 * place)))
        return edb.concat(outputs)


def trees(round_):
    """Return trees of the same structures with other words."""
    generator = np.random.RandomState(round_)

    def renamed(tree):
        return Tree(generator.randint(0, 10), [renamed(child) for child in tree.children])

    return list(map(renamed, random_trees(5, seed=7)))


def lists_of_arrays(round_):
    return [
        ndarrays(length, (1, WIDTH), 9 * round_ + length, gradient=True) for length in (2, 4, 3)
    ]


def lists_of_words(round_):
    """No word twice: equal arrays would be one, and the calls others."""
    words = iter(np.random.RandomState(round_).permutation(40).tolist())
    return [[next(words) for _ in each] for each in sentences(4, seed=3)]


MODELS = {
    'trees': (lambda: TreeLSTM(WIDTH), trees),
    'attention': (Attention, lists_of_arrays),
    'sentences': (Sentence, lists_of_words),
}


def gradients_of(net, samples):
    """Return the gradients of the parameters, and of arrays among the samples."""
    given = [array for sample in samples if isinstance(sample, list) for array in sample]
    given = [array for array in given if isinstance(array, mx.nd.NDArray)]
    return [
        *[parameter.grad().asnumpy().copy() for parameter in net.collect_params().values()],
        *[array.grad.asnumpy().copy() for array in given],
    ]


def ran(net, samples, batched, taped):
    """Results, gradients, and the report."""
    with autograd.record() if taped else autograd.pause():
        if batched:
            with edb.batching() as scope:
                values = [net(sample) for sample in samples]
            results = edb.forward(values)
        else:
            scope, results = None, [net(sample) for sample in samples]
        loss = edb.concat([(value * value).sum().reshape((1,)) for value in results]).sum()
    if taped:
        loss.backward()
    numbers = [value.asnumpy() for value in results]
    return numbers, gradients_of(net, samples) if taped else [], scope and scope.report()


@pytest.mark.parametrize('native, taped, name', sampled(2, [True, False], [False, True], MODELS))
def test_results_and_gradients_are_those_of_eager_gluon(name, taped, native):
    make, samples_of = MODELS[name]
    net, reports = started(make()), []
    # What is computed once for words that repeat is of these words only, and so is the plan.
    with edb.compile_options(native=native, hoisting=False):
        for round_ in range(TIMES):
            samples = samples_of(round_)
            found = ran(net, samples, True, taped)
            expected = ran(net, samples, False, taped)
            for one, other in zip([*found[0], *found[1]], [*expected[0], *expected[1]]):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
            reports.append(found[2])
    assert [report.recurring for report in reports[-2:]] == [1, 1], reports[-1]
    assert not reports[0].recurring and 1 <= reports[-1].kept_plans <= 16
    assert 'evaluations recur' in str(reports[-1])


def scope_of(net, function):
    with edb.batching() as scope:
        values = function(net)
    return [value.asnumpy() for value in edb.forward(values)], scope.report().recurring


def test_what_the_graph_does_not_tell_is_compared():
    """Equal calls of one type read other arrays among the given ones."""
    net = started(nn.Dense(3, in_units=WIDTH))
    one, other = ndarrays(2, (1, WIDTH), 3)
    ways = [
        lambda net: [net(one), net(other), net(one)],
        lambda net: [net(one), net(other), net(other)],
        lambda net: [net(one), net(one), net(other)],
    ]
    for _ in range(TIMES):
        for way in ways:
            (found, _), expected = scope_of(net, way), [v.asnumpy() for v in way(net)]
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_lengths_of_given_sentences_are_compared():
    """Sentences are rows one after the other; only the arrays tell how many."""

    class Words(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.dense = nn.Dense(3, flatten=False, in_units=WIDTH)

        def hybrid_forward(self, F, x):
            return F.sum(F.tanh(self.dense(x)), axis=1)  # no result tells the length

    net = started(Words())
    for round_, lengths in enumerate([(3, 5, 2)] * 8 + [(2, 3, 5)] * 2 + [(5, 3, 2)] * 3):
        given = [ndarrays(1, (1, length, WIDTH), round_)[0] for length in lengths]
        found, recurs = scope_of(net, lambda net, given=given: list(map(net, given)))
        for one, array in zip(found, given):
            np.testing.assert_allclose(one, net(array).asnumpy(), rtol=1e-5, atol=1e-6)
    assert recurs


def test_rows_of_given_arrays_are_compared():
    net = started(nn.Dense(3, in_units=WIDTH))
    hits = []
    for rows in (1, 1, 1, 2, 2, 1, 2):
        arrays = ndarrays(3, (rows, WIDTH), rows)
        found, recurs = scope_of(net, lambda net, arrays=arrays: [net(a) for a in arrays])
        np.testing.assert_allclose(found, [net(a).asnumpy() for a in arrays], rtol=1e-5, atol=1e-6)
        hits.append(recurs)
    assert hits == [0, 0, 1, 0, 0, 1, 1]


def test_words_that_repeat_are_not_those_of_the_next_minibatch():
    """What is computed once for equal words is of these words only."""
    net = started(TreeLSTM(WIDTH))

    def of_words(draw):
        def renamed(tree):
            return Tree(draw(), [renamed(child) for child in tree.children])

        return list(map(renamed, random_trees(6, seed=7)))

    generator = np.random.RandomState(0)
    for round_ in range(3 * TIMES):
        samples = of_words((lambda: 3) if round_ < 2 * TIMES else (lambda: generator.randint(10)))
        found, expected = (ran(net, samples, batched, True)[:2] for batched in (True, False))
        for one, other in zip([*found[0], *found[1]], [*expected[0], *expected[1]]):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_weights_may_change_and_stop_to_be_trained():
    net, samples = started(Sentence()), lists_of_words(0)
    for round_ in range(2 * TIMES):
        if round_ == TIMES:
            net.embed.weight.grad_req = 'null'
            net.out.bias.set_data(mx.nd.array([1, 2, 3]))
        trained = [p for p in net.collect_params().values() if p.grad_req != 'null']
        both = []
        for batched in (True, False):
            with autograd.record():
                if batched:
                    with edb.batching():
                        values = [net(sample) for sample in samples]
                else:
                    values = [net(sample) for sample in samples]
                loss = edb.concat([(v * v).sum().reshape((1,)) for v in values]).sum()
            loss.backward()
            both.append([loss.asnumpy(), *[p.grad().asnumpy().copy() for p in trained]])
        for one, other in zip(*both):
            np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_later_evaluations_of_a_scope_have_plans_of_their_own():
    net = started(nn.Dense(WIDTH, in_units=WIDTH))
    for round_ in range(TIMES):
        (array,) = ndarrays(1, (1, WIDTH), round_)
        with edb.batching() as scope:
            first = [net(array), net(array * 2)]
            edb.forward(first)
            values = edb.forward([net(first[1]), net(first[0])])
        expected = [net(net(array * 2)), net(net(array))]
        for one, other in zip(values, expected):
            np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-4, atol=1e-5)
    assert scope.report().evaluations == 2 and scope.report().recurring == 1


def test_threads_share_plans():
    net, wrong = started(TreeLSTM(WIDTH)), []

    def work(seed):
        for round_ in range(20):
            samples = trees(100 * seed + round_)
            found, expected = (ran(net, samples, batched, False)[0] for batched in (True, False))
            if not all(np.allclose(a, b, rtol=1e-4, atol=1e-5) for a, b in zip(found, expected)):
                wrong.append(seed)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_few_are_kept():
    net = started(TreeLSTM(WIDTH))
    for seed in range(plan_cache._MOST + 5):
        for _ in range(2):
            with edb.batching() as scope:
                values = [net(tree) for tree in random_trees(3, seed=seed)]
            edb.forward(values)
    assert scope.report().kept_plans <= plan_cache._MOST
