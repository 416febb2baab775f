"""What may change between recording and evaluation, threads, second backward passes, contexts.

Values are as when they were recorded, or there is a clear error; never a mixture.
"""

import contextlib
import gc
import threading

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.execute.cached.compiled_graph import InTurns
from tests.support.aftermath import assert_hooks_gone, assert_minibatch_right, assert_unguarded
from tests.support.cases import in_one_test
from tests.support.models import TreeLSTM, dense, random_trees, rows, started
from tests.support.processes import HANG, run_python

pytestmark = pytest.mark.usefixtures('aftermath')
SCHEDULERS = ['agenda', 'depth', 'unbatched']


def close(found, expected, **kwargs):
    """Two arrays agree to float32's accuracy."""
    found = found.asnumpy() if isinstance(found, mx.nd.NDArray) else found
    expected = expected.asnumpy() if isinstance(expected, mx.nd.NDArray) else expected
    np.testing.assert_allclose(found, expected, **dict(dict(rtol=1e-5, atol=1e-6), **kwargs))


def right_or_error(value, expected):
    """Either the value as recorded, or an error of this package."""
    try:
        found = value.asnumpy()
    except edb.EdbError as error:
        assert str(error)
        return
    close(found, expected)


# --- inputs that change --------------------------------------------------------------------------

CHANGES = {
    'assign': lambda x: x.__setitem__(slice(None), 7),
    'row': lambda x: x.__setitem__(0, 7),
    'element': lambda x: x.__setitem__((0, 1), 7),
    'add': lambda x: x.__iadd__(7),
    'multiply': lambda x: x.__imul__(-3),
    'out': lambda x: mx.nd.ones((1, 4), out=x),
    'sync copy': lambda x: x._sync_copyfrom(np.full((1, 4), 9, np.float32)),
    'copyto': lambda x: mx.nd.full((1, 4), 5).copyto(x),
    'operator': lambda x: mx.nd.elemwise_add(x, x, out=x),
    'view': lambda x: x.reshape((4,)).__setitem__(slice(None), 7),
    'slice': lambda x: x[0].__setitem__(slice(None), 7),
    'random': lambda x: mx.nd.random.normal(out=x, shape=(1, 4)),
}


@pytest.mark.parametrize('inside', [True, False], ids=['inside', 'after'])
@in_one_test('change', list(CHANGES))
def test_input_changed_in_place(change, inside):
    net = dense()
    array, other = rows(2)
    expected, original = net(array), net(other)
    expected.wait_to_read()
    with edb.batching():
        values = [net(array), net(other)]
        if inside:
            CHANGES[change](array)
    if not inside:
        CHANGES[change](array)
    right_or_error(values[0], expected)
    right_or_error(values[1], original)


@pytest.mark.parametrize('change', ['assign', 'add', 'copyto'])
def test_input_changed_through_an_older_view(change):
    """A view made before the call shares the memory and is not watched."""
    net = dense()
    (array,) = rows(1)
    view = array.reshape((1, 4))
    expected = net(array)
    expected.wait_to_read()
    with edb.batching():
        value = net(array)
    CHANGES[change](view)
    right_or_error(value, expected)


def test_input_changed_through_its_base():
    """A view is recorded, and the array behind it written."""
    net = dense()
    base = mx.nd.ones((2, 4))
    row = base[0:1]
    expected = net(row)
    expected.wait_to_read()
    with edb.batching():
        value = net(row)
    base[:] = 5
    right_or_error(value, expected)


def test_input_read_between_changes():
    """A change between two calls of one scope is seen by the second only."""
    net = dense()
    (array,) = rows(1)
    before = net(array).asnumpy()
    with edb.batching():
        first = net(array)
        array[:] = 2
        second = net(array)
    after = net(array)
    right_or_error(first, before)
    right_or_error(second, after)


def test_numpy_input_changed():
    net = dense()
    array = rows(1)[0].asnumpy()
    expected = net(mx.nd.array(array))
    expected.wait_to_read()
    with edb.batching():
        first = net(array)
        array[:] = 5
        second = net(array)
    array[:] = 7
    close(first, expected)
    close(second, net(mx.nd.full((1, 4), 5)))


def test_numpy_view_and_fortran_order():
    net = dense()
    array = np.asfortranarray(np.arange(16, dtype=np.float32).reshape(4, 4))
    with edb.batching():
        values = [net(array[i : i + 1, ::-1]) for i in range(4)] + [net(array.T)]
    close(values[2], net(mx.nd.array(array[2:3, ::-1].copy())))
    close(values[4], net(mx.nd.array(array.T.copy())))


