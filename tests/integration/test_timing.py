"""How long calls take, by line: what is measured, and how it is shared. Nothing depends on how fast
the machine is: where figures matter, the clock is replaced."""

from pathlib import Path

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.execute.clock import Clock
from tests.support.models import ndarrays, started

WIDTH = 3
SOURCE = Path(__file__).read_text(encoding='utf-8').splitlines()


def seconds_of(explanation, marker):
    """Return the seconds of the line that ends with ``# marker``."""
    (line,) = [number for number, text in enumerate(SOURCE, 1) if text.endswith(f'# {marker}')]
    return sum(place.seconds for place in explanation.places if place.site.line == line)


class Headed(gluon.HybridBlock):
    """Makes a gradient of its own, and so runs on the user's tape."""

    def hybrid_forward(self, F, x):
        """x (N, WIDTH)"""
        return F.make_loss(x)


def run(timing, native=True):
    """Batches of all backends: values, gradient, explanation, clocks."""
    mx.random.seed(0)
    net, head = started(nn.Dense(WIDTH, in_units=WIDTH)), Headed()
    options = edb.CompileOptions(native=native)
    with autograd.record():
        with edb.batching(compile_options=options, timing=timing) as scope:
            values = [head(net(net(x)).softmax().sort()) for x in ndarrays(4, (1, WIDTH))]
        total = edb.add_n(values).sum()
    total.backward()
    clocks = [count.clock for count in scope._recording.evaluator.counts]
    return total.asnumpy(), net.weight.grad().asnumpy(), scope.explain(), clocks


@pytest.mark.parametrize('native', [False, True])
def test_each_batch_is_measured_and_nothing_else_changes(native):
    value, gradient, explanation, measured = run(True, native)
    other_value, other_gradient, unmeasured, clocks = run(False, native)
    np.testing.assert_array_equal(value, other_value)
    np.testing.assert_array_equal(gradient, other_gradient)
    seconds = np.concatenate([clock.seconds() for clock in measured])
    assert (seconds > 0).all() and len(seconds) >= explanation.batches
    assert all(place.seconds > 0 for place in explanation.places)
    assert sum(place.seconds for place in explanation.places) < explanation.seconds
    assert set(clocks) == {None} and unmeasured.seconds == 0
    assert not any(place.seconds for place in unmeasured.places)
    assert 'evaluations took' in str(explanation) and 'evaluations took' not in str(unmeasured)


def test_calls_of_several_lines_share_a_batch_by_rows(monkeypatch):
    monkeypatch.setattr(Clock, 'seconds', lambda self: np.arange(1.0, 1 + len(self._seconds)))
    net = started(nn.Dense(WIDTH, in_units=WIDTH))
    with edb.batching('depth', timing=True) as scope:
        first = [net(x) for x in ndarrays(2, (1, WIDTH))]  # few
        first += [net(x) for x in ndarrays(2, (3, WIDTH))]  # many
        second = [net(x) for x in first]  # deeper
    edb.forward(second)
    explanation = scope.explain()
    assert explanation.batches == 2
    assert seconds_of(explanation, 'few') == pytest.approx(1 * 2 / 8)
    assert seconds_of(explanation, 'many') == pytest.approx(1 * 6 / 8)
    assert seconds_of(explanation, 'deeper') == pytest.approx(2)


def test_what_ran_ahead_counts_for_its_calls(monkeypatch):
    """Parts of types that are hoisted are batches of the plan that no schedule has."""
    monkeypatch.setattr(Clock, 'seconds', lambda self: np.ones(len(self._seconds)))
    cell = started(gluon.rnn.LSTMCell(WIDTH, input_size=WIDTH))
    with edb.batching(timing=True) as scope:
        states = cell.begin_state(batch_size=1)
        for x in ndarrays(4, (1, WIDTH)):
            out, states = cell(x, states)
    edb.forward([out])
    hoisted = sum(kind.hoisted for kind in scope.report().types)
    explanation = scope.explain()
    assert hoisted and explanation.places[0].seconds == pytest.approx(explanation.batches + hoisted)


def test_the_longest_come_first_and_the_others_together(monkeypatch):
    monkeypatch.setattr(Clock, 'seconds', lambda self: 1e-9 * np.arange(1, 1 + len(self._seconds)))
    with edb.batching('depth', timing=True) as scope:
        value = started(nn.Dense(WIDTH, in_units=WIDTH))(ndarrays(1, (1, WIDTH))[0])
        for operator in ('tanh', 'exp', 'sin', 'cos', 'abs', 'square', 'sign', 'floor', 'relu'):
            value = getattr(mx.nd, operator)(value)
    edb.forward([value])
    explanation = scope.explain()
    lines = [line for line in str(explanation).splitlines() if ' ms  ' in line]
    assert lines[0].endswith('relu') and lines[1].endswith('floor') and len(lines) == 10
    assert lines[-2].endswith('2 other places') and 'done once' in lines[-1]


def test_what_fails_is_told_with_its_line():
    with edb.batching(timing=True):
        values = [edb.nd.linalg_potrf(mx.nd.full((1, 1, 1), -1.0))]
    with pytest.raises(edb.BatchError, match=r'(?s)potrf failed.*test_timing.py'):
        edb.forward(values)
