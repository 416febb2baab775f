"""Run one process of a job, and end it when the launcher is gone.

The launcher starts this program for each process, on its own machine or through ssh. Standard input
has a line of JSON with the command, and then an empty line every few seconds. The guard answers
each with a zero byte on standard error, which the launcher removes from the output. The input ends
with the launcher. Only the standard library is imported, as MXNet may hang.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys

GRACE = 5.0  # seconds between asking a process to end and killing it
_GLANCE = 0.1  # seconds between two looks at a process


def main() -> int:
    """Run the process that standard input describes; return its exit status as a shell does."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(1))
    *spec, silence = json.loads(sys.stdin.buffer.readline())
    _answer(2)
    process = _start(spec)
    try:
        return _watch(process, 0, 2, silence)
    finally:
        _end(process)


def _start(spec: list) -> subprocess.Popen:
    """Start a process in a new process group, which its children share."""
    command, directory, variables, processors = spec
    prctl = getattr(ctypes.CDLL(None), 'prctl', lambda *_: None)  # Linux only
    try:
        if processors:  # counted from 0, and again from there; the process inherits them
            own = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {own[i % len(own)] for i in processors})
        return subprocess.Popen(
            command,
            cwd=directory,
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=lambda: prctl(1, signal.SIGKILL),  # PR_SET_PDEATHSIG: if the guard is killed
        )
    except OSError as error:  # which names the command or the directory
        print(f'launch: {command[0]} cannot be started: {error}', file=sys.stderr)
        sys.exit(127)


def _watch(process: subprocess.Popen, words: int, errors: int, silence: float) -> int:
    """Answer the launcher until it is gone or the process ends; return the exit status."""
    quiet = 0.0  # counted, and not by a clock: a machine that stood still has missed no word
    while quiet <= silence:
        status = process.poll()
        if status is not None:
            return status if status >= 0 else 128 - status
        if not select.select([words], [], [], _GLANCE)[0]:
            quiet += _GLANCE
        elif os.read(words, 1 << 12):
            quiet = 0.0
            _answer(errors)
        else:
            return 1
    print(f'launch: nothing heard of the launcher for {silence:g} s', file=sys.stderr)
    return 1


def _answer(errors: int) -> None:
    """Write a zero byte, unless the pipe is full: the launcher then has enough to read."""
    with contextlib.suppress(OSError):  # the launcher is gone, which its words tell
        if select.select([], [errors], [], 0)[1]:
            os.write(errors, b'\0')


def _end(process: subprocess.Popen) -> None:
    """End the process and its children, and kill those that do not end."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


if __name__ == '__main__':
    sys.exit(main())
