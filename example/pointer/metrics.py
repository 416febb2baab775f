"""How well words were put in order."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ['OrderScore', 'score']


class OrderScore(NamedTuple):
    """Shares of words that are followed by the right word (the last one: by none), of places that
    have the right word, and of sentences that are wholly right."""

    pairs: float
    places: float
    sentences: float

    def __str__(self) -> str:
        return f'pairs {self.pairs:.4f}  places {self.places:.4f}  sentences {self.sentences:.4f}'


def score(written: Sequence[np.ndarray], right: Sequence[np.ndarray]) -> OrderScore:
    """Compare sentences, each the names of its words as they are written."""
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
