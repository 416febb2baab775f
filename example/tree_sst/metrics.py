"""Measure how many phrases got the right one of five classes."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ['Accuracy', 'accuracy']


class Accuracy(NamedTuple):
    """Share of whole sentences, and of all nodes, with the right class."""

    root: float
    nodes: float

    def __str__(self) -> str:
        return f'root {self.root:.4f}  nodes {self.nodes:.4f}'


def accuracy(scores: np.ndarray, labels: Sequence[np.ndarray]) -> Accuracy:
    """Return the accuracy of scores (all nodes of all trees, 5) for the labels of each tree, root
    last."""
    right = scores.argmax(axis=1) == np.concatenate(labels)
    roots = np.cumsum([len(of_tree) for of_tree in labels]) - 1
    return Accuracy(float(right[roots].mean()), float(right.mean()))
