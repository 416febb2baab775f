#!/usr/bin/env python3
"""All benchmarks; see --help, and COMMAND --help."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
for _directory in (ROOT / 'example', ROOT):  # the root: also without an installation
    if str(_directory) not in sys.path:
        sys.path.append(str(_directory))

from bench.commands import main  # noqa: E402

if __name__ == '__main__':
    sys.exit(main())
