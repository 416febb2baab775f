"""The lattice example: data, lattices, the model in batches, and the program."""

import mxnet as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mxnet.gluon.loss import SoftmaxCrossEntropyLoss

import gluon_edbatch as edb
from example.common.errors import DataError
from example.lattice import make_sample
from example.lattice.data import (
    Arc,
    CharSentence,
    Lattice,
    WordList,
    build_lattice,
    find_words,
    load_split,
    load_words,
)
from example.lattice.encode import merge as merge_states
from example.lattice.model import CELLS, LatticeTagger, Merge
from gluon_edbatch.testing import assert_matches_eager

CHARS, WORDS, TAGS, EMBED, HIDDEN = 20, 9, 5, 3, 4


# --- files ---------------------------------------------------------------------------------


def write(directory, text, name='x.train'):
    path = directory / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode('utf-8'))
    return path


def test_load_split(tmp_path):
    write(tmp_path, '北0\tB-GPE.NAM\n京1\tI-GPE.NAM\n\n\n10\tO\n\ufffd\ufffd0\tO\n\u20281\tO')
    assert load_split(tmp_path, 'train') == [
        CharSentence(('北', '京'), ('B-GPE.NAM', 'I-GPE.NAM')),
        CharSentence(('1', '\ufffd\ufffd', '\u2028'), ('O', 'O', 'O')),
    ]


@pytest.mark.parametrize(
    'text, message',
    [
        ('', 'x.train:1: the file has no sentences'),
        ('\n\n', 'x.train:1: the file has no sentences'),
        ('口0\tO\n口 O\n', "x.train:2: a line is a character, a tab and a tag, not '口 O'"),
        ('口0\tO\tO\n', 'x.train:1: a line is'),
        ('口0\tO\n\n口\tO\n', "x.train:3: a character comes with its position .* not as '口'"),
        ('0\tO\n', 'x.train:1: a character comes with'),
        ('口²\tO\n', 'x.train:1: a character comes with'),
        ('口0\tPER\n', "x.train:1: a tag is O, B-TYPE or I-TYPE, not 'PER'"),
        ('口0\tO \n', "x.train:1: a tag is .* not 'O '"),
        (b'\xff0\tO\n', 'x.train: not UTF-8 text'),
    ],
)
def test_malformed_split(tmp_path, text, message):
    write(tmp_path, text)
    with pytest.raises(DataError, match=message):
        load_split(tmp_path, 'train')


def test_split_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match='no such directory'):
        load_split(tmp_path / 'nowhere', 'train')
    with pytest.raises(DataError, match='one file ends in .dev, not none'):
        load_split(tmp_path, 'dev')
    for name in ('a.dev', 'b.dev'):
        write(tmp_path, '口0\tO\n', name)
    with pytest.raises(DataError, match='not a.dev, b.dev'):
        load_split(tmp_path, 'dev')


def test_load_words(tmp_path):
    path = write(tmp_path, '的 3188252 uj\n北京 34488 ns\n北京大学\n')
    assert load_words(path) == WordList(frozenset(['北京', '北京大学']), 4)


