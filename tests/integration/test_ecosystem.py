"""What Gluon's users combine with scopes: accumulated and clipped gradients, several contexts, AMP,
the profiler, gluonnlp's samplers, metrics."""

import json

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon

import gluon_edbatch as edb
from tests.support.processes import run_python

WIDTH = 4


class Sums(edb.AutoBatchMixin, gluon.Block):
    """A tree of numbers (leaves) and pairs, as one number; written for one tree."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = gluon.nn.Embedding(9, WIDTH)
            self.join = gluon.nn.Dense(WIDTH, in_units=2 * WIDTH, activation='tanh')
            self.score = gluon.nn.Dense(1, in_units=WIDTH)

    def forward(self, tree):
        return self.score(self.vector(tree))

    def vector(self, tree):
        if isinstance(tree, int):
            return self.embed(tree)
        return self.join(edb.concat([self.vector(part) for part in tree], dim=1))


def trees(count, seed=0):
    random = np.random.RandomState(seed)

    def tree(depth):
        if depth == 0 or random.rand() < 0.3:
            return int(random.randint(9))
        return tree(depth - 1), tree(depth - 1)

    return [(tree(4), tree(2)) for _ in range(count)]


def started(ctx=None, grad_req='write'):
    net = Sums(prefix='sums_')
    net.initialize(mx.init.Zero(), ctx=ctx)
    random = np.random.RandomState(7)
    for parameter in net.collect_params().values():
        parameter.set_data(mx.nd.array(random.uniform(-1, 1, parameter.shape)))
        parameter.grad_req = grad_req
    return net


def loss_of(net, samples, **scope):
    with edb.batching(**scope):
        losses = [net(sample) ** 2 for sample in samples]
    return edb.stack(losses).sum()


def backward(net, samples):
    with autograd.record():
        loss = loss_of(net, samples)
    loss.backward()


def gradients(net):
    return {name: p.list_grad()[0].asnumpy() for name, p in net.collect_params().items()}


def values(net):
    return {name: p.list_data()[0].asnumpy() for name, p in net.collect_params().items()}


def assert_close(one, other, atol=1e-5):
    assert one.keys() == other.keys() and one
    for name, array in one.items():
        np.testing.assert_allclose(array, other[name], rtol=1e-4, atol=atol, err_msg=name)


def test_gradients_accumulate_over_scopes():
    samples = trees(12)
    whole, parts = started(), started(grad_req='add')
    backward(whole, samples)
    for parameter in parts.collect_params().values():
        parameter.zero_grad()
    for begin in range(0, 12, 4):
        backward(parts, samples[begin : begin + 4])
    assert_close(gradients(whole), gradients(parts))
    trainer = gluon.Trainer(parts.collect_params(), 'sgd', {'learning_rate': 0.1})
    before = values(parts)
    trainer.step(12)
    expected = {name: before[name] - 0.1 * g / 12 for name, g in gradients(whole).items()}
    assert_close(values(parts), expected)


def test_gradients_are_clipped_as_eager_ones():
    samples = trees(6)
    batched, eager = started(), started()
    backward(batched, samples)
    with autograd.record():
        total = mx.nd.add_n(*[(eager(sample) ** 2).sum() for sample in samples])
    total.backward()
    norms = [
        gluon.utils.clip_global_norm([p.grad() for p in net.collect_params().values()], 0.5)
        for net in (batched, eager)
    ]
    assert norms[0] == pytest.approx(norms[1], rel=1e-4) and norms[0] > 0.5
    assert_close(gradients(batched), gradients(eager))
    squares = sum((array**2).sum() for array in gradients(batched).values())
    assert np.sqrt(squares) == pytest.approx(0.5, rel=1e-3)


def test_two_contexts_train_as_one():
    """A scope for each; a KVStore adds up."""
    samples, contexts = trees(10), [mx.cpu(0), mx.cpu(1)]
    one, two = started(), started(contexts)
    settings = 'adam', {'learning_rate': 0.01}
    alone = gluon.Trainer(one.collect_params(), *settings)
    together = gluon.Trainer(two.collect_params(), *settings, kvstore='device')
    for _ in range(5):
        backward(one, samples)
        alone.step(10)
        shares = gluon.utils.split_and_load(mx.nd.arange(10), contexts)
        with autograd.record():
            losses = []
            for ctx, share in zip(contexts, shares):
                with ctx:
                    own = [samples[int(i)] for i in share.asnumpy()]
                    losses.append(loss_of(two, own, ctx=ctx))
        autograd.backward(losses)
        together.step(10)
    assert_close(values(one), values(two))
    for parameter in two.collect_params().values():
        left, right = (array.asnumpy() for array in parameter.list_data())
        np.testing.assert_array_equal(left, right)


def test_two_contexts_of_a_worker_train_as_one():
    """The trainer for several workers trains one worker with two contexts."""
    samples, contexts = trees(8), [mx.cpu(0), mx.cpu(1)]
    one, two = started(), started(contexts)
    with edb.distributed.connect() as workers:
        settings = dict(optimizer='sgd', optimizer_params={'learning_rate': 0.1}, workers=workers)
        alone = edb.distributed.Trainer(one.collect_params(), **settings)
        together = edb.distributed.Trainer(two.collect_params(), **settings)
        backward(one, samples)
        alone.step(8)
        with autograd.record():
            losses = []
            for ctx, own in zip(contexts, (samples[:3], samples[3:])):
                with ctx:
                    losses.append(loss_of(two, own, ctx=ctx))
        autograd.backward(losses)
        together.step(8)
    assert_close(values(one), values(two))


# amp.init replaces MXNet's functions for good.
AMP = """
import sys
import gluon_edbatch as edb
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.contrib import amp

