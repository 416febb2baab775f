"""Sentences with one label each."""

from collections.abc import Sequence

import numpy as np

__all__ = ['Sentence']


class Sentence:
    """One sample: a sentence and its label.

    Parameters
    ----------
    words : sequence of int
        Ids of words by position.
    label : int
        From 0 (very negative) to 4 (very positive).

    Attributes
    ----------
    words : numpy.ndarray
        (1, n) float32, as encoders take them.
    label : numpy.ndarray
        (1,) float32, as losses take it.
    """

    __slots__ = ('words', 'label')

    def __init__(self, words: Sequence[int], label: int):
        self.words = np.array([words], np.float32)
        self.label = np.array([label], np.float32)

    def __len__(self) -> int:
        return self.words.shape[1]

    def __repr__(self) -> str:
        return f'Sentence({len(self)} words)'
