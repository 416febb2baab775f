"""Samples as a minibatch gives them, and what each of them costs."""

from collections.abc import Sequence
from typing import Any, Callable

import numpy as np

from ..api.scope import lasting

_TOGETHER = 64  # samples of a scope: what it keeps is small, and no scope is begun for each


def as_list(samples: Sequence[Any]) -> list[Any]:
    """The samples of a minibatch as a list: scopes batch trees and graphs, nothing stacks them.

    For `gluon.data.DataLoader`, whose own function makes arrays of them; its ``num_workers``
    processes then parse and build the samples of the next ``prefetch`` minibatches meanwhile.

    Parameters
    ----------
    samples : sequence
        Of any kind.

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
    """How many calls each sample records; nothing is computed.

    Parameters
    ----------
    net : callable
        The model, or anything that calls blocks of a sample, as loss functions do. If it looks at
        values, it has to be evaluated, and takes as long as that.
    samples : sequence
        What `net` is called with, each.

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
