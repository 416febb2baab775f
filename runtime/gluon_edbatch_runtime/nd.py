"""Operators on values outside cells: those that ``gluon_edbatch.nd`` records row by row.

A scope records them as calls of types that all bundles share. Elsewhere they are computed eagerly.
Values of one shape have ``+``, ``-``, ``*`` and ``/``, too.
"""

from typing import Any

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
