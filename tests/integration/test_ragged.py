"""Ragged arguments of any lengths are one type and one batch: attention, pooling, masks."""

from contextlib import nullcontext

import mxnet as mx
import numpy as np
import pytest
from gluonnlp.model.attention_cell import (
    DotProductAttentionCell,
    MLPAttentionCell,
    MultiHeadAttentionCell,
)
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.execute.executable import executable
from gluon_edbatch.execute.native import native_program
from gluon_edbatch.testing import assert_matches_eager
from tests.support.cases import in_one_test
from tests.support.models import started
from tests.support.tiers import sampled

pytestmark = pytest.mark.filterwarnings('ignore:The .* input to HybridBlock is not used')
H, LENGTHS = 6, (3, 1, 5, 2, 2, 0, 4)


class Block(gluon.HybridBlock):
    """A function of a query (N, H), a memory (N, K, H) and its lengths (N,)."""

    def __init__(self, function):
        super().__init__()
        self._function = function

    def hybrid_forward(self, F, query, memory, lengths):
        return self._function(F, query, memory, lengths)


class Additive(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.memory = nn.Dense(5, in_units=H, flatten=False)
            self.query = nn.Dense(5, in_units=H)
            self.score = nn.Dense(1, in_units=5, flatten=False)

    def hybrid_forward(self, F, query, memory, lengths):
        query = F.expand_dims(self.query(query), axis=1)
        hidden = F.tanh(F.broadcast_add(self.memory(memory), query))
        weights = F.softmax(self.score(hidden), axis=1)
        return F.sum(F.broadcast_mul(weights, memory), axis=1)


class GraphAttention(gluon.HybridBlock):
    """Graph attention with heads."""

    def __init__(self, heads=2):
        super().__init__()
        self._heads = heads
        with self.name_scope():
            self.value = nn.Dense(heads * 4, in_units=H, flatten=False)
            self.own = nn.Dense(heads, in_units=H, use_bias=False)
            self.other = nn.Dense(heads, in_units=H, use_bias=False, flatten=False)

    def hybrid_forward(self, F, query, memory, lengths):
        scores = F.broadcast_add(F.expand_dims(self.own(query), axis=1), self.other(memory))
        weights = F.softmax(F.LeakyReLU(scores, slope=0.2), axis=1).expand_dims(3)
        values = self.value(memory).reshape((0, 0, -4, self._heads, -1))
        return F.sum(F.broadcast_mul(weights, values), axis=1).reshape((0, -1))


class Cell(gluon.HybridBlock):
    """One of gluonnlp's, with a mask of its memory or without."""

    def __init__(self, make, masked):
        super().__init__()
        self._masked = masked
        with self.name_scope():
            self.cell = make()

    def hybrid_forward(self, F, query, memory, lengths):
        mask = F.expand_dims(_kept(F, memory, lengths), axis=1) if self._masked else None
        return self.cell(F.expand_dims(query, axis=1), memory, memory, mask)[0]


def _dot(F, query, memory, lengths):
    scores = F.batch_dot(memory, F.expand_dims(query, axis=2))
    weights = F.softmax(scores, axis=1)
    return F.batch_dot(weights, memory, transpose_a=True).reshape((0, -1))


def _dot_by_rows(F, query, memory, lengths):
    scores = F.batch_dot(F.expand_dims(query, axis=1), memory, transpose_b=True)
    return F.batch_dot(F.softmax(scores, axis=-1), memory).reshape((0, -1))


def _turned(turned_scores, turned_weights):
    """Dot attention with factors and weights as they are, or turned."""

    def block(F, query, memory, lengths):
        query, memory = F.expand_dims(query, axis=1), F.sigmoid(memory)
        scores = (
            F.batch_dot(memory, query, transpose_b=True).swapaxes(1, 2)
            if turned_scores
            else F.batch_dot(F.swapaxes(query, 1, 2), memory, transpose_a=True, transpose_b=True)
        )
        weights = F.softmax(F.tanh(scores / H**0.5), axis=2)
        if turned_weights:
            return F.squeeze(F.batch_dot(memory, weights, transpose_a=True, transpose_b=True), 2)
        keys = F.transpose(memory, axes=(0, 2, 1))
        return F.batch_dot(weights, keys, transpose_b=True).reshape((0, -1))

    return lambda: Block(block)


def _heads(F, query, memory, lengths):
    """Two heads of three columns, in the place of rows."""

    def split(x):
        x = F.transpose(F.reshape(x, shape=(0, -1, 2, 3)), axes=(0, 2, 1, 3))
        return F.reshape(x, shape=(-3, 0, 0))

    query, memory = split(query), split(memory)
    weights = F.softmax(F.batch_dot(query, memory, transpose_b=True) / 3**0.5)
    joined = F.reshape(F.batch_dot(weights, memory), shape=(-4, -1, 2, 0, 0))
    return F.reshape(F.transpose(joined, axes=(0, 2, 1, 3)), shape=(0, -1))


def _heads_by_axes(F, query, memory, lengths):
    """Attend by heads with an axis of their own, and reduce weights in other ways."""
    keys = F.transpose(F.reshape(memory, shape=(0, 0, 2, 3)), axes=(0, 2, 1, 3))
    queries = F.reshape(query, shape=(0, 2, 1, 3))
    weights = F.softmax(F.sum(F.broadcast_mul(queries, keys), axis=3), axis=2)
    columns = F.transpose(keys, axes=(0, 3, 2, 1))
    beside = F.expand_dims(F.swapaxes(weights, 1, 2), axis=1)
    best = F.max(F.broadcast_mul(beside, columns), axis=2)
    mean = F.mean(F.broadcast_mul(F.expand_dims(weights, axis=3), keys), axis=2, keepdims=True)
    return F.concat(best.reshape((0, -1)), mean.reshape((0, -1)), dim=1)


class Concatenated(gluon.HybridBlock):
    """Graph attention as its paper has it: what both are, one beside the other."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.vector = self.params.get('vector', shape=(1, 2 * H))

    def hybrid_forward(self, F, query, memory, lengths, vector):
        own = F.broadcast_like(F.expand_dims(query, axis=1), memory, lhs_axes=(1,), rhs_axes=(1,))
        both = F.concat(own, memory, dim=2)
        scores = F.LeakyReLU(F.dot(both, vector, transpose_b=True), slope=0.2)
        mean = F.batch_dot(F.softmax(scores, axis=1), memory, transpose_a=True)
        return F.LeakyReLU(F.squeeze(mean, axis=1), act_type='elu')


def _scores(F, query, memory):
    return F.sum(F.broadcast_mul(memory, F.expand_dims(query, axis=1)), axis=2)


def _weighted(F, weights, memory):
    return F.sum(F.broadcast_mul(F.expand_dims(weights, axis=2), memory), axis=1)


def _kept(F, memory, lengths):
    """(N, K): one for each value that is not padding, where a user writes that."""
    places = F.contrib.arange_like(memory, axis=1).reshape((1, -1))
    return F.broadcast_lesser(places, lengths.reshape((-1, 1)))


def _sequence_mask(F, x, lengths, value=0):
    return F.SequenceMask(x, lengths, use_sequence_length=True, axis=1, value=value)


def _of_scores(function):
    """Attention whose weights are this of (F, scores, memory, lengths)."""

    def block(F, query, memory, lengths):
        return _weighted(F, function(F, _scores(F, query, memory), memory, lengths), memory)

    return lambda: Block(block)


def _last(F, query, memory, lengths):
    scores = _scores(F, query, memory)
    by_rows = F.swapaxes(F.expand_dims(scores, axis=2), 1, 2)
    picked = F.pick(by_rows, F.expand_dims(lengths, axis=1) + 3, axis=-1)
    return F.broadcast_add(picked, query)


def _where(F, scores, memory, lengths):
    lowest = F.ones_like(scores) * -1e9
    return F.softmax(F.where(_kept(F, scores, lengths), scores, lowest), axis=1)


def _by_hand(F, scores, memory, lengths):
    """A softmax as it is written without one."""
    shifted = F.exp(F.broadcast_sub(scores, F.max(scores, axis=1, keepdims=True)))
    return F.broadcast_div(shifted, F.sum(shifted, axis=1, keepdims=True))


NATIVE = {  # in native operators, without padding
    'added': _of_scores(lambda F, s, m, n: F.softmax(s + (1 - _kept(F, m, n)) * -1e9, axis=1)),
    'additive': Additive,
    'dot': lambda: Block(_dot),
    'dot by rows': lambda: Block(_dot_by_rows),
    'turned': _turned(False, False),
    'turned scores': _turned(True, False),
    'turned weights': _turned(False, True),
    'both turned': _turned(True, True),
    'heads': lambda: Block(_heads),
    'heads by axes': lambda: Block(_heads_by_axes),
    'concatenated': Concatenated,
    'graph': GraphAttention,
    'largest': lambda: Block(lambda F, q, m, n: F.max(m + 1, axis=1) + q),
    'least': lambda: Block(lambda F, q, m, n: F.min(m, axis=1, keepdims=True).reshape((0, -1)) + q),
    'mean': lambda: Block(lambda F, q, m, n: F.mean(F.sigmoid(m), axis=1) + q),
    'likelihood': lambda: Block(
        lambda F, q, m, n: F.sum(F.log_softmax(m, axis=1) * F.sigmoid(m), axis=1) + q
    ),
    'SequenceMask': _of_scores(lambda F, s, m, n: F.softmax(_sequence_mask(F, s, n, -1e9), axis=1)),
    'SequenceMask of ones': _of_scores(
        lambda F, s, m, n: F.softmax(s + (_sequence_mask(F, F.ones_like(s), n) - 1) * 1e9, axis=1)
    ),
    'shorter': _of_scores(
        lambda F, s, m, n: F.softmax(_sequence_mask(F, s, F.relu(n - 1), -1e9), axis=1)
    ),
    'by hand': _of_scores(_by_hand),
    'loss of a pointer': lambda: Block(
        lambda F, q, m, n: F.broadcast_add(
            F.expand_dims(
                F.pick(F.log_softmax(_scores(F, q, m), axis=1), F.relu(n - 2), axis=1), axis=1
            ),
            q,
        )
    ),
    'each to each': lambda: Block(
        lambda F, q, m, n: (
            F.sum(F.batch_dot(F.softmax(F.batch_dot(m, F.tanh(m), transpose_b=True)), m), axis=1)
            + q
        )
    ),
    'pick of columns': lambda: Block(lambda F, q, m, n: F.pick(F.tanh(m), q * 3, axis=1) + q),
    'mean by lengths': lambda: Block(
        lambda F, q, m, n: F.broadcast_div(
            F.sum(F.sigmoid(m), axis=1), F.expand_dims(n + 1, axis=1)
        )
    ),
    'unsafe at zero': lambda: Block(
        lambda F, q, m, n: F.sum(F.log(F.abs(m)) + F.sqrt(m * m) / (m * m), axis=1) + q
    ),
}
PADDED = {
    'use_length': _of_scores(
        lambda F, s, m, n: F.softmax(s, F.cast(n, 'int32'), axis=1, use_length=True)
    ),
    'where': _of_scores(_where),
    'last by a position too large': lambda: Block(_last),
    'softmin': _of_scores(lambda F, s, m, n: F.softmin(s, axis=1)),
    'norms': lambda: Block(
        lambda F, q, m, n: F.concat(
            F.norm(m + 1, axis=1), F.prod(m, axis=1), F.norm(m, axis=1, ord=1), q, dim=1
        )
    ),
    'normalised': lambda: Block(
        lambda F, q, m, n: F.sum(F.L2Normalization(m + 1, mode='channel') * m, axis=1) + q
    ),
    'so far': lambda: Block(
        lambda F, q, m, n: F.sum(F.exp(F.cumsum(F.log(F.sigmoid(m)), axis=1)) * m, axis=1) + q
    ),
    'several axes': lambda: Block(
        lambda F, q, m, n: F.broadcast_add(
            F.mean(m + 1, axis=(1, 2), keepdims=True).reshape((0, 1)), q
        )
    ),
    'place of the largest': lambda: Block(
        lambda F, q, m, n: F.broadcast_add(
            q, F.expand_dims(F.argmax(_scores(F, q, m) - 9, axis=1), axis=1)
        )
    ),
}
CELLS = {
    'MLP': lambda: MLPAttentionCell(5),
    'dot': lambda: DotProductAttentionCell(units=4),
    'scaled dot': lambda: DotProductAttentionCell(scaled=True),
    'heads': lambda: MultiHeadAttentionCell(
        DotProductAttentionCell(scaled=True),
        query_units=4,
        key_units=4,
        value_units=4,
        num_heads=2,
    ),
}
for each in CELLS:
    NATIVE[f'{each} of gluonnlp'] = lambda each=each: Cell(CELLS[each], False)
    PADDED[f'{each} of gluonnlp, masked'] = lambda each=each: Cell(CELLS[each], True)


def samples_of(dtype, rows=1, lengths=LENGTHS, seed=0):
    """(query, values of the memory), as arrays with gradients."""
    random, samples = np.random.RandomState(seed), []
    for length in lengths:
        made = [mx.nd.array(random.randn(rows, H), dtype=dtype) for _ in range(length + 1)]
        for array in made:
            array.attach_grad()
        samples.append((made[0], made[1:]))
    return samples


def model_of(make, dtype):
    net = make()
    net.initialize(mx.init.Xavier(magnitude=4))
    net.cast(dtype)

    def model(query, values):
        memory = edb.ragged(values, shape=query.shape, dtype=dtype)
        lengths = memory.lengths
        return net(query, memory, lengths if dtype == 'float32' else lengths.astype(dtype))

    return net, model


def attention_types(model, samples):
    """The types of a block, and their batches."""
    with edb.batching('agenda') as scope:
        results = [model(*sample) for sample in samples]
    edb.forward(results)
    return [(kind.name, kind.batches) for kind in scope.report().types if '[6, kx6' in kind.name]


# What has no result where there are no values, and what has infinite slopes at zero.
OF_SOME = (
    'pick of columns',
    'loss of a pointer',
    'last by a position too large',
    'place of the largest',
    'unsafe at zero',
)


def lengths_for(name):
    return [length or int(name in OF_SOME) for length in LENGTHS]


@pytest.mark.parametrize('name, dtype', sampled(3, [*NATIVE, *PADDED], ['float32', 'float64']))
def test_memories_of_any_lengths_are_one_batch(name, dtype):
    if dtype == 'float64' and 'gluonnlp, masked' in name:
        pytest.skip('its masks are float32, whatever the cell is cast to')
    net, model = model_of({**NATIVE, **PADDED}[name], dtype)
    samples = samples_of(dtype, lengths=lengths_for(name))
    assert_matches_eager(
        model, samples, unpack=True, blocks=[net], schedulers=['agenda'], atol=2e-6
    )
    assert [batches for _, batches in attention_types(model, samples)] == [1]


@in_one_test('name', [*NATIVE, *PADDED])
def test_which_run_natively(name, types):
    types.clear()
    _, model = model_of({**NATIVE, **PADDED}[name], 'float32')
    attention_types(model, samples_of('float32', lengths=lengths_for(name)))
    ragged = [kind for kind in types if kind.ragged]
    assert ragged and all(
        (executable(kind).native is not None) == (name in NATIVE) for kind in ragged
    ), [executable(kind).not_native for kind in ragged]


@pytest.fixture
def types(monkeypatch):
    """The types that were to run natively."""
    seen, lower = [], native_program.lower

    def noted(node_type):
        seen.append(node_type)
        return lower(node_type)

    monkeypatch.setattr(native_program, 'lower', noted)
    return seen


@pytest.mark.parametrize('name', ['additive', 'dot by rows', 'mean', 'heads of gluonnlp'])
@pytest.mark.parametrize('lengths', [(0, 0), (2, 2, 2), (1, 4), (0, 3)], ids=str)
def test_values_of_several_rows(name, lengths):
    net, _ = model_of({**NATIVE, **PADDED}[name], 'float32')

    def model(query, values):
        return net(query, edb.ragged(values, shape=query.shape), mx.nd.full(3, len(values)))

    samples = samples_of('float32', 3, lengths)
    assert_matches_eager(
        model, samples, unpack=True, blocks=[net], schedulers=['agenda'], atol=2e-6
    )


MATRICES = {  # of all values of a call, which do not work row by row
    'time first': lambda F, q, x: F.broadcast_add(F.swapaxes(x, 0, 1).sum(axis=0), 0 * q),
    'sum of all': lambda F, q, x: F.reshape(F.sum(x * x) + 0 * F.sum(q), (1, 1)),
    'attention of a matrix': lambda F, q, x: F.dot(
        F.softmax(F.dot(q, F.reshape(x, (-1, 4)), transpose_b=True)), F.reshape(x, (-1, 4))
    ),
    'running sum': lambda F, q, x: F.broadcast_add(
        F.cumsum(F.reshape(x, (-1, 4)), axis=0), 0 * F.sum(q)
    ),
}


@pytest.mark.parametrize('name', MATRICES)
@pytest.mark.parametrize('rows', [(1, 1), (2, 1), (2, 2)])
def test_matrices_of_all_values(name, rows):
    """The query of a call may have other rows than each of its values has."""
    generator, net = np.random.RandomState(0), nn.HybridLambda(MATRICES[name])
    layer = started(nn.Dense(4, in_units=4))

    def model(sample):
        query, values = sample
        return net(layer(query), edb.ragged([layer(value) for value in values]))

    samples = [
        (
            mx.nd.array(generator.randn(rows[0], 4)),
            [mx.nd.array(generator.randn(rows[1], 4)) for _ in range(length)],
        )
        for length in (2, 3, 2, 1)
    ]
    assert_matches_eager(model, samples, blocks=[net, layer])


@pytest.mark.parametrize('loss', ['attention of a matrix', 'running sum', 'ctc'])
def test_calls_of_one_length_are_one_batch(loss):
    """What does not work row by row runs with an axis more where lengths agree."""
    lengths, labels = (5, 6, 5, 6), mx.nd.array([[1, 2]])
    net = gluon.loss.CTCLoss() if loss == 'ctc' else nn.HybridLambda(MATRICES[loss])
    layer = started(nn.Dense(4, in_units=4))
    with edb.batching() as scope:
        values = [edb.ragged([layer(mx.nd.ones((1, 4)) * i) for i in range(n)]) for n in lengths]
        results = [net(x, labels) if loss == 'ctc' else net(x[:, 0], x) for x in values]
    edb.forward(results)
    name = type(net).__name__
    assert sum([k.batches for k in scope.report().types if k.name.startswith(name)]) == 2


def test_memories_that_meet_need_equal_lengths():
    net = Block(lambda F, a, b, n: F.batch_dot(F.softmax(a, axis=1), b, transpose_a=True))
    net.initialize()

    def model(query, values):
        first = edb.ragged(values, shape=query.shape)
        second = edb.ragged([value * 2 for value in values], shape=query.shape)
        return net(first, second, first.lengths)

    samples = samples_of('float32')
    assert_matches_eager(model, samples, unpack=True, blocks=[net], schedulers=['agenda'])
    with edb.batching('agenda') as scope:
        edb.forward([model(*sample) for sample in samples])
    assert len([kind for kind in scope.report().types if 'Block' in kind.name]) == 1


def test_labels_that_are_not_ragged_are_told_of():
    """Shapes are inferred for a length of its own, which the message does not leave unsaid."""
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    scores = [mx.nd.ones((1, 2))] * 5
    with edb.batching():
        with pytest.raises(edb.RecordError, match=r'however many they are: .* labels, .* ragged'):
            loss(edb.ragged(scores), mx.nd.zeros((1, 5)))
        assert loss(edb.ragged(scores), edb.ragged([0] * 5)).shape == (1,)


LOSSES = {
    'l2': gluon.loss.L2Loss(),
    'l1': gluon.loss.L1Loss(),
    'binary': gluon.loss.SigmoidBinaryCrossEntropyLoss(),
    'huber': gluon.loss.HuberLoss(),
    'hinge': gluon.loss.HingeLoss(),
    'squared hinge': gluon.loss.SquaredHingeLoss(),
    'logistic': gluon.loss.LogisticLoss(label_format='binary'),
    'classes': gluon.loss.SoftmaxCrossEntropyLoss(sparse_label=False),
    'divergence': gluon.loss.KLDivLoss(from_logits=False),
}


@pytest.mark.parametrize('native, name', sampled(2, [True, False], LOSSES))
def test_losses_of_sequences_are_one_type(name, native):
    """Gluon's reshape labels like what was predicted, which has that shape already."""
    loss = LOSSES[name]
    lengths, random = (2, 3, 5, 3, 7, 1), np.random.RandomState(3)
    scores = [mx.nd.array(random.uniform(-1, 1, (1, k, 4))) for k in lengths]
    labels = [mx.nd.softmax(mx.nd.array(random.uniform(0, 1, (1, k, 4)))) for k in lengths]
    found, expected = [], []
    for array in scores:
        array.attach_grad()
    for taken, batched in (found, True), (expected, False):
        options = edb.CompileOptions(native=native)
        with autograd.record():
            scope = edb.batching(compile_options=options) if batched else nullcontext()
            with scope:
                losses = [
                    loss(_ragged(one, batched), _ragged(other, batched))
                    for one, other in zip(scores, labels)
                ]
            total = mx.nd.concat(*[each * weight for weight, each in enumerate(losses, 1)], dim=0)
        total.backward()
        taken += [total.asnumpy(), *[array.grad.asnumpy() for array in scores]]
        if batched:
            types = [kind for kind in str(scope.report()).splitlines() if 'Loss' in kind]
            assert len(types) == 1 and 'shapes' not in types[0]
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def _ragged(array, batched):
    if not batched:
        return array
    return edb.ragged([array[:, place] for place in range(array.shape[1])])


class Gated(gluon.HybridBlock):
    """A number for each value times a row of the call's own: (N, K, 1) and (N, 1, H)."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.score = nn.Dense(1, in_units=H, flatten=False)

    def hybrid_forward(self, F, query, memory):
        gates = F.sigmoid(self.score(memory))
        return F.sum(F.broadcast_mul(gates, F.expand_dims(query, axis=1)), axis=1)


@pytest.mark.parametrize('native', [True, False])
def test_values_that_are_narrower_than_rows_of_calls(native):
    block, random = started(Gated()), np.random.RandomState(1)
    made = [mx.nd.array(random.normal(size=(1, H))) for _ in range(12)]

    def run():
        return [block(made[k], edb.ragged(made[:k], shape=(1, H))) for k in (3, 1, 4, 0)]

    with edb.batching(compile_options=edb.CompileOptions(native=native, at_once=False)):
        found = run()
    for value, wanted in zip(found, run()):
        np.testing.assert_allclose(value.asnumpy(), wanted.asnumpy(), rtol=1e-5, atol=1e-6)
