"""Run the benchmarks: ``python -m benchmarks --help``, and ``COMMAND --help``."""

import sys

from .commands import main

if __name__ == '__main__':
    sys.exit(main())
