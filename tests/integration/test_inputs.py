"""What users give and make in a scope, as they write it: NDArrays, ``mx.nd.zeros``,
``begin_state``, NumPy arrays as operands; against eager Gluon."""

import operator
import threading
from contextlib import nullcontext

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd
from mxnet.ndarray import NDArray

import gluon_edbatch as edb
from gluon_edbatch.mx import ndarray_memory
from gluon_edbatch.record.lazy import LazyArray
from gluon_edbatch.testing import assert_matches_eager
from tests.support.cases import in_one_test
from tests.support.device import OTHER
from tests.support.models import started

pytestmark = pytest.mark.usefixtures('aftermath')
WIDTH = 4


@pytest.fixture(params=[False, True], ids=['not native', 'native'])
def native(request):
    """Runs a test by both backends."""
    with edb.compile_options(native=request.param):
        yield request.param


@pytest.fixture(params=[mx.cpu(), OTHER], ids=str)
def ctx(request):
    """The default device and another."""
    return request.param


@pytest.fixture
def dense():
    return started(gluon.nn.Dense(WIDTH, in_units=WIDTH))


def row(number=0, ctx=None, rows=1):
    """Rows of numbers; others for each number."""
    values = np.random.RandomState(number).uniform(-1, 1, (rows, WIDTH))
    return nd.array(values, ctx=ctx)


def lazily(array, beside):
    """A NumPy array beside a lazy value; beside another, what eager MXNet takes."""
    return array if isinstance(beside, LazyArray) else nd.array(array, ctx=beside.ctx)


def with_written_state(net, cell, x):
    state = nd.zeros((1, WIDTH), ctx=x.ctx)
    state[0, 1] = 0.5
    state += 1
    state[:] = state * 0.5
    return cell(x, [state, nd.full((1, WIDTH), 0.25, ctx=x.ctx)])[1]


def with_marked_state(net, cell, x):
    state = nd.ones((1, WIDTH), ctx=x.ctx)
    state.attach_grad()
    y = net(x * state)
    return y if state.grad.shape == y.shape else None


def with_operands(y):
    difference = lazily(np.arange(WIDTH), y) - y * lazily(np.ones((1, WIDTH)), y)
    if not autograd.is_recording():  # eager MXNet would refuse to write
        difference *= lazily(np.full((1, WIDTH), 3), y)
    return difference


IDIOMS = {
    'array': lambda net, cell, x: net(x),
    'view': lambda net, cell, x: net(nd.concat(x, x, dim=0)[1:2]),
    'begin_state': lambda net, cell, x: cell(x, cell.begin_state(batch_size=1, ctx=x.ctx))[1],
    'begin_state of ones': lambda net, cell, x: cell(
        x, cell.begin_state(batch_size=1, func=nd.ones, ctx=x.ctx)
    )[0],
    'unroll': lambda net, cell, x: cell.unroll(2, [x, x], merge_outputs=False)[0],
    'zeros': lambda net, cell, x: cell(x, [nd.zeros((1, WIDTH), ctx=x.ctx)] * 2)[0],
    'array of a list': lambda net, cell, x: net(nd.array([[1, 2, 3, 4.5]], ctx=x.ctx)) * net(x),
    'made, and computed with': lambda net, cell, x: net(
        x * (nd.arange(WIDTH, ctx=x.ctx).reshape((1, -1)) + nd.ones((1, WIDTH), ctx=x.ctx))
    ),
    'written': with_written_state,
    'marked': with_marked_state,
    'operand': lambda net, cell, x: with_operands(net(x)),
    'methods': lambda net, cell, x: (
        lambda y: (
            y.tanh() + (-y).exp() + y.sum(axis=1).expand_dims(1) + y.mean(1, keepdims=True),
            y.T.reshape((1, -1)),
            y.reshape(2, 2)[1:2].softmax(axis=1),
            y[0].clip(-0.5, 0.5).expand_dims(axis=0),
            y.split(num_outputs=2, axis=1),
            y[:, 1:3].transpose((1, 0)),
        )
    )(net(x)),
    'functions': lambda net, cell, x: (
        lambda y: (
            nd.concat(nd.tanh(y), nd.sum(y, axis=1, keepdims=True), dim=1)
            + nd.broadcast_mul(nd.slice_axis(y, axis=1, begin=0, end=1), nd.ones((1, 5), ctx=x.ctx))
        )
    )(net(x)),
}


