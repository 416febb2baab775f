"""The matrix of workloads and settings: batched results and gradients are eager Gluon's.

`assert_matches_eager` runs each workload with all schedulers, hybridized and not, recorded and in
inference, with each combination on one of the two backends. Each pair of settings meets. The slow
tests run the combinations on the other backend, too.
"""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.testing import assert_matches_eager
from gluon_edbatch.testing.matches_eager import SCHEDULERS
from tests.support.models import (
    EMBED,
    HIDDEN,
    VOCAB,
    BinaryTreeLSTM,
    Reader,
    Tree,
    TreeGRU,
    TreeLSTM,
    arrays,
    binary_trees,
    ndarrays,
    random_trees,
    sentences,
    started,
)


def image_net():
    """A small convolutional net."""
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(
            nn.Conv2D(3, 3, in_channels=2, activation='relu'),
            nn.MaxPool2D(2),
            nn.Conv2D(4, 2, in_channels=3),
            nn.GlobalAvgPool2D(),
            nn.Flatten(),
            nn.Dense(5, in_units=4),
        )
    return net


def mlp():
    """Two layers."""
    net = nn.HybridSequential()
    with net.name_scope():
        net.add(nn.Dense(6, in_units=4, activation='tanh'), nn.Dense(3, in_units=6))
    return net


def words(count, seed=0):
    """Word ids as Python ints."""
    return np.random.RandomState(seed).randint(VOCAB, size=count).tolist()


WORKLOADS = {
    'dense': (lambda: nn.Dense(3, in_units=4), lambda: ndarrays(6, (1, 4))),
    'dense, flat': (lambda: nn.Dense(3, in_units=8), lambda: ndarrays(5, (1, 2, 4))),
    'dense, not flat': (
        lambda: nn.Dense(3, in_units=4, flatten=False),
        lambda: ndarrays(5, (1, 2, 4), gradient=True),
    ),
    'dense of NumPy': (lambda: nn.Dense(3, in_units=4, use_bias=False), lambda: arrays(6, (1, 4))),
    'dense, input gradients': (
        lambda: nn.Dense(3, in_units=4),
        lambda: ndarrays(6, (1, 4), gradient=True),
    ),
    'embedding of ints': (lambda: nn.Embedding(VOCAB, EMBED), lambda: words(9)),
    'mlp': (mlp, lambda: ndarrays(7, (1, 4), gradient=True)),
    'layer norm': (lambda: nn.LayerNorm(in_channels=4), lambda: ndarrays(7, (1, 4))),
    'images': (image_net, lambda: arrays(5, (1, 2, 8, 8))),
    'child-sum Tree-LSTM': (TreeLSTM, lambda: random_trees(8)),
    'child-sum Tree-LSTM, chains': (TreeLSTM, lambda: random_trees(4, arity=1, largest=12)),
    'child-sum Tree-LSTM, wide': (TreeLSTM, lambda: random_trees(4, arity=20, largest=20)),
    'child-sum Tree-LSTM, leaves': (TreeLSTM, lambda: random_trees(4, largest=1)),
    'binary Tree-LSTM': (BinaryTreeLSTM, lambda: binary_trees(6)),
    'binary Tree-LSTM, words at leaves': (
        lambda: BinaryTreeLSTM(words_inside=False),
        lambda: binary_trees(6, seed=1),
    ),
    'Tree-GRU': (TreeGRU, lambda: random_trees(8, seed=2)),
    'LSTM': (Reader, lambda: sentences(6)),
    'GRU': (lambda: Reader(gluon.rnn.GRUCell), lambda: sentences(6, seed=1)),
    'RNN': (lambda: Reader(gluon.rnn.RNNCell), lambda: sentences(6, seed=2)),
}


@pytest.mark.parametrize('name', WORKLOADS)
def test_workload_matches_eager(name):
    make, samples = WORKLOADS[name]
    assert_matches_eager(started(make()), samples())


@pytest.mark.slow
@pytest.mark.parametrize('name', WORKLOADS)
def test_workload_matches_eager_on_the_other_backend(name):
    """Backends alternate over the schedulers, so one more in front of them swaps the backends."""
    make, samples = WORKLOADS[name]
    swapped = ['unbatched', *SCHEDULERS]
    assert_matches_eager(started(make()), samples(), schedulers=swapped)


IN_NUMPY_MODE = {
    'dense': (lambda: nn.Dense(3, in_units=4), (1, 4)),
    'dense, not flat': (lambda: nn.Dense(3, in_units=4, flatten=False), (1, 2, 4)),
    'mlp': (mlp, (1, 4)),
    'layer norm': (lambda: nn.LayerNorm(in_channels=4), (1, 4)),
    'images': (image_net, (1, 2, 8, 8)),
}


@pytest.mark.parametrize('name', IN_NUMPY_MODE)
def test_workload_matches_eager_in_numpy_mode(name):
    make, shape = IN_NUMPY_MODE[name]
    mx.npx.set_np()
    try:
        net, samples = started(make()), [mx.np.array(each) for each in arrays(6, shape)]
        for sample in samples:
            sample.attach_grad()
        assert_matches_eager(net, samples)
    finally:
        mx.npx.reset_np()


@pytest.mark.parametrize('name', ['dense', 'mlp', 'images', 'child-sum Tree-LSTM', 'Tree-GRU'])
def test_one_sample(name):
    make, samples = WORKLOADS[name]
    assert_matches_eager(started(make()), samples()[:1])


