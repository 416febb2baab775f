"""The native operators: compiled once for this machine, and loaded into MXNet.

They are optional. Without a C++ compiler, or with ``GLUON_EDBATCH_NATIVE=0``, everything runs as
`CachedOp`\\ s. The library is kept in ``$GLUON_EDBATCH_CACHE``, or else in the user's cache
folder, under a name that tells sources, compiler and processor.
"""
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import List, Optional

import mxnet as mx

_SOURCES = Path(__file__).parent / 'src'
_FLAGS = ['-std=c++17', '-O3', '-march=native', '-fopenmp-simd', '-fno-math-errno',
          '-fno-trapping-math', '-fPIC', '-shared', '-w']
if os.environ.get('GLUON_EDBATCH_STOPWATCH') == '1':
    _FLAGS.append('-DEDB_STOPWATCH')
_OPERATORS = ('edb_run_forward', 'edb_run_backward')
_lock = threading.Lock()
_available: Optional[bool] = None


class BuildError(Exception):
    """The native operators cannot be compiled or loaded."""


def available() -> bool:
    """Whether the native operators are loaded; the first call compiles and loads them."""
    global _available
    if _available is None:
        with _lock:
            if _available is None:
                _available = _load()
    return _available


def _load() -> bool:
    if os.environ.get('GLUON_EDBATCH_NATIVE', '1') == '0':
        return False
    try:
        path = build()
        _load_into_mxnet(path)
    except BuildError as error:
        print(f'gluon_edbatch: running without native operators, slower: {error}',
              file=sys.stderr)
        return False
    return all(hasattr(mx.nd.op, name) for name in _OPERATORS)


def _load_into_mxnet(path: Path) -> None:
    try:
        mx.library.load(str(path), verbose=False)
    except mx.MXNetError as error:
        reason = str(error).strip().splitlines()[-1]
        raise BuildError(f'MXNet cannot load {path} ({reason}); remove the file, and it is '
                         f'compiled anew') from None


def build() -> Path:
    """Compile the library if it is not there yet.

    Returns
    -------
    pathlib.Path

    Raises
    ------
    BuildError
        If there is no C++ compiler, or it fails.
    """
    compiler = os.environ.get('CXX') or shutil.which('g++') or shutil.which('clang++')
    if not compiler:
        raise BuildError('no C++ compiler found; install g++, or name one in CXX')
    path = _cache() / f'edb_native_{_fingerprint(compiler)}.so'
    if path.exists():
        return path
    print('gluon_edbatch: compiling native operators (once, about half a minute)',
          file=sys.stderr)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = Path(folder) / path.name
            _compile(compiler, made)
            os.replace(made, path)
    except OSError as error:
        raise BuildError(f'cannot write to {path.parent}: {error}; '
                         f'name another folder in GLUON_EDBATCH_CACHE') from None
    return path


def _compile(compiler: str, path: Path) -> None:
    root = Path(mx.__file__).parent
    command = [compiler, *_FLAGS, f'-I{root / "include"}', str(_SOURCES / 'operators.cc'),
               str(root / 'src' / 'lib_api.cc'), '-o', str(path)]
    try:
        result = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise BuildError(f'{compiler} cannot be run: {error}') from None
    if result.returncode:
        errors: List[str] = [line for line in result.stderr.splitlines() if 'error' in line]
        raise BuildError(f'{compiler} failed: {(errors or [result.stderr[-300:]])[0]}')


def _cache() -> Path:
    folder = os.environ.get('GLUON_EDBATCH_CACHE')
    if folder:
        return Path(folder)
    try:
        return Path(os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache') / 'gluon_edbatch'
    except RuntimeError as error:
        raise BuildError(f'{error}; name a folder in GLUON_EDBATCH_CACHE') from None


def _fingerprint(compiler: str) -> str:
    digest = hashlib.sha256(' '.join([compiler, *_FLAGS, mx.__version__]).encode())
    for source in sorted(_SOURCES.iterdir()):
        digest.update(source.read_bytes())
    digest.update(_processor().encode())
    return digest.hexdigest()[:16]


def _processor() -> str:
    """What ``-march=native`` depends on."""
    try:
        with open('/proc/cpuinfo', encoding='ascii', errors='replace') as info:
            return next((line for line in info if line.startswith(('flags', 'Features'))), '')
    except OSError:
        return os.uname().machine
