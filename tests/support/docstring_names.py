"""The names that examples in docstrings use: a model, samples, blocks, all of them small."""

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon.contrib.estimator import Estimator

import gluon_edbatch as edb
from gluon_edbatch.data import BalancedSampler
from gluon_edbatch.testing import assert_matches_eager

SIZE = 4


class Net(edb.AutoBatchMixin, gluon.Block):
    """A model of samples that are lists of words; it parses them, too, word by word."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.embed = gluon.nn.Embedding(20, SIZE)
            self.cell = gluon.rnn.LSTMCell(SIZE, input_size=SIZE)
            self.scores = gluon.nn.Dense(2, in_units=SIZE)

    def forward(self, sample):
        states = [mx.nd.zeros((1, SIZE)), mx.nd.zeros((1, SIZE))]
        for word in sample:
            output, states = self.cell(self.embed(word), states)
        return self.scores(output)

    def encode(self, sentence):
        return [self.embed(word) for word in sentence]

    def score(self, vectors, state):
        return self.scores(vectors[len(state.heads)])

    def parse(self, sentence):
        return (yield self.forward(sentence))


class Configuration:
    """The configuration of a parser that takes a word a step."""

    def __init__(self, sentence):
        self.left, self.heads = len(sentence), []

    @property
    def done(self):
        return not self.left

    def apply(self, action):
        self.left -= 1
        self.heads.append(int(action))


class Attention(gluon.HybridBlock):
    """Return the mean of values, weighted by their sums, and these weights."""

    def hybrid_forward(self, F, values):
        weights = F.softmax(F.sum(values, axis=2, keepdims=True), axis=1)
        return F.sum(F.broadcast_mul(values, weights), axis=1), weights


def names():
    """Return a namespace for one docstring."""
    net, classify = Net(), gluon.nn.Dense(2, in_units=SIZE)
    loss_fn = gluon.loss.SoftmaxCrossEntropyLoss()
    for block in (net, classify):
        block.initialize()
    samples = [[1, 2, 3], [4, 5], [6], [7, 8], [9, 1], [2]]
    dataset = [(sample, place % 2) for place, sample in enumerate(samples)]

    def loader():
        return gluon.data.DataLoader(dataset, 3, batchify_fn=edb.data.as_list)

    return dict(
        dict(mx=mx, gluon=gluon, autograd=autograd, edb=edb, Estimator=Estimator),
        BalancedSampler=BalancedSampler,
        assert_matches_eager=assert_matches_eager,
        Configuration=Configuration,
        net=net,
        cell=net.cell,
        classify=classify,
        loss_fn=loss_fn,
        samples=samples,
        sentences=samples,
        trees=samples,
        sentence=samples[0],
        tree=samples[0],
        word=mx.nd.ones((1, SIZE)),
        states=[mx.nd.zeros((1, SIZE)), mx.nd.zeros((1, SIZE))],
        label=mx.nd.array([1]),
        dataset=dataset,
        minibatch=dataset[:3],
        minibatches=[[0, 1], [2, 3]],
        epochs=2,
        loss_of=lambda sample: loss_fn(net(sample), 1),
        document=[[mx.nd.ones((1, SIZE)) * word for word in sample] for sample in samples],
        attend_words=Attention(),
        attend_sentences=Attention(),
        train=net.batch,
        trainer=gluon.Trainer(net.collect_params(), 'sgd'),
        sampler=BalancedSampler(len(dataset), 2),
        loader=loader(),
        dev_loader=loader(),
    )
