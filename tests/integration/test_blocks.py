"""Any HybridBlock batches: losses, the user's own, shared, deferred, with nested arguments."""

import collections
import contextlib
import copy
import pickle

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.testing import assert_matches_eager
from gluon_edbatch_core.branching.pytree import exact
from tests.support.cases import in_one_test
from tests.support.models import EMBED, VOCAB, arrays, ndarrays, started

LOSS = gluon.loss
CLASS = [0, 3, 1, 1, 2]
BINARY = [0, 1, 1, 0, 1]


def distributions(count, classes=4, seed=0):
    """NumPy rows that sum to 1."""
    values = np.random.RandomState(seed).uniform(0.1, 1, (count, 1, classes))
    return list((values / values.sum(axis=-1, keepdims=True)).astype(np.float32))


# name: loss, shape of predictions, labels
LOSSES = {
    'softmax CE, Python ints': (LOSS.SoftmaxCrossEntropyLoss(), (1, 4), CLASS),
    'softmax CE, NumPy scalars': (LOSS.SoftmaxCrossEntropyLoss(), (1, 4), list(np.array(CLASS))),
    'softmax CE, NDArrays': (
        LOSS.SoftmaxCrossEntropyLoss(),
        (1, 4),
        [mx.nd.array([label]) for label in CLASS],
    ),
    'softmax CE, dense labels': (
        LOSS.SoftmaxCrossEntropyLoss(sparse_label=False),
        (1, 4),
        distributions(5),
    ),
    'softmax CE, from logits': (LOSS.SoftmaxCrossEntropyLoss(from_logits=True), (1, 4), CLASS),
    'softmax CE, weighted': (LOSS.SoftmaxCrossEntropyLoss(weight=0.3), (1, 4), CLASS),
    'L1, floats': (LOSS.L1Loss(), (1, 1), [0.5, -1.25, 3.0, 1.0, 0.1]),
    'L1, NumPy': (LOSS.L1Loss(), (1, 4), arrays(5, (1, 4), seed=3)),
    'L2, ints': (LOSS.L2Loss(), (1, 1), CLASS),
    'L2, NumPy': (LOSS.L2Loss(), (1, 4), arrays(5, (1, 4), seed=3)),
    'sigmoid BCE, ints': (LOSS.SigmoidBCELoss(), (1, 1), BINARY),
    'sigmoid BCE, NumPy': (LOSS.SigmoidBCELoss(), (1, 4), distributions(5)),
    'KL': (LOSS.KLDivLoss(), (1, 4), distributions(5)),
    'KL, not from logits': (LOSS.KLDivLoss(from_logits=False), (1, 4), distributions(5)),
    'Huber': (LOSS.HuberLoss(rho=0.5), (1, 4), arrays(5, (1, 4), seed=3)),
    'Hinge': (LOSS.HingeLoss(), (1, 1), [-1, 1, 1, -1, 1]),
    'squared Hinge': (LOSS.SquaredHingeLoss(), (1, 1), [-1, 1, 1, -1, 1]),
    'logistic': (LOSS.LogisticLoss(), (1, 1), [-1, 1, 1, -1, 1]),
    'Poisson NLL': (LOSS.PoissonNLLLoss(), (1, 4), distributions(5)),
    'triplet': (LOSS.TripletLoss(), (1, 4), list(zip(arrays(5, (1, 4), 5), arrays(5, (1, 4), 6)))),
    'cosine embedding': (
        LOSS.CosineEmbeddingLoss(),
        (1, 4),
        list(zip(arrays(5, (1, 4), 5), [1, -1, 1, 1, -1])),
    ),
}


@in_one_test('name', LOSSES)
def test_loss(name):
    loss, shape, labels = LOSSES[name]
    units = shape[-1]
    net = started(nn.Dense(units, in_units=3))

    def model(x, label):
        scores = net(x)
        if name in ('KL', 'softmax CE, from logits'):
            scores = mx.nd.log_softmax(scores)
        return loss(scores, *label) if isinstance(label, tuple) else loss(scores, label)

    samples = list(zip(ndarrays(5, (1, 3), gradient=True), labels))
    # The terms of KL cancel to a hundredth of their size, so its rounding counts for more.
    assert_matches_eager(
        model,
        samples,
        unpack=True,
        blocks=[net, loss],
        rtol=1e-4 if name.startswith('KL') else None,
    )


@pytest.mark.parametrize('whole_values', [True, False])
def test_poisson_means_over_all_rows_of_a_sample(whole_values):
    """One by one unless samples get an axis of their own."""
    loss = LOSS.PoissonNLLLoss()
    samples = list(zip(ndarrays(3, (1, 4)), ndarrays(3, (1, 4), seed=1)))
    with edb.compile_options(whole_values=whole_values), edb.batching() as scope:
        values = edb.forward([loss(x, y) for x, y in samples])
    for (x, y), value in zip(samples, values):
        np.testing.assert_allclose(value.asnumpy(), loss(x, y).asnumpy(), rtol=1e-5)
    (kind,) = scope.report().types
    assert (kind.calls, kind.batches) == (3, 1 if whole_values else 3)
    assert whole_values or 'mean' in kind.note


