"""The C++ of the native operators: compiled where a warning is an error, and run where reading
memory that nobody has, what has no defined result, or what threads read and write at once, ends
the program."""

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from gluon_edbatch_core.native import compiler
from tests.support.processes import ROOT, run

try:
    COMPILER = compiler.find_compiler()
except compiler.BuildError as error:
    pytest.skip(str(error), allow_module_level=True)
OPERATORS = compiler.Operators(
    ROOT / 'gluon_edbatch/execute/native/src',
    Path(find_spec('mxnet').submodule_search_locations[0]),
)


@pytest.mark.parametrize(
    'flags',
    [
        ('-fsyntax-only', *compiler.level_flags('v2')),  # most of them come before optimising
        pytest.param(compiler.level_flags('v2'), marks=pytest.mark.slow),
        pytest.param(compiler.level_flags('v4'), marks=pytest.mark.slow),
    ],
    ids=['syntax', 'v2', 'v4'],
)
def test_nothing_is_warned_of(flags, tmp_path):
    if not compiler.levels().keys() >= {'v2', 'v4'}:
        pytest.skip('another processor')
    source, made = OPERATORS.folder / 'operators.cc', tmp_path / 'operators.o'
    warnings = '-Wall', '-Wextra', '-Werror'  # not for users: a newer compiler may warn of more
    arguments = [*flags, *warnings, '-c', str(source), '-o', str(made)]
    compiler.run_compiler(COMPILER, OPERATORS, arguments)


SANITIZERS = {
    'memory': (
        'libasan',
        '-fsanitize=address,undefined,float-cast-overflow '
        '-fno-sanitize-recover=all -fno-omit-frame-pointer',
    ),
    'threads': ('libtsan', '-fsanitize=thread'),
}


def run_sanitized(what, *arguments):
    """A Python program, with the native operators on three threads under AddressSanitizer and
    UBSan, or under ThreadSanitizer. These are to be loaded before all else, with the library whose
    exceptions they watch. Python's own allocations live until it ends, so what leaks is not asked;
    MXNet itself is not compiled so that its threads could be understood."""
    library, flags = SANITIZERS[what]
    libraries = [
        subprocess.run(
            [COMPILER, f'-print-file-name={name}.so'], check=True, text=True, stdout=subprocess.PIPE
        ).stdout.strip()
        for name in (library, 'libstdc++')
    ]
    if not all(Path(each).is_absolute() for each in libraries):
        pytest.skip(f'{COMPILER} has no {library}')
    command = [sys.executable, *arguments]
    if what == 'threads':  # which cannot live with all that addresses may be
        if not shutil.which('setarch'):
            pytest.skip('there is no setarch')
        command = ['setarch', '-R', *command]
    return run(
        command,
        cwd=ROOT,
        OMP_NUM_THREADS='3',
        CXX=f'{COMPILER} {flags} -g1 -O1 -DEDB_SHARE_ALL',
        GLUON_EDBATCH_NATIVE='native',
        LD_PRELOAD=' '.join(libraries),
        ASAN_OPTIONS='detect_leaks=0',
        UBSAN_OPTIONS='print_stacktrace=1',
        TSAN_OPTIONS='ignore_noninstrumented_modules=1',
    )


SHORT_ARENA = """
from gluon_edbatch.execute.native.native_run import NativeRun
import gluon_edbatch as edb, mxnet as mx

forward = NativeRun.forward

def forward_in_a_short_arena(run):
    run._arenas[-1] = mx.nd.zeros((1,))  # the size of the workspace is checked
    return forward(run)

NativeRun.forward = forward_in_a_short_arena
net = mx.gluon.nn.HybridLambda(lambda F, x: F.tanh(F.sigmoid(x)) + 1)
samples = [mx.nd.ones((1, 100)) * i for i in range(20)]
for sample in samples:
    sample.attach_grad()
with mx.autograd.record(), edb.batching():
    values = [net(sample) for sample in samples]
edb.stack(values).wait_to_read()
"""


@pytest.mark.slow
def test_writing_beside_an_array_is_seen():
    """Otherwise the next test would tell nothing."""
    result = run_sanitized('memory', '-W', 'ignore', '-c', SHORT_ARENA)
    assert result.returncode and 'heap-buffer-overflow' in result.stderr, result.stderr
    assert 'native/src/' in result.stderr


@pytest.mark.slow
def test_native_operators_read_and_write_what_is_theirs():
    """But for the tests that start programs: those are about finding and loading the library."""
    result = run_sanitized(
        'memory',
        '-m',
        'pytest',
        '-q',
        '-p',
        'no:cacheprovider',
        'tests/integration/test_native.py',
        '-k',
        'not level and not compiler and not folder and not switched_off and not kept',
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert 'passed' in result.stdout


OVERLAPPING_RESULTS = """
from gluon_edbatch.execute.native import native_run
import gluon_edbatch as edb, mxnet as mx

class Both(mx.gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.tanh(x), F.sigmoid(x)

def evaluate():
    with edb.batching():
        values = [net(sample) for sample in samples]
    return edb.forward(values)

net = Both()
samples = [mx.nd.ones((1, 4000)) * i for i in range(200)]
evaluate()
mx.nd.waitall()
print('one after the other', flush=True)
make_table = native_run.NativeRun._table

def overlapping(*arguments):
    words, *others = make_table(*arguments)
    words[-2] = words[-3] + 1  # where the second result begins, and the first; indices follow
    return words, *others

native_run.NativeRun._table = overlapping
for _ in range(20):
    evaluate()
mx.nd.waitall()
"""


@pytest.mark.slow
def test_threads_that_write_the_same_rows_are_seen():
    result = run_sanitized('threads', '-W', 'ignore', '-c', OVERLAPPING_RESULTS)
    assert result.returncode and 'ThreadSanitizer: data race' in result.stderr, result.stderr
    assert 'edb::WholeRun' in result.stderr and 'one after the other' in result.stdout


@pytest.mark.slow
def test_threads_of_native_operators_do_not_meet():
    result = run_sanitized(
        'threads',
        '-m',
        'pytest',
        '-q',
        '-s',
        '-p',
        'no:cacheprovider',
        'tests/integration/test_threads.py',
        '-k',
        'bits or raised',
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert 'passed' in result.stdout
