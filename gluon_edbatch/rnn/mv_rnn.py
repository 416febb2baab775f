"""Matrix-vector cell (Socher, Huval, Manning and Ng, 2012: Semantic Compositionality through
Recursive Matrix-Vector Spaces, https://aclanthology.org/D12-1110, eq. 2 and 3)."""

from typing import Any, Optional

from mxnet import gluon

from .children import add_parameters


class MVRNNCell(gluon.HybridBlock):
    """Compose two children, each a vector (its meaning) and a matrix (its effect on others).

    Vectors are rows, as in all of Gluon, so matrices are the transposes of the paper's
    ([1]_, eq. 2 and 3)::

        p = tanh([a B, b A] W^T + bias)
        P = [A, B] W_M^T

    Parameters
    ----------
    hidden_size : int
        H, the length of vectors.
    vector_weight_initializer, matrix_weight_initializer, vector_bias_initializer : str or \
Initializer
        Initializers of W, W_M and the bias.
    prefix, params : optional
        As for all blocks.

    Notes
    -----
    Inputs:

    - **left**, **right**: (a, A) and (b, B); vectors (1, H), matrices (1, H, H)

    Outputs:

    - **p**, **P**: (1, H) and (1, H, H)

    References
    ----------
    .. [1] Socher, Huval, Manning and Ng (2012). Semantic compositionality through recursive
       matrix-vector spaces. https://aclanthology.org/D12-1110
    """

    def __init__(
        self,
        hidden_size: int,
        vector_weight_initializer: Any = None,
        matrix_weight_initializer: Any = None,
        vector_bias_initializer: Any = 'zeros',
        prefix: Optional[str] = None,
        params: Any = None,
    ) -> None:
        super().__init__(prefix=prefix, params=params)
        self._hidden_size = hidden_size
        both = hidden_size, 2 * hidden_size
        add_parameters(self, vector_weight_initializer, vector_weight=both)
        add_parameters(self, vector_bias_initializer, vector_bias=(hidden_size,))
        add_parameters(self, matrix_weight_initializer, matrix_weight=both)

    flattens = True  # `__call__` takes tuples of what `hybrid_forward` takes

    def __call__(self, left: tuple[Any, Any], right: tuple[Any, Any]) -> Any:
        """Return vector and matrix of a node from those of its children."""
        return super().__call__(*left, *right)

    def hybrid_forward(
        self, F: Any, left: Any, left_matrix: Any, right: Any, right_matrix: Any, **weights: Any
    ) -> Any:
        """Compute vectors (N, H) and matrices (N, H, H)."""

        def transformed(vector: Any, matrix: Any) -> Any:
            return F.squeeze(F.batch_dot(F.expand_dims(vector, axis=1), matrix), axis=1)

        size = self._hidden_size
        both = F.concat(transformed(left, right_matrix), transformed(right, left_matrix), dim=1)
        inner = F.FullyConnected(
            both, weights['vector_weight'], weights['vector_bias'], num_hidden=size
        )
        vector = F.Activation(inner, act_type='tanh')
        matrix = F.FullyConnected(
            F.concat(left_matrix, right_matrix, dim=2),
            weights['matrix_weight'],
            no_bias=True,
            num_hidden=size,
            flatten=False,
        )
        return vector, matrix
