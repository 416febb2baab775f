"""The common part of rivals in MXNet Gluon."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from mxnet import gluon, nd

__all__ = ['OnGluon']


class OnGluon:
    """A rival whose parameters a `gluon.Trainer` updates.

    Attributes
    ----------
    params : mapping of str to gluon.Parameter
    stale : bool
        Whether a minibatch may leave some parameters without new gradients.
    """

    stale = False
    params: Mapping[str, gluon.Parameter]

    def train(self, params: Any, optimizer: str, learning_rate: float) -> None:
        """Set the parameters to update, and the optimizer."""
        self.params = params
        self.trainer = gluon.Trainer(
            list(params.values()), optimizer, {'learning_rate': learning_rate}, kvstore=None
        )

    def backward(self, loss: nd.NDArray) -> None:
        """Compute gradients of all parameters."""
        loss.backward()

    def update(self) -> None:
        """Run one step of the optimizer."""
        self.trainer.step(1, ignore_stale_grad=self.stale)

    def wait(self) -> None:
        """Wait until all queued work is done."""
        nd.waitall()

    def gradients(self) -> dict[str, np.ndarray]:
        """Return gradients of the last backward pass, under the names of the initial weights."""
        return {
            name: parameter.grad().asnumpy()
            for name, parameter in self.params.items()
            if parameter.grad_req != 'null'
        }
