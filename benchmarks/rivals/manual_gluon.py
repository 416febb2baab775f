"""The SICK Tree-LSTM batched by hand in MXNet Gluon, level by level over the whole minibatch.

The plan is that of the PyTorch rival, with operators that MXNet runs fast on a CPU. There is one
product a gate, as slicing a joint one costs more than it saves, and oneDNN's ``Activation``.
Children are summed by a product with a sparse matrix, as ``sum`` is ten times slower. `_Cuts`
avoids gradients of slices, which fill arrays of the whole size. Checked against a node-by-node
implementation in ``tests/bench/test_benchmark.py``.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Optional

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon, nd

from ..contexts import context
from .levels import Levels, plan_levels
from .on_gluon import OnGluon

__all__ = ['ManualGluon']

GATES = 'iouf'


class _Plan(NamedTuple):
    """A minibatch's levels with their index arrays and child sums in MXNet's memory."""

    levels: Levels
    words: nd.NDArray  # ids to look up: one a node, or the distinct ones
    which: list[nd.NDArray]  # if words are shared: rows of `words` for each part
    leaf_parents: nd.NDArray
    leaf_sum: Any  # CSR (leaves, inner nodes)
    child_parents: list[nd.NDArray]
    child_sums: list[Any]  # CSR (inner nodes of the next level, of this level)
    roots: nd.NDArray


class ManualGluon(OnGluon):
    """A child-sum Tree-LSTM with a similarity head, batched by hand in Gluon.

    Parameters
    ----------
    weights : dict of str to numpy.ndarray
        Initial values, as `bench.treelstm_sick.initial_weights` returns them.
    optimizer : str
        A name that `gluon.Trainer` knows.
    learning_rate : float
    share_words : bool
        Project each distinct word of a minibatch once, instead of once per node.
    ctx : str
        ``cpu``, ``gpu`` or ``gpu:N``.
    """

    stale = True  # a minibatch of single nodes alone uses no U

    def __init__(
        self,
        weights: dict[str, np.ndarray],
        optimizer: str,
        learning_rate: float,
        share_words: bool = False,
        ctx: str = 'cpu',
    ):
        self.ctx = context(ctx)
        self._cuts = _Cuts(False)
        self.hidden = weights['u_f'].shape[0]
        self.share_words = share_words
        self.params = gluon.ParameterDict()
        for name, value in _by_gate(weights, self.hidden).items():
            parameter = self.params.get(name, shape=value.shape)
            parameter.initialize(mx.init.Zero(), ctx=self.ctx)
            parameter.set_data(nd.array(value))
        # Leaves and inner nodes reach U_f in two backward passes.
        self.params['u_f'].grad_req = 'add'
        self.train(self.params, optimizer, learning_rate)

    def plan(self, samples: Sequence[Any]) -> _Plan:
        """Return the samples as arrays of rows, on the device."""
        levels = plan_levels([pair.left for pair in samples] + [pair.right for pair in samples])
        words, which = levels.tokens, []
        if self.share_words:
            n = levels.num_inner
            words, rows = np.unique(words, return_inverse=True)
            which = np.split(rows, [n, n + len(levels.leaf_parents)])
        parents = [level.child_parents for level in levels.levels]
        words, leaf_parents, roots, *rows = _upload(
            [words, levels.leaf_parents, levels.roots] + parents + which, self.ctx
        )
        sums = [
            _child_sum(level.child_parents, level.end - level.begin, self.ctx)
            for level in levels.levels
        ]
        return _Plan(
            levels,
            words,
            rows[len(parents) :],
            leaf_parents,
            _child_sum(levels.leaf_parents, levels.num_inner, self.ctx),
            rows[: len(parents)],
            sums,
            roots,
        )

    def batches(self, plan: _Plan) -> int:
        """Return the number of levels of inner nodes, and the leaves."""
        return len(plan.levels.levels) + 1

    def predict(self, plan: _Plan) -> nd.NDArray:
        """Return log-probabilities (pairs, 5) of the scores. Does not wait."""
        return self._scores(plan, _Cuts(False))

    def loss(self, plan: _Plan, samples: Sequence[Any]) -> nd.NDArray:
        """Return the mean over the pairs of the divergence from the distribution of their score."""
        target = nd.array(np.concatenate([pair.target for pair in samples]), ctx=self.ctx)
        self._cuts = _Cuts(True)
        scores = self._scores(plan, self._cuts)
        with autograd.record():  # the terms of `gluon.loss.KLDivLoss`, summed over classes
            return nd.sum(target * (nd.log(target + 1e-12) - scores)) / len(samples)

    def backward(self, loss: nd.NDArray) -> None:
        """Compute gradients of all parameters."""
        self.params['u_f'].zero_grad()
        super().backward(loss)
        self._cuts.backward()

    def _scores(self, plan: _Plan, cuts: '_Cuts') -> nd.NDArray:
        """Return log-probabilities (pairs, 5) of the scores."""
        roots = self._encode(plan, cuts)
        with cuts.tape():
            half = len(roots) // 2
            left = nd.slice_axis(roots, axis=0, begin=0, end=half)
            right = nd.slice_axis(roots, axis=0, begin=half, end=2 * half)
            both = nd.concat(left * right, nd.abs(left - right), dim=1)
            hidden = _sigmoid(self._dense(both, 'sim_w', 'sim_b'))
            return nd.log_softmax(self._dense(hidden, 'out_w', 'out_b'))

    def gradients(self) -> dict[str, np.ndarray]:
        """Return gradients of the last backward pass under the names of ``weights``."""
        return _joined(super().gradients())

    def _dense(self, x: nd.NDArray, weight: str, bias: str = '') -> nd.NDArray:
        w = self.params[weight].data()
        b = [self.params[bias].data()] if bias else []
        return nd.FullyConnected(x, w, *b, no_bias=not bias, num_hidden=w.shape[0])

    def _projections(self, plan: _Plan, cuts: '_Cuts') -> list[dict[str, nd.NDArray]]:
        """Return the words' part of each gate: of inner nodes, of leaves, of leaves that are
        trees."""
        with cuts.tape():
            words = nd.take(self.params['embed'].data(), plan.words)
        if plan.which:
            with cuts.tape():
                shared = {g: self._dense(words, 'w_' + g, 'b_' + g) for g in GATES}
                return [
                    {g: nd.take(shared[g], rows) for g in gates if rows is not None}
                    for rows, gates in zip(plan.which, (GATES, 'iou', 'iou'))
                ]
        n = plan.levels.num_inner
        bounds = [0, n, n + len(plan.levels.leaf_parents), len(plan.levels.tokens)]
        (parts,) = cuts.rows([(words, bounds)], all_read=True)
        with cuts.tape():
            return [
                {g: self._dense(x, 'w_' + g, 'b_' + g) for g in gates if x is not None}
                for x, gates in zip(parts, (GATES, 'iou', 'iou'))
            ]

    def _encode(self, plan: _Plan, cuts: '_Cuts') -> nd.NDArray:
        """Return h of every root, (trees, H)."""
        inner, leaf, lone = self._projections(plan, cuts)
        ends = {}
        with cuts.tape():  # leaves: no state comes in, so neither U nor the forget gate
            if inner:
                h, c = _state(leaf['i'], leaf['o'], leaf['u'])
                forget = _sigmoid(nd.take(inner['f'], plan.leaf_parents) + self._dense(h, 'u_f'))
                inner['h'] = _sum_children(plan.leaf_sum, h)
                inner['c'] = _sum_children(plan.leaf_sum, forget * c)
                bounds = [0] + [level.end for level in plan.levels.levels]
                ends = {name: (x, bounds) for name, x in inner.items()}
            if lone:
                ends['lone'] = _state(lone['i'], lone['o'], lone['u'])[0], [0, len(lone['i'])]
        # One cut for all: a second backward pass would overwrite the gradients of the first.
        # Not all is read: nothing asks for the forget gates of the deepest level.
        parts = dict(zip(ends, cuts.rows(ends.values())))
        with cuts.tape():
            tops = [self._climb(plan, parts)] if inner else []
            tops += parts.get('lone', [])
            return nd.take(nd.concat(*tops, dim=0) if len(tops) > 1 else tops[0], plan.roots)

    def _climb(self, plan: _Plan, parts: dict[str, list[nd.NDArray]]) -> nd.NDArray:
        """Compute from the deepest level to the roots; return h of the first level's inner
        nodes."""
        h = c = None
        for k in reversed(range(len(plan.levels.levels))):
            h_sum, c_sum = parts['h'][k], parts['c'][k]
            if h is not None:
                forget = _sigmoid(
                    nd.take(parts['f'][k], plan.child_parents[k]) + self._dense(h, 'u_f')
                )
                h_sum = h_sum + _sum_children(plan.child_sums[k], h)
                c_sum = c_sum + _sum_children(plan.child_sums[k], forget * c)
            h, c = _state(*(parts[g][k] + self._dense(h_sum, 'u_' + g) for g in 'iou'), c_sum)
        return h


class _Cuts:
    """Cut rows of arrays into separate variables, whose gradients are written in place.

    The gradient of a slice is an array of the whole size, filled with zeros but for some rows; with
    ten slices this costs more than the products. Instead the tape ends at the arrays, and their
    rows are views that are variables of the next tape. Gradients are views, too, of arrays from
    which the first tape continues.
    """

    def __init__(self, training: bool):
        self.training = training
        self._ends: list[tuple[list[nd.NDArray], list[nd.NDArray]]] = []

    def tape(self):
        """Return a scope that records where gradients are wanted."""
        return autograd.record() if self.training else autograd.pause()

    def rows(
        self, ends: Iterable[tuple[nd.NDArray, Sequence[int]]], all_read: bool = False
    ) -> list[list[Optional[nd.NDArray]]]:
        """Return, for each array and its bounds, views of rows ``bounds[k]:bounds[k + 1]``, or
        None.

        With `all_read` every row gets a gradient, so gradients are not cleared first.
        """
        ends = list(ends)
        if not self.training:
            return [_views(array, bounds) for array, bounds in ends]
        make = nd.empty if all_read else nd.zeros
        gradients = [make(array.shape, ctx=array.ctx, dtype=array.dtype) for array, _ in ends]
        views = [_views(array.detach(), bounds) for array, bounds in ends]
        places = [_views(gradient, bounds) for gradient, (_, bounds) in zip(gradients, ends)]
        autograd.mark_variables(
            *(
                [view for row in rows for view in row if view is not None]
                for rows in (views, places)
            ),
            grad_reqs='write',
        )
        self._ends.append(([array for array, _ in ends], gradients))
        return views

    def backward(self) -> None:
        """Continue the backward pass from the rows to the arrays, last cut first."""
        for arrays, gradients in reversed(self._ends):
            autograd.backward(arrays, gradients)


def _views(array: nd.NDArray, bounds: Sequence[int]) -> list[Optional[nd.NDArray]]:
    return [array[a:b] if b > a else None for a, b in zip(bounds[:-1], bounds[1:])]


def _sigmoid(x: nd.NDArray) -> nd.NDArray:
    return nd.Activation(x, act_type='sigmoid')


def _tanh(x: nd.NDArray) -> nd.NDArray:
    return nd.Activation(x, act_type='tanh')


def _state(i: nd.NDArray, o: nd.NDArray, u: nd.NDArray, kept: Optional[nd.NDArray] = None):
    """Return h and c from the gates' sums and what the forget gates kept of the children."""
    c = _sigmoid(i) * _tanh(u)
    if kept is not None:
        c = c + kept
    return _sigmoid(o) * _tanh(c), c


