"""Draw how much several workers train, and how long they wait."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.plots import MARKERS, save

__all__ = ['draw']


def draw(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw throughput, and the share of the faster worker's time that it waits, over workers."""
    from matplotlib import pyplot

    figure, (speed, idle) = pyplot.subplots(1, 2, figsize=(9, 3.6))
    sizes = sorted({row['batch_size'] for row in rows})
    for marker, size in zip(MARKERS, sizes):
        alone = [row for row in rows if row['batch_size'] == size and row['workers'] == 1]
        for shards, line in (('balanced', '-'), ('random', ':')):
            some = [row for row in rows if row['batch_size'] == size and row['shards'] == shards]
            some = sorted({id(row): row for row in [*alone, *some]}.values(), key=_workers)
            label = f'{size} a worker, {shards}'
            style = dict(marker=marker, linestyle=line, label=label)
            speed.plot(
                [row['workers'] for row in some], [row['samples_per_s'] for row in some], **style
            )
            idle.plot(
                [row['workers'] for row in some],
                [100 * row['idle_share_of_the_faster'] for row in some],
                **style,
            )
    speed.set(xlabel='workers', ylabel='samples / s', ylim=(0, None))
    idle.set(xlabel='workers', ylabel='% of its time that the faster waits', ylim=(0, None))
    for panel in (speed, idle):
        panel.set_xticks(sorted({row['workers'] for row in rows}))
        panel.grid(alpha=0.3)
    speed.legend(fontsize='small')
    save(figure, path)


def _workers(row: dict[str, Any]) -> int:
    return row['workers']