class Wrapped(edb.AutoBatchMixin, gluon.Block):
    """Calls a HybridBlock with whatever it gets."""

    def __init__(self, inner):
        super().__init__()
        with self.name_scope():
            self.inner = inner

    def forward(self, *args):
        """What `inner` returns."""
        return self.inner(*args)


class Siamese(gluon.HybridBlock):
    """One child used twice."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.half = nn.Dense(4, in_units=3, activation='tanh')

    def hybrid_forward(self, F, left, right):
        """Product of both halves' codes."""
        return self.half(left) * self.half(right)


def test_shared_child():
    net = started(Siamese())
    assert_matches_eager(
        net, list(zip(ndarrays(5, (1, 3), gradient=True), ndarrays(5, (1, 3), seed=1))), unpack=True
    )


class SharedParameters(edb.AutoBatchMixin, gluon.Block):
    """Two blocks with the same parameters, and one inside another block."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.first = nn.Dense(3, in_units=3)
            self.second = nn.Dense(3, in_units=3, activation='relu', params=self.first.params)
            self.third = nn.HybridSequential()
            with self.third.name_scope():
                self.third.add(nn.Dense(3, in_units=3, params=self.first.params), nn.Dropout(0.5))

    def forward(self, x):
        """All three."""
        return self.first(x), self.second(x), self.third(self.second(x))


def test_shared_parameters():
    with autograd.predict_mode():
        net = started(SharedParameters())
    assert_matches_eager(net, ndarrays(5, (1, 3), gradient=True), training=[False])
    net.third._children.popitem()  # the dropout
    assert_matches_eager(net, ndarrays(5, (1, 3), gradient=True))


def test_one_parameter_in_two_types_of_one_scope():
    net = started(SharedParameters())
    assert_matches_eager(lambda x: net.second(net.first(x)), ndarrays(5, (1, 3)), blocks=[net])


@pytest.mark.parametrize('hybridize', [False, True])
def test_deferred_initialisation_happens_when_recorded(hybridize):
    def make():
        net = nn.HybridSequential()
        with net.name_scope():
            net.add(
                nn.Dense(4, activation='tanh'), nn.BatchNorm(use_global_stats=True), nn.Dense(2)
            )
        net.initialize(mx.init.One())
        if hybridize:
            net.hybridize()
        return net

    batched, eager = make(), make()
    samples = ndarrays(4, (1, 3))
    with autograd.record():
        with edb.batching():
            results = [batched(sample) for sample in samples]
            assert results[0].shape == (1, 2)
        total = edb.add_n(results).sum()
    total.backward()
    with autograd.record():
        expected = [eager(sample) for sample in samples]
        expected_total = mx.nd.add_n(*expected).sum()
    expected_total.backward()
    for one, other in zip(results, expected):
        np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-5)
    for one, other in zip(batched.collect_params().values(), eager.collect_params().values()):
        assert one.shape == other.shape
        if one.grad_req != 'null':
            np.testing.assert_allclose(one.grad().asnumpy(), other.grad().asnumpy(), rtol=1e-5)


Pair = collections.namedtuple('Pair', 'left right')


class Nested(gluon.HybridBlock):
    """Nested arguments and results, and constants among them."""

    def hybrid_forward(self, F, values, more, power, flag):
        """values: [a, (b, c)]; more: {'d': d}"""
        a, (b, c) = values
        total = (a + b) * c if flag else a
        return {
            'total': total,
            'list': [F.broadcast_mul(total, F.expand_dims(power, axis=1)), (more['d'],)],
            'named': Pair(a * 2, b - c),
        }


def test_nested_arguments_and_results():
    xs = [ndarrays(5, (1, 3), seed=seed, gradient=True) for seed in range(4)]
    samples = [
        ([a, (b, c)], {'d': d}, power, flag)
        for a, b, c, d, power, flag in zip(*xs, [2, 2, 3, 2, 3], [True] * 3 + [False] * 2)
    ]
    net = Nested()
    with edb.batching() as scope:
        results = [net(*sample) for sample in samples]
    assert type(results[0]) is dict and type(results[0]['list']) is list
    assert type(results[0]['named']) is Pair
    edb.forward(results)
    # `power` is a number and so an input; `flag` is a constant and so splits types.
    assert scope.report().batches == 2
    # Constants among the arguments cannot be hybridized by Gluon.
    assert_matches_eager(
        lambda values, more, power, flag: net(values, more, mx.nd.array([power]), flag),
        samples,
        unpack=True,
        blocks=[net],
        hybridized=[False],
    )


def test_constants_split_types_by_class_too():
    class Scaled(gluon.HybridBlock):
        """Behaves differently for True and 1."""

        def hybrid_forward(self, F, x, kind):
            """x or 2 x."""
            return x * (2 if kind is True else 3 if kind == 'a' else 1)

    net, x = Scaled(), mx.nd.ones((1, 2))
    with edb.batching():
        values = [net(x, True), net(x, None), net(x, 'a')]
    assert [value.asnumpy()[0, 0] for value in values] == [2, 1, 3]


CONSTANTS = [
    0.0,
    -0.0,
    0,
    False,
    1,
    1.0,
    True,
    float('nan'),
    np.nan,
    0j,
    complex(0, -0.0),
    None,
    (0.0, 1),
    (-0.0, 1),
    (False, 1),
    (0, True),
    frozenset([0.0]),
    frozenset([-0.0]),
]


def test_constants_are_compared_exactly():
    """One NaN is another, or each call would be of a type of its own; all else differs."""
    marks = [exact(constant) for constant in CONSTANTS]
    assert [
        (CONSTANTS[i], CONSTANTS[j])
        for i in range(len(marks))
        for j in range(i)
        if marks[i] == marks[j]
    ] == [(np.nan, CONSTANTS[7])]
    assert len(set(marks)) == len(marks) - 1


@pytest.mark.parametrize('native', [True, False])
def test_constants_of_operators_are_compared_exactly(native):
    x = mx.nd.array([[0.0, -0.0, 3, -2]])
    found = []
    for scope in (
        edb.batching(compile_options=edb.CompileOptions(native=native)),
        contextlib.nullcontext(),
    ):
        with scope:
            y = edb.nd.identity(x)
            values = [y * number for number in (0.0, -0.0, 0, 1, 1.0, True)]
            values += [edb.nd.clip(y, least, 1) for least in (0.0, -0.0, 0, -0.0)]
            values += [
                edb.nd.slice(y, begin=begin, end=(1, 3)) for begin in ((0, 1), (0, None), (None, 1))
            ]
            values += [y, -y, y / 0.0, y / -0.0, edb.nd.concat(y, y, dim=1)]
        found.append([value.asnumpy() for value in values])
    for one, other in zip(*found):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(np.signbit(one), np.signbit(other))


def test_nan_as_a_constant_makes_one_kind_of_call():
    with edb.batching() as scope:
        y = edb.nd.identity(mx.nd.ones((1, 4)))
        kinds = []
        for _ in range(5):
            z = y * float('nan')
            kinds.append(len(scope._recording.callees))
        assert kinds[1:] == kinds[1:2] * 4  # the first two tell that numbers do not vary
    assert np.isnan(z.asnumpy()).all()


def test_keys_of_dicts_are_constants():
    class Sum(gluon.HybridBlock):
        """Weights its arguments by their keys."""

        def hybrid_forward(self, F, x, arrays):
            """1 / (0 or -0)"""
            return F.add_n(*[1 / (array * key) for key, array in arrays.items()])

    net, x = Sum(), mx.nd.ones((1, 2))
    with edb.batching():
        values = [net(x, {0.0: x}), net(x, {-0.0: x}), net(x, {0: x})]
    assert [value.asnumpy()[0, 0] for value in values] == [np.inf, -np.inf, np.inf]


def test_equal_small_arrays_are_one_value_but_for_signs_of_zero_and_dtype():
    net = nn.HybridLambda(lambda F, x: 1 / x)
    arrays_given = [
        np.zeros((1, 2), np.float32),
        -np.zeros((1, 2), np.float32),
        np.zeros((1, 2), np.float32),
        np.zeros((1, 2), np.float16),
    ]
    with edb.batching() as scope:
        values = [net(array) for array in arrays_given]
    assert [value.asnumpy()[0, 0] for value in values] == [np.inf, -np.inf, np.inf, np.inf]
    assert [value.dtype for value in values] == [np.float32] * 3 + [np.float16]
    assert len(scope._recording.arrays) == 3


def test_rows_of_different_counts_in_one_batch():
    net = started(nn.Dense(3, in_units=4, activation='tanh'))
    samples = [
        mx.nd.array(np.random.RandomState(rows).randn(rows, 4)) for rows in (1, 3, 2, 3, 5, 1)
    ]
    for sample in samples:
        sample.attach_grad()
    with edb.batching() as scope:
        values = [net(sample) for sample in samples]
    edb.forward(values)
    assert scope.report().batches == 1
    assert_matches_eager(net, samples)


def test_rows_of_different_counts_through_a_chain():
    first = started(nn.Dense(4, in_units=4, activation='tanh'))
    second = started(nn.Dense(4, in_units=4), seed=1)
    generator = np.random.RandomState(0)

    def model(x, steps):
        for _ in range(steps):
            x = first(x) + second(x)
        return x, x.sum(axis=1), mx.nd.softmax(x)

    samples = [
        (mx.nd.array(generator.randn(rows, 4)), steps)
        for rows, steps in [(1, 2), (3, 1), (2, 3), (3, 2), (5, 0 + 1), (1, 3)]
    ]
    assert_matches_eager(model, samples, unpack=True, blocks=[first, second])


class Attention(gluon.HybridBlock):
    """Weighted sum of any number of values, padding masked by their number."""

    def hybrid_forward(self, F, query, values, lengths):
        """query (N, H), values (N, K, H), lengths (N,)"""
        scores = F.batch_dot(values, F.expand_dims(query, axis=2)).reshape((0, -1))
        mask = F.SequenceMask(F.ones_like(scores), lengths, use_sequence_length=True, axis=1)
        weights = F.softmax(F.where(mask, scores, F.ones_like(scores) * -1e9), axis=-1) * mask
        return F.batch_dot(F.expand_dims(weights, axis=1), values).reshape((0, -1))


def ragged_samples(counts, width=3, gradient=True):
    """(query, list of values) with these numbers of values."""
    generator = np.random.RandomState(7)
    samples = []
    for count in counts:
        made = [mx.nd.array(generator.randn(1, width)) for _ in range(count + 1)]
        for array in made:
            if gradient:
                array.attach_grad()
        samples.append((made[0], made[1:]))
    return samples


@pytest.mark.parametrize('counts', [[3, 1, 4, 2], [0, 2, 0, 5], [0, 0, 0], [1], [2, 2, 2]])
def test_ragged_with_lengths(counts):
    net = Attention()

    def model(query, values):
        values = edb.ragged(values, shape=(1, 3))
        return net(query, values, values.lengths)

    assert_matches_eager(model, ragged_samples(counts), unpack=True, blocks=[net])


@pytest.mark.parametrize('counts', [[3, 1, 4, 2], [0, 2, 0, 5], [0, 0, 0], [1], [2, 2, 2]])
def test_ragged_sum(counts):
    class Sum(gluon.HybridBlock):
        """Sum over the values, which padding does not change."""

        def hybrid_forward(self, F, query, values):
            """(N, H)"""
            return query + F.sum(F.tanh(values), axis=1)

    net = Sum()
    assert_matches_eager(
        lambda q, values: net(q, edb.ragged(values, shape=(1, 3))),
        ragged_samples(counts),
        unpack=True,
        blocks=[net],
    )


class MaskedAttention(gluon.HybridBlock):
    """Attention that needs no mask, as padding is proved to change nothing in its operators."""

    def hybrid_forward(self, F, query, values, lengths):
        """query (N, H), values (N, K, H), lengths (N,)"""
        scores = F.sum(F.broadcast_mul(values, F.expand_dims(query, axis=1)), axis=2)
        scores = F.SequenceMask(scores, lengths, use_sequence_length=True, axis=1, value=-1e9)
        weights = F.expand_dims(F.softmax(scores, axis=1), axis=2)
        return F.sum(F.broadcast_mul(weights, values), axis=1)


@pytest.mark.parametrize('offset', [0, -1, 1], ids=['true', 'too short', 'too long'])
def test_ragged_is_one_type_whatever_the_lengths(offset):
    """With the true lengths as mask, and with other numbers."""
    net = MaskedAttention()
    samples = ragged_samples([3, 1, 2], gradient=False)

    def model(query, values):
        values = edb.ragged(values, shape=(1, 3))
        return net(query, values, values.lengths + offset if offset else values.lengths)

    expected = [model(*sample).asnumpy() for sample in samples]
    with edb.batching() as scope:
        results = [model(*sample) for sample in samples]
    for found, wanted in zip(edb.forward(results), expected):
        np.testing.assert_allclose(found.asnumpy(), wanted, rtol=1e-5, atol=1e-6)
    attention = [kind for kind in scope.report().types if 'MaskedAttention' in kind.name]
    assert len(attention) == 1


def test_ragged_of_several_rows():
    class Sum(gluon.HybridBlock):
        """Sum over the values."""

        def hybrid_forward(self, F, values):
            """(N, H)"""
            return F.sum(F.tanh(values), axis=1)

    net = Sum()
    generator = np.random.RandomState(0)
    samples = [
        [mx.nd.array(generator.randn(rows, 3)) for _ in range(count)]
        for rows, count in [(2, 3), (1, 2), (4, 1), (2, 2)]
    ]
    for sample in samples:
        for array in sample:
            array.attach_grad()
    assert_matches_eager(lambda values: net(edb.ragged(values)), samples, blocks=[net])


def test_ragged_whose_padding_changes_the_result_batches_by_length():
    class LastButOne(gluon.HybridBlock):
        """The last value but one: it would be wrong where there is padding."""

        def hybrid_forward(self, F, values):
            """(N, H)"""
            return F.slice_axis(values, axis=1, begin=-2, end=-1)

    net = LastButOne()
    samples = [sample for _, sample in ragged_samples([2, 3, 2, 3, 3])]
    expected = [net(edb.ragged(sample)).asnumpy() for sample in samples]
    with edb.batching() as scope:
        values = [net(edb.ragged(sample)) for sample in samples]
    for found, wanted in zip(edb.forward(values), expected):
        np.testing.assert_allclose(found.asnumpy(), wanted, rtol=1e-6)
    assert scope.report().batches == 2


def test_user_block_with_python_branches_on_attributes():
    class Branching(gluon.HybridBlock):
        """A block that branches on an attribute."""

        def __init__(self):
            super().__init__()
            self.double = False

        def hybrid_forward(self, F, x):
            """x or 2 x."""
            return x * 2 if self.double else x * 1

    net, x = Branching(), mx.nd.ones((1, 2))
    with edb.batching():
        single = net(x)
        edb.forward(single)
        net.double = True
        double = net(x)
    assert (single.asnumpy() == 1).all() and (double.asnumpy() == 2).all()


def test_lambda_blocks_and_activations():
    # Without PReLU: its hybridized gradient is wrong in MXNet 1.9.1 itself.
    net = nn.HybridSequential()
    net.add(
        nn.HybridLambda(lambda F, x: F.broadcast_mul(x, F.sum(x, axis=1, keepdims=True))),
        nn.LeakyReLU(0.1),
        nn.ELU(),
        nn.SELU(),
        nn.GELU(),
        nn.Swish(),
    )
    assert_matches_eager(started(net), ndarrays(6, (1, 4), gradient=True))


@in_one_test(
    'make, shape',
    [
        (lambda: nn.Conv1D(3, 2, in_channels=2), (1, 2, 5)),
        (lambda: nn.Conv2D(3, 2, in_channels=2, strides=2, padding=1), (1, 2, 5, 5)),
        # Conv2DTranspose: MXNet 1.9.1's own backward pass fails for four eager calls in one graph.
        (lambda: nn.AvgPool2D(2), (1, 2, 6, 6)),
        (lambda: nn.GlobalMaxPool1D(), (1, 2, 5)),
        (lambda: nn.GroupNorm(num_groups=2), (1, 4, 3)),
        (lambda: nn.InstanceNorm(in_channels=2), (1, 2, 5)),
        (lambda: nn.ReflectionPad2D(1), (1, 2, 5, 5)),
        (lambda: nn.BatchNorm(in_channels=4, use_global_stats=True), (1, 4)),
        (lambda: nn.Flatten(), (1, 2, 3)),
    ],
    ids=[
        'Conv1D',
        'Conv2D',
        'AvgPool2D',
        'GlobalMaxPool1D',
        'GroupNorm',
        'InstanceNorm',
        'ReflectionPad2D',
        'BatchNorm',
        'Flatten',
    ],
)
def test_library_block(make, shape):
    assert_matches_eager(started(make()), ndarrays(4, shape, gradient=True))


def test_batch_norm_in_predict_mode_uses_and_keeps_moving_statistics():
    net = started(nn.BatchNorm(in_channels=3))
    net.running_mean.set_data(mx.nd.array([1, 2, 3]))
    assert_matches_eager(net, ndarrays(5, (1, 3)), training=[False])
    assert net.running_mean.data().asnumpy().tolist() == [1, 2, 3]


def test_values_unused_and_used_twice():
    net = started(nn.Dense(4, in_units=4, activation='tanh'))

    def model(x):
        net(x)  # nobody asks
        y = net(net(x))
        return y + y, mx.nd.concat(y, y, dim=1), y

    assert_matches_eager(model, ndarrays(5, (1, 4), gradient=True), blocks=[net])


def test_what_nobody_asks_for_is_not_run():
    net = started(nn.Dense(4, in_units=4))
    samples = ndarrays(6, (1, 4))
    with edb.batching() as scope:
        values = [net(net(sample)) for sample in samples]
    edb.forward(values[:2])
    assert scope.report().nodes == 4
    edb.forward(values)
    assert scope.report().nodes == 12


def test_forward_hooks_of_the_user_run():
    net = started(nn.Dense(4, in_units=4))
    seen = []
    handle = net.register_forward_hook(lambda block, args, out: seen.append(out.shape))
    with edb.batching():
        values = [net(sample) for sample in ndarrays(3, (1, 4))]
    handle.detach()
    edb.forward(values)
    assert seen == [(1, 4)] * 3


def test_embedding_of_ints_arrays_and_lists():
    net = started(nn.Embedding(VOCAB, EMBED))
    assert_matches_eager(
        net, [3, 7, np.array([1, 2, 3]), np.array([4]), np.int64(5), 0, mx.nd.array([2, 2])]
    )


def test_row_sparse_gradient_of_embedding():
    net = started(nn.Embedding(VOCAB, EMBED, sparse_grad=True))
    with edb.batching():
        values = [net(i) for i in range(4)]
    np.testing.assert_array_equal(
        edb.concat(values).asnumpy(),
        net.weight.data(mx.cpu()).asnumpy()[:4]
        if net.weight._stype == 'default'
        else net.weight.row_sparse_data(mx.nd.arange(4)).asnumpy()[:4],
    )


def test_mixin_model_takes_numbers_eagerly_and_batched():
    net = started(Wrapped(nn.Embedding(VOCAB, EMBED)))
    assert net(3).shape == (1, EMBED)
    assert_matches_eager(net, [1, 2, 3])


def test_mixin_with_hybridized_nested_blocks_runs_eagerly():
    inner = nn.HybridSequential()
    inner.add(nn.Dense(3, in_units=4), nn.Dense(2, in_units=3))
    net = started(Wrapped(inner))
    net.hybridize()
    assert net(np.ones((1, 4), np.float32)).shape == (1, 2)
    assert_matches_eager(net, ndarrays(3, (1, 4)))


@pytest.mark.parametrize('unpack', [False, True])
def test_batch(unpack):
    net = started(Wrapped(nn.Dense(2, in_units=3)))
    samples = ndarrays(5, (1, 3))
    given = [(sample,) for sample in samples] if unpack else samples
    for scheduler in ('depth', 'unbatched'):
        results = net.batch(given, scheduler=scheduler, unpack=unpack)
        assert len(results) == 5 and type(results[0]) is mx.nd.NDArray
        for sample, result in zip(samples, results):
            np.testing.assert_allclose(result.asnumpy(), net(sample).asnumpy(), rtol=1e-5)


def test_batch_under_record_is_connected():
    net = started(Wrapped(nn.Dense(2, in_units=3)))
    samples = ndarrays(5, (1, 3))
    with autograd.record():
        loss = sum(result.sum() for result in net.batch(iter(samples)))
    loss.backward()
    expected = sum(sample.asnumpy() for sample in samples).repeat(2, axis=0)
    np.testing.assert_allclose(net.inner.weight.grad().asnumpy(), expected, rtol=1e-5)


def test_results_with_more_rows_than_the_arguments():
    class Spread(gluon.HybridBlock):
        """Two rows of a result for each row of the argument, and one of another."""

        def hybrid_forward(self, F, x):
            """(2 N, 2) and (N, 4)"""
            return F.reshape(F.tanh(x), shape=(-1, 2)), x * 2

    net, dense = started(Spread()), started(nn.Dense(3, in_units=2))
    samples = [mx.nd.array(np.random.RandomState(rows).randn(rows, 4)) for rows in (1, 3, 2, 1)]
    for sample in samples:
        sample.attach_grad()

    def model(x):
        spread, double = net(x)
        return dense(spread), double

    assert_matches_eager(model, samples, blocks=[net, dense])


class Structures(gluon.HybridBlock):
    """A result that tells the structure of its arguments apart."""

    def hybrid_forward(self, F, *args):
        total = 0
        for weight, arg in enumerate(args, 1):
            kind = 1 if arg is None else 10 if isinstance(arg, list) else 100
            items = arg if isinstance(arg, (list, tuple)) else [] if arg is None else [arg]
            for position, item in enumerate(items, 1):
                item = item[0] if isinstance(item, (list, tuple)) else item
                total = total + item * (weight * kind + position * 1000)
            total = total + weight * kind
        return total


def test_structures_of_arguments_are_types_of_their_own():
    """Lists, tuples and None among the arguments take a short way; none may pass for another."""
    block = Structures()
    x, y, z = ndarrays(3, (1, 4))

    def arguments(x, y, z):
        return [
            (x, y, z),
            ([x, y], z),
            ([x], [y, z]),
            ((x, y), z),
            ((x,), [y], z),
            (x, [y, z]),
            ([x, y, z],),
            (None, x, [y, z]),
            (x, None, (y, z)),
            ([], x, y, z),
            ([x, y], z, ()),
            ([x, (y,)], z),
        ] * 2

    with edb.batching():
        found = [block(*args) for args in arguments(*map(nn.Activation('tanh'), (x, y, z)))]
    for value, args in zip(edb.forward(found), arguments(*map(mx.nd.tanh, (x, y, z)))):
        # (MXNet's own call takes neither tuples nor None)
        expected = block.hybrid_forward(mx.nd, *args)
        np.testing.assert_allclose(value.asnumpy(), expected.asnumpy(), rtol=1e-6)


def test_embedding_that_was_cast():
    """Ids do not tell of it."""
    net = started(nn.Embedding(VOCAB, EMBED))
    for dtype in ('float32', 'float64', 'float32'):
        net.cast(dtype)
        with edb.batching():
            values = [net(i) for i in range(4)]
        found = edb.concat(values)
        assert np.dtype(found.dtype) == np.dtype(dtype)
        np.testing.assert_array_equal(found.asnumpy(), net.weight.data().asnumpy()[:4])


# --- exported networks ---------------------------------------------------------------------------

# MXNet warns of the input of what it imports, whose dtype it finds out later.
importing = pytest.mark.filterwarnings('ignore:Cannot decide type:UserWarning:mxnet')


class TwoIn(gluon.HybridBlock):
    """Two arguments, three results."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.left = nn.Dense(3, in_units=4)
            self.right = nn.Dense(3, in_units=2, activation='tanh')
            self.norm = nn.BatchNorm(in_channels=3, use_global_stats=True)

    def hybrid_forward(self, F, x, y):
        """Return a value of both arguments, and one of each."""
        left, right = self.left(x), self.right(y)
        return self.norm(left * right), left, right


