"""Copy the packages that gluon_edbatch and the runtime share from gluon_edbatch, their source.

    python runtime/shared.py [DIRECTORY]       # by default, into runtime/gluon_edbatch_runtime

``setup.py`` does so inside a checkout; a source distribution has the copies.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / 'gluon_edbatch'
PACKAGE = HERE / 'gluon_edbatch_runtime'
PACKAGES = 'branching', 'bundle', 'graph', 'schedule'
MODULES = 'short_repr compiled errors version recorded_columns'.split()
COMPILED = 'recorded_columns', 'graph.', 'schedule.'  # of what gluon_edbatch compiles
OWN = ('calls',)  # what is compiled besides


def files() -> Iterator[Path]:
    """Yield the files to copy, relative to the package."""
    for pattern in (*[f'{package}/*' for package in PACKAGES], *[f'{name}.*' for name in MODULES]):
        for path in sorted(SOURCE.glob(pattern)):
            if path.suffix in ('.py', '.pxd', '.h'):
                yield path.relative_to(SOURCE)


def take(target: Path = PACKAGE) -> None:
    """Copy files that changed; do nothing outside a checkout."""
    if not SOURCE.is_dir():
        return
    for name in files():
        text = (SOURCE / name).read_text(encoding='utf-8')
        if name.suffix == '.pxd':  # Cython finds declarations by the package's name
            text = text.replace('gluon_edbatch.', 'gluon_edbatch_runtime.')
        path = target / name
        if not path.is_file() or path.read_text(encoding='utf-8') != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f'{path.name}.{os.getpid()}.part')
            part.write_text(text, encoding='utf-8')
            os.replace(part, path)


if __name__ == '__main__':
    take(*map(Path, sys.argv[1:2]))
