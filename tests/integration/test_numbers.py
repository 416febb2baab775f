"""Numbers among the attributes of operators: those that vary from sample to sample are data, so
that calls with different ones share a batch, and give what eager Gluon gives."""

import gc
import operator
import random
import weakref
from contextlib import nullcontext
from itertools import product

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet import autograd, gluon

import gluon_edbatch as edb
from gluon_edbatch.ops.registry import OPS
from gluon_edbatch.record import forms, remembered, scalar_promotion
from gluon_edbatch.record.recording import Recording
from gluon_edbatch.testing import assert_matches_eager
from tests.support import minibatches
from tests.support.cases import in_one_test
from tests.support.models import started
from tests.support.programs import schedulers
from tests.support.tiers import in_turn, sampled, turns

INTERNAL = mx.nd._internal
OPERATORS = {
    '_mul_scalar': operator.mul,
    '_div_scalar': operator.truediv,
    '_plus_scalar': operator.add,
    '_minus_scalar': operator.sub,
    '_rminus_scalar': lambda x, number: number - x,
    '_rdiv_scalar': lambda x, number: number / x,
    '_power_scalar': operator.pow,
    '_rpower_scalar': lambda x, number: number**x,
    '_mod_scalar': operator.mod,
    '_rmod_scalar': lambda x, number: number % x,
    '_hypot_scalar': lambda x, number: INTERNAL._hypot_scalar(x, scalar=number),
    '_maximum_scalar': lambda x, number: edb.nd.maximum(x, number),
    '_minimum_scalar': lambda x, number: mx.nd.minimum(number, x),
    '_equal_scalar': operator.eq,
    '_not_equal_scalar': operator.ne,
    '_greater_scalar': operator.gt,
    '_greater_equal_scalar': operator.ge,
    '_lesser_scalar': operator.lt,
    '_lesser_equal_scalar': operator.le,
    '_logical_and_scalar': lambda x, number: mx.nd.logical_and(x, number),
    '_logical_or_scalar': lambda x, number: mx.nd.logical_or(x, number),
    '_logical_xor_scalar': lambda x, number: mx.nd.logical_xor(x, number),
}
POSITIONS = {
    'index': lambda x, number: x[:, number],
    'index from the end': lambda x, number: x[:, number - x.shape[1]],
    'all axes of one': lambda x, number: x[0, number] if len(x) == 1 else x[:, number],
    'last axis': lambda x, number: x[..., number],
    'slice': lambda x, number: x[:, number : number + 1],
    'slice_axis': lambda x, number: mx.nd.slice_axis(x, axis=-1, begin=number, end=number + 1),
    'by position': lambda x, number: edb.nd.slice_axis(x, 1, number, number + 1),
    'edb.nd.slice_axis': lambda x, number: edb.nd.slice_axis(
        x, axis=1, begin=number - x.shape[1], end=number + 1 if number + 1 < x.shape[1] else None
    ),
}
NUMBERS = [
    *(0.5, 2.0, -1.0, 0.0, -0.0, 3, 0.1, 1e-3, -2.5, 7, 1.0),
    *(float('nan'), float('inf'), -float('inf'), 16777217, 1e10, 1e39, 1 / 3, 1 + 2**-11 + 2**-30),
]
ELEMENTS = [-2, -1, -0.5, -0.0, 0.0, 0.1, 0.5, 1, 2, 3, np.nan, np.inf, -np.inf]


def eager_and_batched(function, arrays, numbers, native, dtype='float32'):
    """For both, values and gradients of the function of each array and number; and the report."""
    found = []
    for batched in (False, True):
        given_arrays = [mx.nd.array(array, dtype=dtype) for array in arrays]
        for array in given_arrays:
            array.attach_grad()
        scope = edb.batching() if batched else nullcontext()
        with autograd.record(), edb.compile_options(native=native):
            with scope:
                results = [
                    function(edb.nd.identity(array) if batched else array * 1, number)
                    for array, number in zip(given_arrays, numbers)
                ]
            results = edb.forward(results) if batched else results
        assert {result.dtype for result in results} == {np.dtype(dtype).type}
        if np.issubdtype(np.dtype(dtype), np.floating):
            autograd.backward(results, [mx.nd.full(y.shape, 1.5, dtype=dtype) for y in results])
        found.append([each.asnumpy() for each in results + [x.grad for x in given_arrays]])
    return (*found, scope.report())


def assert_same(eager, batched, rtol):
    for wanted, got in zip(eager, batched):
        np.testing.assert_allclose(got, wanted, rtol=rtol, atol=rtol)


