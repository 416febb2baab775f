"""Draw a picture of a workload: batches by the lower bound, for each scheduler and size."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .plots import MARKERS, by, new_figure, read_rows, save

__all__ = ['plot', 'plot_file']

FIELDS = (
    'workload',
    'scheduler',
    'batch_size',
    'batches',
    'lower_bound',
    'tighter_bound',
    'ratio',
)


def plot_file(path: Path, out: Path, suffix: str) -> None:
    """Draw the rows of a file, a picture a workload.

    Parameters
    ----------
    path : Path
        What ``python -m benchmarks schedulers --json`` printed.
    out : Path
        A directory, which is made if need be.
    suffix : str
        ``png``, ``svg`` or ``pdf``.
    """
    rows = read_rows(path, FIELDS)
    out.mkdir(parents=True, exist_ok=True)
    for workload, some in by(rows, 'workload').items():
        plot(some, workload, out / f'schedulers-{workload}.{suffix}')


def plot(rows: Sequence[dict[str, Any]], title: str, path: Path) -> None:
    """Draw batches and their bounds, and the ratio to ED-Batch's, over the size of a minibatch.

    Parameters
    ----------
    rows : sequence of dict
        What ``python -m benchmarks schedulers --json`` printed for one workload.
    title : str
    path : Path
        A picture is written there.
    """
    sizes = sorted({row['batch_size'] for row in rows})
    most = [row for row in rows if row['scheduler'] != 'beam']  # which has fewer minibatches
    bound = {row['batch_size']: row['lower_bound'] for row in most}
    tighter = {row['batch_size']: row['tighter_bound'] for row in most}
    figure, (left, right) = new_figure(2, 5)
    for marker, (scheduler, some) in zip(MARKERS * 9, by(rows, 'scheduler').items()):
        some = sorted(some, key=lambda row: row['batch_size'])
        where = [sizes.index(row['batch_size']) for row in some]
        decides = some[0].get('decides')
        label = f'{scheduler} ({decides})' if decides else scheduler
        left.plot(where, [row['batches'] for row in some], marker=marker, label=label)
        right.plot(where, [row['ratio'] for row in some], marker=marker, label=label)
    where = [sizes.index(size) for size in sorted(bound)]
    for style, label, found in (
        ('dotted', "ED-Batch's bound", bound),
        ('dashed', 'tighter bound', tighter),
    ):
        line = dict(color='gray', linestyle=style, label=label)
        left.plot(where, [found[size] for size in sorted(bound)], **line)
        right.plot(where, [found[size] / bound[size] for size in sorted(bound)], **line)
    left.set(yscale='log', ylabel='batches', title=title)
    right.set(yscale='log', ylabel="batches / ED-Batch's bound")
    right.yaxis.set_major_formatter('{x:.2f}')
    right.yaxis.set_minor_formatter('{x:.2f}')
    left.yaxis.set_minor_formatter('{x:.0f}')
    left.yaxis.set_major_formatter('{x:.0f}')
    for panel in (left, right):
        panel.set_xticks(range(len(sizes)), [str(size) for size in sizes])
        panel.set_xlabel('samples in a minibatch')
        panel.grid(alpha=0.3, which='both')
    right.legend(fontsize='small', loc='upper left', bbox_to_anchor=(1, 1))
    save(figure, path)
