"""What is computed along a ragged axis is ragged again: one type for any number of values."""

from collections import Counter

import mxnet as mx
import numpy as np
import pytest
from gluonnlp.model.attention_cell import DotProductAttentionCell, MLPAttentionCell
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet import autograd, gluon, nd
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.record.lazy import RaggedArray
from gluon_edbatch.record.recording import Recording
from gluon_edbatch.testing import assert_matches_eager
from tests.support.tiers import sampled

H, LENGTHS = 6, (3, 1, 5, 2, 2, 0, 4)


def arrays(lengths=LENGTHS, rows=1, dtype='float32', seed=0):
    """A query and values for each length, with gradients."""
    random, samples = np.random.RandomState(seed), []
    for length in lengths:
        made = [nd.array(random.randn(rows, H), dtype=dtype) for _ in range(length + 1)]
        for array in made:
            array.attach_grad()
        samples.append((made[0], made[1:]))
    return samples


def of_ragged(function):
    """A model of a query and values, which it makes a ragged one."""
    return lambda query, values: function(
        edb.ragged(values, shape=query.shape, dtype=query.dtype), query
    )


def types_of(model, samples):
    """The types of a scope with these samples, and their batches."""
    with edb.batching('agenda') as scope:
        results = [model(*sample) for sample in samples]
    edb.forward(results)
    return [(kind.name, kind.batches) for kind in scope.report().types]


def column(query):
    return query.expand_dims(axis=1)


PROGRAMS = {  # name -> (model, how many types it has)
    'number': (lambda r, q: r * 2, 1),
    'chain': (lambda r, q: (1 - r * 2).tanh(), 3),
    'two': (lambda r, q: r * 2 + r, 2),
    'functions': (lambda r, q: nd.relu(nd.exp(r) - 1), 3),
    'compared': (lambda r, q: nd.where(r > 0, r, r * 0.1), 3),
    'cast': (lambda r, q: r.astype('float64'), 1),
    'query': (lambda r, q: nd.broadcast_add(r, column(q)), 1),
    'dot': (lambda r, q: nd.batch_dot(r, q.reshape((0, -1, 1))), 1),
    'softmax': (lambda r, q: r.softmax(axis=1), 2),
    'log_softmax': (lambda r, q: nd.log_softmax(r * 9, axis=1), 3),
    'softmin': (lambda r, q: nd.softmin(r, axis=1, temperature=0.5), 2),
    'softmax of rows': (lambda r, q: edb.nd.softmax(r, axis=2), 1),
    'by hand': (
        lambda r, q: nd.broadcast_sub(r, r.mean(axis=1, keepdims=True)),
        2,
    ),
    'weights and sum': (
        lambda r, q: [
            weights := nd.batch_dot(r, q.reshape((0, -1, 1))).softmax(axis=1),
            nd.batch_dot(weights, r, transpose_a=True),
        ],
        4,
    ),
    'scores': (lambda r, q: nd.sum(r * 2, axis=2), 2),
    'reduced': (lambda r, q: (r * 2).max(axis=1) + (r * 2).sum(axis=1), 4),
    'concat': (lambda r, q: nd.concat(r, r * 2, dim=1).sum(axis=1), 2),
    'concat of edb': (lambda r, q: edb.concat([r * 2, r], dim=1) + 1, 2),
    'concat of columns': (lambda r, q: nd.concat(r, r * 2, dim=2), 2),
    'sum of edb': (lambda r, q: edb.add_n([r * 2, r, r]), 2),
    'reshaped': (lambda r, q: (r * 2).reshape((0, 0, 2, -1)).sum(axis=2), 3),
    'reverse': (lambda r, q: nd.flip(r * 2, axis=1), 1),
    'first': (lambda r, q: (r * 2)[:, 0], 1),
    'columns': (lambda r, q: (r * 2)[:, :, 1:3], 2),
    'column of the last': (lambda r, q: (r * 2)[:, -1, 2:], 2),
    'all but the first': (lambda r, q: nd.slice_axis(r * 2, axis=1, begin=-1, end=None), 1),
    'detached': (lambda r, q: r.detach() * r, 2),
    'number that varies': (lambda r, q: r * float(r.shape[1]), 2),
}


