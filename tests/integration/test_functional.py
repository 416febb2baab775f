"""forward, stack, concat, add_n, ragged: in the scope, after it, and without any."""

from itertools import product

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd
from mxnet.gluon import nn

import gluon_edbatch as edb
from tests.support.cases import in_one_test
from tests.support.models import TreeLSTM, ndarrays, random_trees, started
from tests.support.tiers import in_turn, turns

JOINS = {
    'stack': (edb.stack, lambda xs: mx.nd.stack(*xs)),
    'stack 1': (lambda xs: edb.stack(xs, axis=1), lambda xs: mx.nd.stack(*xs, axis=1)),
    'concat': (edb.concat, lambda xs: mx.nd.concat(*xs, dim=0)),
    'concat 1': (lambda xs: edb.concat(xs, dim=1), lambda xs: mx.nd.concat(*xs, dim=1)),
    'add_n': (edb.add_n, lambda xs: mx.nd.add_n(*xs)),
}


@pytest.mark.parametrize('turn', turns([1, 2, 7], [1, 3]))
@in_one_test('number, case', enumerate(product(JOINS, ['inside', 'after', 'outside', 'without'])))
def test_join(number, case, turn):
    (name, where), (count, rows) = case, in_turn(number, turn, [1, 2, 7], [1, 3])
    join, eager = JOINS[name]
    net, xs = started(nn.Dense(3, in_units=4)), ndarrays(count, (rows, 4), gradient=True)

    def finish(joined):
        (joined * mx.nd.arange(joined.size).reshape(joined.shape)).sum().backward()
        return [joined.asnumpy(), net.weight.grad().asnumpy().copy(), xs[0].grad.asnumpy().copy()]

    with autograd.record():
        right = eager([net(x) for x in xs])
        expected = (right * mx.nd.arange(right.size).reshape(right.shape)).sum()
    expected.backward()
    expected = [right.asnumpy(), net.weight.grad().asnumpy().copy(), xs[0].grad.asnumpy().copy()]
    with autograd.record():
        if where == 'without':
            joined = join([net(x) for x in xs])
        else:
            with edb.batching():
                values = [net(x) for x in xs]
                if where == 'inside':
                    joined = join(values)
                    assert isinstance(joined, edb.LazyArray)
            joined = join(values) if where != 'inside' else edb.forward(joined)
        total = (joined * mx.nd.arange(joined.size).reshape(joined.shape)).sum()
    total.backward()
    assert type(joined) is mx.nd.NDArray
    for one, other in zip(
        [joined.asnumpy(), net.weight.grad().asnumpy(), xs[0].grad.asnumpy()], expected
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('inside', [True, False])
def test_concat_of_values_with_different_rows(inside):
    net = started(nn.Dense(3, in_units=4))
    xs = [mx.nd.array(np.random.RandomState(i).randn(rows, 4)) for i, rows in enumerate((2, 1, 4))]
    with edb.batching():
        values = [net(x) for x in xs]
        joined = edb.concat(values) if inside else None
    joined = joined if inside else edb.concat(values)
    assert joined.shape == (7, 3)
    np.testing.assert_allclose(
        joined.asnumpy(), mx.nd.concat(*[net(x) for x in xs], dim=0).asnumpy(), rtol=1e-5
    )


def test_mixture_of_lazy_and_ordinary_arrays():
    net, xs = started(nn.Dense(4, in_units=4)), ndarrays(3, (1, 4))
    with edb.batching():
        lazy = [net(xs[0]), xs[1], net(xs[2])]
        inside = [edb.stack(lazy), edb.concat(lazy), edb.add_n(lazy)]
    outside = [edb.stack(lazy), edb.concat(lazy), edb.add_n(lazy)]
    eager = [net(xs[0]), xs[1], net(xs[2])]
    for found in (inside, outside):
        for value, join in zip(
            found,
            (
                lambda xs: mx.nd.stack(*xs),
                lambda xs: mx.nd.concat(*xs, dim=0),
                lambda xs: mx.nd.add_n(*xs),
            ),
        ):
            np.testing.assert_allclose(value.asnumpy(), join(eager).asnumpy(), rtol=1e-5)


def test_many_values():
    """More than MXNet takes as arguments of one operator."""
    with edb.batching():
        values = [edb.nd.identity(mx.nd.full((1, 2), i)) for i in range(2000)]
        inside = edb.add_n(values)
    expected = 1999 * 1000
    assert inside.asnumpy()[0, 0] == pytest.approx(expected)
    assert edb.add_n(values).asnumpy()[0, 0] == pytest.approx(expected)
    assert edb.stack(values).shape == (2000, 1, 2)


@pytest.mark.parametrize('join', [edb.stack, edb.concat, edb.add_n])
def test_wrong_arguments(join):
    with pytest.raises(edb.RecordError, match='no values'):
        join([])
    with pytest.raises(TypeError, match='takes NDArrays, not int'):
        join([1, 2])
    for scope in (False, True):

        def call():
            if join is edb.concat:
                return join([mx.nd.ones((1, 2)), mx.nd.ones((1, 3))])
            return join([edb.nd.identity(mx.nd.ones((1, 2))), mx.nd.ones((1, 3))])

        with pytest.raises((edb.RecordError, mx.base.MXNetError)):
            if scope:
                with edb.batching():
                    edb.forward(
                        call()
                        if join is not edb.concat
                        else join([edb.nd.identity(mx.nd.ones((1, 2))), mx.nd.ones((1, 3))])
                    )
            else:
                call().asnumpy()


def test_forward_keeps_structure_and_other_things():
    with edb.batching():
        x = edb.nd.identity(mx.nd.ones((1, 2)))
    plain = mx.nd.zeros((1,))
    result = edb.forward({'a': [x, (x, plain)], 'b': 3, 'c': None, 'd': x})
    assert type(result['a'][0]) is mx.nd.NDArray and type(result['a'][1]) is tuple
    assert result['a'][1][1] is plain and result['b'] == 3 and result['c'] is None
    assert edb.forward(x).asnumpy().sum() == 2
    assert edb.forward([]) == [] and edb.forward(5) == 5


def test_forward_hands_on_what_cannot_be_hashed():
    net, x = started(nn.Dense(3, in_units=4)), ndarrays(1, (1, 4))[0]
    numbers, names = np.arange(3), {'a', 'b'}
    with edb.batching():
        given = net(x), 7, True, numbers, {'names': [names]}
    value, *plain = edb.forward(given)
    np.testing.assert_allclose(value.asnumpy(), net(x).asnumpy(), rtol=1e-5)
    assert plain[:2] == [7, True] and plain[2] is numbers and plain[3]['names'][0] is names


def test_what_forward_gives_in_the_scope_is_written_to_apart():
    """Values of several heights have one copy of their rows, and none of them is another's."""
    net, xs = started(nn.Dense(3, in_units=4)), ndarrays(6, (1, 4))
    right = [net(x).asnumpy() for x in xs]
    with edb.batching():
        ys = [net(x) for x in xs]
        joined = [edb.concat(ys[:2]), edb.concat(ys[2:])]
        later = [y * 2 for y in ys]
        found = edb.forward([*ys, *joined, ys[0]])
        assert found[8] is found[0] is not found[1]
        for k, array in enumerate(found[:8]):
            array[:] = k
        again = [y + 1 for y in ys]  # read what was written
    expected = [*map(float, range(6)), 6.0, 7.0]
    for array, number in zip(found, expected):
        assert (array.asnumpy() == number).all()
    for k in range(6):
        np.testing.assert_allclose(later[k].asnumpy(), 2 * right[k], rtol=1e-5)
        assert (again[k].asnumpy() == k + 1).all()


def test_forward_of_values_of_two_scopes():
    net = started(nn.Dense(4, in_units=4))
    xs = ndarrays(2, (1, 4))
    with edb.batching() as first:
        one = net(xs[0])
    with edb.batching() as second:
        two = net(xs[1])
    found = edb.forward([one, two])
    for value, x in zip(found, xs):
        np.testing.assert_allclose(value.asnumpy(), net(x).asnumpy(), rtol=1e-6)
    assert first.report().nodes == second.report().nodes == 1


def test_forward_inside_the_scope_goes_on():
    net = started(nn.Dense(4, in_units=4))
    x = ndarrays(1, (1, 4))[0]
    with edb.batching() as scope:
        first = net(x)
        edb.forward([first])
        second = net(first)
    np.testing.assert_allclose(second.asnumpy(), net(net(x)).asnumpy(), rtol=1e-5, atol=1e-7)
    assert scope.report().nodes == 2 and len(scope.report().forced) == 1


def test_ragged_without_a_scope():
    values = [mx.nd.array([[i, i]]) for i in range(3)]
    result = edb.ragged(values)
    assert result.shape == (1, 3, 2) and result.lengths.asnumpy().tolist() == [3]
    none = edb.ragged([], shape=(1, 2))
    assert none.shape == (1, 0, 2) and none.lengths.asnumpy().tolist() == [0]
    assert none.asnumpy().shape == (1, 0, 2)
    for shape in (None, ()):
        with pytest.raises(edb.RecordError, match='needs their shape'):
            edb.ragged([], shape)
    with pytest.raises(edb.RecordError, match='one shape'):
        edb.ragged([mx.nd.ones((1, 2)), mx.nd.ones((1, 3))])


def test_ragged_in_the_scope():
    with edb.batching():
        values = [edb.nd.identity(mx.nd.array([[i, i]])) for i in range(3)]
        result = edb.ragged(values)
        assert result.shape == (1, 3, 2) and result.lengths.asnumpy().tolist() == [3]
        assert result.asnumpy()[0, :, 0].tolist() == [0, 1, 2]
        for shape in (None, ()):
            with pytest.raises(edb.RecordError, match='needs their shape'):
                edb.ragged([], shape)
        none = edb.ragged([], shape=(1, 2))
        assert none.shape == (1, 0, 2) and none.asnumpy().shape == (1, 0, 2)


def test_ragged_gradient_without_a_scope():
    values = ndarrays(3, (1, 2), gradient=True)
    with autograd.record():
        edb.ragged(values).sum(axis=1).sum().backward()
    assert all((value.grad.asnumpy() == 1).all() for value in values)


def test_report_and_print():
    net = started(TreeLSTM())
    trees = random_trees(6)
    with edb.batching('depth') as scope:
        values = [net(tree) for tree in trees]
        values[0].asnumpy()
        values[1].asnumpy()
    nodes = sum(tree.size() for tree in trees)
    shown = str(scope)
    assert f'depth): {2 * nodes + 6} calls of 3 types' in shown
    assert f'{nodes} x ChildSumTreeLSTMCell' in shown and f'6 x Dense({net.score.name})' in shown
    report = scope.report()
    assert report.scheduler == 'depth' and report.evaluations == 1
    assert report.nodes == 2 * nodes + 6
    assert report.lower_bound == 2 + max(tree.depth() for tree in trees)
    assert report.lower_bound <= report.batches
    assert report.mean_batch_size == report.nodes / report.batches
    assert sum(kind.calls for kind in report.types) == report.nodes
    assert sum(kind.batches for kind in report.types) == report.batches
    assert report.gathered_rows > 0 and report.sliced_rows > 0
    assert min(report.record_ms, report.schedule_ms, report.execute_ms) > 0
    assert len(report.forced) == 1 and report.forced[0].filename.endswith('test_functional.py')
    as_dict = report.as_dict()
    assert as_dict['mean_batch_size'] == report.mean_batch_size
    assert {kind['name'] for kind in as_dict['types']} == {kind.name for kind in report.types}
    text = str(report)
    assert f'{report.nodes} calls of 3 types in {report.batches} batches' in text
    assert 'test_functional.py' in text


def test_report_folds_types_that_differ_in_shapes_and_constants_only():
    net = nn.Dense(3, in_units=4, flatten=False)
    net.initialize()
    with edb.batching() as scope:
        states = [net(mx.nd.ones((2, 2 + number % 4, 4))) for number in range(12)]
        scaled = [edb.nd.clip(state, 0, number + 1.5) for number, state in enumerate(states)]
        same = [edb.nd.clip(net(mx.nd.ones((2, 2, 4))), 0, number + 1.5) for number in range(3)]
        with autograd.predict_mode(), autograd.record(train_mode=False):
            taped = [net(mx.nd.ones((2, 2, 4)))]
    edb.forward(scaled + same + taped)
    report = scope.report()
    lines = [' '.join(line.split()) for line in str(report).splitlines()[3:]]
    expected = [
        (f'Dense({net.name})[2x4] and 3 with other shapes', 15, 4),
        ('clip[2x3] and 13 with other shapes or constants', 15, 14),
        (f'Dense({net.name})[2x4]', 1, 1),
    ]  # on autograd's tape
    assert len(lines) == len(expected) and len(report.types) == 19
    for line, (name, calls, batches) in zip(lines, expected):
        assert line.startswith(f'{name} {calls} calls in {batches} batches'), line
    assert sum(kind.batches for kind in report.types) == report.batches == 19


def test_agenda_reaches_the_lower_bound_of_trees():
    net = started(TreeLSTM())
    trees = random_trees(8, largest=15)
    with edb.batching('agenda') as scope:
        values = [net(tree) for tree in trees]
    edb.forward(values)
    assert scope.report().batches == scope.report().lower_bound
    (cell,) = [kind for kind in scope.report().types if 'ChildSum' in kind.name]
    assert cell.batches == max(tree.depth() for tree in trees)


@pytest.mark.parametrize('collected', [list, tuple, iter])
def test_ragged_takes_what_can_be_walked_through(collected):
    """Recorded without a list of its own; numbers among values take another way."""
    x, y = mx.nd.array([[1.0, 2.0]]), mx.nd.array([[3.0, 5.0]])
    with edb.batching():
        plain = edb.ragged(collected([x * 2, y * 2]))
        mixed = edb.ragged(collected([(x * 2).sum(axis=1), 7.0, (y * 2).sum(axis=1)]))
        lengths = [plain.lengths * 1, mixed.lengths * 1]
        plain, mixed = plain * 1, mixed * 1
    assert plain.asnumpy().tolist() == [[[2.0, 4.0], [6.0, 10.0]]]
    assert mixed.asnumpy().tolist() == [[6.0, 7.0, 16.0]]
    assert [float(length.asscalar()) for length in lengths] == [2.0, 3.0]


def test_what_is_known_of_blocks_goes_when_one_changes():
    """C finds it by who the block is, as long as nothing changed."""

    class Scaled(nn.HybridBlock):
        factor = 1.0

        def hybrid_forward(self, F, x):
            return x * self.factor

    block, x, values = Scaled(), mx.nd.array([[2.0]]), []
    with edb.batching():
        for number in range(40):
            block.factor = float(number)
            values += [block(x * 1), block(x * 1)]
    expected = [2.0 * number for number in range(40) for _ in range(2)]
    assert [float(value.asscalar()) for value in values] == expected


def test_more_calls_than_a_piece_of_memory_has_room_for():
    """Calls that `edb.Reuse` appends, and recorded calls after them, outgrow a piece of memory."""
    block = nn.Dense(1, in_units=1, use_bias=False)
    block.initialize(mx.init.One())
    x = np.ones((1, 1), np.float32)

    def chain(length):
        value = block(x)
        for _ in range(length):
            value = block(value) + 1
        return value

    reuse = edb.Reuse()
    for _ in range(2):
        with edb.batching():
            values = [reuse('piece', chain, 301), chain(1), reuse('piece', chain, 301), chain(700)]
        assert [float(value.asscalar()) for value in values] == [302.0, 2.0, 302.0, 701.0]