def imported(net, path, *samples, inputs=('data',), **kwargs):
    """`net` as a SymbolBlock of its exported files."""
    net.hybridize()
    net(*samples)
    net.export(str(path / 'net'))
    return gluon.SymbolBlock.imports(
        str(path / 'net-symbol.json'), list(inputs), str(path / 'net-0000.params'), **kwargs
    )


@importing
@pytest.mark.parametrize('dtype', ['float32', 'float64'])
def test_imported_block_of_several_arguments_and_results(tmp_path, dtype):
    net = started(TwoIn(), dtype=dtype)
    net.norm.running_mean.set_data(mx.nd.array([0.5, -1, 2]))
    samples = list(
        zip(
            ndarrays(5, (1, 4), gradient=True, dtype=dtype),
            ndarrays(5, (1, 2), seed=1, gradient=True, dtype=dtype),
        )
    )
    expected = [net(*sample) for sample in samples]
    block = imported(net, tmp_path, *samples[0], inputs=('data0', 'data1'))
    assert_matches_eager(block, samples, unpack=True)
    for results, wanted in zip(samples, expected):
        for one, other in zip(block(*results), wanted):
            np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-5)


@importing
def test_imported_block_inside_a_model(tmp_path):
    """An imported block's parameters are trained with those of the blocks around it."""
    inner = imported(
        started(nn.Dense(3, in_units=4, activation='tanh')), tmp_path, mx.nd.ones((1, 4))
    )
    net = nn.HybridSequential()
    net.add(started(nn.Dense(4, in_units=4)), inner, started(nn.Dense(2, in_units=3)))
    assert_matches_eager(net, ndarrays(5, (1, 4), gradient=True))
    assert_matches_eager(Wrapped(inner), ndarrays(5, (1, 4), gradient=True))


