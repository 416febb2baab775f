"""Workers of a job: what they add up, how they end, and what ends them."""

import os
import select
import signal
import sys

import mxnet as mx
import numpy as np
import pytest
from mxnet import gluon

from gluon_edbatch.distributed import Trainer, connect, guard
from gluon_edbatch.distributed.launch import Computer, read_hosts
from gluon_edbatch.distributed.workers import padded
from gluon_edbatch.errors import DistributedError
from support.jobs import is_alive, processes_of, run_job, start_job
from support.processes import HANG, run_python, start

STEPS = 50
TRAIN = f"""
import sys
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
import gluon_edbatch as edb
from gluon_edbatch.data import BalancedSampler
from gluon_edbatch.distributed import Trainer, connect

name, out, sparse, optimizer = sys.argv[1:]
with connect(None if name == 'alone' else name) as workers:
    mx.random.seed(workers.rank)  # the first one's values are everybody's
    embed = gluon.nn.Embedding(40, 6, sparse_grad=sparse == 'sparse')
    cell = edb.rnn.ChildSumTreeLSTMCell(5, input_size=6)
    seldom = gluon.nn.Dense(5, in_units=5)  # some minibatches do not meet it, on some workers
    score = gluon.nn.Dense(1, in_units=5)
    score.bias.lr_mult = 0.5
    blocks = embed, cell, seldom, score
    parameters = gluon.ParameterDict()
    for block in blocks:
        block.initialize(mx.init.Uniform(0.5))
        parameters.update(block.collect_params())
    if workers.rank == 0:
        random = np.random.RandomState(9)
        for parameter in parameters.values():
            parameter.set_data(mx.nd.array(random.uniform(-0.5, 0.5, parameter.shape)))
    wd = 0.0 if optimizer == 'adagrad' else 1e-3
    trainer = Trainer(parameters, optimizer, {{'learning_rate': 0.05, 'wd': wd}}, workers=workers)
    random = np.random.RandomState(3)
    samples = [random.randint(0, 40, 1 + length % 7) for length in range(64)]

    def loss(index):
        states = [cell(embed(mx.nd.array([int(token)])), []) for token in samples[index]]
        state = cell(embed(mx.nd.array([index % 40])), states)[0]
        if index % 16 == 0:
            state = seldom(state)
        return (score(state) - float(index % 3)) ** 2

    sampler = BalancedSampler(
        [len(sample) for sample in samples], 8 // workers.size,
        num_workers=workers.size, rank=workers.rank, seed=1,
    )
    steps = [
        (minibatch, joined) for epoch in range(100)
        for minibatch, joined in zip(sampler.epoch(epoch), sampler.joined_sizes)
    ][:{STEPS}]
    for minibatch, joined in steps:
        with autograd.record():
            with edb.batching():
                losses = [loss(index) for index in minibatch]
            total = edb.stack(losses).sum()
        total.backward()
        trainer.step(joined, ignore_stale_grad=True)
    values = [p.data().asnumpy() for p in (q for b in blocks for q in b.collect_params().values())]
    gathered = workers.gather(np.concatenate([v.ravel() for v in values])[None])
    if workers.rank == 0:
        np.save(out, gathered)
"""


@pytest.mark.parametrize(
    'sparse, optimizer', [('dense', 'adam'), ('sparse', 'adam'), ('sparse', 'adagrad')]
)
def test_two_workers_train_as_one_process_with_their_minibatches(tmp_path, sparse, optimizer):
    one = run_python('-c', TRAIN, 'alone', tmp_path / 'one.npy', sparse, optimizer)
    assert one.returncode == 0, one.stderr
    two = run_job(
        *['-n', 2, '-s', 1, sys.executable, '-c', TRAIN],
        *['dist_sync', tmp_path / 'two.npy', sparse, optimizer],
    )
    assert two.returncode == 0, two.stderr
    alone, together = np.load(tmp_path / 'one.npy'), np.load(tmp_path / 'two.npy')
    np.testing.assert_array_equal(together[0], together[1])
    np.testing.assert_allclose(together[0], alone[0], atol=1e-5, rtol=0)
    assert alone.shape[1] > 300 and np.abs(alone).max() > 0.1


