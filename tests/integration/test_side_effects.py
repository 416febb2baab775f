"""Blocks that must not be batched as they are: each is either right, or an error naming it."""

import contextlib
import functools
import gc
import random
import re
import sys
import types
from collections import deque

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn
from mxnet.gluon.contrib.rnn import VariationalDropoutCell

import gluon_edbatch as edb
from gluon_edbatch.record import remembered
from gluon_edbatch.subgraph.fingerprint import fingerprint
from tests.support.aftermath import assert_minibatch_right
from tests.support.cases import in_one_test
from tests.support.lines import Line
from tests.support.models import dense, rows

pytestmark = pytest.mark.usefixtures('aftermath')


def right_or_refused(net, samples, line_words=(), rtol=1e-4, train=False):
    """Batched results equal eager ones, or an error names the block and this function's caller.

    Returns True if the results were right.
    """
    with autograd.train_mode() if train else autograd.predict_mode():
        expected = [net(*sample).asnumpy() for sample in samples]
    line = Line()
    try:
        with autograd.train_mode() if train else autograd.predict_mode():
            with edb.batching():
                values = [(line.here(), net(*sample))[1] for sample in samples]
            found = [value.asnumpy() for value in edb.forward(values)]
    except edb.EdbError as error:
        text = str(error)
        assert net.name in text or type(net).__name__ in text, text
        assert line.site in text, f'{line.site} is not named in {text}'
        for word in line_words:
            assert word in text, text
        return False
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-5)
    return True


def block_of(function, **kwargs):
    """A HybridBlock from a function of F and arrays."""

    class Function(gluon.HybridBlock):
        """A user's block."""

        def hybrid_forward(self, F, *args):
            return function(F, *args)

    return Function(**kwargs)


def some(count=5, *shape, seed=0):
    """Samples of one argument of shape (1, ...)."""
    values = np.random.RandomState(seed).rand(count, 1, *(shape or (6,))).astype(np.float32)
    return [(mx.nd.array(value),) for value in values]


# --- Python side effects -------------------------------------------------------------------------


class Counter(gluon.HybridBlock):
    """Counts its calls."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def hybrid_forward(self, F, x):
        self.calls += 1
        return x + 1


class Appender(gluon.HybridBlock):
    """A block that keeps what it saw."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def hybrid_forward(self, F, x):
        self.seen.append(1)
        return x + len(self.seen)


class DictWriter(gluon.HybridBlock):
    """Writes into a dict."""

    def __init__(self):
        super().__init__()
        self.state = {'calls': 0}

    def hybrid_forward(self, F, x):
        self.state['calls'] += 1
        return x


class NumpyState(gluon.HybridBlock):
    """Writes into a NumPy array."""

    def __init__(self):
        super().__init__()
        self.state = np.zeros(1)

    def hybrid_forward(self, F, x):
        self.state += 1
        return x


class KeepsSymbol(gluon.HybridBlock):
    """Keeps the last result, as attention weights often are."""

    def hybrid_forward(self, F, x):
        self.last = F.softmax(x)
        return x * self.last


class Deep(gluon.HybridBlock):
    """Holds a block with side effects."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def hybrid_forward(self, F, x):
        return self.inner(x)


@in_one_test('nested', [False, True])
@in_one_test('kind', [Counter, Appender, DictWriter, NumpyState, KeepsSymbol])
def test_side_effect_on_self(kind, nested):
    inner = kind()
    net, line = Deep(inner) if nested else inner, Line()
    with edb.batching():
        with pytest.raises(edb.RecordError) as info:
            line.here(), net(rows(1)[0])
    line.assert_in(info, net.name)
    with edb.batching():  # and again: the failure is not cached away
        with pytest.raises(edb.RecordError):
            net(rows(1)[0])


@in_one_test(
    'draw',
    [
        random.random,
        np.random.rand,
        lambda: float(np.random.randint(1 << 30)),
        lambda: random.gauss(0, 1),
    ],
    ids=['random', 'numpy', 'randint', 'gauss'],
)
def test_random_numbers_of_python(draw):
    net, line = block_of(lambda F, x: x * draw()), Line()
    with edb.batching():
        with pytest.raises(edb.RecordError) as info:
            line.here(), net(rows(1)[0])
    line.assert_in(info, net.name, 'random')


def test_counter_outside_the_block():
    """A closure that changes from call to call."""
    calls = []

    def function(F, x):
        calls.append(1)
        return x * len(calls)

    net, line = block_of(function), Line()
    with edb.batching():
        with pytest.raises(edb.RecordError) as info:
            line.here(), net(rows(1)[0])
    line.assert_in(info, net.name)


def test_random_draw_that_seldom_differs():
    """Two traces may agree by chance; then all calls agree with one eager outcome each."""
    net = block_of(lambda F, x: F.dropout(x) if False else x + 1)
    assert right_or_refused(net, [(row,) for row in rows(4)])


def test_block_that_asks_for_values():
    net, line = block_of(lambda F, x: x if x.asnumpy().sum() > 0 else -x), Line()
    with edb.batching():
        with pytest.raises(edb.RecordError) as info:
            line.here(), net(rows(1)[0])
    line.assert_in(info, net.name)


def test_block_that_asks_for_the_shape():
    net, line = block_of(lambda F, x: F.reshape(x, (x.shape[0], -1))), Line()
    with edb.batching():
        with pytest.raises(edb.RecordError) as info:
            line.here(), net(rows(1)[0])
    line.assert_in(info, net.name)


def test_block_that_raises():
    def function(F, x):
        raise ZeroDivisionError('in hybrid_forward')

    net, line = block_of(function), Line()
    with edb.batching():
        with pytest.raises((edb.RecordError, ZeroDivisionError)) as info:
            line.here(), net(rows(1)[0])
    line.assert_in(info, net.name, 'ZeroDivisionError', 'in hybrid_forward')


@in_one_test('result', [None, 3, 'text', [], ()])
def test_block_that_returns_no_array(result):
    net, line = block_of(lambda F, x: result), Line()
    with edb.batching():
        with pytest.raises(edb.RecordError) as info:
            line.here(), net(rows(1)[0])
    line.assert_in(info, net.name)


def test_plain_block_with_side_effects_runs_for_each_sample():
    class Model(edb.AutoBatchMixin, gluon.Block):
        """Python in forward() is the user's and runs once a sample."""

        def __init__(self):
            super().__init__()
            self.calls = 0
            with self.name_scope():
                self.dense = nn.Dense(3, in_units=4)

        def forward(self, sample):
            self.calls += 1
            return self.dense(sample) * self.calls

    model = Model()
    model.initialize()
    samples = rows(4)
    found = model.batch(samples)
    assert model.calls == 4
    for number, (value, sample) in enumerate(zip(found, samples)):
        np.testing.assert_allclose(
            value.asnumpy(), (model.dense(sample) * (number + 1)).asnumpy(), rtol=1e-5
        )


