"""Tagged Chinese sentences, dictionary words, and the lattices that they make.

A data directory holds one file each that ends in ``.train``, ``.dev`` and ``.test``. Every line is
a character with its position in its word (a digit), a tab and a tag; an empty line ends a
sentence::

    北0  B-GPE.NAM
    京1  I-GPE.NAM

A word list has a word a line. Text after a space (counts, parts of speech) is ignored, so the
dictionaries of jieba can be used as they are.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Callable, NamedTuple

import numpy as np

from example.common.errors import DataError
from example.common.files import read_lines
from example.common.spans import TAG_FORM, is_tag

__all__ = [
    'Arc',
    'CharSentence',
    'LAYOUT',
    'Lattice',
    'WordArc',
    'WordList',
    'build_lattice',
    'find_words',
    'load_split',
    'load_words',
]

LAYOUT = 'one file each that ends in .train, .dev and .test, with a character and a tag a line'


class CharSentence(NamedTuple):
    """A sentence as read: characters, and the tag of each."""

    chars: tuple[str, ...]
    tags: tuple[str, ...]


class WordList(NamedTuple):
    """Dictionary words of two characters or more, and the length of the longest."""

    words: frozenset[str]
    longest: int


class WordArc(NamedTuple):
    """A dictionary word in a sentence: characters ``begin`` to ``end - 1``."""

    begin: int
    end: int
    word: str


class Arc(NamedTuple):
    """A dictionary word that leads into a position: where it begins, and its id."""

    begin: int
    word: int


class Lattice:
    """One sample: characters, the words that end with each of them, and the tags.

    ``arcs[i]`` are the dictionary words whose last character is ``chars[i]``; ``tags`` is a
    (len(chars),) float32 array of tag ids, as losses take them.
    """

    __slots__ = ('chars', 'arcs', 'tags')

    def __init__(self, chars: Sequence[int], arcs: Sequence[Sequence[Arc]], tags: Sequence[int]):
        self.chars = chars
        self.arcs = arcs
        self.tags = np.array(tags, np.float32)

    def __len__(self) -> int:
        return len(self.chars)

    def __repr__(self) -> str:
        return f'Lattice({len(self.chars)} characters, {sum(map(len, self.arcs))} words)'

    def reversed(self) -> 'Lattice':
        """Return the lattice from right to left."""
        size = len(self.chars)
        arcs: list[list[Arc]] = [[] for _ in range(size)]
        for last, ending in enumerate(self.arcs):
            for begin, word in ending:
                arcs[size - 1 - begin].append(Arc(size - 1 - last, word))
        return Lattice(self.chars[::-1], arcs, self.tags[::-1])


def find_words(chars: Sequence[str], dictionary: WordList) -> list[WordArc]:
    """Return all dictionary words in a sentence, by their begin, then by their end."""
    return [
        WordArc(begin, end, word)
        for begin in range(len(chars) - 1)
        for end in range(begin + 2, min(begin + dictionary.longest, len(chars)) + 1)
        for word in (''.join(chars[begin:end]),)
        if word in dictionary.words
    ]


def build_lattice(
    sentence: CharSentence,
    words: Iterable[WordArc],
    char_id: Callable[[str], int],
    word_id: Callable[[str], int],
    tag_id: Callable[[str], int],
) -> Lattice:
    """Return a sample for a model whose vocabularies turn texts into ids."""
    arcs: list[list[Arc]] = [[] for _ in sentence.chars]
    for begin, end, word in words:
        arcs[end - 1].append(Arc(begin, word_id(word)))
    return Lattice(
        [char_id(char) for char in sentence.chars], arcs, [tag_id(tag) for tag in sentence.tags]
    )


def load_split(directory, split: str) -> list[CharSentence]:
    """Read and check one split (``train``, ``dev`` or ``test``).

    Parameters
    ----------
    directory : str or Path
        Where exactly one file ends in ``.{split}``.
    split : str

    Raises
    ------
    DataError
        The file is missing, or a line is not what the format asks for.
    """
    path = _split_file(Path(directory), split)
    sentences: list[CharSentence] = []
    rows: list[tuple[str, str]] = []
    for number, line in enumerate([*read_lines(path, LAYOUT), ''], 1):
        if line.strip():
            rows.append(_parse_line(line, f'{path}:{number}'))
        elif rows:
            sentences.append(CharSentence(*zip(*rows)))
            rows = []
    if not sentences:
        raise DataError(f'{path}:1: the file has no sentences')
    return sentences


def load_words(path) -> WordList:
    """Read a word list; words of one character are left out, as characters have arcs anyway.

    Raises
    ------
    DataError
        The file is missing, or has no word of two characters or more.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f'{path}: there is no such word list')
    words = set()
    for number, line in enumerate(read_lines(path, LAYOUT), 1):
        word = line.split(' ', 1)[0]
        if not word.strip():
            raise DataError(f'{path}:{number}: a line begins with a word, not {line!r}')
        if len(word) > 1:
            words.add(word)
    if not words:
        raise DataError(f'{path}:1: the file has no word of two characters or more')
    return WordList(frozenset(words), max(map(len, words)))


def _split_file(directory: Path, split: str) -> Path:
    if not directory.is_dir():
        raise DataError(f'{directory}: there is no such directory')
    found = sorted(directory.glob(f'*.{split}'))
    if len(found) != 1:
        names = ', '.join(path.name for path in found) or 'none'
        raise DataError(f'{directory}: one file ends in .{split}, not {names}')
    return found[0]


def _parse_line(line: str, place: str) -> tuple[str, str]:
    fields = line.split('\t')
    if len(fields) != 2:
        raise DataError(f'{place}: a line is a character, a tab and a tag, not {line!r}')
    text, tag = fields
    if len(text) < 2 or text[-1] not in '0123456789':
        raise DataError(
            f'{place}: a character comes with its position in its word, a digit '
            f'(口0), not as {text!r}'
        )
    if not is_tag(tag):
        raise DataError(f'{place}: a tag is {TAG_FORM}, not {tag!r}')
    return text[:-1], tag
