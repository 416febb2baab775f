"""The SICK Tree-LSTM of the examples, written in NumPy mode, with the same parameters."""

from typing import Any

from mxnet import gluon

from example.tree_lstm.model import SICKModel, Similarity
from gluon_edbatch.rnn import ChildSumTreeLSTMCell

__all__ = ['NumPyDivergence', 'NumPySICKModel']


class NumPyCell(ChildSumTreeLSTMCell):
    """`gluon_edbatch.rnn.ChildSumTreeLSTMCell` in NumPy mode."""

    def hybrid_forward(self, F: Any, x: Any, child_h: Any, child_c: Any, **weights: Any) -> Any:
        """Return h and c from x (N, E), child_h and child_c (N, K, H)."""
        np, npx, size = F.np, F.npx, self._hidden_size

        def own(name: str) -> Any:
            weight, bias = (weights[f'i2h_{name}_{kind}'] for kind in ('weight', 'bias'))
            return npx.fully_connected(x, weight, bias, num_hidden=size)

        def inner(name: str, state: Any, **kwargs: Any) -> Any:
            weight = weights[f'h2h_{name}_weight']
            return npx.fully_connected(state, weight, no_bias=True, num_hidden=size, **kwargs)

        h_sum = np.sum(child_h, axis=1)
        i, o = (npx.sigmoid(own(name) + inner(name, h_sum)) for name in 'io')
        u = np.tanh(own('u') + inner('u', h_sum))
        forget = npx.sigmoid(inner('f', child_h, flatten=False) + np.expand_dims(own('f'), axis=1))
        c = i * u + np.sum(forget * child_c, axis=1)
        return o * np.tanh(c), c


class NumPySimilarity(Similarity):
    """`tree_lstm.model.Similarity` in NumPy mode."""

    def hybrid_forward(self, F: Any, left: Any, right: Any) -> Any:
        """Return scores from left, right (N, H)."""
        np, npx = F.np, F.npx
        angle_and_distance = np.concatenate([left * right, np.abs(left - right)], axis=1)
        return npx.log_softmax(self.scores(npx.sigmoid(self.hidden(angle_and_distance))))


class NumPySICKModel(SICKModel):
    """`tree_lstm.model.SICKModel` in NumPy mode."""

    def __init__(
        self, vocab_size: int, embed_dim: int, hidden_size: int, sim_hidden: int, **kwargs: Any
    ):
        super().__init__(vocab_size, embed_dim, hidden_size, sim_hidden, **kwargs)
        with self.tree_lstm.name_scope():
            self.tree_lstm.cell = NumPyCell(hidden_size, input_size=embed_dim)
        with self.name_scope():
            self.similarity = NumPySimilarity(hidden_size, sim_hidden)


class NumPyDivergence(gluon.HybridBlock):
    """`gluon.loss.KLDivLoss`, which MXNet does not have in NumPy mode."""

    def hybrid_forward(self, F: Any, scores: Any, target: Any) -> Any:
        """Return the divergence of scores from target, (N, 5) each."""
        return F.np.sum(target * (F.np.log(target + 1e-12) - scores), axis=1)
