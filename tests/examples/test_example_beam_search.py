"""The beam search example: data, the search, the model in batches, and the program."""

import itertools

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet.gluon.loss import SoftmaxCrossEntropyLoss

import gluon_edbatch as edb
from example.beam_search import beam, make_sample
from example.beam_search.beam import Hypothesis, Search, expand, prune
from example.beam_search.data import COPY, END, VOWELS, Word, letter_id, load_words
from example.beam_search.model import VowelWriter
from example.beam_search.train import main
from example.common import checkpoint as checkpoints
from example.common.errors import DataError
from gluon_edbatch.testing import assert_matches_eager

# --- data ----------------------------------------------------------------------------------


def test_load_words(tmp_path):
    path = tmp_path / 'train.txt'
    path.write_text('The|O cat|I-X  saw|O a|O cat|O ,|O\nan Ox-cart ate: hay| hay café\n')
    assert load_words(path) == ['cat', 'saw', 'hay']
    path.write_text('A B C\n')
    with pytest.raises(DataError, match='train.txt: has no word of three'):
        load_words(path)


def test_steps():
    word = Word('oat')
    assert word.consonants == 't' and word.actions.tolist() == [4, 1, COPY, COPY]
    assert word.steps == [(END, 0), (letter_id('o'), 0), (letter_id('a'), 0), (letter_id('t'), 1)]
    assert Word('aia').consonants == '' and len(Word('aia').steps) == 4


# --- the search ----------------------------------------------------------------------------


def test_expand():
    log_probs = np.arange(6, dtype=np.float32)
    after = expand(Hypothesis(10, 'ba', 1, 1, None), 'bd', log_probs, 'states')
    assert after == [(10, 'bad', 2, 0, 'states', False)] + [
        (11 + i, 'ba' + vowel, 1, 2, 'states', False) for i, vowel in enumerate(VOWELS)
    ]
    (end,) = expand(Hypothesis(10, 'oooo', 0, beam.MOST_VOWELS, None), '', log_probs, 'states')
    assert end == (10, 'oooo', 1, 0, 'states', True)


def test_prune():
    def hypothesis(score, complete=False):
        return Hypothesis(score, '', 0, 0, None, complete)

    three = [hypothesis(-3), hypothesis(-1), hypothesis(-2)]
    assert [one.score for one in prune(three, 2, np.inf)] == [-1, -2]
    assert [one.score for one in prune(three, 3, 1.5)] == [-1, -2]
    left = prune([*three, hypothesis(-1.5, True), hypothesis(-4, True)], 4, np.inf)
    assert left == [hypothesis(-1), hypothesis(-1.5, True)]


def writer(scale=2.0):
    net = VowelWriter(5, 3)
    net.initialize(mx.init.Uniform(scale))
    return net


def log_probs_of(net, texts):
    """Return the log-probabilities of a word's actions, as training computes them."""
    words = list(map(Word, texts))
    return {
        word.text: float(rows.asnumpy()[range(len(word.steps)), word.actions.astype(int)].sum())
        for word, rows in zip(words, net.batch(words))
    }


@pytest.mark.parametrize('seed', range(3))
def test_a_beam_that_is_wide_enough_finds_the_best(seed, monkeypatch):
    monkeypatch.setattr(beam, 'MOST_VOWELS', 1)
    mx.random.seed(seed)
    net, word = writer(), Word('bd')
    with edb.batching():
        best, greedy = edb.run_concurrently([Search(word, 300), Search(word, 1)], net.search)
    vowels = ['', *VOWELS]
    texts = [f'{a}b{b}d{c}' for a, b, c in itertools.product(vowels, repeat=3)]
    scores = log_probs_of(net, texts)
    assert best.text == max(texts, key=scores.get)
    for found in (best, greedy):
        np.testing.assert_allclose(found.score, scores[found.text], rtol=1e-4)
    assert greedy.score <= best.score + 1e-5


@settings(max_examples=4)
@given(seed=st.integers(0, 100))
def test_batched_search_equals_eager(seed):
    mx.random.seed(seed)
    net = writer()
    searches = [
        Search(Word(text), width, 3.0)
        for text in ('three', 'queue', 'oat', 'aia')
        for width in (1, 3)
    ]
    eager = edb.run_concurrently(searches, net.search)
    with edb.batching() as scope:
        batched = edb.run_concurrently(searches, net.search)
    for found, right in zip(batched, eager):
        assert found.text == right.text and found.complete
        np.testing.assert_allclose(found.score, right.score, rtol=1e-4)
    (decoder,) = [kind for kind in scope.report().types if kind.name.startswith('Decoder')]
    assert decoder.batches == scope.report().evaluations - 1


def test_numbers_of_live_hypotheses_differ(monkeypatch):
    mx.random.seed(2)
    net, live = writer(), []
    original = net._decode
    monkeypatch.setattr(
        net,
        '_decode',
        lambda step, vectors, states: (live.append(len(vectors)), original(step, vectors, states))[
            1
        ],
    )
    searches = [Search(Word(text), 8, 3.0) for text in ('strength', 'oat')]
    with edb.batching() as scope:
        edb.run_concurrently(searches, net.search)
    (decoder,) = [kind for kind in scope.report().types if kind.name.startswith('Decoder')]
    long, short = live.count(8), live.count(2)
    assert decoder.calls == long + short and long != short
    assert long % decoder.batches or short % decoder.batches  # not the same in each round


def test_batched_training_equals_eager():
    net, loss = writer(0.7), SoftmaxCrossEntropyLoss(from_logits=True)

    def model(word):
        log_probs = net(word)
        return log_probs, loss(log_probs, mx.nd.array(word.actions))

    assert_matches_eager(
        model,
        list(map(Word, ['strength', 'oat', 'aia', 'queue'])),
        blocks=[net, loss],
        schedulers=['agenda'],
        rtol=3e-5,
    )


# --- the sample and the program ------------------------------------------------------------


def test_program(tmp_path):
    make_sample.write_sample(tmp_path / 'data', splits={'train': 150, 'dev': 20})
    options = [
        '--data',
        str(tmp_path / 'data'),
        '--hidden',
        '16',
        '--embed',
        '8',
        '--lr',
        '0.02',
        '--batch-size',
        '8',
        '--beam',
        '3',
    ]
    assert main([*options, '--epochs', '3', '--checkpoint', str(tmp_path / 'one')]) == 0
    history = checkpoints.load(tmp_path / 'one').history
    assert history[-1]['loss'] < 0.4 * history[0]['loss']
    assert max(epoch['beam'] for epoch in history) > 0.2
    assert (
        main([*options, '--epochs', '1', '--unbatched', '--checkpoint', str(tmp_path / 'other')])
        == 0
    )
    (other,) = checkpoints.load(tmp_path / 'other').history
    np.testing.assert_allclose(other['loss'], history[0]['loss'], rtol=1e-3)
    assert abs(other['beam'] - history[0]['beam']) < 0.1
