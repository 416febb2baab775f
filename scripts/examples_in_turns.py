#!/usr/bin/env python3
"""Speed of an example in two checkouts, each running its own code, in turns.

python scripts/examples_in_turns.py transition_parser --other CHECKOUT
    --other-python CHECKOUT/.venv/bin/python -- --data DATA/ud_ewt/lite --batch-size 64

What stands behind ``--`` goes to the example's own command line, in both. A round trains
and evaluates some minibatches, after one that compiles; the last lines have the medians, and the
ratios of the best rounds and of the medians.
"""

import argparse
import contextlib
import importlib
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

ROOT = Path(__file__).resolve().parents[1]
JOBS = ('train', 'infer')


def main() -> int:
    """Command line; gives the exit status."""
    options = parse_options()
    if options.serve:
        serve(options)
        return 0
    sides = {
        'other': Side(options.other, options.other_python, options),
        'here': Side(ROOT, sys.executable, options),
    }
    try:
        speeds = measured_in_turns(sides, options.rounds)
    finally:
        for side in sides.values():
            side.close()
    for job in JOBS:
        other, here = speeds['other'][job], speeds['here'][job]
        print(
            f'{options.example} {job}: other {statistics.median(other):.0f}, here '
            f'{statistics.median(here):.0f} samples/s; of the best {max(here) / max(other):.2f}, '
            f'of the medians {statistics.median(here) / statistics.median(other):.2f}'
        )
    return 0


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('example', help='transition_parser: a folder of example/ with a task.py')
    parser.add_argument('--other', type=Path, help='a checkout of another commit, ready to run')
    parser.add_argument('--other-python', default=sys.executable, help='its interpreter')
    parser.add_argument('--rounds', type=int, default=9)
    parser.add_argument('--minibatches', type=int, default=6, help='of a round')
    parser.add_argument('--serve', type=Path, help=argparse.SUPPRESS)
    words = sys.argv[1:]
    end = words.index('--') if '--' in words else len(words)
    options = parser.parse_args(words[:end])
    options.arguments = words[end + 1 :]
    if not (options.serve or options.other):
        parser.error('--other is needed: with which checkout to compare')
    return options


class Side:
    """One checkout's example in a process of its own, which times a job when it is asked to."""

    def __init__(self, root: Path, python: str, options: argparse.Namespace):
        self._process = subprocess.Popen(
            [
                python,
                str(Path(__file__).resolve()),
                options.example,
                *('--serve', str(root.resolve()), '--minibatches', str(options.minibatches), '--'),
                *options.arguments,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for job in JOBS:  # what it compiles and learns
            self.ask(job)

    def ask(self, job: str) -> float:
        """Samples a second of some minibatches."""
        with contextlib.suppress(BrokenPipeError):  # its own words are on standard error
            print(job, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f'the example ended with status {self._process.wait()}')
        return json.loads(answer)

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()


def measured_in_turns(sides: Dict[str, Side], rounds: int) -> Dict[str, Dict[str, List[float]]]:
    """Samples a second by side and job, one each round."""
    speeds: Dict[str, Dict[str, List[float]]] = {name: {job: [] for job in JOBS} for name in sides}
    for number in range(rounds):
        for name in list(sides)[:: 1 if number % 2 else -1]:
            for job in JOBS:
                speeds[name][job].append(sides[name].ask(job))
        print(
            f'round {number + 1}: '
            + ', '.join(
                f'{job} {speeds["other"][job][-1]:.0f} {speeds["here"][job][-1]:.0f}'
                for job in JOBS
            ),
            flush=True,
        )
    return speeds


def serve(options: argparse.Namespace) -> None:
    """In a process of one side: time the job that a line of standard input names."""
    sys.path[:0] = [str(options.serve / 'example'), str(options.serve)]
    tasks = vars(importlib.import_module(f'{options.example}.task')).values()
    base = importlib.import_module('common.task').Task
    (task,) = [
        kind
        for kind in tasks
        if isinstance(kind, type) and issubclass(kind, base) and 'sample' in vars(kind)
    ]
    parse = importlib.import_module('common.options').parse
    run = importlib.import_module('common.run').Run(task, *parse(task, options.arguments))
    jobs = {'train': train_steps(run), 'infer': evaluations(run)}
    for line in sys.stdin:
        print(json.dumps(jobs[line.strip()](options.minibatches)), flush=True)


def train_steps(run: Any) -> Callable[[int], float]:
    """Steps with new minibatches; gives samples a second."""
    minibatches = endless(run.task.samples['train'], run.options.batch_size)

    def job(count: int) -> float:
        begin, samples, loss = time.perf_counter(), 0, None
        for _ in range(count):
            minibatch = next(minibatches)
            loss = run.step(minibatch)
            samples += len(minibatch)
        loss.wait_to_read()
        return samples / (time.perf_counter() - begin)

    return job


def evaluations(run: Any) -> Callable[[int], float]:
    """Predictions of new minibatches; gives samples a second."""
    minibatches = endless(run.task.samples['dev'], run.options.batch_size)

    def job(count: int) -> float:
        begin, samples = time.perf_counter(), 0
        for _ in range(count):
            minibatch = next(minibatches)
            with run.batching():
                results = run.task.predict_all(run.net, minibatch)
            for result in results:
                result.asnumpy()
            samples += len(minibatch)
        return samples / (time.perf_counter() - begin)

    return job


def endless(samples: Sequence[Any], size: int):
    """Minibatches, from the first again after the last."""
    place = 0
    while True:
        yield [samples[(place + index) % len(samples)] for index in range(size)]
        place = (place + size) % len(samples)


if __name__ == '__main__':
    sys.exit(main())