@pytest.mark.parametrize('size', [4, 70000])
@pytest.mark.parametrize('change', ['assign', 'add', 'view', 'base'])
def test_numpy_mode_input_changed(change, size):
    """Arrays of ``mx.np``, whatever their size, inside of a scope and after it."""
    net = dense(in_units=size)
    for inside in (True, False):
        base = mx.np.ones((2, size))
        array = base[:1] if change == 'base' else mx.np.ones((1, size))
        write = {
            'assign': lambda array=array: array.__setitem__(slice(None), 7),
            'add': lambda array=array: array.__iadd__(7),
            'view': lambda array=array: array[:1].__setitem__(slice(None), 7),
            'base': lambda base=base: base.__setitem__(slice(None), 7),
        }[change]
        expected = net(mx.nd.ones((1, size)))
        expected.wait_to_read()
        with edb.batching():
            values = [net(array)]
            if inside:
                write()
                values.append(net(array))
        if not inside:
            write()
        close(values[0], expected, rtol=1e-4, atol=1e-4)
        if inside:
            close(
                values[1],
                net(mx.nd.full((1, size), 8 if change == 'add' else 7)),
                rtol=1e-4,
                atol=1e-3,
            )


def test_input_with_gradient_changed_under_record():
    net = dense()
    (array,) = rows(1)
    array.attach_grad()
    with autograd.record():
        expected = net(array)
    expected.backward()
    gradient = array.grad.asnumpy().copy()
    with autograd.record():
        with edb.batching():
            value = net(array)
    array[:] = 3
    right_or_error(value, expected)
    value.backward()
    close(array.grad, gradient)


# --- parameters that change ----------------------------------------------------------------------


def _trainer_step(net):
    trainer = gluon.Trainer(net.collect_params(), 'sgd', {'learning_rate': 1.0})
    with autograd.record():
        loss = net(mx.nd.ones((1, 4))).sum()
    loss.backward()
    trainer.step(1)


def _load(net, directory):
    other = dense()
    other.initialize(mx.init.One(), force_reinit=True)
    other.save_parameters(str(directory / 'other.params'))
    net.load_parameters(str(directory / 'other.params'))


PARAMETER_CHANGES = {
    'set_data': lambda net, _: net.weight.set_data(mx.nd.ones((3, 4))),
    'old reference': lambda net, reference: reference.__setitem__(slice(None), 0),
    'old reference add': lambda net, reference: reference.__iadd__(1),
    'data': lambda net, _: net.weight.data().__setitem__(slice(None), 0),
    'bias': lambda net, _: net.bias.data().__setitem__(slice(None), 9),
    'trainer.step': lambda net, _: _trainer_step(net),
    'cast': lambda net, _: net.cast('float64'),
    'grad_req null': lambda net, _: setattr(net.weight, 'grad_req', 'null'),
    'grad_req add': lambda net, _: setattr(net.weight, 'grad_req', 'add'),
    'zero_grad': lambda net, _: net.collect_params().zero_grad(),
    'reset_ctx': lambda net, _: net.collect_params().reset_ctx(mx.cpu(1)),
    'initialize': lambda net, _: net.initialize(mx.init.One(), force_reinit=True),
    'hybridize': lambda net, _: net.hybridize(),
    'eager call': lambda net, _: net(mx.nd.ones((1, 4))).wait_to_read(),
}


def _restore(net, mode):
    if mode == 'cast':
        net.cast('float32')
    if mode == 'reset_ctx':
        net.collect_params().reset_ctx(mx.cpu(0))
    net.weight.grad_req = 'write'


@pytest.mark.parametrize('record', [False, True], ids=['predict', 'record'])
@pytest.mark.parametrize('inside', [True, False], ids=['inside', 'after'])
@in_one_test('change', list(PARAMETER_CHANGES))
def test_parameter_changed(change, inside, record):
    net = dense()
    reference = net.weight.data()
    samples = rows(3)
    expected = [net(sample).asnumpy() for sample in samples]

    def apply():
        with autograd.pause():
            PARAMETER_CHANGES[change](net, reference)

    with autograd.record() if record else autograd.pause():
        with edb.batching():
            values = [net(sample) for sample in samples]
            if inside:
                apply()
        if not inside:
            apply()
    for value, wanted in zip(values, expected):
        right_or_error(value, wanted)
    _restore(net, change)
    del values, value
    gc.collect()
    assert_unguarded(net)
    assert_minibatch_right(net)


