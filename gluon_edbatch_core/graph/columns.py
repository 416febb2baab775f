"""Columns of numbers as compiled modules read them: ``columns.pxd`` is the compiled form.

There a column is a pointer, which has no length, and lasts as long as its array.
"""

import numpy as np


def words(array: np.ndarray) -> memoryview:
    """Return the numbers of an array of 64-bit integers."""
    return array.data


def ints(array: np.ndarray) -> memoryview:
    """Return the numbers of an array of 32-bit integers."""
    return array.data


def flags(array: np.ndarray) -> memoryview:
    """Return the values of an array of bools or bytes, as numbers."""
    return array.view(np.uint8).data


def prepare(array: np.ndarray) -> None:
    """Do nothing. The C form learns the memory layout of arrays here, from three int64."""
