"""SICK pairs in the layout of the treelstm distribution: reading, checking, building trees.

A directory holds ``train``, ``dev`` and ``test``, each with these files, line ``i`` of each for
pair ``i``: ``a.toks`` and ``b.toks`` (tokens, one space between), ``a.parents`` and ``b.parents``
(the parent of each token, counted from 1; 0 for the root), ``sim.txt`` (a score from 1 to 5) and
``id.txt``.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Callable, NamedTuple, Optional

import numpy as np

from example.common.errors import DataError
from example.common.files import read_lines

__all__ = [
    'Pair',
    'RawPair',
    'Sentence',
    'Tree',
    'build_pairs',
    'build_tree',
    'load_split',
    'score_distribution',
    'tokens_of',
]

FILES = ('a.toks', 'a.parents', 'b.toks', 'b.parents', 'sim.txt', 'id.txt')
LAYOUT = f'train, dev and test, each with {", ".join(FILES)}'
NUM_CLASSES = 5


class Sentence(NamedTuple):
    """A sentence as read: tokens, and the parent of each (counted from 1, 0 for the root)."""

    tokens: tuple[str, ...]
    parents: tuple[int, ...]


class RawPair(NamedTuple):
    """Two sentences, how related they are (1 to 5), and the pair's name."""

    left: Sentence
    right: Sentence
    score: float
    name: str


class Tree:
    """A node of a dependency tree with all that hangs from it."""

    __slots__ = ('token', 'children')

    def __init__(self, token: int, children: Optional[list['Tree']] = None):
        self.token = token
        self.children = [] if children is None else children

    def __repr__(self) -> str:
        return f'Tree(token={self.token}, children={len(self.children)})'


class Pair:
    """One sample: two trees and their score.

    ``target`` is the score as a distribution over 1 to 5, made here once for all epochs.
    """

    __slots__ = ('left', 'right', 'score', 'target')

    def __init__(self, left: Tree, right: Tree, score: float):
        self.left = left
        self.right = right
        self.score = score
        self.target = score_distribution(score)

    def __repr__(self) -> str:
        return f'Pair({self.left}, {self.right}, score={self.score:g})'


def score_distribution(score: float) -> np.ndarray:
    """Return the (1, 5) float32 distribution over the scores 1 to 5 whose mean is ``score``."""
    if not 1 <= score <= NUM_CLASSES:
        raise ValueError(f'a score is between 1 and {NUM_CLASSES}, not {score}')
    target = np.zeros((1, NUM_CLASSES), np.float32)
    lower = min(int(score), NUM_CLASSES - 1)
    target[0, lower - 1] = lower + 1 - score
    target[0, lower] = score - lower
    return target


def build_tree(token_ids: Sequence[int], parents: Sequence[int]) -> Tree:
    """Return the tree of a checked sentence; children are in the order of their tokens."""
    nodes = [Tree(token) for token in token_ids]
    root = None
    for node, parent in zip(nodes, parents):
        if parent == 0:
            root = node
        else:
            nodes[parent - 1].children.append(node)
    if root is None:
        raise ValueError('a tree has one root')
    return root


def build_pairs(raw: Iterable[RawPair], to_ids: Callable[[Sequence[str]], list[int]]) -> list[Pair]:
    """Return samples for a model whose vocabulary turns tokens into ids with ``to_ids``."""
    return [
        Pair(
            build_tree(to_ids(pair.left.tokens), pair.left.parents),
            build_tree(to_ids(pair.right.tokens), pair.right.parents),
            pair.score,
        )
        for pair in raw
    ]


def tokens_of(pairs: Iterable[RawPair]) -> list[str]:
    """Return all tokens of both sentences."""
    return [token for pair in pairs for token in pair.left.tokens + pair.right.tokens]


def load_split(directory) -> list[RawPair]:
    """Read and check one split (``train``, ``dev`` or ``test``).

    Raises
    ------
    DataError
        A file is missing, or a line is not what the layout asks for.
    """
    directory = Path(directory)
    lines = {name: read_lines(directory / name, LAYOUT) for name in FILES}
    count = len(lines[FILES[0]])
    for name in FILES[1:]:
        if len(lines[name]) != count:
            line = min(count, len(lines[name])) + 1
            raise DataError(
                f'{directory / name}:{line}: the file has {len(lines[name])} lines, '
                f'{directory / FILES[0]} has {count}'
            )
    if not count:
        raise DataError(f'{directory / FILES[0]}:1: the file is empty')
    pairs = []
    for i in range(count):
        left, right = (_parse_sentence(directory, side, i, lines) for side in 'ab')
        score = _parse_score(lines['sim.txt'][i], f'{directory / "sim.txt"}:{i + 1}')
        pairs.append(RawPair(left, right, score, lines['id.txt'][i]))
    return pairs


def _parse_sentence(directory: Path, side: str, i: int, lines) -> Sentence:
    tokens = tuple(token for token in lines[f'{side}.toks'][i].split(' ') if token)
    if not tokens:
        raise DataError(f'{directory / side}.toks:{i + 1}: the sentence is empty')
    place = f'{directory / side}.parents:{i + 1}'
    try:
        parents = tuple(int(parent) for parent in lines[f'{side}.parents'][i].split())
    except ValueError as error:
        raise DataError(f'{place}: parents are whole numbers ({error})') from None
    if len(parents) != len(tokens):
        raise DataError(f'{place}: {len(parents)} parents for {len(tokens)} tokens')
    _check_tree(parents, place)
    return Sentence(tokens, parents)


def _check_tree(parents: Sequence[int], place: str) -> None:
    """Raise unless there is one root, parents exist, and every token reaches the root."""
    for token, parent in enumerate(parents, 1):
        if not 0 <= parent <= len(parents):
            raise DataError(
                f'{place}: the parent of token {token} is {parent}, '
                f'but tokens go from 1 to {len(parents)}'
            )
    roots = [token for token, parent in enumerate(parents, 1) if parent == 0]
    if len(roots) != 1:
        raise DataError(f'{place}: a tree has one root (parent 0), this one has {len(roots)}')
    reaches_root = {0}
    for token in range(1, len(parents) + 1):
        path = []
        on_path = set()
        while token not in reaches_root:
            if token in on_path:
                raise DataError(f'{place}: token {token} is its own ancestor')
            path.append(token)
            on_path.add(token)
            token = parents[token - 1]
        reaches_root.update(path)


def _parse_score(text: str, place: str) -> float:
    try:
        score = float(text)
    except ValueError:
        raise DataError(f'{place}: a score is a number, not {text!r}') from None
    if not 1 <= score <= NUM_CLASSES:
        raise DataError(f'{place}: a score is between 1 and {NUM_CLASSES}, not {text.strip()}')
    return score