@in_one_test('marked', [False, True], ids=['data', 'with gradient'])
@in_one_test('idiom', IDIOMS)
def test_idiom(idiom, native, ctx, marked):
    net = started(gluon.nn.Dense(WIDTH, in_units=WIDTH), ctx=ctx)
    cell = started(gluon.rnn.LSTMCell(WIDTH, input_size=WIDTH), ctx=ctx)
    samples = [row(number, ctx) for number in range(4)]
    for sample in samples if marked else ():
        sample.attach_grad()
    assert_matches_eager(
        lambda x: IDIOMS[idiom](net, cell, x), samples, blocks=[net, cell], schedulers=['agenda']
    )


# --- NDArrays as they were ------------------------------------------------------------------------


@pytest.mark.parametrize('size', [1, 1 << 15], ids=['small', 'large'])
def test_contents_are_those_at_the_call(dense, size):
    net = lambda x: edb.nd.sum(x * 1, axis=0)  # noqa: E731
    array = nd.ones((size, 3))
    view = array[0:1]
    with edb.batching():
        dense(row())
        before = net(edb.nd.identity(array))
        array[:] = 2
        after = net(edb.nd.identity(array))
        if size == 1:
            view[:] = 3
            last = net(edb.nd.identity(array))
    np.testing.assert_array_equal(before.asnumpy(), [size] * 3)
    np.testing.assert_array_equal(after.asnumpy(), [2 * size] * 3)
    if size == 1:
        np.testing.assert_array_equal(last.asnumpy(), [3] * 3)


def test_an_array_that_is_still_computed(dense):
    array = nd.ones((300, 300))
    for _ in range(5):
        array = nd.dot(array, nd.ones((300, 300))) / 300
    with edb.batching():
        found = dense(array[0:1, :WIDTH])
    np.testing.assert_allclose(found.asnumpy(), dense(nd.ones((1, WIDTH))).asnumpy(), rtol=1e-5)


def test_the_same_contents_are_one_value(dense):
    array, other = row(), row(1)
    with edb.batching() as scope:
        dense(array), dense(array), dense(array.copy()), dense(other)
        assert len(scope._recording.arrays) == 2
        array[0, 0] = 5
        dense(array), dense(array)
        assert len(scope._recording.arrays) == 3


def test_arrays_of_other_dtypes_and_shapes_are_not_one_value():
    arrays = [
        nd.zeros((1, 4)),
        nd.zeros((1, 4), dtype='int32'),
        nd.zeros((1, 2), dtype='float64'),
        nd.zeros((4, 1)),
        nd.zeros((1, 4), ctx=OTHER),
        nd.zeros((1, 4), dtype='bool'),
        nd.zeros((1, 4), dtype='float16'),
    ]
    with edb.batching():
        found = [edb.nd.identity(array) for array in arrays]
    for array, value in zip(arrays, found):
        assert (array.shape, array.dtype, array.ctx) == (value.shape, value.dtype, value.ctx)
        assert not value.asnumpy().any()


def test_gradients_of_arrays_that_hold_the_same(dense):
    """Each its own, of those that are marked or on a tape."""
    arrays = [row() for _ in range(4)]
    for array in arrays[:3]:
        array.attach_grad()
    with autograd.record():
        doubled = arrays[2] * 1
        with edb.batching():
            total = edb.add_n(
                [
                    dense(array).sum(axis=1) * factor
                    for factor, array in zip(
                        (1, 2, 3, 4, 5), [*arrays[:2], doubled, arrays[3], arrays[0]]
                    )
                ]
            )
        arrays[1].attach_grad()  # marked anew: its calls know the old gradient
        total.backward()
    weight = dense.weight.data().asnumpy().sum(axis=0)
    for array, factor in zip(arrays, (6, 0, 3)):
        np.testing.assert_allclose(array.grad.asnumpy()[0], weight * factor, rtol=1e-5)
    assert arrays[3].grad is None


def test_gradients_of_outputs_of_one_call(dense):
    base = nd.ones((1, 2 * WIDTH))
    base.attach_grad()
    with autograd.record():
        first, second = nd.split(base * 1, 2, axis=1)
        with edb.batching():
            total = dense(first).sum() + dense(second).sum() * 3
        total.backward()
    weight = dense.weight.data().asnumpy().sum(axis=0)
    np.testing.assert_allclose(base.grad.asnumpy()[0], [*weight, *(3 * weight)], rtol=1e-5)


