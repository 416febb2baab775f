"""The example's checkpoints: whole or not there."""

import json
import os
import pickle
import random
import select
import sys
import zipfile

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon

from example.common import checkpoint as checkpoints
from example.common.checkpoint import Checkpoint, CheckpointError
from tests.support.damage import damaged
from tests.support.processes import ROOT, start


def example(value=1.0, epochs=2):
    arrays = {
        'hidden.weight': np.full((2, 3), value, np.float32),
        'hidden.bias': np.array([np.pi, -0.0], np.float32),
    }
    return Checkpoint(
        task='tree_lstm',
        options={'hidden': 3, 'glove': None},
        state={'words': '{"a": "é"}'},
        history=[{'epoch': i, 'loss': 0.1 / 3} for i in range(epochs)],
        parameters=arrays,
        best_epoch=1,
        best_parameters={name: -array for name, array in arrays.items()},
        trainer=bytes(range(256)),
    )


def assert_same(left, right):
    for name, one in left._asdict().items():
        other = getattr(right, name)
        if name.endswith('parameters'):
            assert one.keys() == other.keys()
            for key in one:
                np.testing.assert_array_equal(one[key], other[key])
                assert one[key].dtype == other[key].dtype
        else:
            assert one == other, name


def test_round_trip_leaves_one_file(tmp_path):
    path = tmp_path / 'new' / 'run.ckpt'
    checkpoints.save(path, example())
    assert_same(checkpoints.load(path), example())
    assert os.listdir(path.parent) == ['run.ckpt']


@pytest.mark.parametrize('failing', ['fsync', 'replace'])
@pytest.mark.parametrize('error', [OSError('disk full'), KeyboardInterrupt()])
def test_old_checkpoint_survives_a_failure(tmp_path, monkeypatch, failing, error):
    path = tmp_path / 'run.ckpt'
    checkpoints.save(path, example(1.0))

    def fail(*_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints.os, failing, fail)
        with pytest.raises(type(error)):
            checkpoints.save(path, example(2.0))
    assert_same(checkpoints.load(path), example(1.0))
    assert os.listdir(tmp_path) == ['run.ckpt']


def test_what_a_killed_program_left_is_written_over(tmp_path):
    path = tmp_path / 'run.ckpt'
    (tmp_path / 'run.ckpt.part').write_bytes(b'half')
    checkpoints.save(path, example())
    assert_same(checkpoints.load(path), example())
    assert os.listdir(tmp_path) == ['run.ckpt']


WRITER = """
import itertools, os, sys
sys.path[:0] = sys.argv[2:]
import gluon_edbatch as edb
import mxnet as mx
from mxnet import autograd, gluon
from example.common import checkpoint as checkpoints

path = sys.argv[1]
net = gluon.nn.Dense(1024, in_units=512)  # so that most of the time is spent on writing
net.initialize()
trainer = gluon.Trainer(net.collect_params(), 'adam')
samples = [mx.nd.full((1, 512), i / 8) for i in range(8)]
history = []
if os.path.exists(path):
    last = checkpoints.load(path)
    history = last.history
    checkpoints.set_parameters(net, last.parameters)
    checkpoints.restore_trainer(trainer, last.trainer)
while True:
    with autograd.record():
        with edb.batching():
            losses = [(net(sample) ** 2).sum(axis=1) for sample in samples]
        loss = edb.stack(losses).sum()
    loss.backward()
    trainer.step(8)
    parameters = checkpoints.parameter_arrays(net)
    history.append({'sum': float(parameters['weight'].sum()), 'loss': loss.asscalar().item()})
    best = {name: array + len(history) for name, array in parameters.items()}
    checkpoints.save(path, checkpoints.Checkpoint(
        'writer', {}, {}, history, parameters, len(history), best,
        checkpoints.trainer_states(trainer)))
    print(len(history), flush=True)
"""


