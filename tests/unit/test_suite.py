"""What must hold of the tests themselves."""

import ast
import inspect
import os
import random
import select
import signal
import subprocess
import sys
from pathlib import Path
from types import FunctionType
from typing import NamedTuple

import mxnet as mx
import numpy as np
import pytest
from mxnet import gluon

import gluon_edbatch as edb
from gluon_edbatch.record import hooks
from tests.support.aftermath import assert_hooks_gone, is_mxnets
from tests.support.cases import in_one_test
from tests.support.processes import HANG, interrupt, run_python, start
from tests.support.sources import nodes_of
from tests.support.tiers import FAST, KEPT, durations, is_fast, left_to_slow

TESTS = Path(__file__).resolve().parents[1]
PROGRAMS = TESTS / 'fuzz', TESTS / 'runtime'  # which measure, too
MODULES = sorted(path for path in TESTS.rglob('*.py') if not {*PROGRAMS} & {*path.parents})


class Told(NamedTuple):
    """What a module's source tells."""

    functions: set[str]
    imported: set[str]  # first names of all that it imports, anywhere in it
    clocks: list[str]  # the lines that go by the clock


@pytest.fixture(scope='module')
def told():
    """Told by each module."""
    return {
        module: Told(
            {node.name for node in nodes if isinstance(node, ast.FunctionDef)},
            set(imported(nodes)),
            [f'{module}:{getattr(node, "lineno", "?")}' for node in nodes if is_a_clock(node)],
        )
        for module, nodes in nodes_of(MODULES).items()
    }


def imported(nodes):
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.split('.')[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split('.')[0]


def is_a_clock(node):
    if isinstance(node, ast.Attribute):
        return isinstance(node.value, ast.Name) and node.value.id == 'time'
    return (
        isinstance(node, ast.keyword)
        and node.arg == 'timeout'
        and isinstance(node.value, ast.Constant)
    )


def test_no_test_module_imports_another(told):
    """What several need stands in `support`."""
    others = {path.stem for path in MODULES if path.stem.startswith('test_')}
    assert not [module for module in MODULES if others & told[module].imported]


def test_durations_name_tests(told):
    for name in {*durations(), *KEPT}:
        module, test = name.split()
        assert test in told[TESTS / f'{module}.py'].functions, name


def test_ci_has_a_case_of_each_test_but_of_long_ones():
    seconds = {'short': 0.1, 'cases': 1.0, 'long': 100.0}
    tests = {name: list(range(9)) for name in ('short', 'cases', 'unknown')} | {'long': [0]}
    left = list(left_to_slow(tests, seconds))
    assert left == [1, 2, 3, 4, 6, 7, 8, 0]


def test_no_test_goes_by_the_clock(told):
    """How fast a machine is, and what else it does, decides nothing (`support.processes.HANG` is
    there for what hangs)."""
    assert not [line for each in told.values() for line in each.clocks]


def test_the_fast_tier_names_files_that_exist():
    names = [name for names in FAST.values() for name in names.split()]
    assert len(names) == len(set(names))
    assert {f'test_{name}' for name in names} <= {module.stem for module in MODULES}
    assert is_fast('test_plan') and not is_fast('test_benchmark')


@in_one_test('place', range(len(hooks._HOOKS)), ids=lambda i: hooks._HOOKS[i][1])
def test_a_hook_that_stays_is_noticed(place, monkeypatch):
    owner, name, hook, _ = hooks._HOOKS[place]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, hook)
        with pytest.raises(AssertionError, match=f'{name} is still hooked'):
            assert_hooks_gone()
    assert_hooks_gone()


@pytest.mark.parametrize('kind', [AssertionError, pytest.fail.Exception, pytest.skip.Exception])
def test_a_loop_runs_all_cases_and_names_those_that_fail(kind, monkeypatch, tmp_path):
    seen, drawn, folders = [], [], []

    @in_one_test('one', ['a', 'b', 'c'])
    @in_one_test('two, three', [(1, 2), pytest.param(3, 4, id='named')])
    def check(one, two, three, monkeypatch, tmp_path):
        monkeypatch.setattr(sys, 'set_by_a_case', one, raising=False)
        seen.append((one, two, three))
        drawn.append((random.random(), np.random.rand(), float(mx.nd.random.uniform().asscalar())))
        folders.append(tmp_path)
        if one == 'b' and two == 3:
            raise kind('wrong')

    with pytest.raises(pytest.fail.Exception) as info:
        check(monkeypatch=monkeypatch, tmp_path=tmp_path)
    assert seen == [(one, *rest) for one in 'abc' for rest in ((1, 2), (3, 4))]
    assert len(set(drawn)) == 1 and len(set(folders)) == 6
    assert all(folder.is_dir() for folder in folders) and not hasattr(sys, 'set_by_a_case')
    told = str(info.value)
    assert told.startswith('1 of 3 cases of check failed: b (case 1)')
    assert '1 of 2 cases of check failed: named (case 1)' in told and 'wrong' in told
    assert list(inspect.signature(check).parameters) == ['monkeypatch', 'tmp_path']


def test_a_loop_notices_a_hook_that_stays():
    owner, name, hook, original = hooks._HOOKS[0]

    @in_one_test('stays', [True, False])
    def check(stays):
        setattr(owner, name, hook if stays else original)

    with pytest.raises(pytest.fail.Exception, match=r'1 of 2 .* True[^,]*\n'):
        check()


