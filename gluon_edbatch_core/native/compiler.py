"""Compile the native executor, when the package is built or at first use.

With MXNet's sources, the library also registers operators with MXNet. ``setup.py`` loads this
module by its path, where MXNet and NumPy may be missing, so it may import the standard library
only.
"""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Optional

SOURCES = Path(__file__).with_name('src')
BUILT = Path(__file__).with_name('built')  # where an installed package has its libraries
FLAGS = ('-std=c++17', '-O3', '-fopenmp-simd', '-fno-math-errno', '-fno-trapping-math', '-fPIC')
FOR_THIS_PROCESSOR = ('-march=native',)

# What the levels of x86-64 add to each other: a processor's feature as Linux calls it and, where
# it is another, as the compiler does (which knows the levels' own names since GCC 11 and Clang 12).
_X86_64 = {
    'v2': 'cx16 lahf_lm:sahf popcnt pni:sse3 ssse3 sse4_1:sse4.1 sse4_2:sse4.2',
    'v3': 'avx avx2 bmi1:bmi bmi2 f16c fma abm:lzcnt movbe',
    'v4': 'avx512f avx512bw avx512cd avx512dq avx512vl',
}
# Some compilers would use half of AVX-512's width outside of products.
_MORE = {'v4': ('-mprefer-vector-width=512',)}


class BuildError(Exception):
    """The native executor cannot be compiled or loaded."""


class Operators(NamedTuple):
    """What a library has besides the executor: a folder of sources, and MXNet's package, from whose
    sources it registers operators with MXNet."""

    folder: Path
    mxnet: Path

    @property
    def sources(self) -> list[Path]:
        """All files that it is compiled from."""
        api = self.mxnet / 'include/mxnet/lib_api.h', self.mxnet / 'src/lib_api.cc'
        return [*sorted(self.folder.iterdir()), *api]


def levels() -> dict[str, frozenset[str]]:
    """Return the instruction sets for which a package is built on this machine, the best one last,
    with the processor features of each. Without any, all is compiled at first use."""
    if not sys.platform.startswith('linux'):
        return {}
    if platform.machine() != 'x86_64':
        return {'baseline': frozenset()}
    return {level: frozenset(each for each, _ in _added(level)) for level in _X86_64}


def level_flags(level: str) -> tuple[str, ...]:
    """Return compiler flags that allow a level's instructions, and no others."""
    if level == 'baseline':
        return ()
    flags = [f'-m{flag or feature}' for feature, flag in _added(level)]
    return ('-march=x86-64', *flags, *_MORE.get(level, ()))


def _added(level: str) -> list[tuple[str, str]]:
    """Return features of all levels up to this one, with the compiler's names where they differ."""
    names = list(_X86_64)
    listed = ' '.join([_X86_64[name] for name in names[: names.index(level) + 1]]).split()
    return [each.partition(':')[::2] for each in listed]


def features() -> frozenset[str]:
    """Return the features of this processor that the system lets programs use."""
    try:
        with open('/proc/cpuinfo', encoding='ascii', errors='replace') as info:
            line = next((line for line in info if line.startswith(('flags', 'Features'))), '')
    except OSError:
        line = ''
    return frozenset(line.partition(':')[2].split())


def library_name(level: str, of_operators: str) -> str:
    """Return the file name of a level's library, with digests of its sources and flags: of the
    executor, and of the operators (see `digest_of`)."""
    own = fingerprint(sources_of(None), *level_flags(level))
    return f'{level}-{own}-{of_operators}.so'


def digest_of(operators: Optional[Operators]) -> str:
    """Return a digest of the sources of operators; ``alone`` if there are none."""
    if operators is None:
        return 'alone'
    return fingerprint(operators.sources)


def sources_of(operators: Optional[Operators]) -> list[Path]:
    """Return all sources of a library."""
    return [*sorted(SOURCES.iterdir()), *(operators.sources if operators else ())]


def fingerprint(sources: Sequence[Path], *others: str) -> str:
    """Return a digest of sources, the compiler's flags and what else makes a difference."""
    digest = hashlib.sha256(' '.join([*FLAGS, *others]).encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def find_compiler() -> str:
    """Return the compiler's command, ``CXX`` or one on the path; raise `BuildError` if none."""
    compiler = os.environ.get('CXX') or shutil.which('g++') or shutil.which('clang++')
    if not compiler:
        raise BuildError('no C++ compiler found; install g++, or name one in CXX')
    if not shutil.which(shlex.split(compiler)[0]):
        raise BuildError(f'there is no {compiler}, which CXX names')
    return compiler


def compile_library(
    compiler: str, operators: Optional[Operators], flags: Sequence[str], path: Path
) -> None:
    """Compile a library; raise `BuildError` if the compiler fails."""
    sources = [SOURCES / 'run_arrays.cc']
    if operators is not None:
        sources += [operators.folder / 'operators.cc', operators.sources[-1]]
    run_compiler(compiler, operators, [*flags, '-shared', *map(str, sources), '-o', str(path)])


def run_compiler(compiler: str, operators: Optional[Operators], arguments: Sequence[str]) -> None:
    """Run the compiler; raise `BuildError` if it cannot be run, or fails."""
    include = ['-I', str(SOURCES)]
    if operators is not None:  # as a system's, or there are warnings of MXNet's headers
        include += ['-isystem', str(operators.mxnet / 'include')]
    program, *own = shlex.split(compiler)
    command = [program, *FLAGS, *own, *include, *arguments]
    try:
        result = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise BuildError(f'{compiler} cannot be run: {error}') from None
    if result.returncode:
        lines = result.stderr.splitlines() or [f'exit status {result.returncode}']
        raise BuildError(
            f'{compiler} failed: {next((line for line in lines if "error" in line), lines[-1])}'
        )


def build_levels(operators: Optional[Operators], folder: Path) -> None:
    """Compile the libraries of all levels into a folder, and remove others that are there. Raise
    `BuildError` if one cannot be compiled; the folder is then empty."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    compiler = find_compiler()

    def build(level: str) -> None:
        name = library_name(level, digest_of(operators))
        compile_library(compiler, operators, level_flags(level), folder / name)

    try:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(build, levels()))
    except BuildError:
        shutil.rmtree(folder)
        raise