@pytest.mark.parametrize(
    'text, message',
    [
        ('', 'words.txt:1: the file has no word of two'),
        ('的 1 x\n', 'no word of two'),
        ('北京 1 x\n\n', 'words.txt:2: a line begins with a word'),
        ('北京\n 1 x\n', 'words.txt:2: a line begins with a word'),
        (b'\xff\n', 'words.txt: not UTF-8'),
    ],
)
def test_malformed_words(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        load_words(write(tmp_path, text, 'words.txt'))


def test_words_that_are_not_there(tmp_path):
    with pytest.raises(DataError, match='there is no such word list'):
        load_words(tmp_path / 'words.txt')


# --- lattices ------------------------------------------------------------------------------


@given(st.text('abc', max_size=12), st.sets(st.text('abc', min_size=2, max_size=5), min_size=1))
def test_words_are_those_of_brute_force(text, words):
    dictionary = WordList(frozenset(words), max(map(len, words)))
    expected = {
        (begin, begin + len(word), word)
        for word in words
        for begin in range(len(text))
        if text.startswith(word, begin)
    }
    found = find_words(list(text), dictionary)
    assert set(found) == expected and found == sorted(found)


@given(st.text('ab', min_size=1, max_size=10))
def test_lattice(text):
    dictionary = WordList(frozenset(['ab', 'ba', 'aab', 'abab']), 4)
    words = find_words(text, dictionary)
    ids = {word: number for number, word in enumerate(sorted(dictionary.words))}
    sentence = CharSentence(tuple(text), ('O',) * len(text))
    lattice = build_lattice(sentence, words, 'ab'.index, ids.get, lambda tag: 3)
    assert ''.join('ab'[char] for char in lattice.chars) == text
    assert lattice.tags.tolist() == [3] * len(lattice) and len(lattice) == len(text)
    arcs = {
        (begin, last + 1, word)
        for last, ending in enumerate(lattice.arcs)
        for begin, word in ending
    }
    assert arcs == {(begin, end, ids[word]) for begin, end, word in words}
    # From right to left it is the lattice of the reversed text and words.
    mirrored = lattice.reversed()
    assert mirrored.chars == lattice.chars[::-1]
    assert {
        (len(text) - last - 1, len(text) - begin, word)
        for last, ending in enumerate(mirrored.arcs)
        for begin, word in ending
    } == arcs
    again = mirrored.reversed()
    assert [sorted(ending) for ending in again.arcs] == [sorted(ending) for ending in lattice.arcs]


def test_a_character_of_two_code_points_is_one_position():
    dictionary = WordList(frozenset(['ab']), 2)
    assert find_words(['xy', 'a', 'b'], dictionary) == [(1, 3, 'ab')]


# --- the model -----------------------------------------------------------------------------


def lattices():
    """Chains, single characters, several words that end together, words over words."""
    arcs = [[], [Arc(0, 1)], [Arc(0, 2), Arc(1, 3)], [], [Arc(1, 4), Arc(2, 5), Arc(3, 8)]]
    return [
        Lattice([1, 2, 3, 4, 5], arcs, [0, 1, 2, 0, 3]),
        Lattice([6], [[]], [4]),
        Lattice([7, 8, 9], [[], [], []], [1, 1, 0]),
        Lattice([3, 2, 1, 0], [[], [], [Arc(0, 7)], [Arc(1, 6)]], [0, 0, 2, 1]),
    ]


def tagger(kind, bidirectional=False):
    net = LatticeTagger(kind, CHARS, WORDS, TAGS, EMBED, HIDDEN, bidirectional=bidirectional)
    net.initialize(mx.init.Uniform(0.5))
    return net


@pytest.mark.parametrize('kind, bidirectional', [('lstm', False), ('gru', False), ('lstm', True)])
def test_batched_equals_eager(kind, bidirectional):
    net, loss = tagger(kind, bidirectional), SoftmaxCrossEntropyLoss()

    def model(lattice):
        scores = net(lattice)
        return scores, loss(scores, mx.nd.array(lattice.tags))

    assert_matches_eager(model, lattices(), blocks=[net, loss])


@pytest.mark.parametrize('kind', CELLS)
def test_any_number_of_words_is_one_type(kind):
    net = tagger(kind)
    with edb.batching() as scope:
        results = [net(lattice) for lattice in lattices()]
    edb.forward(results)
    calls = {kind.name.split('(')[0]: kind.calls for kind in scope.report().types}
    assert len(scope.report().types) == 7  # two embeddings, two cells, merge, rows, scores
    assert calls['Merge'] == 5 and calls['Dense'] == 4


def test_merge_is_a_weighted_mean():
    merge = Merge(HIDDEN)
    merge.initialize(mx.init.Uniform(2))
    states = [[mx.nd.random.uniform(-1, 1, (1, HIDDEN)) for _ in range(2)] for _ in range(3)]
    h, c = merge_states(merge, states)
    assert h.shape == c.shape == (1, HIDDEN)
    stacked = mx.nd.stack(*[state[0] for state in states])
    assert (h <= stacked.max(axis=0)).asnumpy().all() and (h >= stacked.min(axis=0)).asnumpy().all()
    same, _ = merge_states(merge, [states[0]] * 3)
    assert mx.nd.abs(same - states[0][0]).max().asscalar() < 1e-6
    (alone,) = merge_states(merge, [[states[0][0]]])
    assert mx.nd.abs(alone - states[0][0]).max().asscalar() < 1e-6


def test_words_matter():
    net = tagger('lstm')
    chain = Lattice([1, 2, 3], [[], [], []], [0, 0, 0])
    word = Lattice([1, 2, 3], [[], [Arc(0, 1)], []], [0, 0, 0])
    difference = mx.nd.abs(net(chain) - net(word)).max(axis=1).asnumpy()
    assert difference[0] == 0 and (difference[1:] > 0).all()


def test_from_right_to_left():
    net = tagger('gru', bidirectional=True)
    net.scores.weight.data()[:, :HIDDEN] = 0  # only what was read from the right
    base = net(Lattice([1, 2, 3], [[], [], [Arc(1, 4)]], [0, 0, 0]))
    for char, word, changed in [(9, 4, [True, False, False]), (1, 5, [True, True, False])]:
        other = net(Lattice([char, 2, 3], [[], [], [Arc(1, word)]], [0, 0, 0]))
        difference = mx.nd.abs(base - other).max(axis=1).asnumpy()
        assert (difference > 0).tolist() == changed


# --- the sample ----------------------------------------------------------------------------


def test_sample_has_lattices(tmp_path):
    make_sample.write_sample(tmp_path, {'train': 50})
    dictionary = load_words(tmp_path / 'words.txt')
    sentences = load_split(tmp_path, 'train')
    words = [find_words(sentence.chars, dictionary) for sentence in sentences]
    assert len(sentences) == 50
    assert 0.2 < sum(map(len, words)) / sum(len(sentence.chars) for sentence in sentences) < 0.6
    assert any(len({end for _, end, _ in found}) < len(found) for found in words)
