"""Recording: the user's code runs once per sample, and its calls become nodes.

`COMPILED` tells whether the hot path (``calls.py``) is the form that Cython compiled.
"""
import importlib
import importlib.util
import os
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path


def _compiled(name: str) -> bool:
    """Whether a module was loaded in its compiled form: there is one that fits this interpreter,
    it was not switched off by ``GLUON_EDBATCH_COMPILED=0``, and the sources were not changed
    since."""
    here = Path(__file__).parent
    origin = importlib.util.find_spec(f'{__name__}.{name}').origin
    newest = max(source.stat().st_mtime for source in [here / f'{name}.py', *here.glob('*.pxd')])
    if (origin == str(here / f'{name}.py') or os.environ.get('GLUON_EDBATCH_COMPILED') == '0'
            or newest > os.stat(origin).st_mtime):
        return False
    try:
        importlib.import_module(f'{__name__}.{name}')
    except (ImportError, ValueError):  # such as another layout of MXNet's arrays
        return False
    return True


def _load_source(name: str) -> None:
    """Load a module from its Python source, whatever lies beside it."""
    full = f'{__name__}.{name}'
    path = str(Path(__file__).with_name(f'{name}.py'))
    spec = importlib.util.spec_from_file_location(full, path, loader=SourceFileLoader(full, path))
    sys.modules[full] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


COMPILED = _compiled('calls')
if not COMPILED:
    _load_source('calls')
