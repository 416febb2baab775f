"""MXNet with versions of NumPy that are later than it: names, printed parameters, promotion."""

import json
import sys
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest

from gluon_edbatch.mx import numpy_compat
from gluon_edbatch.mx.numpy_compat import attribute_text
from gluon_edbatch.run.__main__ import main
from tests.support import promotion
from tests.support.processes import run_python

TWO, THREE = np.int64(2), np.int32(3)
RECORDED = Path(__file__).parents[1] / 'fixtures' / 'promotion_numpy_1_26.json'


def test_no_name_that_exists_is_replaced(monkeypatch):
    monkeypatch.setattr(np, 'alltrue', 'kept', raising=False)
    monkeypatch.delattr(np, 'msort', raising=False)
    numpy_compat.put_back()
    names = vars(np)  # the linter would write names of NumPy 2
    assert names['alltrue'] == 'kept'
    assert names['msort'](np.array([[3, 1], [2, 4]])).tolist() == [[2, 1], [3, 4]]


@pytest.mark.parametrize(
    'value, text',
    [
        ((TWO, 3), '(2, 3)'),
        ((TWO,), '(2,)'),
        ([TWO, (None, THREE)], '[2, (None, 3)]'),
        ((np.float32(0.1), np.True_), '(0.1, True)'),
        (('np.x', TWO), "('np.x', 2)"),
        ('np.int64(2)', 'np.int64(2)'),
        (TWO, '2'),
        (np.float64(0.5), '0.5'),
        ((), '()'),
    ],
)
def test_parameters_are_printed_as_numbers(value, text):
    assert attribute_text(value) == text


CALLS = {
    'zeros': lambda: mx.nd.zeros((TWO, THREE)).shape == (2, 3),
    'sum': lambda: mx.nd.ones((2, 3, 4)).sum(axis=(np.int64(1), TWO)).shape == (2,),
    'slice': lambda: mx.nd.ones((4, 4)).slice((np.int64(1), None), (THREE, TWO)).shape == (2, 2),
    'pad': lambda: (
        mx.nd.ones((1, 1, 2, 2)).pad('constant', (0, 0, 0, 0, *[np.int64(1)] * 4)).shape
        == (1, 1, 4, 4)
    ),
    'symbol': lambda: (
        mx.sym.zeros((TWO, THREE)).infer_shape()[1] == [(2, 3)]
        and mx.sym.var('x', shape=(TWO, 3)).attr('__shape__') == '(2, 3)'
    ),
    'numpy mode': lambda: mx.np.zeros((TWO, THREE)).sum(axis=(np.int64(0), 1)).shape == (),
    'random': lambda: mx.nd.random.uniform(shape=(TWO, THREE)).shape == (2, 3),
}


@pytest.mark.parametrize('name', CALLS)
def test_numbers_of_numpy_in_tuples(name):
    assert CALLS[name]()


def test_an_array_of_one_element_is_a_number():
    assert float(mx.nd.array([[2.0]]).asscalar()) == float(mx.np.array([[2.0]]).item()) == 2
    assert bool(mx.nd.array([[2.0]]))
    with pytest.raises(ValueError):
        mx.nd.ones(2).asscalar()


@pytest.mark.parametrize('hybridize', [False, True])
@pytest.mark.parametrize('init', [mx.init.Orthogonal(), mx.init.Xavier(), mx.init.Constant(0.5)])
def test_blocks_of_numpys_sizes(hybridize, init):
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Dense(TWO, in_units=THREE), mx.gluon.nn.Dense(np.int64(5)))
    net.initialize(init)
    if hybridize:
        net.hybridize()
    assert net(mx.nd.ones((4, 3))).shape == (4, 5)
    conv = mx.gluon.nn.Conv2D(TWO, (np.int64(1), TWO), padding=(TWO, 0), in_channels=1)
    conv.initialize(init)
    assert conv(mx.nd.ones((1, 1, 4, 4))).shape == (1, 2, 8, 3)


@pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < '1.26.0', reason='earlier versions refuse some pairs'
)
def test_promotion_is_that_of_numpy_1_26():
    expected = json.loads(RECORDED.read_text(encoding='ascii'))
    found = promotion.results()
    assert expected == found


def test_run_starts_a_program_that_imports_mxnet_first(tmp_path):
    (tmp_path / 'helper.py').write_text('VALUE = 3\n')
    (tmp_path / 'program.py').write_text(
        'import mxnet as mx, sys, helper\n'
        'print(__name__, sys.argv[1:], helper.VALUE, mx.nd.ones(2).sum().asscalar())\n'
    )
    for arguments in (['program.py'], ['-m', 'program']):
        result = run_python(
            *('-W', 'ignore', '-m', 'gluon_edbatch.run', *arguments, '--flag'),
            cwd=str(tmp_path),
            PYTHONPATH=str(Path(__file__).parents[2]) + ':' + str(tmp_path),
        )
        assert result.stdout == "__main__ ['--flag'] 3 2.0\n", result.stderr


def test_run_without_a_program_says_how(monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', ['run'])
    assert main() == 2
    assert 'python -m gluon_edbatch.run script.py' in capsys.readouterr().err


def test_without_gluon_edbatch_mxnet_says_what_the_documentation_shows():
    result = run_python('-W', 'ignore', '-c', 'import mxnet')
    error = next(
        (line for line in result.stderr.splitlines() if line.startswith('AttributeError')), None
    )
    if tuple(map(int, np.__version__.split('.')[:2])) < (1, 24):
        assert not error and result.returncode == 0
    else:
        page = Path(__file__).parents[2] / 'docs' / 'guides' / 'install.md'
        assert error and error.rstrip('.') in page.read_text(encoding='utf-8')


def test_versions_are_compared_without_distutils(monkeypatch):
    monkeypatch.setattr(numpy_compat, 'find_spec', lambda name: None)
    for name in [name for name in sys.modules if name.partition('.')[0] == 'distutils']:
        monkeypatch.delitem(sys.modules, name)
    with numpy_compat.distutils_for_versions():
        from distutils.version import LooseVersion

        assert LooseVersion('1.9.3') < LooseVersion('1.17') < LooseVersion('2.0.0rc1')
    assert 'distutils' not in sys.modules and 'distutils.version' not in sys.modules