# --- constants from elsewhere --------------------------------------------------------------------


class Holder:
    """An object of the user's."""

    shared = 1.0

    def __init__(self, value=1.0, inner=None):
        self._value, self.inner = value, inner

    @property
    def value(self):
        """Return the value by a property."""
        return self._value

    def get(self):
        """Return the value by a method."""
        return self._value

    def __call__(self):
        return self._value

    def __getitem__(self, key):
        return self._value


class Slotted:
    """Has no __dict__."""

    __slots__ = ('value',)


GLOBAL, GLOBAL_LIST = 1.0, [1.0]


def scaled(x, factor=GLOBAL_LIST):
    """A helper that reads global variables and a default."""
    return x * GLOBAL * factor[0]


scaled.attribute = 1.0


class ReadsClass(gluon.HybridBlock):
    """A class attribute, by itself and by another class."""

    factor = 1.0

    def hybrid_forward(self, F, x):
        return x * self.factor * Holder.shared


class Inherits(ReadsClass):
    """Has what it reads from its base."""


def _elsewhere():
    """name -> (block, function that changes what it reads)"""
    holder, slotted, module, deep = Holder(), Slotted(), types.ModuleType('users_module'), [1.0]
    slotted.value = module.value = 1.0
    outer, by_key, queue, array = (
        Holder(inner=[Holder()]),
        {'a': [holder]},
        deque([1.0]),
        np.ones(3),
    )
    for _ in range(12):
        deep = [deep]
    bottom = deep
    while isinstance(bottom[0], list):
        bottom = bottom[0]
    cell = 1.0
    closed = Holder()

    def set_cell(value):
        nonlocal cell
        cell = value

    def write(target, key='_value'):
        return lambda value: setattr(target, key, value)

    def item(target, key=0):
        return lambda value: target.__setitem__(key, value)

    def weighted(F, x, weight):
        return x * weight.get()

    reader = block_of(lambda F, x: x)
    reader.holder = closed
    reader.hybrid_forward = lambda F, x: x * reader.holder.get()
    inner = block_of(lambda F, x: x * bottom[0])
    nested = nn.HybridSequential()
    nested.add(nn.HybridLambda(lambda F, x: x * holder.value), inner)
    return {
        'closure': (block_of(lambda F, x: x * cell), set_cell),
        'object in a closure': (block_of(lambda F, x: x * holder._value), write(holder)),
        'property': (block_of(lambda F, x: x * holder.value), write(holder)),
        'method': (block_of(lambda F, x: x * holder.get()), write(holder)),
        'bound method': (nn.HybridLambda(lambda F, x, get=holder.get: x * get()), write(holder)),
        'call': (block_of(lambda F, x: x * holder()), write(holder)),
        'getitem': (block_of(lambda F, x: x * holder['a']), write(holder)),
        'getattr': (block_of(lambda F, x: x * holder._value), write(holder)),
        'object in an object': (
            block_of(lambda F, x: x * outer.inner[0].get()),
            write(outer.inner[0]),
        ),
        'object in a dict': (block_of(lambda F, x: x * by_key['a'][0].value), write(holder)),
        'slots': (block_of(lambda F, x: x * slotted.value), write(slotted, 'value')),
        'module': (block_of(lambda F, x: x * module.value), write(module, 'value')),
        'deep list': (block_of(lambda F, x: x * bottom[0]), item(bottom)),
        'deque': (block_of(lambda F, x: x * queue[0]), item(queue)),
        'array': (block_of(lambda F, x: x * float(array[1])), item(array, 1)),
        'partial': (block_of(functools.partial(weighted, weight=holder)), write(holder)),
        'lambda of Gluon': (nn.HybridLambda(lambda F, x: x * holder.value), write(holder)),
        'sequence of blocks': (nested, write(holder)),
        'block in a closure': (block_of(lambda F, x: inner(x)), item(bottom)),
        'method put on an instance': (reader, write(closed)),
        'class': (ReadsClass(), write(ReadsClass, 'factor')),
        'base class': (Inherits(), write(ReadsClass, 'factor')),
        'other class': (ReadsClass(), write(Holder, 'shared')),
        'global': (block_of(lambda F, x: scaled(x)), write(sys.modules[__name__], 'GLOBAL')),
        'default': (block_of(lambda F, x: scaled(x)), item(GLOBAL_LIST)),
        'attribute of a function': (
            block_of(lambda F, x: x * scaled.attribute),
            write(scaled, 'attribute'),
        ),
    }


ELSEWHERE = sorted(_elsewhere())


@in_one_test('place', ELSEWHERE)
def test_constant_from_elsewhere_changed_between_scopes(place):
    net, change = _elsewhere()[place]
    samples = rows(3)
    try:
        for value in (1.0, 2.0, 1.0, 3.0, -0.0, 0.0):
            change(value)
            expected = [net(sample).asnumpy() for sample in samples]
            with edb.batching() as scope:
                values = [net(sample) for sample in samples]
            for one, other in zip(edb.forward(values), expected):
                np.testing.assert_allclose(one.asnumpy(), other, rtol=1e-6)
                np.testing.assert_array_equal(np.signbit(one.asnumpy()), np.signbit(other))
            assert scope.report().batches == 1
    finally:
        change(1.0)