# What Python does not delete at its end, MXNet's own KVStore least of all, aborts nothing.
ADD = r"""
import gc, os
import mxnet as mx
import numpy as np
from gluon_edbatch.distributed import connect

with connect('dist_sync') as workers:
    rank, size = workers.rank, workers.size
    counts = np.arange(size) + 1
    for _ in range(3):  # the same keys again
        arrays = [
            mx.nd.full((2, 3), rank), mx.nd.full(4, 10, dtype='float64') ** -rank,
            mx.nd.full(300000, rank + 1, dtype='float16'),  # is divided among servers
        ]
        first, second, third = [array.asnumpy() for array in workers.sum(arrays)]
        assert (first == sum(range(size))).all() and first.shape == (2, 3)
        np.testing.assert_allclose(second, sum(10.0 ** -i for i in range(size)), rtol=1e-6)
        assert (third == counts.sum()).all() and third.dtype == np.float32
        rows = workers.gather(np.full((rank, 2), rank, np.float32))
        assert rows.tolist() == [[i, i] for i in range(size) for _ in range(i)]
    workers.barrier()
    kept = [workers, workers._store]
    kept.append(kept)
    gc.freeze()
    os.write(1, f'{workers}\n'.encode())  # at once: three workers write
"""


@pytest.mark.parametrize('servers, name', [(1, 'dist_sync'), (2, 'dist_device_sync')])
def test_sums_over_three_workers(servers, name):
    done = run_job('-n', 3, '-s', servers, sys.executable, '-c', ADD.replace('dist_sync', name))
    assert done.returncode == 0 and done.stderr == '', done.stderr
    assert sorted(done.stdout.splitlines()) == [f'Workers(rank={i}, size=3)' for i in range(3)]


ENDLESS = r"""
import os, sys, time
import numpy as np
from gluon_edbatch.distributed import connect

with connect('dist_sync') as workers:
    for step in range(10 ** 9):
        workers.sum_numbers(np.ones(3))
        if step == 5:
            if workers.rank == 1 and sys.argv[1] == 'raise':
                raise ValueError('one of two')
            if workers.rank == 1 and sys.argv[1] == 'exit':
                sys.exit(7)
            os.write(1, b'begun\n')  # at once: two workers write
        time.sleep(0.01)
"""


def assert_gone(processes):
    """Guards need a moment: those that nobody waits for, of a killed launcher."""
    for process in processes:
        for _ in range(100 * HANG):
            if not is_alive(process):
                break
            select.select([], [], [], 0.01)
        assert not is_alive(process)


UNMET = """
import mxnet as mx
from mxnet import autograd, gluon
from gluon_edbatch.distributed import Trainer, connect

with connect('dist_sync') as workers:
    nets = [gluon.nn.Dense(2, in_units=2, prefix=name) for name in ('always_', 'once_')]
    parameters = gluon.ParameterDict()
    for net in nets:
        net.initialize()
        parameters.update(net.collect_params())
    trainer = Trainer(parameters, 'sgd', workers=workers)
    with autograd.record():
        losses = [net(mx.nd.ones((1, 2))) for net in nets[: 2 - workers.rank]]
    autograd.backward(losses)
    trainer.step(1)
"""


def test_a_parameter_that_one_worker_has_not_met_is_told():
    done = run_job('-n', 2, '-s', 1, sys.executable, '-c', UNMET)
    assert done.returncode == 1 and 'Gradient of Parameter `once_' in done.stderr
    assert 'has not been updated by backward' in done.stderr
    done = run_job('-n', 2, '-s', 1, sys.executable, '-c', UNMET.replace('step(1', 'step(1, True'))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize('role', ['worker 1', 'server 0', 'scheduler 0'])
