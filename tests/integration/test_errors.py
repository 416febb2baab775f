"""Errors name the block and the user's line, and leave nothing broken behind.

Every test here ends in the fixture `aftermath`: hooks gone, no array guarded, and the next
minibatch of another model gives what eager Gluon gives.
"""

import contextlib
import gc
import inspect

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.record import hooks
from gluon_edbatch_core.schedule import Schedule
from gluon_edbatch_core.short_repr import brief
from tests.support.aftermath import assert_hooks_gone, assert_minibatch_right, assert_unguarded
from tests.support.cases import in_one_test
from tests.support.lines import Line
from tests.support.models import dense, rows

pytestmark = pytest.mark.usefixtures('aftermath')


# --- exceptions in the user's code ---------------------------------------------------------------


class Oops(Exception):
    """An error of the user's."""


@in_one_test('error', [Oops, KeyboardInterrupt, SystemExit, GeneratorExit])
@in_one_test('recorded', [False, True])
def test_exception_in_scope(error, recorded):
    net = dense()
    with pytest.raises(error):
        with edb.batching():
            if recorded:
                net(rows(1)[0])
            raise error()
    assert_hooks_gone()
    assert_unguarded(net)
    assert_minibatch_right(net)


def test_exception_under_record_in_scope():
    net = dense()
    with pytest.raises(Oops):
        with autograd.record():
            with edb.batching():
                values = [net(row) for row in rows(3)]
                values[0].asnumpy()
                net(mx.nd.concat(*values[:2], dim=1).slice_axis(axis=1, begin=0, end=4))
                raise Oops
    assert_hooks_gone()
    assert_unguarded(net)
    assert_minibatch_right(net)


def test_record_inside_scope_is_left_by_exception():
    net = dense()
    with pytest.raises(Oops):
        with edb.batching():
            with autograd.record():
                net(rows(1)[0])
                raise Oops
    assert_hooks_gone()
    assert_minibatch_right(net)


def test_exception_in_forward_of_a_mixin_model():
    class Model(edb.AutoBatchMixin, gluon.Block):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.dense = nn.Dense(3, in_units=4)

        def forward(self, sample):
            out = self.dense(sample)
            if sample.shape[0] == 2:
                raise Oops
            return out

    model = Model()
    model.initialize()
    bad = mx.nd.ones((2, 4))
    with pytest.raises(Oops):
        model.batch(rows(3) + [bad])
    assert_hooks_gone()
    with pytest.raises(Oops):
        model(bad)
    assert_hooks_gone()
    expected = [model(row).asnumpy() for row in rows(3)]
    for one, other in zip(model.batch(rows(3)), expected):
        np.testing.assert_allclose(one.asnumpy(), other, rtol=1e-5)


