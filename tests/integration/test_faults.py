"""What was once found wrong from outside, one test a fault: batched is as eager, or an error says
why not."""

import asyncio
from contextlib import nullcontext
from types import SimpleNamespace

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.record.hooks import current_recording
from gluon_edbatch.testing import assert_matches_eager
from tests.support.cases import in_one_test
from tests.support.models import ndarrays, started


def dense(units=4, in_units=4):
    """An initialised layer."""
    layer = nn.Dense(units, in_units=in_units)
    layer.initialize(mx.init.Normal(0.5))
    return layer


def ways():
    """A scope with native operators, and one without; the last one stands for eager Gluon."""
    return [
        edb.batching(),
        edb.batching(compile_options=edb.CompileOptions(native=False)),
        nullcontext(),
    ]


def eager_and_batched(model, samples, use, parameters, native=True):
    """What ``use(results)`` gives to the parameters, without a scope and with one."""
    found = []
    for batched in (False, True):
        for parameter in parameters:
            parameter.zero_grad()
        with autograd.record():
            with edb.compile_options(native=native), edb.batching() if batched else nullcontext():
                results = [model(sample) for sample in samples]
            loss = use(results)
        loss.backward()
        found.append([parameter.grad().asnumpy() for parameter in parameters])
    return found


def both_ways(function, native=True):
    """What a function gives eagerly, and in a scope."""

    def run(scope):
        with scope:
            return function()

    with edb.compile_options(native=native):
        return run(nullcontext()), run(edb.batching())


def assert_as_eager(function, samples, blocks, native=True):
    """Outputs, and gradients of the blocks' parameters, of a function of a sample and a list, into
    which it puts arrays whose gradients are compared, too."""
    found = []
    for scope in (nullcontext, edb.batching):
        for block in blocks:
            block.collect_params().zero_grad()
        marked = []
        with autograd.record(), edb.compile_options(native=native):
            with scope():
                values = [function(sample, marked) for sample in samples]
            loss = mx.nd.add_n(*[value.sum() for value in values])
        loss.backward()
        found.append(
            [value.asnumpy() for value in values]
            + [
                parameter.grad().asnumpy()
                for block in blocks
                for parameter in block.collect_params().values()
            ]
            + [array.grad.asnumpy() for array in marked]
        )
    assert len(found[0]) == len(found[1])
    for expected, batched in zip(*found):
        np.testing.assert_allclose(batched, expected, rtol=1e-4, atol=1e-6)


def assert_same_gradients(*args, **options):
    """Assert that eager and batched gradients agree within rounding, and are not zero."""
    for expected, got in zip(*eager_and_batched(*args, **options)):
        assert np.abs(expected).max() > 1e-3
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


LABEL, TARGET = mx.nd.array([1.0]), mx.nd.array([[0.3, -0.2, 0.5]])
HEADS = {
    'MakeLoss': lambda F, y: F.MakeLoss(y * y, grad_scale=2),
    'make_loss': lambda F, y: F.make_loss(y * y),
    'SoftmaxOutput': lambda F, y: F.SoftmaxOutput(y, LABEL),
    'Softmax': lambda F, y: F.Softmax(y, LABEL),
    'LinearRegressionOutput': lambda F, y: F.LinearRegressionOutput(y, TARGET),
    'MAERegressionOutput': lambda F, y: F.MAERegressionOutput(y, TARGET),
    'LogisticRegressionOutput': lambda F, y: F.LogisticRegressionOutput(y, TARGET),
    'SVMOutput': lambda F, y: F.SVMOutput(y, LABEL),
}
USES = {
    'all': lambda pairs: sum([head.sum() for head, _ in pairs]),
    'only one': lambda pairs: pairs[1][0].sum(),
    'behind BlockGrad': lambda pairs: pairs[0][0].sum() + mx.nd.BlockGrad(pairs[1][0]).sum(),
    'times 0': lambda pairs: pairs[0][0].sum() * 0,
    'one, and values of another arena': lambda pairs: (
        pairs[2][0].sum() + edb.stack([other for _, other in pairs]).sum()
    ),
    'other values only': lambda pairs: edb.stack([other for _, other in pairs]).sum(),
    'stacked': lambda pairs: edb.stack([head for head, _ in pairs[1:]]).mean(),
}


