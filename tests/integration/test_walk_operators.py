"""The walk over MXNet's operators (tests/fuzz/walk_operators.py): a slice of it, and that it finds
faults."""

import json
import subprocess
import sys
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest

from gluon_edbatch.ops import OPS
from tests.fuzz import walk_operators
from tests.fuzz.walk.cases import Input, make_case, make_cases
from tests.fuzz.walk.makers import MAKERS
from tests.fuzz.walk.numpy_calls import functions
from tests.fuzz.walk.registry import registry
from tests.fuzz.walk.table import WAYS, lines_of
from tests.fuzz.walk.worker import OWN, Call, _alike, _tolerance
from tests.fuzz.walk.workers import run_cases

ROOT = Path(__file__).resolve().parents[2]


def run_script(*arguments):
    """The script; its status is for the caller."""
    return subprocess.run(
        [sys.executable, '-m', 'tests.fuzz.walk_operators', *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )


def test_a_slice(tmp_path):
    """All of MXNet's operators are in the table, each in one way, and none differs."""
    file = tmp_path / 'table.json'
    done = run_script('--cases', '120', '--seed', '7', '--json', str(file))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    table = json.loads(file.read_text())
    assert table['cases'] == 120 and not table['differences']
    names = [alias for line in table['operators'] for alias in line['aliases']]
    known = [
        name for name in mx.operator.get_all_registered_operators() if not name.startswith('edb_')
    ]
    assert sorted(names) == sorted(known)
    assert {line['way'] for line in table['operators']} <= set(WAYS)
    assert all(
        line['why'] for line in table['operators'] if line['way'] not in ('by rule', 'whole values')
    )


def test_a_slice_of_numpy_mode():
    """Functions, methods and idioms; each once."""
    done = run_script('--numpy', '--cases', str(len(functions())), '--seed', '7')
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


def test_one_case_of_numpy_mode(capsys):
    assert not walk_operators.main(['--numpy', '--only', 'np.sum#0'])
    assert '1 cases' in capsys.readouterr().out


def test_cases_are_the_same_for_the_same_seed():
    known = registry()
    chosen = [known['sort'], known['dot']]
    first, second, other = (list(make_cases(chosen, seed, 20)) for seed in (3, 3, 4))
    assert first == second != other
    assert first[7] == make_case(known['dot'], 3, 3)


def test_each_rank_is_among_the_cases_of_an_operator():
    """A maker may draw other shapes only; every eighth case of any operator has the next rank."""
    for name in 'SoftmaxActivation', 'sort', 'Convolution':
        cases = [make_case(registry()[name], 1, index) for index in range(32)]
        last = cases[7::8]
        assert [len(case.inputs[0].shape) for case in last] == [1, 2, 3, 4]
        assert {case.dtype for case in last} == {'float32'}


def test_every_maker_is_of_an_operator():
    assert not set(MAKERS) - set(registry())


BROKEN = {
    'a result': (
        'from dataclasses import replace\nfrom gluon_edbatch.ops import OPS, axis_rules\n'
        "OPS['sort'] = replace(OPS['sort'], axis=axis_rules.of_rows)\n",
        'sort',
    ),
    'one axis': (
        'from gluon_edbatch.ops import OPS, axis_rules\n'
        'from gluon_edbatch.ops.registry import Op\n'
        "OPS['SoftmaxActivation'] = Op('SoftmaxActivation', axis=axis_rules.of_rows)\n",
        'SoftmaxActivation',
    ),
    'a gradient': (
        'from gluon_edbatch.subgraph import own_gradient\n'
        'own_gradient.own_gradients = lambda graph: []\n'
        'from gluon_edbatch.subgraph import node_type\n'
        'node_type.own_gradients = own_gradient.own_gradients\n',
        'MakeLoss',
    ),
    'a crash': (
        'import os\nfrom gluon_edbatch.subgraph import node_type\n'
        'node_type.mended = lambda *_: os.abort()\n',
        'tanh',
    ),
}


@pytest.mark.parametrize('name', BROKEN)
def test_it_finds_faults(name):
    """In a rule that is broken on purpose, and in code that ends the process."""
    prelude, op = BROKEN[name]
    operator = registry()[op]
    cases = list(make_cases([operator], 1, 12 if name != 'a crash' else 1))
    results = run_cases(cases, 1, prelude)
    (line,) = lines_of([operator], results)
    assert line.differences
    assert not lines_of([operator], run_cases(cases, 1))[0].differences


def test_it_finds_what_comes_with_many_calls():
    """The sweep finds bugs that need many calls, such as positions counted in eight bits."""
    prelude = (
        'import gluon_edbatch, mxnet as mx\n'
        'gluon_edbatch.native_available()\n'  # MXNet makes its functions anew with a library
        'exact = mx.sym.contrib.arange_like\n'
        'mx.sym.contrib.arange_like = lambda *args, **attrs: mx.sym.cast(\n'
        "    mx.sym.cast(exact(*args, **attrs), dtype='uint8'), dtype='int32')\n"
    )
    operator = registry()['take']
    for calls in (4, 300):
        cases = [case._replace(calls=calls) for case in make_cases([operator], 1, 6)]
        (line,) = lines_of([operator], run_cases(cases, 1, prelude))
        assert bool(line.differences) == (calls > 256)


def test_one_case_alone_and_wrong_names(capsys):
    assert not walk_operators.main(['--seed', '1', '--calls', '7', '--only', 'sort#0'])
    assert '1 cases' in capsys.readouterr().out
    for arguments, says in (
        (['--only', 'sorted#0'], 'there is no such operator'),
        (['--operators', 'sorted*'], 'MXNet has no such operator'),
    ):
        with pytest.raises(SystemExit, match=says):
            walk_operators.main(arguments)
    with pytest.raises(SystemExit, match='0'):
        walk_operators.main(['--help'])
    assert '--cases' in capsys.readouterr().out


@pytest.mark.slow
def test_operators_with_gradients_of_their_own_are_declared():
    """Only these operators give a gradient where their results' gradient is zero."""
    known = registry()
    cases = list(make_cases(list(known.values()), 2, 1600))
    answers = run_cases(cases, 2, judge=lambda worker, case, _: worker.run(case, OWN))
    found = {case.op for case, answer in zip(cases, answers) if answer.get('how') == OWN}
    needing_python = {'Custom', '_CustomFunction'}
    declared = {name for name, op in OPS.items() if op.own_gradient}
    assert found == declared - needing_python


def test_what_lies_in_memory_is_no_difference():
    """MXNet leaves out the middle of an image that it flips."""
    flipped = make_case(registry()['_image_flip_left_right'], 1, 0)._replace(
        attrs={}, inputs=[Input((6, 5, 3))], dtype='float32', recorded=False, longer=False
    )
    for result in run_cases([flipped._replace(seed=seed) for seed in range(5)], 1):
        assert result.how == 'one by one' and not result.difference


def test_relu_of_rnn_is_judged_by_single_precision():
    """MXNet rounds it; but a difference that single precision shows is one."""
    sizes = [(2, 2, 2), (24,), (2, 2, 2)]
    case = make_case(registry()['RNN'], 1, 0)._replace(
        attrs={'mode': 'rnn_relu', 'state_size': '2', 'num_layers': '1', 'bidirectional': 'True'},
        inputs=[Input(shape, shared=len(shape) == 1) for shape in sizes],
        dtype='float64',
        recorded=True,
        longer=False,
    )
    value = np.ones(4)
    alike = [
        [_alike(value, value + off, None, _tolerance(each)) for off in (1e-13, 1e-7, 1e-3)]
        for each in (case, case._replace(attrs=dict(case.attrs, mode='rnn_tanh')))
    ]
    assert alike == [[True, True, False], [True, False, False]]
    assert not any(
        result.difference
        for result in run_cases([case._replace(seed=seed) for seed in range(8)], 1)
    )


def test_gradients_of_many_calls_are_judged_by_what_they_are_summed_of():
    """A sum of 300 terms between 1 and 2 may cancel to little; four terms do not round that
    much."""
    left, off = np.float32([0.75]), np.float32([3e-5])
    alike = [
        _alike(left, left + off, None, {'float32': 3e-5}, summed) for summed in (0.0, 4.0, 450.0)
    ]
    assert alike == [False, False, True]


def test_what_calls_add_to_a_gradient_is_known_of_shared_inputs_only():
    case = make_case(registry()['elemwise_mul'], 1, 0)._replace(
        attrs={}, inputs=[Input((3,)), Input((3,), shared=True)], dtype='float32', recorded=True,
        few=False, block=False, longer=False, calls=5,
    )  # fmt: skip
    call = Call(case)
    run = call.run(False, True, sums=True)
    shared = [array is call.arguments[1][1] for array in call.arrays]
    assert [bool(each) for each in run.sums] == shared
    gradient = run.gradients[shared.index(True)]
    assert np.abs(gradient).max() <= run.sums[shared.index(True)] <= 5 * 1.5 * 2
