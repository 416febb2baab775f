"""The pointer network: shuffling, the model in batches, decoding, and the program."""

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gluon_edbatch as edb
from example.common import checkpoint as checkpoints
from example.pointer.data import Shuffled, shuffle
from example.pointer.metrics import score
from example.pointer.model import Copy, Pointer, PointerNetwork, Surprise
from example.pointer.train import main
from example.transition_parser import make_sample
from gluon_edbatch.testing import assert_matches_eager

WORDS = 9


def sentences():
    """Two words alike, unknown words (0) that are not, and a word alone."""
    return [
        Shuffled([1, 0, 3, 1], [0, 1, 2, 0], [2, 0, 1, 3]),
        Shuffled([0, 0], [0, 1], [1, 0]),
        Shuffled([4], [0], [0]),
        Shuffled([1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5], [5, 4, 3, 0, 1, 2]),
    ]


def network():
    net = PointerNetwork(WORDS, 4, 5)
    net.initialize(mx.init.Uniform(1))
    return net


@given(st.lists(st.sampled_from('abc'), min_size=1, max_size=8), st.integers(0, 99))
def test_order_puts_shuffled_words_in_order(words, seed):
    sentence = shuffle(words, list(map(ord, words)), [seed])
    read = [chr(word) for word in sentence.words]
    assert [read[position] for position in sentence.order] == words
    assert [read[name] for name in sentence.names] == read
    assert [read.index(word) for word in read] == sentence.names
    again = shuffle(words, list(map(ord, words)), [seed])
    assert (again.words, again.order) == (sentence.words, sentence.order)


def test_words_are_shuffled():
    letters = 'abcdefgh'
    read = {tuple(shuffle(letters, list(range(8)), [seed]).words) for seed in range(9)}
    assert len(read) == 9
    assert repr(sentences()[0]) == 'Shuffled(4 words)'


# --- the model -----------------------------------------------------------------------------


def test_batched_equals_eager():
    net, loss = network(), Surprise()

    def model(sentence):
        probabilities = net(sentence)
        return probabilities, loss(probabilities)

    assert_matches_eager(model, sentences(), blocks=[net, loss], schedulers=['agenda', 'fsm'])


def test_a_minibatch_takes_three_batches_a_word_of_the_longest_sentence():
    net, samples = network(), sentences()
    with edb.batching() as scope:
        probabilities = [net(sentence) for sentence in samples]
    edb.forward(probabilities)
    report = scope.report()
    # reading, and two for writing; vectors, keys and names, and what a sentence's words become
    assert report.batches == report.lower_bound == 3 * max(map(len, samples)) + 3


def test_probability_is_that_of_all_places_of_a_word():
    pointer = Pointer(3)
    copy = Copy(pointer)
    copy.initialize(mx.init.Uniform(1))
    h, keys = mx.nd.random.uniform(shape=(1, 3)), mx.nd.random.uniform(shape=(1, 4, 3))
    memory = mx.nd.random.uniform(shape=(1, 4, 3))
    weights, mean = (value.asnumpy()[0] for value in pointer(h, keys, memory))
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-5)
    np.testing.assert_allclose(mean, weights[:, 0] @ memory.asnumpy()[0], rtol=1e-5)
    names = mx.nd.array([[[0], [1], [0], [3]]])
    for name, places in ((0, [0, 2]), (1, [1]), (3, [3])):
        found, context = copy(h, keys, memory, names, mx.nd.array([name]))
        np.testing.assert_allclose(found.asscalar(), weights[places].sum(), rtol=1e-5)
        np.testing.assert_allclose(context.asnumpy()[0], mean, rtol=1e-5)


def test_loss():
    costs = Surprise()(mx.nd.array([[0.5], [1.0]])).asnumpy()
    np.testing.assert_allclose(costs, [np.log(2), 0], atol=1e-6)


@pytest.mark.parametrize('seed', range(3))
def test_batched_writing_equals_eager(seed):
    mx.random.seed(seed)
    net, samples = network(), sentences()
    eager = edb.run_concurrently(samples, net.write)
    with edb.batching() as scope:
        batched = edb.run_concurrently(samples, net.write)
    for one, other, sentence in zip(batched, eager, samples):
        np.testing.assert_array_equal(one, other)
        assert sorted(one) == list(range(len(sentence)))
    assert scope.report().evaluations <= 1 + max(map(len, samples))


def test_writing_follows_the_probabilities():
    """What is written first is what is most probable at first."""
    net = network()
    for sentence in sentences():
        first, *_ = edb.run_concurrently([sentence], net.write)[0]
        chances = [
            net(Shuffled(sentence.words, list(range(len(sentence))), [place])).asnumpy()[0, 0]
            for place in range(len(sentence))
        ]
        assert first == np.argmax(chances)


def test_score():
    right = [np.array([0, 1, 2]), np.array([0, 1])]
    assert score(right, right) == (1, 1, 1)
    # 1 2 and the end of the second sentence; its places and one of the first
    assert score([np.array([1, 2, 0]), np.array([0, 1])], right) == (3 / 5, 2 / 5, 1 / 2)
    assert score([np.array([2, 1, 0]), np.array([1, 0])], right) == (0, 1 / 5, 0)
    assert str(score(right, right)) == 'pairs 1.0000  places 1.0000  sentences 1.0000'


# --- the program ---------------------------------------------------------------------------


def test_program(tmp_path, capsys):
    make_sample.write_sample(tmp_path / 'data', splits={'train': 200, 'dev': 80, 'test': 9})
    options = ['--data', str(tmp_path / 'data'), '--longest', '8', '--hidden', '20', '--embed', '8']
    options += ['--lr', '0.03', '--batch-size', '4']
    assert main([*options, '--epochs', '6', '--checkpoint', str(tmp_path / 'one')]) == 0
    assert 'of at most 8 words' in capsys.readouterr().out
    history = checkpoints.load(tmp_path / 'one').history
    assert history[-1]['loss'] < 0.7 * history[0]['loss']
    assert history[-1]['pairs'] > 1.5 * history[0]['pairs'] > 0
    again = ['--epochs', '1', '--unbatched', '--checkpoint', str(tmp_path / 'other')]
    assert main([*options, *again]) == 0
    (other,) = checkpoints.load(tmp_path / 'other').history
    np.testing.assert_allclose(other['loss'], history[0]['loss'], rtol=1e-3)


def test_no_sentence_is_short_enough(capsys):
    assert main(['--longest', '1']) == 1
    assert 'no sentence for train has 2 to 1 words (--longest)' in capsys.readouterr().err
