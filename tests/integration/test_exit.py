"""Finished programs exit with status 0, at once and every time: nothing is pending at exit."""

import signal
import sys

import pytest

from tests.support.processes import interrupt, run_python, start

TIMES = 15
SET_UP = """
import sys
import gluon_edbatch as edb
import mxnet as mx
import numpy as np
from mxnet import autograd, gluon

net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(64, in_units=32, activation='tanh'), gluon.nn.Dense(32, in_units=64))
net.initialize()
trainer = gluon.Trainer(net.collect_params(), 'adam')
data = np.random.RandomState(0).randn(40, 1, 32).astype(np.float32)


def record(times=3):
    with edb.batching():
        losses = []
        for sample in data:
            value = sample
            for _ in range(times):
                value = net(value)
            losses.append((value ** 2).sum(axis=1))
    return losses


def train():
    with autograd.record():
        loss = edb.stack(record()).mean()
    loss.backward()
    return loss
"""
PROGRAMS = {
    'after backward': 'train()',
    'after backward with the loss alive': 'loss = train()',
    'after trainer.step': 'train(); trainer.step(1)',
    'after many steps': 'for _ in range(8):\n    train()\n    trainer.step(1)',
    'after a gradient was read': 'train(); print(net[0].weight.grad().asnumpy().sum())',
    'evaluated, not differentiated': """
with autograd.record():
    loss = edb.stack(record()).mean()
""",
    'evaluated without autograd': 'values = edb.forward(record())',
    'recorded only': 'values = record()',
    'recorded only, dropped': 'record()',
    'recorded only under autograd': 'with autograd.record():\n    values = record()',
    'one value of many evaluated': 'values = record(); values[0].asnumpy()',
    'lazy values alive in globals': 'values = record(); edb.forward(values)',
    'scope alive in globals': """
with edb.batching() as scope:
    value = net(data[0])
value.asnumpy()
""",
    'in a function': """
def main():
    with autograd.record():
        with edb.batching() as scope:
            values = [net(sample) for sample in data]
        edb.stack(values).sum().backward()
    trainer.step(1)
    return scope.report()
print(main())
""",
    'exception caught': """
try:
    with autograd.record(), edb.batching():
        values = [net(sample) for sample in data]
        values[0].asnumpy()
        raise ValueError
except ValueError:
    pass
""",
    'exception caught, then training': """
try:
    with edb.batching():
        values = [net(sample) for sample in data]
        raise ValueError
except ValueError as error:
    kept = error
train()
""",
    'sys.exit after backward': 'train(); sys.exit(0)',
    'sys.exit in a scope': """
with autograd.record(), edb.batching():
    values = [net(sample) for sample in data]
    values[0].asnumpy()
    sys.exit(0)
""",
    'sys.exit in a function with pending work': """
def main():
    for _ in range(3):
        loss = train()
        trainer.step(1)
    sys.exit(0)
main()
""",
    'in a thread': """
import threading
thread = threading.Thread(target=train)
thread.start()
thread.join()
""",
    'in a thread that is not joined': """
import threading
threading.Thread(target=train).start()
""",
    'in a daemon thread that is done': """
import threading
done = threading.Event()
def work():
    train()
    done.set()
threading.Thread(target=work, daemon=True).start()
done.wait()
""",
    'two threads': """
import threading
def work():
    record_net = gluon.nn.Dense(3, in_units=32)
    record_net.initialize()
    with autograd.record():
        with edb.batching():
            values = [record_net(sample) for sample in data]
        loss = edb.stack(values).sum()
    loss.backward()
threads = [threading.Thread(target=work) for _ in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
""",
    'forked child': """
import os
expected = train().asnumpy()
train()  # its gradients are still to be computed
child = os.fork()
if not child:
    np.testing.assert_allclose(train().asnumpy(), expected, rtol=1e-5)
    mx.nd.waitall()
    os._exit(7)
assert os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 7
np.testing.assert_allclose(train().asnumpy(), expected, rtol=1e-5)
""",
    'forked by subprocess': """
import subprocess
subprocess._USE_VFORK = False  # as Python 3.9
for _ in range(3):
    train()
    subprocess.run(['true'], check=True)
""",
    'workers of a DataLoader': """
train()
loader = gluon.data.DataLoader(gluon.data.SimpleDataset(list(data)), batch_size=8, num_workers=2)
weight = net[0].weight

def gradients(losses):
    with autograd.record():
        loss = losses()
    loss.backward()
    return loss.asnumpy(), weight.grad().asnumpy(), batch.grad.asnumpy()

def batched():
    with edb.batching():
        losses = [(net(sample) ** 2).sum(axis=1) for sample in batch]
    return edb.stack(losses).sum()

count = 0
for _ in range(2):
    for batch in loader:
        assert batch.ctx.device_type == 'cpu_shared'
        batch.attach_grad()
        eager = gradients(lambda: (net(batch.reshape((-1, 32))) ** 2).sum())
        for found, expected in zip(gradients(batched), eager):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
        trainer.step(8)
        count += len(batch)
assert count == 2 * len(data)
""",
    'scopes in the workers of a DataLoader': """
def encoded(sample):
    with edb.batching():
        values = [net(row.reshape((1, -1))) for row in sample]
    return edb.stack(values)
expected = encoded(data[0]).asnumpy()
train()  # its gradients are still to be computed
loader = gluon.data.DataLoader(gluon.data.SimpleDataset(list(data)).transform(encoded),
                               batch_size=4, num_workers=2)
found = list(loader)
assert len(found) == 10
np.testing.assert_allclose(found[0][0].asnumpy(), expected, rtol=1e-5)
""",
    'a reference cycle with values': """
class Holder: pass
holder = Holder()
holder.self, holder.loss, holder.values = holder, train(), record()
""",
    'atexit handler that trains': """
import atexit
atexit.register(lambda: (train(), trainer.step(1)))
""",
    'atexit handler before the import': """
import atexit
atexit.register(train)
train()
""",
    'lazy values in a module attribute': """
sys.kept = record()
sys.kept[0].asnumpy()
sys.loss = train()
""",
    'generator left open': """
def samples():
    with edb.batching():
        for sample in data:
            yield net(sample)
values = samples()
next(values)
""",
    'several backward passes': """
with autograd.record():
    loss = edb.stack(record()).mean()
loss.backward(retain_graph=True)
loss.backward()
""",
    'hybridized': 'net.hybridize(); train(); trainer.step(1)',
    'static_alloc': """
net.hybridize(static_alloc=True, static_shape=True)
net(mx.nd.array(data[0]))
train()
""",
    'deleted at the end': 'loss = train(); del net, trainer, loss',
    'gradient pending on a large product': """
big = gluon.nn.Dense(1500, in_units=1500)
big.initialize()
with autograd.record():
    with edb.batching():
        value = np.ones((1, 1500), np.float32)
        for _ in range(40):
            value = big(value) * 0.01
        loss = value.sum(axis=1)
loss.backward()
""",
}


