"""Autograd as ever: record, backward, grad_req, modes, Trainer."""

import contextlib

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.testing import assert_matches_eager
from tests.support.cases import in_one_test
from tests.support.models import (
    CLASSES,
    Reader,
    TreeLSTM,
    ndarrays,
    random_trees,
    sentences,
    started,
)
from tests.support.processes import run_python

CLOSE = dict(rtol=1e-5, atol=1e-6)


def gradients(net):
    """NumPy copies of all gradients."""
    return {
        name: parameter.grad().asnumpy().copy()
        for name, parameter in net.collect_params().items()
        if parameter.grad_req != 'null'
    }


def assert_same(found, expected, **tolerance):
    """Assert that two dicts of gradients are close."""
    assert list(found) == list(expected)
    for name, wanted in expected.items():
        np.testing.assert_allclose(found[name], wanted, **(tolerance or CLOSE), err_msg=name)


def both(run_batched, run_eager, net):
    """Gradients of two ways to run, each from zero."""
    found = []
    for run in (run_batched, run_eager):
        for parameter in net.collect_params().values():
            parameter.zero_grad()
        run()
        found.append(gradients(net))
    return found


@pytest.mark.parametrize('req', ['write', 'add'])
def test_grad_req(req):
    net = started(TreeLSTM())
    net.collect_params().setattr('grad_req', req)
    trees = random_trees(5)

    def batched():
        for part in (trees[:3], trees[3:]):
            with autograd.record():
                with edb.batching():
                    values = [net(tree) for tree in part]
                loss = edb.stack(values).sum()
            loss.backward()

    def eager():
        for part in (trees[:3], trees[3:]):
            with autograd.record():
                loss = mx.nd.stack(*[net(tree) for tree in part]).sum()
            loss.backward()

    assert_same(*both(batched, eager, net))


def test_some_parameters_without_gradient():
    net = started(TreeLSTM())
    net.embed.collect_params().setattr('grad_req', 'null')
    # Not a Dense's weight: then MXNet 1.9.1 itself gives garbage for the bias (oneDNN).
    net.score.bias.grad_req = 'null'
    net.cell.h2h_f_weight.grad_req = 'add'
    assert_matches_eager(net, random_trees(5))


def test_frozen_parameters_only():
    net = started(TreeLSTM())
    net.collect_params().setattr('grad_req', 'null')
    assert_matches_eager(net, random_trees(5))
    with autograd.record():
        with edb.batching():
            values = [net(tree) for tree in random_trees(3)]
        loss = edb.stack(values).sum()
    assert np.isfinite(loss.asscalar())


def test_frozen_parameters_and_an_input_with_gradient():
    net = started(nn.Dense(3, in_units=4))
    net.collect_params().setattr('grad_req', 'null')
    assert_matches_eager(net, ndarrays(4, (1, 4), gradient=True))


@pytest.mark.parametrize('req', ['write', 'add', 'null'])
def test_input_grad_req(req):
    net = started(nn.Dense(3, in_units=4))
    found = []
    for batched in (True, False):
        xs = ndarrays(4, (1, 4))
        for x in xs:
            x.attach_grad(req)
        for _ in range(2):
            with autograd.record():
                if batched:
                    with edb.batching():
                        values = [net(x) * net(xs[0]) for x in xs]
                    loss = edb.add_n(values).sum()
                else:
                    loss = mx.nd.add_n(*[net(x) * net(xs[0]) for x in xs]).sum()
            loss.backward()
        found.append([None if x.grad is None else x.grad.asnumpy() for x in xs])
    for one, other in zip(*found):
        if req == 'null':
            assert other is None or (one == other).all()
        else:
            np.testing.assert_allclose(one, other, **CLOSE)


@pytest.mark.parametrize('req', ['write', 'add'])
def test_parameter_also_used_outside_the_scope(req):
    net = started(nn.Dense(3, in_units=4))
    net.collect_params().setattr('grad_req', req)
    xs = ndarrays(4, (1, 4))

    def run(batched):
        with autograd.record():
            before = net(xs[0]).sum() * 2
            if batched:
                with edb.batching():
                    values = [net(x) for x in xs]
                inner = edb.stack(values).sum()
            else:
                inner = mx.nd.stack(*[net(x) for x in xs]).sum()
            loss = before + inner * net(xs[1]).sum() + (net.weight.data() ** 2).sum()
        loss.backward()

    assert_same(*both(lambda: run(True), lambda: run(False), net))


