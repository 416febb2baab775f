"""Arrays that the user's code makes without MXNet: NumPy's, with the methods of MXNet's."""

from typing import Any

import numpy as np

from gluon_edbatch_core.bundle.suspending import scalar_of


class Array(np.ndarray):
    """An array whose operators are MXNet's. `nd` adds them. A `fixed` one never changes."""

    context = ctx = None
    fixed = False
    __hash__ = object.__hash__

    def asnumpy(self) -> np.ndarray:
        """Return the numbers as a plain array."""
        return np.array(self)

    def asscalar(self) -> Any:
        """Return the only number."""
        return scalar_of(np.asarray(self))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, np.ndarray) and key.dtype.kind == 'f':
            key = key.astype(np.int64)
        found = np.ndarray.__getitem__(self, key)
        return found if isinstance(found, Array) and found.ndim else _array_of(found)

    def __iter__(self) -> Any:
        return iter([self[place] for place in range(len(self))])


def _array_of(found: Any) -> Array:
    return np.atleast_1d(np.asarray(found)).view(Array)
