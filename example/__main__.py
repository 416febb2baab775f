"""Run the examples: ``python -m example NAME …``; without a name, list all programs.

The programs run from their own files as well: ``python example/tree_lstm/train.py …``.
"""

import ast
import runpy
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
USAGE = 'usage: python -m example NAME [OPTIONS OF THE PROGRAM …]'


def main() -> int:
    """Run the command line; return the exit status, unless a program does."""
    name, *rest = sys.argv[1:] or ['--help']
    found = programs()
    if name in ('-h', '--help'):
        print(listing(found))
        return 0
    if name not in found:
        print(
            f'python -m example: there is no {name!r}; there are {", ".join(found)}',
            file=sys.stderr,
        )
        return 2
    module = '.'.join(('example', *found[name].relative_to(HERE).with_suffix('').parts))
    sys.path.insert(0, str(HERE.parent))  # modules are found by package name
    sys.argv[1:] = rest
    runpy.run_module(module, run_name='__main__', alter_sys=True)
    return 0


def programs() -> dict[str, Path]:
    """Return files by the names of their programs: FOLDER.MODULE, or FOLDER alone for its
    train.py."""
    files = [
        path
        for path in HERE.glob('*/*.py')
        if "\nif __name__ == '__main__':" in path.read_text(encoding='utf-8')
    ]
    named = {
        path.parent.name if path.stem == 'train' else f'{path.parent.name}.{path.stem}': path
        for path in files
    }
    return dict(sorted(named.items()))


def listing(found: dict[str, Path]) -> str:
    """Return a line for each program: its name, and the first line of its docstring.

    Programs that made the embedded samples are left out: they are the maintainers'.
    """
    shown = {name: path for name, path in found.items() if path.stem != 'make_sample'}
    width = max(map(len, shown))
    lines = [f'  {name:{width}}  {_summary(path)}' for name, path in shown.items()]
    return '\n'.join([USAGE, '', *lines, '', 'Options: python -m example NAME --help'])


def _summary(path: Path) -> str:
    doc = ast.get_docstring(ast.parse(path.read_text(encoding='utf-8')))
    return doc.splitlines()[0].partition('; see --help')[0].rstrip('.')


if __name__ == '__main__':
    sys.exit(main())
