"""BlockDrop (Wu et al. 2018): a small network sees the image first, and decides which blocks of a
large one run.

Decisions are learned by REINFORCE: right answers earn more if fewer blocks ran.
"""

from collections.abc import Sequence

import mxnet as mx
from mxnet import autograd, gluon
from mxnet.gluon import nn
from mxnet.ndarray import NDArray

from .layers import conv_bn, head
from .network import CLASSES, GatedNetwork, chosen, labels_of
from .residual import BasicBlock, Padded, make_blocks

__all__ = ['BlockDrop', 'Policy']

_OPEN = 2.0  # bias of the policy: at first most blocks run
_BOUND = 0.8  # however sure the policy is, it tries the opposite in one of five
_WRONG = -5.0  # reward of a wrong answer


class Policy(gluon.HybridBlock):
    """A residual network with one block a stage.

    Inputs
        - **x**: (N, 1, H, W)

    Outputs
        - the probability (N, blocks) that each block runs
    """

    def __init__(self, width: int, blocks: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.layers = nn.HybridSequential()
            with self.layers.name_scope():
                self.layers.add(conv_bn(1, width), *make_blocks(BasicBlock, width, 1))
                self.layers.add(nn.GlobalAvgPool2D(), nn.Flatten())
                opening = mx.init.Constant(_OPEN)
                self.layers.add(nn.Dense(blocks, in_units=4 * width, bias_initializer=opening))

    def hybrid_forward(self, F, x):
        """Compute probabilities; each call is one image."""
        return F.sigmoid(self.layers(x))


class BlockDrop(GatedNetwork):
    """A flat residual network and its policy.

    Parameters
    ----------
    width : int
        Channels of the first stage.
    each : int
        Blocks of each of three stages: 5 of them, two convolutions each, make ResNet-32.
    threshold : float
        A block runs if the policy gives a probability above it.
    """

    def __init__(self, width: int = 16, each: int = 5, threshold: float = 0.5, **kwargs):
        super().__init__(3 * each, threshold, **kwargs)
        self.most = 3 * each
        with self.name_scope():
            self.policy = Policy(width, self.most)
            self.first = conv_bn(1, width)
            self.blocks = nn.HybridSequential()
            self.blocks.add(*make_blocks(BasicBlock, width, each, shortcut=Padded))
            self.head = head(4 * width, CLASSES)

    def forward(self, x: NDArray) -> tuple[NDArray, int]:
        """Return scores (1, 10), and how many blocks ran."""
        keep = self.policy(x)
        x = self.first(x)
        ran = 0
        for number, block in enumerate(self.blocks):
            if keep[:, number].asscalar() > self.thresholds[number]:
                x = block(x)
                ran += 1
            else:
                x = block.shortcut(x)
        return self.head(x), ran

    def losses(self, images: NDArray, targets: Sequence[int], criterion) -> NDArray:
        """Return cross entropy for the policy's best guess, minus the log probability of a draw
        times its extra reward.

        Only a random number of the last blocks is drawn, as in the paper's curriculum.
        """
        labels = labels_of(targets, images)
        keep = self.policy(images)
        bounded = _BOUND * keep + (1 - _BOUND) * (1 - keep)
        guess = keep > self.threshold
        scores = self.masked(images, guess)
        with autograd.pause():  # predicts, as inference does
            last = _last_blocks(keep)
            drawn = mx.nd.where(last, mx.nd.random.uniform_like(keep) < bounded, guess)
            gain = _reward(self.masked(images, drawn), labels, drawn)
            gain = gain - _reward(scores, labels, guess)
        chances = drawn * bounded + (1 - drawn) * (1 - bounded)
        return criterion(scores, labels) - gain * (last * mx.nd.log(chances)).sum(axis=1)

    def masked(self, images: NDArray, drawn: NDArray) -> NDArray:
        """Return scores (N, 10), with those blocks in effect whose column of `drawn` (N, blocks) is
        1."""
        x = self.first(images)
        for number, block in enumerate(self.blocks):
            x = chosen(drawn[:, number], block(x), block.shortcut(x))
        return self.head(x)


def _reward(scores: NDArray, labels: NDArray, drawn: NDArray) -> NDArray:
    """Return rewards (N,): for a right answer, 1 less the square of the share of blocks that
    ran."""
    right = scores.argmax(axis=1) == labels
    return right * (1 - mx.nd.square(drawn.mean(axis=1))) + (1 - right) * _WRONG


def _last_blocks(keep: NDArray) -> NDArray:
    """Return (N, blocks): 1 for some blocks at the end of each row, one at least."""
    count, blocks = keep.shape
    first = mx.nd.random.uniform(0, blocks - 1, shape=(count, 1), ctx=keep.context)
    numbers = mx.nd.arange(blocks, ctx=keep.context).reshape((1, -1))
    return mx.nd.broadcast_greater_equal(numbers, first)
