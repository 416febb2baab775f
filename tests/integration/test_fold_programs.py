"""A program of the structure of mxnet-jit-batch's own example: child-sum Tree-LSTMs on pairs."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd as ag
from mxnet import gluon
from mxnet.gluon import nn, rnn

import gluon_edbatch as fold
from tests.support.models import random_trees, started

# As in the original: the cells share all their parameters with one that is registered.
pytestmark = pytest.mark.filterwarnings('ignore:"Model.cells" is an unregistered container')

WORDS, EMBED, HIDDEN, CLASSES = 11, 3, 4, 5


class ChildSumCell(rnn.HybridRecurrentCell):
    """One cell for each number of children; all share the parameters of the first."""

    def __init__(self, hidden, num_children, input_size=0, prefix=None, params=None):
        super().__init__(prefix=prefix, params=params)
        self.num_children = num_children
        self._hidden = hidden
        with self.name_scope():
            self.i2h = nn.Dense(4 * hidden, in_units=input_size, prefix='i2h_')
            self.hs2h = nn.Dense(3 * hidden, in_units=hidden, prefix='hs2h_')
            self.hc2h = nn.Dense(hidden, in_units=hidden, flatten=False, prefix='hc2h_')

    def state_info(self, batch_size=0):
        return (
            {'shape': (batch_size, self._hidden), '__layout__': 'NC'},
            {'shape': (batch_size, self._hidden), '__layout__': 'NC'},
        )

    def _alias(self):
        return 'childsum_lstm'

    def hybrid_forward(self, F, inputs, states):
        child_h, child_c = states
        i, f, u, o = self.i2h(inputs).split(num_outputs=4, axis=1)
        summed = self.hs2h(F.add_n(*child_h))
        i_h, u_h, o_h = F.split(summed, num_outputs=3, axis=1)
        h = F.concat(*[F.expand_dims(state, axis=1) for state in child_h], dim=1)
        c = F.concat(*[F.expand_dims(state, axis=1) for state in child_c], dim=1)
        forget = F.sigmoid(F.broadcast_add(f.expand_dims(1), self.hc2h(h)))
        next_c = F.sum(forget * c, axis=1) + F.sigmoid(i + i_h) * F.tanh(u + u_h)
        next_h = F.sigmoid(o + o_h) * F.tanh(next_c)
        return next_h, (next_h, next_c)


class Similarity(gluon.HybridBlock):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.hidden = nn.Dense(6, in_units=2 * HIDDEN)
            self.out = nn.Dense(CLASSES, in_units=6)

    def hybrid_forward(self, F, left, right):
        both = F.concat(F.broadcast_mul(left, right), F.abs(left - right), dim=1)
        return F.log_softmax(self.out(F.sigmoid(self.hidden(both))))


def call_cell(cell, inputs, states):
    return cell(inputs, states)


class Model(nn.Block):
    """`forward` runs a pair alone, `fold_encode` notes it."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = nn.Embedding(WORDS, EMBED)
            self.cell = ChildSumCell(HIDDEN, 0, EMBED)
            self.similarity = Similarity()
        self.cells = {0: self.cell}
        for number in range(1, 5):
            self.cells[number] = ChildSumCell(
                HIDDEN, number, EMBED, prefix=self.cell.prefix, params=self.cell.collect_params()
            )

    def hybridize_parts(self):
        for block in (self.embed, self.similarity, *self.cells.values()):
            block.hybridize()

    def encode(self, rows, tree):
        row = rows[tree.index : tree.index + 1]
        if tree.children:
            h, c = zip(*[self.encode(rows, child)[1] for child in tree.children])
        else:
            h, c = zip(*[self.cells[0].begin_state(1)])
        return self.cells[len(tree.children)](row, (h, c))

    def fold_rows(self, pool, rows, tree):
        row = rows[tree.index : tree.index + 1]
        if tree.children:
            h, c = zip(*[self.fold_rows(pool, rows, child)[1].split(2) for child in tree.children])
        else:
            h, c = zip(*[pool.record(0, self.cells[0].begin_state, 1).no_batch().split(2)])
        return pool.record(0, call_cell, self.cells[len(tree.children)], row, (h, c))

    def forward(self, left, right):
        rows = self.embed(mx.nd.array(left.words + right.words))
        split = len(left.words)
        return self.similarity(
            self.encode(rows[:split], left.tree)[1][1], self.encode(rows[split:], right.tree)[1][1]
        )

    def fold_encode(self, pool, left, right):
        rows = self.embed(mx.nd.array(left.words + right.words))
        split = len(left.words)
        return pool.record(
            0,
            self.similarity,
            self.fold_rows(pool, rows[:split], left.tree)[1][1],
            self.fold_rows(pool, rows[split:], right.tree)[1][1],
        )


class Node:
    """A tree whose nodes know their place among the words."""

    def __init__(self, tree, words):
        self.index = len(words)
        words.append(tree.token)
        self.children = [Node(child, words) for child in tree.children]


class Sentence:
    def __init__(self, tree):
        self.words = []
        self.tree = Node(tree, self.words)


def pairs(count):
    sentences = [Sentence(tree) for tree in random_trees(2 * count)]
    targets = [mx.nd.softmax(mx.nd.random.uniform(shape=(1, CLASSES))) for _ in range(count)]
    return list(zip(sentences[::2], sentences[1::2], targets))


def model(hybridized):
    net = started(Model(prefix='model_'))
    if hybridized:
        net.hybridize_parts()
    return net


@pytest.mark.parametrize('hybridized', [False, True])
def test_training_is_that_of_the_model_alone(hybridized):
    loss_fn, data = gluon.loss.KLDivLoss(), pairs(7)
    found = []
    for batched in (True, False):
        net, pool = model(hybridized), fold.Fold()
        trainer = gluon.Trainer(net.collect_params(), 'sgd', {'learning_rate': 0.5})
        steps = []
        for _ in range(3):
            with ag.record():
                if batched:
                    preds = [net.fold_encode(pool, left, right) for left, right, _ in data]
                    losses = [
                        pool.record(0, loss_fn, pred, target)
                        for pred, (_, _, target) in zip(preds, data)
                    ]
                    preds, losses = pool([preds, losses], True)
                else:
                    preds = [net(left, right) for left, right, _ in data]
                    losses = mx.nd.concat(
                        *[loss_fn(pred, target) for pred, (_, _, target) in zip(preds, data)], dim=0
                    )
                    preds = mx.nd.concat(*preds, dim=0)
            losses.backward()
            steps.append(
                [losses.asnumpy(), preds.asnumpy()]
                + [parameter.grad().asnumpy().copy() for parameter in net.collect_params().values()]
            )
            trainer.step(len(data))
        found.append(steps)
        if batched:
            report = pool.scope.report()
            assert report.batches < report.nodes / 4
    for one, other in zip(*found):
        for array, expected in zip(one, other):
            assert np.abs(expected).max() > 0
            np.testing.assert_allclose(array, expected, rtol=1e-3, atol=1e-6)


def test_the_graph_is_printed_before_anything_ran():
    net, pool = Model(), fold.Fold()
    left = Sentence(random_trees(1, seed=4)[0])
    rows = mx.nd.ones((len(left.words), EMBED))
    net.fold_rows(pool, rows, left.tree)
    text = str(pool)
    assert 'begin_state(1)' in text and 'call_cell(ChildSumCell' in text and '(1, 3)' in text