@importing
def test_imported_block_of_other_shapes_is_refused(tmp_path):
    block = imported(started(nn.Dense(3, in_units=4)), tmp_path, mx.nd.ones((1, 4)))
    with edb.batching(), pytest.raises(edb.RecordError, match=r'weight.*\(3, 4\)|shape'):
        block(mx.nd.ones((1, 5)))


@importing
def test_symbol_block_of_outputs_inside_a_graph():
    """Users make such blocks to take features out of a network, and share its parameters."""
    net = nn.HybridSequential(prefix='features_')
    with net.name_scope():
        net.add(nn.Dense(3, activation='tanh', in_units=4), nn.Dense(2, in_units=3))
    started(net)
    data = mx.sym.var('data')
    inner = net(data).get_internals()
    outputs = [inner[name] for name in inner.list_outputs() if name.endswith('fwd_output')]
    block = gluon.SymbolBlock(outputs, data, params=net.collect_params())
    assert_matches_eager(block, ndarrays(4, (1, 4), gradient=True))


@importing
def test_models_are_exported_after_scopes(tmp_path):
    """Recording leaves nothing behind that `export` or a reloaded file would meet."""
    net = started(TwoIn())
    samples = list(zip(ndarrays(3, (1, 4)), ndarrays(3, (1, 2), seed=1)))
    with edb.batching():
        values = [net(*sample) for sample in samples]
    expected = [[each.asnumpy() for each in value] for value in values]
    block = imported(net, tmp_path, *samples[0], inputs=('data0', 'data1'))
    with edb.batching():
        values = [block(*sample) for sample in samples]
    for value, wanted in zip(values, expected):
        for one, other in zip(value, wanted):
            np.testing.assert_allclose(one.asnumpy(), other, rtol=1e-5)


