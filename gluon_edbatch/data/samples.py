"""Samples in the form for a minibatch, and their costs."""

from collections.abc import Sequence
from typing import Any, Callable

import numpy as np

from ..api.scope import lasting

_TOGETHER = 64  # samples of a scope: what it keeps is small, and no scope is begun for each


def as_list(samples: Sequence[Any]) -> list[Any]:
    """Return the samples of a minibatch as a list; scopes batch trees and graphs without stacking.

    Give this function to `gluon.data.DataLoader`, whose default stacks samples to arrays. The
    loader's ``num_workers`` processes then prepare the samples of the next ``prefetch``
    minibatches.

    Parameters
    ----------
    samples : sequence
        Samples of any kind.

    Returns
    -------
    list

    Examples
    --------
    >>> loader = gluon.data.DataLoader(
    ...     dataset, batch_sampler=sampler.epoch(1), batchify_fn=edb.data.as_list, num_workers=2
    ... )
    """
    return list(samples)


def recorded_calls(net: Callable[[Any], Any], samples: Sequence[Any]) -> np.ndarray:
    """Return how many calls each sample records, without computing anything.

    Parameters
    ----------
    net : callable
        The model, or anything that calls blocks on a sample, such as loss functions. If it reads
        values, they are evaluated.
    samples : sequence
        Arguments of `net`, one for each call.

    Returns
    -------
    numpy.ndarray
        (len(samples),) float64, the costs of `BalancedSampler`.
    """
    costs = np.zeros(len(samples))
    for begin in range(0, len(samples), _TOGETHER):
        scope = lasting()
        with scope:
            before = 0
            for i, sample in enumerate(samples[begin : begin + _TOGETHER], begin):
                net(sample)
                after = scope.calls_recorded
                costs[i], before = after - before, after
    return costs
