"""Training on several workers of this machine: throughput, waiting, and what an exchange takes.

The model is the Tree-LSTM on SICK. Each worker has its own processor, and servers sum gradients
over loopback. Balanced minibatches are compared with random ones. A plan for more workers follows
from the measurements.

python -m benchmarks.distributed --data data/sick --workers 1 2 --batch-sizes 25 100 256
python -m benchmarks.distributed --json rows.jsonl --plot workers.png
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

os.environ.setdefault('OMP_NUM_THREADS', '1')
LAUNCHER = Path(__file__).resolve().parents[2] / 'gluon_edbatch' / 'distributed' / 'launch.py'
SPEEDUP, IDLE = 1.5, 0.05  # the bars, for two workers


def arguments(argv: Optional[Sequence[str]] = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        'python -m benchmarks.distributed',
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add('--data', metavar='DIR', help='SICK (default: the embedded sample)')
    add('--glove', metavar='FILE', help='word vectors, which are not trained then')
    add('--workers', type=int, nargs='+', default=[1, 2], metavar='N')
    add('--servers', type=int, default=1, metavar='N')
    add('--batch-sizes', type=int, nargs='+', default=[25, 256], metavar='N', help="a worker's")
    add('--hidden', type=int, default=150)
    add('--embed', type=int, default=300)
    add('--epochs', type=int, default=3, help='that are timed, after one that is not')
    add('--cpus', type=int, default=1, help='processors of each worker')
    add('--gigabits', type=float, default=10.0, help="of each machine's network, for the plan")
    add('--json', type=Path, metavar='FILE', help='a line for each measurement')
    add('--plot', type=Path, metavar='FILE', help='throughput and waiting over workers')
    add('--work', help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def measure(options: argparse.Namespace, workers: int, batch_size: int, shards: str) -> dict:
    """Run one job; return what its first worker has written."""
    given = ['--batch-size', str(batch_size), '--shards', shards, '--hidden', str(options.hidden)]
    if options.data:
        given += ['--data', str(Path(options.data).resolve())]
    if options.glove:
        given += ['--glove', str(Path(options.glove).resolve())]
    else:
        given += ['--embed', str(options.embed)]
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / 'row.json'
        kvstore = 'dist_sync' if workers > 1 else None
        settings = {
            'arguments': [*given, *(['--kvstore', kvstore] if kvstore else [])],
            'kvstore': kvstore,
            'epochs': options.epochs,
            'servers': options.servers if kvstore else 0,
            'out': str(out),
        }
        command = [sys.executable, '-m', 'benchmarks.distributed', '--work', json.dumps(settings)]
        if kvstore:
            job = ['-n', str(workers), '-s', str(options.servers), '--cpus', str(options.cpus)]
            command = [sys.executable, str(LAUNCHER), *job, *command]
        else:
            settings['cpus'] = options.cpus
            command[-1] = json.dumps(settings)
        done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise SystemExit(f'{workers} workers: a job ended with status {done.returncode}')
        return json.loads(out.read_text(encoding='utf-8'))


def tell(row: dict[str, Any]) -> str:
    """Return a row as text."""
    return (
        f'{row["workers"]:3d} x {row["batch_size"]:<4d} {row["shards"]:9s}'
        f'{row["samples_per_s"]:9.0f} samples/s  step {row["step_ms"]:7.1f} ms: compute '
        f'{row["compute_ms"]:6.1f}  exchange {row["exchange_ms"]:5.1f} (servers '
        f'{row["server_ms"]:4.1f})  update {row["update_ms"]:4.1f}  idle '
        f'{row["idle_share_of_the_faster"]:5.1%} (by calls {row["predicted_idle"]:.1%})'
    )


def tell_bars(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return lines that tell whether two workers are as fast as required."""
    found = {(row['workers'], row['batch_size'], row['shards']): row for row in rows}
    lines = []
    for (workers, size, shards), row in found.items():
        alone = found.get((1, size, 'balanced'))
        if workers == 2 and shards == 'balanced' and alone:
            speedup = row['samples_per_s'] / alone['samples_per_s']
            idle = row['idle_share_of_the_faster']
            lines.append(
                f'minibatches of {size}: two workers are {speedup:.2f} times as fast as one '
                f'({"" if speedup >= SPEEDUP else "not "}at least {SPEEDUP}); the faster waits '
                f'{idle:.1%} of its time ({"" if idle <= IDLE else "not "}at most {IDLE:.0%})'
            )
    return lines


def tell_plan(options: argparse.Namespace, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return a table for more workers, from the largest measured minibatches."""
    from benchmarks.distributed.plan import costs_of, plan
    from benchmarks.distributed.worker import sample_costs

    size = max(row['batch_size'] for row in rows)
    some = [row for row in rows if row['batch_size'] == size and row['shards'] == 'balanced']
    alone = [row for row in some if row['workers'] == 1]
    together = [row for row in some if row['workers'] > 1]
    if not alone or not together:
        return []
    costs = costs_of(alone[0], together[-1])
    calls = alone[0]['sample_cost']
    lines = [
        '',
        f'measured: {1e6 * costs.sample_s:.0f} us a sample ({1e6 * costs.sample_s / calls:.1f} a '
        f'call), {costs.bytes_a_step / 1e6:.2f} MB a step and worker each way, a server adds up '
        f'{costs.sum_bytes_per_s / 1e9:.2f} GB/s',
        f'on paper: {size} samples a worker, a server beside each, {options.gigabits:g} Gbit/s',
        'workers   idle  compute ms  link ms  server ms  step ms  samples/s  efficiency',
    ]
    lines += [
        f'{row["workers"]:7d} {row["idle_share"]:6.1%} {row["compute_ms"]:11.1f} '
        f'{row["link_ms"]:8.1f} {row["server_ms"]:10.1f} {row["step_ms"]:8.1f} '
        f'{row["samples_per_s"]:10.0f} {row["efficiency"]:11.2f}'
        for row in plan(costs, size, sample_costs(options.data), options.gigabits)
    ]
    return lines


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; return the exit status."""
    options = arguments(argv)
    if options.work:
        from benchmarks.distributed.worker import work
        from benchmarks.machine import use_cpus

        settings = json.loads(options.work)
        if settings.get('cpus'):
            use_cpus(settings['cpus'])
        work(settings)
        return 0
    rows = []
    for size in options.batch_sizes:
        for workers in options.workers:
            for shards in ('balanced', 'random') if workers > 1 else ('balanced',):
                rows.append(measure(options, workers, size, shards))
                print(tell(rows[-1]), flush=True)
                if options.json:
                    with options.json.open('a', encoding='utf-8') as file:
                        file.write(json.dumps(rows[-1]) + '\n')
    print('\n'.join([*tell_bars(rows), *tell_plan(options, rows)]))
    if options.plot:
        from benchmarks.distributed.plots import draw

        draw(rows, options.plot)
    return 0


if __name__ == '__main__':
    sys.exit(main())
