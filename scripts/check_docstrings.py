"""Refuse docstrings that lean on the one above: each has to stand by itself, as in a hover.

    python scripts/check_docstrings.py [FILE]...       # by default, all sources

Prints a line for each docstring that begins with one of `LEANING`; the exit status is then 1.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = (
    'gluon_edbatch', 'gluon_edbatch_core', 'gluon_edbatch_runtime',
    'benchmarks', 'example', 'scripts', 'tests',
)  # fmt: skip
LEANING = 'The same', 'Of', 'Those', 'Its', 'That of', 'Such', 'These', 'As', 'It', 'They'
BEGINNING = re.compile(rf'({"|".join(LEANING)})\b')


def main(arguments: Sequence[str]) -> int:
    """Check files, by default all sources; return the exit status."""
    found = [line for name in arguments or _sources() for line in leaning(ROOT / name, name)]
    print(*found, sep='\n', end='\n' if found else '')
    return int(bool(found))


def leaning(path: Path, name: str) -> Iterator[str]:
    """Yield a line for each docstring of a file that does not stand by itself."""
    for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            found = BEGINNING.match(ast.get_docstring(node) or '')
            if found:
                yield (
                    f'{name}:{node.body[0].lineno}: the docstring begins with "{found[1]}": '
                    f'say what this is or does without the one above'
                )


def _sources() -> list[str]:
    listed = subprocess.run(
        ['git', 'ls-files', '--', *SOURCES], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return [name for name in listed.stdout.splitlines() if name.endswith('.py')]


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
