"""Import the runtime without MXNet from this checkout, beside the package: with this environment's
NumPy, and its modules as Python."""

import importlib
import shutil
import sys
from pathlib import Path

from tests.support.processes import ROOT

NAME = 'gluon_edbatch_runtime'


def import_runtime(folder: Path):
    """Return the package, put together in a folder."""
    if NAME not in sys.modules:
        sys.path[:0] = [str(folder), str(ROOT / 'runtime')]
        try:
            taken = importlib.import_module('shared')
            ignored = shutil.ignore_patterns('*.so', '__pycache__', *taken.PACKAGES, *taken.MODULES)
            shutil.copytree(taken.PACKAGE, folder / NAME, ignore=ignored)
            taken.take(folder / NAME)
            importlib.import_module(NAME)
        finally:
            del sys.path[:2]
    return sys.modules[NAME]
