"""The SICK Tree-LSTM batched by hand in PyTorch, level by level over the whole minibatch.

A careful engineer writes this in a day: words projected in one product, leaves as one batch,
children summed with ``index_add``, one fused ``addmm`` a level. There is no padding, and no loop
over nodes outside `plan_levels`. Checked against a node-by-node implementation in
``tests/bench/test_benchmark.py``.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import numpy as np
import torch
from torch.nn import functional as F

from .levels import Levels, plan_levels
from .on_torch import OnTorch

__all__ = ['ManualTorch']


class _Plan(NamedTuple):
    """A minibatch's levels with their index arrays on the device."""

    levels: Levels
    tokens: torch.Tensor
    leaf_parents: torch.Tensor
    child_parents: list[torch.Tensor]
    roots: torch.Tensor


class ManualTorch(OnTorch):
    """A child-sum Tree-LSTM with a similarity head, batched by hand in PyTorch.

    Parameters
    ----------
    weights : dict of str to numpy.ndarray
        Initial values, as `bench.treelstm_sick.initial_weights` returns them.
    optimizer : str
        ``sgd``, ``adagrad`` or ``adam``.
    learning_rate : float
    share_words : bool
        Project each distinct word of a minibatch once, instead of once per node.
    ctx : str
        ``cpu``, ``gpu`` or ``gpu:N``.
    """

    def __init__(
        self,
        weights: dict[str, np.ndarray],
        optimizer: str,
        learning_rate: float,
        share_words: bool = False,
        ctx: str = 'cpu',
    ):
        super().__init__(ctx)
        self.weights = {
            name: torch.tensor(value, device=self.device, requires_grad=True)
            for name, value in weights.items()
        }
        self.hidden = weights['u_f'].shape[0]
        self.share_words = share_words
        self.train(self.weights, optimizer, learning_rate)

    def plan(self, samples: Sequence[Any]) -> '_Plan':
        """Return the samples as arrays of rows, on the device."""
        levels = plan_levels([pair.left for pair in samples] + [pair.right for pair in samples])
        return _Plan(
            levels,
            self._upload(levels.tokens),
            self._upload(levels.leaf_parents),
            [self._upload(level.child_parents) for level in levels.levels],
            self._upload(levels.roots),
        )

    def batches(self, plan: '_Plan') -> int:
        """Return the number of levels of inner nodes, and the leaves."""
        return len(plan.levels.levels) + 1

    def predict(self, plan: '_Plan') -> torch.Tensor:
        """Return log-probabilities (pairs, 5) of the scores."""
        with torch.inference_mode():
            return self._scores(plan)

    def loss(self, plan: '_Plan', samples: Sequence[Any]) -> torch.Tensor:
        """Return the mean over the pairs of the divergence from the distribution of their score."""
        target = self._upload(np.concatenate([pair.target for pair in samples]))
        return F.kl_div(self._scores(plan), target, reduction='batchmean')

    def gradients(self) -> dict[str, np.ndarray]:
        """Return gradients of the last backward pass under the names of ``weights``."""
        return {
            name: (torch.zeros_like(value) if value.grad is None else value.grad).cpu().numpy()
            for name, value in self.weights.items()
        }

    def _upload(self, array: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device)

    def _scores(self, plan: '_Plan') -> torch.Tensor:
        w = self.weights
        left, right = self._encode(plan).chunk(2, 0)
        both = torch.cat([left * right, (left - right).abs()], 1)
        hidden = torch.sigmoid(F.linear(both, w['sim_w'], w['sim_b']))
        return F.log_softmax(F.linear(hidden, w['out_w'], w['out_b']), 1)

    def _project(self, tokens: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        embed = self.weights['embed']
        if not self.share_words:
            return F.linear(F.embedding(tokens, embed), w, b)
        words, which = torch.unique(tokens, return_inverse=True)
        return F.embedding(which, F.linear(F.embedding(words, embed), w, b))

    def _encode(self, plan: '_Plan') -> torch.Tensor:
        """Return h of every root, (trees, H)."""
        w, H, n = self.weights, self.hidden, plan.levels.num_inner
        tokens, leaf_parents = plan.tokens, plan.leaf_parents
        attached = len(leaf_parents)

        # Leaves: no state comes in, so neither U nor the forget gate.
        leaf_h, leaf_c = _state(self._project(tokens[n:], w['w'][: 3 * H], w['b'][: 3 * H]))
        lone = leaf_h[attached:]
        leaf_h, leaf_c = leaf_h[:attached], leaf_c[:attached]
        if n == 0:
            return lone.index_select(0, plan.roots)

        projected = self._project(tokens[:n], w['w'], w['b'])
        own_iou, own_f = projected.split([3 * H, H], 1)
        forget = torch.sigmoid(
            torch.addmm(own_f.index_select(0, leaf_parents), leaf_h, w['u_f'].t())
        )
        h_sum = leaf_h.new_zeros(n, H).index_add(0, leaf_parents, leaf_h)
        c_sum = leaf_h.new_zeros(n, H).index_add(0, leaf_parents, forget * leaf_c)

        # split, not slices: its gradient is one concatenation instead of one padding a level.
        sizes = [level.end - level.begin for level in plan.levels.levels]
        parts = list(
            zip(plan.child_parents, *(x.split(sizes) for x in (own_iou, own_f, h_sum, c_sum)))
        )
        h = c = None
        for parents, iou, f, h_sum, c_sum in reversed(parts):
            if h is not None:
                forget = torch.sigmoid(torch.addmm(f.index_select(0, parents), h, w['u_f'].t()))
                h_sum = h_sum.index_add(0, parents, h)
                c_sum = c_sum.index_add(0, parents, forget * c)
            h, c = _state(torch.addmm(iou, h_sum, w['u_iou'].t()), c_sum)
        return torch.cat([h, lone]).index_select(0, plan.roots)


def _state(iou: torch.Tensor, kept: Optional[torch.Tensor] = None):
    """Return h and c from the gates' sums (rows, 3H) and what the forget gates kept of the
    children."""
    i, o, u = iou.chunk(3, 1)
    c = torch.sigmoid(i) * torch.tanh(u)
    if kept is not None:
        c = c + kept
    return torch.sigmoid(o) * torch.tanh(c), c
