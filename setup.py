"""What pyproject.toml cannot say: what is compiled, where that is possible."""

import os
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

try:
    from Cython.Build import cythonize
except ImportError:
    cythonize = None  # the modules then run as the Python that they are


def load(path):
    """A module of the package, which as a whole cannot be imported yet."""
    spec = spec_from_file_location(Path(path).stem, path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


compiled = load('gluon_edbatch/compiled.py')
compiler = load('gluon_edbatch/execute/native/compiler.py')


class BuildExt(build_ext):
    """Modules by Cython, and native operators: what cannot be compiled is left out, and said."""

    one_at_a_time = Lock()  # for Cython, whose compiler is not made for threads

    def finalize_options(self):
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self):
        super().run()
        for ext in self.extensions:
            if not Path(self.get_ext_fullpath(ext.name)).exists():
                self.warn(f'{ext.name} was not compiled: it runs as Python, slower')
        if not self.inplace:  # in a checkout they are compiled at first use, as sources change
            self.build_native_operators()

    def build_extensions(self):
        if self.can_compile():  # asked once, as translating for no compiler takes half a minute
            super().build_extensions()

    def can_compile(self):
        """Whether there is a compiler for modules, and what it needs of Python."""
        with TemporaryDirectory() as folder:
            source = Path(folder, 'trial.c')
            source.write_text('#include <Python.h>\n', encoding='ascii')
            try:
                self.compiler.compile([str(source)], output_dir=folder)
            except CompileError as error:
                self.warn(f'no C compiler with header files of Python works: {error}')
                return False
        return True

    def build_extension(self, ext):
        path = self.get_ext_fullpath(ext.name)
        stamp, contents = compiled.stamp_of(path), compiled.contents(ext.name)
        is_known = stamp.exists() and stamp.read_text(encoding='ascii') == contents
        with self.one_at_a_time:
            ext.sources = self.translate(ext, force=not is_known)
        super().build_extension(ext)
        stamp.write_text(contents, encoding='ascii')

    def translate(self, ext, force):
        """The sources in C."""
        (made,) = cythonize(  # here, as it forgets that an extension is optional
            [Extension(ext.name, ext.sources)],
            build_dir='build',
            force=force,
            compiler_directives={
                'language_level': 3,
                'annotation_typing': False,
                'boundscheck': False,
                'wraparound': False,
                'initializedcheck': False,
            },
        )
        return made.sources

    def copy_extensions_to_source(self):
        super().copy_extensions_to_source()
        for ext in self.extensions:
            made, target = (
                compiled.stamp_of(path)
                for path in (
                    Path(self.build_lib, self.get_ext_filename(ext.name)),
                    self.get_ext_fullpath(ext.name),
                )
            )
            if made.exists():
                self.copy_file(str(made), str(target))

    def build_native_operators(self):
        mxnet = find_spec('mxnet')  # for its sources: it is not imported
        try:
            if mxnet is None:
                raise compiler.BuildError('MXNet is not there')
            compiler.build_levels(
                Path(mxnet.submodule_search_locations[0]),
                Path(self.build_lib, 'gluon_edbatch', 'execute', 'native', compiler.BUILT.name),
            )
        except compiler.BuildError as error:
            self.warn(f'without native operators, which are compiled at first use: {error}')


sources = {
    name: Path('gluon_edbatch', *name.split('.')).with_suffix('.py') for name in compiled.NAMES
}
extensions = [
    Extension(
        f'gluon_edbatch.{name}',
        [str(path)],
        include_dirs=[str(path.parent), 'gluon_edbatch/mx', 'gluon_edbatch/record'],
        extra_compile_args=['-g0'],
        optional=True,
    )
    for name, path in sources.items()
]
setup(ext_modules=extensions if cythonize else [], cmdclass={'build_ext': BuildExt})
