"""torchfold's examples: data, model, and each program on the embedded sample."""

import argparse
import gzip
import os
import struct

import mxnet as mx
import numpy as np
import pytest

from example.common.errors import DataError
from example.torchfold import make_sample, mnist_train
from example.torchfold.data import load_test, load_train
from example.torchfold.mnist_forward import folded, one_by_one, samples_of
from example.torchfold.model import DigitNet, strips_of
from tests.support.processes import ROOT, run_example

SAMPLE = ROOT / 'example' / 'torchfold' / 'sample'


def run_program(name, *arguments, cwd=None):
    return run_example(f'torchfold/{name}', *arguments, cwd=cwd)


@pytest.mark.parametrize(
    'name, arguments, unit, wanted',
    [
        ('powers', ['--batch-size', '8'], 'samples', 'largest relative difference from Python'),
        ('trees', ['--batch-size', '4', '--hidden', '5', '--show'], 'trees', 'x node(leaf@0'),
        (
            'mnist_forward',
            ['--images', '8', '--batch-size', '4', '--hidden', '6'],
            'images',
            '8 images in minibatches of 4',
        ),
        (
            'mnist_train',
            ['--epochs', '1', '--batch-size', '16', '--hidden', '6'],
            'images',
            'epoch 1  loss ',
        ),
    ],
)
def test_program(name, arguments, unit, wanted, tmp_path):
    found = run_program(name, *arguments, '--repeat', '1', cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert found.stderr == ''
    assert 'one by one' in found.stdout and f'{unit}/s' in found.stdout
    assert 'times as fast' in found.stdout and wanted in found.stdout
    assert os.listdir(tmp_path) == []


def test_wrong_options(tmp_path):
    found = run_program('mnist_train', '--data', str(tmp_path))
    assert found.returncode == 1
    assert found.stderr == (
        f'mnist_train.py: {tmp_path}/mnist_5k.csv.gz: there is no such file; a '
        'data directory holds mnist_5k.csv.gz, t10k-images-idx3-ubyte.gz and '
        't10k-labels-idx1-ubyte.gz\n'
    )
    assert run_program('powers', '--batch-size', '0').returncode == 2


# --- training ------------------------------------------------------------------------------------


def some_samples(count):
    return samples_of(load_train(SAMPLE), mx.cpu())[:count]


def test_both_ways_are_the_same():
    samples, net = some_samples(9), DigitNet(5)
    net.initialize(mx.init.Xavier())
    found, expected = folded(net, samples), one_by_one(net, samples)
    np.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-4, atol=1e-6)


def test_both_ways_train_to_the_same_numbers():
    options = argparse.Namespace(seed=3, hidden=5, ctx=mx.cpu(), lr=1e-2)
    samples, losses, weights = some_samples(24), [], []
    for kind in (mnist_train.FoldedTraining, mnist_train.OneByOneTraining):
        training = kind(options)
        losses.append(
            [
                float(training.step(samples[i : i + 8], 8).asscalar())
                for _ in range(3)
                for i in (0, 8, 16)
            ]
        )
        weights.append(training.net.cell.i2h_weight.data().asnumpy())
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    np.testing.assert_allclose(weights[0], weights[1], rtol=1e-2, atol=1e-4)
    assert losses[0][-1] < losses[0][2]


def test_digits_are_learned(capsys):
    options = argparse.Namespace(seed=1, hidden=32, ctx=mx.cpu(), lr=1e-2, epochs=5, batch_size=16)
    test = samples_of(load_test(SAMPLE), mx.cpu())
    mnist_train.train(mnist_train.FoldedTraining(options), some_samples(400), test, options)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith('epoch 5') and float(last.split('accuracy ')[1].split()[0]) > 0.7


def test_strips():
    image = np.zeros((28, 28), np.float32)
    image[[3, 7], [4, 5]] = 1, 0.5
    strips = strips_of(image.reshape(-1))
    assert [strip.shape for strip in strips] == [(1, 56)] * 3
    assert np.flatnonzero(np.concatenate(strips)).tolist() == [4, 2 * 56 + 5]
    assert len(strips_of(np.zeros(784, np.float32))) == 1


# --- data ----------------------------------------------------------------------------------------


def test_sample_is_what_the_program_makes(tmp_path):
    make_sample.write_sample(tmp_path)
    assert sorted(os.listdir(tmp_path)) == sorted(os.listdir(SAMPLE))
    for load in (load_train, load_test):
        made, kept = load(tmp_path), load(SAMPLE)
        assert np.abs(made.images - kept.images).max() < 0.1  # a shade, for other rounding
        assert made.labels.tolist() == kept.labels.tolist()
        assert set(made.labels) == set(range(10)) and 0 < made.images.mean() < made.images.max()


def idx(magic, *shape, items=None):
    count = int(np.prod(shape)) if items is None else items
    return struct.pack(f'>{1 + len(shape)}I', magic, *shape) + bytes(count)


@pytest.mark.parametrize(
    'images, labels, message',
    [
        (idx(2051, 2, 28, 28), idx(2049, 3), '3 labels for 2 images'),
        (idx(2051, 2, 28, 27), idx(2049, 2), r'shape \(28, 27\), not 2051 and \(28, 28\)'),
        (idx(2050, 2, 28, 28), idx(2049, 2), 'magic number 2050'),
        (idx(2051, 2, 28, 28, items=100), idx(2049, 2), '100 bytes for 2 items'),
        (b'ab', idx(2049, 2), 'has 2 bytes only'),
        (idx(2051, 0, 28, 28), idx(2049, 0), 'there are no images'),
        (b'', idx(2049, 0), 't10k-images-idx3-ubyte.gz: no idx file, as it has 0 bytes only'),
        (idx(2051, 1, 28, 28), idx(2049, 1)[:-1] + b'\x0c', 'a label is a digit, not 12'),
    ],
)
def test_malformed_test_images(tmp_path, images, labels, message):
    (tmp_path / 't10k-images-idx3-ubyte.gz').write_bytes(gzip.compress(images, mtime=0))
    (tmp_path / 't10k-labels-idx1-ubyte.gz').write_bytes(gzip.compress(labels, mtime=0))
    with pytest.raises(DataError, match=message):
        load_test(tmp_path)


@pytest.mark.parametrize(
    'contents, message',
    [
        (gzip.compress(b'1,2,3\n', mtime=0), 'not 3 numbers from 1 to 3'),
        (gzip.compress(b'1,2\n3\n', mtime=0), 'not lines of whole numbers'),
        (gzip.compress(b'a,b\n', mtime=0), 'not lines of whole numbers'),
        (gzip.compress(','.join(['256'] * 785).encode(), mtime=0), 'from 256 to 256'),
        (gzip.compress(b'', mtime=0), 'mnist_5k.csv.gz: there are no images'),
        (gzip.compress(b'\n \n\n', mtime=0), 'mnist_5k.csv.gz: there are no images'),
        (gzip.compress(b'# nothing\n', mtime=0), 'not lines of whole numbers'),
        (b'', 'mnist_5k.csv.gz: there are no images'),
        (b'1,2,3\n', 'not a gzip file'),
        (gzip.compress(b'1,2,3\n', mtime=0)[:-4], 'not a gzip file, or damaged'),
    ],
)
def test_malformed_training_images(tmp_path, contents, message):
    (tmp_path / 'mnist_5k.csv.gz').write_bytes(contents)
    with pytest.raises(DataError, match=message):
        load_train(tmp_path)
