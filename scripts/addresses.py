#!/usr/bin/env python3
"""Prints an address of the project, as NAME=ADDRESS, from the one place that holds it.

    python scripts/addresses.py NAME

That place is [tool.release.addresses] in pyproject.toml. Needs Python 3.11.
"""

import sys
from pathlib import Path

import tomllib


def main() -> int:
    """Command line; gives the exit status."""
    name = sys.argv[1]
    settings = tomllib.loads(Path(__file__).parents[1].joinpath('pyproject.toml').read_text())
    address = settings['tool']['release']['addresses'][name]
    if not address:
        print(f'pyproject.toml has no address for {name}: see RELEASING.md', file=sys.stderr)
        return 1
    print(f'{name}={address}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