@pytest.mark.parametrize(
    'name',
    ['dense', 'mlp', 'images', 'child-sum Tree-LSTM', 'binary Tree-LSTM', 'Tree-GRU', 'layer norm'],
)
def test_float64(name):
    make, samples = WORKLOADS[name]
    net = started(make(), dtype='float64')
    given = [
        sample.astype('float64') if hasattr(sample, 'astype') else sample for sample in samples()
    ]
    if name == 'images':  # NumPy's float64 would become float32, as in mx.nd.array
        given = [mx.nd.array(image, dtype='float64') for image in given]
    assert_matches_eager(net, given)


def test_no_samples():
    net = started(TreeLSTM())
    with autograd.record():
        with edb.batching() as scope:
            values = [net(tree) for tree in []]
        assert edb.forward(values) == []
    assert net.batch([]) == []
    report = scope.report()
    assert (report.nodes, report.batches, report.lower_bound) == (0, 0, 0)


def test_pairs_with_labels():
    net, loss = started(TreeLSTM()), gluon.loss.SoftmaxCrossEntropyLoss()
    samples = [(tree, i % 5) for i, tree in enumerate(random_trees(7, seed=5))]
    assert_matches_eager(
        lambda tree, label: loss(net(tree), label), samples, unpack=True, blocks=[net, loss]
    )


def test_two_models_in_one_scope():
    first, second = started(TreeLSTM()), started(Reader(), seed=1)
    samples = list(zip(random_trees(5), sentences(5)))
    assert_matches_eager(
        lambda tree, tokens: first(tree) * second(tokens),
        samples,
        unpack=True,
        blocks=[first, second],
    )


def test_hidden_shared_between_levels():
    """A DAG: nodes of one tree read the state of a node that another one computed."""
    net = started(TreeLSTM())

    def model(tree):
        h, c = net.encode(tree)
        above = net.cell(net.embed(0), [(h, c), (h, c)])
        beside = net.cell(net.embed(1), [(h, c), above])
        return {'above': above, 'both': [beside[0] + h, (c,)]}

    assert_matches_eager(model, random_trees(5, seed=4), blocks=[net])


class TestTheHelper:
    """The comparison with eager Gluon fails when it should."""

    def test_a_wrong_value(self):
        net, calls = started(nn.Dense(3, in_units=4)), []

        def model(x):
            calls.append(x)
            return net(x) * (1 + 1e-4 * (len(calls) > 6))

        with pytest.raises(
            AssertionError,
            match=r'scheduler depth, not hybridized, inference, .*: '
            r'result \[\d\] differs from eager by up to',
        ):
            assert_matches_eager(model, ndarrays(6, (1, 4)), blocks=[net])

    def test_a_wrong_gradient(self):
        net, calls = started(nn.Dense(3, in_units=4)), []

        def model(x):
            calls.append(x)
            y = net(x)
            return y.detach() if len(calls) % 8 == 7 else y

        with pytest.raises(
            AssertionError,
            match=r'training, (no )?native operators: gradient of dense\d+_weight on cpu',
        ):
            assert_matches_eager(model, ndarrays(4, (1, 4)), blocks=[net], training=[True])

    def test_a_wrong_input_gradient(self):
        calls = []

        def model(x):
            calls.append(x)
            return (
                edb.nd.tanh(x)
                if len(calls) <= 4
                else edb.nd.tanh(x.copy() if 0 else x) * 1.0
                + edb.nd.BlockGrad(x)
                - edb.nd.identity(x)
            )

        with pytest.raises(AssertionError, match=r'gradient of input \d'):
            assert_matches_eager(
                model, ndarrays(4, (1, 4), gradient=True), training=[True], hybridized=[False]
            )

    def test_another_structure(self):
        calls = []

        def model(x):
            calls.append(x)
            return (x, x) if len(calls) <= 4 else (x, (x,))

        with pytest.raises(AssertionError, match='has structure'):
            assert_matches_eager(model, ndarrays(4, (1, 4)))

    def test_nan_in_one_place_only(self):
        calls = []

        def model(x):
            calls.append(x)
            return edb.nd.log(x) if len(calls) > 4 else edb.nd.log(edb.nd.abs(x))

        with pytest.raises(AssertionError, match='finite elsewhere'):
            assert_matches_eager(model, ndarrays(4, (1, 4)))

    def test_leaves_blocks_as_they_were(self):
        net = started(mlp())
        net.hybridize(static_alloc=True)
        net[1].hybridize(False)
        assert_matches_eager(net, ndarrays(3, (1, 4)))
        assert net._active and dict(net._flags)['static_alloc'] is True
        assert net[0]._active and not net[1]._active

    def test_nothing_to_differentiate(self):
        assert_matches_eager(lambda x: edb.nd.tanh(x), ndarrays(3, (1, 4)))
        net = started(nn.Dense(3, in_units=4))
        assert_matches_eager(lambda x: edb.nd.tanh(x), ndarrays(3, (1, 4)), blocks=[net])

    def test_random_numbers_of_heads_are_seeded(self):
        net = started(nn.Dense(3, in_units=4))
        for seed in range(3):
            assert_matches_eager(net, ndarrays(3, (1, 4)), seed=seed)


def test_tree_helpers():
    trees = random_trees(20)
    assert {1, 9} < {tree.size() for tree in trees} < set(range(10))
    assert Tree(1, (Tree(2), Tree(3, (Tree(4),)))).depth() == 3
    assert all(len(tree.children) in (0, 2) for tree in binary_trees(9))
    assert HIDDEN != EMBED
