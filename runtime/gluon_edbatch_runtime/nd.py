"""Operators on values outside cells: those that ``gluon_edbatch.nd`` records row by row.

A scope records them as calls of types that all bundles share. Elsewhere they are computed eagerly.
Values of one shape have ``+``, ``-``, ``*`` and ``/``, too. Makers of arrays take MXNet's
arguments, of which a context has no effect.
"""

from typing import Any

import numpy as np

from .errors import RecordError
from .recording import Recording


def concat(*values: Any, dim: int = 1) -> Any:
    """Concatenate the values along an axis behind that of rows."""
    if dim < 1:
        raise RecordError(f'nd.concat along axis {dim}: gluon_edbatch_runtime.concat puts rows')
    return Recording.operate('Concat', *values, dim=dim)


def tanh(value: Any) -> Any:
    """Return the tanh of each number."""
    return Recording.operate('tanh', value)


def sigmoid(value: Any) -> Any:
    """Return the sigmoid of each number."""
    return Recording.operate('sigmoid', value)


def relu(value: Any) -> Any:
    """Return ``max(x, 0)`` for each number."""
    return Recording.operate('relu', value)


def array(source: Any, ctx: Any = None, dtype: Any = None) -> np.ndarray:
    """Return an array with these contents, float32 if `dtype` does not say otherwise."""
    return np.array(source, dtype or getattr(source, 'dtype', np.float32))


def zeros(shape: Any, ctx: Any = None, dtype: Any = None) -> np.ndarray:
    """Return an array of zeros."""
    return np.zeros(shape, dtype or np.float32)


def ones(shape: Any, ctx: Any = None, dtype: Any = None) -> np.ndarray:
    """Return an array of ones."""
    return np.ones(shape, dtype or np.float32)


def full(shape: Any, val: float, ctx: Any = None, dtype: Any = None) -> np.ndarray:
    """Return an array with one number in all places."""
    return np.full(shape, val, dtype or np.float32)
