"""Workers of a job: what they add up, how they end, and what ends them."""

import contextlib
import json
import os
import re
import select
import signal
import socket
import sys
from pathlib import Path

import mxnet as mx
import numpy as np
import pytest
from mxnet import gluon

from gluon_edbatch.distributed import Trainer, connect
from gluon_edbatch.distributed import process_guard as guard
from gluon_edbatch.distributed.launch import _address, _reserved, read_hosts
from gluon_edbatch.mx.pool import rounded
from gluon_edbatch_core.errors import DistributedError
from tests.support.jobs import LAUNCHER, is_alive, processes_of, run_job, start_job
from tests.support.processes import HANG, run, run_python, start
from tests.support.sshd import start_sshd
from tests.support.tiers import sampled

STEPS = 50
TRAIN = f"""
import sys
import gluon_edbatch as edb
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon
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
    'sparse, optimizer',
    [
        ('dense', 'adam'),
        pytest.param('sparse', 'adam', marks=pytest.mark.slow),
        ('sparse', 'adagrad'),
    ],
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
from gluon_edbatch.distributed import connect
import mxnet as mx
import numpy as np

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
from gluon_edbatch.distributed import Trainer, connect
import mxnet as mx
from mxnet import autograd, gluon

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


@pytest.mark.parametrize('role', sampled(2, ['worker 1', 'server 0', 'scheduler 0']))
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


@pytest.mark.parametrize('number', sampled(2, [signal.SIGKILL, signal.SIGINT]))
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
    program = (
        'import os, signal; '
        'os.write(1, f"{sorted(os.sched_getaffinity(0))}\\n".encode()); '
        'signal.pause()'  # whoever ended would end the other one, too
    )
    with start_job('-n', 2, '-s', 1, '--cpus', 1, sys.executable, '-c', program) as launcher:
        kept = {launcher.stdout.readline() for _ in range(2)}
        processes = processes_of(launcher)
        launcher.send_signal(signal.SIGINT)
        launcher.wait()
    assert_gone(processes.values())
    assert kept == {f'[{available[i % len(available)]}]\n' for i in range(2)}


def test_lines_are_whole_and_say_whose_they_are():
    """Workers that write a line in pieces, as Python does without a buffer."""
    program = """
import sys
for step in range(300):
    print('step', step, 'of', 'many', flush=True)
    print('half', step, end='\\r' if step % 2 else ' and half\\n', file=sys.stderr)
print('no end', end='')
sys.exit(3)
"""
    job = [*LAUNCHER, '-n', 3, '-s', 1, sys.executable, '-c', program]
    done = run(job, PYTHONUNBUFFERED='1')
    assert done.returncode == 3
    worker = re.search(r'launch: worker (\d) ended with status 3', done.stderr).group(1)
    own = [line for line in done.stdout.splitlines() if line.startswith(f'worker {worker}: ')]
    assert own[:-1] == [f'worker {worker}: step {step} of many' for step in range(300)]
    assert own[-1] == f'worker {worker}: no end'
    pieces = re.split('[\n\r]', done.stderr)
    assert [piece for piece in pieces if piece.startswith(f'worker {worker}')] == [
        f'worker {worker}: half {step}' + ' and half' * (step % 2 == 0) for step in range(300)
    ]
    assert '\0' not in done.stderr


def test_last_words_are_copied_though_a_child_keeps_the_pipe():
    """A child of another process group, which the launcher neither ends nor waits for."""
    program = """
