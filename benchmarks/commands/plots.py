"""Write CSV, tables and plots of the rows that ``python -m benchmarks workloads --json`` prints.

    python -m benchmarks plots results/table.jsonl results/sweep.jsonl --out results

For each file NAME.jsonl (or NAME.csv), it writes NAME.csv, a table on standard output, and a plot
for each workload. A plot has samples a second over the size of the minibatch, or bars for a single
size.
"""

import argparse
from pathlib import Path

from ..arguments import add_format_argument
from ..output import tables
from ..plots import by, plot, read_rows, write_csv


def run(options: argparse.Namespace) -> None:
    """Write CSV and plots of each file of results, and print its tables."""
    for path in options.files:
        rows = read_rows(path)
        out = options.out or path.parent
        out.mkdir(parents=True, exist_ok=True)
        if path.suffix != '.csv':
            write_csv(rows, out / f'{path.stem}.csv')
        print(tables(rows), end='\n\n')
        for workload, some in by(rows, 'workload').items():
            plot(some, workload, out / f'{path.stem}-{workload}.{options.format}')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``python -m benchmarks plots``."""
    parser.add_argument('files', nargs='+', metavar='FILE', type=Path, help='.jsonl or .csv')
    parser.add_argument(
        '--out', metavar='DIR', type=Path, help='where to write (default: beside each file)'
    )
    add_format_argument(parser)