@in_one_test('place', ELSEWHERE)
@in_one_test('calls', [1, 2])
def test_constant_from_elsewhere_changed_within_a_scope(place, calls):
    """Right, or an error that says what was changed; after the scope it does not matter."""
    net, change = _elsewhere()[place]
    (sample,) = rows(1)
    try:
        before = net(sample).asnumpy()
        with edb.batching():
            value = net(sample)
        change(2.0)
        np.testing.assert_allclose(value.asnumpy(), before, rtol=1e-6)
        change(1.0)
        with edb.batching():
            first = [net(sample) for _ in range(calls)][-1]
            change(2.0)
            second = net(sample)
        after = net(sample).asnumpy()
        try:
            np.testing.assert_allclose(first.asnumpy(), before, rtol=1e-6)
            np.testing.assert_allclose(second.asnumpy(), after, rtol=1e-6)
        except edb.RecordError as error:
            assert re.search(f'of {type(net).__name__}.* was changed while', str(error))
        with edb.batching():
            value = net(sample)
        np.testing.assert_allclose(value.asnumpy(), after, rtol=1e-6)
        assert not np.array_equal(before, after)
    finally:
        change(1.0)


def test_objects_among_the_arguments():
    """A call with an object as argument depends on what the block reads of it."""

    class Argument(gluon.HybridBlock):
        """Is told its scale by each call."""

        def hybrid_forward(self, F, x, holder):
            return x * holder.get() + 0 * (holder.inner is None)

    net, holder, sample = Argument(), Holder(), rows(1)[0]
    with edb.batching() as scope:
        values = []
        for value in (1.0, 2.0, 1.0):
            holder._value = value
            values.append(net(sample, holder))
    for value, factor in zip(values, (1, 2, 1)):
        np.testing.assert_allclose(value.asnumpy(), sample.asnumpy() * factor)
    assert scope.report().batches == 2


def test_what_the_code_does_not_mention_does_not_count():
    """An object may change as it likes in what the block does not read."""
    holder = Holder()
    net = block_of(lambda F, x: x * holder.get())
    with edb.batching() as scope:
        values = []
        for number in range(3):
            holder.steps = number
            values.append(net(rows(1)[0]))
    assert scope.report().batches == 0 and len({id(value._store) for value in values}) == 1
    edb.forward(values)
    assert scope.report().batches == 1


def test_filled_once_is_no_side_effect():
    """What only the first call computes is the same for all."""
    memory = {}

    def function(F, x):
        if 'factor' not in memory:
            memory['factor'] = 2.0
        return x * memory['factor']

    net, sample = block_of(function), rows(1)[0]
    for _ in range(2):
        with edb.batching():
            values = [net(sample), net(sample)]
        for value in values:
            np.testing.assert_allclose(value.asnumpy(), 2 * sample.asnumpy())


def test_the_search_for_constants_is_bounded():
    """Cycles, long chains of objects and large containers."""
    cycle = []
    cycle += [cycle, cycle, cycle]
    chain = Holder()
    for _ in range(5000):
        chain = Holder(inner=chain)
    everything = {
        'cycle': cycle,
        'chain': chain,
        'many': list(range(100_000)),
        'large': np.zeros(10_000_000),
    }
    net = block_of(lambda F, x: x * len(everything) + 0 * everything['chain'].inner.get())
    assert right_or_refused(net, [(row,) for row in rows(3)])
    mark = fingerprint(net)
    assert fingerprint(net) == mark and len(mark) < 20_000


def test_types_of_constants_that_change_in_each_scope_go():
    temperature = Holder()
    net = nn.HybridLambda(lambda F, x: x * temperature.get())
    for step in range(remembered._MOST_FINGERPRINTS + 8):
        temperature._value = step / 7
        with edb.batching():
            value = net(mx.nd.ones((1, 2)))
        np.testing.assert_allclose(value.asnumpy(), step / 7, rtol=1e-6)
    assert len(remembered._block_types[net]) == remembered._MOST_FINGERPRINTS


def test_a_new_object_is_not_taken_for_one_that_went():
    """Objects count by identity; another may come to lie where one was."""
    sample = mx.nd.zeros((1, 2))
    net = nn.HybridSequential()
    net.add(nn.Dense(2, in_units=2, use_bias=False))
    for number in range(20):
        net._children['0'] = child = nn.Dense(
            2, in_units=2, bias_initializer=mx.init.Constant(number)
        )
        child.initialize()
        with edb.batching():
            value = net(sample)
        np.testing.assert_array_equal(value.asnumpy(), number)
        del child, value
        gc.collect()


# --- what is done to children after their first use ----------------------------------------------


