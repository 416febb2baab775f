"""Make samples of sentences out of order."""

from collections.abc import Sequence

import numpy as np

__all__ = ['Shuffled', 'shuffle']


class Shuffled:
    """One sample: a sentence out of order.

    Parameters
    ----------
    words : sequence of int
        Ids of words, in the order of reading.
    names : sequence of int
        For each word, the first position with the same word: words of one name are interchangeable,
        unlike unknown words of one id.
    order : sequence of int
        Positions in the right order.
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
    """Return a sentence out of order.

    Parameters
    ----------
    words : sequence of str
    ids : sequence of int
        Ids of the words.
    seed : sequence of int
        The same seed gives the same order.
    """
    places = np.random.RandomState(seed).permutation(len(words)).tolist()
    first: dict[str, int] = {}
    names = [first.setdefault(words[place], position) for position, place in enumerate(places)]
    order: list[int] = np.argsort(places).tolist()
    return Shuffled([ids[place] for place in places], names, order)