OF_SOME = 'first', 'column of the last'  # errors where there are no values


@pytest.mark.parametrize('name', PROGRAMS)
def test_operators_on_ragged_values(name):
    function, types = PROGRAMS[name]
    lengths = [length or int(name in OF_SOME) for length in LENGTHS]
    model, samples = of_ragged(function), arrays(lengths)
    assert_matches_eager(model, samples, unpack=True, blocks=[], schedulers=['agenda'], atol=2e-6)
    found = types_of(model, samples)
    assert len(found) == types, found
    assert max(batches for _, batches in found) == 1


@pytest.mark.parametrize('name', ['softmax', 'weights and sum', 'chain', 'number that varies'])
def test_every_scheduler(name):
    model = of_ragged(PROGRAMS[name][0])
    assert_matches_eager(model, arrays(), unpack=True, blocks=[], atol=2e-6)


@pytest.mark.parametrize(
    'native, dtype, rows', sampled(3, [False, True], ['float32', 'float64'], [1, 3])
)
def test_rows_and_dtypes(native, dtype, rows):
    model = of_ragged(PROGRAMS['weights and sum'][0])
    with edb.compile_options(native=native):
        assert_matches_eager(
            model,
            arrays((2, 0, 3), rows, dtype),
            unpack=True,
            blocks=[],
            schedulers=['agenda'],
            atol=2e-6,
        )


class Attention(gluon.HybridBlock):
    """Additive; returns what it looked at, too."""

    def __init__(self, units, in_units=H):
        super().__init__()
        with self.name_scope():
            self.memory = nn.Dense(units, in_units=in_units, flatten=False)
            self.query = nn.Dense(units, in_units=H)
            self.score = nn.Dense(1, in_units=units, flatten=False)

    def hybrid_forward(self, F, query, memory):
        query = F.expand_dims(self.query(query), axis=1)
        hidden = F.tanh(F.broadcast_add(self.memory(memory), query))
        weights = F.softmax(self.score(hidden), axis=1)
        return F.batch_dot(weights, memory, transpose_a=True).reshape((0, -1)), weights, hidden


class ByRows(gluon.HybridBlock):
    """Weights are (N, 1, K), as library code has them."""

    def hybrid_forward(self, F, query, memory):
        query = F.expand_dims(query, axis=1)
        weights = F.softmax(F.batch_dot(query, memory, transpose_b=True), axis=-1)
        return F.batch_dot(weights, memory), [weights, F.broadcast_add(memory, query)]


@pytest.mark.parametrize('native', [False, True])
def test_weights_along_another_axis_cost_nothing_unless_looked_at(native):
    net, samples = ByRows(), arrays()
    model = of_ragged(lambda r, q: net(q, r))
    with edb.compile_options(native=native):
        assert_matches_eager(
            model, samples, unpack=True, blocks=[net], schedulers=['agenda'], atol=2e-6
        )
        found = types_of(of_ragged(lambda r, q: net(q, r)[0]), samples)
        assert [batches for _, batches in found] == [1]
        found = types_of(of_ragged(lambda r, q: net(q, r)[1][1]), samples)
        assert [batches for _, batches in found] == [1]


@pytest.mark.parametrize('units', [H, None])
@pytest.mark.parametrize('make', [MLPAttentionCell, DotProductAttentionCell])
def test_attention_cells_of_gluonnlp_on_ragged_memories(make, units):
    cell, samples = make(units or 4) if make is MLPAttentionCell else make(units), arrays()
    initialized(cell)
    model = of_ragged(lambda r, q: cell(column(q), r, r))
    assert_matches_eager(
        model, samples, unpack=True, blocks=[cell], schedulers=['agenda'], atol=2e-6
    )
    contexts = of_ragged(lambda r, q: cell(column(q), r, r)[0])
    assert [batches for _, batches in types_of(contexts, samples)] == [1]


