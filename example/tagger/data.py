"""Tagged sentences in WikiNER's form: a sentence a line, ``word|tag`` per token.

A data directory holds ``train.txt`` and ``dev.txt``.
"""

from collections.abc import Sequence
from typing import Callable, NamedTuple

import numpy as np

from example.common.errors import DataError
from example.common.files import read_lines
from example.common.spans import TAG_FORM, is_tag

__all__ = ['LAYOUT', 'Sentence', 'TaggedWords', 'Token', 'build_sentence', 'load_split']

LAYOUT = 'train.txt and dev.txt, with a sentence a line, word|tag per token'


class TaggedWords(NamedTuple):
    """A sentence as read: words, and the tag of each."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


class Token(NamedTuple):
    """A word by its id, or, if ``chars`` is not empty, spelt: by the ids of its characters."""

    word: int
    chars: tuple[int, ...] = ()


class Sentence:
    """One sample: tokens, and a (len(tokens),) float32 array of tag ids, as losses take them."""

    __slots__ = ('tokens', 'tags')

    def __init__(self, tokens: Sequence[Token], tags: Sequence[int]):
        self.tokens = tokens
        self.tags = np.array(tags, np.float32)

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        spelt = sum(bool(token.chars) for token in self.tokens)
        return f'Sentence({len(self.tokens)} tokens, {spelt} of them spelt)'


def build_sentence(
    sentence: TaggedWords, token: Callable[[str], Token], tag_id: Callable[[str], int]
) -> Sentence:
    """Return a sample for a model whose vocabularies turn words into tokens and tags into ids."""
    return Sentence(
        [token(word) for word in sentence.words], [tag_id(tag) for tag in sentence.tags]
    )


def load_split(path) -> list[TaggedWords]:
    """Read and check one file of sentences.

    Parameters
    ----------
    path : str or Path

    Raises
    ------
    DataError
        The file is missing, or a line is not what the format asks for.
    """
    sentences = [
        _parse_line(line, f'{path}:{number}')
        for number, line in enumerate(read_lines(path, LAYOUT), 1)
    ]
    if not sentences:
        raise DataError(f'{path}:1: the file is empty')
    return sentences


def _parse_line(line: str, place: str) -> TaggedWords:
    tokens = [token for token in line.split(' ') if token]  # U+00A0 may be part of a word
    if not tokens:
        raise DataError(f'{place}: the sentence is empty')
    return TaggedWords(*zip(*(_parse_token(token, place) for token in tokens)))


def _parse_token(token: str, place: str) -> tuple[str, str]:
    word, _, tag = token.rpartition('|')
    if not word:
        raise DataError(f'{place}: a token is word|tag, not {token!r}')
    if not is_tag(tag):
        raise DataError(f'{place}: a tag is {TAG_FORM}, not {tag!r}')
    return word, tag
