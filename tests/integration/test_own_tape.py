"""Calls on the user's own tape: loss heads that make their own gradient, and what reads them."""

from contextlib import nullcontext

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon

import gluon_edbatch as edb
from gluon_edbatch.report.explain.explanation import Cause
from tests.support.models import ndarrays, started


class Headed(gluon.HybridBlock):
    """A layer and a head in one block, and something else that it returns."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.dense = gluon.nn.Dense(3, in_units=4)

    def hybrid_forward(self, F, x):
        """x"""
        y = self.dense(x)
        return F.MakeLoss(F.square(y), grad_scale=3), F.tanh(y)


def compare(model, samples, parameters, use=None, inputs=()):
    """Results and gradients with and without a scope."""
    found = []
    for batched in (False, True):
        for parameter in parameters:
            parameter.zero_grad()
        for array in inputs:
            array.grad[:] = 0
        with autograd.record():
            with edb.batching() if batched else nullcontext():
                results = model(samples)
            loss = use(results) if use else sum([result.sum() for result in results])
        loss.backward()
        found.append(
            [loss.asnumpy()]
            + [parameter.grad().asnumpy() for parameter in parameters]
            + [array.grad.asnumpy() for array in inputs]
        )
    for expected, got in zip(*found):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
    assert all(np.abs(array).max() > 0 for array in found[0][1:])


def head(y):
    """A loss head whose gradient is 2 y."""
    return mx.nd.MakeLoss(mx.nd.square(y))


AFTER = {
    'a number added': lambda heads: [value + 1 for value in heads],
    'halves': lambda heads: [mx.nd.split(value, num_outputs=3, axis=1)[1] for value in heads],
    'one of two': lambda heads: [mx.nd.BlockGrad(heads[0]) * heads[1]],
    'another sample in a recorded sum': lambda heads: [heads[0] + mx.nd.ones((1, 3))],
    'add_n': lambda heads: [edb.add_n(heads[1:])],
    'stack': lambda heads: [edb.stack(heads)],
    'concat': lambda heads: [edb.concat(heads)],
    'concat with others': lambda heads: [edb.concat([heads[0] * 1, heads[1]])],
    'sliced': lambda heads: [value[:, 1:] for value in heads],
    'through a block': lambda heads: [gluon.loss.L2Loss()(heads[2], mx.nd.ones((1, 3)))],
}


@pytest.mark.parametrize('name', AFTER)
def test_what_reads_a_head(name):
    dense = started(gluon.nn.Dense(3, in_units=4))
    compare(
        lambda xs: AFTER[name]([head(dense(x)) for x in xs]), ndarrays(4, (1, 4)), [dense.weight]
    )


def test_values_of_both_sorts_together():
    dense = started(gluon.nn.Dense(3, in_units=4))

    def model(xs):
        ys = [dense(x) for x in xs]
        values = [head(ys[0]), ys[1], head(ys[2]), ys[3] * 2]
        return [
            edb.add_n(values),
            edb.concat(values),
            edb.stack(values),
            values[0] * values[1],
            mx.nd.concat(*values, dim=1),
        ]

    compare(model, ndarrays(4, (1, 4)), [dense.weight])


@pytest.mark.parametrize(
    'use',
    [
        lambda pairs: pairs[0][0].sum(),
        lambda pairs: pairs[0][1].sum(),
        lambda pairs: sum([loss.sum() + 2 * other.sum() for loss, other in pairs]),
    ],
)
def test_head_in_a_block(use):
    net = started(Headed())
    compare(
        lambda xs: [net(x) for x in xs],
        ndarrays(4, (1, 4)),
        list(net.collect_params().values()),
        use,
    )


def test_head_of_inputs_alone():
    xs = ndarrays(4, (1, 4), gradient=True)
    compare(lambda xs: [head(edb.nd.identity(x)) for x in xs], xs, [], inputs=xs)
    compare(
        lambda xs: [mx.nd.MakeLoss(edb.nd.identity(x), grad_scale=3) for x in xs], xs, [], inputs=xs
    )


def test_heads_of_one_evaluation_read_in_another():
    dense = started(gluon.nn.Dense(3, in_units=4))

    def model(xs):
        heads = [head(dense(x)) for x in xs]
        total = heads[0].asnumpy().sum()  # evaluates them
        return [heads[0] * float(total), edb.add_n([heads[1], heads[2], dense(xs[3])])]

    compare(model, ndarrays(4, (1, 4)), [dense.weight])


def test_heads_of_one_scope_read_in_another():
    dense = started(gluon.nn.Dense(3, in_units=4))

    def model(xs):
        with edb.batching():
            heads = [head(dense(x)) for x in xs]
        return [dense(mx.nd.ones((1, 4))) + value for value in heads]

    compare(model, ndarrays(4, (1, 4)), [dense.weight], lambda values: values[0].sum())


def test_several_backward_passes():
    """Each time its own gradient, once."""
    dense = started(gluon.nn.Dense(3, in_units=4))
    for parameter in (dense.weight, dense.bias):
        parameter.grad_req = 'add'
    xs = ndarrays(3, (1, 4))
    found = []
    for batched in (False, True):
        dense.bias.zero_grad()
        with autograd.record():
            with edb.batching() if batched else nullcontext():
                heads = [head(dense(x)) for x in xs]
        heads[0].backward(retain_graph=True)
        heads[0].backward(retain_graph=True)
        heads[2].backward()
        found.append(dense.bias.grad().asnumpy())
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_without_autograd_heads_are_batched():
    dense = started(gluon.nn.Dense(3, in_units=4))
    with edb.batching() as scope:
        values = [head(dense(x)) for x in ndarrays(4, (1, 4))]
    edb.forward(values)
    assert {kind.name: kind.batches for kind in scope.report().types}['MakeLoss[3]'] == 1


def test_the_report_and_the_explanation_say_so():
    dense = started(gluon.nn.Dense(3, in_units=4))
    with autograd.record():
        with edb.batching() as scope:
            values = [head(dense(x)) + 1 for x in ndarrays(4, (1, 4))]
        edb.forward(values)
    notes = {kind.name: (kind.batches, kind.note) for kind in scope.report().types}
    assert notes['MakeLoss[3]'] == (
        4,
        'MakeLoss makes a gradient of its own, so it belongs to its own call',
    )
    assert notes['_plus_scalar[3]'][0] == 4 and 'comes from' in notes['_plus_scalar[3]'][1]
    assert notes['square[3]'][0] == 1
    causes = [reason.cause for place in scope.explain().places for reason in place.reasons]
    assert Cause.OWN_GRADIENT in causes and Cause.MIXED_ROWS not in causes
    assert 'gluon.loss' in str(scope.explain())


def test_concurrent_samples():
    dense = started(gluon.nn.Dense(3, in_units=4))
    seen = []

    def sample(x):
        value = head(dense(x))
        seen.append((yield value).sum())
        return value.sum()

    def model(xs):
        return edb.run_concurrently(xs, sample)

    compare(model, ndarrays(3, (1, 4)), [dense.weight], lambda values: values[0] + values[1])
    np.testing.assert_allclose(seen[:3], seen[3:], rtol=1e-5)


def test_a_parameter_that_changed_meanwhile():
    """A call uses the contents at recording, and so does its gradient."""
    net = started(Headed())
    (x,) = ndarrays(1, (1, 4))
    found = []
    for batched in (False, True):
        with autograd.record():
            with edb.batching() if batched else nullcontext():
                value, _ = net(x)
            if batched:
                with autograd.pause():
                    net.dense.bias.set_data(mx.nd.ones((3,)))
            total = value.sum()
        total.backward()
        gradients = [each.grad().asnumpy() for each in net.collect_params().values()]
        found.append([value.asnumpy(), *gradients])
    for eager, batched in zip(*found):
        np.testing.assert_allclose(batched, eager, rtol=1e-5)


def test_a_parameter_that_was_only_looked_at():
    net = started(Headed())
    (x,) = ndarrays(1, (1, 4))
    with autograd.record():
        with edb.batching():
            value, _ = net(x)
        assert net.dense.bias.data().asnumpy().shape == (3,)
        value.sum().backward()
    assert np.abs(net.dense.weight.grad().asnumpy()).max() > 0


def test_heads_at_every_node_of_many_samples():
    """Their slices are no gradients of the arena's size each."""
    dense = started(gluon.nn.Dense(3, in_units=4))
    compare(
        lambda xs: [head(dense(x)) for x in xs],
        ndarrays(300, (1, 4)),
        [dense.weight],
        lambda heads: edb.add_n(heads[::2]).sum(),
    )


def test_labels_with_the_heads():
    dense = started(gluon.nn.Dense(3, in_units=4))
    labels = [np.array([index % 3], np.float32) for index in range(4)]
    compare(
        lambda xs: [
            mx.nd.SoftmaxOutput(dense(x), mx.nd.array(label)) for x, label in zip(xs, labels)
        ],
        ndarrays(4, (1, 4)),
        [dense.bias],
        lambda values: values[3].sum(),
    )
