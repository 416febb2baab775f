"""Tree-GRU cell (child-sum; after Kokkinos and Potamianos, 2017: Structural Attention Neural
Networks for improved sentiment analysis, https://arxiv.org/abs/1701.01811, eq. 1–4)."""
from typing import Any, Sequence

from mxnet import gluon

from ..functional import ragged


class TreeGRUCell(gluon.HybridBlock):
    """Gated recurrent unit over the children of a node; any number of them, in no order.

    With s the sum of the children's states and every child its own reset gate r_k::

        z   = sigmoid(W_z x + b_z + U_z s)
        r_k = sigmoid(W_r x + b_r + U_r h_k)
        n   = tanh(W_n x + b_n + U_n sum_k(r_k * h_k))
        h   = (1 - z) * n + z * s

    Parameters
    ----------
    hidden_size : int
        H
    input_size : int, default 0
        E; 0 to find out at the first call.
    i2h_weight_initializer, h2h_weight_initializer, i2h_bias_initializer : str or Initializer
        Of the parameters.

    Inputs
        - **x**: (1, E)
        - **children**: list of h, each (1, H); may be empty

    Outputs
        - **h**: (1, H)
    """

    def __init__(self, hidden_size: int, input_size: int = 0, i2h_weight_initializer: Any = None,
                 h2h_weight_initializer: Any = None, i2h_bias_initializer: Any = 'zeros',
                 prefix=None, params=None):
        super().__init__(prefix=prefix, params=params)
        self._hidden_size = hidden_size
        self._state_shape = (1, hidden_size)
        with self.name_scope():
            # rows in the order z, n, r
            self.i2h_weight = self.params.get(
                'i2h_weight', shape=(3 * hidden_size, input_size), init=i2h_weight_initializer,
                allow_deferred_init=True)
            self.i2h_bias = self.params.get(
                'i2h_bias', shape=(3 * hidden_size,), init=i2h_bias_initializer)
            for name in 'zrn':
                setattr(self, f'h2h_{name}_weight', self.params.get(
                    f'h2h_{name}_weight', shape=(hidden_size, hidden_size),
                    init=h2h_weight_initializer))

    def __call__(self, x, children: Sequence[Any]):
        """h of a node from its input and its children's states."""
        return super().__call__(x, ragged(children, self._state_shape, x.dtype, x.ctx))

    def hybrid_forward(self, F, x, child_h, i2h_weight, i2h_bias, h2h_z_weight, h2h_r_weight,
                       h2h_n_weight):
        """x (N, E), child_h (N, K, H), padded with zeros."""
        size = self._hidden_size
        own = F.FullyConnected(x, i2h_weight, i2h_bias, num_hidden=3 * size)
        own_z, own_n, own_r = (F.slice_axis(own, axis=-1, begin=i * size, end=(i + 1) * size)
                               for i in range(3))
        total = F.sum(child_h, axis=1)
        z = F.Activation(own_z + F.FullyConnected(
            total, h2h_z_weight, no_bias=True, num_hidden=size), act_type='sigmoid')
        reset = F.Activation(F.broadcast_add(
            F.FullyConnected(child_h, h2h_r_weight, no_bias=True, num_hidden=size,
                             flatten=False),
            F.expand_dims(own_r, axis=1)), act_type='sigmoid')
        new = F.Activation(own_n + F.FullyConnected(
            F.sum(reset * child_h, axis=1), h2h_n_weight, no_bias=True, num_hidden=size),
            act_type='tanh')
        return new + z * (total - new)
