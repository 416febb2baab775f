"""A program of the examples on several workers: what it trains, stops, and goes on from."""

import os
import signal
import sys

import numpy as np
import pytest

from example.adaptive.task import AdaptiveTask
from example.common import checkpoint as checkpoints
from example.common.options import parse
from example.common.run import Run
from example.tree_lstm import make_sample
from example.tree_lstm.train import main
from tests.support.jobs import processes_of, run_job, start_job
from tests.support.processes import ROOT

TINY = ['--hidden', '6', '--embed', '5', '--sim-hidden', '4']
TRAIN = [sys.executable, ROOT / 'example/tree_lstm/train.py', '--kvstore', 'dist_sync', *TINY]
JOB = ['-n', 2, '-s', 1, *TRAIN]


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp('data')
    make_sample.write_sample(directory, splits={'train': 44, 'dev': 11, 'test': 12})
    return str(directory)


def assert_same_runs(one, other, exactly=False):
    one, other = checkpoints.load(one), checkpoints.load(other)
    assert len(one.history) == len(other.history)
    rtol = 0 if exactly else 1e-4
    for left, right in zip(one.history, other.history):
        for name in left.keys() - {'samples_per_s'}:
            np.testing.assert_allclose(left[name], right[name], rtol, atol=rtol, err_msg=name)
    for name, array in one.parameters.items():
        np.testing.assert_allclose(array, other.parameters[name], rtol, atol=rtol, err_msg=name)


def test_two_workers_train_as_one(data, tmp_path):
    """Losses and figures of three epochs, too: each evaluates a part."""
    arguments = ['--data', data, '--epochs', '3', '--checkpoint']
    status = main([*arguments, str(tmp_path / 'one'), *TINY, '--batch-size', '8'])
    assert status == 0
    done = run_job(*JOB, *arguments, tmp_path / 'two', '--batch-size', 4)
    assert done.returncode == 0 and done.stderr == '', done.stderr
    assert 'batched, scheduler fsm; 2 workers' in done.stdout
    assert done.stdout.count('epoch   2') == 1 and done.stdout.count('Pearson') == 1
    assert_same_runs(tmp_path / 'one', tmp_path / 'two')


def test_a_killed_job_goes_on_where_it_was(data, tmp_path):
    arguments = ['--data', data, '--batch-size', '2', '--checkpoint-steps', '3', '--checkpoint']
    with start_job(*JOB, *arguments, tmp_path / 'parts', '--epochs', 100000) as launcher:
        lines = [launcher.stdout.readline() for _ in range(3)]  # up to the second epoch's line
        os.kill(processes_of(launcher)['worker 1'], signal.SIGKILL)
        _, errors = launcher.communicate()
    assert 'epoch   2' in lines[-1] and 'worker 1 was killed by SIGKILL' in errors
    epochs = len(checkpoints.load(tmp_path / 'parts').history) + 2
    done = run_job(*JOB, *arguments, tmp_path / 'parts', '--epochs', epochs, '--resume')
    assert done.returncode == 0 and f'epoch {epochs:3d}' in done.stdout, done.stderr
    assert run_job(*JOB, *arguments, tmp_path / 'whole', '--epochs', epochs).returncode == 0
    assert_same_runs(tmp_path / 'whole', tmp_path / 'parts')


class Stopped(Exception):
    """An exception that stops a program as a power cut would."""


@pytest.fixture
def stop_at(monkeypatch):
    """Makes the program stop when it has written a checkpoint at a place of an epoch."""

    def stop(epochs, steps):
        save = Run.save

        def save_and_stop(run, place=None):
            save(run, place)
            if len(run.history) == epochs and place is not None and place.steps == steps:
                raise Stopped

        monkeypatch.setattr(Run, 'save', save_and_stop)

    return stop


def test_an_epoch_goes_on_where_it_was(data, tmp_path, stop_at, monkeypatch):
    arguments = ['--data', data, *TINY, '--batch-size', '4', '--checkpoint-steps', '2']
    arguments += ['--epochs', '2', '--checkpoint']
    assert main([*arguments, str(tmp_path / 'whole')]) == 0
    stop_at(epochs=1, steps=6)
    with pytest.raises(Stopped):
        main([*arguments, str(tmp_path / 'parts')])
    monkeypatch.undo()
    place = checkpoints.load(tmp_path / 'parts').place
    assert place[:2] == (6, 1) and place.loss > 0
    assert main([*arguments, str(tmp_path / 'parts'), '--resume']) == 0
    assert checkpoints.load(tmp_path / 'parts').place is None
    assert_same_runs(tmp_path / 'whole', tmp_path / 'parts', exactly=True)


def test_an_epoch_goes_on_with_as_many_workers(data, tmp_path, stop_at):
    arguments = ['--data', data, *TINY, '--checkpoint-steps', '1', '--checkpoint']
    stop_at(epochs=0, steps=1)
    with pytest.raises(Stopped):
        main([*arguments, str(tmp_path / 'run')])
    done = run_job(*JOB, '--data', data, '--resume', '--checkpoint', tmp_path / 'run')
    assert done.returncode == 1
    assert 'an epoch that 1 workers divided: go on with as many, not 2' in done.stderr
    assert 'Traceback' not in done.stderr and 'ended with status 1: the job ends' in done.stderr


EXAMPLES = sorted(path.parent.name for path in (ROOT / 'example').glob('*/train.py'))


@pytest.mark.slow  # all of them
@pytest.mark.parametrize('name', [*(f'{each}/train' for each in EXAMPLES), 'torchfold/mnist_train'])
def test_every_example_trains_on_two_workers(name):
    program = [sys.executable, ROOT / f'example/{name}.py', '--epochs', 1, '--kvstore', 'dist_sync']
    done = run_job('-n', 2, '-s', 1, *program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('epoch ') >= 1


def test_what_looks_at_values_has_costs_that_need_none():
    options, _ = parse(AdaptiveTask, [])
    task = AdaptiveTask(options)
    costs = task.costs(None, task.samples['dev'])
    assert costs.tolist() == [len(sample) for sample in task.samples['dev']] and np.ptp(costs) > 3


def test_dist_sync_without_a_job_is_an_error(data, capsys, monkeypatch):
    monkeypatch.delenv('DMLC_ROLE', raising=False)
    assert main(['--data', data, '--kvstore', 'dist_sync']) == 1
    assert 'needs servers and a scheduler' in capsys.readouterr().err
