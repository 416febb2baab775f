"""The shared parts of tests of workloads with rivals that pad."""

from importlib.util import find_spec

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd

from benchmarks.rivals import parameters_of
from benchmarks.settings import PADDED_RIVALS, Settings
from benchmarks.systems import build_system
from benchmarks.workloads import load_workload


def rivals(names):
    """Return parameters of tests, which are skipped where a rival's library is not installed."""
    missing = pytest.mark.skipif(find_spec('torch') is None, reason='PyTorch is not installed')
    return [pytest.param(name, marks=[missing] * ('torch' in name)) for name in names]


RIVALS = rivals(PADDED_RIVALS)


def settings(name, system='fsm', mode='train', **fields):
    """Return settings of a small model."""
    return Settings(name, mode, system, **{**dict(hidden=6, embed=4), **fields})


def assert_rival_equals(name, system, samples, **fields):
    """Assert that predictions, loss and gradients equal those of the model one sample at a time."""
    workload = load_workload(settings(name, system, **fields))
    (net, criterion), rival = workload.build(), workload.rival(system)
    samples = [*samples, *workload.samples[:3]]
    loss, expected = _one_by_one(workload, net, criterion, samples)
    plan = rival.plan(samples)
    outputs = [workload.predict(net, sample).asnumpy() for sample in samples]
    ours = _as_numpy(rival.predict(plan))
    if name == 'pointer':  # an order, padded
        ours = np.concatenate([row[: len(output)] for row, output in zip(ours, outputs)])
    np.testing.assert_allclose(ours, np.concatenate(outputs), rtol=1e-4, atol=1e-5)
    for _ in range(2):  # a second pass must not add to the first
        ours = rival.loss(plan, samples)
        rival.backward(ours)
        np.testing.assert_allclose(float(_as_numpy(ours).reshape(-1)[0]), loss, rtol=1e-5)
        assert rival.gradients().keys() == expected.keys()
        for place, gradient in rival.gradients().items():
            scale = max(1e-3, abs(expected[place]).max())
            assert abs(gradient - expected[place]).max() <= 1e-4 * scale, place


def assert_trains_like_the_model(name, system, **fields):
    """Assert that steps of the optimizer equal those of the batched model."""
    losses = []
    for way in (system, 'fsm'):
        chosen = settings(name, way, learning_rate=0.02, **fields)
        workload = load_workload(chosen)
        built = build_system(workload, chosen)
        samples = workload.samples[:4]
        losses.append([float(_as_numpy(built.train(samples)).reshape(-1)[0]) for _ in range(4)])
        built.wait()
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)
    assert losses[0][3] < losses[0][0]


def _as_numpy(value):
    return value.asnumpy() if hasattr(value, 'asnumpy') else value.detach().numpy()


def _one_by_one(workload, net, criterion, samples):
    """Return loss and gradients of the model."""
    with autograd.record():
        losses = [workload.loss(net, criterion, sample, eager=True) for sample in samples]
        loss = mx.nd.concat(*losses, dim=0).sum() / len(samples)
    loss.backward()
    gradients = {
        name: value.grad().asnumpy()
        for name, value in parameters_of(net).items()
        if value.grad_req != 'null'
    }
    return loss.asscalar(), gradients