def _upload(arrays: Sequence[np.ndarray], ctx: mx.Context) -> list[nd.NDArray]:
    """Return index arrays on the device, in one copy."""
    bounds = np.cumsum([0] + [len(array) for array in arrays]).tolist()
    return _views(nd.array(np.concatenate(arrays), dtype='int32', ctx=ctx), bounds)


def _child_sum(parents: np.ndarray, num_parents: int, ctx: mx.Context):
    """Return a sparse (children, parents) matrix of ones: its transpose sums children."""
    if not len(parents):
        return None
    return mx.nd.sparse.csr_matrix(
        (np.ones(len(parents), np.float32), parents, np.arange(len(parents) + 1)),
        shape=(len(parents), num_parents),
        ctx=ctx,
    )


def _sum_children(matrix, x: nd.NDArray) -> nd.NDArray:
    return nd.sparse.dot(matrix, x, transpose_a=True, forward_stype='default')


def _by_gate(weights: dict[str, np.ndarray], hidden: int) -> dict[str, np.ndarray]:
    """Return ``w``, ``b`` and ``u_iou`` as one array a gate."""
    apart = {name: value for name, value in weights.items() if name not in ('w', 'b', 'u_iou')}
    for k, gate in enumerate(GATES):
        rows = slice(k * hidden, (k + 1) * hidden)
        apart['w_' + gate], apart['b_' + gate] = weights['w'][rows], weights['b'][rows]
        if gate != 'f':
            apart['u_' + gate] = weights['u_iou'][rows]
    return apart


def _joined(apart: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the inverse of `_by_gate`."""
    gates = {f'{kind}_{gate}' for kind in 'wbu' for gate in 'iou'} | {'w_f', 'b_f'}
    joined = {name: value for name, value in apart.items() if name not in gates}
    for kind in 'wb':
        joined[kind] = np.concatenate([apart[f'{kind}_{gate}'] for gate in GATES])
    joined['u_iou'] = np.concatenate([apart['u_' + gate] for gate in 'iou'])
    return joined