# --- copies of models ----------------------------------------------------------------------------

COPIES = {'deepcopy': copy.deepcopy, 'pickle': lambda net: pickle.loads(pickle.dumps(net))}


def _used(net, how, samples):
    """Use a model in one of these ways; gives its results."""
    if how == 'eager':
        return [net(sample) for sample in samples]
    with edb.batching():
        values = [net(sample) for sample in samples]
    return values if how == 'not evaluated' else edb.forward(values)


@pytest.mark.parametrize('how', ['eager', 'in scopes', 'not evaluated'])
@pytest.mark.parametrize('way', COPIES)
def test_models_can_be_copied_after_use(way, how):
    """A copy is a model of its own: it gives the same, and changing it leaves the first alone."""
    net = nn.HybridSequential()
    net.add(nn.Dense(3, activation='tanh', in_units=4), nn.Dense(2, in_units=3))
    started(net)
    samples = ndarrays(3, (1, 4))
    values = _used(net, how, samples)
    other = COPIES[way](net)
    expected = [value.asnumpy() for value in values]
    for value, wanted in zip(_used(other, 'in scopes', samples), expected):
        np.testing.assert_allclose(value.asnumpy(), wanted, rtol=1e-5)
    other[0].weight.set_data(mx.nd.ones((3, 4)))
    for value, wanted in zip(_used(net, 'in scopes', samples), expected):
        np.testing.assert_allclose(value.asnumpy(), wanted, rtol=1e-5)


@pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning')  # of half a CachedOp
@pytest.mark.parametrize('way', COPIES)
def test_hybridized_models_are_copied_as_in_gluon(way):
    """Gluon itself cannot copy a block that it ran hybridized, as that holds a CachedOp; it can
    after ``hybridize(False)``. Scopes change nothing about that, and use no CachedOp of Gluon's."""
    for scopes in (False, True):
        net, samples = started(nn.Dense(3, in_units=4)), ndarrays(3, (1, 4))
        net.hybridize()
        if scopes:
            values = _used(net, 'in scopes', samples)
            COPIES[way](net)
        expected = [value.asnumpy() for value in _used(net, 'eager', samples)]
        with pytest.raises(ValueError, match='ctypes objects containing pointers'):
            COPIES[way](net)
        net.hybridize(False)
        other = COPIES[way](net)
        for value, wanted in zip(_used(other, 'in scopes', samples), expected):
            np.testing.assert_allclose(value.asnumpy(), wanted, rtol=1e-5)
        if scopes:
            for value, wanted in zip(values, expected):
                np.testing.assert_allclose(value.asnumpy(), wanted, rtol=1e-5)


class Loop(gluon.HybridBlock):
    """A loop of MXNet's over what it is given, and a layer."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.dense = nn.Dense(4, in_units=4)

    def hybrid_forward(self, F, x, state):
        steps, last = F.contrib.foreach(lambda step, state: (step * state, step + state), x, state)
        return self.dense((F.sum(steps, axis=0) + last).reshape((1, -1)))


class While(gluon.HybridBlock):
    """Take as many steps as values say, in a block with parameters and a layer."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.dense = nn.Dense(4, in_units=4)
            self.scale = self.params.get('scale', shape=(1, 4), init=mx.init.Constant(0.7))

    def hybrid_forward(self, F, x, count, scale):
        _, (x, _) = F.contrib.while_loop(
            lambda x, step: F.broadcast_lesser(step, count),
            lambda x, step: (x, (F.tanh(x * scale) * 2, step + 1)),
            (x, F.zeros_like(count)),
            max_iterations=4,
        )
        return self.dense(x)


