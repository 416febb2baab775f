"""Read and write rows of measurements in files, and draw pictures of them."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ['MARKERS', 'by', 'new_figure', 'plot', 'read_rows', 'save', 'write_csv']

Row = dict[str, Any]
MARKERS = 'osD^v<>Pp*'
# Words of README and docs/benchmarks.md for the systems that their pictures compare.
LABELS = {
    'fsm': 'in batches',
    'manual': 'by hand in Gluon',
    'manual-torch': 'by hand in PyTorch',
    'plain-hybridized': 'sample by sample, hybridized',
    'train': 'training',
    'infer': 'inference',
}
FIELDS = ('workload', 'mode', 'scheduler', 'batch_size', 'samples_per_s')


class RowError(ValueError):
    """A file of results is missing or malformed; the message names file and line."""


def read_rows(path: Path, fields: Sequence[str] = FIELDS) -> list[Row]:
    """Read rows of a JSONL or CSV file, with these fields at least; numbers are numbers, nothing is
    None."""
    if not path.is_file():
        raise RowError(f'{path}: there is no such file')
    if path.suffix == '.csv':
        with path.open(newline='', encoding='utf-8') as file:
            rows = [
                {name: _value(text) for name, text in row.items()} for row in csv.DictReader(file)
            ]
    else:
        rows = [
            _parsed(line, f'{path}:{number}')
            for number, line in enumerate(path.read_text(encoding='utf-8').splitlines(), 1)
            if line.strip()
        ]
    if not rows:
        raise RowError(f'{path}: has no rows')
    for number, row in enumerate(rows, 1):
        for name in fields:
            if row.get(name) is None:
                raise RowError(f'{path}: row {number} has no {name!r}')
    return rows


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """Write one line a row, with the columns that any row has; lists as JSON."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with path.open('w', newline='', encoding='utf-8') as file:
        writer = csv.DictWriter(file, columns, lineterminator='\n')
        writer.writeheader()
        writer.writerows(
            {
                name: json.dumps(value) if isinstance(value, list) else value
                for name, value in row.items()
            }
            for row in rows
        )


def plot(rows: Sequence[Row], title: str, path: Path) -> None:
    """Draw a panel for each mode."""
    modes = by(rows, 'mode')
    figure, panels = new_figure(len(modes), 6)
    for panel, (mode, some) in zip(panels, modes.items()):
        draw = _draw_sweep if len(by(some, 'batch_size')) > 1 else _draw_bars
        draw(panel, some)
        panel.set_title(f'{title}, {LABELS.get(mode, mode)}')
    save(figure, path)


def new_figure(panels: int, width: float):
    """Return a figure, and its panels side by side, each so many inches wide."""
    import matplotlib

    matplotlib.use('Agg')
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, panels, figsize=(width * panels, 4), squeeze=False)
    return figure, axes[0]


def save(figure, path: Path) -> None:
    """Write a picture, and forget the figure."""
    from matplotlib import pyplot

    figure.tight_layout()
    # White whatever the page is, and the same file from the same rows.
    metadata = {'Date': None} if path.suffix == '.svg' else None
    with pyplot.rc_context({'svg.hashsalt': path.name}):
        figure.savefig(path, dpi=150, facecolor='white', metadata=metadata)
    pyplot.close(figure)


def _draw_sweep(panel, rows: Sequence[Row]) -> None:
    for marker, (system, some) in zip(MARKERS * 9, by(rows, 'scheduler').items()):
        some = sorted(some, key=lambda row: row['batch_size'])
        sizes, speeds, spread = [row['batch_size'] for row in some], *_speeds(some)
        label = LABELS.get(system, system)
        panel.errorbar(sizes, speeds, yerr=spread, label=label, marker=marker, capsize=2)
    bound = max(row.get('gemm_bound_samples_per_s') or 0 for row in rows)
    if bound:
        panel.axhline(bound, color='gray', linestyle=':', label='products alone')
    panel.set(
        xscale='log', yscale='log', xlabel='samples in a minibatch', ylabel='samples a second'
    )
    panel.set_xscale('log', base=2)
    panel.xaxis.set_major_formatter('{x:.0f}')
    panel.grid(alpha=0.3)
    panel.legend(fontsize='small')


def _draw_bars(panel, rows: Sequence[Row]) -> None:
    speeds, spread = _speeds(rows)
    labels = [LABELS.get(row['scheduler'], row['scheduler']) for row in rows]
    bars = panel.barh(labels, speeds, xerr=spread, capsize=2)
    for bar, speed, high in zip(bars, speeds, spread[1]):
        middle = bar.get_y() + bar.get_height() / 2
        panel.annotate(
            f'{speed:.0f}',
            (speed + high, middle),
            xytext=(5, 0),
            textcoords='offset points',
            va='center',
        )
    panel.invert_yaxis()
    panel.margins(x=0.2)
    panel.set_xlabel(f'samples a second, {rows[0]["batch_size"]} in a minibatch')


def _speeds(rows: Sequence[Row]) -> tuple[list[float], list[list[float]]]:
    """Return medians, and how far the least and the greatest are from them."""
    speeds = [row['samples_per_s'] for row in rows]
    lows = [
        row['samples_per_s'] - (row.get('samples_per_s_min') or row['samples_per_s'])
        for row in rows
    ]
    highs = [
        (row.get('samples_per_s_max') or row['samples_per_s']) - row['samples_per_s']
        for row in rows
    ]
    return speeds, [lows, highs]


def by(rows: Sequence[Row], name: str) -> dict[Any, list[Row]]:
    """Group rows by the value of a field, in the order in which it first occurs."""
    groups: dict[Any, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[name], []).append(row)
    return groups


def _parsed(line: str, place: str) -> Row:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise RowError(f'{place}: not JSON ({error})') from None
    if not isinstance(row, dict):
        raise RowError(f'{place}: a row is an object, not {type(row).__name__}')
    return row


def _value(text: str) -> Any:
    """Parse a field of a CSV file as it was in JSON."""
    if text == '':
        return None
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text
