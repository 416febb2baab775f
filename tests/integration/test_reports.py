"""What only reports never raises: of random minibatches, whatever has happened to them."""

import json
import random
from contextlib import nullcontext, suppress
from typing import Any

import mxnet as mx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.report import analysed, counters
from gluon_edbatch.report.explain import reasons
from tests.support.minibatches import STEPS, Blocks, sample
from tests.support.models import started
from tests.support.random_blocks import SHAPES, H, blocks
from tests.support.tiers import sampled

SCHEDULERS = ['fsm', 'depth', 'agenda', 'sufficient', 'unbatched']
OPTIONS = ['native', 'buckets', 'whole_values', 'segments']


class Ended(Exception):
    """A model ends midway."""


class Crossed(edb.AutoBatchMixin, gluon.Block):
    """Two layers in the order of a sample's letters."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.layers = {name: nn.Dense(4, in_units=4) for name in 'ab'}
            for layer in self.layers.values():
                self.register_child(layer)

    def forward(self, letters):
        value = mx.nd.ones((1, 4))
        for letter in letters:
            value = self.layers[letter](value)
        return value


def test_a_report_has_both_bounds_and_says_what_chose_the_batches():
    net = started(Crossed())
    for scheduler, samples, bounds, chosen in [
        (edb.FSMScheduler(), ('ab', 'ba'), (3, 2, 3), 'least deep (3 batches; longest way 3, '),
        (edb.FSMScheduler(), ('ab', 'bab'), (3, 3, 3), 'table (3 batches; lo'),
        (edb.FSMScheduler(), ('ab', 'b'), (2, 2, 2), ''),  # nothing is to be chosen
        ('depth', ('ab', 'ba'), (4, 2, 3), ''),
    ]:
        options = edb.CompileOptions(at_once=False)
        with edb.batching(scheduler, compile_options=options) as scope:
            edb.forward([net(letters) for letters in samples])
        report = scope.report()
        assert (report.batches, report.lower_bound, report.tighter_bound) == bounds
        assert report.decided_by.startswith(chosen) and bool(report.decided_by) == bool(chosen)
        assert ('batches chosen by ' + chosen in str(report)) == bool(chosen)
        assert ('lower bound 2, by a search 3)' in str(report)) == (bounds[1:] == (2, 3))
        assert report.as_dict()['tighter_bound'] == bounds[2] and 'above' not in report.as_dict()


def test_overheads_of_batches_depend_on_the_backend_the_weights_and_backward():
    def overhead(units, native=True, train=False):
        net = started(nn.Dense(units, in_units=64))
        options = edb.CompileOptions(native=native, at_once=False)
        recorded = autograd.record() if train else nullcontext()
        with recorded, edb.batching(compile_options=options) as scope:
            values = [net(mx.nd.ones((1, 64))) for _ in range(3)]
        edb.forward(values)
        return max(scope.schedules()[0][0].overheads)

    assert 0 < overhead(8) < overhead(4096) < overhead(4096, native=False)
    assert overhead(8, train=True) == 3 * overhead(8)


def look(scope: edb.batching, results: list[list[Any]], folder: Any) -> None:
    """Ask a scope and its values for all that they tell of themselves."""
    report, explanation = scope.report(), scope.explain()
    for told in (scope, report, explanation, *report.types, *explanation.places):
        assert str(told) and repr(told)
    json.dumps(report.as_dict())
    edb.visualize.explanation(scope, folder / 'explanation.svg')
    for graph, schedule in scope.schedules():
        assert repr(graph) and repr(schedule)
        edb.visualize.schedule((graph, schedule), folder / 'schedule.svg')
    if scope._recording is not None:
        assert repr(scope.graph())
    for values in results:
        for value in values:
            tell(value)


def tell(value: Any) -> None:
    """Show a value, computed or not; as in eager Gluon, one whose operator failed raises."""
    with suppress(mx.MXNetError):
        assert str(value) and repr(value)


def use(seed: int, folder: Any) -> None:
    """Record and evaluate a random minibatch, whose scope is looked at before, meanwhile and
    after."""
    drawn = random.Random(seed)
    net, names = Blocks(), drawn.choices(list(STEPS), k=drawn.randint(1, 7))
    off = [name for name in OPTIONS if drawn.random() < 0.2]
    options = edb.CompileOptions(at_once=False, **dict.fromkeys(off, False))
    scope = edb.batching(drawn.choice(SCHEDULERS), compile_options=options)
    results: list[list[Any]] = []
    look(scope, [], folder)
    try:
        with autograd.record() if drawn.random() < 0.4 else nullcontext(), scope:
            for _ in range(drawn.randint(1, 8)):
                try:
                    results.append(sample(net, names, drawn))
                except edb.RecordError:  # operators that do not take what others gave
                    if drawn.random() < 0.3:
                        raise
                if drawn.random() < 0.2:
                    look(scope, results, folder)
                if drawn.random() < 0.04:
                    raise Ended
    except (Ended, edb.EdbError, mx.MXNetError):
        pass
    look(scope, results, folder)
    for wanted in ([values[-1:] for values in results], results):
        try:
            edb.forward(wanted)
            mx.nd.waitall()
        except (edb.EdbError, mx.MXNetError):
            pass
        look(scope, results, folder)


@pytest.mark.parametrize('part', sampled(4, range(4)))
def test_reports_of_random_minibatches(part, tmp_path):
    for seed in range(10 * part, 10 * part + 10):
        use(seed, tmp_path)


def test_a_ragged_value_of_single_rows_is_divided_where_rows_are_stacked(tmp_path):
    use(1069, tmp_path)  # which failed: no argument had positions


@pytest.mark.slow
def test_reports_of_many_random_minibatches(tmp_path):
    for seed in range(1000, 1150):
        use(seed, tmp_path)


@pytest.mark.filterwarnings('ignore:Cannot decide type')
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(symbol=blocks(8), sizes=st.lists(st.tuples(*[st.integers(1, 3)] * 2), max_size=6))
def test_reports_of_random_blocks(symbol, sizes, tmp_path):
    """Calls differ in rows, and in the length of an argument."""
    names = [name for name in symbol.list_inputs() if name in SHAPES]
    block = started(gluon.SymbolBlock(symbol, [mx.sym.var(name) for name in names]))
    results = []
    with edb.batching() as scope, suppress(edb.EdbError):
        for count, length in sizes:
            shapes = [(count, H) if name != 'edb_input2' else (count, length, H) for name in names]
            found = block(*[mx.nd.ones(shape) for shape in shapes]) if names else []
            results.append(list(found) if isinstance(found, (list, tuple)) else [found])
            look(scope, results, tmp_path)
    edb.forward(results)
    look(scope, results, tmp_path)


WAYS = {
    'division': lambda y, n: y / n,
    'product': lambda y, n: y * n,
    'column': lambda y, n: y[:, n - 1],
    'slice': lambda y, n: y.slice_axis(axis=1, begin=n - 1, end=n),
}


@pytest.mark.parametrize('whole_values', [True, False])
@pytest.mark.parametrize('way', WAYS)
def test_numbers_that_differ_by_sample_and_arrays_of_two_widths(way, whole_values):
    """Numbers become arguments, which the operator's attributes do not show."""
    layers = [started(nn.Dense(units, in_units=2)) for units in (3, 4)]
    with edb.compile_options(whole_values=whole_values, at_once=False), edb.batching() as scope:
        values = [WAYS[way](layer(mx.nd.ones((1, 2))), n) for n in (1, 2, 3) for layer in layers]
    edb.forward(values)
    assert 'padded only with what padded blocks return' in str(scope.report())
    assert str(scope.explain())


def test_reports_after_a_batch_failed(tmp_path):
    with edb.batching() as scope:
        values = [mx.nd.linalg.potrf(mx.nd.full((1, 1, 1), -n)) / n for n in (1.0, 2.0, 3.0)]
    with pytest.raises((edb.BatchError, mx.MXNetError)):
        edb.forward(values)
        mx.nd.waitall()
    look(scope, [values], tmp_path)


def test_an_analysis_that_fails_is_told_and_not_raised(monkeypatch):
    def failing(block, types):
        raise KeyError('out of luck')

    monkeypatch.setattr(counters, 'why_not_padded', failing)
    monkeypatch.setattr(reasons, 'why_not_padded', failing)
    layers = [started(nn.Dense(units, in_units=2)) for units in (3, 4)]
    with edb.batching() as scope:
        values = [mx.nd.relu(layer(mx.nd.ones((1, 2)))) for layer in layers]
    edb.forward(values)
    with pytest.raises(KeyError):
        scope.report()
    monkeypatch.setattr(analysed, 'strict', False)
    for told in (scope.report(), scope.explain()):
        assert analysed.FAILED in str(told) and 'out of luck' in str(told)
