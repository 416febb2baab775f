"""Programs that tests run in processes of their own. None outlives the test that started it.

A program takes SIGINT as one started from a terminal does, also where the tests run in the
background: a shell starts those with SIGINT ignored, and what is ignored is inherited.
"""
import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import ContextManager, Iterator, Sequence

ROOT = Path(__file__).resolve().parents[2]
HANG = 900  # seconds that nothing takes unless it hangs, however busy the machine is

_HEARS_INTERRUPTS = [sys.executable, '-I', '-S', '-c', '''
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
''']


@contextlib.contextmanager
def start(command: Sequence, cwd=None, **environment: str) -> Iterator[subprocess.Popen]:
    """A program that the test talks to while it runs; with all that it started, it ends with the
    ``with`` statement. `environment` has variables besides those of this process."""
    process = subprocess.Popen(
        [*_HEARS_INTERRUPTS, *map(str, command)], cwd=cwd, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        env={**os.environ, 'OMP_NUM_THREADS': '1', **environment})
    watchdog = threading.Timer(HANG, _kill, [process])
    watchdog.daemon = True
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        _kill(process)
        process.communicate()


def _kill(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):  # all of its group have ended by themselves
        os.killpg(process.pid, signal.SIGKILL)


def run(command: Sequence, cwd=None, **environment: str) -> subprocess.CompletedProcess:
    """Status, output and errors of a program that runs to its end."""
    return _finish(start(command, cwd, **environment))


def run_python(*arguments, cwd=None, **environment: str) -> subprocess.CompletedProcess:
    """The same of this interpreter with some arguments, such as ``'-c', program``."""
    return run([sys.executable, *arguments], cwd, **environment)


def start_example(name: str, *arguments, cwd=None):
    """A program of the examples, as ``'tree_lstm/train'``, that the test talks to."""
    path = os.pathsep.join([str(ROOT), os.environ.get('PYTHONPATH', '')])
    return start([sys.executable, ROOT / 'example' / f'{name}.py', *arguments], cwd,
                 PYTHONPATH=path)


def run_example(name: str, *arguments, cwd=None) -> subprocess.CompletedProcess:
    """Status, output and errors of a program of the examples."""
    return _finish(start_example(name, *arguments, cwd=cwd))


def _finish(started: ContextManager[subprocess.Popen]) -> subprocess.CompletedProcess:
    with started as process:
        out, err = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def interrupt(process: subprocess.Popen, patience: int = 20, most: int = 12) -> str:
    """Interrupt a program that goes on writing lines until it is, and return its errors.

    Python drops an interrupt that falls into a ``__del__``, so after `patience` further lines
    another is sent, `most` in all.
    """
    for _ in range(most):
        process.send_signal(signal.SIGINT)
        for _ in range(patience):
            if not process.stdout.readline():
                errors = process.stderr.read()
                process.wait()
                return errors
    raise AssertionError(f'the program goes on after {most} interrupts')
