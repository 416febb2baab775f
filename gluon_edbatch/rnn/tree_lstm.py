"""Tree-LSTM cells (Tai, Socher and Manning, 2015: Improved Semantic Representations From
Tree-Structured Long Short-Term Memory Networks, https://arxiv.org/abs/1503.00075).

The cells use operators that are fast on CPU: ``Activation`` rather than ``tanh`` and ``sigmoid``,
slices rather than ``split``, and one product for all gates.
"""

from collections.abc import Sequence
from typing import Any, Optional

import mxnet as mx
from mxnet import gluon
from mxnet.ndarray import NDArray

from .children import ChildrenCell, add_parameters, without_input


def gate(F: Any, x: Any, index: int, size: int, activation: str) -> Any:
    """Return the activation of the `index`-th block of `size` columns of `x`."""
    part = F.slice_axis(x, axis=-1, begin=index * size, end=(index + 1) * size)
    return F.Activation(part, act_type=activation)


class ChildSumTreeLSTMCell(ChildrenCell):
    """Child-sum Tree-LSTM cell: any number of children, in no order (Tai et al. [1]_, eq. 2–8).

    Parameters
    ----------
    hidden_size : int
        H, the length of states.
    input_size : int, default 0
        E, the length of inputs; 0 to infer it at the first call.
    i2h_weight_initializer, h2h_weight_initializer, i2h_bias_initializer : str or Initializer
        Initializers of the parameters.
    prefix, params : optional
        As for all blocks.

    Notes
    -----
    Inputs:

    - **x**: (1, E), of the dtype of the parameters; inner nodes without input are given zeros
    - **children**: list of (h, c), each (1, H); may be empty

    Outputs:

    - **h**, **c**: (1, H)

    References
    ----------
    .. [1] Tai, Socher and Manning (2015). Improved semantic representations from tree-structured
       long short-term memory networks. https://arxiv.org/abs/1503.00075

    Examples
    --------
    >>> cell = edb.rnn.ChildSumTreeLSTMCell(hidden_size=8)
    >>> cell.initialize()
    >>> leaf = cell(word, [])   # h and c
    >>> h, c = cell(word, [leaf, leaf])   # (1, 8) each
    """

    values_of_child = 2  # h and c

    def __init__(
        self,
        hidden_size: int,
        input_size: int = 0,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = 'zeros',
        prefix: Optional[str] = None,
        params: Any = None,
    ) -> None:
        super().__init__(hidden_size, prefix=prefix, params=params)
        # One weight a gate: slices of a common product would cost more than they save.
        for name in 'iouf':
            for part, init, shape in (
                ('i2h_{}_weight', i2h_weight_initializer, (hidden_size, input_size)),
                ('i2h_{}_bias', i2h_bias_initializer, (hidden_size,)),
                ('h2h_{}_weight', h2h_weight_initializer, (hidden_size, hidden_size)),
            ):
                add_parameters(self, init, **{part.format(name): shape})

    def hybrid_forward(self, F: Any, x: Any, child_h: Any, child_c: Any, **weights: Any) -> Any:
        """Compute h and c from x (N, E), child_h and child_c (N, K, H), padded with zeros."""
        size = self._hidden_size

        def own(name: str) -> Any:
            return F.FullyConnected(
                x, weights[f'i2h_{name}_weight'], weights[f'i2h_{name}_bias'], num_hidden=size
            )

        def inner(name: str, state: Any, **kwargs: Any) -> Any:
            return F.FullyConnected(
                state, weights[f'h2h_{name}_weight'], no_bias=True, num_hidden=size, **kwargs
            )

        h_sum = F.sum(child_h, axis=1)
        i, o = (F.Activation(own(name) + inner(name, h_sum), act_type='sigmoid') for name in 'io')
        u = F.Activation(own('u') + inner('u', h_sum), act_type='tanh')
        forget = F.Activation(
            F.broadcast_add(inner('f', child_h, flatten=False), F.expand_dims(own('f'), axis=1)),
            act_type='sigmoid',
        )
        c = i * u + F.sum(forget * child_c, axis=1)
        return o * F.Activation(c, act_type='tanh'), c


