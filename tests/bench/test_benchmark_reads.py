"""python -m benchmarks reads: plain code decides as its form with ``yield``, and as eager Gluon."""

import json

import numpy as np
import pytest
from mxnet import autograd

import gluon_edbatch as edb
from benchmarks.commands import main
from benchmarks.reading_models import MODELS
from benchmarks.reads import WAYS

TINY = ['--repeat', '1', '--seconds', '0.001', '--samples', '4']


def plain(results):
    """Return nested results with NumPy arrays."""
    if isinstance(results, (list, tuple)):
        return [plain(each) for each in results]
    return results.asnumpy() if hasattr(results, 'asnumpy') else results


def assert_alike(found, expected):
    """Compare nested results."""
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected):
            assert_alike(one, other)
    elif isinstance(expected, (np.ndarray, float)):
        atol = 2e-4 * max(1, np.abs(expected).max())
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=atol)
    else:
        assert found == expected


@pytest.mark.parametrize('name', MODELS)
def test_plain_code_is_the_other_forms(name):
    model = MODELS[name]()
    samples, gradients, results = model.samples[:6], [], []
    parameters = [each for each in model.net.collect_params().values() if each.grad_req != 'null']
    for way in WAYS.values():
        with autograd.record(model.trains):
            found = way(model, samples)
        if model.trains:
            autograd.backward([loss for loss, _ in found])
            gradients.append([each.grad().asnumpy() for each in parameters])
        results.append(plain(found))
    assert_alike(results[0], results[2])
    assert_alike(results[1], results[2])
    for each in gradients[:-1]:
        assert_alike(each, gradients[-1])
    counts = []
    for fn in (model.net, model.steps):
        with edb.batching() as scope:
            edb.run_concurrently(samples, fn)
        assert not scope._recording.evaluator.reasons
        counts.append(scope.report().evaluations)
    assert counts[0] <= counts[1]


def test_rows_and_table(capsys):
    assert main(['reads', 'experts', '--json', *TINY]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row['model'], row['samples']) == ('experts', 4) and min(row[way] for way in WAYS) > 0
    assert main(['reads', 'experts', *TINY]) == 0
    assert 'yield / plain' in capsys.readouterr().out
    assert main(['reads', 'nothing', *TINY]) == 2
