"""Names of devices, for MXNet and for PyTorch."""

import mxnet as mx

__all__ = ['context', 'torch_device']


def context(name: str) -> mx.Context:
    """Return ``cpu``, ``gpu`` or ``gpu:N`` as MXNet's context."""
    device, _, number = name.partition(':')
    return mx.Context(device, int(number or 0))


def torch_device(name: str) -> str:
    """Return ``cpu``, ``gpu`` or ``gpu:N`` as PyTorch's name of a device."""
    device, _, number = name.partition(':')
    return 'cpu' if device == 'cpu' else f'cuda:{number or 0}'