def test_arguments_that_are_no_values_take_the_same_way():
    """Here a number; a call with one value comes after one with none, which is one of zeros."""

    class Scaled(gluon.HybridBlock):
        def hybrid_forward(self, F, scale, memory):
            memory = F.broadcast_mul(F.expand_dims(F.expand_dims(scale, axis=1), axis=1), memory)
            weights = F.softmax(F.sum(memory, axis=2), axis=1)
            return F.sum(memory, axis=1), F.expand_dims(weights, axis=1)

    net = Scaled()
    samples = [(2.0 + place, values) for place, (_, values) in enumerate(arrays((0, 1, 3)))]

    def model(number, values):
        return net(number, edb.ragged(values, shape=(1, H)))

    assert_matches_eager(
        model, samples, unpack=True, blocks=[net], schedulers=['agenda'], atol=2e-6
    )
    sums = types_of(lambda number, values: model(number, values)[0], samples)
    assert [batches for _, batches in sums] == [1]


class Encoder(gluon.HybridBlock):
    """An encoder that treats each value alone."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.dense = nn.Dense(H, in_units=H, flatten=False, activation='tanh')
            self.norm = nn.LayerNorm(in_channels=H)

    def hybrid_forward(self, F, memory):
        return self.norm(self.dense(memory) + memory)


def initialized(block):
    block.initialize(mx.init.Xavier(magnitude=4))
    return block


@pytest.mark.parametrize('native', [False, True])
def test_a_block_that_returns_its_weights(native):
    net, samples = initialized(Attention(5)), arrays()
    model = of_ragged(lambda r, q: net(q, r))
    with edb.compile_options(native=native):
        assert_matches_eager(model, samples, unpack=True, blocks=[net], atol=2e-6)
        assert [batches for _, batches in types_of(model, samples)] == [1, 1]


@pytest.mark.parametrize('native', [False, True])
def test_what_a_block_returns_for_values_is_an_argument(native):
    encoder, net, samples = initialized(Encoder()), initialized(Attention(5)), arrays()

    def model(query, values):
        encoded = encoder(edb.ragged(values, shape=query.shape))
        return [net(query, encoded)[0], encoded.mean(axis=1), encoded]

    with edb.compile_options(native=native):
        assert_matches_eager(
            model, samples, unpack=True, blocks=[encoder, net], schedulers=['agenda'], atol=2e-6
        )
        assert max(batches for _, batches in types_of(model, samples)) == 1


class Pool(gluon.HybridBlock):
    """The mean of values by what is learned of them, and their weights."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.hidden = nn.Dense(5, in_units=H, flatten=False, activation='tanh')
            self.score = nn.Dense(1, in_units=5, flatten=False, use_bias=False)

    def hybrid_forward(self, F, values):
        weights = F.softmax(self.score(self.hidden(values)), axis=1)
        return F.batch_dot(weights, values, transpose_a=True).reshape((0, -1)), weights


