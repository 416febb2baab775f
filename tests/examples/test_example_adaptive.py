"""The model that halts: its steps, in batches and not, and the program."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd

import gluon_edbatch as edb
from example.adaptive.model import LITTLE, PonderingReader, PonderLoss, Reading
from example.adaptive.task import Figures
from example.adaptive.train import main
from example.common import checkpoint as checkpoints
from example.sentence_sst.data import Sentence
from example.tree_sst import make_sample

WORDS, MOST = 20, 6


def sentences():
    """Return sentences of one word, of equal lengths, and others."""
    return [Sentence(range(n, n + length), n % 5) for n, length in enumerate([3, 1, 9, 3, 2, 7])]


def reader():
    net = PonderingReader(WORDS, 5, 8, MOST)
    net.initialize(mx.init.Normal(1))
    return net


def gradients(net, samples):
    """Losses, steps and gradients of a minibatch, in whatever scope this is called."""
    readings = edb.run_concurrently(samples, net.read)
    losses = [
        PonderLoss(0.1)(reading.scores, reading.cost, mx.nd.array(sample.label))
        for reading, sample in zip(readings, samples)
    ]
    return edb.concat(losses), [reading.steps for reading in readings]


@pytest.mark.parametrize('native', [False, True])
def test_batched_equals_eager(native):
    net, found = reader(), []
    for batched in (False, True):
        with autograd.record():
            if batched:
                with edb.compile_options(native=native), edb.batching():
                    losses, steps = gradients(net, sentences())
            else:
                losses, steps = gradients(net, sentences())
            total = losses.sum()
        total.backward()
        params = net.collect_params().values()
        found.append((losses.asnumpy(), steps, [value.grad().asnumpy() for value in params]))
    (eager, eager_steps, expected), (ours, our_steps, got) = found
    assert len(set(eager_steps)) > 2 and our_steps == eager_steps
    np.testing.assert_allclose(ours, eager, rtol=1e-5)
    for one, other in zip(got, expected):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_batch_a_step():
    net, samples = reader(), sentences() * 3
    with edb.batching() as scope:
        readings = edb.run_concurrently(samples, net.read)
    edb.forward([reading.scores for reading in readings])
    report, steps = scope.report(), [reading.steps for reading in readings]
    (kind,) = [kind for kind in report.types if kind.name.startswith('Step')]
    assert (kind.calls, kind.batches) == (sum(steps), max(steps))
    assert report.batches <= max(steps) + 3  # vectors, words, answers


def test_stops_when_next_to_nothing_is_left():
    net, (sentence, *_) = reader(), sentences()
    for bias, expected in ((9, 1), (np.log(3), 3), (-9, MOST)):  # chances of about 1, 3/4, 0
        net.step.halt.weight.set_data(mx.nd.zeros((1, 8)))
        net.step.halt.bias.set_data(mx.nd.array([bias]))
        reading = net(sentence)
        assert reading.steps == expected
        chance = 1 / (1 + np.exp(-bias))
        left = (1 - chance) ** np.arange(MOST)  # before each step
        assert (left[expected - 1] >= LITTLE) or expected == 1
        np.testing.assert_allclose(reading.cost.asnumpy(), [[left[:expected].sum()]], rtol=1e-5)


def test_answer_is_of_all_steps():
    """The mean state, by shares, is what scores are of."""
    net, (sentence, *_) = reader(), sentences()
    states, step = [], net.step.hybrid_forward

    def noted(F, *args, **params):
        found = step(F, *args, **params)
        states.append([value.asnumpy() for value in found])
        return found

    net.step.hybrid_forward = noted
    scores = net(sentence).scores.asnumpy()
    left = np.array([1, *(each[2].item() for each in states)])
    shares = -np.diff([*left[:-1], 0])  # the last gets what is left
    mean = sum(share * each[0] for share, each in zip(shares, states))
    dense = net.answer.scores
    np.testing.assert_allclose(
        scores, mean @ dense.weight.data().asnumpy().T + dense.bias.data().asnumpy(), rtol=1e-4
    )


def test_loss():
    loss = PonderLoss(0.5)(mx.nd.array([[0, 0]]), mx.nd.array([[3]]), mx.nd.array([1]))
    np.testing.assert_allclose(loss.asnumpy(), [np.log(2) + 1.5], rtol=1e-5)


def test_program(tmp_path, capsys):
    make_sample.write_sample(tmp_path / 'data', {'train': 240, 'dev': 60, 'test': 2})
    options = ['--data', str(tmp_path / 'data'), '--hidden', '16', '--lr', '0.01']
    options += ['--batch-size', '16']
    assert main([*options, '--epochs', '4', '--checkpoint', str(tmp_path / 'one')]) == 0
    assert 'at most 8 steps for 0.01 each' in capsys.readouterr().out
    history = checkpoints.load(tmp_path / 'one').history
    assert history[-1]['loss'] < 0.9 * history[0]['loss']
    assert history[-1]['two'] > max(0.6, history[0]['two'])
    again = ['--epochs', '1', '--unbatched', '--checkpoint', str(tmp_path / 'other')]
    assert main([*options, *again]) == 0
    (other,) = checkpoints.load(tmp_path / 'other').history
    np.testing.assert_allclose(other['loss'], history[0]['loss'], rtol=1e-3)
    assert other['steps'] == pytest.approx(history[0]['steps'], abs=0.1)


def test_steps_cost(tmp_path):
    make_sample.write_sample(tmp_path / 'data', {'train': 64, 'dev': 20, 'test': 2})
    steps = []
    for price in ('0', '1'):
        options = ['--data', str(tmp_path / 'data'), '--hidden', '8', '--lr', '0.05']
        options += ['--batch-size', '8', '--epochs', '2', '--price', price]
        assert main([*options, '--checkpoint', str(tmp_path / price)]) == 0
        steps.append(checkpoints.load(tmp_path / price).history[-1]['steps'])
    assert steps[1] < steps[0] - 1


def test_figures():
    assert str(Figures(0.5, 0.75, 3)) == 'five 0.5000  two 0.7500  steps 3.00'
    assert isinstance(reader()(sentences()[0]), Reading)
