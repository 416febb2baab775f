"""python -m benchmarks idioms: a row for each case with and without autograd, and cases do what
their names say; models are the same in batches, in eager Gluon, and in NumPy mode."""

import json

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd

import gluon_edbatch as edb
from benchmarks.commands import main
from benchmarks.idiom_models import MODELS, Side
from benchmarks.idioms import CASES, Samples
from tests.support.tiers import sampled

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
    """Convert arrays in nested lists and tuples to NumPy."""
    if isinstance(result, (list, tuple)):
        return [array for item in result for array in numbers(item)]
    return [result if isinstance(result, np.ndarray) else result.asnumpy()]


# --- models --------------------------------------------------------------------------------------

IN_BOTH_MODES = ['LSTM with attention', 'SICK Tree-LSTM']


def outcome(model, batched, weights=None):
    """Results and gradients by place, and the number of batches; `weights` are set if given."""

    def run():
        side = Side(model, batched, 4, 6, mx.cpu(), seed=0)
        parameters = side.net._collect_params_with_prefix()
        for place, value in (weights or {}).items():
            parameters[place].set_data(mx.np.array(value) if model.numpy else mx.nd.array(value))
        with autograd.record():
            results = side.results()
            loss = (results * results).sum()
        loss.backward()
        found = {
            place: value.grad().asnumpy()
            for place, value in parameters.items()
            if value.grad_req != 'null'
        }
        return {'results': results.asnumpy(), **found}, side.batches

    return (mx.util.use_np(run) if model.numpy else run)()


def weights_of(model):
    """Return the parameters' values by their places."""
    net = Side(model, False, 4, 6, mx.cpu(), seed=0).net
    places = net._collect_params_with_prefix()
    return {place: value.data().asnumpy() for place, value in places.items()}


def assert_close(found, expected):
    """Compare results and gradients of two runs."""
    assert found.keys() == expected.keys() and len(found) > 1
    for place, value in found.items():
        scale = max(1e-3, abs(expected[place]).max())
        assert abs(value - expected[place]).max() <= 1e-4 * scale, place


@pytest.mark.parametrize(
    'name, native',
    [
        *sampled(2, MODELS, [True]),
        *sampled(2, [name for name in MODELS if MODELS[name].numpy], [False]),
    ],
)
def test_model_in_batches_equals_eager(name, native):
    with edb.compile_options(native=native):
        found, batches = outcome(MODELS[name], True)
    expected, _ = outcome(MODELS[name], False)
    assert_close(found, expected)
    assert batches > 0 and abs(expected['results']).max() > 1e-3


@pytest.mark.parametrize('name', IN_BOTH_MODES)
def test_model_in_numpy_mode_equals_its_other_form(name):
    """NumPy mode has types for each number of arrays that are concatenated: six samples have at
    most six, and there are five operators on the result."""
    weights = weights_of(MODELS[name])
    (one, batches), (other, others) = (
        outcome(MODELS[key], True, weights) for key in (name, f'{name}, NumPy mode')
    )
    assert_close(other, one)
    assert batches <= others <= batches + 6 * 5


def test_rows_of_models(capsys):
    name = 'LSTM with attention'
    assert main(['idioms', name, '--json', *TINY]) == 0
    infer, train = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (infer['mode'], train['mode']) == ('infer', 'train')
    for row in (infer, train):
        assert row['model'] == name and row['batches'] > 1
        ratio = row['eager_us'] / row['batched_us']
        assert row['times_as_fast'] == pytest.approx(ratio, rel=1e-2)


# --- the program ---------------------------------------------------------------------------------


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
        assert row['times_as_fast'] > 0 and row['batches'] == (2 if 'y' in row['idiom'] else 0)
        assert (row['calls'], row['hidden'], row['repeat']) == (3, 4, 1)
    assert main(['idioms', *TINY]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in (*CASES, *MODELS))


def test_unknown_idiom(capsys):
    assert main(['idioms', 'y.nothing()', *TINY]) == 2
    assert 'no idiom y.nothing()' in capsys.readouterr().err
