"""Gluon's Estimator with samples that are lists, and its handlers."""

import logging

import mxnet as mx
import numpy as np
import pytest
from mxnet import gluon
from mxnet.gluon.contrib.estimator import (
    CheckpointHandler,
    EarlyStoppingHandler,
    Estimator,
    GradientUpdateHandler,
    LoggingHandler,
)

import gluon_edbatch as edb


class Chain(edb.AutoBatchMixin, gluon.Block):
    """Is the last of some tokens after the middle of all? One token after the other."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = gluon.nn.Embedding(8, 6)
            self.cell = gluon.rnn.GRUCell(7, input_size=6)
            self.score = gluon.nn.Dense(2, in_units=7)

    def forward(self, tokens):
        state = self.cell.begin_state(1)
        for token in tokens:
            _, state = self.cell(self.embed(token), state)
        return self.score(state[0])


def samples(count=40, seed=0):
    random = np.random.RandomState(seed)
    chains = [random.randint(0, 8, 1 + random.randint(5)).tolist() for _ in range(count)]
    return [(chain, int(chain[-1] > 3)) for chain in chains]


def loader(data):
    sampler = edb.data.BalancedSampler(len(data), 9, seed=1)
    return gluon.data.DataLoader(data, batch_sampler=sampler.epoch(0), batchify_fn=edb.data.as_list)


def estimator(ctx=None, net=None, **settings):
    net = net or Chain()
    net.initialize(mx.init.Xavier(), ctx=ctx or mx.cpu(), force_reinit=True)
    trainer = gluon.Trainer(net.collect_params(), 'adam', {'learning_rate': 0.03})
    return Estimator(
        net,
        gluon.loss.SoftmaxCrossEntropyLoss(),
        train_metrics=mx.metric.Accuracy(),
        trainer=trainer,
        context=ctx,
        batch_processor=edb.estimator.BatchProcessor(**settings),
    )


QUIET = LoggingHandler(log_interval='epoch')


def quietly(runner):
    runner.logger.setLevel(logging.ERROR)
    return runner


def test_it_learns_and_validates():
    runner = quietly(estimator())
    runner.fit(loader(samples()), val_data=loader(samples(20, seed=5)), epochs=25)
    (accuracy,) = [m for m in runner.train_metrics if 'accuracy' in m.get()[0]]
    (validation,) = [m for m in runner.val_metrics if 'accuracy' in m.get()[0]]
    assert accuracy.get()[1] > 0.95 and validation.get()[1] > 0.8


def test_a_minibatch_is_what_eager_gluon_computes():
    runner = estimator()
    minibatch = samples(9)
    data, labels, predictions, losses = runner.batch_processor.fit_batch(runner, minibatch)
    assert [len(each) for each in (data, labels, predictions, losses)] == [1] * 4
    eager = [runner.net(chain).asnumpy()[0] for chain, _ in minibatch]
    np.testing.assert_allclose(predictions[0].asnumpy(), eager, rtol=1e-4, atol=1e-6)
    assert labels[0].asnumpy().tolist() == [label for _, label in minibatch]
    gradients = [p.grad().asnumpy() for p in runner.net.collect_params().values()]
    with mx.autograd.record():
        total = mx.nd.add_n(
            *[runner.loss(runner.net(c), mx.nd.array([label])) for c, label in minibatch]
        )
    total.backward()
    for batched, parameter in zip(gradients, runner.net.collect_params().values()):
        np.testing.assert_allclose(batched, parameter.grad().asnumpy(), rtol=1e-3, atol=1e-5)


def test_gluons_own_processor_fails_on_lists():
    """The reason why there is another; it may go when this passes."""
    net = Chain()
    net.initialize()
    runner = quietly(
        Estimator(
            net,
            gluon.loss.SoftmaxCrossEntropyLoss(),
            trainer=gluon.Trainer(net.collect_params(), 'sgd'),
        )
    )
    with pytest.raises((TypeError, AttributeError, ValueError)):
        runner.fit(loader(samples()), epochs=1)


def test_several_contexts_train_as_one():
    def losses(ctx):
        mx.random.seed(3)
        net = Chain(prefix='chain_')
        runner = quietly(estimator(ctx, net))
        runner.fit(loader(samples()), epochs=2)
        return [p.data(p.list_ctx()[0]).asnumpy() for p in net.collect_params().values()]

    one, two = losses([mx.cpu(0)]), losses([mx.cpu(0), mx.cpu(1)])
    for left, right in zip(one, two):
        np.testing.assert_allclose(left, right, atol=1e-4)


def test_handlers_save_stop_and_log(tmp_path, capsys):
    runner = estimator()
    accuracy = runner.train_metrics[0]
    runner.fit(
        loader(samples()),
        epochs=50,
        event_handlers=[
            CheckpointHandler(str(tmp_path), model_prefix='chain', monitor=accuracy),
            EarlyStoppingHandler(accuracy, patience=1, mode='max', baseline=None),
            GradientUpdateHandler(),
        ],
    )
    out = capsys.readouterr().out
    assert '[Epoch 0]' in out and 'Train finished' in out
    assert '[Epoch 49]' not in out  # it stopped
    saved = sorted(path.name for path in tmp_path.iterdir())
    assert 'chain-epoch0batch5.params' in saved, saved
    again = Chain()
    again.load_parameters(str(tmp_path / 'chain-epoch0batch5.params'))


def test_samples_of_another_form():
    runner = quietly(estimator(split=lambda sample: (sample['chain'], sample['label'])))
    data = [{'chain': chain, 'label': mx.nd.array([label])} for chain, label in samples(12)]
    runner.fit(loader(data), batches=1)
    assert runner.train_metrics[0].num_inst == 9


class Writer:
    def __init__(self):
        self.written, self.flushed = [], False

    def add_scalar(self, name, value, step):
        assert not self.flushed
        self.written.append((name, value, step))

    def flush(self):
        self.flushed = True


def test_metrics_for_tensorboard():
    writer = Writer()
    runner = quietly(estimator())
    runner.fit(
        loader(samples()),
        val_data=loader(samples(10)),
        epochs=2,
        event_handlers=[edb.estimator.TensorBoardHandler(writer, interval=2)],
    )
    minibatches = [step for name, _, step in writer.written if name.startswith('minibatch/')]
    epochs = [(name, step) for name, _, step in writer.written if name.startswith('epoch/')]
    assert writer.flushed and minibatches == [2, 4, 6, 8, 10]
    assert ('epoch/validation accuracy', 2) in epochs and len(epochs) == 4
    assert all(0 <= value < 10 for _, value, _ in writer.written)
    with pytest.raises(ValueError, match='interval is 1 or more, not 0'):
        edb.estimator.TensorBoardHandler(writer, interval=0)


def test_tensorboardx_reads_it(tmp_path):
    tensorboardx = pytest.importorskip('tensorboardX')
    with tensorboardx.SummaryWriter(str(tmp_path)) as writer:
        quietly(estimator()).fit(
            loader(samples()),
            epochs=1,
            event_handlers=[edb.estimator.TensorBoardHandler(writer)],
        )
    (events,) = tmp_path.iterdir()
    assert b'training_accuracy' in events.read_bytes()