@pytest.mark.parametrize('change', ['initialize', 'grad_req add', 'set_data', 'old reference'])
def test_parameter_changed_between_two_calls(change):
    """The first call has the old values, the second the new ones; or an error says why not."""
    net = dense()
    reference, sample = net.weight.data(), rows(1)[0]
    old = net(sample).asnumpy()
    try:
        with edb.batching():
            first = net(sample)
            PARAMETER_CHANGES[change](net, reference)
            second = net(sample)
    except edb.EdbError:
        with pytest.raises(edb.StaleValueError):
            first.asnumpy()
    else:
        right_or_error(first, old)
        right_or_error(second, net(sample))
    _restore(net, change)
    assert_minibatch_right(net)


@pytest.mark.parametrize('change', ['cast', 'reset_ctx'])
def test_parameter_moved_between_two_calls(change):
    """The model does not fit the sample any more: the second call is refused, as eagerly."""
    net = dense()
    sample = rows(1)[0]
    old = net(sample).asnumpy()
    with edb.batching():
        first = net(sample)
        PARAMETER_CHANGES[change](net, None)
        with pytest.raises((edb.EdbError, RuntimeError)):
            net(sample)
    right_or_error(first, old)
    _restore(net, change)
    assert_minibatch_right(net)


@pytest.mark.parametrize('inside', [True, False], ids=['inside', 'after'])
def test_load_parameters_between(tmp_path, inside):
    net = dense()
    sample = rows(1)[0]
    old = net(sample).asnumpy()
    with edb.batching():
        value = net(sample)
        if inside:
            _load(net, tmp_path)
    if not inside:
        _load(net, tmp_path)
    right_or_error(value, old)
    with edb.batching():
        value = net(sample)
    close(value, sample.sum().asscalar() * np.ones((1, 3), np.float32))


def test_trainer_step_between_two_scopes_of_one_minibatch():
    """The gradients of a value recorded before the step belong to the parameters before it."""
    net = dense()
    trainer = gluon.Trainer(net.collect_params(), 'sgd', {'learning_rate': 0.5})
    sample = rows(1)[0]
    expected = _gradient(net, [sample])
    with autograd.record():
        with edb.batching():
            loss = (net(sample) ** 2).sum(axis=1)
    loss.wait_to_read()
    other = mx.nd.ones((1, 4))  # MXNet forgets arrays that were differentiated: not `sample`
    with autograd.record():
        net(other).sum().backward()
    trainer.step(1)  # after the evaluation, before its backward pass
    loss.backward()
    close(net.weight.grad(), expected)


def test_updates_queued_while_backward_is_pending():
    """No wait anywhere: each gradient is that of the parameters it was recorded with."""

    def train(run):
        net = nn.Dense(3, in_units=4)
        net.initialize(mx.init.Constant(0.3))
        trainer = gluon.Trainer(net.collect_params(), 'sgd', {'learning_rate': 0.1})
        for step in range(50):
            samples = rows(6, seed=step)
            with autograd.record():
                loss = run(net, samples)
            loss.backward()
            trainer.step(6)
        return net.weight.data().asnumpy()

    def batched(net, samples):
        with edb.batching():
            losses = [(net(sample) ** 2).sum(axis=1) for sample in samples]
        return edb.stack(losses).sum()

    def eager(net, samples):
        return mx.nd.add_n(*[(net(sample) ** 2).sum() for sample in samples])

    close(train(batched), train(eager))


# --- attributes that change ----------------------------------------------------------------------


class Scaled(gluon.HybridBlock):
    """Multiplies with a Python attribute."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.scale = 1.0
        self.options = {'shift': 0.0, 'list': [1.0]}

    def hybrid_forward(self, F, x):
        return x * self.scale + self.options['shift'] + self.options['list'][-1]


class Outer(gluon.HybridBlock):
    """Has a `Scaled` inside."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.inner = Scaled()

    def hybrid_forward(self, F, x):
        return self.inner(x)


def _attribute(block, value):
    block.scale = value


def _nested_dict(block, value):
    block.options['shift'] = value


def _nested_list(block, value):
    block.options['list'].append(value)


ATTRIBUTES = {'attribute': _attribute, 'dict': _nested_dict, 'list': _nested_list}


