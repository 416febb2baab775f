"""The example as a program: it trains, stops, goes on, and says what is wrong."""

import os
import sys
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest

from example.common import checkpoint as checkpoints
from example.common.options import parse
from example.common.run import Run
from example.tree_lstm import make_sample
from example.tree_lstm.data import load_split, tokens_of
from example.tree_lstm.task import SICKTask
from example.tree_lstm.train import main
from gluon_edbatch.testing.matches_eager import SCHEDULERS
from tests.support.processes import interrupt, run_example, start_example
from tests.support.tiers import sampled

PROGRAM = 'tree_lstm/train'
TINY = ['--hidden', '6', '--embed', '5', '--sim-hidden', '4', '--batch-size', '8']


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp('data')
    make_sample.write_sample(directory, splits={'train': 30, 'dev': 10, 'test': 12})
    return str(directory)


@pytest.fixture
def run(data, capsys):
    """Runs the program in this process; gives exit status and what it printed."""

    def start(*arguments):
        status = main(['--data', data, *TINY, *map(str, arguments)])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return start


def test_program_on_the_embedded_sample(tmp_path):
    # Started elsewhere: neither sample nor modules are found by way of the directory.
    done = run_example(PROGRAM, '--epochs', '1', *TINY, '--report', cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == '', done.stderr  # no bars: this is no terminal
    assert 'pairs: 500 train, 100 dev, 150 test' in done.stdout
    assert 'epoch   1  loss ' in done.stdout and 'samples/s' in done.stdout
    assert 'best on dev: epoch 1 of 1' in done.stdout
    assert 'ChildSumTreeLSTMCell' in done.stdout  # the report
    assert os.listdir(tmp_path) == []


def test_interrupt_says_what_was_saved(tmp_path, data):
    path = str(tmp_path / 'run.ckpt')
    arguments = ['--data', data, *TINY, '--checkpoint', path]
    with start_example(PROGRAM, '--epochs', '100000', *arguments) as process:
        lines = [process.stdout.readline() for _ in range(3)]  # up to the second epoch's line
        err = interrupt(process)
        assert process.returncode == 130, err
    assert 'go on with --resume' in err.splitlines()[-1]
    assert 'epoch   2' in lines[-1]
    done = len(checkpoints.load(path).history)
    assert f'has epoch 1 to {done}' in err and done >= 2
    assert main([*arguments, '--resume', '--epochs', str(done + 1)]) == 0


def test_killed_program_leaves_a_whole_checkpoint(tmp_path, data):
    path = str(tmp_path / 'run.ckpt')
    with start_example(
        PROGRAM, '--data', data, *TINY, '--checkpoint', path, '--epochs', '100000'
    ) as process:
        for _ in range(4):
            process.stdout.readline()
        process.kill()
    assert len(checkpoints.load(path).history) >= 3


def losses_and_parameters(path):
    saved = checkpoints.load(path)
    return [epoch['loss'] for epoch in saved.history], saved.parameters


@pytest.mark.parametrize(
    'others', sampled(2, [['--unbatched'], *(['--scheduler', name] for name in SCHEDULERS)])
)
def test_training_is_the_same_however_it_runs(run, tmp_path, others):
    assert run('--epochs', 2, '--checkpoint', tmp_path / 'one')[0] == 0
    assert run('--epochs', 2, '--checkpoint', tmp_path / 'other', *others)[0] == 0
    losses, parameters = losses_and_parameters(tmp_path / 'one')
    other_losses, other_parameters = losses_and_parameters(tmp_path / 'other')
    np.testing.assert_allclose(losses, other_losses, rtol=1e-4)
    for name, array in parameters.items():
        np.testing.assert_allclose(array, other_parameters[name], atol=2e-3, err_msg=name)


def test_resumed_training_gives_the_same_numbers(run, tmp_path):
    assert run('--epochs', 3, '--seed', 5, '--checkpoint', tmp_path / 'whole')[0] == 0
    status, out, _ = run('--epochs', 2, '--seed', 5, '--checkpoint', tmp_path / 'parts')
    assert status == 0 and 'epoch   2' in out
    status, out, _ = run('--epochs', 3, '--checkpoint', tmp_path / 'parts', '--resume')
    assert status == 0 and 'epoch   3' in out and 'epoch   2 ' not in out
    whole, parts = (checkpoints.load(tmp_path / name) for name in ('whole', 'parts'))
    for one, other in zip(whole.history, parts.history):
        assert {**one, 'samples_per_s': 0} == {**other, 'samples_per_s': 0}
    assert len(whole.history) == 3 and whole.best_epoch == parts.best_epoch
    for name, array in whole.parameters.items():
        np.testing.assert_array_equal(array, parts.parameters[name], err_msg=name)
    assert parts.options['seed'] == 5


def test_seeds(data):
    def first_loss(seed):
        options, found = parse(SICKTask, ['--data', data, *TINY, '--seed', str(seed)])
        return Run(SICKTask, options, found).train_epoch(1)[0]

    assert first_loss(1) == first_loss(1) != first_loss(2)


def test_training_learns(run):
    _, out, _ = run('--epochs', 8, '--hidden', 16, '--lr', 0.3)
    losses = [float(line.split()[3]) for line in out.splitlines() if line.startswith('epoch ')]
    assert len(losses) == 8 and losses[-1] < 0.7 * losses[0]


def test_inference_only(run, tmp_path):
    path = tmp_path / 'run.ckpt'
    _, trained, _ = run('--epochs', 2, '--checkpoint', path)
    status, out, _ = run('--inference-only', '--checkpoint', path, '--eval-batch-size', 3)
    assert status == 0 and 'epoch  ' not in out

    def figures(text):
        return [line.split()[:4] for line in text.splitlines() if line.startswith(('dev', 'test'))]

    assert figures(out) == figures(trained) != []
    status, out, _ = run('--mode', 'infer', '--report', '--explain')
    assert status == 0 and 'a fresh network' in out and 'Similarity' in out
    assert 'tree_lstm/encode.py:' in out and '- dependencies: ' in out
    status, out, _ = run('--inference-only', '--report', '--explain', '--unbatched')
    assert status == 0 and 'no report' in out and 'no explanation' in out


def test_model_of_a_checkpoint_needs_no_options(data, tmp_path, capsys):
    path = str(tmp_path / 'run.ckpt')
    assert main(['--data', data, *TINY, '--epochs', '1', '--checkpoint', path]) == 0
    capsys.readouterr()
    assert main(['--inference-only', '--checkpoint', path]) == 0
    assert 'hidden 6, embedding 5' in capsys.readouterr().out


def test_glove_vectors(data, tmp_path, capsys):
    tokens = sorted({token.lower() for token in tokens_of(load_split(Path(data) / 'train'))})
    path = tmp_path / 'vectors.npz'
    vectors = np.random.RandomState(0).randn(len(tokens) - 1, 7).astype(np.float32)
    np.savez(path, vectors=vectors, words=np.array(tokens[1:]))
    arguments = ['--data', data, '--hidden', '4', '--glove', str(path), '--epochs', '1']
    options, _ = parse(SICKTask, arguments)
    run = Run(SICKTask, options)
    assert f'{len(tokens)} of {len(tokens) + 1} words (lower case)' in capsys.readouterr().out
    before = run.net.tree_lstm.embed.weight.data().asnumpy()
    np.testing.assert_array_equal(before[run.task.words.ids([tokens[3]])[0]], vectors[2])
    run.train_epoch(1)
    np.testing.assert_array_equal(run.net.tree_lstm.embed.weight.data().asnumpy(), before)
    run = Run(SICKTask, parse(SICKTask, [*arguments, '--embed-lr', '0.01'])[0])
    run.train_epoch(1)
    assert abs(run.net.tree_lstm.embed.weight.data().asnumpy() - before).max() > 1e-3
    assert main([*arguments, '--embed', '5']) == 1
    assert 'have 7 numbers' in capsys.readouterr().err


def test_progress_bar_on_a_terminal(run, monkeypatch):
    monkeypatch.setattr(sys.stderr, 'isatty', lambda: True, raising=False)
    status, _, err = run('--epochs', 1, '--log-interval', 1)
    assert status == 0 and 'epoch 1/1' in err and 'loss=' in err


@pytest.mark.parametrize(
    'arguments, message',
    [
        (['--resume'], '--resume goes on from a checkpoint: say which'),
        (['--resume', '--checkpoint', 'none'], 'none: there is no such checkpoint; leave out'),
        (['--inference-only', '--checkpoint', 'none'], 'none: there is no such checkpoint'),
        (['--resume', '--mode', 'infer', '--checkpoint', 'none'], 'choose one'),
        (['--data', 'nowhere'], 'nowhere: there is no such directory'),
        (['--data', '.'], 'there is no such file; a data directory holds'),
        (['--glove', 'none.txt'], 'none.txt: there is no such file of word vectors'),
    ],
)
def test_errors_are_one_line(run, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    status, _, err = run(*arguments)
    assert status == 1
    assert message in err and err.startswith('train.py: ') and err.count('\n') == 1


@pytest.mark.parametrize(
    'arguments, message',
    [
        (['--epochs', '0'], '0 is less than 1'),
        (['--lr', '0'], 'not a number above 0'),
        (['--lr', 'nan'], 'not a number above 0'),
        (['--seed', '-1'], 'not between 0'),
        (['--ctx', 'tpu'], "'tpu' is not cpu, gpu or gpu:N"),
        (['--scheduler', 'best'], 'depth'),
        (['--ctx', 'gpu:99'], 'this MXNet sees'),
    ],
)
def test_wrong_options(run, capsys, arguments, message):
    with pytest.raises(SystemExit) as error:
        run(*arguments)
    assert error.value.code == 2 and message in capsys.readouterr().err


def test_checkpoints_are_not_mixed_up(run, tmp_path):
    path = tmp_path / 'run.ckpt'
    assert run('--epochs', 1, '--checkpoint', path)[0] == 0
    status, _, err = run('--epochs', 2, '--checkpoint', path)
    assert status == 1 and 'is there already: go on from it with --resume' in err
    status, _, err = run('--epochs', 2, '--checkpoint', path, '--resume', '--lr', 0.3)
    assert status == 1 and '--lr 0.3: the run in' in err and 'has 0.05' in err
    status, _, err = run('--inference-only', '--checkpoint', path, '--hidden', 7)
    assert status == 1 and '--hidden 7' in err
    path.write_bytes(path.read_bytes()[:-10])
    status, _, err = run('--epochs', 2, '--checkpoint', path, '--resume')
    assert status == 1 and 'damaged' in err


def test_loss_that_is_no_number(run):
    status, _, err = run('--epochs', 3, '--lr', 1e30)
    assert status == 1 and 'the loss of epoch' in err and 'smaller --lr' in err


@pytest.mark.gpu
@pytest.mark.skipif(not mx.context.num_gpus(), reason='no GPU')
def test_gpu(run):
    assert run('--epochs', 1, '--ctx', 'gpu')[0] == 0
