"""Deprecated functions without an effect, which the next version removes."""

import os
import warnings
from typing import Union


def save_measured(path: Union[str, 'os.PathLike[str]']) -> None:
    """Deprecated: does nothing. What runs eagerly is not measured any more."""
    _warn('save_measured')


def load_measured(path: Union[str, 'os.PathLike[str]', None]) -> None:
    """Deprecated: does nothing. The same program runs in the same way in each process."""
    _warn('load_measured')


def _warn(name: str) -> None:
    warnings.warn(
        f'{name}() has no effect any more, as no choice depends on a measurement: leave it out',
        DeprecationWarning,
        stacklevel=3,
    )
