"""Tree-GRU cell (child-sum; after Kokkinos and Potamianos, 2017: Structural Attention Neural
Networks for improved sentiment analysis, https://arxiv.org/abs/1701.01811, eq. 1–4)."""

from typing import Any, Optional

from mxnet.ndarray import NDArray

from .children import ChildrenCell, add_parameters, without_input


class TreeGRUCell(ChildrenCell):
    """A gated recurrent unit over the children of a node; any number of them, in no order.

    Follows Kokkinos and Potamianos ([1]_, eq. 1–4). With s the sum of the children's states, and a
    reset gate r_k for every child::

        z   = sigmoid(W_z x + b_z + U_z s)
        r_k = sigmoid(W_r x + b_r + U_r h_k)
        n   = tanh(W_n x + b_n + U_n sum_k(r_k * h_k))
        h   = (1 - z) * n + z * s

    Parameters
    ----------
    hidden_size : int
        H, the length of states.
    input_size : int, default 0
        E, the length of inputs; 0 to infer it at the first call. None for a cell of inner nodes
        without input.
    i2h_weight_initializer, h2h_weight_initializer, i2h_bias_initializer : str or Initializer
        Initializers of the parameters.
    prefix, params : optional
        As for all blocks.

    Notes
    -----
    Inputs:

    - **x**: (1, E), or None for inner nodes without input
    - **children**: list of h, each (1, H); may be empty if there is an input

    Outputs:

    - **h**: (1, H)

    References
    ----------
    .. [1] Kokkinos and Potamianos (2017). Structural attention neural networks for improved
       sentiment analysis. https://arxiv.org/abs/1701.01811
    """

    values_of_child = 1

    def __init__(
        self,
        hidden_size: int,
        input_size: Optional[int] = 0,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = 'zeros',
        prefix: Optional[str] = None,
        params: Any = None,
    ) -> None:
        super().__init__(hidden_size, prefix=prefix, params=params)
        self._takes_input = input_size is not None
        # rows in the order z, n, r
        if input_size is not None:
            add_parameters(self, i2h_weight_initializer, i2h_weight=(3 * hidden_size, input_size))
        add_parameters(self, i2h_bias_initializer, i2h_bias=(3 * hidden_size,))
        square = hidden_size, hidden_size
        add_parameters(
            self, h2h_weight_initializer, **{f'h2h_{name}_weight': square for name in 'zrn'}
        )

    def forward(self, x: Any, children: Any) -> Any:
        """Return h of a node from its input and its children's states.

        Parameters
        ----------
        x : NDArray or None
            (1, E); None without input.
        children : sequence of NDArray
            h of each child, (1, H).

        Returns
        -------
        NDArray
            (1, H).

        Raises
        ------
        ValueError
            If there is neither an input nor children, or an input is given to a cell without.
        """
        if x is not None and not self._takes_input:
            raise ValueError(f'{self.name} was made without input (input_size=None)')
        first = children[0] if isinstance(children, (list, tuple)) and children else None
        if x is None and self._takes_input and self._active and isinstance(first, NDArray):
            x = without_input(self, first)
        return super().forward(x, children)

    forward.recorded = True  # type: ignore[attr-defined]

    def hybrid_forward(self, F: Any, x: Any, child_h: Any, **weights: Any) -> Any:
        """Compute h from x (N, E) or None, and child_h (N, K, H), padded with zeros."""
        size, own = self._hidden_size, weights['i2h_bias']
        if x is not None:
            own = F.FullyConnected(x, weights['i2h_weight'], own, num_hidden=3 * size)
        parts = {
            name: F.slice_axis(own, axis=-1, begin=i * size, end=(i + 1) * size)
            for i, name in enumerate('znr')
        }

        def inner(name: str, state: Any, **kwargs: Any) -> Any:
            weight = weights[f'h2h_{name}_weight']
            if x is None:  # what is left is a bias
                return F.FullyConnected(state, weight, parts[name], num_hidden=size, **kwargs)
            product = F.FullyConnected(state, weight, no_bias=True, num_hidden=size, **kwargs)
            if state is child_h:
                return F.broadcast_add(product, F.expand_dims(parts[name], axis=1))
            return parts[name] + product

        total = F.sum(child_h, axis=1)
        z = F.Activation(inner('z', total), act_type='sigmoid')
        reset = F.Activation(inner('r', child_h, flatten=False), act_type='sigmoid')
        new = F.Activation(inner('n', F.sum(reset * child_h, axis=1)), act_type='tanh')
        return new + z * (total - new)
