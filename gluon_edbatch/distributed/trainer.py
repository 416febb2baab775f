"""A `gluon.Trainer` that sums gradients over all workers."""

from collections.abc import Sequence
from typing import Any, Optional

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.ndarray import NDArray

from gluon_edbatch_core.errors import DistributedError

from ..mx.parameters import arrays_of, has_new_gradient, note_new_gradient
from ..mx.pool import rounded
from .workers import Workers


class Trainer(gluon.Trainer):
    """Update parameters with gradients that are summed over all workers of a job.

    Servers sum gradients, and each worker updates with the same sums. ``lr_mult``, learning-rate
    schedules, `save_states` and AMP work as in one process, unlike in MXNet's distributed trainer.

    Parameters
    ----------
    params : ParameterDict, or list of Parameter
        The parameters to update, as for `gluon.Trainer`.
    optimizer : str or mxnet.optimizer.Optimizer
        The optimizer, equal on all workers.
    optimizer_params : dict, optional
        Arguments of the optimizer, if it is given by name.
    workers : Workers
        The workers of the job. All take the parameters of rank 0, now, or at the first step if
        shapes are not known yet.

    Raises
    ------
    DistributedError
        If there are several workers and a parameter is float64: sums are float32.

    Notes
    -----
    Gradients are summed, not averaged: divide losses by the samples of *all* workers in a step, or
    give `step` that number. Row_sparse gradients exchange only rows that some worker has.
    """

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: Optional[dict] = None,
        *,
        workers: Workers,
    ):
        super().__init__(params, optimizer, optimizer_params, kvstore=None)
        for parameter in self._params if workers.size > 1 else ():
            if np.dtype(parameter.dtype) == np.float64:
                raise DistributedError(
                    f'parameter {parameter.name} is float64, and gradients of several workers are '
                    "added up in float32: net.cast('float32')"
                )
        self._workers = workers
        self._unshared: list[gluon.Parameter] = list(self._params)
        self._share()

    def step(self, batch_size: int, ignore_stale_grad: bool = False) -> None:
        """Sum gradients over all workers and update parameters; as `gluon.Trainer.step`.

        Parameters
        ----------
        batch_size : int
            Divisor of summed gradients: the number of samples of *all* workers in this step, if
            losses are sums over samples.
        ignore_stale_grad : bool, default False
            Whether backward may have left out parameters: see `allreduce_grads`, and what that
            raises.
        """
        self.allreduce_grads(ignore_stale_grad)
        self.update(batch_size, ignore_stale_grad)

    def allreduce_grads(self, ignore_stale_grad: bool = False) -> None:
        """Sum gradients over contexts and workers.

        Parameters
        ----------
        ignore_stale_grad : bool, default False
            Whether backward may have left out parameters. Then only parameters with a new gradient
            on some worker are updated. Otherwise `update` raises a `UserWarning` for the others, as
            Gluon does.

        Raises
        ------
        DistributedError
            If a parameter with a row_sparse gradient is on several contexts.
        """
        self._share()
        parameters = [each for each in self._params if each.grad_req != 'null']
        if self._workers.size == 1 and len(self._contexts) == 1:
            return
        dense = [each for each in parameters if each.list_grad()[0].stype == 'default']
        sparse = [each for each in parameters if each.list_grad()[0].stype != 'default']
        if sparse and len(self._contexts) > 1:
            raise DistributedError(
                f'parameter {sparse[0].name} has a row_sparse gradient: use one context a process'
            )
        if sparse:
            self._add_up_rows(sparse, ignore_stale_grad)
        if dense:
            self._add_up_dense(dense, ignore_stale_grad)

    def _share(self) -> None:
        """Copy the parameters of rank 0 to all workers."""
        ready = [each for each in self._unshared if arrays_of(each)]
        self._unshared = [each for each in self._unshared if not arrays_of(each)]
        if self._workers.size == 1 or not ready:
            return
        own = [each.list_data()[0] for each in ready]
        if self._workers.rank:
            own = [mx.nd.zeros_like(array) for array in own]
        for parameter, value in zip(ready, self._workers.sum(own)):
            parameter.set_data(value.astype(parameter.dtype))

    def _add_up_dense(self, parameters: Sequence[gluon.Parameter], stale: bool) -> None:
        """Sum dense gradients; if some may be `stale`, also count workers with a new gradient."""
        gradients = [_local_sum(each) for each in parameters]
        met = np.array([has_new_gradient(each) for each in parameters], np.float32)
        if stale:
            *sums, counts = self._workers.sum([*gradients, mx.nd.array(met)])
            met = counts.asnumpy()
        else:
            sums, met = self._workers.sum(gradients), np.ones_like(met)
        for parameter, total, count in zip(parameters, sums, met):
            if count:
                for gradient in parameter.list_grad():
                    gradient[:] = total.as_in_context(gradient.context)
                if stale:  # else Gluon tells of those that backward has left out here
                    note_new_gradient(parameter)

    def _add_up_rows(self, parameters: Sequence[gluon.Parameter], stale: bool) -> None:
        """Sum row_sparse gradients: exchange which rows workers have, then the rows themselves."""
        own = [_rows(each) for each in parameters]
        marks = [np.bincount(ids, minlength=each.shape[0]) for each, ids in zip(parameters, own)]
        ends = np.cumsum([len(each) for each in marks])[:-1]
        counts = np.split(self._workers.sum_numbers(np.concatenate(marks)), ends)
        met = [np.flatnonzero(each) for each in counts]
        parts = [
            _spread(each.list_grad()[0], np.searchsorted(union, ids), rounded(max(1, len(union))))
            for each, ids, union in zip(parameters, own, met)
        ]
        for parameter, union, total in zip(parameters, met, self._workers.sum(parts)):
            if len(union):
                gradient = parameter.list_grad()[0]
                values = total[: len(union)].astype(gradient.dtype)
                mx.nd.sparse.row_sparse_array(
                    (values, mx.nd.array(union, dtype=np.int64)), shape=gradient.shape
                ).copyto(gradient)
                if stale:
                    note_new_gradient(parameter)


def _local_sum(parameter: gluon.Parameter) -> NDArray:
    """Return the gradient summed over this process' contexts; zeros if backward left it out."""
    gradients = parameter.list_grad()
    if not has_new_gradient(parameter):
        return mx.nd.zeros_like(gradients[0])
    first = gradients[0].context
    return mx.nd.add_n(*[gradient.as_in_context(first) for gradient in gradients])


def _rows(parameter: gluon.Parameter) -> np.ndarray:
    """Return ids of the rows of a parameter's gradient; none if backward left it out."""
    if not has_new_gradient(parameter):
        return np.zeros(0, np.int64)
    return parameter.list_grad()[0].indices.asnumpy()


def _spread(gradient: NDArray, places: np.ndarray, count: int) -> NDArray:
    """Return rows of a row_sparse gradient at their places among `count`, with zeros in between."""
    shape = (count, *gradient.shape[1:])
    if not len(places):
        return mx.nd.zeros(shape, gradient.context, dtype=gradient.dtype)
    at = mx.nd.array(places[np.newaxis], gradient.context, dtype=np.int64)
    return mx.nd.scatter_nd(gradient.data, at, shape=shape)
