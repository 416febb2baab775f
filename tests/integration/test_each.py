"""Sentences of words: what is computed of several ragged values is computed of each, as eagerly."""

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet import autograd, gluon, nd, npx
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.testing import assert_matches_eager
from tests.support.cases import in_one_test

H, VOCABULARY = 6, 9
LENGTHS = [(2, 3, 1), (4,), (1, 1), (0, 2), (5, 2, 2, 1)]


class Pool(gluon.HybridBlock):
    """The mean of values by what is learned of them and of a query, and their weights."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.hidden = nn.Dense(5, in_units=H, flatten=False)
            self.query = nn.Dense(5, in_units=H, use_bias=False)
            self.score = nn.Dense(1, in_units=5, flatten=False, use_bias=False)

    def hybrid_forward(self, F, values, query):
        hidden = F.broadcast_add(self.hidden(values), F.expand_dims(self.query(query), axis=1))
        weights = F.softmax(self.score(F.tanh(hidden)), axis=1)
        return F.batch_dot(weights, values, transpose_a=True).reshape((0, -1)), weights


class Documents(edb.AutoBatchMixin, gluon.Block):
    """Attention over sentences of attention over words."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.embed = nn.Embedding(VOCABULARY, H)
            self.attend_words = Pool()
            self.attend_sentences = Pool()
            self.topic = self.params.get('topic', shape=(1, H))

    def sentences(self, document):
        return edb.each(
            [edb.ragged([self.embed(word) for word in words], shape=(1, H)) for words in document]
        )

    def forward(self, document):
        topic = self.embed(len(document))
        vectors, weights = self.attend_words(self.sentences(document), topic)
        return self.attend_sentences(edb.ragged(vectors), topic), weights


def documents_of(lengths, seed=0):
    random = np.random.RandomState(seed)
    return [[random.randint(VOCABULARY, size=n).tolist() for n in document] for document in lengths]


def initialized(block):
    block.initialize(mx.init.Xavier(magnitude=4))
    return block


def types_of(model, samples):
    with edb.batching('agenda') as scope:
        results = [model(sample) for sample in samples]
    edb.forward(results)
    return [(kind.name, kind.batches) for kind in scope.report().types]


@pytest.mark.parametrize('native', [False, True])
def test_attention_over_sentences_of_attention_over_words(native):
    net = initialized(Documents())
    with edb.compile_options(native=native):
        assert_matches_eager(net, documents_of(LENGTHS), atol=2e-6)


@pytest.mark.parametrize('documents', [2, 16])
def test_batches_do_not_depend_on_documents_and_sentences(documents):
    random = np.random.RandomState(documents)
    lengths = [random.randint(1, 9, size=random.randint(1, 7)) for _ in range(documents)]
    found = types_of(initialized(Documents()), documents_of(lengths))
    assert [batches for _, batches in found] == [1] * 5, found


def test_it_is_what_a_list_comprehension_records():
    class ByHand(Documents):
        def forward(self, document):
            topic = self.embed(len(document))
            results = [self.attend_words(words, topic) for words in self.sentences(document)]
            vectors, weights = zip(*results)
            return self.attend_sentences(edb.ragged(vectors), topic), list(weights)

    net, documents = initialized(Documents()), documents_of(LENGTHS)
    by_hand = initialized(ByHand())
    for name in ('embed', 'attend_words', 'attend_sentences'):
        setattr(by_hand, name, getattr(net, name))
    for one, other in zip(net.batch(documents), by_hand.batch(documents)):
        np.testing.assert_array_equal(one[0][0].asnumpy(), other[0][0].asnumpy())
        for mine, theirs in zip(one[1], other[1]):
            np.testing.assert_array_equal(mine.asnumpy(), theirs.asnumpy())


# --- operators -----------------------------------------------------------------------------------


def arrays(lengths=LENGTHS, dtype='float32', seed=0):
    """For each sample a query, and words of sentences."""
    random = np.random.RandomState(seed)

    def array():
        made = nd.array(random.randn(1, H), dtype=dtype)
        made.attach_grad()
        return made

    return [(array(), [[array() for _ in range(n)] for n in document]) for document in lengths]


def of_each(function):
    def model(query, document):
        sentences = [edb.ragged(words, shape=(1, H), dtype=query.dtype) for words in document]
        return function(edb.each(sentences), query)

    return model


def column(query):
    return query.expand_dims(axis=1)


