"""Measure how long single requests wait at a given load: the engine, and windows of requests.

The load comes from another process than the one that serves, as a Poisson process: at times that
are drawn beforehand. Percentiles are of the time since a request was to be sent.

python -m benchmarks.serving                       # the bars, some minutes for each model
python -m benchmarks.serving --models parser --loads 0.3 0.5 0.7 0.9 --plot latency.png
python -m benchmarks.serving --soak 1800 --models treelstm --loads 0.9
python -m benchmarks.serving --processor-time      # one thread, beside other work
python -m benchmarks.serving --http FOLDER         # over HTTP, where the extra `serve` is
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Optional

os.environ.setdefault('OMP_NUM_THREADS', '1')

from benchmarks.serving.load import ask, run
from benchmarks.serving.wire import Configuration

WINDOWS, SIZES = (0, 1, 2, 5, 10, 20), (8, 32, 64, 256)
MODELS = ('treelstm', 'parser', 'early-exit')
ENGINE = Configuration('engine')


def arguments(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        'python -m benchmarks.serving',
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument('--models', nargs='+', choices=MODELS, default=MODELS, metavar='NAME')
    parser.add_argument('--data', metavar='DIR', help='real data (default: embedded samples)')
    parser.add_argument('--seconds', type=float, default=5.0, help='of each load')
    parser.add_argument('--loads', type=float, nargs='+', default=[0.3, 0.5, 0.7, 0.9],
                        help='shares of the largest throughput')  # fmt: skip
    parser.add_argument('--windows', type=float, nargs='*', default=WINDOWS, metavar='MS')
    parser.add_argument('--sizes', type=int, nargs='*', default=SIZES)
    parser.add_argument('--rounds', type=int, default=5, help='of engine and best window, in turns')
    parser.add_argument('--soak', type=float, metavar='SECONDS',
                        help='at the last of the loads, and no more')  # fmt: skip
    parser.add_argument('--processor-time', type=int, nargs='?', const=3000, metavar='N',
                        help='so many requests, by a clock of processor time')  # fmt: skip
    parser.add_argument('--http', type=Path, metavar='FOLDER', help='that is served')
    parser.add_argument('--json', type=Path, metavar='FILE', help='a line for each measurement')
    parser.add_argument('--plot', type=Path, metavar='FILE', help='a picture of latency over load')
    parser.add_argument('--serve', nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


@contextmanager
def served(model: str, data: Optional[str]) -> Iterator[Path]:
    """Yield the socket of a process that serves a model."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / 'socket'
        command = [sys.executable, '-m', 'benchmarks.serving', '--serve', model, str(path)]
        if data:
            command += ['--data', data]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdin is not None and process.stdout is not None
            if process.stdout.readline() != b'ready\n':
                raise SystemExit(f'{model}: the process that serves ended')
            yield path
            process.stdin.close()


