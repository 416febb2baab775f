"""What an engine counts, and how long it takes: as data, and as Prometheus reads it."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple, Optional, Protocol

SECONDS = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0
)  # fmt: skip
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
OUTCOMES = ('answered', 'failed', 'refused', 'cancelled', 'expired')


class Histogram(NamedTuple):
    """How often something was how large.

    Attributes
    ----------
    bounds : tuple of float
        b numbers, ascending: bucket k holds what is at most ``bounds[k]`` and above the bound
        before, and one bucket more what is above all of them. Seconds, or samples (see `Metrics`).
    counts : tuple of int
        b + 1, how many are in each bucket, which are not added up as in Prometheus' text.
    total : float
        The sum of all, in the same unit.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float

    @property
    def number(self) -> int:
        """How many there were."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """0 if there were none."""
        return self.total / self.number if self.number else 0.0


class Metrics(NamedTuple):
    """What an engine has done until now.

    Attributes
    ----------
    queued, running : int
        Requests that wait, and that are being evaluated.
    outcomes : dict of str to int
        Requests by what became of them: ``answered``; ``failed``, with an error of their own;
        ``refused``, as too many waited; ``cancelled``; ``expired``, as the deadline passed.
    batch_size : Histogram
        Samples in a round.
    waited, evaluated, total : Histogram
        Seconds that answered requests waited in the queue, then took, and both.
    """

    queued: int
    running: int
    outcomes: dict[str, int]
    batch_size: Histogram
    waited: Histogram
    evaluated: Histogram
    total: Histogram

    def prometheus(self, prefix: str = 'edb_') -> str:
        """The same in Prometheus' text format.

        Parameters
        ----------
        prefix : str, default 'edb_'
            Of all names.

        Returns
        -------
        str
            Gauges ``queued`` and ``running``, the counter ``requests_total`` by ``outcome``, and
            histograms ``batch_size`` and, in seconds, ``waited_seconds``, ``evaluated_seconds`` and
            ``total_seconds``.
        """
        lines = []
        for name in ('queued', 'running'):
            lines += [f'# TYPE {prefix}{name} gauge', f'{prefix}{name} {getattr(self, name)}']
        lines.append(f'# TYPE {prefix}requests_total counter')
        for outcome, count in self.outcomes.items():
            lines.append(f'{prefix}requests_total{{outcome="{outcome}"}} {count}')
        for name, unit in _UNITS.items():
            lines += _as_text(f'{prefix}{name}{unit}', getattr(self, name))
        return '\n'.join(lines) + '\n'


_UNITS = {
    'batch_size': '', 'waited': '_seconds', 'evaluated': '_seconds', 'total': '_seconds'
}  # fmt: skip


def _as_text(name: str, histogram: Histogram) -> list[str]:
    lines, below = [f'# TYPE {name} histogram'], 0
    for bound, count in zip((*map(str, histogram.bounds), '+Inf'), histogram.counts):
        below += count
        lines.append(f'{name}_bucket{{le="{bound}"}} {below}')
    return [*lines, f'{name}_sum {histogram.total}', f'{name}_count {histogram.number}']


class Observer(Protocol):
    """Who is told of all that an engine counts, in its thread."""

    def count(self, outcome: str, count: int = 1) -> None:
        """So many requests had one of `OUTCOMES`; of those that were refused nothing is told."""

    def observe(self, name: str, value: float) -> None:
        """A value of a histogram of `Metrics`, or, before a round, how many are ``queued``."""


class Counting:
    """Counts on behalf of an engine, in the thread that evaluates."""

    def __init__(self, observer: Optional[Observer]) -> None:
        self._outcomes = dict.fromkeys(OUTCOMES, 0)
        self._observer = observer
        self._seen = {
            'batch_size': _Buckets(SIZES),
            'waited': _Buckets(SECONDS),
            'evaluated': _Buckets(SECONDS),
            'total': _Buckets(SECONDS),
        }

    def count(self, outcome: str, count: int = 1) -> None:
        """So many requests had one of `OUTCOMES`."""
        self._outcomes[outcome] += count
        if self._observer is not None:
            self._observer.count(outcome, count)

    def note_round(self, samples: int, queued: int) -> None:
        """So many samples are evaluated together."""
        self._seen['batch_size'].add([samples])
        if self._observer is not None:
            self._observer.observe('batch_size', samples)
            self._observer.observe('queued', queued)

    def note_answered(self, waited: Sequence[float], evaluated: Sequence[float]) -> None:
        """So many requests were answered, after such times."""
        self.count('answered', len(waited))
        total = [sum(both) for both in zip(waited, evaluated)]
        for name, values in (('waited', waited), ('evaluated', evaluated), ('total', total)):
            self._seen[name].add(values)
            if self._observer is not None:
                for value in values:
                    self._observer.observe(f'{name}_seconds', value)

    def metrics(self, queued: int, running: int, refused: int, cancelled: int) -> Metrics:
        """As they are now."""
        histograms = {name: buckets.histogram() for name, buckets in self._seen.items()}
        outcomes = {**self._outcomes, 'refused': refused}
        outcomes['cancelled'] += cancelled
        return Metrics(queued, running, outcomes, **histograms)


class _Buckets:
    def __init__(self, bounds: Sequence[float]):
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def add(self, values: Sequence[float]) -> None:
        for value in values:
            self._counts[bisect_left(self._bounds, value)] += 1
        self._total += sum(values)

    def histogram(self) -> Histogram:
        return Histogram(self._bounds, tuple(self._counts), self._total)
