"""Which modules run in the form that Cython compiled.

Each is ordinary Python with its types in a ``.pxd`` file beside it. The compiled form is taken if
there is one that fits this interpreter, it was not switched off by ``GLUON_EDBATCH_COMPILED=0``,
and no source was changed since.
"""
import importlib
import importlib.util
import os
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Dict, Sequence

LOADED: Dict[str, bool] = {}  # by module, whether it is the compiled form


def load(name: str, *types: str) -> None:
    """Import a module in its compiled form if that is possible, else from its source.

    Parameters
    ----------
    name : str
        Full name of a module that was not imported yet.
    *types : str
        Further ``.pxd`` files beside it that it was compiled with.
    """
    LOADED[name] = _is_compiled(name, types)
    if not LOADED[name]:
        _load_source(name)


def all_compiled() -> bool:
    """Whether all of them are."""
    return all(LOADED.values())


def _source(name: str) -> Path:
    return Path(__file__).parent.joinpath(*name.split('.')[1:]).with_suffix('.py')


def _is_compiled(name: str, types: Sequence[str]) -> bool:
    source = _source(name)
    origin = importlib.util.find_spec(name).origin
    sources = [source] + [source.with_name(f'{stem}.pxd') for stem in (source.stem, *types)]
    newest = max(path.stat().st_mtime for path in sources)
    if (origin == str(source) or os.environ.get('GLUON_EDBATCH_COMPILED') == '0'
            or newest > os.stat(origin).st_mtime):
        return False
    try:
        importlib.import_module(name)
    except (ImportError, ValueError):  # such as another layout of MXNet's arrays
        return False
    return True


def _load_source(name: str) -> None:
    """Load a module from its Python source, whatever lies beside it."""
    path = str(_source(name))
    spec = importlib.util.spec_from_file_location(name, path, loader=SourceFileLoader(name, path))
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    package, _, short = name.rpartition('.')
    setattr(sys.modules[package], short, module)
