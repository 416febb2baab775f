"""Shuffled sentences."""

from collections.abc import Sequence

import numpy as np

__all__ = ['Shuffled', 'shuffle']


class Shuffled:
    """One sample.

    Parameters
    ----------
    words : sequence of int
        Ids, as they are read.
    names : sequence of int
        For each, the first position with the same word: two that have one name may stand for each
        other, which ids of unknown words may not.
    order : sequence of int
        Positions as they are to be written.
    """

    __slots__ = ('words', 'names', 'order')

    def __init__(self, words: Sequence[int], names: Sequence[int], order: Sequence[int]):
        self.words = words
        self.names = names
        self.order = order

    def __len__(self) -> int:
        return len(self.words)

    def __repr__(self) -> str:
        return f'Shuffled({len(self)} words)'


def shuffle(words: Sequence[str], ids: Sequence[int], seed: Sequence[int]) -> Shuffled:
    """A sentence out of order.

    Parameters
    ----------
    words : sequence of str
    ids : sequence of int
        Of the words.
    seed : sequence of int
        The same seed gives the same order.
    """
    places = np.random.RandomState(seed).permutation(len(words)).tolist()
    first: dict[str, int] = {}
    names = [first.setdefault(words[place], position) for position, place in enumerate(places)]
    order: list[int] = np.argsort(places).tolist()
    return Shuffled([ids[place] for place in places], names, order)