import subprocess, sys
subprocess.Popen(['sleep', '5'], start_new_session=True)
print('begun', end='')
print('no end', end='', file=sys.stderr)
sys.exit(3)
"""
    done = run([*LAUNCHER, '-n', 1, '-s', 1, sys.executable, '-c', program])
    assert done.stdout == 'worker 0: begun\n'
    last, reason = done.stderr.splitlines()
    assert last == 'worker 0: no end' and 'worker 0 ended with status 3' in reason


@pytest.mark.parametrize('stream', ['stdout', 'stderr'])
def test_a_job_ends_with_who_reads_it(stream):
    """A job whose reader ends, such as `... | head`, ends. Workers that write nothing do not
    notice."""
    program = f'import sys, time\nprint("begun", file=sys.{stream})\ntime.sleep(10 ** 6)'
    with start_job('-n', 2, '-s', 1, sys.executable, '-c', program) as launcher:
        getattr(launcher, stream).close()
        launcher.wait()
        others = launcher.stderr if stream == 'stdout' else launcher.stdout
        assert ('are lost ([Errno 32] Broken pipe): the job ends' in others.read()) == (
            stream == 'stdout'
        )
    assert launcher.returncode == 128 + signal.SIGPIPE


def test_zero_bytes_of_a_program_are_its_own():
    program = 'import os; os.write(1, bytes(3) + b"\\n"); os.write(2, b"told\\n"); 1/0'
    done = run_job('-n', 1, '-s', 1, sys.executable, '-c', program)
    assert done.stdout == '\0\0\0\n' and done.stderr.startswith('told\n')


def test_a_guard_that_hears_nothing_ends_its_process(capfd):
    listening, speaking = os.pipe()
    with start([sys.executable, '-c', 'import time; time.sleep(10 ** 6)']) as process:
        assert guard._watch(process, listening, 2, silence=0.0) == 1
        assert 'nothing heard of the launcher' in capfd.readouterr().err
        os.write(speaking, b'\n')
        os.close(speaking)
        assert guard._watch(process, listening, 2, silence=HANG) == 1
        assert capfd.readouterr().err == '\0'  # the answer to a word
        os.close(listening)
        assert process.poll() is None
        guard._end(process)
    assert process.returncode == -signal.SIGTERM


def test_a_guard_does_not_wait_for_who_reads_its_errors():
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writing, bytes(1 << 12))
    os.set_blocking(writing, True)
    guard._answer(writing)
    assert len(os.read(reading, 1 << 20)) <= 1 << 16
    os.close(reading)
    guard._answer(writing)  # nobody reads any more
    os.close(writing)


def test_a_guard_says_what_is_missing(tmp_path, capfd):
    with pytest.raises(SystemExit) as raised:
        guard._start([['true'], str(tmp_path / 'none'), {}, []])
    assert raised.value.code == 127
    errors = capfd.readouterr().err
    assert 'launch: true cannot be started' in errors and str(tmp_path / 'none') in errors


@pytest.mark.parametrize(
    'ssh, message',
    [
        ('false', ' 0 on localhost never began (status 1): `false localhost true` has'),
        (
            'sh -c "exec sleep 1000"',
            'nothing heard of server 0 on localhost, worker 0 on localhost for',
        ),
    ],
)
def test_a_machine_that_does_not_answer(tmp_path, ssh, message):
    hosts = tmp_path / 'hosts'
    hosts.write_text('localhost\n')
    done = run_job('-n', 1, '-s', 1, '-H', hosts, '--ssh', ssh, '--silence', 5, 'true')
    assert done.returncode == 1 and message in done.stderr, done.stderr


# More than all pipes on the way hold.
CHATTER = """
import os, signal
os.write(1, f'{os.getpid()}\\n'.encode())
for _ in range(10000):
    os.write(1, b'x' * 99 + b'\\n')
