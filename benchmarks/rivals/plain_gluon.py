"""The SICK Tree-LSTM one sample at a time in Gluon alone, hybridized: no part of gluon_edbatch.

A user without batching writes a block for leaves and one for inner nodes. Children's states are
stacked, so one compiled graph serves any number of them. The words of a sentence are looked up
together. The example's own model is slower eagerly, as its cell pays for what makes it batchable.
"""

from collections.abc import Sequence
from typing import Any

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, nd

from ..contexts import context
from .on_gluon import OnGluon

__all__ = ['PlainGluon']


class PlainGluon(OnGluon):
    """A child-sum Tree-LSTM with a similarity head, run node by node.

    Parameters
    ----------
    weights : dict of str to numpy.ndarray
        Initial values, as `bench.treelstm_sick.initial_weights` returns them.
    optimizer : str
        A name that `gluon.Trainer` knows.
    learning_rate : float
    ctx : str
        ``cpu``, ``gpu`` or ``gpu:N``.
    """

    stale = True  # a minibatch of single nodes alone uses no U

    def __init__(
        self, weights: dict[str, np.ndarray], optimizer: str, learning_rate: float, ctx: str = 'cpu'
    ):
        self.ctx = context(ctx)
        self.params = gluon.ParameterDict()
        for name, value in weights.items():
            parameter = self.params.get(name, shape=value.shape)
            parameter.initialize(mx.init.Zero(), ctx=self.ctx)
            parameter.set_data(nd.array(value))
        names = ('w', 'b', 'u_iou', 'u_f')
        self._leaf = _Leaf(self.params, names[:2])
        self._inner = _Inner(self.params, names)
        self._compare = _Compare(self.params, ('sim_w', 'sim_b', 'out_w', 'out_b'))
        self._loss = gluon.loss.KLDivLoss(from_logits=True)
        for block in (self._leaf, self._inner, self._compare, self._loss):
            block.hybridize()
        self.train(self.params, optimizer, learning_rate)

    def plan(self, samples: Sequence[Any]) -> Sequence[Any]:
        """Return the samples: there is nothing to plan."""
        return samples

    def batches(self, plan: Sequence[Any]) -> int:
        """Return the number of calls of a block for a node."""
        return sum(len(_tokens(tree)) for pair in plan for tree in (pair.left, pair.right))

    def predict(self, plan: Sequence[Any]) -> list[nd.NDArray]:
        """Return log-probabilities (1, 5) of the scores, for each pair."""
        return [self._compare(self._encode(pair.left), self._encode(pair.right)) for pair in plan]

    def loss(self, plan: Sequence[Any], samples: Sequence[Any]) -> nd.NDArray:
        """Return the mean over the pairs of the divergence from the distribution of their score."""
        with autograd.record():
            losses = [
                self._loss(scores, nd.array(pair.target, ctx=self.ctx))
                for scores, pair in zip(self.predict(plan), samples)
            ]
            return nd.add_n(*losses) / len(losses)

    def _encode(self, tree) -> nd.NDArray:
        """Return h of the root, (1, H)."""
        ids = nd.array(_tokens(tree), dtype='int32', ctx=self.ctx)
        words = nd.take(self.params['embed'].data(), ids)
        return self._visit(tree, iter(range(len(words))), words)[0]

    def _visit(self, tree, rows, words: nd.NDArray):
        """Return h and c of a node; `rows` counts in the order of `_tokens`."""
        row = next(rows)
        x = nd.slice_axis(words, axis=0, begin=row, end=row + 1)
        if not tree.children:
            return self._leaf(x)
        h, c = zip(*[self._visit(child, rows, words) for child in tree.children])
        if len(h) == 1:
            return self._inner(x, h[0], c[0])
        return self._inner(x, nd.concat(*h, dim=0), nd.concat(*c, dim=0))


class _Block(gluon.HybridBlock):
    """A block with some of the model's parameters, under their own names."""

    def __init__(self, parameters: gluon.ParameterDict, names: Sequence[str]):
        super().__init__(prefix='', params=parameters)
        for name in names:
            setattr(self, name, self.params.get(name))


class _Leaf(_Block):
    """Compute h and c (1, H) of a node without children."""

    def hybrid_forward(self, F, x, w, b):
        size = self.b.shape[0] // 4
        own = F.FullyConnected(x, w, b, num_hidden=4 * size)
        return _state(F, own, size)


class _Inner(_Block):
    """Compute h and c (1, H) of a node from its children's h and c (K, H)."""

    def hybrid_forward(self, F, x, h, c, w, b, u_iou, u_f):
        size = self.b.shape[0] // 4
        own = F.FullyConnected(x, w, b, num_hidden=4 * size)
        own_f = F.slice_axis(own, axis=1, begin=3 * size, end=4 * size)
        h_sum = F.sum(h, axis=0, keepdims=True)
        forget = F.Activation(
            F.broadcast_add(F.FullyConnected(h, u_f, no_bias=True, num_hidden=size), own_f),
            act_type='sigmoid',
        )
        iou = F.slice_axis(own, axis=1, begin=0, end=3 * size) + F.FullyConnected(
            h_sum, u_iou, no_bias=True, num_hidden=3 * size
        )
        return _state(F, iou, size, F.sum(forget * c, axis=0, keepdims=True))


class _Compare(_Block):
    """Compute log-probabilities (1, 5) from the h of two roots."""

    def hybrid_forward(self, F, left, right, sim_w, sim_b, out_w, out_b):
        both = F.concat(left * right, F.abs(left - right), dim=1)
        hidden = F.Activation(
            F.FullyConnected(both, sim_w, sim_b, num_hidden=self.sim_b.shape[0]), act_type='sigmoid'
        )
        return F.log_softmax(F.FullyConnected(hidden, out_w, out_b, num_hidden=self.out_b.shape[0]))


def _state(F, sums, size: int, kept=None):
    """Return h and c from the gates' sums, i, o, u in this order."""
    i, o, u = (
        F.Activation(F.slice_axis(sums, axis=1, begin=k * size, end=(k + 1) * size), act_type=kind)
        for k, kind in enumerate(('sigmoid', 'sigmoid', 'tanh'))
    )
    c = i * u if kept is None else i * u + kept
    return o * F.Activation(c, act_type='tanh'), c


def _tokens(tree) -> list[int]:
    """Return word ids of a tree, a node before its children."""
    tokens, waiting = [], [tree]
    while waiting:
        node = waiting.pop()
        tokens.append(node.token)
        waiting.extend(reversed(node.children))
    return tokens