def test_gradient_read_at_once():
    net = started(nn.Dense(1, in_units=1, use_bias=False))
    for step in range(20):
        with autograd.record():
            with edb.batching():
                values = [net(mx.nd.full((1, 1), step + 1)) for _ in range(3)]
            loss = edb.stack(values).sum()
        loss.backward()
        assert net.weight.grad().asscalar() == 3 * (step + 1)


def test_given_array_computed_on_the_outer_tape():
    """What goes into the scope was itself computed from parameters outside."""
    outer, net = started(nn.Dense(4, in_units=4)), started(nn.Dense(3, in_units=4), seed=1)
    xs = ndarrays(4, (1, 4), gradient=True)
    both_nets = nn.HybridSequential()
    both_nets.add(outer, net)

    def run(batched):
        with autograd.record():
            given = [outer(x) for x in xs]
            if batched:
                with edb.batching():
                    values = [net(one) * 2 for one in given]
                loss = edb.stack(values).sum()
            else:
                loss = mx.nd.stack(*[net(one) * 2 for one in given]).sum()
        loss.backward()

    assert_same(*both(lambda: run(True), lambda: run(False), both_nets))


def test_pause_inside_the_scope():
    net, fixed = started(nn.Dense(4, in_units=4)), started(nn.Dense(4, in_units=4), seed=1)

    def model(x):
        with autograd.pause():
            target = fixed(net(x))
        return (net(x) - target) ** 2

    assert_matches_eager(model, ndarrays(5, (1, 4), gradient=True), blocks=[net, fixed])
    with autograd.record():
        with edb.batching():
            values = [model(x) for x in ndarrays(5, (1, 4))]
        edb.add_n(values).sum().backward()
    assert (fixed.weight.grad().asnumpy() == 0).all()


def test_record_inside_the_scope():
    net = started(nn.Dense(4, in_units=4))
    xs = ndarrays(5, (1, 4))

    def run(batched):
        if batched:
            with edb.batching():
                constant = [net(x) for x in xs]
                with autograd.record():
                    values = [net(x) * c for x, c in zip(xs, constant)]
            with autograd.record():
                loss = edb.stack(values).sum()
        else:
            constant = [net(x) for x in xs]
            with autograd.record():
                loss = mx.nd.stack(*[net(x) * c for x, c in zip(xs, constant)]).sum()
        loss.backward()

    assert_same(*both(lambda: run(True), lambda: run(False), net))


def test_detached_value_stops_gradients():
    net = started(nn.Dense(4, in_units=4))
    assert_matches_eager(
        lambda x: net(x).detach() * net(x) + mx.nd.BlockGrad(net(x)),
        ndarrays(4, (1, 4), gradient=True),
        blocks=[net],
    )


def test_dropout_statistics_in_training():
    drop = nn.Dropout(0.3)
    x = mx.nd.ones((1, 2000))
    with autograd.record():
        with edb.batching() as scope:
            values = [drop(x) for _ in range(8)]
        found = [value.asnumpy() for value in edb.forward(values)]
    assert scope.report().batches == 1
    for one in found:
        kept = one != 0
        assert abs(kept.mean() - 0.7) < 0.06
        np.testing.assert_allclose(one[kept], 1 / 0.7, rtol=1e-5)
    assert not (found[0] == found[1]).all(), 'two samples share a mask'


def test_dropout_gradient_uses_the_mask_of_the_forward_pass():
    net = nn.HybridSequential()
    net.add(nn.Dropout(0.5))
    x = mx.nd.ones((1, 500))
    x.attach_grad()
    with autograd.record():
        with edb.batching():
            values = [net(x) for _ in range(3)]
        loss = edb.stack(values).sum()
    found = sum(value.asnumpy() for value in values)
    loss.backward()
    np.testing.assert_allclose(x.grad.asnumpy(), found, rtol=1e-5)