class NaryTreeLSTMCell(gluon.HybridBlock):
    """N-ary Tree-LSTM cell: a fixed number of children in order (Tai et al. [1]_, eq. 9–14).

    Parameters
    ----------
    hidden_size : int
        H, the length of states.
    arity : int, default 2
        Number of children.
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
    - **children**: list of `arity` pairs (h, c), each (1, H), or none at a leaf

    Outputs:

    - **h**, **c**: (1, H)

    References
    ----------
    .. [1] Tai, Socher and Manning (2015). Improved semantic representations from tree-structured
       long short-term memory networks. https://arxiv.org/abs/1503.00075
    """

    def __init__(
        self,
        hidden_size: int,
        arity: int = 2,
        input_size: Optional[int] = 0,
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = 'zeros',
        prefix: Optional[str] = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._hidden_size = hidden_size
        self._arity = arity
        self._takes_input = input_size is not None
        rows = (3 + arity) * hidden_size  # in the order i, o, u, f of child 1, f of child 2, …
        if input_size is not None:
            add_parameters(self, i2h_weight_initializer, i2h_weight=(rows, input_size))
        add_parameters(self, i2h_bias_initializer, i2h_bias=(rows,))
        add_parameters(self, h2h_weight_initializer, h2h_weight=(rows, arity * hidden_size))

    def forward(self, x: Any, children: Sequence[tuple[Any, Any]]) -> Any:
        """Return h and c of a node from its input and its children's states.

        Parameters
        ----------
        x : NDArray or None
            (1, E); None without input.
        children : sequence of (NDArray, NDArray)
            h and c of each child, (1, H).

        Returns
        -------
        h, c : NDArray
            (1, H).

        Raises
        ------
        ValueError
            If there are neither `arity` children nor none, there is neither an input nor children,
            or an input is given to a cell without.
        """
        if len(children) not in (0, self._arity):
            raise ValueError(
                f'{self.name} takes {self._arity} children or none, not {len(children)}'
            )
        if x is None and not children:
            raise ValueError(f'{self.name} needs an input or children')
        if x is not None and not self._takes_input:
            raise ValueError(f'{self.name} was made without input (input_size=None)')
        if self._active:
            x, children = self._filled(x, children)
        return super().forward(x, children)

    forward.recorded = True  # type: ignore[attr-defined]

    def _filled(self, x: Any, children: Any) -> tuple[Any, Any]:
        """Return zeros for missing arguments, which change nothing: a graph that Gluon has compiled
        takes one structure of arguments only."""
        like = children[0][0] if x is None else x
        if not isinstance(like, NDArray):
            return x, children
        if x is None and self._takes_input:
            x = without_input(self, like)
        if not children:
            state = mx.nd.zeros((like.shape[0], self._hidden_size), like.ctx, like.dtype)
            children = [(state, state)] * self._arity
        return x, children

    def hybrid_forward(self, F: Any, x: Any, children: Any, **weights: Any) -> Any:
        """Compute h and c from x (N, E) or None, and children, pairs of (N, H)."""
        size, gates = self._hidden_size, (3 + self._arity) * self._hidden_size
        bias, weight, total = weights['i2h_bias'], weights['h2h_weight'], None
        if x is not None:
            total = F.FullyConnected(x, weights['i2h_weight'], bias, num_hidden=gates)
        if children:
            child_h = [h for h, _ in children]
            inner = F.concat(*child_h, dim=1) if len(child_h) > 1 else child_h[0]
            if total is None:
                total = F.FullyConnected(inner, weight, bias, num_hidden=gates)
            else:
                total = total + F.FullyConnected(inner, weight, no_bias=True, num_hidden=gates)
        c = gate(F, total, 0, size, 'sigmoid') * gate(F, total, 2, size, 'tanh')
        for child, (_, child_state) in enumerate(children):
            c = c + gate(F, total, 3 + child, size, 'sigmoid') * child_state
        return gate(F, total, 1, size, 'sigmoid') * F.Activation(c, act_type='tanh'), c
