"""Measure what batching gains on the workloads of DyNet's page on automatic batching
(https://dynet.io/autobatch), and what batching by hand would still gain."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from .output import aligned, rounded
from .runner import MeasurementError, measure_in_turn
from .settings import EQUAL_LENGTH_RIVALS, MODES, Settings

__all__ = ['COMPARISONS', 'Comparison', 'gains_table', 'measure_gains']

UNBATCHED = ('unbatched', 'unbatched-hybridized')
AS_FAST_AS_BY_HAND = 1 / 1.1
Row = dict[str, Any]


class Comparison(NamedTuple):
    """How many times as fast as other systems a workload should run in batches.

    Parameters
    ----------
    bar : float
        The least gain: samples a second in batches by those of each of `others`.
    hidden, embed : int
        Widths, those of the programs that DyNet's page measures.
    others : tuple of str
        Systems.
    modes : tuple of str
    """

    bar: float
    hidden: int
    embed: int
    others: tuple[str, ...] = UNBATCHED
    modes: tuple[str, ...] = ('train',)


# By workload. The page's gains; by hand DyNet is overtaken 1.27 times, where 1.1 are allowed here.
COMPARISONS = {
    'bilstm-tagger': Comparison(9.0, hidden=50, embed=128),
    'bilstm-tagger-char': Comparison(8.0, hidden=50, embed=128),
    'treenn-sst': Comparison(7.0, hidden=128, embed=128),
    'bilstm-tagger-equal': Comparison(
        AS_FAST_AS_BY_HAND, hidden=50, embed=128, others=EQUAL_LENGTH_RIVALS, modes=MODES
    ),
}


def measure_gains(settings: Settings) -> list[Row]:
    """Measure a workload's systems in turn, in each of its modes.

    Parameters
    ----------
    settings : Settings
        Settings of the system that batches, for one of the workloads of `COMPARISONS`; `mode` is
        not used.

    Returns
    -------
    list of dict
        A row for each mode and system: that of `bench.measure`, its ``gain``, None for the system
        that batches, and ``bar``.

    Raises
    ------
    MeasurementError
        A system could not be measured.
    """
    comparison, rows = COMPARISONS[settings.workload], []
    for mode in comparison.modes:
        cells = [
            replace(settings, mode=mode, system=system)
            for system in (settings.system, *comparison.others)
        ]
        found = [row for _, row in measure_in_turn(cells, apart=True)]
        for row in found:
            if isinstance(row, MeasurementError):
                raise row
        best = found[0]['samples_per_s']
        rows += [
            dict(row, gain=rounded(best / row['samples_per_s']), bar=rounded(comparison.bar))
            if row is not found[0]
            else dict(row, gain=None, bar=None)
            for row in found
        ]
    return rows


def gains_table(rows: Sequence[Row]) -> str:
    """Return the rows of one workload as a table."""
    row = rows[0]
    head = (
        f'{row["workload"]}, minibatches of {row["batch_size"]}, hidden {row["hidden"]}, '
        f'embedding {row["embed"]}, {row["threads"]} thread(s) on {row["cpus"]} x {row["cpu"]}'
    )
    cells = [['mode', 'system', 'samples/s', 'min', 'max', 'gain', 'at least']]
    for row in rows:
        speeds = [
            f'{row[name]:.1f}'
            for name in ('samples_per_s', 'samples_per_s_min', 'samples_per_s_max')
        ]
        gain = ['' if row[name] is None else f'{row[name]:.2f}' for name in ('gain', 'bar')]
        cells.append([row['mode'], row['scheduler'], *speeds, *gain])
    return '\n'.join([head] + aligned(cells, left=('mode', 'system')))
