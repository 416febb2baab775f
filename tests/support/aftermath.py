"""Check after every test that hooks are gone, nothing is watched, and the next minibatch is
right."""

import gc
from types import CodeType

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.ndarray import NDArray

import gluon_edbatch as edb
from gluon_edbatch.mx import mutation_guard as guard
from gluon_edbatch.record import hooks
from tests.support.models import dense, rows

ORIGINALS = [(owner, name, original) for owner, name, _, original in hooks._HOOKS]


def is_mxnets(item):
    """Return whether a function, or the code of one, is MXNet's own."""
    if isinstance(item, CodeType):
        return item.co_filename.startswith(mx.__path__[0])
    return item.__module__.startswith('mxnet.')


def assert_hooks_gone():
    """Assert that MXNet is as it was imported, in this thread and in all others."""
    for owner, name, original in ORIGINALS:
        assert is_mxnets(original), f'{owner.__name__}.{name} was a hook to begin with'
        assert getattr(owner, name) is original, f'{owner.__name__}.{name} is still hooked'
    assert gc.isenabled()
    assert hooks.current_recording() is None
    assert hooks.local.eager is None
    assert not autograd.is_recording() and not autograd.is_training()


def assert_unguarded(*blocks):
    """Assert that no recording guards a parameter of these blocks."""
    for block in blocks:
        for parameter in block.collect_params().values():
            for array in parameter._data or ():
                assert array.__class__ is NDArray, f'{parameter.name} is still guarded'


def assert_minibatch_right(net=None, samples=None, scheduler='agenda'):
    """Train one step's worth of gradients batched and eagerly, and compare."""
    net = dense() if net is None else net
    samples = rows(5) if samples is None else samples
    parameters = [
        parameter for parameter in net.collect_params().values() if parameter.grad_req != 'null'
    ]

    def gradients(run):
        for parameter in parameters:
            parameter.zero_grad()
        with autograd.record():
            loss = run()
        loss.backward()
        return loss.asnumpy(), [parameter.grad().asnumpy().copy() for parameter in parameters]

    def batched():
        with edb.batching(scheduler):
            values = [(net(sample) ** 2).sum(axis=1) for sample in samples]
        return edb.stack(values).sum()

    def eager():
        return sum(
            [(net(sample) ** 2).sum() for sample in samples[1:]], (net(samples[0]) ** 2).sum()
        )

    found, expected = gradients(batched), gradients(eager)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    for one, other in zip(found[1], expected[1]):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def watching():
    """Return the recordings that watch arrays, after garbage collection."""
    mx.nd.waitall()
    gc.collect()
    found = {}
    for owners in guard._guards.values():
        for owner in owners:
            found[id(owner)] = owner
    return found


def check():
    """Check what must hold before a test and after it: the body of the fixture `aftermath`."""
    assert_hooks_gone()
    before = watching()
    gc.freeze()  # the next collection is to look at what the test made, and at nothing before
    yield
    assert_hooks_gone()
    assert_minibatch_right()
    assert_hooks_gone()
    leaked = len(set(watching()) - set(before))
    assert not leaked, f'{leaked} recordings that nobody holds still guard arrays'