def test_dropout_inside_a_block_is_verified_without_randomness():
    class Noisy(gluon.HybridBlock):
        """An operator without a rule (cumsum) next to a dropout."""

        def hybrid_forward(self, F, x):
            """(N, 4)"""
            return F.Dropout(F.cumsum(x, axis=1), p=0.5)

    net = Noisy()
    with autograd.record():
        with edb.batching():
            values = [net(x) for x in ndarrays(6, (1, 4))]
        edb.forward(values)


@pytest.mark.parametrize('mode', [autograd.predict_mode, autograd.train_mode])
def test_modes_inside_the_scope(mode):
    """Dropout follows the mode of the call, not of the evaluation."""
    drop, x = nn.Dropout(0.5), mx.nd.ones((1, 400))
    with edb.batching():
        with mode():
            inside = drop(x)
        outside = drop(x)
    with autograd.record():
        inside, outside = edb.forward([inside, outside])
    assert (outside.asnumpy() == 1).all()
    dropped = (inside.asnumpy() == 0).mean()
    assert dropped == 0 if mode is autograd.predict_mode else 0.3 < dropped < 0.7


def test_predict_mode_under_record():
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=4), nn.Dropout(0.5), nn.BatchNorm(in_channels=4))
    started(net)

    def run(batched):
        with autograd.record(train_mode=False):
            if batched:
                with edb.batching():
                    values = [net(x) for x in ndarrays(4, (1, 4))]
                loss = edb.stack(values).sum()
            else:
                loss = mx.nd.stack(*[net(x) for x in ndarrays(4, (1, 4))]).sum()
        loss.backward(train_mode=False)

    assert_same(*both(lambda: run(True), lambda: run(False), net))


def test_backward_for_each_loss():
    net = started(TreeLSTM())
    net.collect_params().setattr('grad_req', 'add')
    trees = random_trees(4)

    def batched():
        with autograd.record():
            with edb.batching():
                losses = [(net(tree) ** 2).sum(axis=1) for tree in trees]
        for loss in losses:
            loss.backward()

    def eager():
        with autograd.record():
            losses = [(net(tree) ** 2).sum(axis=1) for tree in trees]
        for loss in losses:
            loss.backward()

    assert_same(*both(batched, eager, net))


def test_backward_with_head_gradients():
    net = started(nn.Dense(3, in_units=4))
    xs, heads = ndarrays(4, (1, 4)), ndarrays(4, (1, 3), seed=9)

    def batched():
        with autograd.record():
            with edb.batching():
                values = [net(x) for x in xs]
            values = edb.forward(values)
        autograd.backward(values, heads)

    def eager():
        with autograd.record():
            values = [net(x) for x in xs]
        autograd.backward(values, heads)

    assert_same(*both(batched, eager, net))


def test_lazy_backward_with_head_gradient():
    net = started(nn.Dense(3, in_units=4))
    x, head = ndarrays(1, (1, 4))[0], ndarrays(1, (1, 3), seed=9)[0]
    with autograd.record():
        with edb.batching():
            value = net(x)
    value.backward(head)
    np.testing.assert_allclose(net.bias.grad().asnumpy(), head.asnumpy()[0], rtol=1e-6)


def test_autograd_backward_and_grad_take_lazy_values():
    net = started(nn.Dense(3, in_units=4))
    x = ndarrays(1, (1, 4), gradient=True)[0]
    with autograd.record():
        with edb.batching():
            values = [net(x), net(x * 2)]
    autograd.backward(values)
    np.testing.assert_allclose(net.bias.grad().asnumpy(), 2, rtol=1e-6)
    with autograd.record():
        with edb.batching():
            value = (net(x) ** 2).sum(axis=1)
    (gradient,) = autograd.grad([value], [x])
    expected = 2 * (net(x).asnumpy() @ net.weight.data().asnumpy())
    np.testing.assert_allclose(gradient.asnumpy(), expected, **CLOSE)


def test_two_evaluations_in_one_scope_with_gradients_through_both():
    first, second = started(nn.Dense(4, in_units=4)), started(nn.Dense(4, in_units=4), seed=1)
    xs = ndarrays(6, (1, 4), gradient=True)

    def model(x):
        h = first(x)
        if h.sum().asscalar() > 0:  # evaluates
            h = second(h)
        if second(h).asnumpy()[0, 0] > 0:  # and again
            h = first(h) * h
        return second(h) + h

    assert_matches_eager(model, xs, blocks=[first, second])


