"""Rivals: models without any part of gluon_edbatch; a module for each way to write one."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

__all__ = ['Rival', 'parameters_of']


class Rival(Protocol):
    """A model with its step in stages, so that each can be timed.

    Everything that depends on samples happens in these calls; nothing is kept between steps.
    """

    def plan(self, samples: Sequence[Any]) -> Any:
        """Return the plan of a minibatch, by index arithmetic: samples as arrays of rows, on the
        device."""

    def predict(self, plan: Any) -> Any:
        """Return the model's outputs for the samples."""

    def loss(self, plan: Any, samples: Sequence[Any]) -> Any:
        """Return the mean loss of the samples, connected to the parameters."""

    def backward(self, loss: Any) -> None:
        """Compute gradients of all parameters."""

    def update(self) -> None:
        """Run one step of the optimizer."""

    def wait(self) -> None:
        """Wait until all queued work is done."""

    def gradients(self) -> dict[str, np.ndarray]:
        """Return gradients of the last backward pass, under the names of the initial weights."""

    def batches(self, plan: Any) -> int:
        """Return how many batches a plan runs the cell in."""


def parameters_of(net: Any) -> dict[str, Any]:
    """Return parameters of a `gluon.Block` by their first place in it: blocks may share some."""
    places: dict[Any, str] = {}
    for place, parameter in net._collect_params_with_prefix().items():
        places.setdefault(parameter, place)
    return {place: parameter for parameter, place in places.items()}
