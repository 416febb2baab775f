"""scripts/benchmark.py idioms: a row for each case with and without autograd, and cases do what
their names say."""

import json

import mxnet as mx
import numpy as np
import pytest
from bench.idioms import CASES, Samples
from benchmark import main

import gluon_edbatch as edb

TINY = ['--calls', '3', '--hidden', '4', '--repeat', '1', '--seconds', '0']


@pytest.mark.parametrize('name', CASES)
def test_recorded_and_eager_are_the_same(name):
    samples = Samples(3, 4, mx.cpu(), seed=0)
    case = CASES[name]
    samples.compute()
    expected = numbers((case.eager or case.run)(samples, 2))
    with edb.batching():
        samples.compute()
        found = case.run(samples, 2)
    for one, other in zip(numbers(found), expected):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def numbers(result):
    """Of nested lists and tuples of arrays."""
    if isinstance(result, (list, tuple)):
        return [array for item in result for array in numbers(item)]
    return [result if isinstance(result, np.ndarray) else result.asnumpy()]


def test_rows_and_table(capsys):
    assert main(['idioms', 'y.tanh()', 'nd.zeros(...)', '--json', *TINY]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row['idiom'], row['autograd']) for row in rows] == [
        ('y.tanh()', False),
        ('y.tanh()', True),
        ('nd.zeros(...)', False),
        ('nd.zeros(...)', True),
    ]
    for row in rows:
        assert row['record_us'] > 0 and row['eager_us'] > 0 and row['evaluate_us'] >= 0
        assert (row['calls'], row['hidden'], row['repeat']) == (3, 4, 1)
    assert main(['idioms', *TINY]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in CASES)


def test_unknown_idiom(capsys):
    assert main(['idioms', 'y.nothing()', *TINY]) == 2
    assert 'no idiom y.nothing()' in capsys.readouterr().err