def test_a_gradient_that_is_added(native, dense):
    array = row()
    array.attach_grad('add')
    for _ in range(2):
        with autograd.record(), edb.batching():
            total = dense(array).sum() + dense(array).sum() + dense(array.asnumpy()).sum()
        total.backward()
    weight = dense.weight.data().asnumpy().sum(axis=0)
    np.testing.assert_allclose(array.grad.asnumpy()[0], 4 * weight, rtol=1e-5)


def test_reading_finds_what_an_array_is():
    """The form in Python, which the compiled one is to equal, on all kinds of arrays."""
    node_at = ndarray_memory.node_offset()
    assert node_at > 0
    base = nd.array(np.arange(24).reshape(4, 6))
    read = lambda array, most=100: ndarray_memory.read(array, most, node_at)  # noqa: E731
    for dtype in ('float32', 'float64', 'float16', 'uint8', 'int8', 'int32', 'int64', 'bool'):
        array = base.astype(dtype)
        assert read(array)[1:] == (array.asnumpy().tobytes(), b'')
    assert read(base[1:3])[1] == base.asnumpy()[1:3].tobytes()
    assert len({read(nd.zeros(shape))[0] for shape in ((1, 4), (4,), (2, 2))}) == 3
    assert read(base)[0] != read(base.as_in_context(OTHER))[0]
    base.attach_grad()
    with autograd.record():
        computed = base * 2
        outputs = nd.split(base * 0, 2, axis=1)
    assert read(base)[2] and read(computed)[2] and read(base)[2] != read(computed)[2]
    assert read(outputs[0])[:2] == read(outputs[1])[:2] and read(outputs[0]) != read(outputs[1])
    assert ndarray_memory.read(base, 100, -1) is None
    assert not read(computed.detach())[2]
    for array in (base.tostype('row_sparse'), nd.zeros((100, 1))):
        assert read(array) is None
    assert read(base, 24) is None and read(base, 25)


def test_an_array_that_failed_is_an_error_at_the_call(dense):
    failed = nd.random.normal(0, -1, (1, WIDTH))  # which the engine finds out
    with edb.batching():
        with pytest.raises(mx.MXNetError, match='positive|scale|sigma|non-negative'):
            dense(failed)
        value = dense(row())
    np.testing.assert_allclose(value.asnumpy(), dense(row()).asnumpy(), rtol=1e-5)


# --- arrays that are made in the scope ------------------------------------------------------------

MAKERS = {
    'zeros': lambda **options: nd.zeros((2, WIDTH), **options),
    'zeros, named': lambda **options: nd.zeros(shape=(2, WIDTH), name='zeros', **options),
    'zeros, one axis': lambda **options: nd.zeros(3, **options),
    'ones': lambda **options: nd.ones((2, WIDTH), **options),
    'full': lambda **options: nd.full((2, WIDTH), 0.1, **options),
    'arange': lambda **options: nd.arange(1, 7, 0.1, **options),
    'array': lambda **options: nd.array([[1.5, 2], [3, 4]], **options),
    'array of NumPy': lambda **options: nd.array(np.arange(5) / 3, **options),
}


@in_one_test('options', [{}, {'dtype': 'float64'}, {'dtype': np.int32}, {'ctx': OTHER}])
@in_one_test('maker', MAKERS)
def test_what_is_made_is_what_eager_makes(maker, options):
    expected = MAKERS[maker](**options)
    with edb.batching() as scope:
        found = [MAKERS[maker](**options) for _ in range(2)]
        numbers = found[0].asnumpy()
        assert len(scope._recording.ran) == 0
    assert all(type(value) is LazyArray for value in found)
    for value in (found[1], edb.forward(found[0])):
        assert (value.shape, value.dtype, value.ctx) == (
            expected.shape,
            expected.dtype,
            expected.ctx,
        )
        np.testing.assert_array_equal(value.asnumpy(), expected.asnumpy())
    np.testing.assert_array_equal(numbers, expected.asnumpy())


