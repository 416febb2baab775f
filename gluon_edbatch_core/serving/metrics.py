"""Counts and durations of an engine, as data and in the text format of Prometheus."""

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
    """Count values by bucket, and add them up.

    Attributes
    ----------
    bounds : tuple of float
        b ascending numbers, in seconds or samples (see `Metrics`). Bucket k counts values up to
        ``bounds[k]`` and above the bound before; the last bucket counts values above all bounds.
    counts : list of int
        b + 1 numbers of values, one for each bucket; not cumulative, unlike Prometheus' text.
    total : float
        The sum of all values, in the unit of `bounds`.
    """

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    @property
    def number(self) -> int:
        """Return the number of values."""
        return sum(self.counts)

    @property
    def mean(self) -> float:
        """Return the mean of all values; 0 if there are none."""
        return self.total / self.number if self.number else 0.0

    def _lines(self, name: str) -> Iterator[str]:
        yield f'# TYPE {name} histogram'
        for place, bound in enumerate((*self.bounds, '+Inf'), 1):
            yield f'{name}_bucket{{le="{bound}"}} {sum(self.counts[:place])}'
        yield f'{name}_sum {self.total}'
        yield f'{name}_count {self.number}'


@dataclass
class Metrics:
    """Hold counts and durations of an engine, from its start until now.

    Attributes
    ----------
    queued, running : int
        Number of requests that wait, and number that are being evaluated.
    outcomes : dict of str to int
        Number of requests by outcome: ``answered``; ``failed``, with an error of their own;
        ``refused``, because of overload; ``cancelled``; ``expired``, after the deadline.
    batch_size : Histogram
        Samples in a round.
    waited, evaluated, total : Histogram
        Seconds of answered requests in the queue, in evaluation, and from arrival to answer.
    """

    queued: int = 0
    running: int = 0
    outcomes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTCOMES, 0))
    batch_size: Histogram = field(default_factory=partial(Histogram, SIZES))
    waited: Histogram = field(default_factory=partial(Histogram, SECONDS))
    evaluated: Histogram = field(default_factory=partial(Histogram, SECONDS))
    total: Histogram = field(default_factory=partial(Histogram, SECONDS))

    def _note(self, name: str, value: float) -> None:
        """Add a number of requests to an outcome, or a value to the histogram of that name."""
        if name in self.outcomes:
            self.outcomes[name] += int(value)
        else:
            histogram: Histogram = getattr(self, name)
            histogram.counts[bisect_left(histogram.bounds, value)] += 1
            histogram.total += value

    def prometheus(self, prefix: str = 'edb_') -> str:
        """Return the metrics in the text format of Prometheus.

        Parameters
        ----------
        prefix : str, default 'edb_'
            What all names begin with.

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
