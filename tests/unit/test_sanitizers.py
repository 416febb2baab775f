"""The C++ of the native operators: compiled where a warning is an error, and run where reading
memory that nobody has, or what has no defined result, ends the program."""

import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from gluon_edbatch.execute.native import compiler
from support.processes import ROOT, run_python

try:
    COMPILER = compiler.find_compiler()
except compiler.BuildError as error:
    pytest.skip(str(error), allow_module_level=True)
MXNET = Path(find_spec('mxnet').submodule_search_locations[0])


@pytest.mark.parametrize(
    'flags',
    [
        compiler.level_flags('v2'),
        pytest.param(compiler.level_flags('v4'), marks=pytest.mark.slow),
        pytest.param(('-DEDB_STOPWATCH',), marks=pytest.mark.slow),
    ],
    ids=['v2', 'v4', 'stopwatch'],
)
def test_nothing_is_warned_of(flags, tmp_path):
    if not compiler.levels().keys() >= {'v2', 'v4'}:
        pytest.skip('another processor')
    compiler.compile_without_warnings(COMPILER, MXNET, flags, tmp_path / 'operators.o')


def run_sanitized(*arguments):
    """A Python program, with the native operators under AddressSanitizer and UBSan. The first is to
    be loaded before all else, with the library whose exceptions it watches; Python's own
    allocations live until it ends, so what leaks is not asked."""
    libraries = [
        subprocess.run(
            [COMPILER, f'-print-file-name={name}.so'], check=True, text=True, stdout=subprocess.PIPE
        ).stdout.strip()
        for name in ('libasan', 'libstdc++')
    ]
    if not all(Path(library).is_absolute() for library in libraries):
        pytest.skip(f'{COMPILER} has no AddressSanitizer')
    return run_python(
        *arguments,
        cwd=ROOT,
        GLUON_EDBATCH_SANITIZE='1',
        GLUON_EDBATCH_NATIVE='1',
        LD_PRELOAD=' '.join(libraries),
        ASAN_OPTIONS='detect_leaks=0',
        UBSAN_OPTIONS='print_stacktrace=1',
    )


SHORT_ARENA = """
import mxnet as mx, gluon_edbatch as edb
from gluon_edbatch.execute.native.native_run import NativeRun

forward = NativeRun.forward

def forward_in_a_short_arena(run):
    run._forward[-2] = mx.nd.zeros((1,))  # before the workspace, whose size is checked
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
    result = run_sanitized('-W', 'ignore', '-c', SHORT_ARENA)
    assert result.returncode and 'heap-buffer-overflow' in result.stderr, result.stderr
    assert 'execute/native/src/' in result.stderr


@pytest.mark.slow
def test_native_operators_read_and_write_what_is_theirs():
    """But for the tests that start programs: those are about finding and loading the library."""
    result = run_sanitized(
        '-m',
        'pytest',
        '-q',
        '-p',
        'no:cacheprovider',
        'tests/integration/test_native.py',
        '-k',
        'not level and not compiler and not folder and not switched_off '
        'and not stopwatch and not kept',
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert 'passed' in result.stdout