@in_one_test('use', USES)
@in_one_test('head', HEADS)
def test_fault_01_loss_heads_make_their_own_gradient(head, use):
    """A head's gradient ignores how its result is used, and counts only if the loss needs it."""
    dense = started(gluon.nn.Dense(3, in_units=4))

    def model(x):
        y = dense(x)
        return HEADS[head](mx.nd, y), mx.nd.sum(y)

    for native in (True, False):
        assert_same_gradients(
            model, ndarrays(4, (1, 4)), USES[use], [dense.weight, dense.bias], native=native
        )


@in_one_test(
    'operator',
    [
        lambda y: mx.nd.sort(y, axis=None),
        lambda y: mx.nd.sort(y, axis=None, is_ascend=False),
        lambda y: mx.nd.argsort(y, axis=None),
        lambda y: mx.nd.topk(y, axis=None, k=2, ret_typ='mask'),
        lambda y: mx.nd.topk(y, axis=None, k=2, ret_typ='both'),
        lambda y: mx.nd.argmax(y, axis=None),
        lambda y: mx.nd.sum(y, axis=None),
        lambda y: mx.nd.norm(y, axis=None),
        lambda y: mx.nd.repeat(y, repeats=2, axis=None),
        lambda y: mx.nd.mean(y, axis=None, keepdims=1),
    ],
)
def test_fault_02_axis_none_sorts_one_value_only(operator):
    dense = started(gluon.nn.Dense(4, in_units=4))
    for rows in (1, 3):
        assert_matches_eager(
            lambda x: operator(dense(x)),
            ndarrays(4, (rows, 4)),
            blocks=[dense],
            hybridized=[False],
            schedulers=['agenda', 'depth'],
        )


@pytest.mark.parametrize(
    'head',
    [
        lambda y: mx.nd.MakeLoss(mx.nd.square(y), normalization='batch'),
        lambda y: mx.nd.MakeLoss(mx.nd.square(y), normalization='valid', valid_thresh=0.3),
        lambda y: mx.nd.SoftmaxOutput(y, mx.nd.array([1, 0]), normalization='batch'),
        lambda y: mx.nd.SoftmaxOutput(
            y, mx.nd.array([1, 0]), normalization='valid', use_ignore=True, ignore_label=0
        ),
    ],
)
def test_fault_03_make_loss_is_normalised_by_its_own_rows(head):
    dense = started(gluon.nn.Dense(3, in_units=4))
    assert_same_gradients(
        lambda x: head(dense(x)),
        ndarrays(4, (2, 4)),
        lambda heads: sum([head.sum() for head in heads]),
        [dense.bias],
    )


@pytest.mark.parametrize('native', [True, False])
def test_fault_04_autograd_functions_pass_gradients_on(native):
    class Scaled(autograd.Function):
        """A function whose gradient is not the gradient of what it computes."""

        def forward(self, x):
            return x * 1

        def backward(self, dy):
            return 3 * dy

    first, second = dense(), dense()
    assert_as_eager(
        lambda x, _: second(Scaled()(first(x))), ndarrays(4, (1, 4)), [first, second], native
    )
    assert abs(first.bias.grad().asnumpy()).max() > 0


@pytest.mark.parametrize('native', [True, False])
def test_fault_05_attach_grad_on_a_lazy_value(native):
    first, second = dense(), dense()

    def sample(x, marked):
        hidden = first(x)
        before = second(hidden)
        hidden.attach_grad()
        marked.append(hidden)
        return second(hidden * 2) + before

    assert_as_eager(sample, ndarrays(4, (1, 4)), [first, second], native)