def arrays_of(shape, dtype, count, elements=ELEMENTS):
    random = np.random.RandomState(0)
    return [random.choice(elements, shape).astype(dtype) for _ in range(count)]


ROUNDED = {'float16': 1e-3, 'float32': 2e-6, 'float64': 1e-15}


def test_every_operator_that_has_a_rule_is_tested():
    ruled = {name for name, op in OPS.items() if op.number}
    numpy = {name for name in ruled if name.startswith('_npi_')}  # see test_numpy_mode.py
    assert ruled - numpy == {*OPERATORS, 'slice_axis'}


@pytest.mark.parametrize('name, dtype, native', sampled(5, OPERATORS, ROUNDED, [False, True]))
def test_numbers_in_arithmetic(name, dtype, native):
    """NaN, infinities, zeros of both signs, ties, what a dtype rounds or cannot hold."""
    rtol = ROUNDED[dtype]
    # MXNet reads attributes with an error in the last place, of which a remainder makes anything.
    numbers = [number for number in NUMBERS if (dtype, number) != ('float64', 1e39)]
    for shape in ((1, 13), (1,), (3, 2), (1, 2, 3)):
        arrays = arrays_of(shape, dtype, len(numbers))
        eager, batched, report = eager_and_batched(OPERATORS[name], arrays, numbers, native, dtype)
        assert_same(eager, batched, rtol)
        assert report.batches <= 3


@in_one_test('name', sorted(OPERATORS.keys() - {'_logical_xor_scalar'}))
def test_numbers_of_whole_numbers(name):
    """MXNet makes whole numbers of them, in a way that is the platform's: each is a constant."""
    arrays, numbers = arrays_of((1, 6), 'int32', 5, [1, 2, 3, 5]), [2, 1, 2.5, 7, 4]
    eager, batched, report = eager_and_batched(OPERATORS[name], arrays, numbers, True, 'int32')
    assert_same(eager, batched, 0)
    assert report.batches == 1 + len(numbers)


DTYPES = ['float16', 'float32', 'float64', 'int32']


@pytest.mark.parametrize('turn', turns(DTYPES))
@in_one_test('number, case', enumerate(product(POSITIONS, [False, True])))
def test_positions(number, case, turn):
    (name, native), (dtype,) = case, in_turn(number, turn, DTYPES)
    numbers = [3, 0, 5, 1, 4, 2, 5, 0]
    for shape in ((1, 6), (1, 6, 6), (2, 6), (2, 6, 2, 6)):
        arrays = arrays_of(shape, dtype, len(numbers), [1, 2, 3, 5, 7, 0])
        eager, batched, report = eager_and_batched(POSITIONS[name], arrays, numbers, native, dtype)
        assert_same(eager, batched, 0)
        assert report.batches <= 4  # identity, a view, all others, and reshape of the results


def test_positions_of_truths():
    """MXNet has slices of arrays of bools, but neither slice_axis nor pick."""
    arrays = arrays_of((1, 3), 'bool', 3, [False, True])
    with edb.batching():
        found = [
            edb.nd.identity(mx.nd.array(array, dtype='bool'))[:, position]
            for position, array in enumerate(arrays)
        ]
    assert [value.asnumpy().tolist() for value in found] == [
        array[:, position].tolist() for position, array in enumerate(arrays)
    ]


@pytest.mark.parametrize('native', [False, True])
def test_positions_along_the_first_axis(native):
    numbers = [3, 0, 2, 1, 3, 0]
    arrays = arrays_of((4, 3), 'float32', len(numbers), [1, 2, np.nan, np.inf])
    for function in (lambda x, number: x[number], lambda x, number: x[number : number + 1]):
        eager, batched, report = eager_and_batched(function, arrays, numbers, native)
        assert_same(eager, batched, 0)
        assert report.batches <= 4


def test_a_model_with_numbers_of_all_kinds():
    """Under all schedulers, with gradients of weights."""
    dense = started(gluon.nn.Dense(5, in_units=3))

    def model(x, number, position):
        y = dense(x) * number
        y = mx.nd.maximum(y / (position + 1), number - 1)
        return (y > number), 1 / (2 + abs(y)) ** number, y[:, position] - number

    random = np.random.RandomState(0)
    samples = [
        (mx.nd.array(random.normal(size=(1, 3))), float(random.uniform(0.5, 2)), number % 5)
        for number in range(8)
    ]
    assert_matches_eager(model, samples, unpack=True, blocks=[dense])


