"""The common part of rivals in PyTorch."""

import torch

from ..contexts import torch_device

__all__ = ['OnTorch']


class OnTorch:
    """A rival whose weights an optimizer of PyTorch's updates.

    Parameters
    ----------
    ctx : str
        ``cpu``, ``gpu`` or ``gpu:N``.
    """

    def __init__(self, ctx: str):
        self.device = torch_device(ctx)

    def train(self, weights: dict[str, torch.Tensor], optimizer: str, learning_rate: float) -> None:
        """Set the weights to update, by ``sgd``, ``adagrad`` or ``adam``."""
        kinds = dict(sgd=torch.optim.SGD, adagrad=torch.optim.Adagrad, adam=torch.optim.Adam)
        self.optimizer = kinds[optimizer](weights.values(), lr=learning_rate)

    def backward(self, loss: torch.Tensor) -> None:
        """Compute gradients of all parameters."""
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()

    def update(self) -> None:
        """Run one step of the optimizer."""
        self.optimizer.step()

    def wait(self) -> None:
        """Wait until all queued work is done: nothing to do on a CPU."""
        if self.device != 'cpu':
            torch.cuda.synchronize()
