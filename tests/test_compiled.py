"""The hot path of recording works as Python and as compiled by Cython, and one knows which it is."""
import os
import subprocess
import sys
from pathlib import Path

import gluon_edbatch as edb
from gluon_edbatch.record import calls

ROOT = Path(__file__).resolve().parents[1]


def run(*arguments):
    """A program with the hot path as Python; its output."""
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True, timeout=600,
                          env=dict(os.environ, GLUON_EDBATCH_COMPILED='0'))
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


def test_compiled_tells_the_truth():
    assert edb.COMPILED == (not calls.__file__.endswith('.py'))


def test_compiled_is_what_an_installation_with_a_compiler_gives():
    """Every environment that the scripts make has one, as gluonnlp needs it."""
    compiled = list(Path(calls.__file__).parent.glob('calls.*.so'))
    if os.environ.get('GLUON_EDBATCH_COMPILED', '1') != '0' and compiled:
        assert edb.COMPILED, 'calls.py was changed after it was compiled: install again'


def test_python_form_can_be_asked_for():
    out = run('-W', 'ignore', '-c', 'import gluon_edbatch as edb; '
              'from gluon_edbatch.record import calls; print(edb.COMPILED, calls.__file__)')
    flag, path = out.split()[-2:]
    assert flag == 'False' and path.endswith('calls.py')


def test_python_form_passes_the_tests():
    """Those of recording; the others do not know the difference."""
    tests = ['test_lazy_array.py', 'test_functional.py', 'test_rnn.py']
    out = run('-m', 'pytest', '-q', '-x', '-p', 'no:cacheprovider', '-n', '0',
              *(f'tests/{name}' for name in tests))
    assert ' passed' in out
