"""Write metrics of an `Estimator` for TensorBoard."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from mxnet.gluon.contrib.estimator import BatchEnd, EpochEnd, TrainEnd


class TensorBoardHandler(BatchEnd, EpochEnd, TrainEnd):
    """Write the estimator's metrics: training metrics at minibatches and epochs, validation
    metrics at epochs.

    Names are ``minibatch/...`` and ``epoch/...`` with the estimator's name of a metric. Steps count
    minibatches and epochs from 1 on, for the handler's lifetime. NaN is not written.

    Parameters
    ----------
    writer : object
        Object with ``add_scalar(name, value, step)`` and ``flush()``: tensorboardX's, or PyTorch's,
        ``SummaryWriter(directory)``.
    interval : int, default 50
        Minibatches between two entries of training.
    priority : float, default inf
        Order among handlers: by default after those that update metrics and validate.

    Raises
    ------
    ValueError
        If `interval` is less than 1.
    """

    def __init__(self, writer: Any, interval: int = 50, priority: float = float('inf')):
        if interval < 1:
            raise ValueError(f'interval is 1 or more, not {interval}')
        self.priority = priority
        self._writer = writer
        self._interval = interval
        self._minibatches = self._epochs = 0

    def batch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Write the metrics of training, every `interval` minibatches."""
        self._minibatches += 1
        if self._minibatches % self._interval == 0:
            self._write('minibatch', estimator.train_metrics, self._minibatches)

    def epoch_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Write the metrics of training and validation, with the number of the epoch."""
        self._epochs += 1
        self._write('epoch', [*estimator.train_metrics, *estimator.val_metrics], self._epochs)

    def train_end(self, estimator: Any, *args: Any, **kwargs: Any) -> None:
        """Flush TensorBoard's writer after training."""
        self._writer.flush()

    def _write(self, what: str, metrics: Sequence[Any], step: int) -> None:
        for metric in metrics:
            for name, value in metric.get_name_value():
                if not np.isnan(value):  # nothing was counted, as where nothing was validated
                    self._writer.add_scalar(f'{what}/{name}', value, step)
