"""Train a pointer network to put shuffled words in order; see --help."""

import sys
from pathlib import Path

if __package__ in (None, ''):  # run as a program: modules are found by package name
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from collections.abc import Sequence
from typing import Optional

from example.common.program import run_program
from example.pointer.task import PointerTask

__all__ = ['main']


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command line; return the exit status."""
    return run_program(PointerTask, arguments)


if __name__ == '__main__':
    sys.exit(main())