def test_equal_contexts_are_one():
    cell, array = started(gluon.rnn.LSTMCell(WIDTH, input_size=WIDTH)), row()
    with edb.batching() as scope:
        for _ in range(3):
            nd.zeros((1, WIDTH), ctx=mx.cpu()), nd.ones(3, ctx=mx.cpu(0))
            cell.begin_state(batch_size=1, ctx=array.context)
        assert len(scope._recording.arrays) == 2


def test_a_context_may_be_a_name():
    cell = gluon.rnn.LSTMCell(WIDTH)
    with edb.batching():
        found = [nd.zeros((1, WIDTH), ctx='cpu(0)'), *cell.begin_state(1, ctx='cpu(0)')]
    assert [value.ctx for value in found] == 3 * [mx.cpu()]


def test_the_current_context_counts():
    with edb.batching():
        here = nd.zeros((1, 2)), nd.ones(2)
        with OTHER:
            there = nd.zeros((1, 2)), nd.ones(2)
    assert [array.ctx for array in (*here, *there)] == [mx.cpu()] * 2 + [OTHER] * 2
    assert [array.as_nd_ndarray().ctx for array in there] == [OTHER] * 2


def test_looking_at_what_was_made_runs_nothing_else(dense):
    with edb.batching() as scope:
        value = dense(row())
        labels = nd.array([3, 1, 2])
        mask = nd.ones((3,))
        mask[1] = 0
        found = [int(label.asscalar()) for label in labels], (labels * mask > 2).asnumpy().tolist()
        assert labels[0] == 3 and bool(labels[1] < 2) and len(labels) == 3
        assert not len(scope._recording.ran)
        (value * labels[0:1]).asnumpy()
        assert len(scope._recording.ran) == 1
    assert found == ([3, 1, 2], [1, 0, 0])


def test_each_is_an_array_of_its_own():
    with edb.batching():
        first, second, third = (nd.zeros((2, 2)) for _ in range(3))
        first[0] = 1
        second += 2
        view = third[1]
        view[:] = 3
        fourth = nd.zeros((2, 2))
    for array, expected in ((first, 2), (second, 8), (third, 6), (fourth, 0)):
        assert array.asnumpy().sum() == expected
    fourth[:] = 1
    fourth *= 3
    assert fourth.asnumpy().sum() == 12


def test_rows_of_values_are_gathered_in_one(dense):
    def model(samples):
        rows = nd.zeros((len(samples), WIDTH))
        for i, sample in enumerate(samples):
            rows[i] = dense(sample)[0]
        return rows

    samples = [row(number) for number in range(3)]
    expected = model(samples).asnumpy()
    with edb.batching() as scope:
        found = model(samples)
        assert not len(scope._recording.ran)
    np.testing.assert_allclose(found.asnumpy(), expected, rtol=1e-5)


def test_a_value_is_written_to_an_array(dense):
    array, inside = nd.zeros((2, WIDTH)), nd.ones((1, WIDTH))
    with edb.batching():
        array[0] = dense(inside)[0]
        array[1] = nd.full((WIDTH,), 7)
    np.testing.assert_allclose(array[0].asnumpy(), dense(nd.ones((1, WIDTH))).asnumpy()[0], 1e-5)
    assert array[1].asnumpy().tolist() == [7] * WIDTH


class Doubled(gluon.HybridBlock):
    """Return twice a value of any shape and dtype."""

    def hybrid_forward(self, F, x, y):
        return F.cast(x, 'float32') * 2 + F.cast(y, 'float32')


def as_columns(array):
    array.shape = (WIDTH, 1)


def as_integers(array):
    array.dtype = np.int32


@pytest.mark.parametrize(
    'change',
    [
        lambda array: array.fill(3),
        lambda array: array.__setitem__((0, 1), -0.0),
        as_columns,
        as_integers,
    ],
)
def test_an_array_of_numpy_that_changes_between_calls(change):
    """An array that changed is another value; an unchanged array is the value of the call
    before."""
    net, array = started(Doubled()), np.zeros((1, WIDTH), np.float32)
    net.hybridize()

    def call():
        return net(array, array), array.copy()

    with edb.batching(ctx=mx.cpu()):  # arrays are not met again before that is known
        calls = [call(), call(), call()]
        change(array)
        calls += [call(), call()]
    for value, held in calls:
        found, expected = value.asnumpy(), held.astype(np.float32) * 2 + held.astype(np.float32)
        assert found.shape == expected.shape
        np.testing.assert_array_equal(found, expected)
        assert (np.signbit(found) == np.signbit(expected)).all()


