"""Processes that run cases: eager MXNet crashes or hangs on some, and another one goes on."""

import json
import os
import queue
import selectors
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable, NamedTuple, Optional

from gluon_edbatch import native_available

from .cases import Case

# Seconds without a word on a busy machine, for what waits for ever; what computes for ever ends
# itself (`worker.SECONDS`).
TIMEOUT = 120.0
_REPEATED = 5  # runs of a crashed case one way only, to see which way crashes
EAGER_FAILS = 'eager fails'
_ROOT = Path(__file__).resolve().parents[3]


class Result(NamedTuple):
    """What came of a case; `how` is one of the table's columns."""

    case: Case
    how: str
    why: str
    difference: str


class Worker:
    """A process whose children run one case after the other, until one dies.

    Parameters
    ----------
    prelude : str
        Python that it runs first.
    """

    def __init__(self, prelude: str = ''):
        self._prelude = prelude
        self._process: Optional[subprocess.Popen] = None
        self._unread = b''
        self._child = 0  # 0: not known yet, or dead

    def run(self, case: Case, only: str = '') -> dict[str, str]:
        """Return the answer to a case. If the process died, the answer has ``died``: what it was
        doing."""
        if self._process is None:
            self._start()
        while not self._child:
            self._child = self._line().get('child', 0)
        self._process.stdin.write(f'{json.dumps(dict(case._asdict(), only=only))}\n'.encode())
        phase = 'eager'
        while True:
            answer = self._line()
            if 'child' in answer:  # which has taken the place of another
                self._child = answer['child']
                return {'died': phase}
            if 'phase' not in answer:
                if answer.pop('again'):
                    self._child = 0
                return answer
            phase = answer['phase']

    def close(self) -> None:
        """End the process and its child."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process.stdin.close()
            self._process.stdout.close()
            self._process, self._child = None, 0

    def _start(self) -> None:
        environment = dict(
            os.environ,
            OMP_NUM_THREADS='1',
            PYTHONPATH=os.pathsep.join([str(_ROOT), os.environ.get('PYTHONPATH', '')]),
        )
        code = f'{self._prelude}\nfrom tests.fuzz.walk.worker import main\nmain()'
        self._process = subprocess.Popen(
            [sys.executable, '-W', 'ignore', '-c', code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=environment,
            start_new_session=True,
        )
        self._unread = b''

    def _line(self) -> dict[str, Any]:
        """What it says next; a child that says nothing for long is ended."""
        while b'\n' not in self._unread:
            with selectors.DefaultSelector() as ready:
                ready.register(self._process.stdout, selectors.EVENT_READ)
                if not ready.select(TIMEOUT):
                    if not self._child:
                        raise RuntimeError('a process of the walk does not start')
                    os.kill(self._child, signal.SIGKILL)
                    continue
            piece = os.read(self._process.stdout.fileno(), 1 << 16)
            if not piece:
                raise RuntimeError('a process of the walk has ended by itself')
            self._unread += piece
        line, self._unread = self._unread.split(b'\n', 1)
        return json.loads(line)


def run_cases(
    cases: Iterable[Case],
    jobs: int,
    prelude: str = '',
    seen: Callable[[Any], None] = lambda _: None,
    judge: Optional[Callable[[Worker, Case, str], Any]] = None,
) -> list[Any]:
    """What `judge` (`judged`, if it is not given) says of cases, in so many processes; `seen` is
    called with each result."""
    native_available()  # compiles changed operators, which takes longer than `TIMEOUT`
    judge = judge or judged
    waiting: queue.Queue[tuple[int, Case]] = queue.Queue()
    for item in enumerate(cases):
        waiting.put(item)
    results: dict[int, Any] = {}
    lock = threading.Lock()

    def work() -> None:
        worker = Worker(prelude)
        try:
            for number, case in _taken(waiting):
                result = judge(worker, case, prelude)
                with lock:
                    results[number] = result
                    seen(result)
        finally:
            worker.close()

    with ThreadPoolExecutor(jobs) as pool:
        for done in [pool.submit(work) for _ in range(jobs)]:
            done.result()
    return [results[number] for number in sorted(results)]


def _taken(waiting: 'queue.Queue') -> Iterator[tuple[int, Case]]:
    while True:
        try:
            yield waiting.get_nowait()
        except queue.Empty:
            return


def judged(worker: Worker, case: Case, prelude: str) -> Result:
    """The result of a case. If the process died, it is tried which way it does: memory that eager
    code damages may end the process later."""
    answer = worker.run(case)
    if 'died' not in answer:
        return Result(case, answer['how'], answer['why'], answer.get('difference', ''))
    if answer['died'] != 'batched' or _dies(case, 'eager', prelude):
        return Result(case, EAGER_FAILS, 'the process ends, or hangs', '')
    if _dies(case, 'batched', prelude):
        return Result(case, 'refused', '', 'the process ends, or hangs, in a batch')
    return judged_again(case, prelude)


def judged_again(case: Case, prelude: str) -> Result:
    """In a process of its own: what ran before in the other one had damaged it."""
    worker = Worker(prelude)
    try:
        answer = worker.run(case)
    finally:
        worker.close()
    if 'died' in answer:
        return Result(case, 'refused', '', 'the process ends now and then, in a batch')
    return Result(case, answer['how'], answer['why'], answer.get('difference', ''))


def _dies(case: Case, only: str, prelude: str) -> bool:
    worker = Worker(prelude)
    try:
        return any('died' in worker.run(case, only) for _ in range(_REPEATED))
    finally:
        worker.close()
