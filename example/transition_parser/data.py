"""Dependency trees of Universal Dependencies.

A data directory holds a file for each of ``train``, ``dev`` and ``test``: ``train.conllu`` or
``en_ewt-ud-train.conllu`` (CoNLL-U), or ``train.tsv`` with the columns FORM UPOS XPOS HEAD DEPREL.
Files may end in ``.gz``. An empty line ends a sentence.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from example.common.errors import DataError
from example.common.files import read_lines

from .transitions import Step, oracle

__all__ = ['LAYOUT', 'ROOT', 'Sentence', 'Tree', 'load_split']

LAYOUT = 'train, dev and test as .conllu (or .tsv: FORM UPOS XPOS HEAD DEPREL), also .gz'
ROOT = '<root>'  # as a word and as its tag

_COLUMNS = {10: (1, 3, 6, 7), 5: (0, 1, 3, 4)}  # of form, tag, head and relation, by their number
_NO_WORD = re.compile(r'\d+[-.]\d+(\t[^\t]*){9}')  # words as one (2-3), or none (2.1)


class Tree(NamedTuple):
    """A sentence as read, with positions from 0; the head of its root is the position behind it."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]


class Sentence:
    """One sample: tokens, their heads, and the oracle's decisions.

    Parameters
    ----------
    tokens : sequence of (int, int)
        Ids of word and tag; the last is ROOT.
    heads, relations : sequence of int
        Heads and relations by position.

    Attributes
    ----------
    steps : list of Features
        Positions that the oracle's decisions depend on; empty if the tree is not projective.
    actions : numpy.ndarray
        (len(steps),) float32, the oracle's decisions.
    """

    __slots__ = ('tokens', 'heads', 'relations', 'steps', 'actions')

    def __init__(
        self, tokens: Sequence[tuple[int, int]], heads: Sequence[int], relations: Sequence[int]
    ):
        self.tokens = tokens
        self.heads = np.array(heads)
        self.relations = np.array(relations)
        steps: list[Step] = oracle(heads, relations) or []
        self.steps = [step.features for step in steps]
        self.actions = np.array([step.action for step in steps], np.float32)

    def __len__(self) -> int:
        """Return the number of words, without ROOT."""
        return len(self.heads)

    def __repr__(self) -> str:
        return f'Sentence({len(self)} words, {len(self.steps)} steps)'


def load_split(directory, split: str) -> list[Tree]:
    """Read and check one split.

    Parameters
    ----------
    directory : str or Path
    split : str
        ``train``, ``dev`` or ``test``.

    Raises
    ------
    DataError
        If there is no such file or more than one, or a line is malformed.
    """
    path = _path_of(Path(directory), split)
    trees = [_parse_tree(lines, path) for lines in _sentences(path)]
    if not trees:
        raise DataError(f'{path}: there is no sentence in it')
    return trees


def _path_of(directory: Path, split: str) -> Path:
    pattern = re.compile(rf'(.*-)?{split}\.(conllu|tsv)(\.gz)?')
    found = sorted(path for path in directory.iterdir() if pattern.fullmatch(path.name))
    if len(found) != 1:
        names = ' and '.join(path.name for path in found) or 'no file'
        raise DataError(f'{directory}: {names} for {split}; a data directory holds {LAYOUT}')
    return found[0]


def _sentences(path: Path) -> Iterator[list[tuple[int, str]]]:
    """Yield the numbered lines of each sentence that are about words."""
    lines: list[tuple[int, str]] = []
    for number, line in enumerate([*read_lines(path, LAYOUT), ''], 1):
        if line and not line.startswith('# ') and not _NO_WORD.fullmatch(line):
            lines.append((number, line))
        elif not line and lines:
            yield lines
            lines = []


def _parse_tree(lines: Sequence[tuple[int, str]], path: Path) -> Tree:
    words, tags, heads, relations = zip(
        *(_parse_word(line, len(lines), f'{path}:{number}') for number, line in lines)
    )
    place = f'{path}:{lines[0][0]}'
    if heads.count(len(lines)) != 1:
        raise DataError(
            f'{place}: one word of a sentence has the head 0, not {heads.count(len(lines))} of them'
        )
    _check_that_all_lead_to_root(heads, place)
    return Tree(words, tags, heads, relations)


def _parse_word(line: str, length: int, place: str) -> tuple[str, str, int, str]:
    fields = line.split('\t')
    if len(fields) not in _COLUMNS:
        raise DataError(
            f'{place}: a word has 10 fields (CoNLL-U) or 5, between tabs, not {len(fields)}'
        )
    word, tag, head, relation = (fields[column] for column in _COLUMNS[len(fields)])
    if not (word and tag and relation):
        raise DataError(f'{place}: form, tag and relation may not be empty')
    if not re.fullmatch('[0-9]+', head) or int(head) > length:
        raise DataError(
            f'{place}: a head is 0 (ROOT) or the number of one of {length} words, not {head!r}'
        )
    return word, tag, int(head) - 1 if int(head) else length, relation


def _check_that_all_lead_to_root(heads: Sequence[int], place: str) -> None:
    root = len(heads)
    above = np.array([*heads, root])
    for _ in range(root.bit_length()):  # each time twice as far up
        above = above[above]
    if (above != root).any():
        raise DataError(
            f'{place}: the heads of word {np.argmax(above != root) + 1} lead round in '
            'a circle, not to ROOT'
        )
