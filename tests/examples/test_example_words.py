"""The example's vocabulary and word vectors."""

import numpy as np
import pytest

from example.common.errors import DataError
from example.common.words import Words, WordVectors, build_words, embedding_rows, read_vectors


def known(*words, width=3):
    return WordVectors(
        list(words),
        np.arange(1, 1 + len(words) * width, dtype=np.float32).reshape(len(words), width),
    )


def test_without_vectors_words_are_lower_case_and_of_training_only():
    words = build_words('A dog a cat'.split(), 'a horse'.split())
    assert not words.cased
    assert set(words.vocab.idx_to_token) == {'<unk>', 'a', 'dog', 'cat'}
    assert words.ids(['A', 'Dog']) == words.ids(['a', 'dog'])
    assert words.ids(['horse']) == words.ids(['<unk>'])


def test_capitals_are_kept_if_the_vectors_have_them():
    train = 'A dog sees a Dog'.split()
    assert build_words(train, known=known('A', 'a', 'dog', 'Dog', 'sees')).cased
    assert not build_words(train, known=known('a', 'dog', 'sees')).cased


def test_other_words_enter_with_a_vector_only():
    words = build_words('a dog'.split(), 'a horse a unicorn'.split(), known('a', 'dog', 'horse'))
    assert set(words.vocab.idx_to_token) == {'<unk>', 'a', 'dog', 'horse'}


def test_words_without_a_vector_start_small_and_random():
    vectors = known('dog', 'cat')
    words = build_words('a dog and a cat'.split(), known=vectors)
    rows, missing = embedding_rows(words, vectors, seed=3)
    assert rows.dtype == np.float32 and rows.shape == (len(words.vocab), 3)
    assert sorted(missing) == ['a', 'and']
    np.testing.assert_array_equal(rows[words.ids(['dog', 'cat'])], vectors.vectors)
    drawn = rows[words.ids(['a', 'and', '<unk>'])]
    assert (drawn != 0).all() and (abs(drawn) <= 0.05).all()
    np.testing.assert_array_equal(rows, embedding_rows(words, vectors, seed=3)[0])


def test_words_survive_json():
    words = build_words('A dog sees the dog'.split(), known=known('A', 'dog'))
    again = Words.from_json(words.to_json())
    assert again.cased == words.cased
    assert again.vocab.idx_to_token == words.vocab.idx_to_token
    tokens = 'A cat sees'.split()
    assert again.ids(tokens) == words.ids(tokens)


VECTORS = np.array([[1, 2], [3, 4], [5, 6]], np.float32)


@pytest.mark.parametrize('inside', [True, False])
def test_reads_npz(tmp_path, inside):
    path = tmp_path / 'vectors.npz'
    if inside:
        np.savez(path, vectors=VECTORS, words=np.array(['dog', 'the', 'cat']))
    else:
        np.savez(path, vectors=VECTORS)
        (tmp_path / 'words.txt').write_text('dog\nthe\ncat\n')
    found = read_vectors(path, {'cat', 'dog', 'horse'})
    assert found.words == ['dog', 'cat']
    np.testing.assert_array_equal(found.vectors, VECTORS[[0, 2]])


def test_reads_glove_text(tmp_path):
    path = tmp_path / 'glove.txt'
    path.write_text('the 1 2\ndog 3 4.5\nbroken 1\na\u0085b 7 8\n', encoding='utf-8')
    found = read_vectors(path, {'dog', 'a\u0085b'})
    assert found.words == ['dog', 'a\u0085b']
    np.testing.assert_array_equal(found.vectors, [[3, 4.5], [7, 8]])


@pytest.mark.parametrize(
    'text, message',
    [
        ('the 1 2\ndog 3\n', r'glove\.txt:2: 1 numbers, 2 on line 1'),
        ('the 1 2\ndog 3 x\n', r'glove\.txt:2: could not convert'),
        ('the 1 2\n', 'has none of the words'),
        ('', 'has none of the words'),
    ],
)
def test_bad_glove_text(tmp_path, text, message):
    path = tmp_path / 'glove.txt'
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_vectors(path, {'dog'})


def test_bad_npz(tmp_path):
    path = tmp_path / 'vectors.npz'
    with pytest.raises(DataError, match='no such file'):
        read_vectors(path, {'dog'})
    path.write_text('no zip')
    with pytest.raises(DataError, match='not an .npz'):
        read_vectors(path, {'dog'})
    np.savez(path, rows=VECTORS)
    with pytest.raises(DataError, match='no array "vectors"'):
        read_vectors(path, {'dog'})
    np.savez(path, vectors=VECTORS)
    with pytest.raises(DataError, match='no array "words", and there is no'):
        read_vectors(path, {'dog'})
    (tmp_path / 'words.txt').write_text('dog\n')
    with pytest.raises(DataError, match=r'1 words for vectors of shape \(3, 2\)'):
        read_vectors(path, {'dog'})
