"""Optimisations are switched off by name, and types compiled with others are other types."""

import threading

import mxnet as mx
import numpy as np
import pytest
from mxnet import gluon

import gluon_edbatch as edb
from gluon_edbatch.subgraph.options import current_options
from gluon_edbatch.testing import assert_matches_eager
from tests.support.cases import in_one_test
from tests.support.models import TreeLSTM, random_trees, started

ALL, NONE = edb.CompileOptions(), edb.CompileOptions.none()
TREES = random_trees(5)


def report_of(net, options):
    """Return the report of the second minibatch; the first also runs verifying calls."""
    for _ in range(2):
        with edb.batching('agenda', compile_options=options) as scope:
            values = [net(tree) for tree in TREES]
        edb.forward(values)
    return scope.report()


def passes_of(report, block):
    (kind,) = [kind for kind in report.types if block in kind.name]
    return kind.passes


def test_names():
    assert {'segments', 'hoisting', 'operators'} <= set(edb.CompileOptions.names())
    assert all(value for _, value in ALL.items()) and not any(value for _, value in NONE.items())
    assert hash(ALL) == hash(edb.CompileOptions()) and ALL.but(hoisting=False) != ALL
    assert NONE.but(**dict.fromkeys(ALL.names(), True)) == ALL


@in_one_test('name', ALL.names())
def test_each_alone_leaves_results_as_they_are(name):
    net = started(TreeLSTM())
    for chosen in (ALL.but(**{name: False}), NONE.but(**{name: True})):
        with edb.compile_options(**dict(chosen.items())):
            assert_matches_eager(net, TREES, schedulers=['agenda'], hybridized=[False])


def test_the_report_says_what_changed_a_type():
    net = started(TreeLSTM())
    assert {'segments', 'hoisting'} <= set(passes_of(report_of(net, ALL), 'TreeLSTMCell'))
    assert passes_of(report_of(net, NONE), 'TreeLSTMCell') == ()
    only = report_of(net, NONE.but(hoisting=True))
    assert passes_of(only, 'TreeLSTMCell') == ('hoisting',) and 'hoisting' in str(only)
    assert passes_of(report_of(net, NONE.but(segments=True)), 'TreeLSTMCell') == ('segments',)


@pytest.mark.parametrize('native', [False, True])
def test_a_report_is_about_its_own_scope(native):
    """Minibatches of leaves alone have nothing to hoist, whatever was before."""
    net = started(TreeLSTM())
    reports = []
    for trees in (random_trees(5, largest=1), TREES, random_trees(5, largest=1)):
        with edb.batching('agenda', compile_options=ALL.but(native=native)) as scope:
            values = [net(tree) for tree in trees]
        edb.forward(values)
        reports.append((scope, passes_of(scope.report(), 'TreeLSTMCell')))
    assert 'hoisting' in reports[1][1] or native
    for _, passes in reports[::2]:
        assert 'hoisting' not in passes
    for scope, passes in reports:
        assert passes_of(scope.report(), 'TreeLSTMCell') == passes


def test_types_of_other_options_are_other_types():
    net = started(TreeLSTM())
    kinds = []
    for options in (ALL, NONE, ALL, ALL.but(hoisting=False)):
        with edb.batching('agenda', compile_options=options) as scope:
            values = [net(tree) for tree in TREES]
        kinds.append({id(form.node_type) for form in scope._recording.forms})
        del values
    assert kinds[0] == kinds[2]
    assert not kinds[0] & kinds[1] and not kinds[0] & kinds[3] and not kinds[1] & kinds[3]


def test_values_of_scopes_with_different_options_meet():
    cell = started(gluon.rnn.LSTMCell(4, input_size=4))
    x, states = mx.nd.ones((1, 4)), [mx.nd.ones((1, 4))] * 2
    with edb.batching('agenda', compile_options=NONE):
        _, inner = cell(x, states)
    with edb.batching('agenda'):
        found, _ = cell(x, inner)
    expected, _ = cell(x, cell(x, states)[1])
    np.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-5)


def test_a_block_of_scopes():
    with edb.compile_options(hoisting=False) as outer:
        assert outer == current_options() == ALL.but(hoisting=False)
        with edb.compile_options(hoisting=True, segments=False):
            assert current_options() == ALL.but(segments=False)
            assert edb.batching(compile_options=NONE)._options == NONE
        assert edb.batching()._options == outer
        scope = edb.batching()
    assert current_options() == ALL
    assert scope._options == outer  # a scope has those of where it was made


def test_options_are_restored_after_an_exception_and_can_be_used_twice():
    options = edb.compile_options(hoisting=False)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            with options:
                raise ZeroDivisionError
        assert current_options() == ALL


def test_other_threads_have_their_own():
    found = []
    with edb.compile_options(hoisting=False):
        thread = threading.Thread(target=lambda: found.append(current_options()))
        thread.start()
        thread.join()
    assert found == [ALL]


def test_wrong_options():
    with pytest.raises(TypeError, match='no compile option is called speed; there are '):
        edb.compile_options(speed=True)
    with pytest.raises(ValueError, match='hoisting is True or False, not 0'):
        edb.compile_options(hoisting=0)
    with pytest.raises(ValueError, match='segments is True or False, not None'):
        edb.CompileOptions(segments=None)
    with pytest.raises(TypeError, match="CompileOptions.* or None, not {'hoisting': False}"):
        edb.batching(compile_options={'hoisting': False})


def test_what_was_recorded_with_other_options_is_not_used_again():
    net, reuse = started(TreeLSTM()), edb.Reuse(check_every=2)
    kinds = []
    for options in (ALL, NONE, ALL, NONE):
        with edb.batching('agenda', compile_options=options) as scope:
            values = [reuse(key, net, tree) for key, tree in enumerate(TREES)]
        kinds.append({form.node_type.options for form in scope._recording.forms})
        for value, expected in zip(edb.forward(values), map(net, TREES)):
            np.testing.assert_allclose(value.asnumpy(), expected.asnumpy(), rtol=1e-4, atol=1e-6)
    assert kinds == [{ALL}, {NONE}, {ALL}, {NONE}] and reuse.reused > 0
