#!/usr/bin/env python3
"""CSV, tables and plots from the rows that scripts/benchmark.py --json prints.

    python scripts/plot_benchmarks.py results/table.jsonl results/sweep.jsonl --out results

For each file NAME.jsonl (or NAME.csv): NAME.csv, a table on standard output, and a plot for each
workload: samples a second over the size of the minibatch, or bars if there is but one size.
"""
import argparse
import csv
import json
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from bench.output import tables

Row = Dict[str, Any]
MARKERS = 'osD^v<>Pp*'


class RowError(ValueError):
    """A file of results is missing or malformed; the message names file and line."""


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Command line; gives the exit status."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('files', nargs='+', metavar='FILE', type=Path, help='.jsonl or .csv')
    parser.add_argument('--out', metavar='DIR', type=Path,
                        help='where to write (default: beside each file)')
    parser.add_argument('--format', choices=('png', 'svg', 'pdf'), default='png',
                        help='of the plots (default: png)')
    options = parser.parse_args(arguments)
    try:
        for path in options.files:
            rows = read_rows(path)
            out = options.out or path.parent
            out.mkdir(parents=True, exist_ok=True)
            if path.suffix != '.csv':
                write_csv(rows, out / f'{path.stem}.csv')
            print(tables(rows), end='\n\n')
            for workload, some in _by(rows, 'workload').items():
                plot(some, workload, out / f'{path.stem}-{workload}.{options.format}')
    except RowError as error:
        print(f'plot_benchmarks.py: {error}', file=sys.stderr)
        return 1
    return 0


def read_rows(path: Path) -> List[Row]:
    """Rows of a JSONL or CSV file; numbers are numbers, nothing is None."""
    if not path.is_file():
        raise RowError(f'{path}: there is no such file')
    if path.suffix == '.csv':
        with path.open(newline='', encoding='utf-8') as file:
            rows = [{name: _value(text) for name, text in row.items()}
                    for row in csv.DictReader(file)]
    else:
        rows = [_parsed(line, f'{path}:{number}')
                for number, line in enumerate(path.read_text(encoding='utf-8').splitlines(), 1)
                if line.strip()]
    if not rows:
        raise RowError(f'{path}: has no rows')
    for number, row in enumerate(rows, 1):
        for name in ('workload', 'mode', 'scheduler', 'batch_size', 'samples_per_s'):
            if row.get(name) is None:
                raise RowError(f'{path}: row {number} has no {name!r}')
    return rows


def write_csv(rows: Sequence[Row], path: Path) -> None:
    """One line a row, with the columns that any of them has; lists as JSON."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with path.open('w', newline='', encoding='utf-8') as file:
        writer = csv.DictWriter(file, columns, lineterminator='\n')
        writer.writeheader()
        writer.writerows({name: json.dumps(value) if isinstance(value, list) else value
                          for name, value in row.items()} for row in rows)


def plot(rows: Sequence[Row], title: str, path: Path) -> None:
    """A panel for each mode."""
    import matplotlib
    matplotlib.use('Agg')
    from matplotlib import pyplot
    modes = _by(rows, 'mode')
    figure, panels = pyplot.subplots(1, len(modes), figsize=(6 * len(modes), 4), squeeze=False)
    for panel, (mode, some) in zip(panels[0], modes.items()):
        draw = _draw_sweep if len(_by(some, 'batch_size')) > 1 else _draw_bars
        draw(panel, some)
        panel.set_title(f'{title}, {mode}')
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _draw_sweep(panel, rows: Sequence[Row]) -> None:
    for marker, (system, some) in zip(MARKERS * 9, _by(rows, 'scheduler').items()):
        some = sorted(some, key=lambda row: row['batch_size'])
        sizes, speeds, spread = [row['batch_size'] for row in some], *_speeds(some)
        panel.errorbar(sizes, speeds, yerr=spread, label=system, marker=marker, capsize=2)
    bound = max(row.get('gemm_bound_samples_per_s') or 0 for row in rows)
    if bound:
        panel.axhline(bound, color='gray', linestyle=':', label='products alone')
    panel.set(xscale='log', yscale='log', xlabel='samples in a minibatch', ylabel='samples / s')
    panel.set_xscale('log', base=2)
    panel.xaxis.set_major_formatter('{x:.0f}')
    panel.grid(alpha=0.3)
    panel.legend(fontsize='small')


def _draw_bars(panel, rows: Sequence[Row]) -> None:
    speeds, spread = _speeds(rows)
    bars = panel.barh([row['scheduler'] for row in rows], speeds, xerr=spread, capsize=2)
    for bar, speed, high in zip(bars, speeds, spread[1]):
        middle = bar.get_y() + bar.get_height() / 2
        panel.annotate(f'{speed:.0f}', (speed + high, middle), xytext=(5, 0),
                       textcoords='offset points', va='center')
    panel.invert_yaxis()
    panel.margins(x=0.15)
    panel.set_xlabel(f'samples / s, {rows[0]["batch_size"]} in a minibatch')


def _speeds(rows: Sequence[Row]) -> Tuple[List[float], List[List[float]]]:
    """Medians, and how far the least and the greatest are from them."""
    speeds = [row['samples_per_s'] for row in rows]
    lows = [row['samples_per_s'] - (row.get('samples_per_s_min') or row['samples_per_s'])
            for row in rows]
    highs = [(row.get('samples_per_s_max') or row['samples_per_s']) - row['samples_per_s']
             for row in rows]
    return speeds, [lows, highs]


def _by(rows: Sequence[Row], name: str) -> Dict[Any, List[Row]]:
    """Rows by the value of a field, in the order in which it first occurs."""
    groups: Dict[Any, List[Row]] = {}
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
    """A field of a CSV file as it was in JSON."""
    if text == '':
        return None
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


if __name__ == '__main__':
    sys.exit(main())