@pytest.mark.parametrize('nested', [False, True])
@pytest.mark.parametrize('kind', list(ATTRIBUTES))
def test_attribute_changed_between_calls_of_a_scope(kind, nested):
    net = Outer() if nested else Scaled()
    block = net.inner if nested else net
    sample = rows(1)[0]
    expected, values = [], []
    try:
        with edb.batching():
            for value in (2.0, 3.0, 2.0):
                ATTRIBUTES[kind](block, value)
                with_hooks_off = block.hybrid_forward(mx.nd, sample)
                expected.append(with_hooks_off.asnumpy())
                values.append(net(sample))
    except edb.RecordError as error:
        assert block.name in str(error) or net.name in str(error)
        return
    for value, wanted in zip(values, expected):
        right_or_error(value, wanted)


@pytest.mark.parametrize('nested', [False, True])
@pytest.mark.parametrize('kind', list(ATTRIBUTES))
def test_attribute_changed_before_evaluation(kind, nested):
    net = Outer() if nested else Scaled()
    block = net.inner if nested else net
    sample = rows(1)[0]
    expected = block.hybrid_forward(mx.nd, sample).asnumpy()
    with edb.batching():
        value = net(sample)
    ATTRIBUTES[kind](block, 5.0)
    right_or_error(value, expected)


@pytest.mark.parametrize('nested', [False, True])
@pytest.mark.parametrize('kind', list(ATTRIBUTES))
def test_attribute_changed_between_scopes(kind, nested):
    """A type is traced again: the second scope sees the new value."""
    net = Outer() if nested else Scaled()
    block = net.inner if nested else net
    for number in (2.0, 3.0, 2.0, 7.5):
        ATTRIBUTES[kind](block, number)
        with edb.batching():
            values = [net(sample) for sample in rows(3)]
        for value, sample in zip(values, rows(3)):
            close(value, block.hybrid_forward(mx.nd, sample))


def test_child_replaced_between_scopes():
    net = nn.HybridSequential()
    net.add(dense(4), dense(3))
    for _ in range(3):
        assert_minibatch_right(net)
        net._children['1'] = dense(3)