def run(program, **environment):
    """Run a Python program in a process of its own."""
    return run_python('-X', 'faulthandler', '-c', program, **environment)


# These end as others do, by other ways of writing it: `test_exit_status_many_times` has them, too.
VARIANTS = {
    'after backward with the loss alive',
    'after a gradient was read',
    'after many steps',
    'after backward',
    'atexit handler before the import',
    'lazy values in a module attribute',
    'static_alloc',
    'evaluated, not differentiated',
    'recorded only',
    'recorded only, dropped',
    'recorded only under autograd',
    'one value of many evaluated',
    'lazy values alive in globals',
    'exception caught',
    'sys.exit after backward',
    'sys.exit in a scope',
    'in a function',
    'in a thread',
    'in a daemon thread that is done',
    'two threads',
    'atexit handler that trains',
    'generator left open',
    'several backward passes',
    'hybridized',
    'deleted at the end',
}


@pytest.mark.parametrize('name', [name for name in PROGRAMS if name not in VARIANTS])
def test_exit_status(name):
    done = run(SET_UP + PROGRAMS[name])
    assert done.returncode == 0, f'{done.returncode}\n{done.stderr}'
    assert 'Traceback' not in done.stderr and 'Exception ignored' not in done.stderr, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize('name', list(PROGRAMS))
