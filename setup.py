"""What setup.cfg cannot say: the hot path of recording is compiled where that is possible."""
from setuptools import Extension, setup

try:
    from Cython.Build import cythonize
except ImportError:
    extensions = []  # the module then runs as the Python that it is
else:
    extensions = cythonize(
        [Extension('gluon_edbatch.record.calls', ['gluon_edbatch/record/calls.py'],
                   optional=True)],  # no compiler, no harm
        build_dir='build',
        compiler_directives={'language_level': 3, 'annotation_typing': False,
                             'boundscheck': False, 'wraparound': False, 'initializedcheck': False})

setup(ext_modules=extensions)