def test_attribute_holding_an_array():
    """An NDArray attribute is a constant of the trace: changing it in place must show."""

    class Shifted(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.shift = np.float32(1.0)

        def hybrid_forward(self, F, x):
            return x + float(self.shift)

    net = Shifted()
    for number in (1.0, 2.0, 3.0):
        net.shift = np.float32(number)
        with edb.batching():
            value = net(rows(1)[0])
        close(value, rows(1)[0] + number)


def test_activation_changed():
    """Replacing a child's behaviour through an attribute of an attribute."""
    net = nn.Activation('relu')
    with edb.batching():
        first = net(rows(1)[0])
    first.wait_to_read()
    net._act_type = 'tanh'
    with edb.batching():
        second = net(rows(1)[0])
    close(second, mx.nd.tanh(rows(1)[0]))


# --- second backward passes ----------------------------------------------------------------------


def _loss(net, samples):
    with edb.batching():
        losses = [(net(sample) ** 2).sum(axis=1) for sample in samples]
    return edb.stack(losses).sum()


def _gradient(net, samples):
    with autograd.record():
        loss = mx.nd.add_n(*[(net(sample) ** 2).sum() for sample in samples])
    loss.backward()
    return net.weight.grad().asnumpy().copy()


def test_retain_graph_in_the_minibatch():
    net, samples = dense(), rows(4)
    expected = _gradient(net, samples)
    with autograd.record():
        loss = _loss(net, samples)
    for _ in range(3):
        net.weight.zero_grad()
        loss.backward(retain_graph=True)
        close(net.weight.grad(), expected)


@pytest.mark.parametrize('value', ['one', 'each'])
def test_backward_of_several_values_of_a_scope(value):
    net, samples = dense(), rows(3)
    with autograd.record():
        with edb.batching():
            losses = [(net(sample) ** 2).sum(axis=1) for sample in samples]
    expected = [_gradient(net, [sample.copy()]) for sample in samples]
    for loss, wanted in list(zip(losses, expected))[: 1 if value == 'one' else None]:
        loss.backward()
        close(net.weight.grad(), wanted)


def test_grad_req_add_over_scopes():
    net = dense()
    net.collect_params().setattr('grad_req', 'add')
    net.collect_params().zero_grad()
    expected = 0
    for seed in range(3):
        other = dense()
        other.weight.set_data(net.weight.data())
        other.bias.set_data(net.bias.data())
        expected = expected + _gradient(other, rows(3, seed=seed))
        with autograd.record():
            loss = _loss(net, rows(3, seed=seed))
        loss.backward()
    close(net.weight.grad(), expected)


def test_second_backward_after_a_later_scope():
    net = dense()
    first, second = rows(3), rows(4, seed=1)
    expected = _gradient(net, first)
    with autograd.record():
        loss = _loss(net, first)
    loss.backward(retain_graph=True)
    close(net.weight.grad(), expected)
    with autograd.record():
        _loss(net, second).backward()
    later = net.weight.grad().asnumpy().copy()
    try:
        loss.backward()
        found = net.weight.grad().asnumpy()
    except (edb.EdbError, mx.base.MXNetError) as error:
        assert 'second backward' in str(error) or isinstance(error, mx.base.MXNetError)
    else:
        close(found, expected)
        assert not np.allclose(found, later)
    with contextlib.suppress(mx.base.MXNetError):
        mx.nd.waitall()
    assert_minibatch_right()


def test_second_backward_error_says_why():
    """The text of the error reaches the user, not only that a custom function failed."""
    program = """
import gluon_edbatch as edb
import mxnet as mx
from gluon_edbatch.execute.cached.compiled_graph import InTurns
from mxnet import autograd, gluon
net = gluon.nn.Dense(3, in_units=4); net.initialize()
def loss():
    with edb.batching():
        values = [net(mx.nd.ones((1, 4))) for _ in range(3)]
    return edb.stack(values).sum()
with autograd.record():
    first = loss()
first.backward(retain_graph=True)
with autograd.record():
    loss().backward()
first.backward()
print(net.weight.grad().asnumpy().sum())
"""
    run = run_python('-c', program)
    text = run.stdout + run.stderr
    if run.returncode == 0:
        assert '36.0' in run.stdout, text  # right after all
    else:
        assert 'second backward pass' in text, text


def test_first_backward_after_a_later_scope():
    """Two minibatches in flight, differentiated in either order."""
    net = dense()
    first, second = rows(3), rows(4, seed=1)
    expected = [_gradient(net, first), _gradient(net, second)]
    for order in ((0, 1), (1, 0)):
        with autograd.record():
            losses = [_loss(net, first), _loss(net, second)]
        for index in order:
            losses[index].backward()
            close(net.weight.grad(), expected[index])


def test_two_scopes_in_one_loss():
    net = dense()
    first, second = rows(3), rows(4, seed=1)
    expected = _gradient(net, first + second)
    with autograd.record():
        loss = _loss(net, first) + _loss(net, second)
    loss.backward()
    close(net.weight.grad(), expected)


def test_values_of_an_earlier_scope_are_inputs():
    net = dense(4)
    sample = rows(1)[0]
    with autograd.record():
        expected = net(net(sample))
        (expected**2).sum().backward()
    gradient = net.weight.grad().asnumpy().copy()
    with autograd.record():
        with edb.batching():
            first = net(sample)
        with edb.batching():
            second = (net(first) ** 2).sum(axis=1)
    second.backward()
    close(net.weight.grad(), gradient)


def test_reading_in_the_middle_keeps_gradients():
    net = dense(4)
    sample = rows(1)[0]
    with autograd.record():
        (net(net(net(sample))) ** 2).sum().backward()
    gradient = net.weight.grad().asnumpy().copy()
    with autograd.record():
        with edb.batching() as scope:
            value = net(sample)
            if value.sum().asscalar() > -1e9:
                value = net(value)
            if value.sum().asscalar() > -1e9:
                value = net(value)
            loss = (value**2).sum(axis=1)
    loss.backward()
    close(net.weight.grad(), gradient)
    report = scope.report()
    assert report.evaluations == 3
    assert len(report.forced) == 2 and all(site.filename == __file__ for site in report.forced), (
        report.forced
    )


# --- nothing runs that nobody asks for -----------------------------------------------------------


@pytest.mark.parametrize('scheduler', SCHEDULERS)
def test_nothing_runs_on_exit(scheduler):
    net = dense()
    with edb.batching(scheduler) as scope:
        values = [net(sample) for sample in rows(4)]
    assert scope.report().evaluations == scope.report().nodes == 0
    values[0].asnumpy()
    assert scope.report().evaluations == 1


def test_forward_runs_only_what_is_needed():
    net, other = dense(4), dense(2)
    with edb.batching() as scope:
        first = [net(sample) for sample in rows(5)]
        second = [other(value) for value in first]
        unused = [net(value) for value in first]
    edb.forward(second[:2])
    assert scope.report().nodes == 4
    edb.forward(second)
    assert scope.report().nodes == 10
    close(unused[3], net(net(rows(5)[3])))
    assert scope.report().nodes <= 15


def test_computed_values_are_not_computed_again():
    net = dense(4)
    with edb.batching() as scope:
        value = net(rows(1)[0])
        value.asnumpy()
        more = net(value)
    more.asnumpy()
    assert scope.report().nodes == 2
    more.asnumpy(), value.asnumpy()
    assert scope.report().evaluations == 2


# --- threads -------------------------------------------------------------------------------------


def _in_threads(*functions):
    errors = []

    def guarded(function):
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=guarded, args=(function,), daemon=True) for function in functions
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG)
        assert not thread.is_alive(), 'deadlock'
    if errors:
        raise errors[0]


