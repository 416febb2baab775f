"""Small networks that compute features of places of a canvas, for captions."""

from mxnet import gluon
from mxnet.gluon import nn

from .layers import conv_bn

__all__ = ['googlenet', 'resnext']


class ResNeXtBlock(gluon.HybridBlock):
    """A bottleneck whose middle convolution has groups (Xie et al. 2017).

    Inputs
        - **x**: (N, inputs, H, W)

    Outputs
        - (N, channels, H / stride, W / stride)
    """

    def __init__(self, inputs: int, channels: int, stride: int, groups: int = 8, **kwargs):
        super().__init__(**kwargs)
        middle = channels // 2
        with self.name_scope():
            self.body = nn.HybridSequential()
            with self.body.name_scope():
                self.body.add(
                    conv_bn(inputs, middle, 1),
                    conv_bn(middle, middle, stride=stride, groups=groups),
                    conv_bn(middle, channels, 1, relu=False),
                )
            self.shortcut = conv_bn(inputs, channels, 1, stride, relu=False)

    def hybrid_forward(self, F, x):
        """Compute the block, one of many in the encoder."""
        return F.Activation(self.body(x) + self.shortcut(x), act_type='relu')


class Inception(gluon.HybridBlock):
    """Four branches side by side (Szegedy et al. 2015), with batch norm.

    Parameters
    ----------
    inputs : int
        Channels of the input.
    widths : list of int
        Widths of the branches: 1 x 1; 3 x 3, reduced and full; 5 x 5, reduced and full; after
        pooling.

    Inputs
        - **x**: (N, inputs, H, W)

    Outputs
        - (N, sum of what branches end with, H, W)
    """

    def __init__(self, inputs: int, widths: list[int], **kwargs):
        super().__init__(**kwargs)
        one, before_three, three, before_five, five, pooled = widths
        with self.name_scope():
            self.one = conv_bn(inputs, one, 1)
            self.three = _chain(conv_bn(inputs, before_three, 1), conv_bn(before_three, three))
            self.five = _chain(conv_bn(inputs, before_five, 1), conv_bn(before_five, five, 5))
            self.pooled = _chain(nn.MaxPool2D(3, 1, 1), conv_bn(inputs, pooled, 1))

    def hybrid_forward(self, F, x):
        """Compute the block, one of many in the encoder."""
        return F.concat(self.one(x), self.three(x), self.five(x), self.pooled(x), dim=1)


def resnext(width: int = 16) -> nn.HybridSequential:
    """Return a ResNeXt with a quarter of the channels and two blocks in each of three stages. It
    maps (N, 1, H, W) to (N, 16 * width, H / 8, W / 8)."""
    layers = nn.HybridSequential()
    layers.add(conv_bn(1, width, stride=2))
    inputs = width
    for channels, stride in ((4 * width, 1), (8 * width, 2), (16 * width, 2)):
        layers.add(ResNeXtBlock(inputs, channels, stride), ResNeXtBlock(channels, channels, 1))
        inputs = channels
    return layers


# Of the paper's modules 3a to 5b, in channels of its first convolution, 64, by 16.
_MODULES = (
    (4, 6, 8, 1, 2, 2),
    (8, 8, 12, 2, 6, 4),
    (12, 6, 13, 1, 3, 4),
    (10, 7, 14, 2, 4, 4),
    (8, 8, 16, 2, 4, 4),
    (7, 9, 18, 2, 4, 4),
    (16, 10, 20, 2, 8, 8),
    (16, 10, 20, 2, 8, 8),
    (24, 12, 24, 3, 8, 8),
)


def googlenet(width: int = 16) -> nn.HybridSequential:
    """Return a GoogLeNet with a quarter of the channels and less pooling than the paper's. It maps
    (N, 1, H, W) to (N, 16 * width, H / 8, W / 8)."""
    layers = nn.HybridSequential()
    layers.add(
        conv_bn(1, width, stride=2),
        conv_bn(width, width, 1),
        conv_bn(width, 3 * width),
        nn.MaxPool2D(3, 2, 1),
    )
    inputs = 3 * width
    for number, module in enumerate(_MODULES):
        if number == 2:
            layers.add(nn.MaxPool2D(3, 2, 1))
        widths = [width * channels // 4 for channels in module]
        layers.add(Inception(inputs, widths))
        inputs = widths[0] + widths[2] + widths[4] + widths[5]
    return layers


def _chain(*blocks: gluon.HybridBlock) -> nn.HybridSequential:
    layers = nn.HybridSequential(prefix='')
    layers.add(*blocks)
    return layers
