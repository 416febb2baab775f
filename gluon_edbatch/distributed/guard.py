"""One process of a job, and the process beside it that ends it with the job.

The launcher starts this file for each process, on its own machine or through ssh, and says on its
standard input what to run: a line of JSON, and then an empty line every few seconds. Each is
answered by a zero byte among the errors, which the launcher leaves out: that this machine is there,
whatever the process does. The input ends with the launcher, however that ends and wherever it is,
and so does all that was started here. Python alone: it runs before MXNet is imported, and ends what
does not answer.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
from typing import Any, Dict, Optional

GRACE = 5.0  # seconds between asking a process to end and killing it
_GLANCE = 0.1  # seconds between two looks at a process
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Run what standard input says; gives its exit status, as a shell has it."""
    for name in ('SIGTERM', 'SIGHUP', 'SIGINT'):
        signal.signal(getattr(signal, name), lambda *_: sys.exit(1))
    words, errors = sys.stdin.fileno(), sys.stderr.fileno()
    spec = json.loads(sys.stdin.buffer.readline())
    _answer(errors)
    process = _start(spec)
    try:
        return _watch(process, words, errors, spec['silence'])
    finally:
        _end(process)


def _start(spec: Dict[str, Any]) -> subprocess.Popen:
    """The process, first of a group of its own: what it starts ends with it."""

    def prepare() -> None:
        with contextlib.suppress(OSError, AttributeError):  # Linux only
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if spec['processors']:
            own = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, {own[i % len(own)] for i in spec['processors']})

    if not os.path.isdir(spec['directory']):
        print(f'launch: there is no folder {spec["directory"]} here', file=sys.stderr)
        sys.exit(127)
    try:
        return subprocess.Popen(
            spec['command'],
            cwd=spec['directory'],
            env={**os.environ, **spec['environment']},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=prepare,
        )
    except (OSError, subprocess.SubprocessError) as error:
        print(f'launch: {spec["command"][0]} cannot be started: {error}', file=sys.stderr)
        sys.exit(127)


def _watch(process: subprocess.Popen, words: int, errors: int, silence: float) -> int:
    """Wait until the process ends, or the launcher is gone."""
    # Counted, and not by a clock: a machine that stood still has missed no word.
    quiet = 0.0
    while True:
        status: Optional[int] = process.poll()
        if status is not None:
            return status if status >= 0 else 128 - status
        if select.select([words], [], [], _GLANCE)[0]:
            if not os.read(words, 1 << 12):
                return 1
            _answer(errors)
            quiet = 0.0
        else:
            quiet += _GLANCE
            if quiet > silence:
                print(f'launch: nothing heard of the launcher for {silence:g} s', file=sys.stderr)
                return 1


def _answer(errors: int) -> None:
    """Unless so much waits there to be read that the launcher knows, and this would wait too."""
    with contextlib.suppress(OSError):  # the launcher is gone, which its words tell
        if select.select([], [errors], [], 0)[1]:
            os.write(errors, b'\0')


def _end(process: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


if __name__ == '__main__':
    sys.exit(main())