def test_evaluation_in_the_middle_recomputes_nothing():
    net = started(nn.Dense(4, in_units=4))
    with autograd.record():
        with edb.batching() as scope:
            values = [net(x) for x in ndarrays(5, (1, 4))]
            assert values[0].asnumpy().shape == (1, 4)
            assert scope.report().nodes == 5
            more = [net(value) for value in values]
            more[2].wait_to_read()
            values[3].asnumpy()
        edb.forward([values, more])
    report = scope.report()
    assert (report.nodes, report.evaluations, report.batches) == (10, 2, 2)
    assert len(report.forced) == 2
    assert all(site.filename.endswith('test_autograd.py') for site in report.forced)


def test_losses_of_one_scope_and_an_eager_one():
    net, loss, xs = started(nn.Dense(1, in_units=4)), gluon.loss.L2Loss(), ndarrays(4, (1, 4))

    def run(batched):
        with autograd.record():
            if batched:
                with edb.batching():
                    values = [loss(net(x), 0.5) for x in xs[:2]]
                values = list(edb.forward(values))
            else:
                values = [loss(net(x), mx.nd.array([0.5])) for x in xs[:2]]
            values += [loss(net(x), mx.nd.array([0.5])) for x in xs[2:]]
        autograd.backward(values)

    assert_same(*both(lambda: run(True), lambda: run(False), net))


@pytest.mark.parametrize('optimizer', ['sgd', 'adam', 'adagrad'])
@pytest.mark.parametrize('hybridize', [False, True])
def test_training_equals_eager_step_by_step(optimizer, hybridize):
    nets = [started(TreeLSTM(), seed=4) for _ in range(2)]
    for net in nets:
        net.hybridize(hybridize)
    loss_fn = gluon.loss.SoftmaxCrossEntropyLoss()
    trainers = [
        gluon.Trainer(net.collect_params(), optimizer, {'learning_rate': 0.05}) for net in nets
    ]
    for step in range(6):
        trees = random_trees(4, seed=step)
        labels = [(step + i) % CLASSES for i in range(4)]
        with autograd.record():
            with edb.batching():
                losses = [loss_fn(nets[0](tree), label) for tree, label in zip(trees, labels)]
            batched = edb.stack(losses).mean()
        batched.backward()
        trainers[0].step(1)
        with autograd.record():
            losses = [
                loss_fn(nets[1](tree), mx.nd.array([label])) for tree, label in zip(trees, labels)
            ]
            eager = mx.nd.stack(*losses).mean()
        eager.backward()
        trainers[1].step(1)
        np.testing.assert_allclose(batched.asscalar(), eager.asscalar(), rtol=2e-5)
        for one, other in zip(nets[0].collect_params().values(), nets[1].collect_params().values()):
            # Adam divides by the gradient's own size, which magnifies rounding.
            np.testing.assert_allclose(
                one.data().asnumpy(),
                other.data().asnumpy(),
                rtol=1e-3,
                atol=2e-5 if optimizer != 'adam' else 1e-3,
            )


def test_trainer_with_loss_of_all_samples_and_step_size():
    """trainer.step(batch_size) with autograd.backward on the losses themselves."""
    nets = [started(Reader(), seed=4) for _ in range(2)]
    trainers = [gluon.Trainer(net.collect_params(), 'sgd', {'learning_rate': 0.5}) for net in nets]
    for step in range(4):
        samples = sentences(5, seed=step)
        with autograd.record():
            with edb.batching():
                losses = [(nets[0](sample) ** 2).sum(axis=1) for sample in samples]
        autograd.backward(edb.forward(losses))
        trainers[0].step(len(samples))
        with autograd.record():
            losses = [(nets[1](sample) ** 2).sum(axis=1) for sample in samples]
        autograd.backward(losses)
        trainers[1].step(len(samples))
    for one, other in zip(nets[0].collect_params().values(), nets[1].collect_params().values()):
        np.testing.assert_allclose(one.data().asnumpy(), other.data().asnumpy(), **CLOSE)


