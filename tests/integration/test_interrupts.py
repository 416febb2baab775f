"""An interrupt may come at any moment: nothing is left behind, and the next scope is right."""

import gc
import itertools
import sys

import pytest

import gluon_edbatch as edb
from tests.support.aftermath import assert_hooks_gone, assert_minibatch_right, assert_unguarded
from tests.support.models import dense, rows
from tests.support.processes import ROOT, run_python

PROGRAM = '''
import collections, ctypes, gc, random, signal, sys, threading, time, traceback
sys.path.insert(0, sys.argv[1])
import gluon_edbatch as edb
import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.gluon import nn
from tests.support.aftermath import assert_hooks_gone, assert_unguarded, watching
from tests.support.models import TreeLSTM, random_trees, started

way, count = sys.argv[2], int(sys.argv[3])
for number in (signal.SIGINT, signal.SIGALRM):
    signal.signal(number, signal.default_int_handler)
net, trees, generator = started(TreeLSTM()), random_trees(12), random.Random(sys.argv[4])
parameters = [parameter for parameter in net.collect_params().values()]


def found(loss):
    return [loss.asnumpy()] + [parameter.grad().asnumpy() for parameter in parameters]


def eager():
    with autograd.record():
        loss = sum([(net(tree) ** 2).sum() for tree in trees])
    loss.backward()
    return found(loss)


def step(native):
    with edb.compile_options(native=native), autograd.record():
        with edb.batching() as scope:
            values = [net(tree) for tree in trees[:6]]
            values[0].asnumpy()
            values += [net(tree) for tree in trees[6:]]
        loss = (edb.concat(values) ** 2).sum()
    loss.backward()
    return found(loss)


class Alarm:
    """A signal after some seconds."""

    def __init__(self, seconds):
        signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-6))

    def off(self):
        signal.setitimer(signal.ITIMER_REAL, 0)


class FromOutside:
    """An exception that another thread sends after some seconds."""

    def __init__(self, seconds):
        self.may_send, self.thread = True, threading.get_ident()
        self.lock = threading.Lock()
        self.timer = threading.Timer(seconds, self.send)
        self.timer.start()

    def send(self):
        with self.lock:
            if self.may_send:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self.thread), ctypes.py_object(KeyboardInterrupt))

    def off(self):
        with self.lock:
            self.may_send = False
        self.timer.join()


def interrupted(seconds, native):
    """Where in the package it was, or None."""
    try:
        interrupter = {'signal': Alarm, 'exception': FromOutside}[way](seconds)
        try:
            step(native)
        finally:
            interrupter.off()
    except (KeyboardInterrupt, mx.base.MXNetError) as error:
        return next((frame.name for frame in reversed(traceback.extract_tb(error.__traceback__))
                     if 'gluon_edbatch' in frame.filename), 'elsewhere')


expected = eager()
for native in (True, False):
    for _ in range(3):
        begun = time.perf_counter()
        step(native)
    length = time.perf_counter() - begun
places, tries = collections.Counter(), 0
while sum(places.values()) < count:
    tries += 1
    assert tries < 50 * count, 'nothing comes through'
    place = interrupted(generator.uniform(0, length), tries % 2 == 0)
    if place is None:
        continue
    places[place] += 1
    autograd.set_recording(False), autograd.set_training(False)  # MXNet's own, who may not have
    gc.collect()
    assert_hooks_gone()
    assert not watching(), place
    assert_unguarded(net)
    for one, other in zip(step(tries % 2 == 0), expected):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5, err_msg=place)
print(len(places), 'places', places)
'''


def check_interrupts(way, count, seed):
    done = run_python('-X', 'faulthandler', '-c', PROGRAM, ROOT, way, count, seed)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert int(done.stdout.split()[0]) > 3, done.stdout
    return done.stdout


@pytest.mark.parametrize('way', ['signal', 'exception'])
def test_interrupts_at_random_moments(way):
    check_interrupts(way, 20, seed=0)


@pytest.mark.filterwarnings('ignore::pytest.PytestUnraisableExceptionWarning')  # from `__del__`
@pytest.mark.parametrize('file', ['record/hooks.py', 'api/scope.py', 'mx/mutation_guard.py'])
def test_interrupts_after_each_call(file):
    """Interrupt the hooks, the scope and the guard of arrays after their first call, the second, …

    Python looks for signals there.
    """
    net, samples = dense(), rows(2)

    def interrupted(last):
        calls = 0

        def profile(frame, event, _):
            nonlocal calls
            code = frame.f_code
            inside = code.co_filename.endswith(file) and code.co_name != '__del__'  # never raises
            calls += inside and event in ('call', 'c_return')
            if calls == last:
                raise KeyboardInterrupt  # which ends the profiling

        before = sys.getprofile()
        sys.setprofile(profile)
        try:
            with edb.compile_options(at_once=False), edb.batching():
                values = [net(sample) for sample in samples]
            edb.forward(values)
        except KeyboardInterrupt:
            return True
        finally:
            sys.setprofile(before)
        return False

    for last in itertools.count(1):
        came = interrupted(last)
        gc.collect()
        assert_hooks_gone()
        assert_unguarded(net)
        if not came:
            break
    assert last > 7
    assert_minibatch_right()


@pytest.mark.slow
@pytest.mark.parametrize('seed', [1, 2])
@pytest.mark.parametrize('way', ['signal', 'exception'])
def test_many_interrupts_at_random_moments(way, seed):
    check_interrupts(way, 250, seed)
