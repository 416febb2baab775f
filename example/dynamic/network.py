"""Base classes of all networks: losses of a minibatch, and ways to force a path."""

from collections.abc import Sequence
from typing import Any

import mxnet as mx
from mxnet import gluon
from mxnet.ndarray import NDArray

__all__ = [
    'ALWAYS',
    'CLASSES',
    'DynamicNetwork',
    'GatedNetwork',
    'NEVER',
    'ThresholdNetwork',
    'chosen',
    'labels_of',
]

CLASSES = 10
ALWAYS, NEVER = -1.0, 2.0  # thresholds that every chance is above, or none


class DynamicNetwork(gluon.Block):
    """A network that is written for one image and decides on its path by what it computes.

    Attributes
    ----------
    units : str
        Name of the units by which paths differ.
    most : int
        Most units of a path.
    """

    units: str
    most: int

    def losses(
        self, images: NDArray, targets: Sequence[Any], criterion: gluon.HybridBlock
    ) -> NDArray:
        """Return (N,) losses of a minibatch (N, 1, H, W), for training: all take one path.

        `criterion` is cross entropy: of scores (N, K) and what is right (N,).
        """
        raise NotImplementedError

    def judge(self, result: Any, target: Any) -> tuple[bool, int]:
        """Return whether the result of ``net(x)`` is right, and how many units it took."""
        scores, units = result
        return int(scores.argmax(axis=1).asscalar()) == target, units

    def paths(self) -> list[Any]:
        """Return paths that together pass each branch both ways, where it has two."""
        raise NotImplementedError

    def force(self, path: Any) -> None:
        """Take one of the `paths`, whatever is computed."""
        raise NotImplementedError

    def release(self) -> None:
        """Decide by what is computed, as before `force`."""
        raise NotImplementedError


class ThresholdNetwork(DynamicNetwork):
    """A network whose branches are taken if a chance is above a threshold.

    Attributes
    ----------
    threshold : float
        Threshold of all branches, unless they are forced.
    thresholds : list of float
        Threshold of each branch: `ALWAYS`, `NEVER` or another number.
    """

    def __init__(self, branches: int, threshold: float, **kwargs):
        super().__init__(**kwargs)
        self.threshold = threshold
        self.thresholds = [threshold] * branches

    def release(self) -> None:
        """Compare each chance with the threshold."""
        self.thresholds = [self.threshold] * len(self.thresholds)


class GatedNetwork(ThresholdNetwork):
    """A network that runs some of its blocks. A path tells, for each gated block, whether it
    runs."""

    units = 'blocks'

    def paths(self) -> list[tuple[bool, ...]]:
        """Return paths with all blocks, none, every other one, and the others."""
        count = len(self.thresholds)
        return [
            (True,) * count,
            (False,) * count,
            tuple(number % 2 == 0 for number in range(count)),
            tuple(number % 2 == 1 for number in range(count)),
        ]

    def force(self, path: Sequence[bool]) -> None:
        """Run exactly the blocks of this path, whatever is computed."""
        if len(path) != len(self.thresholds):
            raise ValueError(f'a path has {len(self.thresholds)} gated blocks, not {len(path)}')
        self.thresholds = [ALWAYS if runs else NEVER for runs in path]


def labels_of(targets: Sequence[int], like: NDArray) -> NDArray:
    """Return targets as (N,) on the device of an array."""
    return mx.nd.array(targets, ctx=like.context)


def chosen(gate: NDArray, one: NDArray, other: NDArray) -> NDArray:
    """Return `one` (N, C, H, W) in the rows where the gate (N,) is 1, and `other` where it is 0."""
    share = gate.reshape((-1, 1, 1, 1))
    return mx.nd.broadcast_mul(share, one) + mx.nd.broadcast_mul(1 - share, other)
