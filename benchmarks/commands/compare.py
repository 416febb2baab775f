"""Speed beside an earlier commit's, in turns: the ratio that a noisy machine leaves usable.

    python -m benchmarks compare HEAD~1 --workloads treelstm-sst --mode infer
    python -m benchmarks compare f987f80 --cpus 1

Both sides stay in a process of their own, with this interpreter, and run the same minibatches in
turns. A ratio is this commit's samples a second by the earlier one's: "median" of all turns,
"best" of the fastest turn of each side. The earlier commit is compiled first, which takes minutes.
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from ..arguments import (
    add_machine_arguments,
    add_mode_argument,
    add_workload_arguments,
    positive,
    settings_of,
)
from ..commits import ROOT, add_commit_arguments, check_workloads, start, write_commit
from ..output import complain
from ..settings import MODES, Settings

LINE = '{workload:22} {mode:6} {before:8.0f} {now:8.0f}/s  median {median:.3f}  best {best:.3f}'
_PROGRAM = """
import json
measurement = import_module(package + '.measure').Measurement(Settings(**json.loads(sys.argv[2])))
measurement.warm_up()
print(measurement.minibatches, flush=True)
for line in sys.stdin:
    number, measurement.minibatches = map(int, line.split())
    speed = measurement.timed(number)
    print(speed[0] if isinstance(speed, tuple) else speed, flush=True)
"""


def run(options: argparse.Namespace) -> int:
    """Measure each workload and mode; gives 1 if a ratio is below what was asked."""
    check_workloads(options.workloads)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        _make(options.commit, Path(folder))
        for workload in options.workloads:
            for mode in options.mode:
                settings = settings_of(options, workload=workload, mode=mode, system='fsm')
                rows.append(_row(settings, Path(folder), options.turns))
                print(json.dumps(rows[-1]) if options.json else LINE.format(**rows[-1]), flush=True)
    for name in ('median', 'best'):
        mean = math.exp(sum(math.log(row[name]) for row in rows) / len(rows))
        complain(f'geometric mean of {name}: {mean:.3f}')
    return int(any(row['median'] < options.at_least for row in rows))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``python -m benchmarks compare``."""
    add_commit_arguments(parser)
    parser.add_argument(
        '--turns', type=positive, default=24, metavar='N', help='of each side (default: 24)'
    )
    parser.add_argument(
        '--at-least',
        type=float,
        default=0.0,
        metavar='RATIO',
        help='the exit status is 1 if a median is below it (default: 0)',
    )
    parser.add_argument(
        '--batch-size', type=positive, default=64, metavar='N', help='of a minibatch (default: 64)'
    )
    add_mode_argument(parser, MODES)
    add_workload_arguments(parser, hidden=64, embed=64)
    add_machine_arguments(parser, seconds=0.2)


def _make(commit: str, folder: Path) -> None:
    """Write and compile a commit."""
    write_commit(commit, folder)
    command = [sys.executable, '-W', 'ignore', 'setup.py', '-q', 'build_ext', '--inplace']
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if made.returncode:
        raise ValueError(f'{commit} does not compile:\n{made.stderr[-2000:]}')


def _row(settings: Settings, before: Path, turns: int) -> dict[str, Any]:
    """Measure two sides in turns."""
    data = settings.data and str(Path(settings.data).resolve())  # each side has its own directory
    argument = json.dumps({**asdict(settings), 'data': data})
    sides = [start(root, _PROGRAM, argument) for root in (before, ROOT)]
    try:
        count = max(int(_answer(side)) for side in sides)
        speeds: tuple[list[float], list[float]] = [], []
        for number in range(turns):
            for place in (0, 1) if number % 2 else (1, 0):
                side = sides[place]
                assert side.stdin is not None
                side.stdin.write(f'{number} {count}\n')
                side.stdin.flush()
                speeds[place].append(float(_answer(side)))
    finally:
        for side in sides:
            side.communicate()
    return {
        'workload': settings.workload,
        'mode': settings.mode,
        'before': max(speeds[0]),
        'now': max(speeds[1]),
        'median': median(now / earlier for earlier, now in zip(*speeds)),
        'best': max(speeds[1]) / max(speeds[0]),
    }


def _answer(side: subprocess.Popen) -> str:
    assert side.stdout is not None
    line = side.stdout.readline()
    if not line:
        raise ValueError(f'a side ended with status {side.wait()}')
    return line
