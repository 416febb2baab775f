"""Spans in tag sequences, and figures of taggers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from example.common.spans import Span, is_tag, score_spans, spans

TAGS = st.lists(st.sampled_from(['O', 'B-A', 'I-A', 'B-B', 'I-B']), max_size=8)


@pytest.mark.parametrize(
    'tags, found',
    [
        ('', []),
        ('O O', []),
        ('B-A', [('A', 0, 1)]),
        ('O B-A I-A O', [('A', 1, 3)]),
        ('I-A I-A O I-B', [('A', 0, 2), ('B', 3, 4)]),  # IOB1
        ('I-A B-A I-A', [('A', 0, 1), ('A', 1, 3)]),
        ('B-A I-B I-B B-A', [('A', 0, 1), ('B', 1, 3), ('A', 3, 4)]),
        ('B-A B-A', [('A', 0, 1), ('A', 1, 2)]),
        ('B-A-x I-A-x', [('A-x', 0, 2)]),
    ],
)
def test_spans(tags, found):
    assert spans(tags.split()) == [Span(*span) for span in found]


@given(st.lists(st.tuples(st.sampled_from(['', 'A', 'B']), st.integers(1, 3)), max_size=6))
def test_spans_of_written_spans(pieces):
    """Pieces written in IOB2 are read again."""
    tags, expected = [], []
    for kind, length in pieces:
        if kind:
            expected.append(Span(kind, len(tags), len(tags) + length))
            tags += [f'B-{kind}'] + [f'I-{kind}'] * (length - 1)
        else:
            tags += ['O'] * length
    assert spans(tags) == expected


@given(TAGS)
def test_spans_cover_what_is_tagged(tags):
    found = spans(tags)
    covered = [position for span in found for position in range(span.begin, span.end)]
    assert covered == [position for position, tag in enumerate(tags) if tag != 'O']
    for kind, begin, end in found:
        assert all(tag[2:] == kind for tag in tags[begin:end])
        assert all(tag[0] == 'I' for tag in tags[begin + 1 : end])


@given(st.lists(TAGS, max_size=4))
def test_perfect_score(sentences):
    score = score_spans(sentences, sentences)
    some = float(any(map(spans, sentences)))
    assert (score.precision, score.recall, score.f1) == (some, some, some)
    assert score.accuracy == float(any(sentences))


def test_score():
    true = ['B-A I-A O B-B'.split(), 'O B-A'.split()]
    predicted = ['B-A I-A O B-A'.split(), 'B-A O'.split()]
    score = score_spans(true, predicted)
    assert score.accuracy == pytest.approx(3 / 6)
    assert (score.precision, score.recall, score.f1) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert 'F1 0.3333' in str(score)
    score = score_spans([['B-A', 'B-A', 'B-B', 'O']], [['B-A', 'I-A', 'B-B', 'O']])
    assert (score.precision, score.recall, score.f1) == pytest.approx((1 / 2, 1 / 3, 2 / 5))


def test_nothing_to_score():
    assert score_spans([], []) == (0, 0, 0, 0)
    assert score_spans([['O']], [['B-A']]) == (0, 0, 0, 0)
    with pytest.raises(ValueError, match='2 tags for 1 tokens'):
        score_spans([['O']], [['O', 'O']])


@pytest.mark.parametrize(
    'text, right',
    [
        ('O', True),
        ('B-PER', True),
        ('I-PER.NAM', True),
        ('', False),
        ('B-', False),
        ('PER', False),
        ('o', False),
        ('O\r', False),
    ],
)
def test_is_tag(text, right):
    assert is_tag(text) == right
