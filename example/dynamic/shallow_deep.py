"""Shallow-deep networks (Kaya et al. 2019): an image leaves as soon as a classifier is confident.

A network is a list of parts; internal classifiers stand after those by which some 15, 30, 45, 60,
75 and 90 % of its products have been done.
"""

from collections.abc import Sequence
from functools import partial
from typing import Callable

from mxnet import gluon
from mxnet.gluon import nn
from mxnet.ndarray import NDArray

from .layers import Pooled, conv_bn, head
from .network import ALWAYS, CLASSES, NEVER, ThresholdNetwork, labels_of
from .residual import BasicBlock, PreactivatedBlock, make_blocks

__all__ = ['Classifier', 'ShallowDeep', 'mobilenet', 'resnet56', 'vgg16', 'wide_resnet32']

_POOLED = 4  # side of what an internal classifier sees
_SHARES = (0.15, 0.30, 0.45, 0.60, 0.75, 0.90)  # of the network's products, before each exit

Parts = list[gluon.HybridBlock]


class Classifier(gluon.HybridBlock):
    """Compute scores in the middle of a network, and the confidence in them.

    Parameters
    ----------
    channels, side : int
        Channels and side of the input.

    Inputs
        - **x**: (N, C, H, W)

    Outputs
        - scores (N, 10) and the greatest of their probabilities (N,)
    """

    def __init__(self, channels: int, side: int, **kwargs):
        super().__init__(**kwargs)
        pooled = min(side, _POOLED)
        with self.name_scope():
            self.reduce = nn.HybridSequential()
            with self.reduce.name_scope():
                if side > pooled:
                    self.reduce.add(Pooled(side // pooled))
                self.reduce.add(nn.Flatten(), nn.Dense(CLASSES, in_units=channels * pooled**2))

    def hybrid_forward(self, F, x):
        """Classify; each call is one exit that is reached."""
        scores = self.reduce(x)
        return scores, F.max(F.softmax(scores), axis=1)


class ShallowDeep(ThresholdNetwork):
    """A network with internal classifiers. A path is the number of the exit, from 1.

    Parameters
    ----------
    make_parts : callable
        Returns the network as a list of blocks; the last one computes scores.
    exits : sequence of (int, int, int)
        For each internal classifier: number of parts before it, channels and side of their result.
    threshold : float
        An image leaves if the greatest probability is above it.
    """

    units = 'exits'

    def __init__(
        self,
        make_parts: Callable[[], Parts],
        exits: Sequence[tuple[int, int, int]],
        threshold: float = 0.9,
        **kwargs,
    ):
        super().__init__(len(exits), threshold, **kwargs)
        self.most = len(exits) + 1
        with self.name_scope():
            parts = make_parts()
            places = [0, *(place for place, _, _ in exits), len(parts)]
            self.stages = nn.HybridSequential()
            self.classifiers = nn.HybridSequential()
            for begin, end in zip(places[:-2], places[1:-1]):
                self.stages.add(_in_sequence(parts[begin:end]))
            for _, channels, side in exits:
                self.classifiers.add(Classifier(channels, side))
            self.rest = _in_sequence(parts[places[-2] :])

    def forward(self, x: NDArray) -> tuple[NDArray, int]:
        """Return scores (1, 10) of the first confident classifier, or of the last one, and its
        number."""
        for number, (stage, classifier) in enumerate(zip(self.stages, self.classifiers)):
            x = stage(x)
            scores, confidence = classifier(x)
            if confidence.asscalar() > self.thresholds[number]:
                return scores, number + 1
        return self.rest(x), self.most

    def losses(self, images: NDArray, targets: Sequence[int], criterion) -> NDArray:
        """Return losses of all classifiers, weighted by the share of products that come before
        them."""
        x, labels, total = images, labels_of(targets, images), 0
        for stage, classifier, share in zip(self.stages, self.classifiers, _SHARES):
            x = stage(x)
            total = total + share * criterion(classifier(x)[0], labels)
        return total + criterion(self.rest(x), labels)

    def paths(self) -> list[int]:
        """Return the numbers of all exits."""
        return list(range(1, self.most + 1))

    def force(self, path: int) -> None:
        """Leave the network by this exit, whatever is computed."""
        if not 1 <= path <= self.most:
            raise ValueError(f'there are exits 1 to {self.most}, not {path}')
        self.thresholds = [NEVER] * (path - 1) + [ALWAYS] * (self.most - path)


def _in_sequence(parts: Parts) -> nn.HybridSequential:
    stage = nn.HybridSequential()
    stage.add(*parts)
    return stage


def mobilenet(width: int = 8, **options) -> ShallowDeep:
    """Return MobileNet for small images with a quarter of its channels (Howard et al. 2017)."""
    channels = [width * times for times in (1, 2, 4, 4, 8, 8, *[16] * 6, 32, 32)]
    # After units 2, 4, 6, 8, 10 and 12, and the first convolution: 14, 29, 43, 61, 78 and 92 %.
    sides = (16, 8, 4, 4, 4, 2)
    exits = [(1 + unit, channels[unit], side) for unit, side in zip(range(2, 13, 2), sides)]
    return ShallowDeep(partial(_mobilenet_parts, channels), exits, **options)


def _mobilenet_parts(channels: Sequence[int]) -> Parts:
    parts: Parts = [conv_bn(1, channels[0])]
    for number, (before, after) in enumerate(zip(channels, channels[1:]), 1):
        unit = nn.HybridSequential(prefix='')
        unit.add(
            conv_bn(before, before, stride=2 if number in (2, 4, 6, 12) else 1, groups=before),
            conv_bn(before, after, 1),
        )
        parts.append(unit)
    return [*parts, head(channels[-1], CLASSES)]


def vgg16(width: int = 16, **options) -> ShallowDeep:
    """Return VGG16 with batch norm and a quarter of its channels (Simonyan and Zisserman 2015)."""
    channels = [width * times for times in (1, 1, 2, 2, 4, 4, 4, *[8] * 6)]
    # After 13, 31, 49, 61, 79 and 91 %.
    exits = [
        (number, channels[number - 1], side)
        for number, side in zip((2, 4, 6, 7, 9, 10), (16, 8, 8, 4, 4, 2))
    ]
    return ShallowDeep(partial(_vgg_parts, channels), exits, **options)


def _vgg_parts(channels: Sequence[int]) -> Parts:
    parts: Parts = []
    for number, (before, after) in enumerate(zip([1, *channels], channels), 1):
        unit = conv_bn(before, after)
        if number in (2, 4, 7, 10, 13):
            unit.add(nn.MaxPool2D())
        parts.append(unit)
    last = nn.HybridSequential(prefix='')
    last.add(nn.Flatten())
    width = channels[-1]
    for _ in range(2):
        last.add(nn.Dense(width, 'relu', in_units=width), nn.Dropout(0.5))
    last.add(nn.Dense(CLASSES, in_units=width))
    return [*parts, last]


def resnet56(width: int = 16, each: int = 9, **options) -> ShallowDeep:
    """Return ResNet-56 for small images (He et al. 2016)."""
    return ShallowDeep(partial(_resnet_parts, width, each), _exits(width, each), **options)


def _resnet_parts(width: int, each: int) -> Parts:
    return [conv_bn(1, width), *make_blocks(BasicBlock, width, each), head(4 * width, CLASSES)]


def wide_resnet32(width: int = 16, each: int = 5, **options) -> ShallowDeep:
    """Return WideResNet-32-4 with a quarter of its channels (Zagoruyko and Komodakis 2016)."""
    return ShallowDeep(partial(_wide_resnet_parts, width, each), _exits(width, each), **options)


def _wide_resnet_parts(width: int, each: int) -> Parts:
    first = nn.Conv2D(width, 3, padding=1, in_channels=1)
    last = nn.HybridSequential(prefix='')
    last.add(nn.BatchNorm(in_channels=4 * width), nn.Activation('relu'))
    last.add(head(4 * width, CLASSES))
    return [first, *make_blocks(PreactivatedBlock, width, each), last]


def _exits(width: int, each: int) -> list[tuple[int, int, int]]:
    """Return exits of a residual network, whose blocks have about as many products each."""
    exits = []
    for share in _SHARES:
        blocks = round(share * 3 * each)
        stage = (blocks - 1) // each
        exits.append((1 + blocks, width * 2**stage, 32 // 2**stage))
    return exits
