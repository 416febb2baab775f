"""A picture of a workload: batches by the lower bound, for each scheduler and size."""
from pathlib import Path
from typing import Any, Dict, Sequence

__all__ = ['plot']


def plot(rows: Sequence[Dict[str, Any]], title: str, path: Path) -> None:
    """Draw batches and their lower bound, and the ratio of the two, over the size of a minibatch.

    Parameters
    ----------
    rows : sequence of dict
        What ``scripts/benchmark_schedulers.py --json`` printed for one workload.
    title : str
    path : Path
        A picture is written there.
    """
    import matplotlib
    matplotlib.use('Agg')
    from matplotlib import pyplot
    sizes = sorted({row['batch_size'] for row in rows})
    bound = {row['batch_size']: row['lower_bound'] for row in rows if row['scheduler'] != 'beam'}
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4))
    for marker, scheduler in zip('osD^v<>Pp*' * 9,
                                 dict.fromkeys(row['scheduler'] for row in rows)):
        some = sorted((row for row in rows if row['scheduler'] == scheduler),
                      key=lambda row: row['batch_size'])
        where = [sizes.index(row['batch_size']) for row in some]
        left.plot(where, [row['batches'] for row in some], marker=marker, label=scheduler)
        right.plot(where, [row['ratio'] for row in some], marker=marker, label=scheduler)
    left.plot([sizes.index(size) for size in sorted(bound)],
              [bound[size] for size in sorted(bound)], color='gray', linestyle=':',
              label='lower bound')
    right.axhline(1, color='gray', linestyle=':')
    left.set(yscale='log', ylabel='batches', title=title)
    right.set(yscale='log', ylabel='batches / lower bound')
    right.yaxis.set_major_formatter('{x:.2f}')
    right.yaxis.set_minor_formatter('{x:.2f}')
    left.yaxis.set_minor_formatter('{x:.0f}')
    left.yaxis.set_major_formatter('{x:.0f}')
    for panel in (left, right):
        panel.set_xticks(range(len(sizes)), [str(size) for size in sizes])
        panel.set_xlabel('samples in a minibatch')
        panel.grid(alpha=0.3, which='both')
    left.legend(fontsize='small')
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
