"""Vocabulary and word vectors, with gluonnlp."""

import json
import zipfile
from collections.abc import Container, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Optional

import mxnet as mx
import numpy as np

from .errors import DataError
from .extras import nlp

__all__ = ['WordVectors', 'Words', 'build_words', 'embedding_rows', 'read_vectors']

UNKNOWN = '<unk>'


class Words(NamedTuple):
    """A vocabulary, and whether its words keep their capitals."""

    vocab: nlp.Vocab
    cased: bool

    def ids(self, tokens: Sequence[str]) -> list[int]:
        """Return ids of tokens; a word that the vocabulary lacks is the unknown word."""
        return self.vocab[[_fold(token, self.cased) for token in tokens]]

    def to_json(self) -> str:
        """Return a text that `from_json` reads."""
        return json.dumps({'vocab': self.vocab.to_json(), 'cased': self.cased})

    @staticmethod
    def from_json(text: str) -> 'Words':
        """Return the vocabulary that `to_json` wrote."""
        fields = json.loads(text)
        return Words(nlp.Vocab.from_json(fields['vocab']), fields['cased'])


class WordVectors(NamedTuple):
    """Vectors of some words: row ``i`` of ``vectors`` belongs to ``words[i]``."""

    words: list[str]
    vectors: np.ndarray


def build_words(
    train: Sequence[str], others: Iterable[str] = (), known: Optional[WordVectors] = None
) -> Words:
    """Return the vocabulary: training tokens, and those of ``others`` that have a vector.

    A word that is not trained on means something only if it brings a vector. Capitals are kept
    if that finds at least as many training words in ``known`` as lower case does.
    """
    have = set(known.words) if known else set()
    counts = nlp.data.count_tokens(train)
    cased = bool(have) and _covered(counts, have, True) >= _covered(counts, have, False)
    counter = nlp.data.count_tokens(_fold(token, cased) for token in train)
    new = (_fold(token, cased) for token in others)
    nlp.data.count_tokens([token for token in new if token in have], counter=counter)
    return Words(
        nlp.Vocab(
            counter, unknown_token=UNKNOWN, padding_token=None, bos_token=None, eos_token=None
        ),
        cased,
    )


def embedding_rows(words: Words, known: WordVectors, seed: int, scale: float = 0.05):
    """Return embedding weights for a vocabulary, and which of its words have no vector.

    A word without one starts uniformly random in ``[-scale, scale)``, as in Tai et al.

    Returns
    -------
    rows : numpy.ndarray
        (len(words.vocab), D) float32.
    missing : list of str
        The words without a vector.
    """
    source = nlp.embedding.TokenEmbedding(
        unknown_token=UNKNOWN,
        init_unknown_vec=None,
        idx_to_token=[UNKNOWN] + known.words,
        idx_to_vec=mx.nd.array(np.concatenate([np.zeros_like(known.vectors[:1]), known.vectors])),
    )
    words.vocab.set_embedding(source)
    rows = words.vocab.embedding.idx_to_vec.asnumpy().copy()
    words.vocab.set_embedding(None)  # the model's parameter takes over
    without = np.array([token not in source for token in words.vocab.idx_to_token])
    without[words.vocab[UNKNOWN]] = True
    draw = np.random.RandomState(seed).uniform(-scale, scale, rows.shape)
    rows[without] = draw[without]
    missing = [
        token
        for token, lacks in zip(words.vocab.idx_to_token, without)
        if lacks and token != UNKNOWN
    ]
    return rows, missing


def read_vectors(path, wanted: Container[str]) -> WordVectors:
    """Read vectors from an ``.npz`` (``vectors``, and ``words`` inside or in words.txt beside it)
    or from a text file of GloVe's form (a word and its numbers on each line).

    Parameters
    ----------
    path : str or Path
        The file.
    wanted : container of str
        Words to keep, as a GloVe file may hold millions.

    Raises
    ------
    DataError
        If the file is missing or malformed.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f'{path}: there is no such file of word vectors')
    rows = _npz_rows(path) if path.suffix == '.npz' else _text_rows(path)
    found: dict[str, np.ndarray] = {}
    for word, vector in rows:
        if word in wanted and word not in found and word != UNKNOWN:
            found[word] = vector() if callable(vector) else vector
    if not found:
        raise DataError(f'{path}: has none of the words of the data set')
    return WordVectors(list(found), np.stack(list(found.values())).astype(np.float32))


def _npz_rows(path: Path):
    try:
        with np.load(path) as arrays:
            if 'vectors' not in arrays.files:
                raise DataError(f'{path}: has no array "vectors", but {arrays.files}')
            vectors = arrays['vectors']
            words = arrays['words'].tolist() if 'words' in arrays.files else None
    except DataError:
        raise
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise DataError(f'{path}: not an .npz file of word vectors ({error})') from None
    if words is None:
        beside = path.with_name('words.txt')
        if not beside.is_file():
            raise DataError(f'{path}: has no array "words", and there is no {beside}')
        words = beside.read_text(encoding='utf-8').rstrip('\n').split('\n')
    if vectors.ndim != 2 or len(words) != len(vectors):
        raise DataError(f'{path}: {len(words)} words for vectors of shape {vectors.shape}')
    return zip(words, vectors)


def _text_rows(path: Path):
    """Yield words and functions that parse their vectors: most lines of a large file are
    skipped."""
    width = None
    with path.open(encoding='utf-8', newline='\n') as file:
        for line, text in enumerate(file, 1):
            word, _, numbers = text.rstrip('\n').partition(' ')
            if width is None:
                width = numbers.count(' ') + 1

            def parse(numbers=numbers, line=line, width=width):
                try:
                    vector = np.array(numbers.split(' '), np.float32)
                except ValueError as error:
                    raise DataError(f'{path}:{line}: {error}') from None
                if len(vector) != width:
                    raise DataError(f'{path}:{line}: {len(vector)} numbers, {width} on line 1')
                return vector

            yield word, parse


def _fold(token: str, cased: bool) -> str:
    return token if cased else token.lower()


def _covered(counts, have: Container[str], cased: bool) -> int:
    """Return how many occurrences of tokens have a vector."""
    return sum(n for token, n in counts.items() if _fold(token, cased) in have)
