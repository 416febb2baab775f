"""Writing to lazy values is as in eager Gluon for all who hold them, or an error."""

import operator
import re
from contextlib import nullcontext

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mxnet import autograd
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.record.hooks import current_recording
from tests.support.cases import in_one_test


@pytest.fixture(name='net', scope='module')
def make_net():
    """A Dense of which calls can follow each other."""
    mx.random.seed(3)
    net = nn.Dense(4, in_units=4, activation='tanh')
    net.initialize(mx.init.Normal(0.5))
    return net


def row(seed, count=1):
    """A sample."""
    return mx.nd.array(np.random.RandomState(seed).randn(count, 4))


AUGMENTED = {
    '+=': operator.iadd,
    '-=': operator.isub,
    '*=': operator.imul,
    '/=': operator.itruediv,
    '%=': operator.imod,
}


def augment(name, value, other):
    """An augmented assignment of Python; the object stays the same."""
    assert AUGMENTED[name](value, other) is value


def augmented(name, other):
    """Apply an augmented operator to any arguments."""
    return lambda value: augment(name, value, other)


def assigned(key, new):
    """An assignment to a part; `new` may depend on what is written to."""

    def write(value):
        value[key] = new(value) if callable(new) else new

    return write


WRITES = {
    **{
        f'{name} {kind}': augmented(name, other)
        for name in ('+=', '-=', '*=', '/=', '%=')
        for kind, other in (
            ('number', 1.5),
            ('NumPy number', np.float32(1.5)),
            ('array', row(7, 2)),
            ('one row', row(8)),
        )
    },
    '-= itself': lambda value: augment('-=', value, value),
    '*= another value': lambda value: augment('*=', value, value + 1),
    'all = number': assigned(slice(None), 3),
    'all = array': assigned(slice(None), row(7, 2)),
    'all = one row': assigned(slice(None), row(7)),
    'all = bool': assigned(slice(None), True),
    'all = NumPy': assigned(slice(None), np.ones((2, 4))),
    'all = value': assigned(slice(None), lambda value: value * 2),
    'ellipsis': assigned(Ellipsis, 4),
    'row': assigned(0, 5),
    'last row': assigned(-1, row(7)[0]),
    'rows': assigned(slice(0, 1), row(7)),
    'column': assigned((slice(None), 1), 7),
    'columns': assigned((slice(None), slice(1, 3)), lambda value: value[:, 0:2] * 2),
    'columns backwards': assigned((slice(None), slice(None, None, -1)), row(7, 2)),
    'element': assigned((1, 2), 9),
    'list of columns': assigned((slice(None), [0, 2]), 5),
    'list': assigned(0, [1, 2, 3, 4]),
    'array of indices': assigned(mx.nd.array([1]), row(7)),
    'rows, read and written': assigned(slice(0, 1), lambda value: value[0:1] * 2),
    'out': lambda value: mx.nd.exp(row(7, 2), out=value),
    'out of itself': lambda value: mx.nd.exp(value, out=value),
    'out of no array': lambda value: mx.nd.ones((2, 4), out=value),
    'random': lambda value: mx.nd.random.uniform(3, 3, out=value),
    'copyto of an array': lambda value: row(7, 2).copyto(value),
    'copyto of a value': lambda value: (value * 3).copyto(value),
    'copyto with a cast': lambda value: value.astype('float64').copyto(value),
    'after a look': lambda value: (value.asnumpy(), augment('*=', value, 2)),
    'after a temporary view': lambda value: (value[0:1].sum(), augment('*=', value, 2)),
    'twice': lambda value: (augment('*=', value, 2), assigned(0, 3)(value)),
    'DLPack': lambda value: (value.to_dlpack_for_write(), augment('*=', value, 2)),
}


def outcome(net, write, scope, inside, record):
    """The contents of written values, of an alias, of what read them before, and of what reads
    them then."""
    with autograd.record() if record else nullcontext():
        with scope():
            hidden = [net(row(seed, 2)) for seed in range(3)]
            same, before = list(hidden), [net(value) for value in hidden]
            if inside:
                with autograd.pause():
                    for value in hidden:
                        write(value)
            after = [net(value) for value in hidden]
        if not inside:
            with autograd.pause():
                for value in hidden:
                    write(value)
                after = [net(value) for value in hidden]
    assert all(value.shape == (2, 4) for value in hidden)
    return [value.asnumpy() for value in hidden + same + before + after]