@pytest.mark.parametrize('rows', [1, 2])
def test_a_batch_for_256_numbers(rows):
    with edb.batching() as scope:
        values = [
            edb.nd.identity(np.full((rows, 71), 3, np.float32)) * float(i) for i in range(256)
        ]
    for i, value in enumerate(edb.forward(values)):
        np.testing.assert_array_equal(value.asnumpy(), np.full((rows, 71), 3.0 * i))
    assert scope.report().batches <= 3
    (multiply,) = [place for place in scope.explain().places if place.operation == '_mul_scalar']
    assert multiply.batches == 2
    assert 'scalar is any other number in 255 calls and 0.0 in 1' in multiply.reasons[0].text


def test_numbers_that_vary_are_looked_up_once(monkeypatch):
    lookups = []
    look_up = Recording.operator
    monkeypatch.setattr(Recording, 'operator', lambda *args: lookups.append(1) or look_up(*args))
    with edb.batching():
        x = edb.nd.identity(np.ones((1, 73), np.float32))
        values = [x * float(i) for i in range(9)] + [x * i for i in range(9)]
        values += [edb.nd.maximum(x, i / 9) for i in range(9)]
    assert len(lookups) == 5  # of identity, and for the first and second number of each
    for i, value in enumerate(edb.forward(values)):
        expected = i % 9 if i < 18 else max(1, i % 9 / 9)
        np.testing.assert_array_equal(value.asnumpy(), np.full((1, 73), expected))


def test_a_constant_stays_a_constant():
    """And is as fast as one: other numbers elsewhere do not change that."""
    with edb.batching() as scope:
        x = edb.nd.identity(np.ones((1, 73), np.float32))
        fixed = [x * 2.0 for _ in range(3)] + [x.tanh() + i for i in (1, 1.0, 1)]
    edb.forward(fixed)
    assert not any('73, 1' in kind.name for kind in scope.report().types)


def test_all_positions_of_one_array_are_views():
    """A batch of them would have the array as often as it has positions."""
    with edb.batching() as scope:
        xs = [edb.nd.identity(np.ones((1, 5, 4), np.float32) * i) for i in range(6)]
        values = [[x[:, step] for step in range(5)] for x in xs]
    edb.forward(values)
    views = [kind for kind in scope.report().types if kind.name.startswith('slice_axis')]
    assert [kind.name for kind in views] == ['slice_axis[5x4]'] * 5
    assert {kind.calls for kind in views} == {6}


def test_positions_of_large_arrays_are_views():
    with edb.batching() as scope:
        xs = [edb.nd.identity(np.full((1, 4, 2000), i, np.float32)) for i in range(8)]
        values = [x[:, i % 4] for i, x in enumerate(xs)]
    for i, value in enumerate(edb.forward(values)):
        np.testing.assert_array_equal(value.asnumpy(), np.full((1, 2000), i))
    assert not any('2000, 1' in kind.name for kind in scope.report().types)


def test_scopes_that_begin_with_other_numbers_make_no_more_types():
    names = []
    for i in range(2 * scalar_promotion._MOST_CONSTANTS):
        with edb.batching() as scope:
            value = edb.nd.identity(np.ones((1, 77), np.float32)) * (i + 0.25)
        np.testing.assert_array_equal(value.asnumpy(), np.full((1, 77), i + 0.25))
        names += [kind.name for kind in scope.report().types if kind.calls and 'mul' in kind.name]
    assert names[:: len(names) - 1] == ['_mul_scalar[77]', '_mul_scalar[77, 1]']
    assert names.count('_mul_scalar[77]') == scalar_promotion._MOST_CONSTANTS


def test_types_of_numbers_that_are_attributes_go(monkeypatch):
    """Types that were used last stay, and with them what each scope computes."""
    monkeypatch.setattr(remembered, '_MOST_TYPES', 16)
    monkeypatch.setattr(forms, 'operator_types', {})
    array, types = mx.nd.ones((1, 4)), []
    for number in range(40):
        with edb.batching() as scope:
            value = edb.nd.exp(array).clip(-1, 1 + number / 8)
        np.testing.assert_allclose(value.asnumpy(), np.minimum(np.e, 1 + number / 8), rtol=1e-6)
        types += [weakref.ref(form.node_type) for form in scope._recording.forms]
        del value, scope
        assert len(forms.operator_types) <= 16
    gc.collect()
    assert len({each() for each in types[::2]}) == 1  # of exp
    assert len({each() for each in types if each() is not None}) <= 16


