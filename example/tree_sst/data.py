"""The Stanford Sentiment Treebank in brackets: reading, checking, building trees.

A directory holds ``train.txt``, ``dev.txt`` and ``test.txt``. Each line is a binary tree: a node
is ``(label left right)`` or ``(label word)``, with labels from 0 (very negative) to 4 (very
positive). Words are separated by the ASCII space alone; they may hold other spaces (U+00A0).
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Callable, NamedTuple, Optional
from zlib import crc32

import numpy as np

from example.common.errors import DataError
from example.common.files import read_lines

__all__ = ['Phrase', 'Sample', 'Tree', 'build_samples', 'load_split', 'parse_tree', 'tokens_of']

NUM_CLASSES = 5
LAYOUT = 'train.txt, dev.txt and test.txt, each with a tree in brackets on every line'

_PIECE = re.compile(r'[()]|[^ ()]+')


class Phrase(NamedTuple):
    """A node as read: its label, and either a word or two children."""

    label: int
    word: Optional[str]
    children: tuple['Phrase', ...] = ()

    def nodes(self) -> Iterator['Phrase']:
        """Yield all nodes, children before their parents: the root comes last."""
        # A deep tree must not meet Python's limit: parents first, right to left, is the reverse.
        found, waiting = [], [self]
        while waiting:
            node = waiting.pop()
            found.append(node)
            waiting += node.children
        return reversed(found)

    def words(self) -> list[str]:
        """Return the phrase's words in order."""
        return [node.word for node in self.nodes() if node.word is not None]


class Tree:
    """A node for the models: a leaf has a word's id, an inner node two children and a kind.

    The kind, 0 or 1, is a hash of the phrase's words. It is unrelated to their sentiment, and equal
    in every run.
    """

    __slots__ = ('token', 'children', 'kind')

    def __init__(self, token: Optional[int], children: tuple['Tree', ...] = (), kind: int = 0):
        self.token = token
        self.children = children
        self.kind = kind

    def __repr__(self) -> str:
        return f'Tree(kind={self.kind})' if self.children else f'Tree(token={self.token})'


class Sample(NamedTuple):
    """A tree, and the (n,) float32 labels of its n nodes in the order of `Phrase.nodes`."""

    tree: Tree
    labels: np.ndarray


def tokens_of(phrases: Iterable[Phrase]) -> list[str]:
    """Return all words of some phrases."""
    return [word for phrase in phrases for word in phrase.words()]


def build_samples(
    phrases: Iterable[Phrase], to_ids: Callable[[list[str]], list[int]]
) -> list[Sample]:
    """Return samples for a model whose vocabulary turns words into ids with `to_ids`."""
    return [
        Sample(
            _build_tree(phrase, iter(to_ids(phrase.words()))),
            np.array([node.label for node in phrase.nodes()], np.float32),
        )
        for phrase in phrases
    ]


def _build_tree(phrase: Phrase, ids: Iterator[int]) -> Tree:
    built: list[tuple[Tree, str]] = []  # trees that wait for their parents, with their text
    for node in phrase.nodes():
        if node.children:
            right, left = built.pop(), built.pop()
            text = f'{left[1]} {right[1]}'
            tree = Tree(None, (left[0], right[0]), crc32(text.encode()) % 2)
        else:
            tree, text = Tree(next(ids)), node.word
        built.append((tree, text))
    return built[0][0]


def load_split(path) -> list[Phrase]:
    """Read and check one file (``train.txt``, ``dev.txt`` or ``test.txt``).

    Raises
    ------
    DataError
        If the file is missing, or a line is not a tree.
    """
    path = Path(path)
    phrases = []
    for number, line in enumerate(read_lines(path, LAYOUT), 1):
        try:
            phrases.append(parse_tree(line))
        except ValueError as error:
            raise DataError(f'{path}:{number}: {error}') from None
    if not phrases:
        raise DataError(f'{path}:1: the file is empty')
    return phrases


def parse_tree(text: str) -> Phrase:
    """Return the tree of one line.

    Raises
    ------
    ValueError
        If the line is malformed; the message says how.
    """
    pieces = _PIECE.findall(text)
    if not pieces:
        raise ValueError('a line holds a tree, this one is empty')
    open_nodes: list[list] = []  # of each: what it holds so far
    for index, piece in enumerate(pieces):
        if piece == '(':
            open_nodes.append([])
            continue
        if not open_nodes:
            raise ValueError(f'{piece!r} stands outside of all brackets')
        if piece != ')':
            open_nodes[-1].append(piece)
            continue
        node = _phrase(open_nodes.pop())
        if open_nodes:
            open_nodes[-1].append(node)
        elif index + 1 < len(pieces):
            raise ValueError(f'the tree ends before {pieces[index + 1]!r}')
        else:
            return node
    raise ValueError(f'{len(open_nodes)} brackets are not closed')


def _phrase(parts: list) -> Phrase:
    """Return the node of what stands between its brackets."""
    if not parts or not isinstance(parts[0], str):
        raise ValueError('a node starts with its label')
    label, *rest = parts
    if label not in map(str, range(NUM_CLASSES)):
        raise ValueError(f'a label is a number from 0 to {NUM_CLASSES - 1}, not {label!r}')
    if len(rest) == 1 and isinstance(rest[0], str):
        return Phrase(int(label), rest[0])
    if len(rest) == 2 and not any(isinstance(part, str) for part in rest):
        return Phrase(int(label), None, tuple(rest))
    shown = ' '.join(part if isinstance(part, str) else '(...)' for part in parts)
    raise ValueError(f'a node holds a label and either one word or two nodes, not ({shown})')
