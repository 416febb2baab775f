"""The tagger example: data, the model in batches, and the program."""

import mxnet as mx
import pytest
from mxnet.gluon.loss import SoftmaxCrossEntropyLoss

import gluon_edbatch as edb
from example.common.errors import DataError
from example.common.spans import spans
from example.tagger import make_sample
from example.tagger.data import Sentence, TaggedWords, Token, build_sentence, load_split
from example.tagger.model import BiLSTMTagger, SpellingLSTM
from gluon_edbatch.testing import assert_matches_eager

WORDS, TAGS, CHARS, EMBED, HIDDEN = 12, 5, 7, 4, 3


# --- files ---------------------------------------------------------------------------------


def write(directory, text):
    path = directory / 'train.txt'
    path.write_bytes(text if isinstance(text, bytes) else text.encode('utf-8'))
    return path


def test_load_split(tmp_path):
    path = write(tmp_path, 'a|b|O  New\u00a0York|I-LOC ||O\nx\u0085|B-PER')
    assert load_split(path) == [
        TaggedWords(('a|b', 'New\u00a0York', '|'), ('O', 'I-LOC', 'O')),
        TaggedWords(('x\u0085',), ('B-PER',)),
    ]


@pytest.mark.parametrize(
    'text, message',
    [
        ('', 'train.txt:1: the file is empty'),
        ('a|O\n\nb|O\n', 'train.txt:2: the sentence is empty'),
        ('a|O\nb\n', r"train.txt:2: a token is word\|tag, not 'b'"),
        ('|O\n', r"train.txt:1: a token is word\|tag, not '\|O'"),
        ('a|PER\n', "train.txt:1: a tag is O, B-TYPE or I-TYPE, not 'PER'"),
        ('a|\n', "train.txt:1: a tag is .*, not ''"),
        (b'\xff|O\n', 'train.txt: not UTF-8 text'),
    ],
)
def test_malformed_split(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        load_split(write(tmp_path, text))


def test_split_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match='there is no such file'):
        load_split(tmp_path / 'train.txt')


def test_build_sentence():
    sentence = build_sentence(
        TaggedWords(('a', 'bb'), ('O', 'I-X')),
        lambda word: Token(0, (1,) * len(word)),
        ['O', 'I-X'].index,
    )
    assert sentence.tokens == [(0, (1,)), (0, (1, 1))] and sentence.tags.tolist() == [0, 1]
    assert repr(sentence) == 'Sentence(2 tokens, 2 of them spelt)' and len(sentence) == 2


# --- the model -----------------------------------------------------------------------------


def sentences(spelt):
    rare = Token(0, (1, 2, 3)), Token(0, (4,)), Token(0, (5, 6))
    return [
        Sentence([Token(1), Token(2), rare[0] if spelt else Token(3)], [0, 1, 2]),
        Sentence([rare[1] if spelt else Token(4)], [3]),
        Sentence(
            [Token(5), rare[2] if spelt else Token(0), Token(6), Token(1), Token(7)],
            [4, 0, 0, 1, 1],
        ),
    ]


def tagger(spelt, layers=2):
    net = BiLSTMTagger(WORDS, TAGS, EMBED, HIDDEN, layers, CHARS if spelt else 0, char_dim=3)
    net.initialize(mx.init.Uniform(0.5))
    return net


@pytest.mark.parametrize('spelt', [False, True])
def test_batched_equals_eager(spelt):
    net, loss = tagger(spelt), SoftmaxCrossEntropyLoss()

    def model(sentence):
        scores = net(sentence)
        return scores, loss(scores, mx.nd.array(sentence.tags))

    assert_matches_eager(model, sentences(spelt), blocks=[net, loss])


@pytest.mark.parametrize('layers', [1, 2, 3])
def test_layers(layers):
    net = tagger(False, layers)
    assert len(net.layers) == layers
    assert [scores.shape for scores in net.batch(sentences(False))] == [(3, 5), (1, 5), (5, 5)]


def test_every_word_sees_the_whole_sentence():
    net = tagger(True)
    one, other = sentences(True)[2], sentences(True)[2]
    other.tokens[1] = Token(0, (5, 4))  # another last letter
    assert (mx.nd.abs(net(one) - net(other)).max(axis=1).asnumpy() > 0).all()


def test_spelling_needs_an_even_width():
    with pytest.raises(ValueError, match='must be even'):
        SpellingLSTM(CHARS, 3, 5)


def test_types():
    net = tagger(True)
    with edb.batching() as scope:
        results = [net(sentence) for sentence in sentences(True)]
    edb.forward(results)
    report = scope.report()
    lstm = [kind for kind in report.types if kind.name.startswith('LSTMCell')]
    assert sorted(kind.calls for kind in lstm) == [6, 6, 9, 9, 9, 9]


# --- the sample ----------------------------------------------------------------------------


def test_sample_tells_neighbours_of_one_kind_apart():
    phrases = [
        make_sample.Phrase('A B', 'LOC'),
        make_sample.Phrase('C', 'LOC'),
        make_sample.Phrase('d'),
        make_sample.Phrase('E', 'LOC'),
    ]
    line = make_sample.tagged(phrases)
    assert line == 'A|I-LOC B|I-LOC C|B-LOC d|O E|I-LOC'
    tags = [token.rpartition('|')[2] for token in line.split()]
    assert spans(tags) == [('LOC', 0, 2), ('LOC', 2, 3), ('LOC', 4, 5)]
