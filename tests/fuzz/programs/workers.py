"""Processes that run cases: one that ends, or says nothing for long, is replaced by another."""

import json
import os
import queue
import selectors
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Callable, Optional

from .case import DIED, EAGER, EAGER_FAILS, PROGRAM, Outcome, constructs_of

# Seconds without a word: a program whose compilation takes so long on a busy machine does not end.
# Each is waited for by itself, so that those in which the walk is stopped count as one at most.
TIMEOUT = 120
_EACH = 100  # cases of a process: what MXNet keeps of each is not much, but some
_ROOT = Path(__file__).resolve().parents[3]


def run_cases(
    seed: int, numbers: Iterable[int], jobs: int, seen: Callable[[Outcome], None]
) -> list[Outcome]:
    """What came of each, in their order; `seen` is called with each as it comes."""
    waiting: queue.Queue[list[int]] = queue.Queue()
    everything = list(numbers)
    size = max(1, min(_EACH, -(-len(everything) // jobs)))
    for begin in range(0, len(everything), size):
        waiting.put(everything[begin : begin + size])
    outcomes: list[Outcome] = []

    def work() -> None:
        while True:
            try:
                some = waiting.get_nowait()
            except queue.Empty:
                return
            for outcome in _outcomes(seed, some):
                outcomes.append(outcome)
                seen(outcome)

    with ThreadPoolExecutor(jobs) as pool:
        for done in [pool.submit(work) for _ in range(jobs)]:
            done.result()
    return sorted(outcomes, key=lambda outcome: outcome.number)


def _outcomes(seed: int, numbers: list[int]) -> Iterator[Outcome]:
    left: deque[int] = deque(numbers)
    ended: Optional[int] = None
    while left:
        process = _started(seed, left)
        try:
            who = PROGRAM
            for line in _lines(process):
                answer = json.loads(line)
                who = answer.get('who', PROGRAM)
                if 'number' in answer:
                    left.popleft()
                    yield Outcome(**answer)
        finally:
            ended = process.poll()
            process.kill()
            process.wait()
            process.stdout.close()  # type: ignore[union-attr]
        if left:
            number = left.popleft()
            why = 'it does not end' if ended is None else f'the process ended with {ended}'
            how = EAGER_FAILS if who == EAGER else DIED
            yield Outcome(number, how, why, constructs_of(seed, number), {})


def _started(seed: int, numbers: Iterable[int]) -> subprocess.Popen:
    path = os.pathsep.join([str(_ROOT), os.environ.get('PYTHONPATH', '')])
    return subprocess.Popen(
        [sys.executable, '-W', 'ignore', '-m', 'tests.fuzz.programs.worker', str(seed)]
        + [str(number) for number in numbers],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(os.environ, OMP_NUM_THREADS='1', PYTHONPATH=path),
    )


def _lines(process: subprocess.Popen) -> Iterator[bytes]:
    """Whole lines, until the process ends or says nothing for long."""
    assert process.stdout
    unread = b''
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        while any(ready.select(1) for _ in range(TIMEOUT)):
            piece = os.read(process.stdout.fileno(), 1 << 16)
            if not piece:
                process.wait()
                return
            *lines, unread = (unread + piece).split(b'\n')
            yield from lines