def test_exception_in_inner_scope_leaves_outer_usable():
    net = dense()
    expected = net(rows(1)[0]).asnumpy()
    with edb.batching():
        outer = net(rows(1)[0])
        with pytest.raises(Oops):
            with edb.batching():
                inner = net(rows(2)[1])
                raise Oops
        again = net(rows(1)[0])
        with pytest.raises(edb.StaleValueError):
            inner.asnumpy()
    np.testing.assert_allclose(outer.asnumpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(again.asnumpy(), expected, rtol=1e-6)


def test_stale_inner_value_used_in_outer_call():
    net, line = dense(4), Line()
    with edb.batching():
        before = net(rows(1)[0])
        with pytest.raises(Oops):
            with edb.batching():
                inner = net(rows(1)[0])
                raise Oops
        with pytest.raises(edb.StaleValueError, match='Oops'):
            line.here(), net(inner)
        after = net(before)
    expected = net(net(rows(1)[0])).asnumpy()
    np.testing.assert_allclose(after.asnumpy(), expected, rtol=1e-5)


def test_exception_leaves_both_scopes():
    net = dense()
    with pytest.raises(Oops):
        with edb.batching():
            outer = net(rows(1)[0])
            with edb.batching():
                inner = net(rows(1)[0])
                raise Oops
    assert_hooks_gone()
    assert_unguarded(net)
    for value in (outer, inner):
        with pytest.raises(edb.StaleValueError):
            value.asnumpy()


def test_values_of_inner_scope_feed_the_outer():
    net = dense(4)
    expected = net(net(rows(1)[0])).asnumpy()
    with edb.batching():
        with edb.batching():
            inner = net(rows(1)[0])
        outer = net(inner)
    np.testing.assert_allclose(outer.asnumpy(), expected, rtol=1e-5)


def test_outer_value_in_inner_scope():
    net = dense(4)
    expected = net(net(rows(1)[0])).asnumpy()
    with edb.batching():
        outer = net(rows(1)[0])
        with edb.batching():
            inner = net(outer)
    np.testing.assert_allclose(inner.asnumpy(), expected, rtol=1e-5)


@in_one_test(
    'use',
    [
        lambda value: value.asnumpy(),
        lambda value: value + 1,
        lambda value: value.reshape((-1,)),
        lambda value: value.asscalar(),
        bool,
        lambda value: value[0],
        lambda value: value.wait_to_read(),
        lambda value: edb.forward([value]),
        lambda value: edb.stack([value, value]),
        lambda value: edb.concat([value]),
        lambda value: edb.add_n([value]),
        lambda value: value.backward(),
        lambda value: mx.nd.tanh(value),
        lambda value: value.sum(),
        lambda value: value.copyto(mx.cpu()),
        lambda value: value.as_in_context(mx.cpu(1)),
    ],
)
def test_stale_value(use):
    net = dense(1)
    with pytest.raises(Oops):
        with autograd.record(), edb.batching():
            value = net(rows(1)[0])
            raise Oops
    with pytest.raises(edb.StaleValueError) as info:
        use(value)
    text = str(info.value)
    assert 'Oops' in text and 'batching()' in text and 'record it again' in text
    assert value.shape == (1, 1) and value.dtype == np.float32  # known without running
    repr(value)  # must not raise: debuggers and test runners print it


def test_stale_message_names_the_line_of_the_scope():
    net, line = dense(), Line()
    with pytest.raises(Oops):
        with edb.batching():
            value = net(rows(1)[0])
            line.here()
            raise Oops
    with pytest.raises(edb.StaleValueError) as info:
        value.asnumpy()
    assert __file__ in str(info.value)


def test_value_computed_before_the_exception():
    """The value either stays readable, or the error says why it does not."""
    net = dense()
    with pytest.raises(Oops):
        with edb.batching():
            value = net(rows(1)[0])
            expected = value.asnumpy()
            raise Oops
    with contextlib.suppress(edb.StaleValueError):
        np.testing.assert_array_equal(value.asnumpy(), expected)


def test_usable_after_normal_end():
    net = dense()
    expected = net(rows(1)[0]).asnumpy()
    with edb.batching():
        value = net(rows(1)[0])
    assert_hooks_gone()
    for _ in range(2):
        np.testing.assert_allclose(value.asnumpy(), expected, rtol=1e-6)
    np.testing.assert_allclose((value + 1).asnumpy(), expected + 1, rtol=1e-6)


def test_scope_cannot_be_entered_twice():
    scope = edb.batching()
    with scope:
        with pytest.raises(RuntimeError, match='make a new one'):
            scope.__enter__()
    with pytest.raises(RuntimeError, match='make a new one'):
        with scope:
            pass


def test_unknown_scheduler():
    with pytest.raises((ValueError, TypeError), match='agenda'):
        edb.batching('no such scheduler')
    assert_hooks_gone()


def test_scheduler_that_raises():
    class Broken(edb.AgendaScheduler):
        def schedule(self, graph):
            raise Oops('in the scheduler')

    net = dense()
    with edb.batching(Broken()):
        value = net(rows(1)[0])
    with pytest.raises(Oops, match='in the scheduler'):
        value.asnumpy()
    assert_minibatch_right(net)


def test_generator_that_is_dropped_in_the_middle():
    """GeneratorExit leaves the scope like any exception."""
    net = dense()

    def minibatch():
        with edb.batching():
            for row in rows(3):
                yield net(row)

    values = minibatch()
    value = next(values)
    values.close()
    assert_hooks_gone()
    with pytest.raises(edb.StaleValueError):
        value.asnumpy()


# --- an interrupt during evaluation --------------------------------------------------------------


@in_one_test('error', [KeyboardInterrupt, MemoryError])
@in_one_test('when', ['run', 'native', 'schedule', 'origins', 'make_plan', '_fill'])
@in_one_test('inside', [True, False])
def test_interrupt_during_evaluation(monkeypatch, error, when, inside):
    """The scope can be evaluated again after it, or says clearly that it cannot."""
    from gluon_edbatch.execute import evaluate
    from gluon_edbatch.execute.execution_state import ExecutionState
    from gluon_edbatch.execute.native.native_run import NativeRun
    from gluon_edbatch.execute.steps import Step

    net = dense(4)
    expected = net(net(rows(1)[0])).asnumpy()
    calls = []

    def interrupt(*_args, **_kwargs):
        calls.append(1)
        raise error()

    class Interrupted(edb.DepthScheduler):
        interrupted = when == 'schedule'

        def schedule(self, graph):
            if self.interrupted:
                self.interrupted = False
                interrupt()
            return super().schedule(graph)

    def value_of(value):
        with monkeypatch.context() as patch:
            if when in ('run', '_fill'):
                owner = Step if when == 'run' else ExecutionState
                original = getattr(owner, when)

                def second(*args):
                    if when == 'run' and len(calls) < 1:
                        calls.append(0)
                        return original(*args)
                    return interrupt()

                patch.setattr(owner, when, second)
            elif when == 'native':
                for name in ('forward', 'forward_inline'):
                    patch.setattr(NativeRun, name, interrupt)
            elif when != 'schedule':
                patch.setattr(evaluate, when, interrupt)
            with pytest.raises((error, edb.BatchError)):
                value.asnumpy()
        assert calls and calls[-1] == 1

    if when == 'native' and not edb.native_available():
        pytest.skip('there are no native operators')
    # Native operators run everything in one step, so that there is no second.
    with autograd.record(), edb.compile_options(native=when == 'native'):
        if inside:
            with edb.batching(Interrupted()):
                value = net(net(rows(1)[0]))
                value_of(value)
                np.testing.assert_allclose(value.asnumpy(), expected, rtol=1e-5)
                more = net(value)
            np.testing.assert_allclose(
                more.asnumpy(), net(mx.nd.array(expected)).asnumpy(), rtol=1e-5
            )
        else:
            with edb.batching(Interrupted()):
                value = net(net(rows(1)[0]))
            value_of(value)
            np.testing.assert_allclose(value.asnumpy(), expected, rtol=1e-5)
    assert_unguarded(net)
    assert_minibatch_right(net)


# --- refused when recorded, on the user's line ---------------------------------------------------


def test_shape_error_names_block_and_line():
    net, line = dense(in_units=4), Line()
    with edb.batching():
        good = net(rows(1)[0])
        with pytest.raises(edb.RecordError) as info:
            line.here(), net(mx.nd.ones((1, 5)))
    line.assert_in(info, net.name, 'Dense', '5')
    assert good.asnumpy().shape == (1, 3)


def test_shape_error_of_a_lazy_argument():
    net, line = dense(3, in_units=4), Line()
    with edb.batching():
        first = net(rows(1)[0])
        with pytest.raises(edb.RecordError) as info:
            line.here(), net(first)
    line.assert_in(info, net.name)


def test_shape_error_leaving_the_scope():
    net, line = dense(in_units=4), Line()
    with pytest.raises(edb.RecordError) as info:
        with edb.batching():
            value = net(rows(1)[0])
            line.here(), net(mx.nd.ones((1, 5)))
    line.assert_in(info, net.name)
    assert_unguarded(net)
    with pytest.raises(edb.StaleValueError):
        value.asnumpy()


def test_shape_error_in_an_operator():
    line = Line()
    with edb.batching():
        value = dense(3)(rows(1)[0])
        with pytest.raises((edb.RecordError, mx.base.MXNetError)) as info:
            line.here(), value + mx.nd.ones((1, 7))
    line.assert_in(info)


def test_dtype_error_prints_nothing(capfd):
    """MXNet's own inference of dtypes prints its arguments where they do not fit."""
    net = nn.HybridLambda('concat')
    with edb.batching():
        with pytest.raises(edb.RecordError, match='float64'):
            net(mx.nd.ones((1, 2)), mx.nd.ones((1, 2), dtype='float64'))
    assert capfd.readouterr() == ('', '')


def test_shape_error_in_a_sequential_names_it():
    net, line = nn.HybridSequential(), Line()
    net.add(nn.Dense(3, in_units=4), nn.Dense(3, in_units=5))
    net.initialize()
    with edb.batching():
        with pytest.raises(edb.RecordError) as info:
            line.here(), net(rows(1)[0])
    line.assert_in(info, net.name)


def test_line_is_the_users_even_through_library_code():
    """ragged, stack, concat and the cells of edb.rnn are no user code."""
    cell, line = edb.rnn.ChildSumTreeLSTMCell(3, input_size=4), Line()
    cell.initialize()
    with edb.batching():
        with pytest.raises(edb.RecordError) as info:
            line.here(), cell(mx.nd.ones((1, 9)), [])
    line.assert_in(info, cell.name)


@pytest.mark.parametrize(
    'function',
    [
        lambda a, b: edb.stack([a, b]),
        lambda a, b: edb.concat([a, b]),
        lambda a, b: edb.add_n([a, b]),
        lambda a, b: edb.ragged([a, b]),
    ],
    ids=['stack', 'concat', 'add_n', 'ragged'],
)
def test_functions_of_unequal_shapes(function):
    line = Line()
    with edb.batching():
        one, other = dense(3)(rows(1)[0]), dense(2)(rows(1)[0])

        def user():
            line.here(), function(one, other)

        with pytest.raises((edb.RecordError, mx.base.MXNetError)) as info:
            user()
    assert __file__ in str(info.value)


@in_one_test(
    'argument',
    ['a string', object(), None, 1j, [], {}, b'bytes', slice(2), [[]], set(), lambda: None],
    ids=lambda value: type(value).__name__,
)
def test_wrong_argument_type(argument):
    net, line = dense(), Line()
    with edb.batching():
        good = net(rows(1)[0])
        with pytest.raises((edb.RecordError, TypeError)) as info:
            line.here(), net(argument)
    line.assert_in(info, net.name)
    assert good.asnumpy().shape == (1, 3)


@pytest.mark.parametrize('arguments', [(), (1, 2), (1, 2, 3)])
def test_wrong_number_of_arguments(arguments):
    net, line = dense(in_units=1), Line()
    with edb.batching():
        with pytest.raises((edb.RecordError, TypeError)) as info:
            line.here(), net(*[mx.nd.ones((1, 1)) for _ in arguments])
    line.assert_in(info, net.name)


def test_numpy_array_of_objects_or_strings():
    net = dense()
    for array in (np.array([['a', 'b']]), np.array([[object()]]), np.ones((1, 4), np.complex64)):
        line = Line()
        with edb.batching():
            with pytest.raises((edb.RecordError, TypeError)) as info:
                line.here(), net(array)
        line.assert_in(info)


def test_missing_initialisation():
    net, line = nn.Dense(3, in_units=4), Line()
    with edb.batching():
        with pytest.raises((edb.RecordError, RuntimeError)) as info:
            line.here(), net(rows(1)[0])
    line.assert_in(info, net.name, 'initialize')
    net.initialize()
    assert_minibatch_right(net)


def test_deferred_initialisation_that_cannot_be_inferred():
    class Odd(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.scale = self.params.get('scale', shape=(0, 0), allow_deferred_init=True)

        def hybrid_forward(self, F, x, scale):
            return x * F.sum(scale)

    net, line = Odd(), Line()
    net.initialize()
    with edb.batching():
        with pytest.raises(edb.RecordError) as info:
            line.here(), net(rows(1)[0])
    line.assert_in(info, net.name)


def test_deferred_initialisation_is_finished():
    net = nn.Dense(3)
    net.initialize()
    assert_minibatch_right(net)
    assert net.weight.shape == (3, 4)


def test_arrays_on_different_contexts():
    class Add(gluon.HybridBlock):
        def hybrid_forward(self, F, x, y):
            return x + y

    net, line = Add(), Line()
    with edb.batching():
        with pytest.raises(edb.RecordError) as info:
            line.here(), net(mx.nd.ones((1, 4), ctx=mx.cpu(0)), mx.nd.ones((1, 4), ctx=mx.cpu(1)))
    line.assert_in(info, net.name, 'cpu(0)', 'cpu(1)')


def test_operator_on_different_contexts():
    line = Line()
    with edb.batching():
        value = dense()(rows(1)[0])
        with pytest.raises(edb.RecordError) as info:
            line.here(), value + mx.nd.ones((1, 3), ctx=mx.cpu(1))
    line.assert_in(info, 'cpu(0)', 'cpu(1)')


def test_parameters_on_another_context():
    net, line = dense(), Line()
    with edb.batching():
        with pytest.raises(edb.RecordError) as info:
            line.here(), net(mx.nd.ones((1, 4), ctx=mx.cpu(1)))
    line.assert_in(info, net.name, 'cpu(1)')


def test_whole_model_on_another_context():
    net = nn.Dense(3, in_units=4)
    net.initialize(ctx=mx.cpu(1))
    samples = [row.as_in_context(mx.cpu(1)) for row in rows(4)]
    with edb.batching():
        values = [net(row) for row in samples] + [net(np.ones((1, 4), np.float32))]
    for value, row in zip(values, samples + [mx.nd.ones((1, 4), ctx=mx.cpu(1))]):
        assert value.ctx == mx.cpu(1) and value.asnumpy().shape == (1, 3)
        np.testing.assert_allclose(value.asnumpy(), net(row).asnumpy(), rtol=1e-5)
        assert value.evaluated().ctx == mx.cpu(1)
    assert_minibatch_right(net, samples)


@pytest.mark.parametrize(
    'parameters, data',
    [('float32', 'float64'), ('float64', 'float32'), ('float32', 'float16'), ('float32', 'int32')],
)
def test_mixed_dtypes(parameters, data):
    net, line = dense(), Line()
    net.cast(parameters)
    with edb.batching():
        with pytest.raises(edb.RecordError) as info:
            line.here(), net(mx.nd.ones((1, 4), dtype=data))
    line.assert_in(info, net.name, parameters, data)


def test_mixed_dtypes_in_an_operator():
    line = Line()
    with edb.batching():
        value = dense()(rows(1)[0])
        with pytest.raises(edb.RecordError) as info:
            line.here(), value + mx.nd.ones((1, 3), dtype='float64')
    line.assert_in(info, 'float32', 'float64')


def test_float64_model():
    net = dense()
    net.cast('float64')
    assert_minibatch_right(net, [row.astype('float64') for row in rows(4)])


@pytest.mark.parametrize(
    'number',
    [2**24 + 1, -(2**24) - 1, 2**53 + 1, 2**70 + 1, 10**400],
    ids=['2^24+1', '-2^24-1', '2^53+1', '2^70+1', '10^400'],
)
def test_integer_too_large_for_float32(number):
    net, line = nn.Embedding(5, 3), Line()
    net.initialize()
    with pytest.raises((edb.EdbError, ValueError, OverflowError)) as info:
        with edb.batching():
            line.here(), net(number).asnumpy()
    line.assert_in(info)


def test_integer_too_large_for_float32_as_a_later_evaluation():
    net, line = nn.Embedding(5, 3), Line()
    net.initialize()
    try:
        with edb.batching():
            good = net(1)
            line.here(), net(2**24 + 1)
    except (edb.EdbError, ValueError) as error:
        assert line.site in str(error)
        return
    with pytest.raises((edb.EdbError, ValueError)) as info:
        good.asnumpy()
    line.assert_in(info, str(2**24 + 1))
    gc.collect()


@pytest.mark.parametrize('shape', [(0, 4), (1, 0), (0,)])
@pytest.mark.parametrize('make', [np.ones, mx.nd.zeros], ids=['numpy', 'nd'])
def test_empty_arrays(shape, make):
    net, line = dense(in_units=4), Line()
    with edb.batching():
        with pytest.raises((edb.RecordError, ValueError)) as info:
            try:
                array = make(shape)
            except Exception:
                pytest.skip('MXNet has no such array')
            line.here(), net(array)
    line.assert_in(info)


@pytest.mark.parametrize('function', [edb.stack, edb.concat, edb.add_n])
def test_functions_of_nothing(function):
    with pytest.raises(edb.RecordError, match='no values'):
        function([])
    with edb.batching():
        with pytest.raises(edb.RecordError, match='no values'):
            function([])
        with pytest.raises((TypeError, edb.RecordError)):
            function(['a string'])


def test_ragged_of_nothing_needs_a_shape():
    line = Line()
    with edb.batching():
        with pytest.raises(edb.RecordError) as info:
            line.here(), edb.ragged([])
    line.assert_in(info, 'shape')


def test_sparse_array():
    net, line = dense(), Line()
    with edb.batching():
        with pytest.raises(edb.RecordError) as info:
            line.here(), net(mx.nd.ones((1, 4)).tostype('csr'))
    line.assert_in(info, 'csr', 'tostype')


# --- autograd ------------------------------------------------------------------------------------


def test_a_condition_in_hybrid_forward():
    class Condition(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            if x.sum() > 0:
                within.here()
            return x

    net, line, within = Condition(), Line(), Line()
    within.site = f'{__file__}:{inspect.getsourcelines(Condition)[1] + 2}'
    with edb.batching():
        with pytest.raises(edb.RecordError) as info:
            line.here(), net(rows(1)[0])
    line.assert_in(info, net.name, 'F.where')
    within.assert_in(info, 'gluon.Block')


def test_forgotten_record():
    net, line = dense(), Line()
    with edb.batching():
        value = net(rows(1)[0])
    with pytest.raises(edb.RecordError) as info:
        line.here(), value.backward()
    line.assert_in(info, 'with autograd.record():')


def test_nothing_has_a_gradient():
    line = Line()
    with autograd.record(), edb.batching():
        value = edb.nd.tanh(rows(1)[0])
    with pytest.raises(edb.RecordError) as info:
        line.here(), value.backward()
    line.assert_in(info, 'attach_grad()')


def test_second_derivatives():
    net, line, sample = dense(), Line(), rows(1)[0]
    sample.attach_grad()
    with autograd.record():
        with edb.batching():
            value = net(sample)
            with pytest.raises(edb.RecordError) as info:
                line.here(), autograd.grad(value, sample, create_graph=True)
            (first,) = autograd.grad(value, sample, retain_graph=True)
        line.assert_in(info, 'second derivatives')
        np.testing.assert_allclose(
            first.asnumpy(), net.weight.data().asnumpy().sum(axis=0, keepdims=True), rtol=1e-5
        )
        value = edb.stack([value])
        (gradient,) = autograd.grad(value, sample, create_graph=True)
        penalty = (gradient**2).sum() + value.sum()
    with pytest.raises(mx.base.MXNetError):  # not as if the gradient were a constant
        penalty.backward()


# --- errors while a batch runs -------------------------------------------------------------------


def test_failure_in_the_middle_of_a_batch(monkeypatch):
    """What MXNet refuses at run time is reported with type, number of calls and lines."""
    from gluon_edbatch.execute.cached import cached_backend

    net, other, line = dense(4), dense(2, prefix='failing_'), Line()
    original = cached_backend.program_for

    def broken(node_type, *how):
        program = original(node_type, *how)
        if 'failing' not in node_type.name:
            return program

        def call(*_args, **_kwargs):
            raise mx.base.MXNetError('Check failed: out of luck')

        return program._replace(call=call)

    monkeypatch.setattr(cached_backend, 'program_for', broken)
    with autograd.record(), edb.compile_options(native=False), edb.batching():
        good = [net(row) for row in rows(3)]
        bad = [(line.here(), other(value))[1] for value in good]
    with pytest.raises(edb.BatchError) as info:
        bad[0].asnumpy()
    line.assert_in(info, 'failing', '3 calls', 'out of luck')
    np.testing.assert_allclose(edb.forward(good)[0].asnumpy(), net(rows(1)[0]).asnumpy(), rtol=1e-6)
    monkeypatch.undo()  # a second try, once the cause is gone
    np.testing.assert_allclose(bad[0].asnumpy(), other(net(rows(1)[0])).asnumpy(), rtol=1e-5)
    assert_unguarded(net, other)


def test_index_out_of_range_is_as_in_eager():
    """Embedding clips on CPU; both do the same, whatever that is."""
    net = nn.Embedding(3, 2)
    net.initialize()
    expected = net(mx.nd.array([7])).asnumpy()
    with edb.batching():
        value = net(7)
    np.testing.assert_array_equal(value.asnumpy(), expected)


def test_error_in_backward_is_raised_not_swallowed(monkeypatch):
    from gluon_edbatch.execute import backward

    net = dense()

    def broken(*_args):
        raise Oops('in backward')

    with autograd.record():
        with edb.batching():
            values = [net(row) for row in rows(3)]
        loss = edb.stack(values).sum()
    with monkeypatch.context() as patch:
        patch.setattr(backward.BackwardPass, '_run', broken)
        with pytest.raises(mx.base.MXNetError):
            loss.backward()
            net.weight.grad().asnumpy()
    with contextlib.suppress(mx.base.MXNetError):
        mx.nd.waitall()
    fresh = dense()  # the gradient buffers of `net` may hold the failure
    assert_minibatch_right(fresh)


def test_many_failures_in_a_row():
    """Nothing adds up: after 200 failed scopes the process is as before."""
    net = dense()
    for number in range(200):
        with pytest.raises((Oops, edb.RecordError)):
            with edb.batching():
                net(rows(1)[0])
                if number % 2:
                    raise Oops
                net(mx.nd.ones((1, 5)))
    assert_hooks_gone()
    assert_unguarded(net)
    assert not hooks._owners
    assert_minibatch_right(net)


# --- arguments that are no arrays: in the user's terms -------------------------------------------


class PerSample(edb.AutoBatchMixin, gluon.Block):
    """A model for one sample, whose Dense is called on `line`."""

    def __init__(self):
        super().__init__()
        self.line = Line()
        with self.name_scope():
            self.dense = nn.Dense(3, in_units=4)

    def forward(self, x):
        return self.line.here(), self.dense(x)


class Sample:
    """Some object of the user's."""


NO_ARRAYS = {
    'nested list': (
        [[1.0, 2.0, 3.0, 4.0], [5, 6, 7, 8]],
        ['x is a nested list of 8 numbers', "numpy.array(..., 'float32')"],
    ),
    'flat list': ([1.0, 2.0, 3.0, 4.0], ['x is a list of 4 numbers', 'axis 0 has a row']),
    'long list': (list(range(10000)), ['x is a list of 10000 numbers']),
    'arrays': (rows(3), ['x is a list of 3 arrays', 'gluon_edbatch.stack or concat']),
    'tuple of NumPy arrays': ((np.ones((1, 4)),) * 2, ['x is a tuple of 2 arrays']),
    'string': ('word ' * 1000, ["x is the string 'word word", 'vocabulary', '...']),
    'strings': (['one', 'two'], ["x is a list that holds the string 'one'", 'vocabulary']),
    'None': (None, ['x is None', 'array of zeros']),
    'bool': (True, ['x is True', 'int(True)']),
    'object': (Sample(), ['of the class Sample', 'forward() of a Block with AutoBatchMixin']),
}


@in_one_test('name', NO_ARRAYS)
@in_one_test('eager', [False, True])
def test_no_array_is_named_with_what_to_write(name, eager):
    """Inside a scope and, in a model with the mixin, outside."""
    argument, words = NO_ARRAYS[name]
    net = PerSample()
    net.initialize()
    with pytest.raises(TypeError if eager else edb.RecordError) as info:
        if eager:
            net(argument)
        else:
            with edb.batching():
                net(argument)
    net.line.assert_in(info, f'Dense({net.dense.name}) takes arrays and numbers, but ', *words)
    assert len(str(info.value)) < 800


@pytest.mark.parametrize('eager', [False, True])
@pytest.mark.parametrize(
    'samples', [rows(3), [[1.0, 2.0, 3.0, 4.0]] * 500], ids=['arrays', 'lists']
)
def test_list_of_samples_to_a_model(samples, eager):
    net, line = PerSample(), Line()
    net.initialize()
    with pytest.raises((TypeError, edb.RecordError)) as info:
        if eager:
            line.here(), net(samples)
        else:
            with edb.batching():
                line.here(), net(samples)
    line.assert_in(info, f'PerSample({net.name}) was called with at', 'write net.batch(samples)')
    assert len(str(info.value)) < 800


def test_other_errors_of_an_eager_model_are_as_they_were():
    net = PerSample()
    net.initialize()
    with pytest.raises(mx.base.MXNetError):
        net(mx.nd.ones((1, 5)))[1].asnumpy()
    with pytest.raises(TypeError, match='positional argument'):
        net()


@in_one_test(
    'call, words',
    [
        (lambda x: edb.nd.tanh(None), ['edb.nd.tanh', 'argument 1 is None']),
        (lambda x: edb.nd.dot(x, [1, 2]), ['edb.nd.dot', 'argument 2 is a list of 2 numbers']),
        (lambda x: edb.nd.dot(x, [1] * 10000), ['argument 2 is a list of 10000 numbers']),
        (lambda x: edb.nd.concat(x, 'word'), ['edb.nd.concat', "argument 2 is the string 'word'"]),
        (lambda x: edb.ragged([x, 'word']), ["ragged() takes arrays, not 'word'"]),
        (lambda x: gluon.loss.L2Loss()(x, None), ['L2Loss', 'label is None']),
        (lambda x: gluon.loss.L2Loss()(x, 'word'), ['L2Loss', "label is the string 'word'"]),
        (
            lambda x: edb.rnn.ChildSumTreeLSTMCell(3)(x, None),
            ['takes a list of children, [] for none, not None'],
        ),
        (lambda x: edb.rnn.TreeGRUCell(3)('word', []), ["x is the string 'word'"]),
    ],
)
def test_no_array_to_an_operator_or_a_cell(call, words):
    line = Line()
    line.site = f'{__file__}:{call.__code__.co_firstlineno}'
    with edb.batching():
        value = dense()(rows(1)[0])
        with pytest.raises(edb.RecordError) as info:
            call(value)
    line.assert_in(info, *words)


@pytest.mark.parametrize('argument', ['word', None, [1.0, 2.0]])
def test_containers_that_are_right_are_not_blamed(argument):
    """States of a recurrent cell are a list of arrays."""
    cell, line = gluon.rnn.LSTMCell(3, input_size=4), Line()
    cell.initialize()
    with edb.batching():
        with pytest.raises(edb.RecordError) as info:
            line.here(), cell(argument, cell.begin_state(1))
    line.assert_in(info, 'LSTMCell', 'inputs is ')
    assert ('states' in str(info.value)) is isinstance(argument, list)  # which of two lists?


def test_what_the_users_own_code_said_is_in_the_message():
    class Odd(gluon.HybridBlock):
        def hybrid_forward(self, F, states):
            return states.shape

    with edb.batching():
        with pytest.raises(
            edb.RecordError,
            match="AttributeError: 'list' object has no attribute 'shape'\n  called at ",
        ):
            Odd()(rows(2))


def test_none_where_it_is_meant_is_not_blamed():
    """An optional argument that is not given is no reason for an error of another kind."""

    class Optional(gluon.HybridBlock):
        def hybrid_forward(self, F, x, bias=None):
            if bias is not None:
                x = x + bias
            raise Oops(x)

    with edb.batching():
        with pytest.raises(edb.RecordError) as info:
            Optional()(rows(1)[0], None)
    assert 'None' not in str(info.value) and 'Oops' in str(info.value)


def test_brief():
    with edb.batching():
        value = dense()(rows(1)[0])
    assert brief(value) == 'float32(1, 3)'
    assert brief([value] * 9) == '[' + 'float32(1, 3), ' * 3 + '...]'
    assert brief({'a': (np.ones(2, 'int32'),)}) == "{'a': (int32(2,),)}"
    assert len(brief('x' * 10**6)) <= 62 and len(brief([[['x' * 99] * 99] * 99] * 99)) < 2000
    edb.forward(value)


# --- schedulers of users -------------------------------------------------------------------------


class Reckless:
    """Runs all calls of a type at once, whoever reads whom."""

    name = 'reckless'

    def schedule(self, graph):
        return Schedule.from_batches(
            [np.flatnonzero(graph.types == kind) for kind in np.unique(graph.types)]
        )


@pytest.mark.parametrize('wrapped', [False, True])
def test_a_wrong_schedule_is_refused(wrapped):
    net = dense(4)
    with edb.batching('agenda'):  # verified, so that batches are not compared any more
        edb.forward([net(row) for row in rows(2)])
    with edb.batching(edb.CachedScheduler(Reckless()) if wrapped else Reckless()):
        value = net(net(rows(1)[0]))
    with pytest.raises(edb.BatchError, match='wrong schedule: node 1 runs in batch 0 and reads'):
        value.asnumpy()


def test_what_failed_in_the_engine_is_heard_in_training():
    """Tapes are freed after waiting for all: MXNet raises an error once, to whoever waits. That
    may be for something else, as its engine runs neighbouring operators as one."""
    net = dense()

    def step():
        with autograd.record(), edb.batching():
            loss = edb.stack([net(x) for x in rows(3)])
        loss.backward()

    for _ in range(4):
        step()
    mx.nd.random.normal(0, -1, (2, 2))
    with pytest.raises(mx.MXNetError, match='has to be positive'):
        step()
        mx.nd.waitall()


class Forgetful(edb.AutoBatchMixin, gluon.Block):
    """Reads an attribute that its sample lacks."""

    def forward(self, sample):
        """Read it."""
        return sample.children


@in_one_test('eager', [False, True])
def test_an_error_of_the_users_own_code_is_as_it_was(eager):
    """Errors of a missing attribute resemble those of blocks that are given what is no array."""
    with pytest.raises(AttributeError, match=r"'Line' object has no attribute 'children'"):
        with contextlib.nullcontext() if eager else edb.batching():
            Forgetful()(Line())