PROGRAMS = {
    'number': lambda e, q: 1 - e * 2,
    'two': lambda e, q: (e * 2 + e) / 3,
    'methods': lambda e, q: (-e).tanh().softmax(axis=1).reshape((0, 0, 2, -1)),
    'functions': lambda e, q: edb.nd.relu(edb.nd.exp(e) - 1),
    'compared': lambda e, q: edb.nd.where(e > 0, e, e * 0.1),
    'cast': lambda e, q: e.astype('float64').detach().copy(),
    'the same for all': lambda e, q: edb.nd.broadcast_add(e, column(q)),
    'one for each': lambda e, q: edb.nd.broadcast_sub(e, e.mean(axis=1, keepdims=True)),
    'concat': lambda e, q: edb.nd.concat(e, e * 2, dim=1),
    'split': lambda e, q: e.sum(axis=1).split(num_outputs=2, axis=1),
    'ragged again': lambda e, q: edb.ragged(e.max(axis=1)).softmax(axis=1),
    'pooled': lambda e, q: edb.add_n(e.sum(axis=1)) + edb.stack(e.max(axis=1)).mean(axis=0),
    'joined': lambda e, q: edb.concat([words * 2 for words in e], dim=1).sum(axis=1),
    'some': lambda e, q: [e[:1] * 2, (e * 2)[-1], len(e) * q],
}


@in_one_test('name', PROGRAMS)
def test_operators_on_each(name):
    assert_matches_eager(
        of_each(PROGRAMS[name]),
        arrays(),
        unpack=True,
        blocks=[],
        schedulers=['agenda'],
        atol=2e-6,
    )


@pytest.mark.parametrize('native', [False, True])
def test_number_of_batches_of_operators(native):
    def model(sample):
        return of_each(lambda e, q: (e * 2).softmax(axis=1).sum(axis=2) + 1)(*sample)

    with edb.compile_options(native=native):
        found = types_of(model, arrays())
    assert [batches for _, batches in found] == [1] * 5, found


@pytest.mark.parametrize('dtype', ['float32', 'float64'])
def test_blocks_with_states_and_constants(dtype):
    """Lists, and what is None, are arguments as ever."""
    cell = initialized(gluon.rnn.LSTMCell(H, input_size=H))
    cell.cast(dtype)

    def model(query, document):
        sums = edb.each([edb.ragged(words, (1, H), dtype).sum(axis=1) for words in document])
        out, (hidden, memory) = cell(sums, [sums * 2, query])
        again, _ = cell(query, [hidden, memory])
        return [out, edb.ragged(again).mean(axis=1)]

    assert_matches_eager(
        model, arrays(dtype=dtype), unpack=True, blocks=[cell], schedulers=['agenda'], atol=2e-6
    )


@settings(max_examples=20, deadline=None)
@given(
    lengths=st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), min_size=1, max_size=4),
    program=st.lists(
        st.sampled_from(
            [
                lambda e, q: e * 2 + 1,
                lambda e, q: e.softmax(axis=1) + e,
                lambda e, q: edb.nd.concat(e, e * 3, dim=1),
                lambda e, q: edb.nd.broadcast_mul(e, column(q)),
                lambda e, q: edb.nd.broadcast_sub(e, e.mean(axis=1, keepdims=True)),
                lambda e, q: edb.each([words[:, :1] for words in e]),
                lambda e, q: edb.nd.flip(e, axis=1).tanh(),
            ]
        ),
        max_size=3,
    ),
    outer=st.sampled_from(['sum', 'max', 'mean']),
    native=st.booleans(),
)
def test_programs_by_chance(lengths, program, outer, native):
    def model(each, query):
        for step in program:
            each = step(each, query)
        vectors = edb.ragged((each * each).sum(axis=1) + query)  # not equal by rounding only
        return each, getattr(vectors, outer)(axis=1), vectors.softmax(axis=1)

    with edb.compile_options(native=native):
        assert_matches_eager(
            of_each(model),
            arrays(lengths),
            unpack=True,
            blocks=[],
            schedulers=['agenda'],
            atol=1e-5,
        )


# --- as a value ----------------------------------------------------------------------------------


