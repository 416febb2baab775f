"""What setup.cfg cannot say: some modules are compiled where that is possible."""
from setuptools import Extension, setup

COMPILED = ('edges', 'layout.rows', 'record.calls', 'schedule.frontier', 'schedule.paths',
            'schedule.run')

try:
    from Cython.Build import cythonize
except ImportError:
    extensions = []  # the module then runs as the Python that it is
else:
    extensions = cythonize(
        [Extension(f'gluon_edbatch.{name}', [f'gluon_edbatch/{name.replace(".", "/")}.py'],
                   optional=True) for name in COMPILED],  # no compiler, no harm
        build_dir='build',
        compiler_directives={'language_level': 3, 'annotation_typing': False,
                             'boundscheck': False, 'wraparound': False, 'initializedcheck': False})

setup(ext_modules=extensions)