@pytest.mark.parametrize('count', [3, 200])
def test_many_arrays_of_numpy_each_met_again(dense, count):
    """More than are known by who they are; columns of an array, too."""
    weight = dense.weight.data().asnumpy()
    every = np.random.RandomState(0).randn(WIDTH, count).astype(np.float32)
    arrays = [every[:, i : i + 1].T for i in range(count)]
    arrays += [array.copy() for array in arrays]
    with edb.batching():
        values = [dense(array) for array in [*arrays, *arrays]]
    found = np.concatenate([value.asnumpy() for value in values])
    expected = np.tile(every.T @ weight.T, (4, 1))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_calls_have_read_what_was_made_before_it_was_written(dense):
    with edb.batching():
        state = nd.zeros((1, WIDTH))
        before = dense(state)
        state[:] = 1
        after = dense(state)
        state += 1
        last = dense(state)
    for number, value in enumerate((before, after, last)):
        expected = dense(nd.full((1, WIDTH), number)).asnumpy()
        np.testing.assert_allclose(value.asnumpy(), expected, rtol=1e-5)


def test_what_operators_write_is_seen_by_later_calls(dense):
    with edb.batching():
        state, other = nd.zeros((1, WIDTH)), nd.zeros((1, WIDTH))
        nd.ones((1, WIDTH), out=state)
        row(3).copyto(other)
        found = dense(state), dense(other)
    for value, expected in zip(found, (nd.ones((1, WIDTH)), row(3))):
        np.testing.assert_allclose(value.asnumpy(), dense(expected).asnumpy(), rtol=1e-5)


def test_what_operators_that_run_write_is_seen(dense):
    """Optimisers' operators, which write to other operands, are noticed, too."""
    found = []
    for scope in (nullcontext(), edb.batching()):
        with scope:
            weight, mean, variance = nd.ones((1, WIDTH)), nd.zeros((1, WIDTH)), nd.ones((1, WIDTH))
            for number in range(2):
                gradient = dense(row(number))
                nd.adam_update(weight, gradient, mean, variance, lr=0.1, out=weight)
            value = dense(weight)
        found.append([each.asnumpy() for each in (weight, mean, variance, value)])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-6)


def test_an_array_that_was_given_out_is_read_as_it_is(dense):
    with edb.batching():
        state = nd.zeros((1, WIDTH))
        out = edb.forward(state)
        out[:] = 1
        found = dense(state)
    np.testing.assert_allclose(found.asnumpy(), dense(nd.ones((1, WIDTH))).asnumpy(), rtol=1e-5)


def test_what_mxnet_writes_by_a_handle_is_seen(dense):
    store = mx.kv.create()
    store.init(0, nd.ones((1, WIDTH)))
    with edb.batching():
        state = nd.zeros((1, WIDTH))
        before = dense(state)
        store.pull(0, out=state)
        after = dense(state)
    for number, value in enumerate((before, after)):
        expected = dense(nd.full((1, WIDTH), number)).asnumpy()
        np.testing.assert_allclose(value.asnumpy(), expected, rtol=1e-5)


def test_other_threads_make_arrays():
    made = []
    with edb.batching():
        lazy = nd.ones((2, 2))
        thread = threading.Thread(target=lambda: made.extend([nd.zeros((2, 2)), lazy.asnumpy()]))
        thread.start()
        thread.join()
    assert type(made[0]) is NDArray and made[1].sum() == 4


def test_mxnet_makes_arrays_for_itself():
    net = gluon.nn.Dense(2, in_units=2)
    with edb.batching():
        net.initialize()
        batch = next(iter(gluon.data.DataLoader([np.ones(2, 'float32')], batch_size=1)))
        assert type(net.weight.data()) is type(net.weight.grad()) is type(batch) is NDArray
    assert type(nd.zeros((1, 2))) is NDArray


def test_what_is_refused_is_refused_as_ever():
    with edb.batching():
        for wrong in (
            lambda: nd.array([[1], [1, 2]]),
            lambda: nd.array('a'),
            lambda: nd.zeros((2, 'a')),
            lambda: nd.zeros((0, 2)),
            lambda: nd.ones((1, 2), dtype='nothing'),
        ):
            with pytest.raises((TypeError, ValueError, mx.MXNetError)):
                wrong()
        assert nd.zeros((1, 2), stype='row_sparse').stype == 'row_sparse'


