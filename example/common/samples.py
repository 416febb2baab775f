"""The shared parts of the makers of embedded samples: drawing, writing files, and the command line.

A maker (``NAME/make_sample.py``) has a grammar and a function ``write_sample(directory, splits,
seed)``. The same seed gives the same files, byte for byte, with every version of Python.
"""

import argparse
import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable, Optional, Union

__all__ = ['Writer', 'different', 'run_maker', 'write_files']


class Writer:
    """Draw random choices. It uses only `random.random`, which is the same in all versions of
    Python."""

    def __init__(self, seed: str):
        self._random = random.Random(seed).random

    def chance(self, probability: float) -> bool:
        """Return True with a probability."""
        return self._random() < probability

    def index(self, items: Sequence) -> int:
        """Return the index of a random item."""
        return int(self._random() * len(items))

    def pick(self, items: Sequence) -> Any:
        """Return a random item."""
        return items[self.index(items)]


def different(count: int, draw: Callable[[], Any], key: Callable[[Any], Any] = str) -> list[Any]:
    """Return `count` results of `draw`, no two of them with the same key."""
    found: dict[Any, Any] = {}
    while len(found) < count:
        drawn = draw()
        found.setdefault(key(drawn), drawn)
    return list(found.values())


def write_files(directory, contents: dict[str, Union[str, bytes]]) -> None:
    """Write files below a directory, made if needed; each is complete or absent.

    Parameters
    ----------
    directory : str or Path
    contents : dict
        Maps a name, which may have a folder, to bytes or to text, whose lines end in a line feed on
        all systems.
    """
    for name, content in contents.items():
        path = Path(directory) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f'{path.name}.part')
        part.write_bytes(content.encode() if isinstance(content, str) else content)
        os.replace(part, path)


def run_maker(
    write_sample: Callable[..., None],
    sample: Path,
    description: str,
    arguments: Optional[Sequence[str]] = None,
) -> int:
    """Write a sample as the command line says; return the exit status.

    Parameters
    ----------
    write_sample : callable
        Called with a directory and ``seed``.
    sample : Path
        The directory, unless the command line has another.
    description : str
        For ``--help``.
    arguments : sequence of str, optional
        By default those of the process.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        '--out', default=str(sample), metavar='DIR', help='where to write it (default: %(default)s)'
    )
    parser.add_argument('--seed', type=int, default=0, help='(default: %(default)s)')
    options = parser.parse_args(arguments)
    write_sample(options.out, seed=options.seed)
    return 0
