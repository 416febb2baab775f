"""Measure how well predicted scores agree with those that people gave."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

__all__ = ['Agreement', 'agreement', 'expected_scores']


class Agreement(NamedTuple):
    """The three figures of SICK's relatedness task."""

    pearson: float
    spearman: float
    mse: float

    def __str__(self) -> str:
        return f'r {self.pearson:.4f}  rho {self.spearman:.4f}  mse {self.mse:.4f}'


def expected_scores(log_probabilities: np.ndarray) -> np.ndarray:
    """Return the mean of each row's distribution over the scores 1, 2, ...: (N, C) to (N,)."""
    classes = np.arange(1, log_probabilities.shape[1] + 1)
    return np.exp(log_probabilities.astype(np.float64)) @ classes


def agreement(predicted: Sequence[float], true: Sequence[float]) -> Agreement:
    """Return Pearson's r, Spearman's rho and mean squared error.

    Correlations of a constant (or of a single pair) are 0.
    """
    predicted, true = np.asarray(predicted, float), np.asarray(true, float)
    if predicted.shape != true.shape or predicted.ndim != 1 or not predicted.size:
        raise ValueError(f'{predicted.shape} predictions for {true.shape} scores')
    mse = float(np.mean((predicted - true) ** 2))
    if predicted.size < 2 or np.ptp(predicted) == 0 or np.ptp(true) == 0:
        return Agreement(0.0, 0.0, mse)
    return Agreement(_pearson(predicted, true), _pearson(_ranks(predicted), _ranks(true)), mse)


def _pearson(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.corrcoef(first, second)[0, 1])


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each value; equal values share the mean of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]
