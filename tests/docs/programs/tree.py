"""Truth values of boolean expressions, trees with nodes of one to four children: a gluon.Block that
folds its children with a cell, trained by a DataLoader and a Trainer, in batches and without."""

import json
import random
from contextlib import nullcontext

import mxnet as mx
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn, rnn

import gluon_edbatch as edb

NAMES = ['true', 'false', 'not', 'all', 'any', 'if']
TRUTH = {
    'not': lambda values: not values[0],
    'all': all,
    'any': any,
    'if': lambda values: values[1] if values[0] else values[2],
}
CHILDREN = {'not': [1], 'all': [2, 3, 4], 'any': [2, 3, 4], 'if': [3]}


def expression(depth):
    """A name with its children, and whether it is true."""
    if depth == 0:
        name = random.choice(NAMES[:2])
        return (name, []), name == 'true'
    name = random.choice(NAMES[2:])
    some = [expression(random.randrange(depth)) for _ in range(random.choice(CHILDREN[name]))]
    return (name, [tree for tree, _ in some]), TRUTH[name]([value for _, value in some])


class Gate(gluon.HybridBlock):
    """Mix a new and an old summary, with a learned share for each feature."""

    def __init__(self, size, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.share = nn.Dense(size, in_units=2 * size, activation='sigmoid')
            self.new = nn.Dense(size, in_units=2 * size, activation='tanh')
            self.norm = nn.LayerNorm(in_channels=size)

    def hybrid_forward(self, F, own, summary):
        """Both (N, size)."""
        both = F.concat(own, summary, dim=1)
        share = self.share(both)
        return self.norm(share * self.new(both) + (1 - share) * summary)


class Truth(gluon.Block):
    """Compute how likely an expression is true."""

    def __init__(self, size, dropout=0.0, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = nn.Embedding(len(NAMES), size)
            self.fold = rnn.LSTMCell(size, input_size=size)
            self.gate = Gate(size)
            self.drop = nn.Dropout(dropout)
            self.score = nn.Dense(1, in_units=size)

    def encode(self, tree):
        """(1, size)"""
        name, children = tree
        own = self.embed(nd.array([NAMES.index(name)]))
        if not children:
            return own
        states = self.fold.begin_state(1)
        for child in children:
            output, states = self.fold(self.encode(child), states)
        return self.gate(own, self.drop(output))

    def forward(self, tree):
        """One expression."""
        return self.score(self.encode(tree))


def step(net, loss_fn, trainer, minibatch, batched=True):
    """Loss, and the scope if there is one."""
    with autograd.record():
        with edb.batching() if batched else nullcontext() as scope:
            losses = [loss_fn(net(tree), nd.array([value])) for tree, value in minibatch]
        loss = edb.concat(losses).mean()  # of NDArrays: as nd.concat
    loss.backward()
    trainer.step(1)
    return loss.asscalar(), scope


def twice(samples, batched):
    """Losses and parameters of two steps from the same beginning."""
    mx.random.seed(1)
    net, loss_fn = Truth(16), gluon.loss.SigmoidBCELoss()
    net.initialize(mx.init.Xavier())
    trainer = gluon.Trainer(net.collect_params(), 'sgd', {'learning_rate': 0.5})
    losses = [step(net, loss_fn, trainer, samples, batched)[0] for _ in range(2)]
    return losses, [parameter.data() for parameter in net.collect_params().values()]


def main():
    """Losses by epoch, and how far batched is from eager."""
    random.seed(2)
    data = [expression(3) for _ in range(256)]
    (mine, ours), (eager, theirs) = twice(data[:12], True), twice(data[:12], False)
    apart = max(abs(one - other).max().asscalar() for one, other in zip(ours, theirs))

    net, loss_fn = Truth(32, dropout=0.1), gluon.loss.SigmoidBCELoss()
    net.initialize(mx.init.Xavier())
    trainer = gluon.Trainer(net.collect_params(), 'adam', {'learning_rate': 3e-3})
    loader = gluon.data.DataLoader(data, 64, shuffle=True, batchify_fn=edb.data.as_list)
    first, epochs = None, []
    for _ in range(8):
        steps = [step(net, loss_fn, trainer, minibatch) for minibatch in loader]
        first = first or steps[0][1].report()
        epochs.append(sum(loss for loss, _ in steps) / len(steps))
    return {
        'losses': epochs,
        'apart': max(apart, *(abs(one - other) for one, other in zip(mine, eager))),
        'calls': first.nodes,
        'batches': first.batches,
    }


if __name__ == '__main__':
    print(json.dumps(main(), default=float))
