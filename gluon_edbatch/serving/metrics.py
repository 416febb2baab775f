"""What an engine counts, and how long it takes: as data, and as Prometheus reads it."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

SECONDS = (
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0
)  # fmt: skip
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
OUTCOMES = ('answered', 'failed', 'refused', 'cancelled', 'expired')


@dataclass
class Histogram:
    """How often something was how large.

    Attributes
    ----------
    bounds : tuple of float
        b numbers, ascending: bucket k holds what is at most ``bounds[k]`` and above the bound
        before, and one bucket more what is above all of them. Seconds, or samples (see `Metrics`).
    counts : list of int
        b + 1, how many are in each bucket, which are not added up as in Prometheus' text.
    total : float
        The sum of all, in the same unit.
    """

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    @property
    def number(self) -> int:
        """How many there were."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """0 if there were none."""
        return self.total / self.number if self.number else 0.0

    def _lines(self, name: str) -> Iterator[str]:
        yield f'# TYPE {name} histogram'
        for place, bound in enumerate((*self.bounds, '+Inf'), 1):
            yield f'{name}_bucket{{le="{bound}"}} {sum(self.counts[:place])}'
        yield f'{name}_sum {self.total}'
        yield f'{name}_count {self.number}'


@dataclass
class Metrics:
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

    queued: int = 0
    running: int = 0
    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    batch_size: Histogram = field(default_factory=partial(Histogram, SIZES))
    waited: Histogram = field(default_factory=partial(Histogram, SECONDS))
    evaluated: Histogram = field(default_factory=partial(Histogram, SECONDS))
    total: Histogram = field(default_factory=partial(Histogram, SECONDS))

    def _note(self, name: str, value: float) -> None:
        """Count so many requests of an outcome, or a value of a histogram."""
        if name in self.outcomes:
            self.outcomes[name] += int(value)
        else:
            histogram: Histogram = getattr(self, name)
            histogram.counts[bisect_left(histogram.bounds, value)] += 1
            histogram.total += value

    def prometheus(self, prefix: str = 'edb_') -> str:
        """Give the figures in Prometheus' text format.

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
        lines += self.batch_size._lines(f'{prefix}batch_size')
        for name in ('waited', 'evaluated', 'total'):
            lines += getattr(self, name)._lines(f'{prefix}{name}_seconds')
        return '\n'.join(lines) + '\n'
