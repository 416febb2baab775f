"""Measure how many sentences got the right class."""

from typing import NamedTuple

import numpy as np

from example.tree_sst.data import NUM_CLASSES

__all__ = ['Accuracy', 'accuracy']

NEUTRAL = NUM_CLASSES // 2


class Accuracy(NamedTuple):
    """Share of sentences with the right one of five classes, and of not neutral ones with the right
    side."""

    five: float
    two: float

    def __str__(self) -> str:
        return f'five {self.five:.4f}  two {self.two:.4f}'


def accuracy(scores: np.ndarray, labels: np.ndarray) -> Accuracy:
    """Return the accuracy of scores (n, 5) for labels (n,). The side is the more probable one."""
    chances = np.exp(scores - scores.max(axis=1, keepdims=True))
    positive = chances[:, NEUTRAL + 1 :].sum(axis=1) > chances[:, :NEUTRAL].sum(axis=1)
    sided = labels != NEUTRAL
    return Accuracy(
        float((scores.argmax(axis=1) == labels).mean()),
        float((positive == (labels > NEUTRAL))[sided].mean()) if sided.any() else 0.0,
    )
