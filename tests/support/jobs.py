"""Start jobs of several workers for tests, and find their processes."""

import os
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

from .processes import ROOT, run, start

LAUNCHER = [sys.executable, '-I', ROOT / 'gluon_edbatch' / 'distributed' / 'launch.py']
_PATHS = os.pathsep.join([str(ROOT), os.environ.get('PYTHONPATH', '')])


def start_job(*arguments, cwd=None) -> AbstractContextManager[subprocess.Popen]:
    """Start a launcher that the test talks to while its job runs; lines have no label."""
    return start([*LAUNCHER, '--plain', *arguments], cwd, PYTHONPATH=_PATHS)


def run_job(*arguments, cwd=None) -> subprocess.CompletedProcess:
    """Return status, output and errors of a job that runs to its end."""
    return run([*LAUNCHER, '--plain', *arguments], cwd, PYTHONPATH=_PATHS)


def processes_of(launcher: subprocess.Popen) -> dict[str, int]:
    """Return ids of a job's running processes by role, such as ``'worker 1'``."""
    found = {}
    for directory in Path('/proc').glob('[0-9]*'):
        try:
            parent = int((directory / 'stat').read_text().rpartition(')')[2].split()[1])
            parent_of_guard = int(
                Path('/proc', str(parent), 'stat').read_text().rpartition(')')[2].split()[1]
            )
            entries = (directory / 'environ').read_bytes().decode().split('\0')
        except (OSError, IndexError, ValueError):  # it has ended meanwhile
            continue
        variables = dict(entry.partition('=')[::2] for entry in entries)
        if parent_of_guard == launcher.pid and 'DMLC_ROLE' in variables:
            name = f'{variables["DMLC_ROLE"]} {variables["GLUON_EDBATCH_RANK"]}'
            found[name] = int(directory.name)
    return found


def is_alive(process: int) -> bool:
    """Return whether a process, not a child of this one, exists and is not a zombie."""
    try:
        return Path('/proc', str(process), 'stat').read_text().rpartition(')')[2].split()[0] != 'Z'
    except OSError:
        return False
