"""Graphs of words: each is next to itself, its head and its dependents."""

from collections.abc import Sequence

import numpy as np

__all__ = ['Graph', 'neighbours_of']


class Graph:
    """One sample: a sentence's words and who is next to whom.

    Parameters
    ----------
    words : sequence of int
        Ids by position.
    heads : sequence of int
        Positions of the words' heads; the root's is the position behind the last word.
    relations : sequence of int
        Ids of the words' relations to their heads.

    Attributes
    ----------
    neighbours : list of list of int
        Positions of neighbours, by position.
    relations : numpy.ndarray
        (n,) float32, as losses take it.
    """

    __slots__ = ('words', 'heads', 'neighbours', 'relations')

    def __init__(self, words: Sequence[int], heads: Sequence[int], relations: Sequence[int]):
        self.words = words
        self.heads = heads
        self.neighbours = neighbours_of(heads)
        self.relations = np.array(relations, np.float32)

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        return f'Graph({len(self)} words)'


def neighbours_of(heads: Sequence[int]) -> list[list[int]]:
    """Return, for each word, itself, then its head if it has one, and its dependents."""
    near = [[word] for word in range(len(heads))]
    for word, head in enumerate(heads):
        if head < len(heads):
            near[word].insert(1, head)
            near[head].append(word)
    return near
