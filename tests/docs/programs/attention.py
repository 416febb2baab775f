"""Numbers in order: an encoder over sequences of any length, a decoder that attends to it, and a
loss over sequences of any length. In plain Gluon the same model runs, with `join` a stack."""

import json
from contextlib import nullcontext

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn, rnn

import gluon_edbatch as edb

CLASSES, BEGIN = 6, 6  # of what is told, and what stands before the first


class Attention(gluon.HybridBlock):
    """Additive attention that returns its weights, too."""

    def __init__(self, size, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.query = nn.Dense(size, use_bias=False, in_units=size)
            self.score = nn.Dense(1, flatten=False, use_bias=False, in_units=size)

    def hybrid_forward(self, F, query, keys, memory):
        """query (N, size), keys (N, any number, size), memory (N, as many, 2 size)"""
        query = F.expand_dims(self.query(query), axis=1)
        weights = F.softmax(self.score(F.tanh(F.broadcast_add(keys, query))), axis=1)
        return F.sum(F.broadcast_mul(memory, weights), axis=1), weights


class Sorter(gluon.Block):
    """Tells numbers of a sequence, the smallest first, in classes."""

    def __init__(self, size, join, **kwargs):
        super().__init__(**kwargs)
        self.join = join
        with self.name_scope():
            self.forth = rnn.GRUCell(size, input_size=1)
            self.back = rnn.GRUCell(size, input_size=1)
            self.keys = nn.Dense(size, flatten=False, in_units=2 * size)
            self.attend = Attention(size)
            self.embed = nn.Embedding(CLASSES + 1, size)
            self.cell = rnn.LSTMCell(size, input_size=3 * size)
            self.scores = nn.Dense(CLASSES, in_units=3 * size)

    def forward(self, numbers, told):
        """numbers (length,), and what is told, as teachers know it: scores along axis 1."""
        steps = [numbers[i].reshape((1, 1)) for i in range(len(numbers))]
        forth, _ = self.forth.unroll(len(steps), steps, merge_outputs=False)
        back, _ = self.back.unroll(len(steps), steps[::-1], merge_outputs=False)
        memory = self.join([nd.concat(*both, dim=1) for both in zip(forth, back[::-1])])
        keys, states = self.keys(memory), self.cell.begin_state(1)
        context, scores = nd.zeros((1, memory.shape[2])), []
        for last in [BEGIN, *told[:-1]]:
            word = self.embed(nd.array([last]))
            output, states = self.cell(nd.concat(word, context, dim=1), states)
            context, _ = self.attend(output, keys, memory)
            scores.append(self.scores(nd.concat(output, context, dim=1)))
        return self.join(scores)


def plain(values):
    """Convert numbers to an array (1, number, size)."""
    return nd.stack(*values, axis=1)


def loss_of(net, loss_fn, sample):
    """Mean over what is told: both arguments are ragged, or both are stacks."""
    numbers, told = sample
    return loss_fn(net(numbers, told), net.join([nd.array([label]) for label in told]))


def make(count):
    """Return random numbers, and their classes in order."""
    made = [np.random.rand(np.random.randint(1, 7)) for _ in range(count)]
    return [(nd.array(one), [int(CLASSES * number) for number in sorted(one)]) for one in made]


def eager_and_batched(samples):
    """Gradients of the summed loss, of each parameter."""
    found = []
    for join in (plain, edb.ragged):
        mx.random.seed(1)
        net, loss_fn = Sorter(8, join), gluon.loss.SoftmaxCELoss()
        net.initialize(mx.init.Xavier())
        with autograd.record():
            with nullcontext() if join is plain else edb.batching():
                losses = [loss_of(net, loss_fn, sample) for sample in samples]
            loss = edb.add_n(losses)  # of NDArrays: as nd.add_n
        loss.backward()
        found.append([loss] + [one.grad() for one in net.collect_params().values()])
    return found


def main():
    """Losses by epoch, how far batched is from eager, and the types of the first minibatch."""
    np.random.seed(2)
    data = make(240)
    apart = max(
        abs(one - other).max().asscalar() for one, other in zip(*eager_and_batched(data[:6]))
    )
    net, loss_fn = Sorter(24, edb.ragged), gluon.loss.SoftmaxCELoss()
    net.initialize(mx.init.Xavier())
    trainer = gluon.Trainer(net.collect_params(), 'adam', {'learning_rate': 1e-2})
    loader = gluon.data.DataLoader(data, 40, shuffle=True, batchify_fn=edb.data.as_list)
    scopes, epochs = [], []
    for _ in range(5):
        total = 0
        for minibatch in loader:
            with autograd.record():
                with edb.batching() as scope:
                    losses = [loss_of(net, loss_fn, sample) for sample in minibatch]
                loss = edb.concat(losses).mean()
            loss.backward()
            trainer.step(1)
            total += loss.asscalar()
            scopes.append(scope)
        epochs.append(total / len(loader))
    report = scopes[0].report()
    of_losses = [kind for kind in report.types if kind.name.startswith('SoftmaxCross')]
    return {
        'losses': epochs,
        'apart': apart,
        'calls': report.nodes,
        'batches': report.batches,
        'batches of the loss': sum(kind.batches for kind in of_losses),
    }


if __name__ == '__main__':
    print(json.dumps(main(), default=float))