class Parent(gluon.HybridBlock):
    """Has a child."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.child = dense(4)

    def hybrid_forward(self, F, x):
        return F.tanh(self.child(x))


def _replaced_forward(self, x, *args):
    return nn.HybridBlock.forward(self, x * 2, *args)


def _replaced_hybrid_forward(self, F, x, weight, bias):
    return F.FullyConnected(x, weight, bias, num_hidden=4) * 3


def _new_parameter(net, **kwargs):
    other = dense(4)
    net.child._reg_params['weight'] = other.weight
    net.child.params._params[net.child.weight.name] = other.weight
    other.weight.name = net.child.weight.name


CHILD_CHANGES = {
    'hybridize': lambda net: net.hybridize(),
    'hybridize child': lambda net: net.child.hybridize(static_alloc=True),
    'apply': lambda net: net.apply(lambda block: setattr(block, 'seen', True)),
    'cast and back': lambda net: (net.cast('float64'), net.cast('float32')),
    'grad_req': lambda net: net.collect_params().setattr('grad_req', 'null'),
    'forward of the child': lambda net: setattr(
        net.child, 'forward', types.MethodType(_replaced_forward, net.child)
    ),
    'hybrid_forward of the child': lambda net: setattr(
        net.child, 'hybrid_forward', types.MethodType(_replaced_hybrid_forward, net.child)
    ),
    'forward of the block': lambda net: setattr(
        net, 'forward', types.MethodType(_replaced_forward, net)
    ),
    'child': lambda net: setattr(net, 'child', dense(4)),
    'child, by register_child': lambda net: (
        net.__dict__.update(child=dense(4)),
        net.register_child(net.child, 'child'),
    ),
    'parameter': _new_parameter,
    'set_data': lambda net: net.child.weight.set_data(mx.nd.ones((4, 4))),
}


@pytest.mark.parametrize('change', CHILD_CHANGES)
def test_child_changed_after_its_first_use(change):
    net = Parent()
    samples = rows(3)
    with edb.batching():
        values = [net(sample) for sample in samples]
    edb.forward(values)
    CHILD_CHANGES[change](net)
    expected = [net(sample).asnumpy() for sample in samples]
    with edb.batching():
        values = [net(sample) for sample in samples]
    for value, wanted in zip(edb.forward(values), expected):
        np.testing.assert_allclose(value.asnumpy(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    'owner, name, function',
    [
        (nn.Dense, 'hybrid_forward', _replaced_hybrid_forward),
        (nn.Dense, 'forward', _replaced_forward),
        (Parent, 'hybrid_forward', lambda self, F, x: self.child(x) * 5),
    ],
    ids=['hybrid_forward', 'forward', "the block's own"],
)
def test_class_changed_after_its_first_use(monkeypatch, owner, name, function):
    net, sample = Parent(), rows(1)[0]
    with edb.batching():
        before = net(sample)
    before.wait_to_read()
    monkeypatch.setattr(owner, name, function)
    expected = net(sample).asnumpy()
    with edb.batching():
        value = net(sample)
    np.testing.assert_allclose(value.asnumpy(), expected, rtol=1e-5)
    assert not np.array_equal(before.asnumpy(), expected)
    monkeypatch.undo()
    with edb.batching():
        value = net(sample)
    np.testing.assert_array_equal(value.asnumpy(), before.asnumpy())


@pytest.mark.parametrize('register', ['register_forward_hook', 'register_forward_pre_hook'])
def test_hook_on_a_child_within_a_scope(register):
    """Registered between two calls: an error, as it would have been called for the second."""
    net = Parent()
    with pytest.raises(edb.RecordError, match=r'hooks of self\.child of Parent.* was changed'):
        with edb.batching():
            values = [net(rows(1)[0]) for _ in range(2)]
            getattr(net.child, register)(lambda *_: None)
            values.append(net(rows(1)[0]))
        edb.forward(values)


def test_hooks_on_the_block_itself_come_and_go():
    net, seen = Parent(), []
    for count in range(3):
        with edb.batching():
            net(rows(1)[0]).wait_to_read()
            handle = net.register_forward_hook(lambda *_: seen.append(1))
            net(rows(1)[0])
            handle.detach()
            net(rows(1)[0])
        assert len(seen) == count + 1


@pytest.mark.parametrize('nested', [False, True])
def test_operator_hooks(nested):
    """Gluon calls them for hybridized blocks only, and so they are refused for these only."""
    net, seen, sample = Parent(), [], rows(1)[0]
    expected = net(sample).asnumpy()
    with edb.batching():
        net(sample).wait_to_read()
    (net.child if nested else net).register_op_hook(lambda *_: seen.append(1))
    net(sample).wait_to_read()
    with edb.batching():
        value = net(sample)
    np.testing.assert_allclose(value.asnumpy(), expected, rtol=1e-6)
    assert not seen
    net.hybridize()
    with edb.batching(), pytest.raises(edb.RecordError, match='register_op_hook'):
        net(sample)
    net.hybridize(False)
    with edb.batching():
        value = net(sample)
    np.testing.assert_allclose(value.asnumpy(), expected, rtol=1e-6)


# --- hooks of the user's -------------------------------------------------------------------------


def test_forward_hooks_are_called():
    net, seen = dense(), []
    net.register_forward_pre_hook(lambda block, args: seen.append(('pre', block, len(args))))
    net.register_forward_hook(lambda block, args, out: seen.append(('post', block, out.shape)))
    samples = rows(3)
    expected = [net(sample).asnumpy() for sample in samples]
    eager, seen[:] = list(seen), []
    with edb.batching():
        values = [net(sample) for sample in samples]
    assert seen == eager
    for value, wanted in zip(values, expected):
        np.testing.assert_allclose(value.asnumpy(), wanted, rtol=1e-6)


def test_forward_hook_that_reads_the_value():
    net, sums = dense(), []
    net.register_forward_hook(lambda block, args, out: sums.append(out.sum().asscalar()))
    with edb.batching() as scope:
        values = [net(sample) for sample in rows(3)]
    assert len(scope.report().forced) == 3
    for value, total in zip(values, sums):
        assert abs(value.asnumpy().sum() - total) < 1e-5


def test_forward_hook_that_raises():
    net = dense()

    def hook(*_):
        raise RuntimeError('in a hook')

    handle = net.register_forward_hook(hook)
    with pytest.raises(RuntimeError, match='in a hook'):
        with edb.batching():
            net(rows(1)[0])
    handle.detach()
    assert_minibatch_right(net)


def test_hooks_of_a_nested_block():
    """Inside a static subgraph a child's hook cannot be called for each sample: called or
    refused."""
    net, seen = nn.HybridSequential(), []
    net.add(dense(4), dense(3))
    net[0].register_forward_hook(lambda block, args, out: seen.append(block))
    samples = rows(3)
    try:
        with edb.batching():
            values = [net(sample) for sample in samples]
        edb.forward(values)
    except edb.EdbError as error:
        assert net.name in str(error)
        return
    assert len(seen) == 3, f'the hook of a nested block was called {len(seen)} times for 3 samples'


def test_callable_subclass_of_call():
    """A HybridBlock with a __call__ of its own runs it for each sample."""

    class Padded(nn.Dense):
        """Adds a column in Python."""

        def __call__(self, x):
            return super().__call__(mx.nd.concat(x, mx.nd.ones((1, 1)), dim=1))

    net = Padded(3, in_units=5)
    net.initialize()
    assert right_or_refused(net, [(row,) for row in rows(4)])


# --- BatchNorm and other blocks with states ------------------------------------------------------


def _batch_norm(**kwargs):
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=4), nn.BatchNorm(in_channels=4, **kwargs))
    net.initialize(mx.init.Xavier())
    generator = np.random.RandomState(0)
    net[1].running_mean.set_data(mx.nd.array(generator.randn(4)))
    net[1].running_var.set_data(mx.nd.array(generator.rand(4) + 0.5))
    return net


@pytest.mark.parametrize('mode', ['record', 'train_mode'])
def test_batch_norm_in_training_mode(mode):
    net, line = _batch_norm(), Line()
    with getattr(autograd, mode)():
        with edb.batching():
            with pytest.raises(edb.RowDependenceError) as info:
                line.here(), net(rows(1)[0])
    line.assert_in(info, net.name, 'BatchNorm')


def test_bare_batch_norm_in_training_mode():
    net, line = nn.BatchNorm(in_channels=4), Line()
    net.initialize()
    with autograd.record(), edb.batching():
        with pytest.raises(edb.RowDependenceError) as info:
            line.here(), net(rows(1)[0])
    line.assert_in(info, net.name, 'BatchNorm')


@pytest.mark.parametrize('hybridize', [False, True])
def test_batch_norm_in_predict_mode(hybridize):
    net = _batch_norm()
    if hybridize:
        net.hybridize()
    states = [net[1].running_mean.data().asnumpy(), net[1].running_var.data().asnumpy()]
    assert right_or_refused(net, [(row,) for row in rows(6)])
    for state, parameter in zip(states, (net[1].running_mean, net[1].running_var)):
        np.testing.assert_array_equal(parameter.data().asnumpy(), state)


def test_batch_norm_after_both_modes():
    """The types of the two modes are kept apart."""
    net = _batch_norm()
    for _ in range(2):
        assert right_or_refused(net, [(row,) for row in rows(3)])
        with autograd.record(), edb.batching():
            with pytest.raises(edb.RowDependenceError):
                net(rows(1)[0])
        with autograd.record(train_mode=False):
            with edb.batching():
                values = [net(row) for row in rows(3)]
            loss = edb.stack(values).sum()
        loss.backward()
        assert np.isfinite(net[0].weight.grad().asnumpy()).all()


def test_batch_norm_with_global_statistics_trains():
    net = _batch_norm(use_global_stats=True)
    states = [net[1].running_mean.data().asnumpy(), net[1].running_var.data().asnumpy()]
    with autograd.record():
        with edb.batching():
            values = [net(row) for row in rows(3)]
        loss = edb.stack(values).sum()
    loss.backward()
    found = net[0].weight.grad().asnumpy().copy()
    with autograd.record():
        loss = mx.nd.add_n(*[net(row).sum() for row in rows(3)])
    loss.backward()
    np.testing.assert_allclose(found, net[0].weight.grad().asnumpy(), rtol=1e-4, atol=1e-5)
    for state, parameter in zip(states, (net[1].running_mean, net[1].running_var)):
        np.testing.assert_array_equal(parameter.data().asnumpy(), state)


def test_auxiliary_states_are_not_touched_by_verification():
    """An operator without a rule beside a BatchNorm: compared, with the states as they were."""

    class Both(gluon.HybridBlock):
        """cumsum has no rule."""

        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.norm = nn.BatchNorm(in_channels=4, use_global_stats=True)

        def hybrid_forward(self, F, x):
            return F.cumsum(self.norm(x), axis=1)

    net = Both()
    net.initialize()
    net.norm.running_mean.set_data(mx.nd.array([1, 2, 3, 4]))
    before = [net.norm.running_mean.data().asnumpy(), net.norm.running_var.data().asnumpy()]
    for train in (False, True):
        right_or_refused(net, [(row,) for row in rows(4)], train=train)
        np.testing.assert_array_equal(net.norm.running_mean.data().asnumpy(), before[0])
        np.testing.assert_array_equal(net.norm.running_var.data().asnumpy(), before[1])


def test_dropout_is_not_a_row_dependence():
    """Randomness is off while a batch is compared; afterwards it is on."""
    net = block_of(lambda F, x: F.Dropout(F.cumsum(x, axis=1), p=0.5))
    with autograd.train_mode():
        with edb.batching():
            values = [net(mx.nd.ones((1, 1000))) for _ in range(4)]
        found = [value.asnumpy() for value in edb.forward(values)]
    assert all((value == 0).mean() > 0.3 for value in found)
    assert not np.array_equal(found[0], found[1])


def test_dropout_differs_between_samples_and_scopes():
    net = nn.Dropout(0.5)
    seen = []
    for _ in range(2):
        with autograd.train_mode():
            with edb.batching():
                values = [net(mx.nd.ones((1, 100))) for _ in range(3)]
            seen += [value.asnumpy() for value in edb.forward(values)]
    assert len({value.tobytes() for value in seen}) == 6


def test_random_operators_of_mxnet():
    """Each sample draws numbers of its own, batched or one by one."""
    for draw in (
        lambda F, x: x + F.random.normal(shape=(1, 50)),
        lambda F, x: x + F.random.uniform_like(x),
        lambda F, x: x + F.random.normal_like(x),
    ):
        net = block_of(draw)
        try:
            with edb.batching():
                values = [net(mx.nd.zeros((1, 50))) for _ in range(4)]
            found = [value.asnumpy() for value in edb.forward(values)]
        except edb.EdbError as error:
            assert net.name in str(error)
            continue
        assert len({value.tobytes() for value in found}) == 4


# --- rows that depend on each other --------------------------------------------------------------

DEPENDENT = {
    'softmax(axis=0)': lambda F, x: F.softmax(x, axis=0),
    'log_softmax(axis=0)': lambda F, x: F.log_softmax(x, axis=0),
    'mean(axis=0)': lambda F, x: F.broadcast_sub(x, F.mean(x, axis=0, keepdims=True)),
    'mean()': lambda F, x: F.broadcast_sub(x, F.mean(x, keepdims=True)),
    'sum(axis=0)': lambda F, x: F.sum(x, axis=0),
    'max(exclude)': lambda F, x: F.max(x, axis=1, exclude=True),
    'norm': lambda F, x: F.broadcast_div(x, F.norm(x, keepdims=True)),
    'reshape(1, -1)': lambda F, x: F.reshape(x, (1, -1)),
    'reshape(1, 6)': lambda F, x: F.reshape(x, (1, 6)),
    'reshape(-1, 1)': lambda F, x: F.reshape(x, (-1, 1)),
    'reshape(3, 2)': lambda F, x: F.reshape(x, (3, 2)),
    'reshape(-1)': lambda F, x: F.reshape(x, (-1,)),
    'reshape reverse': lambda F, x: F.reshape(x, (2, -1), reverse=True),
    'transpose': lambda F, x: F.transpose(x),
    'transpose(1, 0)': lambda F, x: F.dot(F.transpose(x, axes=(1, 0)), x),
    'attention': lambda F, x: F.dot(F.softmax(F.dot(x, x, transpose_b=True)), x),
    'attention softmax': lambda F, x: F.dot(
        F.softmax(F.FullyConnected(x, x, no_bias=True, num_hidden=1)), x
    ),
    'batch_dot': lambda F, x: F.batch_dot(
        F.expand_dims(x, 0), F.expand_dims(x, 0), transpose_b=True
    ),
    'flip': lambda F, x: F.reverse(x, axis=0),
    'sort': lambda F, x: F.sort(x, axis=0),
    'topk': lambda F, x: F.topk(x, axis=0, ret_typ='value'),
    'argmax': lambda F, x: F.argmax(x, axis=0),
    'cumsum axis 0': lambda F, x: F.cumsum(x, axis=0),
    'cumsum None': lambda F, x: F.cumsum(x),
    'cumsum axis 1': lambda F, x: F.cumsum(x, axis=1),
    'slice': lambda F, x: F.slice(x, begin=(0, 1), end=(1, 3)),
    'slice_axis': lambda F, x: F.slice_axis(x, axis=0, begin=0, end=1),
    'slice negative': lambda F, x: F.slice_axis(x, axis=-2, begin=-1, end=None),
    'take': lambda F, x: F.take(x, F.zeros((1,))),
    'stack': lambda F, x: F.stack(x, x, axis=0),
    'concat': lambda F, x: F.concat(x, x, dim=0),
    'split': lambda F, x: F.split(x, num_outputs=1, axis=0),
    'split_v2': lambda F, x: F.split_v2(x, 1, axis=0),
    'tile': lambda F, x: F.tile(x, reps=(2, 1)),
    'tile columns': lambda F, x: F.tile(x, reps=(1, 2)),
    'repeat': lambda F, x: F.repeat(x, repeats=2, axis=0),
    'repeat columns': lambda F, x: F.repeat(x, repeats=2, axis=1),
    'squeeze': lambda F, x: F.squeeze(x),
    'squeeze axis 0': lambda F, x: F.squeeze(F.expand_dims(x, 1), axis=0),
    'expand_dims 0': lambda F, x: F.expand_dims(x, axis=0),
    'swapaxes': lambda F, x: F.swapaxes(x, 0, 1),
    'flatten': lambda F, x: F.flatten(x),
    'pad': lambda F, x: F.pad(
        F.reshape(x, (0, 1, 2, 3)),
        mode='constant',
        constant_value=1,
        pad_width=(0, 0, 0, 0, 1, 1, 1, 1),
    ),
    'shape_array': lambda F, x: F.broadcast_mul(
        x, F.cast(F.slice_axis(F.shape_array(x), axis=0, begin=0, end=1), 'float32')
    ),
    'size_array': lambda F, x: F.broadcast_div(x, F.cast(F.size_array(x), 'float32')),
    'histogram': lambda F, x: F.histogram(x, bins=5, range=(0.0, 1.0))[0],
    'khatri_rao': lambda F, x: F.khatri_rao(x, x),
    'diag': lambda F, x: F.diag(x),
    'L2Normalization': lambda F, x: F.L2Normalization(x),
    'arange_like': lambda F, x: F.broadcast_add(
        x, F.expand_dims(F.contrib.arange_like(x, axis=0), 1)
    ),
    'arange_like columns': lambda F, x: F.broadcast_add(
        x, F.expand_dims(F.contrib.arange_like(x, axis=1), 0)
    ),
    'arange_like all': lambda F, x: x + F.contrib.arange_like(x),
    'fft': lambda F, x: F.contrib.fft(x),
    'linalg.gemm2': lambda F, x: F.linalg.gemm2(x, x, transpose_a=True),
    'linalg.syrk': lambda F, x: F.linalg.syrk(x, transpose=True),
    'linalg.syrk rows': lambda F, x: F.linalg.syrk(x),
    'linalg batched': lambda F, x: F.linalg.syrk(F.reshape(x, (0, 2, 3))),
    'linalg det': lambda F, x: F.linalg.det(F.linalg.syrk(F.reshape(x, (0, 2, 3)))),
    'linalg sumlogdiag': lambda F, x: F.linalg.sumlogdiag(F.linalg.syrk(F.reshape(x, (0, 2, 3)))),
    'box_iou': lambda F, x: F.contrib.box_iou(
        F.slice_axis(x, axis=1, begin=0, end=4), F.slice_axis(x, axis=1, begin=0, end=4)
    ),
    'box_nms': lambda F, x: F.contrib.box_nms(x),
    'index_copy': lambda F, x: F.contrib.index_copy(x, F.zeros((1,)), F.ones((1, 6))),
    'boolean_mask': lambda F, x: F.contrib.boolean_mask(x, F.ones((1,))),
    'depth_to_space': lambda F, x: F.depth_to_space(
        F.reshape(F.tile(x, reps=(1, 4)), (0, 4, 2, 3)), 2
    ),
    'batch_take': lambda F, x: F.batch_take(x, F.zeros((1,), dtype='int32')),
    'ones minus rows': lambda F, x: F.broadcast_sub(F.ones((1, 6)), x),
    'concat constant': lambda F, x: F.concat(x, F.ones((1, 2)), dim=1),
    'add constant row': lambda F, x: x + F.ones((1, 6)),
    'InstanceNorm': lambda F, x: F.InstanceNorm(
        F.reshape(x, (0, 2, 3)), F.ones((2,)), F.zeros((2,))
    ),
    'moments': lambda F, x: F.moments(x, axes=(0,))[0],
    'moments 1': lambda F, x: F.moments(x, axes=(1,), keepdims=True)[0],
    'SequenceReverse': lambda F, x: F.SequenceReverse(x),
    'SequenceLast': lambda F, x: F.SequenceLast(F.reshape(x, (0, 2, 3))),
    'SequenceMask': lambda F, x: F.SequenceMask(
        F.reshape(x, (0, 2, 3)), F.ones((2,)), use_sequence_length=True
    ),
    'Dropout(axes=0)': lambda F, x: F.Dropout(x, p=0.5, axes=(0,)),
    'SoftmaxOutput': lambda F, x: F.SoftmaxOutput(x, F.zeros((1,))),
    'make_loss': lambda F, x: F.MakeLoss(x, normalization='batch'),
    'smooth_l1 mean': lambda F, x: F.mean(F.smooth_l1(x), axis=0, exclude=True),
    'where': lambda F, x: F.where(x > 0.5, x, F.zeros_like(x)),
    'where row': lambda F, x: F.where(F.sum(x, axis=1) > 3, x, -x),
    'one_hot': lambda F, x: F.one_hot(F.argmax(x, axis=1), 6),
    'gather_nd': lambda F, x: F.gather_nd(x, F.zeros((1, 1))),
    'scatter_nd': lambda F, x: F.scatter_nd(
        F.reshape(x, (-1,)), F.reshape(F.arange(6), (1, 6)), shape=(6,)
    ),
    'ravel_multi_index': lambda F, x: F.ravel_multi_index(
        F.reshape(F.floor(x), (-3,)).expand_dims(1), shape=(3,)
    ),
    'RNN': lambda F, x: F.RNN(
        F.expand_dims(x, 0),
        F.ones((36,)) * 0.1,
        F.zeros((1, 1, 3)),
        mode='rnn_tanh',
        state_size=3,
        num_layers=1,
    ),
    'UpSampling': lambda F, x: F.UpSampling(
        F.reshape(x, (0, 1, 2, 3)), scale=2, sample_type='nearest'
    ),
    'LRN': lambda F, x: F.LRN(F.reshape(x, (0, 6, 1, 1)), nsize=3),
    'Crop': lambda F, x: F.slice_like(F.reshape(x, (0, 2, 3)), F.ones((1, 1, 2)), axes=(1, 2)),
    'slice_like 0': lambda F, x: F.slice_like(x, F.ones((1, 3))),
    'broadcast_like': lambda F, x: F.broadcast_like(F.slice_axis(x, axis=0, begin=0, end=1), x),
    'div_sqrt_dim': lambda F, x: F.contrib.div_sqrt_dim(x),
    'interleaved attention': lambda F, x: F.contrib.interleaved_matmul_selfatt_qk(
        F.reshape(x, (0, 1, 6)), heads=1
    ),
    'minus max': lambda F, x: F.broadcast_sub(x, F.max(x)),
    'cast_storage': lambda F, x: F.cast_storage(x, 'default'),
    'Correlation': lambda F, x: F.Correlation(
        F.reshape(x, (0, 1, 2, 3)), F.reshape(x, (0, 1, 2, 3)), pad_size=1
    ),
    'amp_multicast': lambda F, x: F.amp_multicast(x, x, num_outputs=2)[0],
    'multi_sum_sq': lambda F, x: F.multi_sum_sq(x, num_arrays=1),
    'all_finite': lambda F, x: F.multi_all_finite(x, num_arrays=1),
    'allclose': lambda F, x: F.contrib.allclose(x, x),
    'quadratic': lambda F, x: F.contrib.quadratic(x, a=1, b=2, c=3),
    'bipartite_matching': lambda F, x: F.contrib.bipartite_matching(x, threshold=0.1)[0],
    'AdaptiveAvgPooling2D': lambda F, x: F.contrib.AdaptiveAvgPooling2D(F.reshape(x, (0, 1, 2, 3))),
}


# Not even eager Gluon runs these on samples of one row.
FAIL_EAGERLY = {'ravel_multi_index', 'RNN', 'fft'}


@pytest.mark.filterwarnings('ignore:Cannot decide shape')
@pytest.mark.parametrize('mode', ['predict', 'train'])
@in_one_test('name', list(DEPENDENT))
def test_operator(name, mode):
    """Right, or RowDependenceError / RecordError with block and line."""
    net = block_of(DEPENDENT[name])
    samples = some(7)
    try:
        for sample in samples:
            result = net(*sample)
            for array in result if isinstance(result, (list, tuple)) else [result]:
                array.wait_to_read()
    except Exception:
        assert name in FAIL_EAGERLY
        return
    assert name not in FAIL_EAGERLY
    if isinstance(result, (list, tuple)):
        first = net

        class First(gluon.HybridBlock):
            """The first of several results."""

            def __init__(self):
                super().__init__()
                self.inner = first

            def hybrid_forward(self, F, x):
                return self.inner(x)[0]

        net = First()
    if mode == 'train' and name == 'Dropout(axes=0)':
        return  # random in training mode
    right_or_refused(net, samples, train=mode == 'train')


def test_dependence_that_shows_in_some_batches_only():
    """Rows that are equal hide a dependence in the first batch; the second must not be wrong."""
    net = block_of(lambda F, x: F.broadcast_sub(F.cumsum(x, axis=1), F.cumsum(x, axis=0)))
    same = [(mx.nd.zeros((1, 4)),) for _ in range(4)]
    right_or_refused(net, same)
    right_or_refused(net, some(5, 4))


def test_gradient_of_an_unproved_operator():
    net = dense()
    cumulative = block_of(lambda F, x: F.cumsum(x, axis=1))

    def gradient(batched):
        with autograd.record():
            if batched:
                with edb.batching():
                    values = [cumulative(net(row)) for row in rows(4)]
                loss = (edb.stack(values) ** 2).sum()
            else:
                loss = mx.nd.add_n(*[(cumulative(net(row)) ** 2).sum() for row in rows(4)])
        loss.backward()
        return net.weight.grad().asnumpy().copy()

    np.testing.assert_allclose(gradient(True), gradient(False), rtol=1e-4, atol=1e-5)


def test_verification_leaves_the_random_seed_usable():
    mx.random.seed(3)
    net = block_of(lambda F, x: F.cumsum(x, axis=1))
    assert right_or_refused(net, some(4))


# --- ragged arguments ----------------------------------------------------------------------------


def _ragged_samples(lengths=(3, 1, 2, 5, 3), seed=0):
    generator = np.random.RandomState(seed)
    return [[mx.nd.array(generator.randn(1, 4)) for _ in range(length)] for length in lengths]


def _ragged_case(net, lengths, uses_lengths=False):
    samples = _ragged_samples(lengths)

    def call(sample):
        children = edb.ragged(sample, shape=(1, 4))
        return net(children, children.lengths) if uses_lengths else net(children)

    expected = [call(sample).asnumpy() for sample in samples]
    line = Line()
    try:
        with edb.batching():
            values = []
            for sample in samples:
                line.here(), values.append(call(sample))
        found = [value.asnumpy() for value in edb.forward(values)]
    except edb.EdbError as error:
        assert isinstance(error, (edb.RowDependenceError, edb.RecordError)), error
        assert net.name in str(error), error
        assert __file__ in str(error), error
        return error
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    return None


PADDING = {  # with zeros for padding; "plain max" differs for negative values only
    'softmax': lambda F, x: F.sum(F.softmax(x, axis=1) * x, axis=1),
    'mean': lambda F, x: F.mean(x, axis=1),
    'max': lambda F, x: F.max(-F.exp(x), axis=1),
    'plain max': lambda F, x: F.max(x, axis=1),
    'min of squares': lambda F, x: F.min(x * x, axis=1),
    'exp': lambda F, x: F.sum(F.exp(x), axis=1),
    'bias': lambda F, x: F.sum(x + 1, axis=1),
    'prod': lambda F, x: F.prod(x, axis=1),
    'sigmoid': lambda F, x: F.sum(F.sigmoid(x), axis=1),
    'last': lambda F, x: F.SequenceLast(x, axis=1),
    'softmin': lambda F, x: F.sum(F.softmin(x, axis=1) * x, axis=1),
    'argmax': lambda F, x: F.argmax(-x * x, axis=1),
}


@in_one_test('lengths', [(3, 1, 2, 5, 3), (2, 3), (1, 5, 5, 5)], ids=str)
@in_one_test('name', [name for name in PADDING if name != 'plain max'])
def test_padding_that_shows(name, lengths):
    """What padding could change is batched by length instead, without any padding."""
    assert _ragged_case(block_of(PADDING[name]), lengths) is None


def test_padding_that_shows_for_some_values():
    """A maximum over padding is right where it is positive: one lucky call proves nothing."""
    net = block_of(PADDING['plain max'])
    for sign in (1, -1):
        samples = [[mx.nd.full((1, 4), sign * (1 + i + k)) for i in range(k)] for k in (1, 3, 2)]
        expected = [net(edb.ragged(sample)).asnumpy() for sample in samples]
        try:
            with edb.batching():
                values = [net(edb.ragged(sample)) for sample in samples]
            found = [value.asnumpy() for value in edb.forward(values)]
        except edb.EdbError as error:
            assert net.name in str(error)
            continue
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize('name', ['softmax', 'mean', 'bias'])
def test_padding_that_shows_only_later(name):
    """The first batch needs no padding; later ones must not get any either."""
    net = block_of(PADDING[name])
    for lengths in ((3, 3, 3), (3, 2, 4), (2, 2)):
        assert _ragged_case(net, lengths) is None


@in_one_test(
    'function',
    [
        lambda F, x: F.sum(x, axis=1),
        lambda F, x: F.sum(F.tanh(x), axis=1),
        lambda F, x: F.sum(x * x, axis=1),
        lambda F, x: F.max(F.relu(x), axis=1),
    ],
)
@in_one_test('lengths', [(3, 1, 2, 5, 3), (0, 2), (0, 0), (0, 4, 1)], ids=str)
def test_padding_that_does_not_show(function, lengths):
    assert _ragged_case(block_of(function), lengths) is None


def _masked_softmax(F, x, lengths):
    scores = F.sum(x, axis=2)
    mask = F.SequenceMask(F.ones_like(scores), lengths, use_sequence_length=True, axis=1)
    scores = F.softmax(F.where(mask, scores, F.ones_like(scores) * -1e9), axis=1)
    return F.sum(F.broadcast_mul(F.expand_dims(scores * mask, axis=2), x), axis=1)


@in_one_test('lengths', [(3, 1, 2, 5, 3), (1, 5), (4, 4)], ids=str)
@in_one_test(
    'function',
    [
        _masked_softmax,
        lambda F, x, n: F.broadcast_div(F.sum(x, axis=1), F.expand_dims(n, axis=1)),
        lambda F, x, n: F.SequenceLast(x, n, use_sequence_length=True, axis=1),
        lambda F, x, n: F.sum(F.SequenceMask(x + 1, n, use_sequence_length=True, axis=1), axis=1),
    ],
    ids=['softmax', 'mean', 'last', 'bias'],
)
def test_padding_masked_by_lengths(function, lengths):
    assert _ragged_case(block_of(function), lengths, uses_lengths=True) is None


def test_padding_in_training():
    """Verification happens under autograd.record(), too, and leaves nothing on the tape."""
    net, weight = block_of(PADDING['mean']), dense(4)

    def gradient(batched):
        with autograd.record():
            with edb.batching() if batched else contextlib.nullcontext():
                values = [
                    net(edb.ragged([weight(child) for child in sample]))
                    for sample in _ragged_samples((2, 1, 2))
                ]
            edb.stack(values).sum().backward()
        return weight.weight.grad().asnumpy()

    np.testing.assert_allclose(gradient(True), gradient(False), rtol=1e-5)


def test_what_to_write_for_a_mask_that_a_cell_keeps():
    """`VariationalDropoutCell` draws its mask at the first step, and has it as an attribute."""
    cell = VariationalDropoutCell(gluon.rnn.RNNCell(3, input_size=4), drop_inputs=0.5)
    cell.initialize()
    with autograd.record(), edb.batching():
        states = cell.begin_state(batch_size=1, func=mx.nd.zeros)
        with pytest.raises(edb.RecordError, match='a mask that the forward'):
            cell(mx.nd.ones((1, 4)), states)