@pytest.mark.parametrize('record', [False, True], ids=['', 'record'])
@pytest.mark.parametrize('inside', [True, False], ids=['in', 'after'])
@in_one_test('name', WRITES)
def test_writing(net, name, inside, record):
    write = WRITES[name]
    expected = outcome(net, write, nullcontext, inside, record)
    for native in (True, False):
        with edb.compile_options(native=native):
            found = outcome(net, write, edb.batching, inside, record)
        for one, other in zip(found, expected):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@in_one_test(
    'name',
    [
        '+= number',
        '*= one row',
        'all = number',
        'column',
        'out of itself',
        'copyto of a value',
        'all = NumPy',
    ],
)
def test_writing_in_a_scope_without_autograd_evaluates_nothing(net, name):
    with edb.batching() as scope:
        hidden = [net(row(seed, 2)) for seed in range(3)]
        for value in hidden:
            WRITES[name](value)
        after = [net(value) for value in hidden]
        forced = len(scope.report().forced)
    edb.forward(after)
    assert not forced
    if name not in ('all = number', 'all = NumPy'):
        assert max(count.plan.groups[0].rows[0] for count in scope._recording.evaluator.counts) == 6


@in_one_test('scope', [nullcontext, edb.batching])
@in_one_test('name', ['+= number', 'all = number', 'column', 'out of itself'])
def test_writing_under_record_is_refused(net, scope, name):
    """MXNet refuses to write to what is on the tape, and allows what is not."""
    with autograd.record():
        with scope():
            value, free = net(row(0, 2)), mx.nd.tanh(row(0, 2))
            with pytest.raises((edb.RecordError, mx.base.MXNetError)) as info:
                WRITES[name](value)
            WRITES[name](free)
    if scope is edb.batching:
        assert re.search(r'test_writing.py:\d+ writes to a value', str(info.value))
        assert 'autograd.record()' in str(info.value) and 'h = h * 2' in str(info.value)


def test_what_is_free_of_gradients_can_be_written_to_under_record(net):
    found = []
    for scope in (nullcontext, edb.batching):
        with autograd.record():
            with scope():
                free = edb.nd.tanh(row(0))
                free *= 2
                result = net(free)
            result.sum().backward()
        found.append((result.asnumpy(), net.weight.grad().asnumpy()))
    for one, other in zip(*found):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


VIEWS = {
    'row': lambda h: h[0],
    'slice': lambda h: h[0:1],
    'reshape': lambda h: h.reshape((-1,)),
    'detach': lambda h: h.detach(),
    'of a view': lambda h: h[0:1].reshape((4,)),
    'iteration': lambda h: next(iter(h)),
    'columns of a row': lambda h: h[0, 1:3],
    'element': lambda h: h[1, 2],
    'new axis': lambda h: h[:, None],
    'one of two': lambda h: h[::2],
}
COPIES = {
    'columns': lambda h: h[:, 1:3],
    'step': lambda h: h[:, ::2],
    'copy': lambda h: h.copy(),
    'backwards': lambda h: h[::-1],
    'operator': lambda h: mx.nd.reshape(h, (-1,)),
    'list': lambda h: h[[0]],
    'flatten': lambda h: h.flatten(),
    'T': lambda h: h.T,
    'expand_dims': lambda h: h.expand_dims(0),
    'slice_axis': lambda h: h.slice_axis(0, 0, 1),
}


@in_one_test('of_view', [False, True], ids=['the value', 'the view'])
@in_one_test('inside', [True, False], ids=['in', 'after'])
@in_one_test('name', [*VIEWS, *COPIES])
def test_views(net, name, inside, of_view):
    """In eager Gluon a view and what it is of change together. So they do here, or writing is
    refused; copies do not matter."""

    def run(scope):
        with scope():
            value = net(row(0, 2))
            if inside:
                view = {**VIEWS, **COPIES}[name](value)
                written = view if of_view else value
                written *= 3
        if not inside:
            view = {**VIEWS, **COPIES}[name](value)
            written = view if of_view else value
            written *= 3
        return value.asnumpy(), view.asnumpy()

    expected = run(nullcontext)
    if inside and name in VIEWS:
        with pytest.raises(edb.RecordError, match=r'test_writing.py:\d+ writes .* a view'):
            run(edb.batching)
        return
    for one, other in zip(run(edb.batching), expected):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@pytest.mark.parametrize('rows', [2, 4])  # slices join what reads them, if rows differ