def _rounds(seed, shared=None, train=True, count=15):
    """Many scopes in one thread, each compared with eager numbers computed beforehand."""
    net = dense(4) if shared is None else shared
    weight, bias = (net.weight.data().asnumpy(), net.bias.data().asnumpy())

    def run():
        for number in range(count):
            samples = rows(4 + number % 3, seed=seed * 100 + number)
            if train:
                with autograd.record():
                    with edb.batching():
                        values = [net(net(sample)) for sample in samples]
                    loss = edb.stack(values).sum()
                loss.backward()
            else:
                with edb.batching():
                    values = [net(net(sample)) for sample in samples]
            for value, sample in zip(values, samples):
                expected = (sample.asnumpy() @ weight.T + bias) @ weight.T + bias
                close(value, expected, rtol=1e-4, atol=1e-5)

    return run


def test_two_threads_with_a_scope_each():
    _in_threads(_rounds(1), _rounds(2))


def test_two_threads_share_a_model():
    net = dense(4)
    _in_threads(_rounds(1, net, train=False), _rounds(2, net, train=False))
    assert_unguarded(net)


def _gradients_at_once(rounds):
    """Four threads differentiate with one model; its gradients are added up, inputs have theirs."""
    net = dense(4)
    weight = net.weight.data().asnumpy()
    net.collect_params().setattr('grad_req', 'add')
    net.collect_params().zero_grad()
    samples = [rows(3, seed=thread) for thread in range(4)]

    def work(thread):
        def run():
            for _ in range(rounds):
                mine = [sample.copy() for sample in samples[thread]]
                for sample in mine:
                    sample.attach_grad()
                with autograd.record():
                    with edb.batching():
                        values = [net(sample) for sample in mine]
                    loss = (edb.stack(values) * (thread + 1)).sum()
                loss.backward()
                for sample in mine:
                    close(sample.grad, (thread + 1) * weight.sum(axis=0, keepdims=True), rtol=1e-4)

        return run

    _in_threads(*map(work, range(4)))
    total = sum(
        (thread + 1) * sum(sample.asnumpy() for sample in samples[thread]) for thread in range(4)
    )
    close(net.weight.grad(), rounds * total.repeat(4, axis=0), rtol=1e-3, atol=1e-3)
    close(net.bias.grad(), np.full(4, rounds * 3 * (1 + 2 + 3 + 4)), rtol=1e-4)


def test_gradients_in_four_threads_at_once():
    _gradients_at_once(15)


@pytest.mark.slow
def test_gradients_in_four_threads_many_times():
    """960 scopes in four threads."""
    _gradients_at_once(240)


def test_threads_take_turns_with_a_compiled_graph():
    """MXNet infers shapes in a graph that all calls of a CachedOp share."""
    inside, most = 0, 0

    def op(*arrays, out):
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        threading.Event().wait(0.001)  # others may run
        inside -= 1
        return arrays, out

    in_turns = InTurns(op)

    def work():
        for number in range(5):
            assert in_turns(number, 2, out=3) == ((number, 2), 3)

    _in_threads(*[work] * 4)
    assert most == 1


@pytest.mark.parametrize('native', [True, False])
def test_threads_meet_a_model_together(native):
    """What compiles and is compared once, is so by four threads at once."""
    for round_ in range(3):
        net, trees = started(TreeLSTM(), seed=round_), random_trees(6, seed=round_)
        expected = [net(tree).asnumpy() for tree in trees]

        def work(net=net, trees=trees, expected=expected):
            with edb.compile_options(native=native), edb.batching():
                values = [net(tree) for tree in trees]
            for value, each in zip(edb.forward(values), expected):
                np.testing.assert_allclose(value.asnumpy(), each, rtol=1e-4, atol=1e-5)

        _in_threads(*[work] * 4)


