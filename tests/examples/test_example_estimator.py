"""The acceptor by Gluon's Estimator."""

import json

import mxnet as mx
import numpy as np
import pytest
from mxnet import gluon

from example.sequence_acceptor import estimator
from example.tree_sst import make_sample


@pytest.fixture(scope='module')
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp('data')
    make_sample.write_sample(directory, splits={'train': 60, 'dev': 30, 'test': 5})
    return str(directory)


@pytest.fixture
def parameters(monkeypatch):
    """Return the parameters, (n,), after each training run in turn."""
    found = []
    fit = estimator.Estimator.fit

    def fit_and_keep(self, *args, **kwargs):
        fit(self, *args, **kwargs)
        arrays = [p.data().asnumpy().ravel() for p in self.net.collect_params().values()]
        found.append(np.concatenate(arrays))

    monkeypatch.setattr(estimator.Estimator, 'fit', fit_and_keep)
    return found


def run(data, *arguments):
    mx.random.seed(0)
    tiny = '--hidden', '6', '--embed', '5', '--epochs', '2'
    assert estimator.main(['--data', data, *tiny, *map(str, arguments)]) == 0


def test_accumulated_minibatches_are_a_large_one(data, parameters):
    """One minibatch has all samples; the accumulated ones have another order."""
    run(data, '--batch-size', 1000)
    run(data, '--batch-size', 1, '--accumulate', 10**6)  # never updates
    count = len(estimator.load_split(f'{data}/train.txt'))
    run(data, '--batch-size', 1, '--accumulate', count)
    large, never, small = parameters
    np.testing.assert_allclose(small, large, atol=1e-4)
    assert abs(never - large).max() > 1e-3


def test_two_contexts_train_as_one(data, parameters):
    for contexts in (1, 2):
        run(data, '--batch-size', 7, '--accumulate', 2, '--clip', 0.05, '--contexts', contexts)
    one, two = parameters
    np.testing.assert_allclose(two, one, atol=1e-5)
    run(data, '--batch-size', 7, '--accumulate', 2, '--clip', 0.2)
    assert abs(parameters[2] - one).max() > 1e-3


def test_clipped_gradients_are_short(data, monkeypatch):
    norms = []
    update = gluon.Trainer.update

    def note(self, batch_size, *args, **kwargs):
        squares = sum(float((p.grad() ** 2).sum().asscalar()) for p in self._params)
        norms.append(squares**0.5 / batch_size)
        update(self, batch_size, *args, **kwargs)

    monkeypatch.setattr(gluon.Trainer, 'update', note)
    run(data, '--batch-size', 16)
    free, norms[:] = list(norms), []
    run(data, '--batch-size', 16, '--clip', 0.01)
    assert min(free) > 0.011
    np.testing.assert_allclose(norms, 0.01, rtol=1e-3)


def test_all_that_it_writes(data, tmp_path, capsys):
    pytest.importorskip('tensorboardX')
    run(
        data,
        *['--checkpoints', tmp_path / 'saved', '--tensorboard', tmp_path / 'board'],
        *['--profile', tmp_path / 'profile.json', '--patience', 3],
    )
    out = capsys.readouterr().out
    assert '[Epoch 1]' in out and 'validation accuracy' in out
    assert list((tmp_path / 'board').iterdir())
    assert (tmp_path / 'saved' / 'model-best.params').exists()
    events = json.loads((tmp_path / 'profile.json').read_text())['traceEvents']
    assert any('LSTMCell' in event['name'] for event in events if 'name' in event)


def test_missing_data(tmp_path, capsys):
    assert estimator.main(['--data', str(tmp_path)]) == 1
    assert 'there is no such file' in capsys.readouterr().err
