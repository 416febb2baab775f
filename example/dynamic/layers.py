"""Static parts that several networks use."""

import mxnet as mx
from mxnet import gluon
from mxnet.gluon import nn

__all__ = ['Pooled', 'conv_bn', 'head']


def conv_bn(
    inputs: int,
    channels: int,
    kernel: int = 3,
    stride: int = 1,
    groups: int = 1,
    relu: bool = True,
) -> nn.HybridSequential:
    """Return convolution, batch norm and, unless left out, ReLU: (N, inputs, H, W) to (N, channels,
    H / stride, W / stride)."""
    layers = nn.HybridSequential(prefix='')
    layers.add(
        nn.Conv2D(
            channels,
            kernel,
            stride,
            padding=kernel // 2,
            groups=groups,
            use_bias=False,
            in_channels=inputs,
        ),
        nn.BatchNorm(in_channels=channels),
    )
    if relu:
        layers.add(nn.Activation('relu'))
    return layers


class Pooled(gluon.HybridBlock):
    """Max pooling mixed with average pooling, by a share that is learned (Kaya et al. 2019).

    Inputs
        - **x**: (N, C, H, W)

    Outputs
        - (N, C, H / size, W / size)
    """

    def __init__(self, size: int, **kwargs):
        super().__init__(**kwargs)
        self._pool = {'kernel': (size, size), 'stride': (size, size)}
        with self.name_scope():
            self.share = self.params.get('share', shape=(1,), init=mx.init.Constant(0.5))

    def hybrid_forward(self, F, x, share):
        """Pool; each call is one internal classifier."""
        largest = F.Pooling(x, pool_type='max', **self._pool)
        mean = F.Pooling(x, pool_type='avg', **self._pool)
        return F.broadcast_mul(share, largest) + F.broadcast_mul(1 - share, mean)


def head(channels: int, classes: int) -> nn.HybridSequential:
    """Return a network for scores (N, classes) from the means over all places of (N, channels, H,
    W)."""
    layers = nn.HybridSequential(prefix='')
    layers.add(nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(classes, in_units=channels))
    return layers