class Documents(edb.AutoBatchMixin, gluon.Block):
    """A model of documents, like that of docs/guides/ragged.md."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.embed = nn.Embedding(9, H)
            self.attend_words = Pool()
            self.attend_sentences = Pool()

    def forward(self, document):
        sentences, looked_at = [], []
        for words in document:
            vectors = edb.ragged([self.embed(word) for word in words], shape=(1, H))
            vector, weights = self.attend_words(vectors)
            sentences.append(vector)
            looked_at.append(weights)
        return self.attend_sentences(edb.ragged(sentences)), looked_at


@pytest.mark.parametrize('native', [False, True])
def test_attention_over_sentences_of_attention_over_words(native):
    net = initialized(Documents())
    random = np.random.RandomState(0)
    documents = [
        [random.randint(9, size=count).tolist() for count in lengths]
        for lengths in [(2, 3, 1), (4,), (1, 1), (0, 2), (5, 2, 2, 1)]
    ]
    with edb.compile_options(native=native):
        assert_matches_eager(net, documents, atol=2e-6)
        found = types_of(net, [(each,) for each in documents])
    assert [batches for _, batches in found] == [1] * 5, found


def test_calls_for_each_value_are_used_again():
    class First(Documents):
        def forward(self, document):
            return super().forward(document)[0][0]

    net, reuse = initialized(First()), edb.Reuse()
    documents = [[[1, 2, 3], [4]], [[5], [6, 7], [1]]]
    expected = [net(document).asnumpy() for document in documents]
    for _ in range(3):
        found = net.batch(documents, keys=[0, 1], reuse=reuse)
        for mine, eager in zip(found, expected):
            np.testing.assert_allclose(mine.asnumpy(), eager, atol=1e-6)


def test_axes_of_one_that_are_left_out():
    class Scores(gluon.HybridBlock):
        def hybrid_forward(self, F, memory):
            return F.squeeze(F.sum(memory, axis=2, keepdims=True))

    net = Scores()
    samples = arrays((3, 2, 3), rows=2)
    assert_matches_eager(
        of_ragged(lambda r, q: net(r)), samples, unpack=True, blocks=[net], schedulers=['agenda']
    )


def test_noise_is_drawn_once():
    class Noisy(gluon.HybridBlock):
        def hybrid_forward(self, F, memory):
            kept = F.Dropout(F.ones_like(memory), p=0.5)
            return kept, F.sum(kept, axis=1)

    net = Noisy()
    with autograd.record(), edb.batching('agenda'):
        results = [net(edb.ragged([value] * 5)) for (value, _) in arrays((0, 0, 0))]
    for kept, total in results:
        np.testing.assert_allclose(kept.asnumpy().sum(axis=1), total.asnumpy(), rtol=1e-6)


def test_dropout_along_the_values_is_the_same_for_all():
    drop = nn.Dropout(0.5, axes=(1,))
    with autograd.record(), edb.batching('agenda'):
        results = [drop(edb.ragged(values)) for _, values in arrays((5, 4, 3))]
    for kept, (_, values) in zip(results, arrays((5, 4, 3))):
        zero = kept.asnumpy()[0] == 0
        assert (zero == zero[0]).all() and len(values) == len(zero)


def test_what_returns_the_axis_elsewhere_batches_by_length():
    model, samples = of_ragged(lambda r, q: (r * 2).transpose((0, 2, 1))), arrays()
    assert_matches_eager(model, samples, unpack=True, blocks=[], schedulers=['agenda'])


def test_rows_of_ragged_values():
    def rows(ragged, query):
        return (
            edb.stack([ragged, ragged * 2], axis=0),
            edb.concat([ragged * 2, ragged], dim=0),
            [row * 2 for row in ragged],
            (ragged * 2)[0],
        )

    assert_matches_eager(
        of_ragged(rows), arrays((3, 1, 3)), unpack=True, blocks=[], schedulers=['agenda'], atol=2e-6
    )


@pytest.mark.parametrize('function', ['cumsum', 'topk', 'sort'])
def test_what_works_across_the_values_batches_by_length(function):
    lengths = [length or int(function != 'cumsum') for length in LENGTHS]
    model, samples = of_ragged(lambda r, q: getattr(nd, function)(r * 2, axis=1)), arrays(lengths)
    assert_matches_eager(model, samples, unpack=True, blocks=[], schedulers=['agenda'])


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    program=st.lists(
        st.sampled_from(
            [
                lambda r, q: r * 2 + 1,
                lambda r, q: nd.softmax(r, axis=1) + r,
                lambda r, q: nd.concat(r, r * 3, dim=1),
                lambda r, q: nd.broadcast_mul(r, column(q)),
                lambda r, q: nd.broadcast_sub(r, r.mean(axis=1, keepdims=True)),
                lambda r, q: r[:, :1],
                lambda r, q: nd.flip(r, axis=1).tanh(),
            ]
        ),
        max_size=3,
    ),
    native=st.booleans(),
)
def test_programs_by_chance(lengths, program, native):
    def model(ragged, query):
        for step in program:
            ragged = step(ragged, query)
        return ragged, ragged.sum(axis=1), ragged.max(axis=1)

    with edb.compile_options(native=native):
        assert_matches_eager(
            of_ragged(model),
            arrays(lengths),
            unpack=True,
            blocks=[],
            schedulers=['agenda'],
            atol=5e-6,
        )


@pytest.mark.parametrize('native', [False, True])
def test_a_batch_of_which_no_call_has_values(native):
    """Nothing of it has a gradient, but what its result goes into has."""
    model = of_ragged(lambda r, q: [r.sum(axis=1) + q, (r * 2).softmax(axis=1).max(axis=1) * q])
    with edb.compile_options(native=native):
        assert_matches_eager(
            model, arrays((0, 0)), unpack=True, blocks=[], schedulers=['agenda'], atol=2e-6
        )


# --- as values -----------------------------------------------------------------------------------


def test_what_is_known_without_running():
    (_, values), (_, none) = arrays((3, 0))
    with edb.batching() as scope:
        result, empty = edb.ragged(values) * 2, edb.ragged(none, shape=(1, H)) + 1
        assert (result.shape, result.ndim, result.size, len(result)) == ((1, 3, H), 3, 3 * H, 1)
        assert (empty.shape, empty.lengths.asscalar()) == ((1, 0, H), 0)
        assert (result[:, 1].shape, result[:, 1:].shape) == ((1, H), (1, 2, H))
        assert result[:, 1:].lengths.asscalar() == 2 and empty[:, 0:].lengths.asscalar() == 0
    assert scope.report().evaluations == 0


def test_results_outlive_their_scope():
    _, values = arrays((3,))[0]
    with edb.batching():
        result = edb.ragged(values) * 2
        none = nd.flip(edb.ragged([], shape=(1, H)), axis=1)
    edb.forward(result)
    assert none.asnumpy().shape == (1, 0, H)
    np.testing.assert_array_equal(result[:, 2].asnumpy(), 2 * values[2].asnumpy())
    np.testing.assert_array_equal((result + 1).asnumpy()[:, 2], 2 * values[2].asnumpy() + 1)


def test_gradients_of_a_result_itself():
    _, values = arrays((3,))[0]
    with autograd.record():
        with edb.batching():
            result = (edb.ragged(values) * 2).softmax(axis=2)
        loss = result[:, 1] * 3
        total = edb.forward(result).sum() + loss.sum()
    total.backward()
    assert all(np.isfinite(value.grad.asnumpy()).all() for value in values)
    again = arrays((3,))[0]
    with autograd.record():
        stacked = (edb.ragged(again[1]) * 2).softmax(axis=2)
        (stacked.sum() + (stacked[:, 1] * 3).sum()).backward()
    for mine, eager in zip(values, again[1]):
        np.testing.assert_allclose(mine.grad.asnumpy(), eager.grad.asnumpy(), atol=1e-6)


def test_a_value_of_it_cannot_be_written_to():
    _, values = arrays((3,))[0]
    with edb.batching():
        result = edb.ragged(values) * 2
        value = result[:, 1]
        with pytest.raises(edb.RecordError, match='test_ragged_results.*view'):
            value += 1


def test_lengths_that_do_not_fit():
    (_, three), (_, two) = arrays((3, 2))
    with pytest.raises(mx.MXNetError):
        edb.ragged(three) + edb.ragged(two)
    with edb.batching():
        with pytest.raises(edb.RecordError, match='test_ragged_results.py'):
            edb.ragged(three) + edb.ragged(two)
        one = edb.ragged(three) + edb.ragged(two[:1])  # which is broadcast, as eagerly
    expected = np.stack([value.asnumpy() + two[0].asnumpy() for value in three], axis=1)
    np.testing.assert_allclose(one.asnumpy(), expected, rtol=1e-6)


@pytest.mark.parametrize('inside', [False, True])
def test_values_that_do_not_fit(inside):
    one, other = nd.ones((1, H)), nd.ones((1, H), dtype='float64')
    scope = edb.batching() if inside else autograd.pause()
    with scope:
        for values in ([one, other], [one, nd.ones((1, 2))]):
            with pytest.raises(edb.RecordError, match='(?s)one shape, dtype.*test_ragged_results'):
                edb.ragged(values)
        with pytest.raises(edb.RecordError, match='(?s)each.*ragged.words..*test_ragged_results'):
            edb.ragged([edb.ragged([one]), edb.ragged([one, one])])
        with pytest.raises(edb.RecordError, match="(?s)takes arrays, not 'x'.*test_ragged_results"):
            edb.ragged(['x'])


def test_mixed_dtypes_name_the_line():
    with edb.batching():
        ragged = edb.ragged([nd.ones((1, H))])
        with pytest.raises(edb.RecordError, match='test_ragged_results'):
            ragged * ragged.astype('float64')


@pytest.mark.parametrize(
    'values',
    [[np.ones((1, H))], [np.ones((1, H), 'f'), nd.ones((1, H))], [1, 2.5], [np.arange(3)]],
    ids=['float64', 'mixed', 'numbers', 'int64'],
)
def test_numpy_arrays_are_as_in_a_scope(values):
    eager = edb.ragged(values)
    with edb.batching():
        recorded = edb.ragged(values)
    assert (eager.dtype, eager.shape) == (recorded.dtype, recorded.shape)
    np.testing.assert_array_equal(eager.asnumpy(), recorded.asnumpy())
    np.testing.assert_array_equal(eager.lengths.asnumpy(), recorded.lengths.asnumpy())


@pytest.mark.parametrize('block', [True, False])
def test_what_keeps_calls_for_each_value_apart_is_explained(block):
    class Twice(nn.HybridBlock):
        def hybrid_forward(self, F, x):
            return F.softmax(x * 2, axis=1)

    twice = Twice()
    with edb.batching() as scope:
        ragged = [edb.ragged([nd.ones((1, width))] * 2) for width in (3, 4)]
        results = [twice(r) if block else nd.softmax(r, axis=1) for r in ragged]
    edb.forward(results)
    assert '(n, 3)' in str(scope.explain()) and '(n, 4)' in str(scope.explain())


def test_calls_on_ragged_arguments_are_found_again(monkeypatch):
    """The first call of a kind is recorded by name, and later ones, of any length, by a search."""
    met, by_name = [], Recording.operator

    def operator(self, op, attrs, args, fuses=True):
        met.extend([op] * any(isinstance(arg, RaggedArray) for arg in args))
        return by_name(self, op, attrs, args, fuses)

    monkeypatch.setattr(Recording, 'operator', operator)

    def attend(query, values):
        memory = edb.ragged(values, shape=query.shape)
        scores = edb.nd.batch_dot(memory, column(edb.nd.tanh(query)), transpose_b=True)
        weights = edb.nd.softmax(scores * 0.5, axis=1)
        return nd.sum(edb.nd.broadcast_mul(weights, nd.tanh(memory)), axis=1)

    samples = arrays()
    assert_matches_eager(attend, samples, unpack=True, schedulers=['agenda'])
    for _ in range(2):
        met.clear()
        with edb.batching('agenda'):
            edb.forward([attend(*sample) for sample in samples])
    # Once for the first sample, and once for the one without values.
    assert Counter(met) == dict.fromkeys(set(met), 2) and len(met) == 2 * 6, met