@pytest.mark.parametrize('shape, axis', [((1, 4), 0), ((3, 4), 0), ((3, 2, 4), 0), ((3, 2, 4), 1)])
def test_fault_06_sequence_last_over_axis_0_without_lengths(shape, axis):
    """MXNet's own gradient is written beside the array, which eager code survives by luck."""
    xs = ndarrays(8, shape, gradient=True)
    for _ in range(5):
        with autograd.record():
            with edb.batching():
                values = [edb.nd.SequenceLast(edb.nd.identity(x), axis=axis) for x in xs]
            edb.stack(values).sum().backward()
    for x, value in zip(xs, values):
        last = np.take(x.asnumpy(), -1, axis)
        np.testing.assert_array_equal(value.asnumpy(), last)
        assert x.grad.asnumpy().sum() == last.size
        assert (np.take(x.grad.asnumpy(), -1, axis) == 1).all()


class Noisy(gluon.HybridBlock):
    """A function of F, x and a weight of ones."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.weight = self.params.get('weight', shape=(4, 4), init='ones')

    def hybrid_forward(self, F, x, weight):
        """x"""
        return self.function(F, x * 0, weight)


@pytest.mark.parametrize(
    'function',
    [
        lambda F, x, w: F.broadcast_add(x, F.random.normal(shape=(4,))),
        lambda F, x, w: F.broadcast_add(x, F.sample_normal(F.ones((4,)), F.ones((4,)))),
        lambda F, x, w: F.FullyConnected(x + 1, F.Dropout(w), no_bias=True, num_hidden=4),
        lambda F, x, w: F.Dropout(x + 1),
        lambda F, x, w: x + F.random.uniform_like(x),
        lambda F, x, w: F.broadcast_add(x, F.shuffle(F.arange(4))),
    ],
)
def test_fault_07_noise_that_depends_on_no_input(function):
    """One draw a call."""
    net = started(Noisy(function))
    for native in (True, False):
        with autograd.train_mode(), edb.compile_options(native=native), edb.batching():
            values = [net(x) for x in ndarrays(16, (1, 4))]
        assert len({value.asnumpy().tobytes() for value in values}) > 6


def test_fault_07_noise_that_is_switched_off_is_batched():
    net = started(
        Noisy(lambda F, x, w: F.FullyConnected(x, F.Dropout(w), no_bias=True, num_hidden=4))
    )
    with edb.batching() as scope:
        values = [net(x) for x in ndarrays(4, (1, 4))]
    edb.forward(values)
    assert scope.report().batches == 1


def test_fault_07_the_report_says_so():
    net = started(Noisy(lambda F, x, w: F.broadcast_add(x, F.random.normal(shape=(4,)))))
    with edb.batching() as scope:
        values = [net(x) for x in ndarrays(4, (1, 4))]
    edb.forward(values)
    (kind,) = scope.report().types
    assert (
        kind.batches == 4 and '_random_normal draws noise that depends on no argument' in kind.note
    )


def test_fault_08_writing_in_place_is_seen_by_all_who_hold_the_value():
    net, xs = dense(), ndarrays(4, (1, 4))

    def function():
        hidden = [net(x) for x in xs]
        before = [net(value) for value in hidden]
        for value in hidden:
            value *= 2
            value[:, 1] = 7
        return hidden + before + [net(value) for value in hidden]

    for expected, batched in zip(*both_ways(function)):
        np.testing.assert_allclose(batched.asnumpy(), expected.asnumpy(), rtol=1e-5, atol=1e-6)


class Scale(gluon.HybridBlock):
    """Reads an attribute of an object, one of its class, and an item deep in a list."""

    factor = 1.0

    def __init__(self, settings, deep):
        super().__init__()
        self.settings, self.deep = settings, deep

    def hybrid_forward(self, F, x):
        """x times three numbers"""
        return x * self.settings.scale * self.factor * self.deep[0][0][0][0][0][0]


def test_fault_09_constants_that_a_block_reads_from_outside_its_arguments(monkeypatch):
    x, closure, settings, deep = (
        mx.nd.ones((1, 2)),
        {'scale': 1.0},
        SimpleNamespace(scale=1.0),
        [1.0],
    )
    blocks = [Scale(settings, [[[[[deep]]]]]), nn.HybridLambda(lambda F, x: x * closure['scale'])]
    for change in (
        lambda: None,
        lambda: closure.update(scale=5.0),
        lambda: setattr(settings, 'scale', 3.0),
        lambda: deep.__setitem__(0, 7.0),
        lambda: monkeypatch.setattr(Scale, 'factor', 2.0),
    ):
        change()
        expected = [block(x).asnumpy() for block in blocks]
        for way in ways():
            with way:
                values = [block(x) for block in blocks]
            np.testing.assert_array_equal([value.asnumpy() for value in values], expected)
    assert np.ravel(expected).tolist() == [42, 42, 5, 5]


def test_fault_10_large_numpy_mode_inputs_are_read_as_recorded():
    layer, found = dense(2, 70000), []
    for way in ways():
        x = mx.np.ones((1, 70000)) if type(way) is edb.batching else mx.nd.ones((1, 70000))
        with way:
            y = layer(x)
            x[:] = 0
        found.append(y.asnumpy())
    np.testing.assert_allclose(found[0], found[2], rtol=1e-4)
    np.testing.assert_allclose(found[1], found[2], rtol=1e-4)


def test_fault_11_scopes_that_end_out_of_order():
    net, xs = dense(), ndarrays(4, (1, 4))
    twice = [net(net(x)).asnumpy() for x in xs]

    def samples():
        with edb.batching():
            yield net(xs[0])

    generator = samples()
    next(generator)
    with edb.batching():
        generator.close()
        lazy = net(net(xs[1]))
        assert isinstance(lazy, edb.LazyArray)
    assert current_recording() is None and not isinstance(net(xs[0]), edb.LazyArray)
    np.testing.assert_allclose(lazy.asnumpy(), twice[1], rtol=1e-5)

    async def task(x):
        with edb.batching():
            hidden = net(x)
            await asyncio.sleep(0)
            return net(hidden)

    async def tasks():
        return await asyncio.gather(*[task(x) for x in xs])

    found = asyncio.run(tasks())
    assert current_recording() is None
    np.testing.assert_allclose([value.asnumpy() for value in found], twice, rtol=1e-5)


@pytest.mark.filterwarnings('ignore:Cannot decide type:UserWarning:mxnet')
def test_fault_12_imported_symbol_blocks_can_be_recorded(tmp_path):
    net = nn.HybridSequential()
    net.add(nn.Dense(3, activation='tanh'), nn.Dense(2))
    net.initialize(mx.init.Normal(0.5))
    net.hybridize()
    xs = [mx.nd.random.normal(shape=(1, 4)) for _ in range(3)]
    expected = [net(x).asnumpy() for x in xs]
    net.export(str(tmp_path / 'net'))
    block = gluon.SymbolBlock.imports(
        str(tmp_path / 'net-symbol.json'), ['data'], str(tmp_path / 'net-0000.params')
    )
    for way in ways():
        with way:
            values = [block(x) for x in xs]
        for value, wanted in zip(values, expected):
            np.testing.assert_allclose(value.asnumpy(), wanted, rtol=1e-5, atol=1e-6)


def test_fault_13_zero_and_minus_zero_are_two_constants():
    layer, x, found = dense(), mx.nd.array([[1, -1, 2, -2]]), []
    for way in ways():
        with way:
            y = layer(x)
            values = [1 / (y * 0.0), 1 / (y * -0.0)]
        found.append([value.asnumpy() for value in values])
    np.testing.assert_array_equal(found[0], found[2])
    np.testing.assert_array_equal(found[1], found[2])
    assert not np.array_equal(*found[2])


class Outer(gluon.HybridBlock):
    """Has a child."""

    def __init__(self):
        super().__init__()
        self.inner = dense()

    def hybrid_forward(self, F, x):
        """What the child makes of x"""
        return self.inner(x)


def test_fault_14_hooks_on_children_after_their_first_use():
    net, x, seen = Outer(), mx.nd.ones((1, 4)), []
    for register in (net.inner.register_forward_hook, net.inner.register_forward_pre_hook):
        with edb.batching():
            before = net(x)
        handle = register(lambda *_: seen.append(1))
        with (
            edb.batching(),
            pytest.raises(edb.RecordError, match='inside Outer.* has a forward hook'),
        ):
            net(x)
        handle.detach()
        with edb.batching():
            after = net(x)
        np.testing.assert_array_equal(before.asnumpy(), after.asnumpy())
    assert not seen


@in_one_test(
    'operator',
    [
        lambda y: mx.nd.clip(y, -0.3, 0.4),
        lambda y: mx.nd.LeakyReLU(y, slope=0.3),
        lambda y: y * 0.3 + 0.1,
        lambda y: y / 0.3 - 0.1,
        lambda y: 0.3 / (0.1 - y),
        lambda y: mx.nd.maximum(y, 0.1),
        lambda y: mx.nd.minimum(0.1, y),
        lambda y: abs(y) ** 0.3,
        lambda y: y * 0.3 * 0.7 + 0.1 + 0.2,
    ],
)
def test_fault_16_scalars_with_float64(operator):
    """Some operators of MXNet keep numbers in single precision; the same number is taken here."""
    assert_matches_eager(
        lambda x: operator(edb.nd.identity(x)),
        [mx.nd.random.uniform(-2, 2, shape=(1, 4), dtype='float64') for _ in range(4)],
        hybridized=[False],
        schedulers=['agenda', 'depth'],
        rtol=1e-14,
    )


def test_fault_17_ragged_values_outside_blocks():
    xs = ndarrays(5, (1, 4))

    def function():
        found = []
        for count in (2, 3, 1, 5, 2):
            values = edb.ragged([edb.nd.tanh(x) for x in xs[:count]])
            found.append(edb.nd.sum(edb.nd.softmax(values, axis=1) * values, axis=1))
        return found

    for expected, batched in zip(*both_ways(function)):
        np.testing.assert_allclose(batched.asnumpy(), expected.asnumpy(), rtol=1e-5, atol=1e-6)
    with edb.batching():
        values = edb.ragged([edb.nd.tanh(x) for x in xs[:2]])
        with pytest.raises(edb.RecordError, match=r'\(1, 2, 4\), float32\(1, 4, 4\)'):
            values * edb.ragged([edb.nd.tanh(x) for x in xs[:4]]).reshape((1, 4, 4))


def test_fault_18_weights_of_a_deconvolution_that_were_computed():
    """Outside training its weight is stored anew where it lies, which may be a part of an array."""
    xs = ndarrays(4, (2, 2, 5))
    weights = [mx.nd.array(array) for array in np.random.RandomState(1).rand(4, 2, 2, 2)]

    def function():
        found = []
        for x, weight in zip(xs, weights):
            weight = edb.nd.tanh(weight)
            found += [
                edb.nd.Deconvolution(x, weight, kernel=(2,), num_filter=2, no_bias=True),
                weight * 2,
            ]
        return [value.asnumpy() for value in found]

    found = []
    for scope in ways():
        with scope:
            found.append(function())
    for expected, *batched in zip(*reversed(found)):
        for got in batched:
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


class Resized(gluon.HybridBlock):
    """MXNet lets it, though the gradient is then written beyond its array."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape

    def hybrid_forward(self, F, x):
        """The first elements, or what lies behind them, too"""
        return F.Reshape(x, shape=self.shape)


@pytest.mark.parametrize('shape', [(3,), (2, 4)])
def test_fault_19_reshape_to_another_number_of_elements(shape):
    x = mx.nd.ones((2, 3))
    for call in (Resized(shape), lambda x: mx.nd.Reshape(x, shape=shape)):
        with edb.batching(), autograd.record():
            with pytest.raises(edb.RecordError, match='another number of elements'):
                call(edb.nd.tanh(x))
    assert_matches_eager(Resized((3, 2)), [x] * 3)
