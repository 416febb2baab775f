"""Recurrent cells as users write them: a Dense layer for each gate, or one for all and a split.

Each takes and gives arrays of rows; ``row_shapes`` tells those of its arguments. Activations are
``F.tanh`` and ``F.sigmoid``, as in Gluon's own cells.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from mxnet import gluon

__all__ = ['CELLS', 'Cell']


class Gates(gluon.HybridBlock):
    """Apply affine functions to the same arrays: what is inside the activations of some gates.

    Parameters
    ----------
    number, units : int
        Number of gates, and the width of each.
    widths : sequence of int
        Widths of the arrays.
    fused : bool
        Whether there is one layer for each array, whose result is split, or one for each gate and
        array.
    """

    def __init__(self, number: int, units: int, widths: Sequence[int], fused: bool):
        super().__init__()
        self._number, self._fused = number, fused
        self._inputs = len(widths)
        with self.name_scope():
            self.layers = gluon.nn.HybridSequential()
            for _ in range(1 if fused else number):
                for position, width in enumerate(widths):  # one bias a gate
                    self.layers.add(
                        gluon.nn.Dense(
                            number * units if fused else units,
                            use_bias=not position,
                            in_units=width,
                            flatten=False,
                        )
                    )

    def hybrid_forward(self, F, *arrays):
        """Return a list of (N, units)."""
        sums, layers = [], list(self.layers)
        while layers:
            own, layers = layers[: self._inputs], layers[self._inputs :]
            total = own[0](arrays[0])
            for layer, array in zip(own[1:], arrays[1:]):
                total = total + layer(array)
            sums.append(total)
        if not self._fused or self._number == 1:
            return sums
        return list(F.split(sums[0], num_outputs=self._number, axis=1))


class Cell(gluon.HybridBlock):
    """A cell with its gates.

    Parameters
    ----------
    hidden, embed : int
        H and E.
    fused : bool
        See `Gates`.
    """

    # number of gates, and the widths of what they take: h or e
    gates: ClassVar[dict[str, tuple[int, str]]]
    arguments: ClassVar[str]  # each h or e; m for a matrix

    def __init__(self, hidden: int, embed: int, fused: bool):
        super().__init__()
        sizes = {'h': (hidden,), 'e': (embed,), 'm': (hidden, hidden)}
        self.row_shapes: list[tuple[int, ...]] = [sizes[kind] for kind in self.arguments]
        with self.name_scope():
            for name, (number, widths) in self.gates.items():
                setattr(
                    self, name, Gates(number, hidden, [sizes[kind][0] for kind in widths], fused)
                )


class LSTM(Cell):
    gates = {'gates': (4, 'eh')}
    arguments = 'ehh'

    def hybrid_forward(self, F, x, h, c):
        i, f, u, o = self.gates(x, h)
        c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(u)
        return F.sigmoid(o) * F.tanh(c), c


class GRU(Cell):
    gates = {'own': (3, 'e'), 'inner': (3, 'h')}
    arguments = 'eh'

    def hybrid_forward(self, F, x, h):
        own_r, own_z, own_n = self.own(x)
        inner_r, inner_z, inner_n = self.inner(h)
        z = F.sigmoid(own_z + inner_z)
        new = F.tanh(own_n + F.sigmoid(own_r + inner_r) * inner_n)
        return (1 - z) * new + z * h


class TreeLSTMLeaf(Cell):
    gates = {'gates': (3, 'e')}
    arguments = 'e'

    def hybrid_forward(self, F, x):
        i, u, o = self.gates(x)
        c = F.sigmoid(i) * F.tanh(u)
        return F.sigmoid(o) * F.tanh(c), c


class TreeLSTMInner(Cell):
    """A Tree-LSTM cell of an inner node: two children, without an input."""

    gates = {'gates': (5, 'hh')}
    arguments = 'hhhh'

    def hybrid_forward(self, F, left_h, left_c, right_h, right_c):
        i, u, o, left, right = self.gates(left_h, right_h)
        c = F.sigmoid(i) * F.tanh(u) + F.sigmoid(left) * left_c + F.sigmoid(right) * right_c
        return F.sigmoid(o) * F.tanh(c), c


class TreeGRULeaf(Cell):
    gates = {'gates': (2, 'e')}
    arguments = 'e'

    def hybrid_forward(self, F, x):
        z, new = self.gates(x)
        return (1 - F.sigmoid(z)) * F.tanh(new)


class TreeGRUInner(Cell):
    """A Tree-GRU cell of an inner node: two children, without an input."""

    gates = {'gates': (3, 'hh'), 'new': (1, 'hh')}
    arguments = 'hh'

    def hybrid_forward(self, F, left, right):
        z, reset_left, reset_right = self.gates(left, right)
        z = F.sigmoid(z)
        (new,) = self.new(F.sigmoid(reset_left) * left, F.sigmoid(reset_right) * right)
        return (1 - z) * F.tanh(new) + z * (left + right)


class MV(Cell):
    """A matrix-vector cell: two children, a vector and a matrix each."""

    gates = {'vector': (1, 'hh'), 'matrix': (1, 'hh')}
    arguments = 'hmhm'

    def __init__(self, hidden: int, embed: int, fused: bool):
        super().__init__(hidden, embed, fused)
        self._fused = fused
        if fused:  # of the children side by side
            with self.name_scope():
                self.vector = Gates(1, hidden, [2 * hidden], True)
                self.matrix = Gates(1, hidden, [2 * hidden], True)

    def hybrid_forward(self, F, left, left_matrix, right, right_matrix):
        def transformed(vector, matrix):
            return F.squeeze(F.batch_dot(F.expand_dims(vector, axis=1), matrix), axis=1)

        vectors = [transformed(left, right_matrix), transformed(right, left_matrix)]
        matrices = [left_matrix, right_matrix]
        if self._fused:
            vectors, matrices = [F.concat(*vectors, dim=1)], [F.concat(*matrices, dim=2)]
        (vector,) = self.vector(*vectors)
        (matrix,) = self.matrix(*matrices)
        return F.tanh(vector), matrix


CELLS: dict[str, type[Any]] = {
    'lstm': LSTM,
    'gru': GRU,
    'mv': MV,
    'treelstm-leaf': TreeLSTMLeaf,
    'treelstm-inner': TreeLSTMInner,
    'treegru-leaf': TreeGRULeaf,
    'treegru-inner': TreeGRUInner,
}