signal.pause()
"""


@pytest.mark.slow  # longer than the launcher's patience
def test_who_reads_late_is_no_lost_machine():
    """A terminal that is held, or `less`: nothing is lost, and a worker that fails ends the job."""
    with start_job('-n', 2, '-s', 1, '--silence', 5, sys.executable, '-c', CHATTER) as launcher:
        lines = iter(launcher.stdout.readline, '')
        workers = [int(next(line for line in lines if 'x' not in line)) for _ in range(2)]
        select.select([], [], [], 12)
        assert launcher.poll() is None and all(map(is_alive, workers))
        os.kill(workers[0], signal.SIGKILL)
        assert_gone(workers)
        assert launcher.poll() is None  # it has still words to pass on
        rest, errors = launcher.communicate()
    assert launcher.returncode == 128 + signal.SIGKILL
    assert re.fullmatch(r'launch: worker \d was killed by SIGKILL: the job ends\n', errors)
    assert {len(line) for line in rest.splitlines()[1:]} == {99}


@pytest.mark.slow  # the launcher's patience
def test_workers_that_never_connect_are_no_job_that_waits_forever():
    done = run_job('-n', 2, '-s', 1, sys.executable, '-c', 'print("done")')
    assert done.returncode == 1 and 'scheduler, server 0 still wait: did each worker' in done.stderr


# Takes the place of ssh: its arguments are [-p PORT] HOST COMMAND. Nothing of the variables of this
# machine arrives there, and the command goes through a shell.
SSH = """#!/bin/sh
port=22
if [ "$1" = -p ]; then port=$2; shift 2; fi
echo "$port $1" >> "$0.hosts"
shift
exec env -i PATH=/usr/bin:/bin sh -c "$*"
"""


def test_a_job_on_other_machines(tmp_path, monkeypatch):
    monkeypatch.setenv('DMLC_ROLE', 'server')  # as in a process of another job
    monkeypatch.setenv('GLUON_EDBATCH_RANK', '7')
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


@pytest.fixture
def machines(tmp_path):
    """Two of ssh, which are this one: the command, and the file of their names."""
    hosts = tmp_path / 'hosts'
    hosts.write_text('first\nsecond\n')
    with start_sshd(tmp_path) as ssh:
        yield ['--root', '127.0.0.1', '-H', hosts, '--ssh', ssh]


SHOW = """
import json, os, sys
from gluon_edbatch.distributed import connect
with connect('dist_sync') as workers:
    shown = [workers.rank, os.getcwd(), os.environ['MINE'], 'NOT_MINE' in os.environ, sys.argv[1:]]
    print(json.dumps(shown))