def test_a_killed_process_ends_the_job(role):
    with start_job('-n', 2, '-s', 1, sys.executable, '-c', ENDLESS, 'on') as launcher:
        assert [launcher.stdout.readline() for _ in range(2)] == ['begun\n'] * 2
        processes = processes_of(launcher)
        assert sorted(processes) == ['scheduler 0', 'server 0', 'worker 0', 'worker 1']
        os.kill(processes[role], signal.SIGKILL)
        _, errors = launcher.communicate()
        assert launcher.returncode == 128 + signal.SIGKILL
    name = role if 'scheduler' not in role else 'scheduler'
    assert f'launch: {name} was killed by SIGKILL: the job ends' in errors
    assert_gone(processes.values())


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGKILL])
def test_a_job_ends_with_its_launcher(number):
    with start_job('-n', 2, '-s', 1, sys.executable, '-c', ENDLESS, 'on') as launcher:
        launcher.stdout.readline()
        processes = processes_of(launcher)
        launcher.send_signal(number)
        launcher.wait()
        assert_gone(processes.values())
    assert launcher.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)


@pytest.mark.parametrize('how, status', [('raise', 1), ('exit', 7)])
def test_a_worker_that_fails_ends_the_job(how, status):
    done = run_job('-n', 2, '-s', 1, sys.executable, '-c', ENDLESS, how)
    assert done.returncode == status
    assert f'launch: worker 1 ended with status {status}: the job ends' in done.stderr
    assert ('ValueError: one of two' in done.stderr) == (how == 'raise')


def test_workers_are_kept_to_processors_of_their_own():
    available = sorted(os.sched_getaffinity(0))
    program = 'import os; os.write(1, f"{sorted(os.sched_getaffinity(0))}\\n".encode())'
    command = ['-n', 2, '-s', 1, '--cpus', 1, sys.executable, '-c', program + '; 1/0']
    with start_job(*command) as launcher:
        kept = {launcher.stdout.readline() for _ in range(2)}
    assert kept == {f'[{available[i % len(available)]}]\n' for i in range(2)}


def test_a_guard_that_hears_nothing_ends_its_process(monkeypatch, capsys):
    monkeypatch.setattr(guard, 'SILENCE', 0.0)
    listening, speaking = os.pipe()
    with start([sys.executable, '-c', 'import time; time.sleep(10 ** 6)']) as process:
        assert guard._watch(process, listening) == 1
        assert 'nothing heard of the launcher' in capsys.readouterr().err
        monkeypatch.setattr(guard, 'SILENCE', HANG)
        os.close(speaking)
        assert guard._watch(process, listening) == 1
        os.close(listening)
        assert process.poll() is None
        guard._end(process)
    assert process.returncode == -signal.SIGTERM


@pytest.mark.slow  # the launcher's patience
def test_workers_that_never_connect_are_no_job_that_waits_forever():
    done = run_job('-n', 2, '-s', 1, sys.executable, '-c', 'print("done")')
    assert done.returncode == 1 and 'scheduler, server 0 still wait: did each worker' in done.stderr


# Takes the place of ssh: its arguments are -p PORT HOST COMMAND. Nothing of the variables of this
# machine arrives there, and the command goes through a shell.
SSH = '#!/bin/sh\necho "$2 $3" >> "$0.hosts"\nshift 3\nexec env -i PATH="$PATH" sh -c "$*"\n'


def test_a_job_on_other_machines(tmp_path):
    ssh, hosts = tmp_path / 'ssh', tmp_path / 'hosts'
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    hosts.write_text('# all of them\nlocalhost\n\nme@127.0.0.1:2222  # slow\n')
    done = run_job(
        *['-n', 3, '-s', 1, '-H', hosts, '--ssh', ssh, '--env', 'MINE', sys.executable, '-c', ADD]
    )
    assert done.returncode == 0 and done.stderr == '', done.stderr
    assert len(done.stdout.splitlines()) == 3
    used = (tmp_path / 'ssh.hosts').read_text().splitlines()
    assert sorted(used) == ['22 localhost'] * 3 + ['2222 me@127.0.0.1']


