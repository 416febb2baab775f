"""Minibatches of samples as they are."""

from collections.abc import Sequence
from typing import Any


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