def check_kills(tmp_path, kills, seed):
    """A program that trains and writes one checkpoint after the other is killed at random moments,
    and goes on from what it left: the last checkpoint that it told of, or the one after that."""
    path, generator, partly = tmp_path / 'run.ckpt', random.Random(seed), 0
    for _ in range(kills):
        with start([sys.executable, '-c', WRITER, path, ROOT, ROOT / 'example']) as process:
            for _ in range(generator.randint(1, 4)):
                told = int(process.stdout.readline())
            select.select([process.stderr], [], [], generator.uniform(0, 0.1))
            process.kill()
            told = int((process.stdout.read().split() or [told])[-1])
        found = checkpoints.load(path)
        assert len(found.history) in (told, told + 1) and found.best_epoch == len(found.history)
        assert found.history[-1]['sum'] == float(found.parameters['weight'].sum())
        for name, array in found.parameters.items():
            np.testing.assert_array_equal(found.best_parameters[name], array + found.best_epoch)
        assert pickle.loads(found.trainer)
        assert set(os.listdir(tmp_path)) <= {path.name, f'{path.name}.part'}
        partly += len(os.listdir(tmp_path)) == 2
    return partly


def test_killed_while_checkpoints_are_written(tmp_path):
    check_kills(tmp_path, 4, seed=0)


@pytest.mark.slow
def test_killed_many_times_while_checkpoints_are_written(tmp_path):
    assert check_kills(tmp_path, 50, seed=1), 'none came while one was written'


