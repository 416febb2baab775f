"""`assert_matches_eager` where rounding is large: float64 says which side is nearer."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.record import hooks
from gluon_edbatch.testing import assert_matches_eager, closeness
from gluon_edbatch.testing import matches_eager as eager
from gluon_edbatch.testing.closeness import Measured, differences, judge
from tests.support.models import TreeLSTM, ndarrays, random_trees, started

FAST = dict(schedulers=['agenda', 'unbatched'], hybridized=[False])


class Pointer(gluon.HybridBlock):
    """Attention over words: the gradient of the keys' bias cancels to nothing, and with words far
    from 0 the scores are small differences of long sums."""

    def __init__(self, size=16, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.keys = nn.Dense(size, in_units=size, flatten=False)
            self.query = nn.Dense(size, in_units=size)

    def hybrid_forward(self, F, words, state):
        query = F.expand_dims(self.query(state), 1)
        scores = F.sum(F.broadcast_mul(self.keys(words), query), axis=2)
        return F.log_softmax(F.broadcast_sub(scores, F.mean(scores, axis=1, keepdims=True)))


class Holder:
    """A sample that is no list: arrays are its attributes."""

    def __init__(self, words, state):
        self.words, self.state = words, state


def pairs(offset, count=6, length=40, size=16, gradient=False):
    """(words, state) of some samples; words are around `offset`."""
    generator = np.random.RandomState(0)
    made = [
        (
            mx.nd.array(generator.randn(1, length, size) + offset),
            mx.nd.array(generator.randn(1, size)),
        )
        for _ in range(count)
    ]
    for pair in made if gradient else ():
        for array in pair:
            array.attach_grad()
    return made


def wrong_in_scopes(model, gradient=0.0, result=0.0, dtype=None):
    """The model with gradients and results that are wrong by these factors, if batched."""

    def call(*args):
        y = model(*args)
        if hooks.current_recording() is None or dtype not in (None, np.dtype(y.dtype).name):
            return y
        return (y + gradient * (y - edb.nd.BlockGrad(y))) * (1 + result)

    return call


@pytest.fixture(name='without_float64')
def fixture_without_float64(monkeypatch):
    """Let no model run in float64, so that only the tolerance judges."""

    def disable():
        monkeypatch.setattr(eager._Model, 'exact', lambda *_: TypeError('no float64'))

    return disable


@pytest.mark.parametrize('offset', [0, 300, 3000])
def test_rounding_is_no_mistake(offset, without_float64):
    net, samples = started(Pointer()), pairs(offset, gradient=True)
    assert_matches_eager(net, samples, unpack=True)
    without_float64()
    with pytest.raises(AssertionError, match='TypeError: no float64'):
        assert_matches_eager(net, samples, unpack=True)


def test_samples_that_are_objects():
    """Their arrays are taken in float64 where blocks get them."""
    net = started(Pointer())
    samples = [Holder(*pair) for pair in pairs(300)]
    assert_matches_eager(
        lambda sample: net(sample.words, sample.state), samples, blocks=[net], **FAST
    )


class FromNumPy(edb.AutoBatchMixin, Pointer):
    """`Pointer` for NumPy arrays, which the mixin converts."""


def test_samples_of_numpy():
    samples = [tuple(array.asnumpy() for array in pair) for pair in pairs(3000)]
    assert_matches_eager(started(FromNumPy()), samples, unpack=True)


MODELS = {
    'dense': (lambda: nn.Dense(3, in_units=4), lambda: [(x,) for x in ndarrays(6, (1, 4))]),
    'tree': (TreeLSTM, lambda: [(tree,) for tree in random_trees(6)]),
    'pointer': (Pointer, lambda: pairs(0)),
    'pointer, large rounding': (Pointer, lambda: pairs(3000)),
}


@pytest.mark.parametrize('name', MODELS)
@pytest.mark.parametrize('size', [1e-3, -1e-3, 1.0])
def test_wrong_gradient_fails(name, size):
    make, samples = MODELS[name]
    net = started(make())
    with pytest.raises(AssertionError, match='gradient of .*\n  from float64 it differs by'):
        assert_matches_eager(
            wrong_in_scopes(net, gradient=size),
            samples(),
            unpack=True,
            blocks=[net],
            training=[True],
            **FAST,
        )


@pytest.mark.parametrize('name', ['dense', 'tree', 'pointer'])
def test_wrong_in_float32_only_fails(name):
    """A kernel that is wrong in one dtype fails the comparison."""
    make, samples = MODELS[name]
    net = started(make())
    for wrong in (dict(gradient=1e-3), dict(result=1e-4)):
        with pytest.raises(AssertionError, match='differs from eager by up to'):
            assert_matches_eager(
                wrong_in_scopes(net, dtype='float32', **wrong),
                samples(),
                unpack=True,
                blocks=[net],
                **FAST,
            )


def test_message_names_the_worst_and_what_to_try():
    net = started(Pointer())
    with pytest.raises(AssertionError) as info:
        assert_matches_eager(
            wrong_in_scopes(net, gradient=1e-2),
            pairs(0),
            unpack=True,
            blocks=[net],
            training=[True],
        )
    text = str(info.value)
    assert text.startswith(
        f'scheduler depth, not hybridized, training, native operators: gradient of {net.prefix}'
    )
    for words in (
        'from float64 it differs by up to',
        'eager by',
        'is allowed',
        'rtol or atol',
        'compile_options(native=False)',
        'in float64, batched differs',
        'more differ',
    ):
        assert words in text
    assert len(text) < 1000 and len(text.splitlines()) <= 5


def test_rtol_and_atol():
    net = started(nn.Dense(3, in_units=4))
    model, samples = wrong_in_scopes(net, result=1e-3, dtype='float32'), ndarrays(6, (1, 4))
    for knobs in (dict(rtol=1e-2), dict(atol=1e-1)):
        assert_matches_eager(model, samples, blocks=[net], **knobs, **FAST)
    for knobs in (dict(rtol=1e-4), dict(atol=1e-6)):
        with pytest.raises(AssertionError, match=r'result \[\d\] differs'):
            assert_matches_eager(model, samples, blocks=[net], **knobs, **FAST)


def test_native_operators_can_be_left_out(monkeypatch):
    """By the option that the message names."""
    net, seen = started(nn.Dense(3, in_units=4)), []
    original = eager.compile_options
    monkeypatch.setattr(
        eager, 'compile_options', lambda native: seen.append(native) or original(native=native)
    )
    assert_matches_eager(net, ndarrays(3, (1, 4)))
    assert set(seen) == {True, False}
    seen.clear()
    with edb.compile_options(native=False):
        assert_matches_eager(net, ndarrays(3, (1, 4)))
    assert set(seen) == {False}


def test_model_that_cannot_run_in_float64():
    net = started(nn.Dense(3, in_units=4))

    def model(x):
        if x.dtype != np.float32:
            raise TypeError('float32 only')
        return net(x)

    with pytest.raises(
        AssertionError, match='float64 cannot tell which of them is nearer: TypeError: float32 only'
    ):
        assert_matches_eager(
            wrong_in_scopes(model, result=1e-3), ndarrays(6, (1, 4)), blocks=[net], **FAST
        )


def test_model_that_eagerly_gives_something_else_each_time():
    net, calls = started(nn.Dense(3, in_units=4)), []

    def model(x):
        calls.append(x)
        return net(x) * (1 + 1e-3 * len(calls))

    with pytest.raises(AssertionError, match='eagerly it gives something else each time'):
        assert_matches_eager(model, ndarrays(6, (1, 4)), blocks=[net], **FAST)


@pytest.mark.parametrize('sparse', [False, True])
def test_model_is_left_as_it_was(sparse, monkeypatch):
    """After float64 was asked: arrays, gradients, variables and hybridization."""
    net = nn.HybridSequential()
    net.add(nn.Embedding(9, 4, sparse_grad=sparse), nn.Dense(3, in_units=4, flatten=False))
    net.initialize()
    net[1].hybridize(static_alloc=True)
    net(mx.nd.array([1]))
    judged = []
    monkeypatch.setattr(eager, 'judge', lambda *args: judged.append(args) or [])
    parameters = list(net.collect_params().values())
    before = [
        (p, p.dtype, p.data(), p.data().asnumpy(), p.grad(), p.grad_req, p.shape)
        for p in parameters
    ]
    assert_matches_eager(wrong_in_scopes(net, gradient=1e-2), [1, 2, 3], blocks=[net], **FAST)
    assert judged and judged[0][2].added
    for p, dtype, data, values, gradient, grad_req, shape in before:
        assert p.dtype == dtype and p.data() is data and p.grad() is gradient
        assert p.var().attr('__dtype__') == '0'  # float32
        assert p.grad_req == grad_req and p.shape == shape and data.dtype == np.float32
        np.testing.assert_array_equal(data.asnumpy(), values)
    assert net[1]._active and dict(net[1]._flags)['static_alloc'] is True and not net[0]._active
    with autograd.record():
        loss = net(mx.nd.array([1])).sum()
    loss.backward()
    assert all(
        p.grad().dtype == np.float32 and np.abs(p.grad().asnumpy()).sum() > 0 for p in parameters
    )


def gradient_run(value):
    """A run with one gradient."""
    return Measured({'w': np.array([value, 0], np.float32)})


@pytest.mark.parametrize('added, accepted', [(0.0, False), (1.0, True)])
def test_what_cancels_is_judged_by_the_scale_of_what_was_added(added, accepted):
    found, expected = gradient_run(6e-6), gradient_run(1e-6)
    suspects = differences(found, expected, 'case', None, 0.0)
    exact = Measured({'w': np.array([1e-6, 0])}, added={'w': added})
    assert len(suspects) == 1
    assert (judge(suspects, expected, exact, None) == []) is accepted


@pytest.mark.parametrize(
    'batched, eager_value, accepted',
    [
        (1.002, 1.001, True),
        (1.004, 1.001, False),
        (1.001, 1.005, True),
        (1.00002, 1.00001, True),
        (np.nan, 1.001, False),
    ],
)
def test_three_times_as_far_as_eager_is_as_near(batched, eager_value, accepted):
    one, other = gradient_run(batched), gradient_run(eager_value)
    exact = Measured({'w': np.array([1.0, 0])}, added={'w': 1.0})
    suspect = closeness.Suspect('w', one.arrays['w'], other.arrays['w'], 1e-3, 1e-5, 1e-5, 0.0)
    assert (judge([suspect], other, exact, None) == []) is accepted
    # Whatever the rounding, in float64 there is hardly any.
    right, wrong = gradient_run(1.0), gradient_run(1.01)
    assert (judge([suspect], other, exact, right) == []) is accepted
    assert judge([suspect], other, exact, wrong)
