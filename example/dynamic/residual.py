"""Blocks of residual networks for small images, which SkipNet and BlockDrop may leave out."""

from mxnet import gluon
from mxnet.gluon import nn

from .layers import conv_bn

__all__ = ['BasicBlock', 'Padded', 'PreactivatedBlock', 'Projected', 'make_blocks']


class Projected(gluon.HybridBlock):
    """A shortcut that changes shape by a convolution, or none where the shape stays.

    Inputs
        - **x**: (N, inputs, H, W)

    Outputs
        - (N, channels, H / stride, W / stride)
    """

    def __init__(self, inputs: int, channels: int, stride: int, **kwargs):
        super().__init__(**kwargs)
        self.changes = (inputs, 1) != (channels, stride)
        with self.name_scope():
            if self.changes:
                self.project = conv_bn(inputs, channels, 1, stride, relu=False)

    def hybrid_forward(self, F, x):
        """Compute the shortcut of a block, skipped or not."""
        return self.project(x) if self.changes else F.identity(x)


class Padded(gluon.HybridBlock):
    """A shortcut without parameters: means of squares, and zeros in further channels.

    Inputs and outputs are those of `Projected`.
    """

    def __init__(self, inputs: int, channels: int, stride: int, **kwargs):
        super().__init__(**kwargs)
        self._stride, self._further = stride, channels - inputs

    def hybrid_forward(self, F, x):
        """Compute the shortcut of a block, skipped or not."""
        if self._stride > 1:
            sides = (self._stride, self._stride)
            x = F.Pooling(x, kernel=sides, stride=sides, pool_type='avg')
        if self._further:
            more = F.zeros_like(F.slice_axis(x, axis=1, begin=0, end=self._further))
            x = F.concat(x, more, dim=1)
        return F.identity(x)


class BasicBlock(gluon.HybridBlock):
    """Two convolutions beside a shortcut (He et al. 2016, for CIFAR).

    Parameters
    ----------
    inputs, channels, stride : int
        Channels before and after, and the stride of the first convolution.
    shortcut : type, optional
        `Projected` or `Padded`; a skipped block is replaced by its shortcut.
    """

    def __init__(
        self,
        inputs: int,
        channels: int,
        stride: int,
        shortcut: type[gluon.HybridBlock] = Projected,
        **kwargs,
    ):
        super().__init__(**kwargs)
        with self.name_scope():
            self.body = nn.HybridSequential()
            with self.body.name_scope():
                self.body.add(
                    conv_bn(inputs, channels, stride=stride),
                    conv_bn(channels, channels, relu=False),
                )
            self.shortcut = shortcut(inputs, channels, stride)

    def hybrid_forward(self, F, x):
        """Compute a block that runs."""
        return F.Activation(self.body(x) + self.shortcut(x), act_type='relu')


class PreactivatedBlock(gluon.HybridBlock):
    """A block of a wide residual network: batch norm and ReLU come first, with dropout between the
    convolutions (Zagoruyko and Komodakis 2016)."""

    def __init__(self, inputs: int, channels: int, stride: int, dropout: float = 0.3, **kwargs):
        super().__init__(**kwargs)
        self._changes = (inputs, 1) != (channels, stride)
        first = {'strides': stride, 'padding': 1, 'in_channels': inputs, 'use_bias': False}
        second = {'padding': 1, 'in_channels': channels, 'use_bias': False}
        with self.name_scope():
            self.body = nn.HybridSequential()
            with self.body.name_scope():
                self.body.add(
                    nn.BatchNorm(in_channels=inputs),
                    nn.Activation('relu'),
                    nn.Conv2D(channels, 3, **first),
                    nn.Dropout(dropout),
                    nn.BatchNorm(in_channels=channels),
                    nn.Activation('relu'),
                    nn.Conv2D(channels, 3, **second),
                )
            if self._changes:
                self.shortcut = nn.Conv2D(channels, 1, stride, in_channels=inputs)

    def hybrid_forward(self, F, x):
        """Compute the sum of the block's convolutions and its shortcut."""
        return self.body(x) + (self.shortcut(x) if self._changes else x)


def make_blocks(kind: type[gluon.HybridBlock], width: int, each: int, **options) -> list:
    """Return blocks of three stages with `width`, 2 and 4 times as many channels, `each` of them in
    each stage. The first blocks of the second and third stage halve the sides."""
    widths = [width] + [width * 2**stage for stage in range(3) for _ in range(each)]
    strides = [2 if number in (each, 2 * each) else 1 for number in range(3 * each)]
    return [
        kind(before, after, stride, **options)
        for before, after, stride in zip(widths, widths[1:], strides)
    ]
