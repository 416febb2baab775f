"""Operators on values, outside of cells: those that ``gluon_edbatch.nd`` records row by row.

In a scope they are recorded, as calls of types that are the same in any bundle; elsewhere they are
computed at once. Values of one shape have ``+``, ``-``, ``*`` and ``/``, too.
"""

from typing import Any

from .errors import RecordError
from .recording import operate


def concat(*values: Any, dim: int = 1) -> Any:
    """The values side by side, along an axis behind that of rows."""
    if dim < 1:
        raise RecordError(f'nd.concat along axis {dim}: gluon_edbatch_runtime.concat puts rows')
    return operate('Concat', values, dim=dim)


def tanh(value: Any) -> Any:
    """Of each number."""
    return operate('tanh', [value])


def sigmoid(value: Any) -> Any:
    """Of each number."""
    return operate('sigmoid', [value])


def relu(value: Any) -> Any:
    """Of each number."""
    return operate('relu', [value])
