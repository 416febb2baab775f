"""The BiLSTM tagger over sentences of one length, batched by hand in MXNet.

Batching by hand excels with equal lengths: there are no padding and no masks, all sentences advance
together, and all minibatches have one graph. The rival has two forms. One unrolls the model's own
cells over all words, as DyNet's page does. The other uses MXNet's fused LSTM layer, which
multiplies the inputs of all words together. Both are hybridized with static memory. Checked against
the per-sample model in ``tests/bench/test_benchmark_tagging.py``.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from mxnet import autograd, gluon, nd

from example.tagger.data import Sentence

from ..contexts import context
from .on_gluon import OnGluon

__all__ = ['ManualBiLSTM']


class ManualBiLSTM(OnGluon):
    """A BiLSTM tagger of sentences that all have the same number of words.

    Parameters
    ----------
    net : tagger.model.BiLSTMTagger
        An initialised model, without characters. Its parameters, or copies, become the rival's.
    length : int
        T, the number of words of every sentence.
    fused : bool
        Use `gluon.rnn.LSTM` in the place of the model's own cells.
    optimizer : str
        A name that `gluon.Trainer` knows.
    learning_rate : float
    ctx : str
        ``cpu``, ``gpu`` or ``gpu:N``.
    """

    def __init__(
        self,
        net: gluon.Block,
        length: int,
        fused: bool,
        optimizer: str,
        learning_rate: float,
        ctx: str = 'cpu',
    ):
        self.ctx = context(ctx)
        self.length = length
        self._calls = 2 * len(net.layers) * length
        self.params = net._collect_params_with_prefix()
        if fused:
            self._tagger = _FusedTagger(net, self.ctx)
            self.params.update(self._tagger.copies)
        else:
            self._tagger = _UnrolledTagger(net, length)
        self._criterion = gluon.loss.SoftmaxCrossEntropyLoss()
        for block in (self._tagger, self._criterion):
            block.hybridize(static_alloc=True, static_shape=True)
        self.train(self.params, optimizer, learning_rate)

    def plan(self, samples: Sequence[Sentence]) -> nd.NDArray:
        """Return ids of words, (T, N): a column a sentence."""
        if any(len(sentence) != self.length for sentence in samples):
            raise ValueError(f'sentences of {self.length} words are batched by hand, no others')
        ids = np.array(
            [[token.word for token in sentence.tokens] for sentence in samples], np.float32
        )
        return nd.array(ids.T, ctx=self.ctx)

    def batches(self, plan: nd.NDArray) -> int:
        """Return the number of calls of a cell."""
        return self._calls

    def predict(self, plan: nd.NDArray) -> nd.NDArray:
        """Return scores (T * N, tags), of the first words of all sentences first. Does not wait."""
        return self._tagger(plan)

    def loss(self, plan: nd.NDArray, samples: Sequence[Sentence]) -> nd.NDArray:
        """Return the mean over the sentences of the sum over their words."""
        tags = nd.array(
            np.stack([sentence.tags for sentence in samples]).T.reshape(-1), ctx=self.ctx
        )
        with autograd.record():
            return self._criterion(self._tagger(plan), tags).sum() / len(samples)


class _UnrolledTagger(gluon.HybridBlock):
    """Call the model's own blocks once for a word of all sentences."""

    def __init__(self, net: gluon.Block, length: int):
        super().__init__()
        self.embed, self.scores = net.embed, net.scores
        self._length = length
        self._layers = [(layer.rightward, layer.leftward) for layer in net.layers]
        for cell in chain(*self._layers):
            self.register_child(cell)

    def hybrid_forward(self, F, ids):
        """Return scores for ids (T, N)."""
        values = list(F.split(self.embed(ids), axis=0, num_outputs=self._length, squeeze_axis=True))
        for rightward, leftward in self._layers:
            forth, back = self._unroll(rightward, values), self._unroll(leftward, values[::-1])
            values = [F.concat(*both, dim=1) for both in zip(forth, back[::-1])]
        return self.scores(F.concat(*values, dim=0))

    def _unroll(self, cell: gluon.rnn.LSTMCell, values: Sequence[Any]):
        return cell.unroll(self._length, values, merge_outputs=False)[0]


class _FusedTagger(gluon.HybridBlock):
    """A tagger with all LSTMs in one operator, whose weights are copies of the model's."""

    def __init__(self, net: gluon.Block, ctx):
        super().__init__()
        self.embed, self.scores = net.embed, net.scores
        self.lstm = gluon.rnn.LSTM(
            net.layers[0].rightward._hidden_size,
            len(net.layers),
            bidirectional=True,
            input_size=self.embed.weight.shape[1],
        )
        self.lstm.initialize(ctx=ctx)
        self.copies: dict[str, gluon.Parameter] = {}  # by the place of the original
        for k, layer in enumerate(net.layers):
            for direction, side in (('l', 'rightward'), ('r', 'leftward')):
                for name, original in getattr(layer, side)._reg_params.items():
                    copy = getattr(self.lstm, f'{direction}{k}_{name}')
                    copy.set_data(original.data())
                    self.copies[f'layers.{k}.{side}.{name}'] = copy

    def hybrid_forward(self, F, ids):
        """Return scores for ids (T, N)."""
        return self.scores(F.reshape(self.lstm(self.embed(ids)), shape=(-3, 0)))