def test_a_job_on_other_machines_ends_with_its_launcher(tmp_path):
    ssh, hosts = tmp_path / 'ssh', tmp_path / 'hosts'
    ssh.write_text(SSH)
    ssh.chmod(0o755)
    hosts.write_text('localhost\n127.0.0.1\n')
    program = ENDLESS.replace("b'begun\\n'", "f'{os.getpid()}\\n'.encode()")
    command = ['-n', 2, '-s', 1, '-H', hosts, '--ssh', ssh, sys.executable, '-c', program, 'on']
    with start_job(*command) as launcher:
        workers = [int(launcher.stdout.readline()) for _ in range(2)]
        assert all(map(is_alive, workers))
        launcher.kill()
        launcher.wait()
        assert_gone(workers)


def test_files_of_hosts(tmp_path):
    path = tmp_path / 'hosts'
    path.write_text('one slots=4\nme@two:2222\n')
    assert list(read_hosts(path)) == [Computer('one'), Computer('me@two', '2222')]
    assert Computer('me@two').address == 'two'
    path.write_text('# none\n')
    done = run_job('-n', 1, '-H', path, 'true')
    assert done.returncode == 1 and 'names no host: write one on each line' in done.stderr


def test_the_launcher_is_a_module_of_the_package():
    done = run_python('-m', 'gluon_edbatch.distributed', '--help')
    assert done.returncode == 0 and '--workers N' in done.stdout, done.stderr


def test_what_cannot_be_started():
    done = run_job('-n', 1, '-s', 1, './no such program')
    assert done.returncode == 127 and './no such program cannot be started' in done.stderr
    done = run_job('-n', 1)
    assert done.returncode == 2 and 'what is to be run?' in done.stderr


def test_a_process_alone_is_a_job_of_one():
    with connect() as workers:
        assert (workers.rank, workers.size) == (0, 1)
        rows = np.ones((2, 3))
        assert workers.gather(rows) is rows and workers.sum_numbers(rows) is rows
        workers.barrier()
        workers.fail(3)  # has nobody to keep from waiting


@pytest.mark.parametrize(
    'name, message',
    [
        ('dist_async', "kvstore 'dist_async': write dist_sync"),
        ('dist_sync', 'needs servers and a scheduler: start the program by'),
    ],
)
def test_what_cannot_be_joined(name, message, monkeypatch):
    monkeypatch.delenv('DMLC_ROLE', raising=False)
    with pytest.raises(DistributedError, match=message):
        connect(name)


def test_a_job_that_does_not_come_together_is_given_up():
    program = (
        'import gluon_edbatch.distributed.workers as workers; workers._CONNECTING = 0.1\n'
        'workers.connect("dist_sync")'
    )
    alone = dict(DMLC_ROLE='worker', DMLC_NUM_WORKER='1', DMLC_NUM_SERVER='1')
    nobody = dict(DMLC_PS_ROOT_URI='127.0.0.1', DMLC_PS_ROOT_PORT='9', DMLC_INTERFACE='lo')
    done = run_python('-c', program, **alone, **nobody)
    assert done.returncode == 1
    assert 'is the scheduler at 127.0.0.1:9 reachable from here' in done.stderr


def test_sparse_gradients_ask_for_one_context():
    embed = gluon.nn.Embedding(5, 2, sparse_grad=True)
    embed.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    with connect() as workers:
        trainer = Trainer(embed.collect_params(), 'sgd', workers=workers)
        with pytest.raises(DistributedError, match='row_sparse gradient: use one context'):
            trainer.step(1)


def test_padded_sizes_are_few_and_near():
    sizes = [padded(size) for size in range(1, 5000)]
    assert all(size <= larger <= size * 1.13 + 1 for size, larger in zip(range(1, 5000), sizes))
    assert len(set(sizes)) < 90
