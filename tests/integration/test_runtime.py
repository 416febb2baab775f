"""Exported bundles in an environment without MXNet, with a Python and a NumPy of today."""

import exported
import pytest

from support.processes import ROOT, run, run_python

NO_PYTHON = 3  # as scripts/test_runtime.sh says it


@pytest.fixture(scope='module')
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp('exported')
    process = run_python(
        ROOT / 'scripts' / 'exported.py', 'write', folder, '--minibatches', '1', '--batch', '16'
    )
    assert not process.returncode, process.stderr
    return folder


def check(folder, *options):
    process = run(['bash', ROOT / 'scripts' / 'test_runtime.sh', *options, folder])
    if process.returncode == NO_PYTHON:
        pytest.skip(process.stdout.splitlines()[-1])
    if 'No matching distribution' in process.stderr or 'Could not find a version' in process.stderr:
        pytest.skip('pip finds no NumPy, or what builds packages')
    assert not process.returncode, process.stdout + process.stderr
    lines = process.stdout.splitlines()
    assert [line.split(':')[0] for line in lines[:-1]] == [*exported.CASES, 'schedules']
    return lines[-1]


def test_without_mxnet(written):
    """Numbers, batches and schedules with the newest Python, with warnings as errors."""
    assert check(written).endswith('as Python: all equal')


@pytest.mark.slow
@pytest.mark.parametrize('version', ('3.13', '3.12', '3.11', '3.10'))
def test_compiled_from_a_source_distribution(version, written):
    last = check(written, '--python', version, '--compiled', '--sdist')
    assert last.endswith('compiled: all equal')