def test_eager_thread_beside_a_recording_one():
    """Eager Gluon in another thread is neither recorded nor disturbed."""
    net, done, failures = dense(4), threading.Event(), []
    rounds = threading.Semaphore(0)  # of the eager thread
    weight, bias = net.weight.data().asnumpy(), net.bias.data().asnumpy()

    def eager():
        hybrid = dense(4)
        hybrid.hybridize()
        while not done.is_set():
            sample = rows(1, seed=3)[0]
            out = net(sample)
            if type(out) is not mx.nd.NDArray:
                failures.append(type(out))
            close(out, sample.asnumpy() @ weight.T + bias)
            with autograd.record():
                loss = hybrid(sample).sum()
            loss.backward()
            hybrid.weight.grad().asnumpy()
            rounds.release()

    def recorder():
        try:
            for _ in range(30):
                with edb.batching():
                    values = [net(net(sample)) for sample in rows(5)]
                    assert rounds.acquire(timeout=HANG / 2)
                edb.forward(values)
        finally:
            done.set()

    _in_threads(eager, recorder)
    assert not failures


def test_failing_thread_beside_a_working_one():
    def failing():
        net = dense()
        for _ in range(40):
            with pytest.raises(RuntimeError):
                with edb.batching():
                    net(rows(1)[0])
                    raise RuntimeError('in thread')

    _in_threads(failing, _rounds(5))
    assert_hooks_gone()


@pytest.mark.parametrize('record', [False, True])
def test_evaluation_in_another_thread(record):
    net, samples = dense(), rows(4)
    expected = [net(sample).asnumpy() for sample in samples]
    with autograd.record() if record else autograd.pause():
        with edb.batching():
            values = [net(sample) for sample in samples]

    def evaluate():
        for value, wanted in zip(values, expected):
            close(value, wanted)

    _in_threads(evaluate)
    assert_unguarded(net)


def test_evaluation_in_two_threads_at_once():
    for number in range(20):
        net, samples = dense(4), rows(6, seed=number)
        expected = [net(net(sample)).asnumpy() for sample in samples]
        with edb.batching() as scope:
            values = [net(net(sample)) for sample in samples]
        barrier = threading.Barrier(2)

        def evaluate(part):
            def run():
                barrier.wait(HANG / 2)
                for value, wanted in list(zip(values, expected))[part::2]:
                    close(value, wanted)

            return run

        _in_threads(evaluate(0), evaluate(1))
        assert scope.report().nodes == 12


def test_evaluation_in_another_thread_while_recording():
    """A second thread that reads a value while the first records in the same scope is told to
    wait; the values are right all the same."""
    for number in range(10):
        net, samples = dense(4), rows(40, seed=number)
        expected = [net(net(sample)).asnumpy() for sample in samples]
        values, ready, refused = [], threading.Event(), threading.Event()

        def reader():
            assert ready.wait(HANG / 2)
            with pytest.raises(edb.RecordError, match='another thread is still recording'):
                values[0].asnumpy()
            refused.set()

        def recorder():
            with edb.batching():
                for sample in samples:
                    values.append(net(net(sample)))
                    ready.set()
                assert refused.wait(HANG / 2)
            for value, wanted in zip(values, expected):
                close(value, wanted)

        _in_threads(reader, recorder)


def test_backward_in_another_thread():
    net, samples = dense(), rows(3)
    expected = _gradient(net, samples)
    with autograd.record():
        loss = _loss(net, samples)
    net.weight.zero_grad()
    _in_threads(loss.backward)
    close(net.weight.grad(), expected)


def test_scope_exits_in_the_order_of_entry_in_two_threads():
    """Hooks stay until the last scope is left, whoever entered first."""
    first_in, second_in, first_out = (threading.Event() for _ in range(3))
    net = dense()
    expected = net(rows(1)[0]).asnumpy()

    def first():
        with edb.batching():
            value = net(rows(1)[0])
            first_in.set()
            assert second_in.wait(HANG / 2)
        first_out.set()
        close(value, expected)

    def second():
        assert first_in.wait(HANG / 2)
        with edb.batching():
            second_in.set()
            assert first_out.wait(HANG / 2)
            value = net(rows(1)[0])
            assert isinstance(value, edb.LazyArray)
        close(value, expected)

    _in_threads(first, second)


# --- deadlocks -----------------------------------------------------------------------------------