def test_it_is_a_tuple():
    with edb.batching() as scope:
        sentences = edb.each([edb.ragged([nd.ones((1, H))] * n) for n in (3, 1)])
        twice = sentences * 2
        assert [words.shape for words in twice] == [(1, 3, H), (1, 1, H)]
        assert (len(twice), twice[1].shape, len(twice[1:])) == (2, (1, 1, H), 1)
        assert 'each of 2' in repr(twice)
    assert scope.report().evaluations == 0
    computed = edb.forward({'twice': twice})['twice']
    assert [words.asnumpy().tolist() for words in computed] == [[[[2] * H] * n] for n in (3, 1)]


def test_gradients_of_results_themselves():
    (batched,), (eager,) = arrays([(2, 3)]), arrays([(2, 3)])
    model = of_each(lambda e, q: (e * q.expand_dims(axis=1)).softmax(axis=2))
    with autograd.record():
        with edb.batching():
            results = model(*batched)
        _squared(edb.forward(results)).backward()
    with autograd.record():
        _squared(model(*eager)).backward()
    for mine, other in zip(batched[1], eager[1]):
        for one, another in zip(mine, other):
            np.testing.assert_allclose(one.grad.asnumpy(), another.grad.asnumpy(), atol=1e-6)


def _squared(results):
    return nd.add_n(*[(words * words).sum() for words in results])


def test_hooks_of_the_user_see_each_call():
    dense, seen = initialized(nn.Dense(2, in_units=H, flatten=False)), []
    dense.register_forward_pre_hook(lambda block, args: seen.append(args[0].shape))
    values = [nd.ones((1, H)), nd.ones((1, H))]
    with edb.batching():
        dense(edb.each([edb.ragged(values), edb.ragged(values[:1])]))
    assert seen == [(1, 2, H), (1, 1, H)]


def test_what_it_recorded_is_used_again():
    class First(Documents):
        def forward(self, document):
            return super().forward(document)[0][0]

    net, reuse, documents = initialized(First()), edb.Reuse(), [[[1, 2, 3], [4]], [[5], [6, 7]]]
    expected = [net(document).asnumpy() for document in documents]
    for _ in range(3):
        for mine, eager in zip(net.batch(documents, keys=[0, 1], reuse=reuse), expected):
            np.testing.assert_allclose(mine.asnumpy(), eager, atol=1e-6)


def test_numpy_mode():
    npx.set_np()
    try:
        dense = nn.Dense(3, in_units=H, flatten=False)
        dense.initialize()

        def model(sample):
            words = [[mx.np.array(word) for word in sentence] for sentence in sample]
            hidden = dense(edb.each([edb.ragged(sentence) for sentence in words]))
            return hidden, [total * 2 for total in hidden.sum(axis=1)]

        random = np.random.RandomState(0)
        samples = [
            [[random.randn(1, H).astype('f') for _ in range(n)] for n in lengths]
            for lengths in [(2, 3), (1,), (4, 1, 2)]
        ]
        assert_matches_eager(model, samples, blocks=[dense], schedulers=['agenda'], atol=2e-6)
    finally:
        npx.reset_np()


@pytest.mark.parametrize('inside', [False, True])
def test_what_it_refuses(inside):
    one = nd.ones((1, H))
    with edb.batching() if inside else autograd.pause():
        with pytest.raises(edb.RecordError, match='(?s)no values.*test_each.py'):
            edb.each([])
        with pytest.raises(edb.RecordError, match='(?s)two levels.*test_each.py'):
            edb.each([edb.each([one]), edb.each([one])])
        with pytest.raises(edb.RecordError, match='(?s)2 and 3 values.*test_each.py'):
            edb.each([one] * 2) + edb.each([one] * 3)
        with pytest.raises(TypeError, match='test_each.py.*position of a value'):
            edb.each([one])[:, 0]
        with pytest.raises(ValueError, match='test_each.py.*each of them'):
            bool(edb.each([one]) > 0)
        with pytest.raises(Exception, match='NDArray type, but got <each of 1'):
            nd.softmax(edb.each([one]), axis=1)


def test_mixed_dtypes_name_the_line():
    with edb.batching():
        each = edb.each([edb.ragged([nd.ones((1, H))])])
        with pytest.raises(edb.RecordError, match='test_each'):
            each * each.astype('float64')


def test_a_block_that_cannot_take_one_of_them_names_the_line():
    dense = initialized(nn.Dense(2, in_units=H, flatten=False))
    with edb.batching():
        with pytest.raises(edb.RecordError, match='test_each'):
            dense(edb.each([nd.ones((1, H)), nd.ones((1, H + 1))]))
