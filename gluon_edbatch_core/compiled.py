"""Load modules in the form that Cython compiled, where there is one that fits.

Each such module is ordinary Python with its types in a ``.pxd`` file beside it. The compiled form
is used if it fits this interpreter and ``GLUON_EDBATCH_COMPILED=0`` does not switch it off. The
sources must be unchanged, too: a file beside it has the digest of what it was compiled from.

``setup.py`` loads this module by its path, so it may import the standard library only.
"""

import hashlib
import importlib
import importlib.util
import os
import sys
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, SourceFileLoader
from pathlib import Path
from typing import Optional

NAMES = (
    'gluon_edbatch.mx.arrays',
    'gluon_edbatch.subgraph.fingerprint',
    'gluon_edbatch_core.recorded_columns',
    'gluon_edbatch_core.bundle.sample_reader',
    'gluon_edbatch_core.graph.edges',
    'gluon_edbatch_core.plan.rows',
    'gluon_edbatch_core.plan.layout',
    'gluon_edbatch_core.native.run_table',
    'gluon_edbatch.record.indexing',
    'gluon_edbatch.record.stores',
    'gluon_edbatch.record.scopes',
    'gluon_edbatch.record.calls',
    'gluon_edbatch.record.expressions',
    'gluon_edbatch.record.sample_greenlets',
    'gluon_edbatch.effects.resolved',
    'gluon_edbatch.effects.sample_objects',
    'gluon_edbatch_core.schedule.frontier',
    'gluon_edbatch_core.schedule.rules',
    'gluon_edbatch_core.schedule.sufficient',
    'gluon_edbatch_runtime.calls',
)

_NOT_COMPILED = (
    'was not compiled: installing needs a C compiler, and a checkout `python setup.py build_ext '
    '--inplace`. If the package is installed, run Python in another folder than the checkout'
)
_PACKAGES = 'gluon_edbatch', 'gluon_edbatch_core', 'gluon_edbatch_runtime'
_ROOT = Path(__file__).parent.parent
_why_not: dict[str, Optional[str]] = {}  # by module, why it is not the compiled form


def load(name: str) -> None:
    """Import a module in its compiled form if that is possible, else from its source.

    Parameters
    ----------
    name : str
        Full name of a module that was not imported yet.
    """
    _why_not[name] = _load_compiled(name)
    if _why_not[name]:
        _load_source(name)


def all_compiled() -> bool:
    """Return whether all modules that can be compiled run in their compiled form."""
    return not any(_why_not.values())


def why_not() -> str:
    """Return the first module that runs as Python, and why; empty if all are compiled."""
    return next((f'{name} {reason}' for name, reason in _why_not.items() if reason), '')


def say_what_is_slower() -> None:
    """Print one line if a module runs as Python, unless the user asked for it."""
    if not all_compiled() and not _is_switched_off():
        print(
            f'gluon_edbatch: recording and scheduling run as Python, slower: {why_not()} '
            f'(GLUON_EDBATCH_COMPILED=0 if that is meant)',
            file=sys.stderr,
        )


@cache
def contents(name: str) -> str:
    """Return a digest of what a module is compiled from: its source and all type declarations."""
    types = sorted(path for name in _PACKAGES for path in (_ROOT / name).rglob('*.pxd'))
    headers = sorted({header for path in types for header in path.parent.glob('*.h')})
    digest = hashlib.sha256()
    for path in [_source(name), *types, *headers]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def stamp_of(extension: str) -> Path:
    """Return the path of the file beside an extension that has the digest of its sources."""
    return Path(extension).with_suffix('.contents')


def _source(name: str) -> Path:
    path = _ROOT.joinpath(*name.split('.'))
    return path.with_suffix('.py' if path.with_suffix('.py').exists() else '.pyx')


def _is_switched_off() -> bool:
    return os.environ.get('GLUON_EDBATCH_COMPILED') == '0'


def _load_compiled(name: str) -> Optional[str]:
    """Import a module's compiled form and return None; return why if that is not possible."""
    if _is_switched_off():
        return 'was asked to'
    spec = importlib.util.find_spec(name)
    extension = None if spec is None else spec.origin
    if extension is None or extension == str(_source(name)):
        return _NOT_COMPILED
    if _changed():
        return f'runs as Python, as {_changed()} was changed: `python setup.py build_ext --inplace`'
    try:
        importlib.import_module(name)
    except (ImportError, KeyError, ValueError) as error:  # a `cimport` of what runs as Python, too
        return f'cannot be loaded: {error}'
    return None


@cache
def _changed() -> str:
    """Return the first module that was changed since it was compiled. The others must not run in
    their compiled form then, as they read each other's C attributes."""
    for name in NAMES:
        for extension in map(_source(name).with_suffix, EXTENSION_SUFFIXES):
            stamp = stamp_of(str(extension))
            if extension.exists() and not (
                stamp.exists() and stamp.read_text(encoding='ascii') == contents(name)
            ):
                return name
    return ''


def _load_source(name: str) -> None:
    """Load a module from its Python source, whether or not there is a compiled form."""
    path = str(_source(name))
    loader = SourceFileLoader(name, path)
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None  # a file's
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    package, _, short = name.rpartition('.')
    setattr(sys.modules[package], short, module)
