"""Names of devices, for MXNet and for PyTorch."""

import mxnet as mx

__all__ = ['context', 'torch_device']


def context(name: str) -> mx.Context:
    """``cpu``, ``gpu`` or ``gpu:N`` as MXNet's context."""
    device, _, number = name.partition(':')
    return mx.Context(device, int(number or 0))


def torch_device(name: str) -> str:
    """The same as PyTorch calls it."""
    device, _, number = name.partition(':')
    return 'cpu' if device == 'cpu' else f'cuda:{number or 0}'
