#!/usr/bin/env python3
"""Runs ``python -m benchmarks``, for scripts that still call this file."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.commands import main

if __name__ == '__main__':
    sys.exit(main())