class Measurement:
    """Measure one model that is served; print and keep the results."""

    def __init__(self, model: str, path: Path, options: argparse.Namespace):
        self._model, self._path, self._options = model, path, options
        self.rows: list[dict[str, Any]] = []
        self._capacity = 0.0

    def measured(self, system: str, **fields: Any) -> float:
        """Return the figures that the serving process measures itself."""
        return asyncio.run(ask(self._path, Configuration(system, **fields)))

    def throughput(self) -> None:
        """Measure in process: the engine under full load, and minibatches, in turns; for each
        second, and for each second of processor time."""
        seconds = self._options.seconds / 2
        systems = 'throughput', 'offline', 'throughput-cpu', 'offline-cpu'
        turns = [[self.measured(each, seconds=seconds) for each in systems] for _ in range(3)]
        self._capacity, offline, *of_cpu = (sorted(each)[1] for each in zip(*turns))
        self._tell(kind='throughput', engine=self._capacity, offline_64=offline,
                   ratio=self._capacity / offline, engine_a_cpu_s=of_cpu[0],
                   offline_a_cpu_s=of_cpu[1], ratio_of_cpu=of_cpu[0] / of_cpu[1])  # fmt: skip

    def load(self, configuration: Configuration, load: float, seed: int = 1) -> dict[str, Any]:
        """Return latencies at a share of the largest throughput."""
        rate, seconds = load * self._capacity, self._options.seconds
        found = asyncio.run(run(self._path, configuration, rate, seconds, seed))
        return self._tell(kind='load', **configuration._asdict(), load=load, rate=rate, **found)

    def bars(self) -> None:
        """Measure the engine at all loads; at twice its capacity, without deadlines and with the
        99th percentile of the last load; and the best window at 70 %."""
        self.throughput()
        at_loads = [self.load(ENGINE, load) for load in self._options.loads]
        self.load(ENGINE, 2.0)
        self.load(ENGINE._replace(deadline=at_loads[-1]['p99'] / 1e3), 2.0)
        windows = [
            Configuration('window', window, size)
            for window in self._options.windows
            for size in self._options.sizes
        ]
        if not windows:
            return
        best = min([self.load(each, 0.7) for each in windows], key=lambda row: row['p99'])
        window = Configuration('window', best['window'], best['size'])
        turns = [
            [self.load(each, 0.7, seed)['p99'] for each in (ENGINE, window)]
            for seed in range(2, 2 + self._options.rounds)
        ]
        engine, rival = (sorted(each) for each in zip(*turns))
        middle = len(turns) // 2
        self._tell(kind='bar', window=window.window, size=window.size,
                   engine_p99=engine[middle], window_p99=rival[middle],
                   ratio=engine[middle] / rival[middle],
                   ratio_of_least=engine[0] / rival[0])  # fmt: skip
        for load in self._options.loads:
            self.load(window, load)

    def soak(self) -> None:
        """Run at a share of the capacity; print errors, and memory before, in between and after."""
        self.throughput()
        load, parts = self._options.loads[-1], 6
        self.load(ENGINE, load)
        memory, failed = [self.measured('memory')], []
        self._options.seconds = self._options.soak / parts
        for seed in range(parts):
            failed.append(self.load(ENGINE, load, seed)['failed'])
            memory.append(self.measured('memory'))
        self._tell(kind='soak', seconds=self._options.soak, mb=memory, failed=max(failed))

    def _tell(self, **row: Any) -> dict[str, Any]:
        row = {'model': self._model, **row}
        self.rows.append(row)
        text = ', '.join([f'{name} {_short(value)}' for name, value in row.items()])
        print(text, flush=True)
        _keep([row], self._options.json)
        return row


def _keep(rows: Sequence[dict[str, Any]], path: Optional[Path]) -> None:
    if path:
        with path.open('a', encoding='utf-8') as file:
            file.writelines([json.dumps(row) + '\n' for row in rows])


def _short(value: Any) -> str:
    return f'{value:.4g}' if isinstance(value, float) else str(value)


def plot(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the 99th percentile over load, a panel for each model."""
    from benchmarks.plots import by, new_figure, save

    loads = [row for row in rows if row['kind'] == 'load' and row['load'] <= 1]
    models = by(loads, 'model')
    figure, panels = new_figure(len(models), 5)
    for panel, (model, some) in zip(panels, models.items()):
        curves = by([{**row, 'name': row.get('name') or _name(row)} for row in some], 'name')
        for name, points in curves.items():
            if len({row['load'] for row in points}) > 1:
                points = sorted(points, key=lambda row: row['load'])
                panel.plot([row['load'] for row in points], [row['p99'] for row in points],
                           marker='o', label=name)  # fmt: skip
        panel.set(title=model, xlabel='share of the largest throughput', ylabel='p99, ms')
        panel.set_ylim(bottom=0)
        panel.grid(alpha=0.3)
        panel.legend()
    save(figure, path)


def _name(row: dict[str, Any]) -> str:
    if row['system'] == 'engine':
        return 'engine'
    return f'window of {row["window"]:g} ms, {row["size"]}'


def in_processor_time(options: argparse.Namespace) -> int:
    """Measure in processor time; return the exit status."""
    from benchmarks.serving.models import MODELS as BUILDERS
    from benchmarks.serving.virtual import compare

    windows = [(window, size) for window in options.windows for size in options.sizes]
    rows: list[dict[str, Any]] = []
    for name in options.models:
        print(name)
        model = BUILDERS[name](options.data)
        found = compare(model, options.loads, windows, options.processor_time, options.rounds)
        rows += [{'model': name, **row} for row in found]
    _keep(rows, options.json)
    if options.plot:
        plot(rows, options.plot)
    return 0


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; return the exit status."""
    options = arguments(argv)
    if options.serve:
        from benchmarks.serving.process import serve

        serve(options.serve[0], Path(options.serve[1]), options.data)
        return 0
    if options.http:
        from benchmarks.serving.http import measure

        return measure(options.http, options.seconds, options.rounds)
    if options.processor_time:
        return in_processor_time(options)
    rows: list[dict[str, Any]] = []
    for model in options.models:
        with served(model, options.data) as path:
            measurement = Measurement(model, path, options)
            measurement.soak() if options.soak else measurement.bars()
            rows += measurement.rows
    if options.plot:
        plot(rows, options.plot)
    return 0


if __name__ == '__main__':
    sys.exit(main())