def test_stale_gradients_raise_the_trainers_own_warning():
    """A parameter that the scope did not use is stale, and one that it used is fresh."""
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=4), nn.Dense(3, in_units=4))
    started(net)
    trainer = gluon.Trainer(net.collect_params(), 'sgd')
    with autograd.record():
        with edb.batching():
            values = [net[0](x) for x in ndarrays(3, (1, 4))]
        loss = edb.stack(values).sum()
    loss.backward()
    with pytest.raises(UserWarning, match=net[1].weight.name + '|' + net[1].bias.name):
        trainer.step(1)
    trainer.step(1, ignore_stale_grad=True)


def test_values_recorded_without_record_have_no_gradient():
    net = started(nn.Dense(3, in_units=4))
    with edb.batching():
        value = net(ndarrays(1, (1, 4))[0])
    with autograd.record():
        result = edb.forward(value)
    with pytest.raises(mx.base.MXNetError, match='computational graph'):
        result.backward()


def test_integer_results_next_to_trained_ones():
    net = started(nn.Dense(3, in_units=4))

    def model(x):
        y = net(x)
        return y, y.argmax(axis=1), (y > 0), y.argmax(axis=1).astype('int32')

    assert_matches_eager(model, ndarrays(5, (1, 4)), blocks=[net])


def test_second_minibatch_before_first_is_differentiated():
    """Two scopes evaluated, then both differentiated."""
    net = started(nn.Dense(3, in_units=4))
    net.collect_params().setattr('grad_req', 'add')
    xs, ys = ndarrays(3, (1, 4)), ndarrays(4, (1, 4), seed=5)

    def batched():
        losses = []
        for part in (xs, ys):
            with autograd.record():
                with edb.batching():
                    values = [net(x) ** 2 for x in part]
                losses.append(edb.stack(values).sum())
        for loss in losses:
            loss.backward()

    def eager():
        for part in (xs, ys):
            with autograd.record():
                loss = mx.nd.stack(*[net(x) ** 2 for x in part]).sum()
            loss.backward()

    assert_same(*both(batched, eager, net))


def test_values_of_one_scope_in_the_next():
    net = started(nn.Dense(4, in_units=4))
    xs = ndarrays(3, (1, 4))

    def batched():
        with autograd.record():
            with edb.batching():
                first = [net(x) for x in xs]
            with edb.batching():
                second = [net(value) * 2 for value in first]
            loss = edb.stack(second).sum() + edb.stack(first).sum()
        loss.backward()

    def eager():
        with autograd.record():
            first = [net(x) for x in xs]
            loss = sum((net(value) * 2).sum() + value.sum() for value in first)
        loss.backward()

    assert_same(*both(batched, eager, net))


def test_gradients_of_results_of_several_kinds_are_the_same_every_time():
    """Values of different row shapes live in different arenas, whose backward passes may not
    get in each other's way."""
    net = started(nn.Dense(3, in_units=4))
    xs, found = ndarrays(5, (1, 4)), set()
    for _ in range(60):
        with autograd.record():
            with edb.batching('unbatched'):
                values = [net(x) for x in xs]
                values += [value.argmax(axis=1) for value in values]
            loss = sum(value.sum() for value in edb.forward(values))
        loss.backward()
        found.add(float(net.weight.grad().sum().asscalar()))
    assert len(found) == 1, found


def test_residual_gradient():
    """x + f(x) and x + f(y): where MXNet's compiled graphs lose a gradient that is to be added."""

    class Residual(gluon.HybridBlock):
        """x + f(y)"""

        def hybrid_forward(self, F, x, y):
            """(N, H)"""
            return x + F.tanh(y * 2), F.tanh(x) + y, x + y + x

    net = Residual()
    samples = list(zip(ndarrays(4, (1, 4), gradient=True), ndarrays(4, (1, 4), 1, gradient=True)))
    for count in (1, 4):
        assert_matches_eager(net, samples[:count], unpack=True)
    assert_matches_eager(
        lambda x, y: mx.nd.tanh(net(x, y)[0] + y), samples, unpack=True, blocks=[net]
    )