def test_exit_status_many_times(name):
    for attempt in range(TIMES):
        done = run(SET_UP + PROGRAMS[name])
        assert done.returncode == 0, f'attempt {attempt}: {done.returncode}\n{done.stderr}'
        assert not done.stderr, done.stderr


@pytest.mark.parametrize(
    'name', ['after trainer.step', 'in a thread', 'lazy values alive in globals']
)
@pytest.mark.parametrize('engine', ['NaiveEngine', 'ThreadedEngine'])  # the third is MXNet's own
def test_exit_status_of_every_engine(name, engine):
    done = run(SET_UP + PROGRAMS[name], MXNET_ENGINE_TYPE=engine)
    assert done.returncode == 0, f'{done.returncode}\n{done.stderr}'


def test_uncaught_exception_has_status_1():
    """The user's error is what is seen, not a crash at shutdown."""
    done = run(
        SET_UP
        + """
with autograd.record(), edb.batching():
    values = [net(sample) for sample in data]
    values[0].asnumpy()
    raise ValueError('mine')
"""
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.strip().endswith('ValueError: mine')


def test_an_error_that_waits_at_a_fork_ends_the_program():
    """Without the error, the program would go on with an array that was not computed."""
    done = run(
        SET_UP
        + """
import os
train()
broken = mx.nd.random.normal(0, -1, (2, 2))
os.fork()
print('went on')
"""
    )
    assert done.returncode == -signal.SIGABRT, done.stderr
    assert 'before a fork' in done.stderr and 'has to be positive' in done.stderr
    assert not done.stdout


def test_status_of_sys_exit_is_kept():
    assert run(SET_UP + 'train(); sys.exit(7)').returncode == 7


def test_import_alone():
    done = run('import gluon_edbatch')
    assert done.returncode == 0 and not done.stderr


@pytest.mark.parametrize('steps', [1, 20, 60])
def test_keyboard_interrupt_from_outside(steps):
    """SIGINT in the middle of training ends the program with KeyboardInterrupt, not a hang."""
    program = (
        SET_UP
        + """
while True:
    train()
    trainer.step(1)
    print('a step', flush=True)
"""
    )
    with start([sys.executable, '-c', program]) as process:
        for _ in range(steps):
            assert process.stdout.readline() == 'a step\n'
        errors = interrupt(process)
        assert process.returncode in (1, 130, -signal.SIGINT), errors
        assert 'KeyboardInterrupt' in errors, errors


def test_training_goes_on_after_keyboard_interrupt():
    """Interrupts at many places; each time the next minibatch is right and hooks are gone.

    Places are counted in calls and returns of Python functions: those of a step, and which of
    them is interrupted, do not depend on how fast the machine is.
    """
    done = run_python(
        '-c',
        SET_UP
        + '''
import signal
code = gluon.Block.__call__.__code__
signal.signal(signal.SIGINT, signal.default_int_handler)


class Events:
    """Counts calls and returns while a step runs, and interrupts it at one of them."""

    def __init__(self, until=None):
        self.count, self.until = 0, until

    def __call__(self, frame, event, argument):
        self.count += 1
        if self.count == self.until:
            signal.raise_signal(signal.SIGINT)

    def run(self):
        sys.setprofile(self)
        try:
            train()
            mx.nd.waitall()
        finally:
            sys.setprofile(None)


expected = train().asscalar()
whole = Events()
whole.run()
interrupted, places = 0, 60
for place in range(places):
    try:
        Events(1 + whole.count * place // places).run()
    except (KeyboardInterrupt, mx.base.MXNetError):
        interrupted += 1
    autograd.set_recording(False), autograd.set_training(False)
    assert gluon.Block.__call__.__code__ is code, place
    loss = train().asscalar()
    assert abs(loss - expected) < 1e-5 * abs(expected), (place, loss, expected)
print('interrupted', interrupted, 'of', places, 'in', whole.count)
assert interrupted > places // 2
''',
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
