"""Compute attachment scores of a parser."""

from typing import NamedTuple

import numpy as np

__all__ = ['AttachmentScore', 'score']


class AttachmentScore(NamedTuple):
    """Shares of words: with the right head, and with the right head and relation.

    All words count, punctuation, too.
    """

    unlabelled: float
    labelled: float

    def __str__(self) -> str:
        return f'UAS {self.unlabelled:.4f}  LAS {self.labelled:.4f}'


def score(predicted: np.ndarray, right: np.ndarray) -> AttachmentScore:
    """Compare (n, 2) arrays of heads and relations."""
    same = predicted == right
    return AttachmentScore(float(same[:, 0].mean()), float(same.all(axis=1).mean()))
