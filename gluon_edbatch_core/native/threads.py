"""Set how many threads run the native operators."""

import os
from numbers import Integral
from typing import Optional

_MOST = 1024
_wanted: Optional[int] = None


def set_num_threads(number: int) -> None:
    """Set how many threads native operators may use from now on, for the whole process.

    With the same number, results and gradients have the same bits in every run, whatever else uses
    the processors. MXNet's own operators follow ``OMP_NUM_THREADS``.

    Parameters
    ----------
    number : int
        1 uses only the thread of MXNet's engine. More than the number of processors is allowed, and
        useless.

    Raises
    ------
    TypeError, ValueError
        If `number` is not a whole number, or not from 1 to 1024.
    """
    global _wanted
    if isinstance(number, bool) or not isinstance(number, Integral):
        raise TypeError(f'a number of threads is an int, not {number!r}')
    if not 1 <= number <= _MOST:
        raise ValueError(f'from 1 to {_MOST} threads, not {number}')
    _wanted = int(number)


def get_num_threads() -> int:
    """Return how many threads native operators may use.

    Returns
    -------
    int
        The last argument of `set_num_threads`; else ``OMP_NUM_THREADS``, if it is set; else the
        number of processors that this process may use.
    """
    global _wanted
    if _wanted is None:
        _wanted = _by_default()
    return _wanted


def _by_default() -> int:
    first = os.environ.get('OMP_NUM_THREADS', '').split(',')[0].strip()  # then those of inner loops
    if first.isdecimal() and int(first) > 0:
        return min(int(first), _MOST)
    try:
        return min(len(os.sched_getaffinity(0)), _MOST)
    except AttributeError:  # not on every system
        return min(os.cpu_count() or 1, _MOST)