def test_loss_over_several_arenas_of_an_earlier_evaluation():
    """The pass comes to each of them in turn, after a later evaluation has begun."""
    blocks = [started(nn.Dense(width, in_units=4)) for width in (2, 3, 5)]
    samples = [mx.nd.random.uniform(shape=(1, 4)) for _ in range(3)]

    def gradients(batched):
        with autograd.record():
            if batched:
                with edb.batching():
                    early = [block(x) for block in blocks[:2] for x in samples]
                    edb.forward(early)
                    late = [blocks[2](x) for x in samples]
            else:
                early = [block(x) for block in blocks[:2] for x in samples]
                late = [blocks[2](x) for x in samples]
            loss = sum(value.square().sum() for value in early + late)
        loss.backward()
        return [block.weight.grad().asnumpy().copy() for block in blocks]

    for found, expected in zip(gradients(True), gradients(False)):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


# --- what joins the tape by the handles of arrays ------------------------------------------------


class Product(autograd.Function):
    """Two results, and gradients that are not theirs."""

    def forward(self, x, y):
        self.save_for_backward(x, y)
        return x * y, x + y

    def backward(self, first, second):
        x, y = self.saved_tensors
        return 3 * first * y + second, first * x + 2 * second


class DoubleOp(mx.operator.CustomOp):
    """A custom operator whose gradient is not that of what it computes."""

    def forward(self, is_train, req, in_data, out_data, aux):
        self.assign(out_data[0], req[0], in_data[0] * 2)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0] * 5)


@mx.operator.register('test_autograd_double')
class DoubleProp(mx.operator.CustomOpProp):
    """Properties by which MXNet finds the custom operator."""

    def __init__(self):
        super().__init__(need_top_grad=True)

    def create_operator(self, ctx, shapes, dtypes):
        return DoubleOp()


def _function(x, first, second, _):
    one, other = Product()(first(x), second(x))
    return second(one) + other


def _foreach(x, first, second, _):
    hidden = first(x)
    out, state = mx.nd.contrib.foreach(
        lambda a, s: (a * s, a + s), mx.nd.concat(hidden, hidden, dim=0), hidden[0]
    )
    return second(out.sum(axis=0, keepdims=True) + state)


def _while_loop(x, first, second, _):
    _, (_, state) = mx.nd.contrib.while_loop(
        lambda i, s: i < 3,
        lambda i, s: (s * 2, (i + 1, second(s))),
        (mx.nd.array([0]), first(x)),
        max_iterations=3,
    )
    return state


def _cond(x, first, second, _):
    hidden = first(x)
    return mx.nd.contrib.cond(hidden.sum() > 0, lambda: second(hidden), lambda: second(hidden * 2))


def _attach(x, first, second, marked, grad_req='write'):
    hidden = first(x)
    before, view = second(hidden), hidden[0:1] * 2
    hidden.attach_grad(grad_req)
    marked.append(hidden)
    return second(hidden) + second(hidden * 3) + before + view


def _attach_twice(x, first, second, marked):
    hidden = first(x)
    hidden.attach_grad()
    before = second(hidden)
    hidden.attach_grad()  # what was recorded before has the gradient that was attached first
    marked.append(hidden)
    return before + second(hidden) * 3


def _attach_null(x, first, second, _):
    hidden = first(x)
    hidden.attach_grad('null')
    return second(hidden) + first(x)


def _attach_given(x, first, second, marked):
    x = x * 1
    before = first(x)
    x.attach_grad()
    marked.append(x)
    return before + second(x)


def _mark(x, first, second, marked):
    hidden = first(x)
    autograd.mark_variables([hidden], [mx.nd.zeros_like(hidden)])
    marked.append(hidden)
    return second(hidden) * hidden


def _ragged(x, first, second, marked):
    hidden = first(x)
    hidden.attach_grad()
    marked.append(hidden)
    return edb.ragged([hidden, second(hidden)]).sum(axis=1)


HANDLES = {
    'Function': _function,
    'foreach': _foreach,
    'while_loop': _while_loop,
    'cond': _cond,
    'Custom': lambda x, first, second, _: second(
        mx.nd.Custom(first(x), op_type='test_autograd_double')
    ),
    'sparse.dot': lambda x, first, second, _: mx.nd.sparse.dot(first(x), second.weight.data()),
    'detach': lambda x, first, second, _: second(first(x).detach()) + first(x),
    'attach_grad': _attach,
    'attach_grad add': lambda *args: _attach(*args, grad_req='add'),
    'attach_grad null': _attach_null,
    'attach_grad twice': _attach_twice,
    'attach_grad of an input': _attach_given,
    'mark_variables': _mark,
    'ragged': _ragged,
}


