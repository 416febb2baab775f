"""Fold, Unfold: calls that are noted and replayed, as mxnet-jit-batch and torchfold have them."""

import gc
import weakref

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.fold.handles import Virtual
from tests.support.models import ndarrays, started


class Encoder(nn.Block):
    """Methods that are noted, some of them of one name with a child."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.embed = nn.Embedding(10, 3)
        self.out = nn.Dense(5)

    def embed_twice(self, index):
        return self.embed(index), self.embed(index + 1)

    def value(self, index):
        return self.embed(index)

    def concat(self, axis, *values):
        return mx.nd.concat(*values, dim=axis)

    def attr(self, left, right):
        return self.out(mx.nd.concat(left, right, dim=1))

    def logits(self, one, all_values):
        return mx.nd.dot(one, all_values.T)


def close(found, expected):
    np.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-4, atol=1e-6)


def same(x):
    return x


def dbl(x):
    return 2 * x


def neg(x):
    return -x


def inc(x):
    return x + 1


# --- noting and computing ------------------------------------------------------------------------


def test_nothing_runs_before_results_are_asked_for():
    net, fold = Encoder(), edb.Fold()
    first = fold.record(0, net.embed_twice, mx.nd.array([1]))[0]
    second = fold.record(0, net.embed_twice, mx.nd.array([2]))[1]
    chain = first
    for _ in range(10):
        chain = fold.record(0, net.concat, 1, first, chain)
        chain = fold.record(0, net.concat, 1, chain, second)
    scores = fold.record(0, net.out, chain)
    assert 'step 21' in str(fold) and len(fold) == 23
    started(net)
    (found,) = fold([[scores]])
    one, other = net.embed(mx.nd.array([1])), net.embed(mx.nd.array([3]))
    expected = one
    for _ in range(10):
        expected = mx.nd.concat(mx.nd.concat(one, expected, dim=1), other, dim=1)
    close(found, net.out(expected))
    assert len(fold) == 0


def test_shared_value():
    net, fold = started(Encoder()), edb.Fold()
    values = [fold.record(0, net.embed, mx.nd.array([i % 10])) for i in range(15)]
    table = fold.record(0, net.concat, 0, *values).no_batch()
    results = [fold.record(0, net.logits, values[i % 10], table) for i in range(100)]
    (found,) = fold([results])
    rows = net.embed(mx.nd.arange(100) % 10)
    close(found, mx.nd.dot(rows, net.embed(mx.nd.arange(15) % 10).T))


def test_program_of_the_readme():
    import gluon_edbatch as fold  # as programs for mxnet-jit-batch import theirs

    embed_layer = nn.Embedding(10, 1)
    embed_layer.initialize()
    pool = fold.Fold()
    lazy_values = [pool.record(0, embed_layer, mx.nd.array([i % 10])) for i in range(15)]
    shared_value = pool.record(0, mx.nd.concat, *lazy_values).no_batch()
    lazy_results = [
        pool.record(0, mx.nd.dot, lazy_values[i % 10], shared_value) for i in range(100)
    ]
    actual_result = pool([lazy_results])[0]
    weight = embed_layer.weight.data()
    rows, columns = (mx.nd.take(weight, mx.nd.arange(n) % 10) for n in (100, 15))
    close(actual_result, mx.nd.dot(rows, columns.T))


def test_second_program_of_the_readme():
    import gluon_edbatch as fold

    cell = mx.gluon.rnn.LSTMCell(20)
    pool = fold.Fold()
    for length in (2, 5, 1):
        fold.fold_unroll(
            cell, pool, length, mx.nd.random.uniform(shape=(length, 1, 10)), layout='TNC'
        )
    assert '.unroll(5, (5, 1, 10)' in str(pool)


def test_it_is_batched():
    net, fold = started(nn.Dense(3, in_units=4)), edb.Fold()
    results = [fold.record(0, mx.nd.tanh, fold.record(0, net, x)) for x in ndarrays(6, (1, 4))]
    fold([results])
    assert [kind.batches for kind in fold.scope.report().types] == [1, 1]


def test_operators_on_arrays_of_the_user_are_batched():
    fold = edb.Fold()
    xs = ndarrays(6, (1, 4))
    (found,) = fold([[fold.record(0, mx.nd.broadcast_add, x, xs[0]) for x in xs]])
    close(found, mx.nd.concat(*xs, dim=0) + xs[0])
    report = fold.scope.report()
    assert (report.nodes, report.batches) == (6, 1)


def test_sparse_arrays_are_handed_to_operators():
    fold = edb.Fold()
    dense = mx.nd.array([[0, 1], [2, 0]])
    (found,) = fold([[fold.record(0, mx.nd.dot, dense.tostype('csr'), dense)]])
    close(found, mx.nd.dot(dense, dense))


@pytest.mark.parametrize('scheduler', ['fsm', 'depth', 'agenda', 'unbatched'])
def test_scheduler(scheduler):
    fold = edb.Fold(scheduler=scheduler)
    x = mx.nd.array([[1, 2]])
    (found,) = fold([[fold.record(0, inc, fold.record(0, dbl, x)), fold.record(0, neg, x)]])
    assert found.asnumpy().tolist() == [[3, 5], [-1, -2]]
    assert fold.scope.report().scheduler.startswith(scheduler)


def test_lists_of_results():
    fold, (x, y) = edb.Fold(), ndarrays(2, (1, 4))
    value = fold.record(0, dbl, x)
    one, mixed, numbers = fold([[value], [value, y], [3, 1, 4]])
    close(one, 2 * x)
    close(mixed, mx.nd.concat(2 * x, y, dim=0))
    assert numbers.asnumpy().tolist() == [3, 1, 4]
    assert type(one) is mx.nd.NDArray


@pytest.mark.parametrize(
    'items, message',
    [
        ([], 'is empty'),
        ([3, None], 'no array, but'),
        ([2**24 + 1], 'is not exact in float32'),
    ],
)
def test_lists_that_are_no_results(items, message):
    with pytest.raises(edb.RecordError, match=message):
        edb.Fold()([items])


def test_results_that_are_no_arrays():
    fold, x = edb.Fold(), mx.nd.ones((1, 2))
    pair = fold.record(0, mx.nd.split, x, 2)
    wide = fold.record(1, same, x)
    for results, message in [
        ([pair], 'has 2 results; ask for one'),
        ([pair[2]], r'split@0\[2\]: there are 2 results'),
        ([fold.record(0, len, x)], 'no array, but int 1'),
        ([pair[0], wide], 'batch axes'),
        ([fold.record(0, dbl, x).no_batch(), x], 'has one value only'),
    ]:
        with pytest.raises(edb.RecordError, match=message):
            fold([results], reset=False)
    assert fold([[pair[0], pair[1]]])[0].asnumpy().tolist() == [[1], [1]]


def test_results_that_fail_leave_nothing_behind():
    fold, x = edb.Fold(), mx.nd.array([[1, 2]])
    pair = fold.record(0, mx.nd.split, x, 2)
    with pytest.raises(edb.RecordError, match='there are 2 results'):
        fold([[pair[0], pair[2]]], reset=False)
    assert fold([[pair[0], pair[1]]])[0].asnumpy().tolist() == [[1], [2]]


# --- handles -------------------------------------------------------------------------------------


def test_parts_of_results():
    fold, x = edb.Fold(), mx.nd.arange(6).reshape((1, 6))
    halves = fold.record(0, mx.nd.split, x, 2)  # two arrays (1, 3)
    nested = fold.record(0, lambda a, b: (a, [b, {'c': a + b}]), *halves.split(2))
    found = fold(
        [
            [halves[0], halves[:2][1]],
            [nested[1][0]],
            [halves[np.int64(1)]],
            [fold.record(0, lambda d: d['c'], nested[1][1])],
        ]
    )
    assert [array.asnumpy().tolist() for array in found] == [
        [[0, 1, 2], [3, 4, 5]],
        [[3, 4, 5]],
        [[3, 4, 5]],
        [[3, 5, 7]],
    ]


def test_rows_of_an_array():
    fold, x = edb.Fold(), mx.nd.arange(6).reshape((3, 2))
    rows = fold.record(0, dbl, x)
    found, last = fold([[rows[1], rows[0]], [fold.record(0, inc, rows[-1])]])
    assert found.asnumpy().tolist() == [4, 6, 0, 2] and last.asnumpy().tolist() == [9, 11]


def test_expand_dims():
    fold, x = edb.Fold(), mx.nd.arange(3)
    value = fold.record(0, dbl, x)
    wide = value.expand_dims(0).expand_dims(2)
    assert wide is not value and isinstance(wide, Virtual)
    found, plain = fold([[wide, wide], [fold.record(0, inc, value.expand_dims(0))]])
    assert found.shape == (2, 3, 1) and plain.asnumpy().tolist() == [[1, 3, 5]]


def test_no_batch():
    fold, x = edb.Fold(), mx.nd.ones((1, 2))
    value = fold.record(0, dbl, x)
    assert value.no_batch() is value and value.nobatch() is value
    (found,) = fold([[value, value]])
    assert found.shape == (1, 2)


def test_begin_state_once_for_all():
    cell, fold = started(gluon.rnn.LSTMCell(3, input_size=2)), edb.Fold()
    outputs = []
    for x in ndarrays(4, (1, 2)):
        states = fold.record(0, cell.begin_state, 1).no_batch().split(2)
        outputs.append(fold.record(0, cell, x, list(states))[0])
    assert len(fold) == 5
    (found,) = fold([outputs])
    close(found, cell(mx.nd.concat(*ndarrays(4, (1, 2)), dim=0), cell.begin_state(4))[0])


def test_slices_need_an_end():
    value = edb.Fold().record(0, same, 1)
    for bad in (slice(None), slice(1, None), slice(-2), slice(-1, 2)):
        with pytest.raises(ValueError, match='a slice needs an end'):
            value[bad]
    with pytest.raises(TypeError, match=r'use .split\(n\)'):
        _a, _b = value
    with pytest.raises(TypeError):
        value['x']


def test_repr():
    fold, net = edb.Fold(), nn.Dense(3, prefix='d_')
    value = fold.record(0, net, fold.record(0, mx.nd.tanh, mx.nd.ones((1, 2))))
    assert repr(value[1].expand_dims(2)) == 'Dense(d)@1[1].expand_dims(2)'
    fold.record(1, np.concatenate, [mx.nd.ones((1, 2))] * 3, (value, 'x'), {'axis': 1})
    assert (
        str(fold)
        == repr(fold)
        == '\n'.join(
            [
                'Fold: 3 calls in 3 steps',
                '  step 0:',
                '    1 x tanh((1, 2))',
                '  step 1:',
                '    1 x Dense(d)(tanh@0)',
                '  step 2:',
                "    1 x concatenate([3 x (1, 2)], (Dense(d)@1, 'x'), {'axis': 1}), batch axis 1",
            ]
        )
    )


def test_wrong_calls():
    fold = edb.Fold()
    with pytest.raises(TypeError, match='something to call'):
        fold.record(0, 'tanh', 1)
    with pytest.raises(edb.RecordError, match='batch axis is an int'):
        fold.record(-1, same, 1)
    for make in (edb.Fold, lambda ctx: edb.Unfold(ctx=ctx), lambda ctx: edb.batching(ctx=ctx)):
        with pytest.raises(TypeError, match="mxnet.Context or None, not 'cpu'"):
            make('cpu')
    assert fold and len(fold) == 0


# --- what is one call, and what is not -----------------------------------------------------------


def test_same_calls_are_one():
    fold, x, net = edb.Fold(), mx.nd.ones((1, 2)), Encoder()
    calls = [
        (same, x),
        (same, 1),
        (same, 'a', None),
        (same, [x, (1, 2.0)]),
        (net.attr, x, x),
        (same, fold.record(0, dbl, x)[1]),
        (same, {'a': x}),
        (same, net),
    ]
    for op, *args in calls:
        first = fold.record(0, op, *args)
        assert fold.record(0, op, *args) is first
    assert fold.record(0, net.attr, x, x) is fold.record(0, net.attr, x, x)
    assert len(fold) == len(calls) + 1


def test_different_calls_are_two():
    fold, x, y = edb.Fold(), mx.nd.ones((1, 2)), mx.nd.ones((1, 2))
    value, nets = fold.record(0, dbl, x), [Encoder(), Encoder()]
    calls = [
        (0, same, x),
        (1, same, x),
        (0, neg, x),
        (0, same, y),
        (0, same, 1),
        (0, same, True),
        (0, same, 1.0),
        (0, same, '1'),
        (0, same, [x]),
        (0, same, (x,)),
        (0, same, [[x]]),
        (0, same, [x], []),
        (0, same, [x, []]),
        (0, same, 0.0),
        (0, same, -0.0),
        (0, same, 0),
        (0, same, None),
        (0, same, value),
        (0, same, value[0]),
        (0, same, value[1]),
        (0, same, value[0][1]),
        (0, same, value.expand_dims(0)),
        (0, same, {'a': x}),
        (0, same, {'b': x}),
        (0, same, {1: x}),
        (0, same, {True: x}),
        (0, nets[0].attr, x),
        (0, nets[1].attr, x),
        (0, nets[0].logits, x),
        (0, same, {1}),
        (0, same, {1}),
        (0, same, np.ones(2)),
        (0, same, np.ones(2)),
        (0, same, b'1'),
        (0, same, (0,)),
    ]
    handles = [fold.record(*call) for call in calls]
    assert len({id(handle.call) for handle in handles}) == len(calls) == len(fold) - 1


class Unlike:
    """Equal to everything, with one hash for all."""

    def __init__(self, number):
        self.number = number

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0

    def __call__(self, x):
        return x * self.number


def test_hash_and_equality_of_the_users_objects_do_not_count():
    fold, x = edb.Fold(), mx.nd.ones((1, 2))
    (found,) = fold(
        [
            [
                fold.record(0, Unlike(2), x),
                fold.record(0, Unlike(3), x),
                fold.record(0, lambda x, f: f(x), x, Unlike(5)),
            ]
        ]
    )
    assert found.asnumpy()[:, 0].tolist() == [2, 3, 5]


def test_same_op_on_results_of_different_ops():
    # Defect of mxnet-jit-batch: a handle's hash left its op out.
    fold, x = edb.Fold(), mx.nd.array([[1, 2]])
    doubled, negated = fold.record(0, dbl, x), fold.record(0, neg, x)
    (found,) = fold([[fold.record(0, inc, doubled), fold.record(0, inc, negated)]])
    assert found.asnumpy().tolist() == [[3, 5], [0, -1]]


def test_constants_that_differ():
    # Defect of mxnet-jit-batch: only from the third call on were they compared.
    fold, x = edb.Fold(), mx.nd.array([[1, 2]])
    (found,) = fold([[fold.record(0, lambda x, n: x * n, x, n) for n in (2, 3, 3, 4)]])
    assert found.asnumpy()[:, 0].tolist() == [2, 3, 3, 4]


def test_shapes_that_differ():
    # Crashed in mxnet-jit-batch.
    fold, net = edb.Fold(), started(nn.Dense(2, flatten=False))
    xs = [mx.nd.ones((1, 4)), mx.nd.ones((1, 3, 4)), mx.nd.ones((1, 2, 4)), mx.nd.zeros((1, 4))]
    found = fold([[fold.record(0, net, x)] for x in xs])
    for array, x in zip(found, xs):
        close(array, net(x))


def test_arrays_and_handles_mixed_at_one_position():
    # Crashed in mxnet-jit-batch.
    fold, net, (x, y) = edb.Fold(), started(nn.Dense(2, in_units=4)), ndarrays(2, (1, 4))
    (found,) = fold([[fold.record(0, net, x), fold.record(0, net, fold.record(0, dbl, y))]])
    close(found, net(mx.nd.concat(x, 2 * y, dim=0)))


def test_unequal_rows():
    # Crashed in mxnet-jit-batch.
    fold, net = edb.Fold(), started(nn.Dense(2, in_units=4))
    xs = [mx.nd.ones((rows, 4)) * rows for rows in (2, 1, 3, 2)]
    (found,) = fold([[fold.record(0, net, x) for x in xs]])
    close(found, net(mx.nd.concat(*xs, dim=0)))


def test_lists_are_taken_as_they_were():
    fold, xs = edb.Fold(), ndarrays(2, (1, 2))
    value = fold.record(0, lambda xs: mx.nd.add_n(*xs), xs)
    expected = xs[0] + xs[1]
    xs.clear()
    close(fold([[value]])[0], expected)


def test_arrays_are_held_by_reference():
    fold, x = edb.Fold(), mx.nd.ones((1, 2))
    value = fold.record(0, dbl, x)
    x[:] = 3
    assert fold([[value]])[0].asnumpy().tolist() == [[6, 6]]


def test_equal_random_calls_are_one_draw():
    fold, x = edb.Fold(), mx.nd.ones((1, 400))
    drop = nn.Dropout(0.5)
    one, other = fold.record(0, drop, x), fold.record(0, drop, x)
    assert one is other
    with autograd.record():
        (found,) = fold([[one, other, fold.record(0, drop, mx.nd.ones((1, 400)))]])
    rows = found.asnumpy()
    assert (rows[0] == rows[1]).all() and (rows[0] != rows[2]).any()


OPS = [inc, dbl, neg, lambda a, b=None: a if b is None else a * b]


@given(st.data())
def test_any_program(data):
    """Random programs give what the same calls give eagerly."""
    fold, plain = edb.Fold(), edb.Unfold()
    leaves = ndarrays(3, (2, 2))
    noted, computed = list(leaves), list(leaves)
    for _ in range(data.draw(st.integers(1, 12))):
        op = data.draw(st.sampled_from(OPS))
        places = [data.draw(st.integers(0, len(noted) - 1))]
        if op is OPS[-1] and data.draw(st.booleans()):
            places.append(data.draw(st.integers(0, len(noted) - 1)))
        noted.append(fold.record(0, op, *[noted[place] for place in places]))
        computed.append(plain.record(0, op, *[computed[place] for place in places]))
    wanted = data.draw(st.lists(st.integers(0, len(noted) - 1), min_size=1))
    (found,) = fold([[noted[place] for place in wanted]])
    (expected,) = plain([[computed[place] for place in wanted]])
    close(found, expected)


# --- gradients -----------------------------------------------------------------------------------


def test_gradients_of_parameters_and_inputs():
    net = started(nn.Dense(3, in_units=4))
    xs = ndarrays(5, (1, 4), gradient=True)

    def gradients(run):
        with autograd.record():
            loss = (run() ** 2).sum()
        loss.backward()
        return [loss.asnumpy(), net.weight.grad().asnumpy().copy()] + [
            x.grad.asnumpy().copy() for x in xs
        ]

    def folded():
        fold = edb.Fold()
        return fold([[fold.record(0, mx.nd.tanh, fold.record(0, net, x)) for x in xs]])[0]

    for found, expected in zip(
        gradients(folded), gradients(lambda: mx.nd.concat(*[mx.nd.tanh(net(x)) for x in xs], dim=0))
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_noted_outside_and_computed_inside_of_record():
    net, fold = started(nn.Dense(3, in_units=4)), edb.Fold()
    value = fold.record(0, net, mx.nd.ones((1, 4)))
    with autograd.record():
        (found,) = fold([[value]])
        loss = found.sum()
    loss.backward()
    assert net.bias.grad().asnumpy().tolist() == [1, 1, 1]


def test_volatile():
    net, fold = started(nn.Dense(3, in_units=4)), edb.Fold(volatile=True)
    net.bias.grad()[:] = 0
    drop = nn.Dropout(0.5)
    with autograd.record():
        (found,) = fold([[fold.record(0, drop, fold.record(0, net, mx.nd.ones((9, 4))))]])
        loss = found.sum() + net.bias.data().sum()
    loss.backward()
    assert net.bias.grad().asnumpy().tolist() == [1, 1, 1]
    assert (found.asnumpy() == 0).any()  # the mode of training is as it was


# --- more than one computation -------------------------------------------------------------------


def test_continued():
    calls, fold = [], edb.Fold()

    def counted(x):
        calls.append(x)
        return x + 1

    net, x = started(nn.Dense(4, in_units=4)), mx.nd.ones((1, 4))
    x.attach_grad()
    with autograd.record():
        first = fold.record(0, counted, fold.record(0, net, x))
        unread = fold.record(0, dbl, first)
        (one,) = fold([[first]], reset=False)
        second = fold.record(0, net, first)
        other, again, late = fold([[second], [first], [unread]], reset=False)
        loss = (other * 3).sum() + one.sum() + late.sum()
    loss.backward()
    found = [x.grad.asnumpy().copy(), net.weight.grad().asnumpy().copy()]
    assert len(calls) == 1 and len(fold) == 4
    close(one, again)
    with autograd.record():
        h = net(x) + 1
        loss = (net(h) * 3).sum() + h.sum() + (2 * h).sum()
    loss.backward()
    np.testing.assert_allclose(found[0], x.grad.asnumpy(), rtol=1e-4)
    np.testing.assert_allclose(found[1], net.weight.grad().asnumpy(), rtol=1e-4)


def test_what_ran_is_not_affected_by_later_writing():
    fold, whole = edb.Fold(), mx.nd.ones((2, 2))
    x = whole[0:1]
    wanted, unread = fold.record(0, inc, x), fold.record(0, dbl, x)
    fold([[wanted]], reset=False)
    whole[:] = 9  # through another view of the memory
    assert fold([[unread]])[0].asnumpy().tolist() == [[2, 2]]


def test_handles_of_another_time_or_fold():
    fold, x = edb.Fold(), mx.nd.ones((1, 2))
    old = fold.record(0, dbl, x)
    fold([[old]])
    for handle in (old, edb.Fold().record(0, dbl, x)):
        with pytest.raises(edb.RecordError, match='is of another fold'):
            fold.record(0, inc, handle)
        with pytest.raises(edb.RecordError, match='is of another fold'):
            fold([[handle]])


def test_memory_is_given_back():
    fold, x = edb.Fold(), mx.nd.ones((1, 2))

    class Marked:
        def __call__(self, x):
            return x + 1

    op = Marked()
    kept = weakref.ref(op)
    handle = fold.record(0, op, fold.record(0, dbl, x))
    gc.disable()
    try:
        fold([[handle]])
        assert handle.call.value is None
        del handle, op
        assert kept() is None
    finally:
        gc.enable()


# --- errors --------------------------------------------------------------------------------------


def broken(x):
    raise KeyError('broken')


@pytest.mark.parametrize('reset', [True, False])
def test_a_call_that_fails(reset):
    fold, x = edb.Fold(), mx.nd.ones((1, 2))
    before = fold.record(0, dbl, x)
    value = fold.record(0, broken, before)  # this line
    with pytest.raises(
        edb.RecordError, match=r"broken failed: KeyError: 'broken'\n.*test_fold.py:"
    ) as caught:
        fold([[value]], reset=reset)
    assert f':{test_a_call_that_fails.__code__.co_firstlineno + 4}' in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)
    if not reset:
        assert len(fold) == 2
        with pytest.raises(edb.RecordError, match='broken failed'):
            fold([[before]])
    assert len(fold) == 0
    assert fold([[fold.record(0, dbl, x)]])[0].asnumpy().tolist() == [[2, 2]]


def test_parameters_that_are_initialised_later():
    net, fold = nn.Dense(2, in_units=3), edb.Fold()
    value = fold.record(0, net, mx.nd.ones((1, 3)))
    with pytest.raises(edb.EdbError, match='has not been initialized(.|\n)*noted at .*test_fold'):
        fold([[value]], reset=False)
    started(net)
    close(fold([[value]])[0], net(mx.nd.ones((1, 3))))


def test_a_call_that_cannot_be_recorded():
    fold, net = edb.Fold(), started(nn.Dense(2, in_units=3))
    value = fold.record(0, net, fold.record(0, dbl, mx.nd.ones((1, 4))))
    with pytest.raises(edb.RecordError, match=r'in Dense.*, noted at .*test_fold.py:\d+$'):
        fold([[value]])


def test_sites_are_those_of_noting():
    fold, x = edb.Fold(), mx.nd.ones((1, 2))
    value = fold.record(0, mx.nd.tanh, fold.record(0, mx.nd.sigmoid, x))
    fold([[value]])
    recording = fold.scope._recording
    first = test_sites_are_those_of_noting.__code__.co_firstlineno
    assert [recording.site(node).line - first for node in (0, 1)] == [2, 2]


# --- other batch axes ----------------------------------------------------------------------------


def test_results_along_another_axis():
    fold, xs = edb.Fold(), ndarrays(3, (2, 1, 3))
    (found,) = fold([[fold.record(1, mx.nd.tanh, fold.record(1, dbl, x)) for x in xs]])
    close(found, mx.nd.tanh(2 * mx.nd.concat(*xs, dim=1)))


@pytest.mark.parametrize('hybridized', [False, True])
def test_blocks_with_another_batch_axis_are_batched(hybridized):
    net, fold = started(nn.Dense(2, in_units=4, flatten=False)), edb.Fold()
    net.hybridize(hybridized)
    xs = ndarrays(4, (3, 1, 4)) + ndarrays(2, (3, 2, 4)) + ndarrays(1, (2, 1, 4))
    values = [fold.record(1, net, x) for x in xs]
    found, other = fold([values[:6], values[6:]])
    close(found, net(mx.nd.concat(*xs[:6], dim=1)))
    close(other, net(xs[6]))
    report = fold.scope.report()
    assert report.batches <= 3 < report.nodes


def test_rows_that_depend_on_each_other():
    # Along axis 1 each sample is a matrix: a mean over its axis 0 is none over the batch.
    fold, xs = edb.Fold(), ndarrays(3, (4, 1, 2))
    values = [fold.record(1, lambda x: x - x.mean(axis=0, keepdims=True), x) for x in xs]
    together = mx.nd.concat(*xs, dim=1)
    close(fold([values])[0], together - together.mean(axis=0, keepdims=True))


def test_arguments_that_are_results():
    fold, x = edb.Fold(), mx.nd.ones((1, 2))
    x.attach_grad()
    with autograd.record():
        pair = fold.record(0, lambda y: (y, 1), 2 * x)
        found, kept = fold([[fold.record(0, same, x)], [pair[0]]])
        (found + kept).backward()
    assert found.asnumpy().tolist() == [[1, 1]] and x.grad.asnumpy().tolist() == [[3, 3]]
    again = fold.record(0, same, mx.nd.ones((1, 2)))
    fold([[again]], reset=False)
    assert fold([[fold.record(0, inc, again)]])[0].asnumpy().tolist() == [[2, 2]]
    assert fold.apply(None, [[np.ones((2, 2)), x]])[0].shape == (3, 2)


def test_arguments_cannot_be_written_to():
    fold = edb.Fold()

    def write(x):
        x[:] = 0

    with pytest.raises(edb.RecordError, match='cannot be written to'):
        fold([[fold.record(0, write, mx.nd.ones((1, 2)))]])


def test_weights_among_arguments_are_shared():
    fold, xs, weight = edb.Fold(), ndarrays(5, (1, 4)), mx.nd.ones((4, 3))
    weight.attach_grad()
    with autograd.record():
        (found,) = fold([[fold.record(0, lambda x, w: mx.nd.dot(x, w), x, weight) for x in xs]])
    found.backward()
    close(found, mx.nd.dot(mx.nd.concat(*xs, dim=0), weight))
    close(weight.grad, mx.nd.dot(mx.nd.concat(*xs, dim=0).T, mx.nd.ones((5, 3))))
    assert fold.scope.report().batches == 1


# --- where ---------------------------------------------------------------------------------------


def test_context_is_that_of_the_computation():
    fold = edb.Fold()
    assert fold.ctx is None
    with mx.cpu(1):
        (made,) = fold([[fold.record(0, mx.nd.ones, (1, 2))]])
    assert made.ctx == mx.cpu(1)
    fold = edb.Fold(mx.cpu(2))
    (made,) = fold([[fold.record(0, mx.nd.ones, (1, 2))]])
    assert made.ctx == mx.cpu(2)


def test_context_is_that_of_the_block():
    class Maker(nn.Block):
        def make(self):
            return mx.nd.ones((1, 2))

    net = Maker()
    net.register_child(nn.Dense(2, in_units=2))
    net.initialize(ctx=mx.cpu(1))
    for fold in both(net):
        (made,) = fold.apply(net, [[fold.add('make')]])
        assert made.ctx == mx.cpu(1)


def test_cuda():
    if mx.context.num_gpus():
        assert edb.Fold().cuda().ctx == edb.Unfold(cuda=True).ctx == mx.gpu(0)
        return
    for make in (
        lambda: edb.Fold(cuda=True),
        lambda: edb.Fold().cuda(),
        lambda: edb.Unfold(None).cuda(),
    ):
        with pytest.raises(RuntimeError, match='sees no GPU'):
            make()


# --- torchfold -----------------------------------------------------------------------------------


def both(net):
    return edb.Fold(), edb.Unfold(net)


def test_methods_by_name():
    net = started(Encoder())
    found = []
    for fold in both(net):
        one, _ = fold.add('embed_twice', 1).split(2)
        _, other = fold.add('embed_twice', 2).split(2)
        chain = one
        for _ in range(20):
            chain = fold.add('attr', one, other)
            chain = fold.add('logits', chain, chain)
        found.append(fold.apply(net, [[chain, chain], [other]]))
    assert found[0][0].shape == (2, 1) and found[0][1].shape == (1, 3)
    for batched, eager in zip(*found):
        close(batched, eager)


def test_apply_again():
    net, fold = started(Encoder()), edb.Fold()
    value = fold.add('value', 3)
    (first,) = fold.apply(net, [[value]])
    net.embed.weight.set_data(net.embed.weight.data() + 1)
    (second,) = fold.apply(net, [[value]])
    close(second, first + 1)
    other = started(Encoder(), seed=5)
    close(fold.apply(other, [[value]])[0], other.embed(mx.nd.array([3])))
    assert len(fold) == 1 and value.call.value is None


def test_ints_are_index_arrays():
    class Shapes:
        def shape(self, index, indices):
            assert index.shape == (1,) and [i.shape for i in indices] == [(1,), (1,)]
            return index + indices[0]

    for fold in both(shapes := Shapes()):
        found, labels = fold.apply(
            shapes,
            [[fold.add('shape', 2, (3, mx.nd.array([7]))), fold.add('shape', 2, [5, 6])], [1, 0]],
        )
        assert found.asnumpy().tolist() == [5, 7] and labels.asnumpy().tolist() == [1, 0]


def test_shared_results_by_name():
    net = started(Encoder())
    for fold in both(net):
        values = [fold.add('value', i % 10) for i in range(15)]
        table = fold.record(0, mx.nd.concat, *[value.expand_dims(0) for value in values])[0]
        table = fold.record(0, mx.nd.reshape, table, (15, 3)).nobatch()
        (found,) = fold.apply(net, [[fold.add('logits', values[i % 10], table) for i in range(30)]])
        rows = net.embed(mx.nd.arange(30) % 10)
        close(found, mx.nd.dot(rows, rows[:15].T))


@pytest.mark.parametrize('argument', [1.5, None, 'x', True, [1, [2.0]]])
def test_arguments_by_name(argument):
    for fold in both(Encoder()):
        with pytest.raises(edb.RecordError, match='takes arrays, handles and ints'):
            fold.add('value', argument)


@pytest.mark.parametrize('argument', [2**24 + 1, [-(2**24) - 1]])
def test_indices_that_float32_does_not_hold(argument):
    for fold in both(started(Encoder())):
        with pytest.raises(edb.RecordError, match='is not exact in float32'):
            fold.add('value', argument)


def test_wrong_calls_by_name():
    net, fold = Encoder(), edb.Fold()
    value = fold.add('nothing', 1)
    with pytest.raises(edb.RecordError, match=r'call apply\(block, nodes\)(.|\n)*noted at'):
        fold([[value]], reset=False)
    with pytest.raises(edb.RecordError, match="Encoder has no method 'nothing'"):
        fold.apply(net, [[value]])
    with pytest.raises(TypeError, match='the name of a method'):
        fold.add(net.value, 1)
    with pytest.raises(ValueError, match='must be made with the block'):
        edb.Unfold(net).apply(Encoder(), [])
    with pytest.raises(AttributeError):
        edb.Unfold(net).add('nothing')


def test_unfold_shows_values():
    net = started(Encoder())
    value = edb.Unfold(net).add('value', 3)
    assert 'NDArray 1x3' in repr(value)
    assert value.nobatch() is value and value.no_batch() is value
    assert value.expand_dims(0).value.shape == (1, 1, 3)


def test_unfold_has_gradients():
    net = started(nn.Dense(3, in_units=4))
    for volatile, expected in [(False, [2, 2, 2]), (True, [1, 1, 1])]:
        unfold = edb.Unfold(net, volatile=volatile)
        with autograd.record():
            (found,) = unfold.apply(net, [[unfold.add('__call__', mx.nd.ones((1, 4)))]])
            loss = found.sum() + net.bias.data().sum()
        loss.backward()
        assert net.bias.grad().asnumpy().tolist() == expected
