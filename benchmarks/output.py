"""Print rows, as JSON or as tables, and errors."""

import json
import sys
from collections.abc import Sequence
from typing import Any, Callable, Optional

__all__ = ['aligned', 'complain', 'print_rows', 'rounded', 'tables']

# heading, field, format
COLUMNS = (
    ('batch', 'batch_size', '{}'),
    ('system', 'scheduler', '{}'),
    ('samples/s', 'samples_per_s', '{:.1f}'),
    ('min', 'samples_per_s_min', '{:.1f}'),
    ('max', 'samples_per_s_max', '{:.1f}'),
    ('efficiency', 'efficiency', '{:.3f}'),
    ('calls', 'nodes', '{:.0f}'),
    ('batches', 'batches', '{:.1f}'),
    ('bound', 'lower_bound', '{:.1f}'),
    ('record', 'record_ms', '{:.1f}'),
    ('schedule', 'schedule_ms', '{:.1f}'),
    ('execute', 'execute_ms', '{:.1f}'),
    ('backward', 'backward_ms', '{:.1f}'),
    ('update', 'update_ms', '{:.1f}'),
    ('µs/call', 'record_us_per_call', '{:.2f}'),
    ('cpu', 'cpu_ms', '{:.1f}'),
    ('MB', 'peak_rss_mb', '{:.0f}'),
    ('first', 'first_minibatch_ms', '{:.0f}'),
)
LEFT = ('system',)


def complain(message: Any) -> None:
    """Print what could not be done."""
    print(f'benchmarks: {message}', file=sys.stderr)


def print_rows(
    rows: Sequence[dict[str, Any]], as_json: bool, table: Callable[[Sequence[dict[str, Any]]], str]
) -> None:
    """Print rows as one JSON object a line, or as a table followed by an empty line."""
    print('\n'.join(map(json.dumps, rows)) if as_json else table(rows) + '\n', flush=True)


def tables(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as text, a table for each workload and mode.

    Times are ms a minibatch: by phase with a wait after each, and ``cpu`` over all threads.
    ``first`` is the time of the process' first minibatch, of at most 16 samples, which includes
    compiling, tracing and learning.
    """
    groups: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row['workload'], row['mode']), []).append(row)
    return '\n\n'.join(_table(group) for group in groups.values())


def _table(rows: Sequence[dict[str, Any]]) -> str:
    row = {name: value for row in rows for name, value in row.items() if value is not None}
    versions = ''.join(f', {name} {row[name]}' for name in ('mxnet', 'torch') if name in row)
    bound = max(row.get('gemm_bound_samples_per_s') or 0 for row in rows)
    head = (
        f'{row["workload"]}, {row["mode"]}, hidden {row["hidden"]}, embedding {row["embed"]}, '
        f'{row["threads"]} thread(s) on {row["cpus"]} x {row["cpu"]}{versions}; '
        f'products alone: {bound:.0f} samples/s'
    )
    cells = [[heading for heading, _, _ in COLUMNS]]
    cells += [[_cell(row.get(field), form) for _, field, form in COLUMNS] for row in rows]
    return '\n'.join([head] + aligned(cells, LEFT))


def _cell(value: Optional[Any], form: str) -> str:
    return '' if value is None else form.format(value)


def rounded(value: float, digits: int = 4) -> float:
    """Return a number with four significant digits, which is more than the noise leaves."""
    return float(f'{value:.{digits}g}')


def aligned(cells: list[list[str]], left: Sequence[str] = ()) -> list[str]:
    """Return the lines of a table whose first row has the headings; columns of the headings in
    `left` are set to the left, all others to the right."""
    widths = [max(map(len, column)) for column in zip(*cells)]
    return [
        '  '.join(
            text.ljust(width) if heading in left else text.rjust(width)
            for text, width, heading in zip(line, widths, cells[0])
        ).rstrip()
        for line in cells
    ]