def test_truncated_at_any_length(tmp_path):
    path = tmp_path / 'run.ckpt'
    checkpoints.save(path, example())
    whole = path.read_bytes()
    for length in [0, 1, 100, *range(len(whole) // 2, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match='run.ckpt: not a checkpoint, or damaged'):
            checkpoints.load(path)


def test_a_changed_byte_is_noticed(tmp_path):
    path = tmp_path / 'run.ckpt'
    checkpoints.save(path, example())
    whole = bytearray(path.read_bytes())
    at = whole.index(np.float32(np.pi).tobytes())
    whole[at] ^= 1
    path.write_bytes(whole)
    with pytest.raises(CheckpointError, match='damaged.*CRC'):
        checkpoints.load(path)


def check_damaged_files(tmp_path, count, seed):
    path = tmp_path / 'run.ckpt'
    checkpoints.save(path, example())
    whole, generator, refused = path.read_bytes(), np.random.RandomState(seed), 0
    for _ in range(count):
        path.write_bytes(damaged(whole, generator))
        try:
            found = checkpoints.load(path)
        except CheckpointError as error:
            assert str(path) in str(error)
            refused += 1
        else:  # what was damaged does not count, such as a date
            assert_same(found, example())
    assert refused > count // 2


def test_damaged_files_are_refused_or_whole(tmp_path):
    check_damaged_files(tmp_path, 1500, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize('seed', range(1, 21))
def test_many_damaged_files_are_refused_or_whole(tmp_path, seed):
    check_damaged_files(tmp_path, 5000, seed)


@pytest.mark.parametrize(
    'change',
    [
        lambda members: members.pop('parameters/hidden.bias.npy'),
        lambda members: members.update(
            {'parameters/more.npy': members['parameters/hidden.bias.npy']}
        ),
        lambda members: members.update(
            {'parameters/bias.npy': members.pop('parameters/hidden.bias.npy')}
        ),
        lambda members: members.update(
            {'best_parameters/hidden.bias.npy': members['parameters/hidden.bias.npy']}
        ),
        lambda members: members.update(trainer=b'other'),
    ],
)
def test_an_archive_holds_what_was_written(tmp_path, change):
    """The archive's own checksums are right here."""
    path = tmp_path / 'run.ckpt'
    checkpoints.save(path, example())
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, 'w') as archive:
        for name, contents in members.items():
            archive.writestr(name, contents)
    with pytest.raises(CheckpointError, match=r'run\.ckpt: not a checkpoint, or damaged \(in '):
        checkpoints.load(path)


def test_checkpoints_of_the_first_format_are_read(tmp_path):
    """Checkpoints without checksums, as commit 5c27bf8 wrote them, can be read."""
    path, wanted = tmp_path / 'run.ckpt', example()
    fields = wanted._asdict()
    with zipfile.ZipFile(path, 'w') as archive:
        groups = {group: fields.pop(group) for group in ('parameters', 'best_parameters')}
        archive.writestr('trainer', fields.pop('trainer'))
        archive.writestr(
            'meta.json', json.dumps({'format': 'gluon_edbatch example checkpoint 1', **fields})
        )
        for group, arrays in groups.items():
            for name, array in arrays.items():
                with archive.open(f'{group}/{name}.npy', 'w') as file:
                    np.save(file, array)
    assert_same(checkpoints.load(path), wanted)


@pytest.mark.parametrize(
    'content', [b'text', b'PK\x03\x04 not really', json.dumps({'format': 'other'}).encode()]
)
def test_foreign_file(tmp_path, content):
    path = tmp_path / 'other.params'
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match='not a checkpoint'):
        checkpoints.load(path)


@pytest.mark.parametrize(
    'members',
    [
        {},
        {'meta.json': '{'},
        {'meta.json': '[]'},
        {'meta.json': '{"format": "other"}'},
        {'meta.json': json.dumps({'format': checkpoints.FORMAT})},
        {'meta.json': json.dumps({'format': checkpoints.FORMAT}), 'trainer': ''},
        {'meta.json': json.dumps({'format': checkpoints.FORMAT}), 'parameters/x.npy': 'x'},
    ],
)
def test_foreign_archive(tmp_path, members):
    path = tmp_path / 'other.zip'
    with zipfile.ZipFile(path, 'w') as archive:
        for name, text in members.items():
            archive.writestr(name, text)
    with pytest.raises(CheckpointError, match='other.zip: not a checkpoint'):
        checkpoints.load(path)


def test_no_file(tmp_path):
    with pytest.raises(CheckpointError, match='there is no such checkpoint'):
        checkpoints.load(tmp_path / 'run.ckpt')
    with pytest.raises(CheckpointError, match='not a checkpoint'):
        checkpoints.load(tmp_path)


def dense(units):
    net = gluon.nn.Dense(units, in_units=3)
    net.initialize(mx.init.Normal())
    return net


def test_parameters_go_into_weights_that_were_laid_out_for_inference():
    """oneDNN's convolutions keep theirs in another order of their own."""
    net = gluon.nn.Conv2D(16, 3, in_channels=16)
    net.initialize()
    net.hybridize()
    kept = checkpoints.parameter_arrays(net)
    before = net(mx.nd.ones((1, 16, 8, 8))).asnumpy()
    net.weight.set_data(mx.nd.zeros(net.weight.shape))
    assert not net(mx.nd.ones((1, 16, 8, 8))).asnumpy().any()
    checkpoints.set_parameters(net, kept)
    np.testing.assert_array_equal(net(mx.nd.ones((1, 16, 8, 8))).asnumpy(), before)
    np.testing.assert_array_equal(checkpoints.parameter_arrays(net)['weight'], kept['weight'])


def test_parameters_go_into_a_network_of_the_same_build_only():
    one, other = dense(2), dense(2)
    checkpoints.set_parameters(other, checkpoints.parameter_arrays(one))
    np.testing.assert_array_equal(one.weight.data().asnumpy(), other.weight.data().asnumpy())
    with pytest.raises(
        CheckpointError,
        match=r'weight has shape \(2, 3\) in the checkpoint and '
        r'\(4, 3\) in the model',
    ):
        checkpoints.set_parameters(dense(4), checkpoints.parameter_arrays(one))
    unbiased = gluon.nn.Dense(2, in_units=3, use_bias=False)
    unbiased.initialize()
    with pytest.raises(CheckpointError, match=r"differ in their parameters: \['bias'\]"):
        checkpoints.set_parameters(unbiased, checkpoints.parameter_arrays(one))


def test_trainer_goes_on_with_its_states():
    def update(net, trainer):
        with autograd.record():
            loss = (net(mx.nd.ones((4, 3))) ** 2).sum()
        loss.backward()
        trainer.step(1)

    def trainer_of(net):
        return gluon.Trainer(net.collect_params(), 'adagrad', {'learning_rate': 0.1})

    net = dense(2)
    trainer = trainer_of(net)
    update(net, trainer)
    arrays, states = checkpoints.parameter_arrays(net), checkpoints.trainer_states(trainer)
    update(net, trainer)
    again = dense(2)
    resumed = trainer_of(again)
    checkpoints.set_parameters(again, arrays)
    checkpoints.restore_trainer(resumed, states)
    update(again, resumed)
    np.testing.assert_array_equal(net.weight.data().asnumpy(), again.weight.data().asnumpy())