class Branch(gluon.HybridBlock):
    """One way or the other, over what is given."""

    def hybrid_forward(self, F, x):
        return F.contrib.cond(F.sum(x) > 0, lambda: F.exp(x), lambda: x * 3)


class Inside(gluon.HybridBlock):
    """Has a layer and such blocks as children."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.first, self.branch, self.loop = nn.Dense(4, in_units=4), Branch(), While()

    def hybrid_forward(self, F, x, count):
        return self.loop(self.branch(self.first(x)), count) + x


@pytest.mark.parametrize('make', [While, Branch, Inside])
def test_control_flow_over_what_a_block_is_given(make):
    """What MXNet infers nothing of: operators are called one by one."""
    net, data = started(make()), ndarrays(6, (1, 4), gradient=True)
    samples = list(zip(data, [mx.nd.array([step % 4 + 1]) for step in range(6)]))
    if make is Branch:
        samples = [(x,) for x in data]
    # of a hybridized loop, called eagerly, MXNet cannot tell the gradients
    assert_matches_eager(net, samples, unpack=True, blocks=[net], hybridized=[False])


def test_what_follows_the_last_condition_is_one_batch():
    net, data = started(While()), ndarrays(6, (1, 4))
    with edb.batching() as scope:
        values = [net(x, mx.nd.array([step % 4 + 1])) for step, x in enumerate(data)]
    edb.forward(values)
    assert [
        (kind.calls, kind.batches) for kind in scope.report().types if 'Dense' in kind.name
    ] == [(6, 1)]


def test_control_flow_of_numbers_and_numpy_arrays():
    """Numbers and NumPy arrays are allowed as in any call; the second call finds the signature."""
    net = started(While())
    x, expected = np.ones((1, 4), np.float32), net(mx.nd.ones((1, 4)), mx.nd.array([2]))
    for _ in range(2):
        with edb.batching():
            found = [net(x, np.float32([2])), net(x, 2)]
        for each in found:
            np.testing.assert_allclose(each.asnumpy(), expected.asnumpy(), rtol=1e-6)


def test_a_loop_over_what_a_block_is_given():
    samples = list(zip(ndarrays(5, (3, 4), gradient=True), ndarrays(5, (4,), seed=1)))
    assert_matches_eager(started(Loop()), samples, unpack=True)
