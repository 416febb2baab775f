"""Sources of an earlier commit, and programs that run this commit's benchmarks or its own."""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .workloads import WORKLOADS

__all__ = ['ROOT', 'add_commit_arguments', 'check_workloads', 'start', 'write_commit']

ROOT = Path(__file__).resolve().parents[1]
# Earlier commits had the benchmarks below scripts/.
_PREFACE = """
import sys
from importlib import import_module
from pathlib import Path
root = Path(sys.argv[1])
old = not (root / 'benchmarks').exists()
sys.path[:0] = [str(root / part) for part in (('scripts', 'example', '') if old else ('',))]
package = 'bench' if old else 'benchmarks'
Settings = import_module(package + '.settings').Settings
"""


def add_commit_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commit to compare with, and the workloads."""
    parser.add_argument('commit', help='the earlier one, as git knows it')
    parser.add_argument(
        '--workloads', nargs='+', default=list(WORKLOADS), metavar='NAME', help='default: all'
    )


def check_workloads(names: Sequence[str]) -> None:
    """Raise ValueError unless all names are workloads."""
    unknown = set(names) - set(WORKLOADS)
    if unknown:
        raise ValueError(f'no workload {", ".join(sorted(unknown))}')


def write_commit(commit: str, folder: Path) -> None:
    """Write a commit's files to a folder that exists.

    Raises
    ------
    ValueError
        If git has no such commit.
    """
    command = ['git', '-C', str(ROOT), 'archive', commit]
    archive = subprocess.run(command, capture_output=True, check=False)
    if archive.returncode:
        raise ValueError(f'git has no commit {commit}')
    subprocess.run(['tar', '-x', '-C', folder], input=archive.stdout, check=True)


def start(root: Path, program: str, argument: str, **variables: str) -> subprocess.Popen:
    """Start a program with the sources below `root`, this interpreter, and pipes to and from it.

    Parameters
    ----------
    root : Path
        A checkout of any commit.
    program : str
        Python. It finds `Settings`, and in `package` the name of the package of benchmarks.
    argument : str
        The program's ``sys.argv[2]``.
    **variables : str
        Of its environment.
    """
    return subprocess.Popen(
        [sys.executable, '-W', 'ignore', '-c', _PREFACE + program, str(root), argument],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, 'PYTHONPATH': str(root), **variables},
        cwd=root,
    )
