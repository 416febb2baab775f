"""Captions with attention (Xu et al. 2015): a convolutional encoder, and an LSTM that says word
after word until the end symbol."""

from collections.abc import Sequence
from typing import Any, Callable

import mxnet as mx
from mxnet import gluon
from mxnet.gluon import nn
from mxnet.ndarray import NDArray

from .canvas import END, LONGEST, START, WORDS
from .network import DynamicNetwork

__all__ = ['Captioner', 'Encoder', 'Speaker']


class Encoder(gluon.HybridBlock):
    """Compute the memory of the decoder, and its first states.

    Parameters
    ----------
    features : HybridBlock
        (N, 1, H, W) to (N, channels, h, w).
    channels, hidden : int
        D, of each place; H, of the decoder.

    Inputs
        - **x**: (N, 1, H, W)

    Outputs
        - **memory**: (N, h * w, D)
        - **keys**: (N, h * w, H), what attention compares
        - **h**, **c**: (N, H), made of the mean of all places
    """

    def __init__(self, features: gluon.HybridBlock, channels: int, hidden: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = features
            self.keys = nn.Dense(hidden, flatten=False, in_units=channels)
            self.first_h = nn.Dense(hidden, 'tanh', in_units=channels)
            self.first_c = nn.Dense(hidden, 'tanh', in_units=channels)

    def hybrid_forward(self, F, x):
        """Encode; each call is one canvas."""
        places = F.reshape(self.features(x), shape=(0, 0, -1))
        memory = F.transpose(places, axes=(0, 2, 1))
        mean = F.mean(memory, axis=1)
        return memory, self.keys(memory), self.first_h(mean), self.first_c(mean)


class Speaker(gluon.HybridBlock):
    """Compute how likely each next word of a caption is.

    Inputs
        - **word**: (N,) the number of the word before
        - **h**, **c**: (N, H)
        - **memory**, **keys**: those of `Encoder`

    Outputs
        - log probabilities (N, number of words), h and c
    """

    def __init__(self, words: int, channels: int, hidden: int, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = nn.Embedding(words, hidden)
            self.query = nn.Dense(hidden, in_units=hidden)
            self.score = nn.Dense(1, flatten=False, in_units=hidden)
            self.open = nn.Dense(channels, 'sigmoid', in_units=hidden)
            self.cell = gluon.rnn.LSTMCell(hidden, input_size=hidden + channels)
            self.of_state = nn.Dense(hidden, in_units=hidden)
            self.of_context = nn.Dense(hidden, in_units=channels)
            self.words = nn.Dense(words, in_units=hidden)

    def hybrid_forward(self, F, word, h, c, memory, keys):
        """Say a word; each call is one word."""
        seen = F.broadcast_add(keys, F.expand_dims(self.query(h), axis=1))
        scores = self.score(F.Activation(seen, act_type='tanh'))
        weights = F.softmax(scores, axis=1)
        context = F.squeeze(F.batch_dot(weights, memory, transpose_a=True), axis=1)
        context = self.open(h) * context
        before = self.embed(word)
        _, (h, c) = self.cell(F.concat(before, context, dim=1), [h, c])
        deep = before + self.of_state(h) + self.of_context(context)
        return F.log_softmax(self.words(F.Activation(deep, act_type='tanh'))), h, c


class Captioner(DynamicNetwork):
    """Describe what is on a canvas. A path is a number of words.

    Parameters
    ----------
    encoder : callable
        Returns the convolutional network for a width, with 16 times as many channels.
    width : int
        Width of the encoder's first convolution.
    hidden : int
        H.

    Attributes
    ----------
    end : int
        The end symbol's number.
    longest : int
        Most words of a caption.
    """

    units = 'words'

    def __init__(
        self,
        encoder: Callable[[int], gluon.HybridBlock],
        width: int = 16,
        hidden: int = 128,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.most = LONGEST + 2  # with the end symbol, and one that need not be
        self.end, self.longest = END, self.most
        channels = 16 * width
        with self.name_scope():
            self.encoder = Encoder(encoder(width), channels, hidden)
            self.speaker = Speaker(len(WORDS), channels, hidden)

    def forward(self, x: NDArray) -> tuple[list[int], NDArray]:
        """Return the words of the caption, and the log probability (1,) of all of them."""
        memory, keys, h, c = self.encoder(x)
        word = mx.nd.full((1,), START, ctx=x.context)
        likelihood = mx.nd.zeros((1,), ctx=x.context)
        caption: list[int] = []
        while len(caption) < self.longest:
            scores, h, c = self.speaker(word, h, c, memory, keys)
            word = scores.argmax(axis=1)
            likelihood = likelihood + scores.max(axis=1)
            token = int(word.asscalar())
            if token == self.end:
                break
            caption.append(token)
        return caption, likelihood

    def losses(self, images: NDArray, targets: Sequence[tuple[int, ...]], criterion) -> NDArray:
        """Return losses of all words of captions with their end symbols, each after the right words
        before (teacher forcing)."""
        steps = 1 + max(map(len, targets))
        padded = [[*caption, *[END] * (steps - len(caption))] for caption in targets]
        said = [[1] * (len(caption) + 1) + [0] * (steps - len(caption) - 1) for caption in targets]
        right = mx.nd.array(padded, ctx=images.context)
        counts = mx.nd.array(said, ctx=images.context)
        memory, keys, h, c = self.encoder(images)
        word, total = mx.nd.full((len(targets),), START, ctx=images.context), 0
        for step in range(steps):
            scores, h, c = self.speaker(word, h, c, memory, keys)
            word = right[:, step]
            total = total + criterion(scores, word) * counts[:, step]
        return total

    def judge(self, result: tuple[list[int], NDArray], target: Any) -> tuple[bool, int]:
        """Return whether all words are right, and how many were said, the end symbol among them."""
        caption, _ = result
        return tuple(caption) == target, min(len(caption) + 1, self.most)

    def paths(self) -> list[int]:
        """Return all numbers of words."""
        return list(range(1, self.most + 1))

    def force(self, path: int) -> None:
        """Say so many words; the end symbol is like any other word."""
        if not 1 <= path <= self.most:
            raise ValueError(f'a caption has 1 to {self.most} words, not {path}')
        self.end, self.longest = -1, path

    def release(self) -> None:
        """Say words until the end symbol, as before `force`."""
        self.end, self.longest = END, self.most
