"""Let `gluon.contrib.estimator.Estimator` train on minibatches that are lists of samples."""

from collections.abc import Sequence
from typing import Any, Callable, Optional, Union

import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
from mxnet.gluon.contrib import estimator as gluon_estimator
from mxnet.ndarray import NDArray

from gluon_edbatch_core.schedule import Scheduler

from ..api.functional import concat
from ..api.scope import DEFAULT_SCHEDULER, batching

Outcome = tuple[list[Any], list[NDArray], list[NDArray], list[NDArray]]


class BatchProcessor(gluon_estimator.BatchProcessor):
    r"""Batch the calls of a minibatch's samples; Gluon's own class wants arrays that can be split.

    Minibatches are lists of samples, from a `gluon.data.DataLoader` with
    ``batchify_fn=edb.data.as_list``. The samples are divided among the estimator's contexts in
    turn.

    Parameters
    ----------
    split : callable, optional
        Returns ``(data, label)`` of a sample; by default a sample is such a pair. `data` is the
        network's argument, `label` a number or an array, (r, ...) for a network that returns r rows
        for a sample.
    scheduler : str or Scheduler, default 'fsm'
        See `gluon_edbatch.batching`.
    timing : bool, default False
        See `gluon_edbatch.batching`.

    Examples
    --------
    >>> estimator = Estimator(
    ...     net, gluon.loss.SoftmaxCrossEntropyLoss(), train_metrics=mx.metric.Accuracy(),
    ...     trainer=trainer, batch_processor=edb.estimator.BatchProcessor())
    >>> estimator.fit(loader, val_data=dev_loader, epochs=3)
    """

    def __init__(
        self,
        split: Optional[Callable[[Any], tuple[Any, Any]]] = None,
        scheduler: Union[str, Scheduler] = DEFAULT_SCHEDULER,
        timing: bool = False,
    ):
        super().__init__()
        self._split = split or tuple
        self._scheduler, self._timing = scheduler, timing

    def fit_batch(self, estimator: Any, train_batch: Sequence[Any], batch_axis: int = 0) -> Outcome:
        """Run a minibatch forward and backward.

        Returns
        -------
        data, label, pred, loss : list
            An entry for each context: data of samples, and rows of labels, predictions, losses.
        """
        with autograd.record():
            outcome = self._run(estimator, estimator.net, estimator.loss, train_batch)
        for loss in outcome[-1]:
            loss.backward()
        return outcome

    def evaluate_batch(
        self, estimator: Any, val_batch: Sequence[Any], batch_axis: int = 0
    ) -> Outcome:
        """Run a minibatch forward; return what `fit_batch` returns."""
        return self._run(estimator, estimator.val_net, estimator.val_loss, val_batch)

    def _run(
        self, estimator: Any, net: gluon.Block, criterion: Any, minibatch: Sequence[Any]
    ) -> Outcome:
        count = len(estimator.context)
        shares = [minibatch[i::count] for i in range(count)]
        outcome: Outcome = [], [], [], []
        for ctx, share in zip(estimator.context, shares):
            if share:
                data, labels = zip(*map(self._split, share))
                with ctx, batching(self._scheduler, ctx, timing=self._timing):
                    values = [net(each) for each in data]
                predictions = concat(values)
                rows = mx.nd.array(np.concatenate([_rows(label) for label in labels]), ctx)
                parts = list(data), rows, predictions, criterion(predictions, rows)
                for results, part in zip(outcome, parts):
                    results.append(part)
        return outcome


def _rows(label: Any) -> np.ndarray:
    return np.atleast_1d(label.asnumpy() if isinstance(label, NDArray) else np.asarray(label))
