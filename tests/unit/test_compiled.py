"""The hot paths of recording and scheduling work as Python and as compiled by Cython, and one knows
which it is."""

import os
from pathlib import Path

import pytest

import gluon_edbatch as edb
from gluon_edbatch.record import calls
from tests.support.processes import ROOT, run_python
from tests.support.tiers import sampled


def run(*arguments):
    """A program with the hot path as Python; its output."""
    done = run_python(*arguments, cwd=ROOT, GLUON_EDBATCH_COMPILED='0')
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    return done.stdout


def test_compiled_tells_the_truth():
    assert (not calls.__file__.endswith('.py')) == edb.COMPILED


def test_compiled_is_what_an_installation_with_a_compiler_gives():
    """Every environment that the scripts make has one, as gluonnlp needs it."""
    compiled = list(Path(calls.__file__).parent.glob('calls.*.so'))
    if os.environ.get('GLUON_EDBATCH_COMPILED', '1') != '0' and compiled:
        assert edb.COMPILED, 'calls.py was changed after it was compiled: install again'


def test_python_form_can_be_asked_for():
    out = run(
        '-W',
        'ignore',
        '-c',
        'import gluon_edbatch as edb; '
        'from gluon_edbatch.record import calls; print(edb.COMPILED, calls.__file__)',
    )
    flag, path = out.split()[-2:]
    assert flag == 'False' and path.endswith('calls.py')


SOME = [
    'unit/test_lazy_array.py',
    'integration/test_sites.py',
    'unit/test_rows.py',
    'unit/test_schedule.py::test_frontier_is_as_defined',
]
OTHERS = [
    'integration/test_functional.py',
    'unit/test_graph.py',
    'unit/test_plan.py',
    'unit/test_fsm.py',
]


@pytest.mark.parametrize('tests', sampled(2, [SOME, OTHERS]), ids=['some', 'others'])
def test_python_form_passes_the_tests(tests):
    """Tests of recording, planning and scheduling pass; other tests do not depend on the form."""
    out = run(
        '-m',
        'pytest',
        '-q',
        '-x',
        '-p',
        'no:cacheprovider',
        '-n',
        '0',
        *(f'tests/{name}' for name in tests),
    )
    assert ' passed' in out


RECORD = """
import gluon_edbatch as edb, mxnet as mx, numpy as np
from mxnet import gluon
cell, embed = edb.rnn.ChildSumTreeLSTMCell(4, 3), gluon.nn.Embedding(9, 3)
nary, lstm = edb.rnn.NaryTreeLSTMCell(4, 2, 3), gluon.rnn.LSTMCell(4, input_size=3)
for block in (cell, embed, nary, lstm):
    block.initialize()
with edb.batching() as scope:
    for number in range(400):  # more than there is room for at first
        x = embed(number % 9)
        leaf = cell(x, [])
        state = cell(embed(2.0), [leaf, leaf] if number % 2 else [leaf])
        both = nary(x, [leaf, state])
        only = nary(x, ())
        h, states = lstm(np.ones((1, 3), np.float32), [only[0], both[1]])
        joined = edb.concat([h, leaf[0], states[1]])
        cell(x, ((h, h), (h, h)))
        total = joined * 2 + edb.ragged([h, h]).sum(axis=1)
log = scope._recording
for name in ('forms', 'ends', 'args', 'lengths', 'instructions'):
    print(name, getattr(log, 'node_' + name).since(0).tolist())
print(log.scalars[:9], len(log.arrays), sorted({str(log.site(node)) for node in range(20)}))
print([type(form.node_type).__name__ + str(form.rows) for form in log.forms])
"""


def test_both_forms_record_the_same(tmp_path):
    program = tmp_path / 'record.py'
    program.write_text(RECORD)
    runs = [
        run_python('-W', 'ignore', program, PYTHONPATH=str(ROOT), GLUON_EDBATCH_COMPILED=compiled)
        for compiled in '01'
    ]
    assert all(done.returncode == 0 for done in runs), [done.stderr for done in runs]
    assert runs[0].stdout == runs[1].stdout and runs[0].stdout.count('\n') == 7


STALE = """
from pathlib import Path
read = Path.read_text
def read_text(path, *args, **kwargs):
    return 'other' if path.name.startswith('edges.') else read(path, *args, **kwargs)
Path.read_text = read_text
import gluon_edbatch as edb
print(edb.COMPILED, edb.FSMScheduler().name)
"""


def test_a_changed_module_runs_as_python_and_so_do_those_that_build_on_it():
    done = run_python('-W', 'ignore', '-c', STALE, PYTHONPATH=str(ROOT))
    assert (done.returncode, done.stdout) == (0, 'False fsm\n'), done.stderr
