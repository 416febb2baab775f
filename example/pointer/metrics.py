"""Measure how well words were put in order."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ['OrderScore', 'score']


class OrderScore(NamedTuple):
    """Shares of words with the right next word (the last has none), of places with the right word,
    and of sentences that are completely right."""

    pairs: float
    places: float
    sentences: float

    def __str__(self) -> str:
        return f'pairs {self.pairs:.4f}  places {self.places:.4f}  sentences {self.sentences:.4f}'


def score(written: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> OrderScore:
    """Compare sentences, given as names of their words in order."""
    pairs = places = whole = 0
    for ours, theirs in zip(written, right):
        pairs += sum((_pairs(ours) & _pairs(theirs)).values())
        places += int((ours == theirs).sum())
        whole += bool((ours == theirs).all())
    words = sum(map(len, right))
    return OrderScore(pairs / words, places / words, whole / len(right))


def _pairs(names: np.ndarray) -> Counter:
    followers = [*names[1:].tolist(), None]
    return Counter(zip(names.tolist(), followers))
