"""Exported bundles in an environment without MXNet, with a Python and a NumPy of today."""

import json
import shutil

import pytest

from example.dynamic.networks import NETWORKS
from tests.runtime import exported
from tests.support.processes import ROOT, run, run_python

SCRIPT = ROOT / 'tests' / 'runtime' / 'exported.py'
NO_PYTHON = 3  # as scripts/test_runtime.sh says it
SOME = ['mobilenet', 'caption-googlenet']  # with exits, and with words


@pytest.fixture(scope='module')
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp('exported')
    process = run_python(SCRIPT, 'write', folder, '--minibatches', '1', '--batch', '16')
    assert not process.returncode, process.stderr
    return folder


@pytest.fixture(
    scope='module',
    params=[SOME, pytest.param(list(NETWORKS), marks=pytest.mark.slow)],
    ids=['some', 'all'],
)
def programs(written, request):
    """Names of networks whose programs are in the same folder, and what was said of them."""
    pytest.importorskip('onnx')
    shutil.rmtree(written / 'programs', ignore_errors=True)
    script = ROOT / 'tests' / 'runtime' / 'forced_paths.py'
    process = run_python(script, 'write', written / 'programs', *request.param)
    assert not process.returncode, process.stdout + process.stderr
    return request.param, process.stdout.splitlines()


def test_every_exit_and_every_skip_in_mxnet(programs, written):
    """Each way is taken, and results are eager Gluon's."""
    names, said = programs
    assert [line.split(':')[0] for line in said] == names
    for name in names:
        paths = (written / 'programs').glob(f'{name}-?.json')
        taken = [json.loads(path.read_text())['taken'] for path in paths]
        ways = [sum(counts) for blocks in zip(*taken) for counts in zip(*blocks)]
        assert len(ways) >= 14 and min(ways) > 0


def check(folder, *options):
    process = run(['bash', ROOT / 'scripts' / 'test_runtime.sh', *options, folder])
    if process.returncode == NO_PYTHON:
        pytest.skip(process.stdout.splitlines()[-1])
    if 'No matching distribution' in process.stderr or 'Could not find a version' in process.stderr:
        pytest.skip('pip finds no NumPy, or what builds packages')
    assert not process.returncode, process.stdout + process.stderr
    lines = process.stdout.splitlines()
    whole = sorted(path.name for path in (folder / 'whole').iterdir())
    cells = [*exported.CASES, *whole, 'schedules']
    there = sorted(path.stem for path in (folder / 'programs').glob('*.npz'))
    assert [line.split(':')[0] for line in lines[:-1]] == [*cells, *there]
    return lines[-1]


def test_without_mxnet(written, programs):
    """Numbers, batches and schedules with the newest Python, with warnings as errors; and programs
    in ONNX Runtime, whose samples go the same ways."""
    assert check(written).endswith('as Python: all equal')


@pytest.mark.slow
@pytest.mark.parametrize('version', ('3.13', '3.12', '3.11', '3.10'))
def test_compiled_from_a_source_distribution(version, written):
    last = check(written, '--python', version, '--compiled', '--sdist')
    assert last.endswith('compiled: all equal')
