"""Programs as users write them: trees, attention, a parser, a server, two workers."""

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.support.jobs import run_job
from tests.support.processes import ROOT, free_ports, run_python

PROGRAMS = Path(__file__).parent / 'programs'
ROUNDING = 1e-5


def told(done):
    """What a program says of what it did, a line for each of its processes."""
    assert done.returncode == 0, done.stderr[-5000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def run_program(name, *arguments):
    program = '-m', 'gluon_edbatch.run', PROGRAMS / f'{name}.py'  # they import MXNet first
    (facts,) = told(run_python(*program, *arguments, PYTHONPATH=str(ROOT)))
    return facts


def assert_learned(losses, share):
    assert np.isfinite(losses).all() and losses[-1] < share * losses[0]


def test_trees_of_any_arity():
    facts = run_program('tree')
    assert_learned(facts['losses'], 0.7)
    assert facts['apart'] < ROUNDING
    assert facts['batches'] < facts['calls'] / 50


def test_attention_over_any_length():
    facts = run_program('attention')
    assert_learned(facts['losses'], 0.8)
    assert facts['apart'] < ROUNDING
    assert facts['batches of the loss'] == 1
    assert facts['batches'] < facts['calls'] / 20


def test_a_parser_whose_next_step_depends_on_values():
    facts = run_program('parser')
    assert_learned(facts['losses'], 0.2)
    assert facts['apart'] < ROUNDING and facts['eager parses the same']
    assert facts['as taught'] > 0.5
    # One for what the encoder gives, and one for each action of the longest walk.
    assert facts['evaluations'] <= facts['actions of the longest'] + 1
    assert facts['batches'] < facts['calls'] / 10


needs_pydantic = pytest.mark.skipif(
    find_spec('pydantic') is None, reason="pydantic comes with the extra serve: '.[serve]'"
)


@needs_pydantic
def test_requests_of_which_one_is_bad():
    facts = run_program('server')
    assert facts['as eager'] and len(facts['lengths']) > 1
    assert (facts['outcomes']['answered'], facts['outcomes']['failed']) == (300, 1)
    assert facts['error'].startswith('RecordError: Embedding') and "'two'" in facts['error']


@needs_pydantic
@pytest.mark.skipif(
    find_spec('tritonclient') is None, reason="the extra serve is missing: '.[serve]'"
)
def test_a_folder_over_http(tmp_path):
    facts = run_program('server', tmp_path / 'digits', *map(str, free_ports(3)))
    assert facts['http'] == facts['expected']
    status, message = facts['refused']
    assert status == 400 and 'sample 1: Input should be less than or equal to 9' in message
    assert facts['status'] == 0


def test_workers_that_fail_and_resume(tmp_path):
    """Together as one process with both minibatches, to rounding."""

    def two(*arguments):
        command = [sys.executable, '-m', 'gluon_edbatch.run', PROGRAMS / 'workers.py']
        command += ['--kvstore', 'dist_sync']
        options = ['--checkpoint', tmp_path / 'kept', *arguments]
        return run_job('-n', '2', '-s', '1', *command, *options)

    failed = two('--fail-in', '2')
    assert failed.returncode == 1 and 'as if a machine had failed' in failed.stderr
    assert 'launch: worker 1 ended with status 1: the job ends' in failed.stderr
    assert json.loads((tmp_path / 'kept' / 'done.json').read_text())['epochs'] == 2

    alone = run_program('workers', '--batch-size', '32')
    resumed = told(two('--resume'))
    assert {facts['rank'] for facts in resumed} == {0, 1}
    for facts in resumed:
        assert len(facts['losses']) == 4
        np.testing.assert_allclose(facts['losses'], alone['losses'], rtol=ROUNDING)
        assert facts['weights'] == pytest.approx(alone['weights'], rel=ROUNDING)
    assert_learned(alone['losses'], 0.6)