"""


def test_a_job_by_ssh(tmp_path, machines, monkeypatch):
    monkeypatch.setenv('MINE', "it's\n$mine")
    monkeypatch.setenv('NOT_MINE', '1')
    monkeypatch.setenv('PATH', str(Path(sys.executable).parent), prepend=os.pathsep)
    words = ['two words', "it's", '$HOME', '*', '', 'a\nb']
    folder = tmp_path / 'a folder'
    folder.mkdir()
    command = [*machines, '--env', 'MINE', Path(sys.executable).name, '-c', SHOW, *words]
    done = run_job('-n', 2, '-s', 1, *command, cwd=folder)
    assert done.returncode == 0 and done.stderr == '', done.stderr
    shown = sorted(map(json.loads, done.stdout.splitlines()))
    assert shown == [[rank, str(folder), "it's\n$mine", False, words] for rank in range(2)]


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGKILL])
def test_a_job_by_ssh_ends_with_its_launcher(machines, number):
    program = ENDLESS.replace("b'begun\\n'", "f'{os.getpid()}\\n'.encode()")
    command = ['-n', 2, '-s', 1, *machines, sys.executable, '-c', program, 'on']
    with start_job(*command) as launcher:
        workers = [int(launcher.stdout.readline()) for _ in range(2)]
        assert all(map(is_alive, workers))
        launcher.send_signal(number)
        launcher.wait()
        assert_gone(workers)
    assert launcher.returncode == (130 if number == signal.SIGINT else -signal.SIGKILL)


def test_more_processes_on_a_machine_than_its_sshd_lets_log_in_at_once(machines):
    done = run_job('-n', 20, '-s', 20, *machines, 'false')
    assert done.returncode == 1 and 'never began' not in done.stderr, done.stderr


def test_a_machine_that_lets_nobody_in(tmp_path, machines):
    (tmp_path / 'user.pub').write_text('')
    done = run_job('-n', 2, '-s', 1, *machines, 'true')
    assert done.returncode == 255 and 'Permission denied' in done.stderr
    assert re.search(
        r'(first|second) never began \(status 255\): `ssh -F \S+ (first|second) true` has',
        done.stderr,
    )


def test_a_machine_without_the_same_files(tmp_path, machines):
    """The interpreter is there for the scheduler, which runs here, alone."""
    python = tmp_path / 'python'
    python.write_text(
        f'#!/bin/sh\n[ -z "$SSH_CONNECTION" ] || exit 127\nexec {sys.executable} "$@"\n'
    )
    python.chmod(0o755)
    done = run_job('-n', 1, '-s', 1, *machines, '--python', python, 'true')
    assert done.returncode == 127 and 'never began (status 127)' in done.stderr
    assert 'the same Python and checkout under the same paths' in done.stderr


@pytest.mark.slow  # the launcher's patience
def test_a_machine_that_falls_silent_ends_the_job(machines):
    """A machine loses its power or its cable: no connection is closed, and nothing answers."""
    program = ENDLESS.replace("b'begun\\n'", "f'{workers.rank} {os.getpid()}\\n'.encode()")
    command = ['-n', 2, '-s', 1, '--silence', 15, *machines, sys.executable, '-c', program, 'on']
    with start_job(*command) as launcher:
        workers = dict(sorted(launcher.stdout.readline().split() for _ in range(2)))
        stat = Path('/proc', workers['1'], 'stat').read_text()
        stopped = [int(stat.rpartition(')')[2].split()[1]), int(workers['1'])]
        for process in stopped:  # guard and worker
            os.kill(process, signal.SIGSTOP)
        try:
            _, errors = launcher.communicate()
            assert_gone([int(workers['0'])])
        finally:
            for process in stopped:
                os.kill(process, signal.SIGCONT)
        assert_gone(stopped)
    assert launcher.returncode == 1
    assert errors == 'launch: nothing heard of worker 1 on second for 15 s: the job ends\n'


@pytest.mark.slow  # longer than the launcher's patience
def test_a_process_that_stands_still_is_no_lost_machine():
    command = ['-n', 2, '-s', 1, '--silence', 5, sys.executable, '-c', ENDLESS, 'on']
    with start_job(*command) as launcher:
        assert [launcher.stdout.readline() for _ in range(2)] == ['begun\n'] * 2
        worker = processes_of(launcher)['worker 1']
        os.kill(worker, signal.SIGSTOP)
        select.select([launcher.stderr], [], [], 10)  # says nothing, and does not end
        assert launcher.poll() is None
        os.kill(worker, signal.SIGCONT)
        launcher.send_signal(signal.SIGINT)
        _, errors = launcher.communicate()
    assert launcher.returncode == 130 and errors == ''


def test_the_port_of_the_scheduler_is_given_to_nobody_else():
    with contextlib.closing(_reserved(0)) as held, socket.socket() as other:
        port = held.getsockname()[1]
        with pytest.raises(OSError):
            other.bind(('', port))
        with socket.socket() as scheduler:
            scheduler.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            scheduler.bind(('', port))
            scheduler.listen()
            done = run_job('-n', 1, '--port', port, 'true')
    assert done.returncode == 1 and f'launch: port {port}: Address already in use' in done.stderr


def test_files_of_hosts(tmp_path):
    path = tmp_path / 'hosts'
    path.write_text('one slots=4\nme@two:2222\n')
    assert read_hosts(path) == ['one', 'me@two:2222']
    assert [_address(host) for host in read_hosts(path)] == ['one', 'two']
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
    sizes = [rounded(size) for size in range(1, 5000)]
    assert all(size <= larger <= size * 1.13 + 1 for size, larger in zip(range(1, 5000), sizes))
    assert len(set(sizes)) < 90