def test_a_view_that_is_gone_does_not_matter(net, rows):
    with edb.batching():
        net(row(0, 2))[0:1]
    with edb.batching():
        value = net(row(0, rows))
        view = value[0:1]
        with pytest.raises(edb.RecordError):
            value *= 2
        del view
        value *= 2
        last = (value * 1)[0:1]
        last *= 2
    expected = net(row(0, rows)).asnumpy()
    np.testing.assert_allclose(value.asnumpy(), expected * 2, rtol=1e-5)
    np.testing.assert_allclose(last.asnumpy(), expected[0:1] * 4, rtol=1e-5)


@pytest.mark.parametrize('inside', [True, False], ids=['in', 'after'])
def test_what_forward_gave_can_be_written_to(net, inside):
    def run(scope):
        with scope():
            value = net(row(0))
            reads = net(value)
            if inside:
                given = edb.forward(value)
                given *= 0
                value[0, 1] = 5
        if not inside:
            given = edb.forward(value)  # what reads it is still to be computed
            given *= 0
            value[0, 1] = 5
        return [array.asnumpy() for array in (value, given, reads, net(value))]

    for one, other in zip(run(edb.batching), run(nullcontext)):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_writing_to_a_value_whose_array_forward_gave_out(net):
    with edb.batching():
        value = net(row(0))
    given = edb.forward(value)
    with pytest.raises(edb.RecordError, match='forward'):
        value *= 2
    del given
    value *= 2
    np.testing.assert_allclose(value.asnumpy(), net(row(0)).asnumpy() * 2, rtol=1e-5)


@pytest.mark.parametrize('put_together', [edb.stack, edb.concat])
def test_what_was_put_together_is_a_copy(net, put_together):
    with edb.batching():
        values = [net(row(seed)) for seed in range(4)]
    together = put_together(values)
    together *= 0
    for seed, value in enumerate(values):
        np.testing.assert_allclose(value.asnumpy(), net(row(seed)).asnumpy(), rtol=1e-5)
    together = put_together(values).asnumpy()
    values[1] *= 0
    np.testing.assert_array_equal(put_together(values).asnumpy()[1], 0 * together[1])


def test_what_was_stacked_before_keeps_the_old_value(net):
    with edb.batching():
        value = net(row(0))
        ragged, stacked = edb.ragged([value, value]), edb.stack([value])
        value *= 2
        later = edb.ragged([value])
    expected = net(row(0)).asnumpy()
    np.testing.assert_allclose(ragged.asnumpy()[0, 1], expected[0], rtol=1e-5)
    np.testing.assert_allclose(stacked.asnumpy()[0], expected, rtol=1e-5)
    np.testing.assert_allclose(later.asnumpy()[:, 0], expected * 2, rtol=1e-5)


def test_ragged_values_cannot_be_written_to_in_their_scope(net):
    with edb.batching():
        ragged = edb.ragged([net(row(0)), net(row(1))])
        for write in (WRITES['+= number'], lambda r: r.attach_grad(), WRITES['all = number']):
            with pytest.raises(edb.RecordError, match=r'test_writing.py:\d+ .* ragged'):
                write(ragged)
        lengths = ragged.lengths
        with pytest.raises(edb.RecordError, match='cannot be written to'):
            lengths += 1
    assert lengths.asscalar() == ragged.lengths.asscalar() == 2
    ragged *= 0
    assert not ragged.asnumpy().any()


def test_ragged_values_of_arrays_outlive_the_scope():
    array = row(0)
    with edb.batching():
        ragged, total = edb.ragged([array, array.asnumpy()]), edb.nd.sum(array)
        lengths = ragged.lengths
        array[:] = 0
    total.asnumpy()
    expected = np.stack([row(0).asnumpy()] * 2, axis=1)
    np.testing.assert_array_equal(ragged.asnumpy(), expected)
    assert lengths.asscalar() == ragged.lengths.asscalar() == 2