@pytest.mark.parametrize('scheduler', SCHEDULERS)
def test_no_wait_between_minibatches(scheduler):
    """50 steps of each way to update are handed to the engine without a wait; it must get
    through."""
    program = f"""
import faulthandler
faulthandler.dump_traceback_later({HANG / 2}, exit=True)
import gluon_edbatch as edb
import mxnet as mx
import numpy as np
from gluon_edbatch.execute.cached.compiled_graph import InTurns
from mxnet import autograd, gluon
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(16, in_units=4, activation='tanh'), gluon.nn.Dense(4, in_units=16))
net.initialize()
trainer = gluon.Trainer(net.collect_params(), 'adam')
generator = np.random.RandomState(0)
for step in range(150):
    update = ('trainer', 'set_data', 'assign')[step // 50]
    data = generator.randn(step % 7 + 2, 1, 4).astype(np.float32)
    with autograd.record():
        with edb.batching({scheduler!r}):
            losses = [(net(net(sample)) ** 2).sum(axis=1) for sample in data]
        loss = edb.stack(losses).mean()
    loss.backward()
    if update == 'trainer':
        trainer.step(1)
    else:
        for parameter in net.collect_params().values():
            if update == 'set_data':
                parameter.set_data(parameter.data() - 0.01 * parameter.grad())
            else:
                parameter.data()[:] -= 0.01 * parameter.grad()
    if step % 50 == 49:
        mx.nd.waitall()
        assert np.isfinite(loss.asscalar())
"""
    run = run_python('-c', program)
    assert run.returncode == 0, run.stdout + run.stderr


# --- sizes ---------------------------------------------------------------------------------------


def _chain(depth, scheduler='agenda', size=8):
    net = nn.Dense(size, in_units=size, activation='tanh')
    net.initialize(mx.init.Xavier())
    sample = mx.nd.ones((1, size))
    with autograd.record():
        with edb.batching(scheduler) as scope:
            value = sample
            for _ in range(depth):
                value = net(value)
        loss = value.sum()
    loss.backward()
    found, gradient = value.asnumpy(), net.weight.grad().asnumpy().copy()
    with autograd.record():
        expected = sample
        for _ in range(depth):
            expected = net(expected)
    close(found, expected, rtol=1e-4)
    assert np.isfinite(gradient).all()
    assert scope.report().nodes == depth


@pytest.mark.parametrize('scheduler', SCHEDULERS)
def test_chain_of_500(scheduler):
    _chain(500, scheduler)


@pytest.mark.slow
def test_chain_of_10000():
    _chain(10_000)


def _wide(count, scheduler='agenda'):
    net = nn.Embedding(100, 4)
    net.initialize()
    join = dense(4, 4)
    table = net.weight.data().asnumpy()
    ids = np.random.RandomState(0).randint(100, size=count // 2).tolist()
    with edb.batching(scheduler) as scope:
        values = [join(net(number)) for number in ids]
    total = edb.concat(values)
    found = total.asnumpy()
    expected = table[ids] @ join.weight.data().asnumpy().T
    close(found, expected, rtol=1e-4, atol=1e-6)
    assert scope.report().nodes == len(ids) * 2


def test_minibatch_of_20000_nodes():
    _wide(20_000)


@pytest.mark.slow
def test_minibatch_of_1000000_nodes():
    _wide(1_000_000)


# --- other devices -------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(not mx.context.num_gpus(), reason='there is no GPU')
def test_gpu():
    net = nn.Dense(3, in_units=4)
    net.initialize(ctx=mx.gpu())
    assert_minibatch_right(net, [row.as_in_context(mx.gpu()) for row in rows(5)])
    with edb.batching():
        value = net(np.ones((1, 4), np.float32))
    assert value.ctx == mx.gpu() and value.evaluated().ctx == mx.gpu()


@pytest.mark.gpu
@pytest.mark.skipif(not mx.context.num_gpus(), reason='there is no GPU')
def test_cpu_and_gpu_are_not_mixed():
    with edb.batching():
        with pytest.raises(edb.RecordError, match='gpu'):
            dense()(mx.nd.ones((1, 4), ctx=mx.gpu()))


def test_scope_context_for_numbers():
    net = nn.Embedding(5, 3)
    net.initialize(ctx=mx.cpu(1))
    with edb.batching(ctx=mx.cpu(1)):
        values = [net(number) for number in (1, 2)]
    assert all(value.ctx == mx.cpu(1) for value in values)
    close(values[0], net.weight.data(mx.cpu(1))[1:2])


def test_model_on_two_contexts():
    """Each sample runs where its arrays are; nothing is copied silently."""
    net = nn.Dense(3, in_units=4)
    net.initialize(mx.init.One(), ctx=[mx.cpu(0), mx.cpu(1)])
    samples = [row.as_in_context(mx.cpu(i % 2)) for i, row in enumerate(rows(6))]
    with autograd.record():
        with edb.batching():
            values = [net(sample) for sample in samples]
    for value, sample in zip(values, samples):
        assert value.ctx == sample.ctx
        close(value, net(sample))
    gc.collect()
