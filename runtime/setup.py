"""Build steps beyond pyproject.toml: copy shared modules from gluon_edbatch, and compile them."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import shared  # noqa: E402

try:
    from Cython.Build import cythonize
except ImportError:
    cythonize = None  # the modules then run as the Python that they are

PACKAGE = 'gluon_edbatch_runtime'
shared.take()


def load(path):
    """Load a module of the package by its path, as the package cannot be imported yet."""
    spec = spec_from_file_location(path.stem, path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


compiled = load(HERE / PACKAGE / 'compiled.py')


class BuildExt(build_ext):
    """Compile modules by Cython; report and leave out those that cannot be compiled."""

    def build_extension(self, ext):
        try:
            (made,) = cythonize(  # here, as it forgets that an extension is optional
                [Extension(ext.name, ext.sources)],
                build_dir='build',
                compiler_directives={
                    'language_level': 3,
                    'annotation_typing': False,
                    'boundscheck': False,
                    'wraparound': False,
                    'initializedcheck': False,
                },
            )
            ext.sources = made.sources
            super().build_extension(ext)
        except Exception as error:  # no compiler, or one that fails
            self.warn(f'{ext.name} was not compiled: it runs as Python, slower ({error})')
            return
        path = self.get_ext_fullpath(ext.name)
        if ext.name.endswith('_activations'):
            return  # there is no Python source that it could be older than
        compiled.stamp_of(path).write_text(compiled.contents(ext.name), encoding='ascii')


names = [name for name in compiled.NAMES if name.startswith(shared.COMPILED)]
extensions = [
    Extension(
        f'{PACKAGE}.{name}',
        [f'{PACKAGE}/{name.replace(".", "/")}.py'],
        include_dirs=[f'{PACKAGE}/graph'],
        extra_compile_args=['-g0'],
        optional=True,
    )
    for name in [*names, *shared.OWN]
]
extensions.append(
    Extension(
        f'{PACKAGE}._activations',
        [f'{PACKAGE}/_activations.pyx'],
        include_dirs=[PACKAGE],
        extra_compile_args=['-g0', '-O3', '-fno-math-errno', '-fno-trapping-math'],
        optional=True,
    )
)
setup(ext_modules=extensions if cythonize else [], cmdclass={'build_ext': BuildExt})