@in_one_test(
    'wrong',
    [
        lambda h: augment('+=', h, row(0, 3)),
        lambda h: augment('+=', h, mx.nd.ones((2, 5))),
        lambda h: assigned(slice(None), mx.nd.ones((2, 5)))(h),
        lambda h: augment('*=', h, mx.nd.ones((2, 4), dtype='float64')),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(net, wrong):
    with edb.batching():
        value = net(row(0, 2))
        with pytest.raises((mx.base.MXNetError, ValueError)):
            wrong(value)
    np.testing.assert_allclose(value.asnumpy(), net(row(0, 2)).asnumpy(), rtol=1e-5)


def test_a_written_value_in_other_scopes(net):
    """After its scope it is an array like any other: recorded calls take it as it then is."""
    with edb.batching():
        value = net(row(0))
    value *= 2
    expected = value.asnumpy()
    with edb.batching():
        first = net(value)
        value[:] = 1
        second, third = net(value), net(edb.concat([value, value]))
        fourth = net(value + 1)
    for found, argument in (
        (first, expected),
        (second, np.ones((1, 4))),
        (third, np.ones((2, 4))),
        (fourth, np.full((1, 4), 2)),
    ):
        np.testing.assert_allclose(found.asnumpy(), net(mx.nd.array(argument)).asnumpy(), rtol=1e-5)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                'call',
                'write',
                'assign',
                'copy',
                'alias',
                'view',
                'forget',
                'look',
                'out',
                'stack',
                'leave',
                'enter',
            ]
        ),
        st.integers(0, 9),
        st.integers(0, 9),
    ),
    max_size=20,
)


@pytest.mark.filterwarnings('ignore:You are attempting to copy an array to itself')
@given(steps=STEPS)
def test_programs_that_write(net, steps):
    """Any program gives what it gives eagerly, as far as it goes without a refusal."""
    found, made = run_program(net, steps, True)
    expected, made_eagerly = run_program(net, steps[:made], False)
    assert made_eagerly == made and len(found) == len(expected)
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def run_program(net, steps, batched):
    """Contents of all arrays in the end, and how many steps were made before a refusal."""
    scope = edb.batching().__enter__() if batched else None
    made = 0
    try:
        arrays = [net(row(0)), net(row(1)), row(2)]
        for kind, one, other in steps:
            if kind in ('leave', 'enter'):
                if batched and kind == 'leave' and scope is not None:
                    scope.__exit__(None, None, None)
                    scope = None
                elif batched and kind == 'enter' and scope is None:
                    scope = edb.batching().__enter__()
            else:
                step(net, arrays, kind, one % len(arrays), other % len(arrays))
            made += 1
    except edb.RecordError as error:
        assert 'test_writing.py' in str(error)
    finally:
        if scope is not None:
            scope.__exit__(None, None, None)
    return [array.asnumpy() for array in arrays], made


def step(net, arrays, kind, one, other):
    """One step of such a program."""
    array = arrays[one]
    if kind == 'call':
        arrays.append(net(array))
    elif kind == 'write':
        array *= 0.5
        array += arrays[other]
    elif kind == 'assign':
        new = arrays[other]
        if isinstance(new, edb.LazyArray) and not isinstance(array, edb.LazyArray):
            new = new.evaluated()  # MXNet assigns only arrays of its own class
        array[:, 1:3] = new[:, 0:2] * 2
    elif kind == 'copy':
        arrays[other].copyto(array)
    elif kind == 'alias':
        arrays.append(array)
    elif kind == 'view':
        arrays.append(array[0:1] if other % 2 else array.reshape((1, 4)))
    elif kind == 'forget' and len(arrays) > 2:
        del arrays[one]
    elif kind == 'look':
        array.asnumpy()
    elif kind == 'out':
        if current_recording() is None:  # out= is not seen after the scope (see docs/semantics.md)
            array[:] = mx.nd.tanh(arrays[other])
        else:
            mx.nd.tanh(arrays[other], out=array)
    elif kind == 'stack':
        arrays.append(edb.stack([array, arrays[other]]).mean(axis=0))


@pytest.mark.parametrize('rows', [2, 4])  # operators wait for what reads them, if rows differ
def test_a_copy_does_not_change_with_what_it_is_of(net, rows):
    with edb.batching():
        net(row(0, 2)).transpose()
    with edb.batching():
        value = net(row(0, rows))
        turned = value.transpose()
        value *= 3
    np.testing.assert_allclose(turned.asnumpy(), net(row(0, rows)).asnumpy().T, rtol=1e-5)