if sys.argv[1] != 'none':
    amp.init(sys.argv[1])
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(8, in_units=4, activation='tanh'), gluon.nn.Dense(4, in_units=8))
net.initialize()
random = np.random.RandomState(1)
for parameter in net.collect_params().values():
    parameter.set_data(mx.nd.array(random.uniform(-0.5, 0.5, parameter.shape)))
trainer = gluon.Trainer(net.collect_params(), 'sgd', {'learning_rate': 0.1})
if sys.argv[1] != 'none':
    amp.init_trainer(trainer)
samples = [mx.nd.array(random.randn(1, 4)) for _ in range(6)]
for _ in range(4):
    with autograd.record():
        with edb.batching():
            losses = []
            for times, sample in enumerate(samples):
                for _ in range(1 + times % 3):
                    sample = net(sample)
                losses.append((sample ** 2).sum(axis=1))
        loss = edb.stack(losses).sum()
        if sys.argv[1] == 'none':
            loss.backward()
        else:
            with amp.scale_loss(loss, trainer) as scaled:
                autograd.backward(scaled)
    trainer.step(6)
print(loss.dtype.__name__, [round(float(p.data().sum().asscalar()), 5) for p in
                            net.collect_params().values()])
"""


def test_amp_trains_in_batches_with_scaled_losses():
    """What is batched computes in the dtype of its parameters."""
    plain = run_python('-c', AMP, 'none')
    assert plain.returncode == 0 and 'float32 [' in plain.stdout, plain.stderr
    for dtype in ('bfloat16', 'float16'):
        done = run_python('-c', AMP, dtype)
        assert done.returncode == 0, done.stderr
        assert done.stdout == plain.stdout


def test_float16_where_mxnet_has_it_on_a_cpu():
    """Elementwise operators: it has neither Dense nor `dot`."""

    class Mixed(gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.weight = self.params.get('weight', shape=(1, 3))

        def hybrid_forward(self, F, x, weight):
            return F.tanh(F.broadcast_mul(x, weight)) + x

    cell = Mixed()
    cell.initialize(mx.init.Uniform(0.5))
    cell.cast('float16')
    samples = [mx.nd.array([[i, 1, -i]], dtype='float16') / 8 for i in range(5)]

    def chains():
        results = []
        for length, value in enumerate(samples, 1):
            for _ in range(length):
                value = cell(value)
            results.append(value)
        return results

    with autograd.record():
        with edb.batching() as scope:
            results = chains()
        total = edb.concat(results).sum()
    total.backward()
    batched, gradient = total.asscalar(), cell.weight.grad().asnumpy()
    assert scope.report().batches < 15 and results[0].dtype == np.float16
    with autograd.record():
        eager = mx.nd.concat(*chains(), dim=0).sum()
    eager.backward()
    assert batched == pytest.approx(eager.asscalar(), rel=2e-2)
    np.testing.assert_allclose(gradient, cell.weight.grad().asnumpy(), rtol=3e-2, atol=3e-2)


PROFILE = """
import sys
import gluon_edbatch as edb
import mxnet as mx
from mxnet import gluon

net = gluon.nn.Dense(2, in_units=3, prefix='scores_')
net.initialize()
mx.profiler.set_config(profile_all=True, filename=sys.argv[1])
mx.profiler.set_state('run')
for timing in (True, False):
    with edb.batching(timing=timing):
        values = [net(mx.nd.ones((1, 3))) for _ in range(7)]
    edb.forward(values)
mx.nd.waitall()
mx.profiler.set_state('stop')
mx.profiler.dump()
"""


def test_mxnets_profiler_shows_batches_by_name(tmp_path):
    done = run_python('-c', PROFILE, tmp_path / 'profile.json')
    assert done.returncode == 0, done.stderr
    events = json.loads((tmp_path / 'profile.json').read_text())['traceEvents']
    ours = [event for event in events if event.get('cat') == 'gluon_edbatch']
    assert {event['name'] for event in ours} == {'7 calls in 1 batches: Dense(scores)[3]'}, ours
    assert any('batches' not in event['name'] for event in events if event.get('ph') == 'B')


def test_gluonnlps_samplers_and_batchify():
    nlp = pytest.importorskip('gluonnlp')
    samples = [(tree, float(i)) for i, tree in enumerate(trees(23))]
    lengths = [len(str(tree)) for tree, _ in samples]
    sampler = nlp.data.FixedBucketSampler(lengths, batch_size=4, num_buckets=3, shuffle=True)
    batchify = nlp.data.batchify.Tuple(nlp.data.batchify.List(), nlp.data.batchify.Stack())
    loader = gluon.data.DataLoader(samples, batch_sampler=sampler, batchify_fn=batchify)
    net, seen, metric = started(), [], mx.metric.MAE()
    for batch, labels in loader:
        predictions = edb.concat(net.batch(batch))
        metric.update(labels, predictions[:, 0])
        seen += labels.asnumpy().tolist()
        np.testing.assert_allclose(
            predictions.asnumpy(), [net(tree).asnumpy()[0] for tree in batch], rtol=1e-4, atol=1e-6
        )
    assert sorted(seen) == [float(i) for i in range(23)] and metric.get()[1] > 1