def test_large_arrays_are_arrays():
    with edb.batching():
        assert type(nd.zeros((1 << 9, 1 << 8))) is type(nd.array(np.ones(1 << 17))) is NDArray


def test_edb_nd_records_operators_of_what_was_made():
    with edb.batching() as scope:
        value = edb.nd.tanh(nd.ones((1, 2)))
        assert type(value) is LazyArray and len(scope._recording.node_forms) == 1
    np.testing.assert_allclose(value.asnumpy(), np.tanh(np.ones((1, 2))), rtol=1e-5)


# --- NumPy ----------------------------------------------------------------------------------------

OPERATORS = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.pow,
    operator.mod,
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
]


@in_one_test('operation', OPERATORS)
def test_numpy_operand(operation, native):
    net = started(gluon.nn.Dense(WIDTH, in_units=WIDTH, activation='sigmoid'))
    arrays = [np.linspace(0.1, 2, WIDTH).astype(dtype) for dtype in ('float32', 'float64')]
    arrays += [np.arange(1, 1 + WIDTH), np.array([[2.0]]), np.array(3.0), np.float32(0.5)]
    eager = net(row())
    operands = [nd.array(a) if np.ndim(a) else float(a) for a in arrays]
    expected = [f(eager, o) for o in operands for f in (operation, lambda y, o: operation(o, y))]
    with edb.batching():
        y = net(row())
        found = [f(y, a) for a in arrays for f in (operation, lambda y, a: operation(a, y))]
        assert all(type(value) is LazyArray for value in found)
    found += [operation(y, arrays[0]), operation(arrays[0], y)]  # after the scope
    for value, other in zip(found, expected + expected[:2]):
        assert value.shape == other.shape and value.dtype == other.dtype
        np.testing.assert_allclose(value.asnumpy(), other.asnumpy(), rtol=1e-4, atol=1e-6)


def test_gradients_beside_numpy_operands(native, dense):
    array = np.linspace(0.1, 2, WIDTH)
    gradients = []
    for beside in (nd.array(array), array):
        with autograd.record(), edb.batching():
            y = dense(row())
            total = ((beside - y) * (y / beside) * (beside * y)).sum()
        total.backward()
        gradients.append(dense.weight.grad().asnumpy())
    np.testing.assert_allclose(*gradients, rtol=1e-5)
    assert np.abs(gradients[0]).max() > 0


def test_numpy_takes_the_numbers_of_a_value(dense):
    with edb.batching():
        value = dense(row())
        numbers = np.asarray(value)
        assert np.array(value, 'float64').dtype == np.float64
        stacked = np.concatenate([value, numbers])
    np.testing.assert_array_equal(numbers, value.asnumpy())
    assert numbers.shape == (1, WIDTH) and stacked.shape == (2, WIDTH)


@pytest.mark.parametrize(
    'function',
    [
        np.tanh,
        lambda value: np.add(np.ones((1, WIDTH), 'float32'), value, out=np.ones((1, WIDTH))),
        lambda value: np.maximum(value, np.ones((1, WIDTH))),
        lambda value: np.add.reduce(value),
    ],
)
def test_functions_of_numpy_are_refused(dense, function):
    with edb.batching():
        value = dense(row())
        with pytest.raises(edb.RecordError, match='test_inputs.py.*asnumpy'):
            function(value)
    assert np.isfinite(value.asnumpy()).all()


def test_a_shape_as_argument_is_part_of_the_signature(monkeypatch):
    found, lazy = [], edb.nd._lazy
    monkeypatch.setattr(edb.nd, '_lazy', lambda *args: found.append(args) or lazy(*args))
    dense = gluon.nn.Dense(4, in_units=2)
    dense.initialize()
    with edb.batching():
        values = [dense(np.full((1, 2), i, 'f')) for i in range(3)]
        pairs = [edb.nd.reshape(value, (2, 2)) for value in values]
        columns = [edb.nd.reshape(value, (4, 1)) for value in values]
    assert len(found) == 2
    for value, pair, column in zip(values, pairs, columns):
        np.testing.assert_array_equal(pair.asnumpy(), value.asnumpy().reshape(2, 2))
        np.testing.assert_array_equal(column.asnumpy(), value.asnumpy().reshape(4, 1))
