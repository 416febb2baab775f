"""What pyproject.toml cannot say: what is compiled, where that is possible."""

import json
import os
from importlib.metadata import version
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

try:
    from Cython import __version__ as cython_version
    from Cython.Build import cythonize
except ImportError:
    cythonize = None  # the modules then run as the Python that they are


# What Cython has for memoryviews, once: it would be half of what is compiled for most modules.
MEMORYVIEWS = 'gluon_edbatch_core._memoryviews'


def load(path):
    """A module of the package, which as a whole cannot be imported yet."""
    spec = spec_from_file_location(Path(path).stem, path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


compiled = load('gluon_edbatch_core/compiled.py')
compiler = load('gluon_edbatch_core/native/compiler.py')


def made_from(name):
    """What tells an extension from others of its name."""
    return cython_version if name == MEMORYVIEWS else compiled.contents(name)


class BuildExt(build_ext):
    """Modules by Cython, and native operators: what cannot be compiled is left out, and said."""

    one_at_a_time = Lock()  # for Cython, whose compiler is not made for threads

    def finalize_options(self):
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self):
        super().run()
        for ext in self.extensions:
            is_module = ext.name in compiled.NAMES  # the others have no form in Python
            if is_module and not Path(self.get_ext_fullpath(ext.name)).exists():
                self.warn(f'{ext.name} was not compiled: it runs as Python, slower')
        if not self.inplace:  # in a checkout they are compiled at first use, as sources change
            self.build_native_operators()

    def build_extensions(self):
        if self.can_compile():  # asked once, as translating for no compiler takes half a minute
            # What another Cython made does not fit together with what this one makes.
            self.is_other_cython = not self.is_made(self.get_ext_fullpath(MEMORYVIEWS), MEMORYVIEWS)
            self.fits_in_place = self.is_made(self.get_ext_filename(MEMORYVIEWS), MEMORYVIEWS)
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
        path, in_place = self.get_ext_fullpath(ext.name), self.get_ext_filename(ext.name)
        if self.fits_in_place and self.is_made(in_place, ext.name):
            self.mkpath(str(Path(path).parent))
            self.copy_file(in_place, path)  # pip builds in a folder that is empty
        else:
            force = self.is_other_cython or not self.is_made(path, ext.name)
            with self.one_at_a_time:
                ext.sources = self.translate(ext, force)
            super().build_extension(ext)
        compiled.stamp_of(path).write_text(made_from(ext.name), encoding='ascii')

    def is_made(self, path, name):
        """Whether an extension is there that was compiled from what would be compiled now."""
        stamp = compiled.stamp_of(path)
        is_there = Path(path).exists() and stamp.exists()
        return is_there and stamp.read_text(encoding='ascii') == made_from(name)

    def translate(self, ext, force):
        """The sources in C."""
        (made,) = cythonize(  # here, as it forgets that an extension is optional
            [Extension(ext.name, ext.sources)],
            build_dir='build',
            force=force,
            shared_utility_qualified_name=MEMORYVIEWS,
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
        operators = mxnet and compiler.Operators(
            Path('gluon_edbatch/execute/native/src').absolute(),
            Path(mxnet.submodule_search_locations[0]),
        )
        try:
            compiler.build_levels(
                operators, Path(self.build_lib, 'gluon_edbatch_core/native', compiler.BUILT.name)
            )
        except compiler.BuildError as error:
            self.warn(f'without native operators, which are compiled at first use: {error}')


class BdistWheel(bdist_wheel):
    """A wheel that lists the code of others that is compiled into it (PEP 770)."""

    def write_wheelfile(self, wheelfile_base, **arguments):
        super().write_wheelfile(wheelfile_base, **arguments)
        libraries = list(Path(self.bdist_dir).rglob('*.so'))
        native = [path for path in libraries if path.parent.name == compiler.BUILT.name]
        names = ['Cython'] * (len(native) < len(libraries))
        if any(not path.stem.endswith(compiler.digest_of(None)) for path in native):
            names.append('mxnet')
        if libraries and 'ziglang' in os.environ.get('CC', ''):
            names.append('ziglang')  # for its C++ library
        content = {
            'bomFormat': 'CycloneDX',
            'specVersion': '1.4',  # the latest that all scanners know
            'version': 1,
            'metadata': {'component': component('gluon-edbatch', self.distribution.get_version())},
            'components': [component(name, version(name)) for name in names],
        }
        folder = Path(wheelfile_base, 'sboms')
        folder.mkdir(exist_ok=True)
        (folder / 'gluon_edbatch.cdx.json').write_text(json.dumps(content, indent=2), 'utf-8')


def component(name, its_version):
    """An entry of CycloneDX for a package."""
    address = f'pkg:pypi/{name.lower()}@{its_version}'
    return {'type': 'library', 'name': name, 'version': its_version, 'purl': address}


sources = {name: Path(*name.split('.')).with_suffix('.py') for name in compiled.NAMES}
headers = 'gluon_edbatch_core/graph', 'gluon_edbatch/mx', 'gluon_edbatch/record'
extensions = [
    Extension(
        name,
        [str(path)],
        include_dirs=[str(path.parent), *headers],
        extra_compile_args=['-g0'],
        optional=True,
    )
    for name, path in sources.items()
]
extensions.append(
    Extension(
        MEMORYVIEWS,
        [MEMORYVIEWS.replace('.', '/') + '.c'],
        extra_compile_args=['-g0'],
        optional=True,
    )
)
setup(
    ext_modules=extensions if cythonize else [],
    cmdclass={'build_ext': BuildExt, 'bdist_wheel': BdistWheel},
)
