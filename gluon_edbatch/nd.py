"""``edb.nd.<op>``: any operator of MXNet's registry under its usual name, recorded in a scope.

Inside a scope Python numbers and NumPy arrays are accepted where ``mx.nd`` insists on NDArrays.
Outside, the functions are those of ``mx.nd``.
"""
from typing import Any, Callable, List

import mxnet as mx
import numpy as np
from mxnet.ndarray import NDArray

from .record.hooks import current_recording


def __getattr__(name: str) -> Callable[..., Any]:
    if name.startswith('__'):
        raise AttributeError(name)
    function = globals()[name] = _function(name)  # not to be asked again
    return function


def _function(name: str) -> Callable[..., Any]:
    original = getattr(mx.nd, name, None)
    if not callable(original) or isinstance(original, type):
        raise AttributeError(f'MXNet has no operator {name!r}')

    def with_lazy_arrays(*args, **kwargs):
        recording = current_recording()
        args = _lazy(recording, args)
        kwargs = {key: value if not isinstance(value, (NDArray, np.ndarray)) else
                  _lazy(recording, [value])[0] for key, value in kwargs.items()}
        return original(*args, **kwargs)

    def function(*args, **kwargs):
        recording = current_recording()
        if recording is None:
            return original(*args, **kwargs)
        return recording.operation(with_lazy_arrays, args, kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = original.__doc__
    return function


def _lazy(recording, args) -> List[Any]:
    """Arrays as values of the recording, so that an operator on them is recorded."""
    return [recording.values([arg])[0] if isinstance(arg, (NDArray, np.ndarray)) else arg
            for arg in args]