def test_numbers_that_cannot_be_operands_are_refused_as_eager_mxnet_does():
    with edb.batching():
        x = edb.nd.identity(np.ones((1, 4), np.float32))
        values = [x * 2.0, x * 3.0, x * 4]
        with pytest.raises(OverflowError):
            x * 10**400
        values += [x * 16777217, x * True]
    for value, number in zip(edb.forward(values), (2, 3, 4, 16777216, 1)):
        np.testing.assert_array_equal(value.asnumpy(), np.full((1, 4), number, np.float32))


def test_numbers_get_no_gradient_of_their_own():
    """The gradient of 0 ** 0 to its exponent is NaN, and no array receives it."""
    x = mx.nd.zeros((1, 3))
    x.attach_grad()
    with autograd.record():
        with edb.batching():
            total = edb.add_n([edb.nd.identity(x) ** number for number in (3.0, 2.0, 1.0)])
    total.backward()
    np.testing.assert_array_equal(x.grad.asnumpy(), np.ones((1, 3)))


# Eager Gluon drops the gradients that comparisons do not pass on, where a batch has zeros.
SMOOTH = list(OPERATORS)[: list(OPERATORS).index('_equal_scalar')]
STEPS = st.tuples(st.sampled_from(SMOOTH), st.sampled_from(NUMBERS))


@settings(max_examples=150)
@given(
    st.lists(st.lists(STEPS, min_size=1, max_size=3), min_size=1, max_size=6),
    schedulers,
    st.booleans(),
    st.sampled_from(['float16', 'float32', 'float64']),
    st.sampled_from([(1, 3), (2, 2), (1,)]),
)
def test_random_numbers_in_random_programs(minibatch, scheduler, native, dtype, shape):
    """Each sample has operators and numbers of its own."""
    found = []
    for batched in (False, True):
        arrays = [
            mx.nd.array(array, dtype=dtype)
            for array in arrays_of(shape, dtype, len(minibatch), [0.5, 1, 1.5, 2, 0])
        ]
        for array in arrays:
            array.attach_grad()
        with autograd.record(), edb.compile_options(native=native):
            with edb.batching(scheduler) if batched else nullcontext():
                values = [edb.nd.identity(x) if batched else x * 1 for x in arrays]
                for i, steps in enumerate(minibatch):
                    for name, number in steps:
                        values[i] = OPERATORS[name](values[i], number)
            values = edb.forward(values) if batched else values
        autograd.backward(values)
        found.append([each.asnumpy() for each in values + [x.grad for x in arrays]])
    with np.errstate(all='ignore'):
        for wanted, got in zip(*found):
            np.testing.assert_allclose(got, wanted, rtol={'float16': 5e-3}.get(dtype, 1e-5))


def test_recorded_numbers_are_read_as_they_are():
    with edb.batching() as scope:
        recording = scope._recording
        plain, large = [0, 1.5, -3, 2**24 - 1, -0.0], [2**24, 1e10, float('nan'), np.float32(2)]
        recording.scalars += plain
        found = recording.numbers(0, len(plain))
        np.testing.assert_array_equal(found.view(np.int32), np.float32(plain).view(np.int32))
        for number in large:
            recording.scalars[:] = [*plain, number]
            np.testing.assert_array_equal(
                recording.numbers(0, len(plain) + 1), np.float32([*plain, number])
            )
            recording._range = (0, 0), None
        recording.scalars.clear()


def results_of(seed, scope):
    """What a random minibatch gives; the name of an error for a sample that raises one."""
    drawn = random.Random(seed)
    names = drawn.choices(
        sorted(set(minibatches.STEPS) - minibatches.NOT_EAGER), k=drawn.randint(1, 6)
    )
    net, results = minibatches.Blocks(), []
    with scope:
        for _ in range(6):
            own = random.Random(drawn.random())
            try:
                results.append(minibatches.sample(net, names, own))
            except (mx.MXNetError, ValueError):  # RecordError is one
                results.append('error')
    return [each if each == 'error' else edb.forward(each) for each in results]


@pytest.mark.parametrize('part', range(3))
def test_random_minibatches_with_numbers_equal_eager(part):
    """Numbers are attributes or data, of arrays of several widths."""
    for seed in range(15 * part, 15 * part + 15):
        expected = results_of(seed, nullcontext())
        found = results_of(seed, edb.batching(compile_options=edb.CompileOptions(at_once=False)))
        assert [each == 'error' for each in found] == [each == 'error' for each in expected]
        for mine, wanted in zip(found, expected):
            for one, other in zip(mine, wanted) if wanted != 'error' else ():
                assert (one.shape, one.dtype) == (other.shape, other.dtype)
                scale = max(1.0, np.abs(other.asnumpy()).max(initial=0))
                np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), 1e-4, 1e-4 * scale)