@in_one_test('native', [True, False])
@in_one_test('name', HANDLES)
def test_what_joins_the_tape_by_handles(name, native):
    blocks = [nn.Dense(4, in_units=4, activation='tanh') for _ in range(2)]
    for block in blocks:
        block.initialize(mx.init.Normal(0.5))
    samples = [mx.nd.array(np.random.RandomState(seed).randn(1, 4)) for seed in range(3)]
    found = []
    for batched in (False, True):
        marked = []
        for block in blocks:
            block.collect_params().zero_grad()
        with autograd.record(), edb.compile_options(native=native):
            with edb.batching() if batched else contextlib.nullcontext():
                values = [HANDLES[name](sample, *blocks, marked) for sample in samples]
            loss = edb.stack(values).sum()
        loss.backward()
        found.append(
            [loss.asnumpy()]
            + [value.asnumpy() for value in values]
            + [
                parameter.grad().asnumpy()
                for block in blocks
                for parameter in block.collect_params().values()
            ]
            + [array.grad.asnumpy() for array in marked]
        )
    for expected, batched in zip(*found):
        np.testing.assert_allclose(batched, expected, rtol=1e-4, atol=1e-5)


def test_values_of_six_axes():
    """MXNet cannot differentiate a view of so many."""
    found = []
    for scope in (contextlib.nullcontext, edb.batching):
        xs = ndarrays(3, (1, 2, 1, 2, 1, 2), gradient=True)
        with autograd.record():
            with scope():
                values = [mx.nd.tanh(edb.nd.identity(x)) for x in xs]
            loss = mx.nd.add_n(*[(value * value).sum() for value in values])
        loss.backward()
        found.append([loss.asnumpy()] + [x.grad.asnumpy() for x in xs])
    for eager, batched in zip(*found):
        np.testing.assert_allclose(batched, eager, rtol=1e-5)


ZEROS_PROGRAM = """
import sys
import gluon_edbatch as edb
import mxnet as mx
from mxnet import autograd, gluon, nd
from gluon_edbatch.execute import evaluate
from gluon_edbatch.execute.executable import executable

if sys.argv[1] == 'eagerly':
    evaluate.is_faster_eagerly = lambda kind, *_: executable(kind).may_run_eagerly
WAYS = [
    lambda hs: edb.stack(hs) > 0,
    lambda hs: -edb.concat(hs) > 0,
    lambda hs: -edb.stack(hs, axis=1) > 0,
    lambda hs: -edb.add_n(hs) > 0,
    lambda hs: -hs[1] > 0,
    lambda hs: -hs[1][:, :2].sum() > 0,
    lambda hs: hs[1].copy().argmax(axis=1),
    lambda hs: nd.BlockGrad(hs[1] * 2),
    lambda hs: -hs[1].evaluated() > 0,
]
dense = gluon.nn.Dense(3, in_units=3)
weight = gluon.Parameter('weight', shape=(1,))
dense.initialize(), weight.initialize(mx.init.One())
for way in WAYS:
    with autograd.record():
        with edb.batching() as scope:
            hs = [dense(nd.full((1, 3), i)) for i in (1, 2, 3)]
        found = way(hs)
        loss = (found * weight.data()).sum()
    loss.backward()
    assert weight.grad().asscalar() == found.sum().asscalar()
    assert not dense.weight.grad().asnumpy().any()
    assert ('at_once' in str(scope.report())) == (sys.argv[1] == 'eagerly')
print('done')
"""


@pytest.mark.parametrize('how', ['batched', 'eagerly'])
def test_losses_that_depend_on_values_without_a_gradient_alone(how):
    """MXNet makes zeros like an array that no tape has, and ends the process."""
    run = run_python('-W', 'ignore', '-c', ZEROS_PROGRAM, how)
    assert (run.returncode, run.stdout) == (0, 'done\n'), run.stderr
