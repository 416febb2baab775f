"""Where a minibatch's processor time goes: Python, and the kinds of work of native operators."""

import time
from statistics import median

from .output import rounded

__all__ = ['Where']


class Where:
    """Collects over repeats. Empty unless the native operators have a stopwatch
    (``GLUON_EDBATCH_STOPWATCH=1``), which costs a few percent."""

    def __init__(self):
        self._repeats: list[dict[str, float]] = []
        self._python = 0.0

    def begin(self) -> None:
        """Before a repeat, when the engine is idle."""
        _stopwatch()
        self._python = time.thread_time()

    def end(self, cpu_ms: float, minibatches: int) -> None:
        """After it, when the engine is idle again.

        Parameters
        ----------
        cpu_ms : float
            A minibatch's processor time, over all threads.
        minibatches : int
        """
        python = 1e3 * (time.thread_time() - self._python) / minibatches
        works = {work: 1e3 * seconds / minibatches for work, seconds in _stopwatch().items()}
        if not works.get('all'):
            return
        runs = works.pop('all')
        self._repeats.append(
            {
                'Python': python,
                **works,
                'other in native operators': runs - sum(works.values()),
                'other operators': cpu_ms - python - runs,
            }
        )

    def medians(self) -> dict[str, float]:
        """ms of a minibatch, by kind of work."""
        return {
            name: rounded(median(repeat[name] for repeat in self._repeats))
            for name in (self._repeats[0] if self._repeats else ())
        }


def _stopwatch() -> dict[str, float]:
    from gluon_edbatch.execute.native import timings as stopwatch

    return stopwatch.seconds() or {}
