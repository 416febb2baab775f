"""SkipNet (Wang et al. 2018): a gate before each block of a residual network decides whether it
runs.

In training a gate's decision is as hard as in inference. Its gradient is that of the probability
(straight through), and blocks that run have a price.
"""

from collections.abc import Sequence
from typing import Any

import mxnet as mx
from mxnet import gluon
from mxnet.gluon import nn
from mxnet.ndarray import NDArray

from .layers import conv_bn, head
from .network import CLASSES, GatedNetwork, chosen, labels_of
from .residual import BasicBlock, make_blocks

__all__ = ['FeedForwardGate', 'FeedForwardSkipNet', 'RecurrentGate', 'RecurrentSkipNet', 'SkipNet']

_OPEN = 1.0  # bias of gates: at first most blocks run


class FeedForwardGate(gluon.HybridBlock):
    """A gate of two small convolutions: FFGate-I, for networks of fewer than 100 layers.

    Inputs
        - **x**: (N, C, H, W)

    Outputs
        - the probability (N,) that the block runs
    """

    def __init__(self, channels: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential()
            with self.features.name_scope():
                self.features.add(
                    nn.MaxPool2D(),
                    conv_bn(channels, channels),
                    conv_bn(channels, channels, stride=2),
                )
                self.features.add(nn.GlobalAvgPool2D(), nn.Flatten(), _opening(channels))

    def hybrid_forward(self, F, x):
        """Compute a gate; each call is one block, skipped or not."""
        return F.sigmoid(F.reshape(self.features(x), shape=(-1,)))


class RecurrentGate(gluon.HybridBlock):
    """A gate that remembers what it saw before earlier blocks.

    Inputs
        - **x**: (N, size), what a block's own projection makes of its input
        - **h**, **c**: (N, size)

    Outputs
        - the probability (N,) that the block runs, h and c
    """

    def __init__(self, size: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.cell = gluon.rnn.LSTMCell(size, input_size=size)
            self.decide = _opening(size)

    def hybrid_forward(self, F, x, h, c):
        """Compute a gate; each call is one block, skipped or not."""
        _, (h, c) = self.cell(x, [h, c])
        return F.sigmoid(F.reshape(self.decide(h), shape=(-1,))), h, c


class SkipNet(GatedNetwork):
    """A residual network with gates. The first block always runs, as in the paper.

    Parameters
    ----------
    width : int
        Channels of the first stage.
    each : int
        Blocks of each of three stages: 6 of them, two convolutions each, make ResNet-38.
    threshold : float
        A block runs if its gate gives a probability above it.
    price : float
        Price of running all blocks, in the loss.
    """

    def __init__(
        self,
        width: int = 16,
        each: int = 6,
        threshold: float = 0.5,
        price: float = 0.2,
        **kwargs,
    ):
        super().__init__(3 * each - 1, threshold, **kwargs)
        self.most = 3 * each
        self.price = price
        with self.name_scope():
            self.first = nn.HybridSequential()
            self.blocks = nn.HybridSequential()
            first, *others = make_blocks(BasicBlock, width, each)
            self.first.add(conv_bn(1, width), first)
            self.blocks.add(*others)
            self.head = head(4 * width, CLASSES)

    def begin(self, x: NDArray) -> Any:
        """Return the gates' first state."""
        raise NotImplementedError

    def gate(self, number: int, x: NDArray, state: Any) -> tuple[NDArray, Any]:
        """Return the probability (N,) that a block runs, and the gates' next state."""
        raise NotImplementedError

    def forward(self, x: NDArray) -> tuple[NDArray, int]:
        """Return scores (1, 10), and how many blocks ran."""
        x = self.first(x)
        state = self.begin(x)
        ran = 1
        for number, block in enumerate(self.blocks):
            gate, state = self.gate(number, x, state)
            if gate.asscalar() > self.thresholds[number]:
                x = block(x)
                ran += 1
            else:
                x = block.shortcut(x)
        return self.head(x), ran

    def losses(self, images: NDArray, targets: Sequence[int], criterion) -> NDArray:
        """Return cross entropy, and the price of the blocks that run."""
        x = self.first(images)
        state, open_ = self.begin(x), []
        for number, block in enumerate(self.blocks):
            gate, state = self.gate(number, x, state)
            open_.append(gate)
            hard = mx.nd.stop_gradient((gate > self.threshold) - gate) + gate
            x = chosen(hard, block(x), block.shortcut(x))
        share = mx.nd.stack(*open_).mean(axis=0)
        return criterion(self.head(x), labels_of(targets, images)) + self.price * share


class FeedForwardSkipNet(SkipNet):
    """A SkipNet with a gate for each block, which sees the block's input only."""

    def __init__(self, width: int = 16, each: int = 6, **kwargs):
        super().__init__(width, each, **kwargs)
        with self.name_scope():
            self.gates = nn.HybridSequential()
            self.gates.add(*map(FeedForwardGate, _channels_before(width, each)))

    def begin(self, x: NDArray) -> None:
        """Return None: the gates have no state."""

    def gate(self, number: int, x: NDArray, state: None) -> tuple[NDArray, None]:
        """Return the probability that a block runs, by its input, and no state."""
        return self.gates[number](x), None


class RecurrentSkipNet(SkipNet):
    """A SkipNet in which one LSTM decides on all blocks, by projections of their inputs."""

    def __init__(self, width: int = 16, each: int = 6, size: int = 10, **kwargs):
        super().__init__(width, each, **kwargs)
        with self.name_scope():
            self.recurrent = RecurrentGate(size)
            self.projections = nn.HybridSequential()
            for channels in _channels_before(width, each):
                self.projections.add(head(channels, size))

    def begin(self, x: NDArray) -> list[NDArray]:
        """Return zeros as the LSTM's first states."""
        return self.recurrent.cell.begin_state(batch_size=x.shape[0], ctx=x.context)

    def gate(self, number: int, x: NDArray, state: list[NDArray]) -> tuple[NDArray, list]:
        """Return the probability that a block runs, by its input and earlier ones, and the next
        state."""
        seen = self.projections[number](x)
        gate, h, c = self.recurrent(seen, state[0], state[1])
        return gate, [h, c]


def _opening(inputs: int) -> nn.Dense:
    return nn.Dense(1, in_units=inputs, bias_initializer=mx.init.Constant(_OPEN))


def _channels_before(width: int, each: int) -> list[int]:
    """Return channels of the inputs of all blocks but the first one."""
    return [width * 2 ** ((number - 1) // each) for number in range(1, 3 * each)]
