"""Operators outside of blocks whose results depend on how many values there are: one batch each."""

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet import autograd, gluon, nd

import gluon_edbatch as edb
from gluon_edbatch.testing import assert_matches_eager
from gluon_edbatch.testing.float64 import computing_in_float64, recording_in_float64
from gluon_edbatch_core.errors import StaleValueError

H, LENGTHS = 6, (3, 1, 5, 2, 2, 9, 4)


def vectors(lengths=LENGTHS, seed=0):
    """A query (1, H) and so many values (1, H) for each length, with gradients."""
    random, samples = np.random.RandomState(seed), []
    for length in lengths:
        made = [nd.array(random.randn(1, H)) for _ in range(length + 1)]
        for array in made:
            array.attach_grad()
        samples.append((made[0], made[1:]))
    return samples


def matrices(lengths=LENGTHS, seed=0):
    """A query (1, H) and a matrix (K, H) for each length."""
    random = np.random.RandomState(seed)
    return [(random.randn(1, H).astype('f'), random.randn(k, H).astype('f')) for k in lengths]


class OfMatrices(gluon.Block):
    """A function of a query (1, H) and a matrix (K, H), each from a layer."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.query, self.memory = (gluon.nn.Dense(H, in_units=H) for _ in range(2))
        self.initialize(mx.init.Xavier())

    def forward(self, query, matrix, *more):
        q, m = self.query(mx.nd.array(query)), self.memory(mx.nd.array(matrix))
        return self.function(q, m, edb.nd.dot, *more)


def of_ragged(function):
    """A model of a query (1, 1, H) and values, which it makes ragged."""
    return lambda query, values: function(
        query.expand_dims(1), edb.ragged(values, shape=(1, H)), edb.nd.batch_dot
    )


def scores(q, m, product):
    return product(q, m, transpose_b=True)


def of_inner_weights(q, m, product):
    weights = edb.nd.softmax(scores(q, m, product))
    return product(weights, m), product(edb.nd.tanh(weights), m)


PROGRAMS = {  # name -> a function of query, memory and the product of the two
    'attention': lambda q, m, dot: dot(edb.nd.softmax(scores(q, m, dot)), m),
    'scaled': lambda q, m, dot: dot((scores(q, m, dot) * 0.25 + 1).softmax(axis=-1), m),
    'log': lambda q, m, dot: dot(edb.nd.log_softmax(scores(q, m, dot), axis=-1), m),
    'summed': lambda q, m, dot: edb.nd.sum((scores(q, m, dot) * 0.2).tanh(), axis=-1),
    'greatest': lambda q, m, dot: edb.nd.max(scores(q, m, dot), axis=-1),
    'mean': lambda q, m, dot: edb.nd.mean(scores(q, m, dot).square(), axis=-1),
    'twice': of_inner_weights,
    'two hops': lambda q, m, dot: dot(
        scores(dot(scores(q, m, dot).softmax(), m), m, dot).softmax(), m
    ),
    'with itself': lambda q, m, dot: dot(scores(q, m, dot) * scores(q, m, dot), m),
}


def batches_of(model, samples):
    """How many batches the second scope takes with these samples, and what its values are."""
    for _ in range(2):  # the first one sees that numbers of rows differ
        with edb.batching('agenda') as scope:
            results = [model(*sample) for sample in samples]
        values = edb.forward(
            [r for each in results for r in (each if type(each) is tuple else [each])]
        )
    return scope.report().batches, values


@pytest.mark.parametrize('name', PROGRAMS)
def test_ragged(name):
    model = of_ragged(PROGRAMS[name])
    assert_matches_eager(model, vectors(), unpack=True)
    assert batches_of(model, vectors())[0] <= (4 if name == 'two hops' else 3)


@pytest.mark.parametrize('name', PROGRAMS)
def test_matrices(name):
    model = OfMatrices(PROGRAMS[name])
    assert_matches_eager(model, matrices(), unpack=True)
    assert batches_of(model, matrices())[0] <= (4 if name in ('two hops', 'twice') else 3)


def test_keys_and_values():
    model = OfMatrices(lambda q, m, dot: dot(scores(q, m, dot).softmax(), m.tanh()))
    assert_matches_eager(model, matrices(), unpack=True)
    assert batches_of(model, matrices())[0] == 4


@pytest.mark.parametrize('kind', (vectors, matrices))
def test_weights_are_read_as_well(kind):
    def attend(q, m, product):
        weights = edb.nd.softmax(scores(q, m, product))
        return product(weights, m), weights, weights.reshape((-1,)), weights[0], weights * 2

    model = of_ragged(attend) if kind is vectors else OfMatrices(attend)
    assert_matches_eager(model, kind(), unpack=True)


def test_shape_and_kind_are_known():
    (query, matrix), other = matrices((4, 7))
    for _ in range(2):
        with edb.batching():
            for q, m in ((query, matrix), other):
                weights = edb.nd.dot(nd.array(q), nd.array(m), transpose_b=True).softmax()
                assert weights.shape == (1, len(m)) and weights.ndim == 2
                assert weights.dtype == np.float32 and weights.context == mx.cpu()
                assert weights.size == len(m) and isinstance(weights, nd.NDArray)
    assert weights.asnumpy().sum() == pytest.approx(1)


def test_held_values_are_there_after_the_scope():
    held = []
    for _ in range(2):
        with edb.batching():
            for query, matrix in matrices():
                product = edb.nd.dot(mx.nd.array(query), mx.nd.array(matrix), transpose_b=True)
                held.append((product, query @ matrix.T))
    for value, expected in held:
        np.testing.assert_allclose(value.asnumpy(), expected, rtol=1e-5, atol=1e-6)


def test_another_mode_of_autograd():
    """Weights that are computed under pause() get no gradient."""

    def attend(q, m, dot):
        with autograd.pause():
            weights = edb.nd.softmax(scores(q, m, dot))
        return dot(weights, m)

    assert_matches_eager(of_ragged(attend), vectors(), unpack=True)
    assert_matches_eager(OfMatrices(attend), matrices(), unpack=True)


def test_values_are_written_to():
    def attend(q, m, dot):
        weights = scores(q, m, dot)
        if not autograd.is_recording():  # else eager Gluon refuses
            weights += 1
            weights[:] = weights * 2
        return dot(weights, m)

    assert_matches_eager(of_ragged(attend), vectors(), unpack=True)
    assert_matches_eager(OfMatrices(attend), matrices(), unpack=True)


def test_values_are_read_in_the_scope():
    def attend(q, m, dot):
        weights = scores(q, m, dot).softmax()
        best = int(weights.asnumpy().argmax())
        return dot(weights, m) * best

    assert_matches_eager(of_ragged(attend), vectors(), unpack=True)
    assert_matches_eager(OfMatrices(attend), matrices(), unpack=True)


def test_numbers_of_each_sample():
    """Each number would be a type: after some, scores are computed with their lengths."""

    def attend(q, m, dot, scale):
        return dot((scores(q, m, dot) * scale).softmax(), m)

    samples = [(*sample, 0.1 * i) for i, sample in enumerate(matrices([2, 3, 4] * 10))]
    assert_matches_eager(OfMatrices(attend), samples, unpack=True)


def test_blocks_and_joins():
    layer = gluon.nn.Dense(3, in_units=4, flatten=False)
    layer.initialize(mx.init.Xavier())

    def attend(q, m, dot):
        weights = scores(q, m, dot).softmax()
        padded = edb.nd.concat(weights, edb.nd.zeros_like(weights), dim=-1)
        return padded, edb.nd.concat(dot(weights, m), dot(weights, m), dim=-1)

    for kind, model in (
        (vectors, of_ragged(attend)),
        (matrices, OfMatrices(attend)),
    ):
        assert_matches_eager(model, kind(), unpack=True)

    by_layer = OfMatrices(lambda q, m, dot: layer(scores(q, m, dot)))
    by_layer.layer = layer
    assert_matches_eager(by_layer, matrices((4, 4, 4)), unpack=True)


class TwoInputs(gluon.HybridBlock):
    def hybrid_forward(self, F, one, both):
        return F.sum(one * both[0] + both[1], axis=-1)


def test_what_reads_an_expression_evaluates_nothing():
    """Blocks, with lists as well, `ragged`, `stack`, `concat`, and functions of several results."""
    layer, two = gluon.nn.Dense(3, flatten=False), TwoInputs()
    layer.initialize(mx.init.Xavier())

    def attend(q, m, dot):
        weights = scores(q, m, dot)
        several = edb.nd.split(weights, num_outputs=2, axis=-1)
        best = edb.nd.topk(weights, k=2, axis=-1, ret_typ='both')
        return [
            layer(edb.nd.swapaxes(weights, -1, -2)),
            two(weights, [weights.tanh(), weights]),
            edb.ragged([weights, weights]).sum(axis=1),
            edb.concat([weights, weights]),
            edb.nd.stack(weights, weights * 2, axis=0),
            dot(weights, m),
            *several,
            *best,
        ]

    for kind, model in ((vectors, of_ragged(attend)), (matrices, OfMatrices(attend))):
        assert_matches_eager(model, kind((4, 6, 2, 8)), unpack=True, training=[False])
        with edb.batching() as scope:
            results = [model(*sample) for sample in kind((4, 6, 2, 8))]
        edb.forward([each for some in results for each in some])
        assert scope.report().evaluations == 1


def test_no_values():
    """An empty ragged value acts as one of zeros, as outside of scopes."""
    model = of_ragged(PROGRAMS['attention'])
    assert_matches_eager(model, vectors((2, 0, 3, 0)), unpack=True)


def test_noise_is_drawn_once():
    query, memory = nd.ones((1, 1, H)), [nd.full((1, H), i + 1) for i in range(5)]
    with autograd.record(), edb.batching():
        ragged = edb.ragged(memory)
        kept = edb.nd.Dropout(edb.nd.batch_dot(query, ragged, transpose_b=True), p=0.5)
        sums = [edb.nd.sum(kept, axis=-1), edb.nd.batch_dot(kept, ragged)]
    assert sums[0].asscalar() == pytest.approx(kept.asnumpy().sum())
    expected = sum(kept.asnumpy()[0, 0] * (np.arange(5) + 1))
    np.testing.assert_allclose(sums[1].asnumpy()[0, 0], expected, rtol=1e-6)


def test_a_scope_that_fails():
    (query, _), memories = matrices((2,))[0], [m for _, m in matrices((2, 3))]
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), edb.batching():
            weights = [edb.nd.dot(nd.array(query), nd.array(m), transpose_b=True) for m in memories]
            raise ZeroDivisionError
    for each in weights:
        with pytest.raises(StaleValueError):
            each.asnumpy()


STEPS = {
    'softmax': lambda s, t: edb.nd.softmax(s),
    'tanh': lambda s, t: s.tanh(),
    'exp': lambda s, t: edb.nd.exp(s * 0.1),
    'minus': lambda s, t: 1 - s,
    'add': lambda s, t: s + t,
    'multiply': lambda s, t: s * t,
    'divide': lambda s, t: s / (t.square() + 1),
    'greater': lambda s, t: edb.nd.where(s > t, s, t * 0.5),
    'clip': lambda s, t: s.clip(-1, 1),
}
ENDS = {
    'context': lambda s, m, dot: dot(s, m),
    'sum': lambda s, m, dot: edb.nd.sum(s, axis=-1),
    'max': lambda s, m, dot: edb.nd.max(s, axis=-1),
    'mean': lambda s, m, dot: edb.nd.mean(s, axis=-1),
    'norm': lambda s, m, dot: edb.nd.norm(s, axis=-1),
    'itself': lambda s, m, dot: s,
}


@settings(deadline=None, max_examples=40)
@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), max_size=5),
    ends=st.lists(st.sampled_from(sorted(ENDS)), min_size=1, max_size=2),
    lengths=st.lists(st.integers(1, 9), min_size=2, max_size=5),
    ragged=st.booleans(),
    seed=st.integers(0, 99),
)
def test_random_expressions(steps, ends, lengths, ragged, seed):
    def attend(q, m, dot):
        first = last = scores(q, m, dot)
        for step in steps:
            last = STEPS[step](last, first)
        return [ENDS[end](last, m, dot) for end in ends]

    if ragged:
        assert_matches_eager(of_ragged(attend), vectors(lengths, seed), unpack=True)
    else:
        assert_matches_eager(OfMatrices(attend), matrices(lengths, seed), unpack=True)


def test_rows_of_numpy_are_judged_in_float64():
    """`ragged` reads such rows together; a run in float64 has to widen them, too."""
    query, matrix = matrices((4,))[0]
    with computing_in_float64({}), recording_in_float64('agenda'):
        value = edb.ragged([matrix[i : i + 1] for i in range(4)])
        context = of_ragged(PROGRAMS['attention'])(nd.array(query), value.values())
        assert value.dtype == context.dtype == np.float64
    assert context.asnumpy().dtype == np.float64