def replaced_by_the_package():
    """Names of functions in modules and classes of MXNet that are not MXNet's own."""
    modules = [module for name, module in sys.modules.items() if name.startswith('mxnet')]
    classes = [
        item
        for module in modules
        for item in vars(module).values()
        if isinstance(item, type) and item.__module__.startswith('mxnet')
    ]
    items = [
        (owner, name, item)
        for owner in modules + classes
        for name, item in vars(owner).items()
        if not isinstance(item, type)
    ]
    return {
        (owner.__name__, name)
        for owner, name, item in items
        if str(getattr(item, '__module__', '')).startswith('gluon_edbatch')
    } | {
        (name, '__code__')
        for _, name, item in items
        if isinstance(item, FunctionType)
        and item.__module__.startswith('mxnet')
        and not is_mxnets(item.__code__)
    }


def test_all_that_a_scope_replaces_in_mxnet_is_watched():
    before = replaced_by_the_package()
    with edb.batching():
        replaced = replaced_by_the_package() - before
    assert replaced == {(owner.__name__, name) for owner, name, _, _ in hooks._HOOKS}


def test_after_a_scope_calls_of_blocks_run_the_code_that_they_have(monkeypatch):
    """Compiled, a scope has such calls pass by the code."""
    call = gluon.Block.__call__
    with edb.batching():
        pass
    with monkeypatch.context() as changed:
        changed.setattr(call, '__code__', (lambda self, *args: 'its own').__code__)
        assert gluon.nn.Dense(1)(1) == 'its own'


@pytest.fixture
def interrupts_ignored():
    """Ignore interrupts, as a process does that a shell started in the background."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGINT, before)


def test_programs_hear_interrupts_where_the_tests_do_not(interrupts_ignored):
    with start([sys.executable, '-c', 'while True: print("a line", flush=True)']) as process:
        assert process.stdout.readline() == 'a line\n'
        assert interrupt(process).splitlines()[-1] == 'KeyboardInterrupt'
        assert process.returncode == -signal.SIGINT


def test_an_interrupt_that_python_drops_is_sent_again():
    program = """
import sys, time
class Deaf:
    def __del__(self):
        print('deleted', flush=True)
        time.sleep(10 ** 6)
Deaf()
print('goes on', flush=True)
while True:
    print('a line')
"""
    with start([sys.executable, '-c', program]) as process:
        assert process.stdout.readline() == 'deleted\n'
        errors = interrupt(process)
        assert errors.startswith('Exception ignored in') and 'KeyboardInterrupt' in errors
        assert process.returncode == -signal.SIGINT


def test_what_mxnet_says_of_the_machine_is_no_programs_error():
    line = (
        '[12:00:00] /mxnet/src/base.cc:46: Please install cuda driver for GPU use.  No cuda driver'
    )
    done = run_python('-c', f'import sys; sys.stderr.write({line + " detected."!r} + "\\nmine\\n")')
    assert done.stderr == 'mine\n'


ENDLESS = """
import subprocess, sys, time
subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(10 ** 6)'])
print('begun', flush=True)
time.sleep(10 ** 6)
"""


def test_a_failed_test_leaves_no_program_behind():
    """Nor what the program has started: its output ends when the last of them is gone."""
    with pytest.raises(ZeroDivisionError):
        with start([sys.executable, '-c', ENDLESS]) as process:
            assert process.stdout.readline() == 'begun\n'
            raise ZeroDivisionError
    assert process.returncode == -signal.SIGKILL and process.stdout.closed


def test_programs_end_with_a_killed_process_of_tests(tmp_path):
    """A pipe that the program holds open is closed, and not by the process that started it."""
    pipe = tmp_path / 'pipe'
    os.mkfifo(pipe)
    held = f'held = open({str(pipe)!r}, "w"); print(flush=True)'
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    done = run_python(
        '-c',
        f"""
import os, signal, sys
sys.path.append({str(TESTS / 'support')!r})  # alone: `tests.support` imports MXNet
from processes import start
with start([sys.executable, '-c', {held!r} + '; import time; time.sleep(10 ** 6)']) as process:
    process.stdout.readline()
    os.kill(os.getpid(), signal.SIGKILL)
""",
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    closed = select.poll()
    closed.register(reader, 0)
    assert closed.poll(1000 * HANG) == [(reader, select.POLLHUP)]
    os.close(reader)


def test_a_copy_without_history_can_be_copied(tmp_path):
    """A CUDA build's tests run in one, and copy it to build packages of."""
    first, second = tmp_path / 'first', tmp_path / 'second'
    copy = 'scripts/copy_checkout.sh'
    subprocess.run(['bash', TESTS.parent / copy, first], check=True)
    (first / 'gluon_edbatch' / 'built.so').touch()  # is not taken along
    subprocess.run(['bash', first / copy, second], check=True)
    files = {path.relative_to(second) for path in second.rglob('*') if path.is_file()}
    assert Path(copy) in files and len(files) > 500
    assert files == {path.relative_to(first) for path in first.rglob('*') if path.is_file()} - {
        Path('gluon_edbatch', 'built.so')
    }
