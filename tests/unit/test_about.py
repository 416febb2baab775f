"""What `about` tells is what is so."""

import mxnet as mx
import numpy as np
import pytest

import gluon_edbatch as edb
from gluon_edbatch import compiled
from gluon_edbatch.execute.native import library
from gluon_edbatch_core.native import compiler, executor_library
from tests.support.processes import run_python


def test_it_tells_versions_and_threads(monkeypatch):
    monkeypatch.setattr('gluon_edbatch_core.native.threads._wanted', 3)
    about = edb.about()
    assert about.version == edb.__version__
    assert (about.mxnet, about.numpy) == (mx.__version__, np.__version__)
    assert about.threads == 3
    assert (about.native is not None) == edb.native_available()
    assert (not about.python_instead) == edb.COMPILED
    text = str(about)
    assert f'gluon_edbatch {edb.__version__}' in text
    assert f'MXNet {mx.__version__}, NumPy {np.__version__}' in text
    assert 'threads: 3' in text


@pytest.mark.parametrize(
    ('path', 'told'),
    [
        (compiler.BUILT / 'v3-0123456789abcdef.so', 'v3'),
        ('/cache/edb_native_0123456789abcdef.so', 'v2, compiled at first use'),
        (None, None),
    ],
)
def test_it_tells_where_native_operators_are_from(monkeypatch, path, told):
    monkeypatch.setattr(library, 'loaded', lambda: path and type(compiler.BUILT)(path))
    monkeypatch.setattr(executor_library, '_runnable', lambda: ('v2',))
    assert edb.about().native == told


def test_it_tells_why_modules_run_as_python(monkeypatch):
    monkeypatch.setitem(compiled._why_not, 'gluon_edbatch.record.calls', 'was left out')
    about = edb.about()
    assert 'was left out' in about.python_instead
    assert f'compiled: no: {about.python_instead}' in str(about)


@pytest.mark.skipif(not edb.COMPILED, reason='nothing is compiled here')
def test_all_modules_run_as_python_if_one_was_changed(monkeypatch):
    contents, changed = compiled.contents, 'gluon_edbatch_core.schedule.frontier'
    monkeypatch.setattr(compiled, 'contents', lambda name: contents(name) * (name != changed))
    compiled._changed.cache_clear()
    try:
        assert f'as {changed} was changed' in compiled._load_compiled(
            'gluon_edbatch_core.graph.edges'
        )
    finally:
        compiled._changed.cache_clear()


def test_it_tells_what_was_switched_off():
    done = run_python(
        '-c',
        'import gluon_edbatch as edb; print(edb.about())',
        GLUON_EDBATCH_NATIVE='0',
        GLUON_EDBATCH_COMPILED='0',
    )
    assert done.returncode == 0, done.stderr
    assert 'native operators: none' in done.stdout
    assert 'compiled: no: ' in done.stdout and 'was asked to' in done.stdout
