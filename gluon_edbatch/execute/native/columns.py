"""Columns of numbers, as ``run_table.py`` reads them; ``columns.pxd`` is the compiled form."""

import numpy as np


def words(array: np.ndarray) -> memoryview:
    """Return the numbers of an array of 64-bit integers."""
    return array.data


def flags(array: np.ndarray) -> memoryview:
    """Return the values of an array of bools, as 0 and 1."""
    return array.view(np.uint8).data


def prepare(array: np.ndarray, address: int) -> None:
    """Do nothing. The C form learns the memory layout of arrays here, from three int64."""
