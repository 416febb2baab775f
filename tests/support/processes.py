"""Run programs for tests in separate processes. None outlives the test that started it.

A program handles SIGINT as one started from a terminal, even if the tests run in the background: a
shell starts those with SIGINT ignored, which is inherited.
"""

import contextlib
import fcntl
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HANG = 600  # seconds that nothing takes unless it hangs, however busy the machine is

# What a CUDA build of MXNet says on a machine without a driver.
_NO_DRIVER = re.compile(
    r'^.*base\.cc:\d+: Please install cuda driver for GPU use\..*\n', re.MULTILINE
)

# Becomes the program, which then hears interrupts, and dies with the process of the tests.
_BEGIN = [
    sys.executable,
    '-I',
    '-S',
    '-c',
    """
import ctypes, os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
os.execvp(sys.argv[1], sys.argv[1:])
""",
]


@contextlib.contextmanager
def start(command: Sequence, cwd=None, **environment: str) -> Iterator[subprocess.Popen]:
    """Start a program that the test talks to while it runs. With all that it started, it ends with
    the ``with`` statement. `environment` has variables besides those of this process."""
    process = subprocess.Popen(
        [*_BEGIN, *map(str, command)],
        cwd=cwd,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, 'OMP_NUM_THREADS': '1', **environment},
    )
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
    """Return status, output and errors of a program that runs to its end, without MXNet's own
    messages about the machine."""
    return _finish(start(command, cwd, **environment))


def run_python(*arguments, cwd=None, **environment: str) -> subprocess.CompletedProcess:
    """Run this interpreter with some arguments, such as ``'-c', program``; return what `run`
    returns."""
    return run([sys.executable, *arguments], cwd, **environment)


def start_example(name: str, *arguments, cwd=None):
    """Start a program of the examples, such as ``'tree_lstm/train'``, that the test talks to."""
    path = os.pathsep.join([str(ROOT), os.environ.get('PYTHONPATH', '')])
    return start(
        [sys.executable, ROOT / 'example' / f'{name}.py', *arguments], cwd, PYTHONPATH=path
    )


def run_example(name: str, *arguments, cwd=None) -> subprocess.CompletedProcess:
    """Return status, output and errors of a program of the examples."""
    return _finish(start_example(name, *arguments, cwd=cwd))


def _finish(started: AbstractContextManager[subprocess.Popen]) -> subprocess.CompletedProcess:
    with started as process:
        out, err = process.communicate()
        return subprocess.CompletedProcess(
            process.args, process.returncode, out, _NO_DRIVER.sub('', err)
        )


def interrupt(process: subprocess.Popen, patience: int = 50, most: int = 12) -> str:
    """Interrupt a program that writes lines as long as it runs, and return its errors.

    Python drops an interrupt inside a ``__del__`` or a callback. So another is sent after
    `patience` more lines, `most` in all.
    """
    output = process.stdout.fileno()
    for _ in range(most):
        process.send_signal(signal.SIGINT)
        (before,) = struct.unpack('i', fcntl.ioctl(output, termios.FIONREAD, bytes(4)))
        lines = 0
        while lines <= patience:
            text = os.read(output, 1 << 16)
            if not text:
                errors = process.stderr.read()
                process.wait()
                return errors
            lines += text[before:].count(b'\n')
            before = max(0, before - len(text))
    raise AssertionError(f'the program goes on after {most} interrupts')


def free_ports(count: int) -> list[int]:
    """Return free ports of 127.0.0.1, for a program that is told where to listen."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(('127.0.0.1', 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
