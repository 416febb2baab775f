"""A LazyArray is an NDArray to every caller."""

import copy
import pickle

import mxnet as mx
import numpy as np
from mxnet import autograd
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.testing import assert_matches_eager
from tests.support.cases import in_one_test
from tests.support.models import ndarrays, started

# name: function of one (1, 6) array
FUNCTIONS = {
    'add': lambda x: x + x,
    'radd': lambda x: 2 + x,
    'sub': lambda x: x - 0.5,
    'rsub': lambda x: 1 - x,
    'mul': lambda x: x * x,
    'rmul': lambda x: 3 * x,
    'div': lambda x: x / (x * x + 1),
    'rdiv': lambda x: 2 / (x + 3),
    'mod': lambda x: x % 0.3,
    'pow': lambda x: x**2,
    'rpow': lambda x: 2**x,
    'neg': lambda x: -x,
    'abs': abs,
    'compare': lambda x: (
        (x > 0) + (x >= 0.1) * 2 + (x < 0) * 4 + (x <= 0) * 8 + (x == x) * 16 + (x != 0) * 32
    ),
    'row index': lambda x: x[0],
    'slice': lambda x: x[:, 1:3],
    'one column': lambda x: x[:, 2],
    'ellipsis': lambda x: x[..., 1:4],
    'row slice': lambda x: x[0:1],
    'step': lambda x: x[:, ::2],
    'negative': lambda x: x[-1],
    'last column': lambda x: x[:, -1:],
    'None': lambda x: x[:, None],
    'None first': lambda x: x[None],
    'first columns': lambda x: x[:, :2],
    'element': lambda x: x[0, 1],
    'backwards': lambda x: x[:, ::-1],
    'all': lambda x: x[:],
    'nothing left out': lambda x: x[..., None],
    'tail': lambda x: x[0, 2:],
    'reshape': lambda x: x.reshape((1, 2, 3)),
    'reshape star': lambda x: x.reshape(1, 3, -1),
    'reshape zero': lambda x: x.reshape((0, 3, 2)),
    'reshape -2': lambda x: x.reshape((0, -1)),
    'flatten': lambda x: x.reshape((0, 2, 3)).flatten(),
    'expand': lambda x: x.expand_dims(axis=1),
    'squeeze': lambda x: x.expand_dims(1).squeeze(1),
    'transpose': lambda x: x.reshape((0, 2, 3)).transpose((0, 2, 1)),
    'T': lambda x: x.T,
    'swapaxes': lambda x: x.reshape((0, 2, 3)).swapaxes(1, 2),
    'sum': lambda x: x.sum(),
    'sum 1': lambda x: x.sum(axis=1),
    'sum keep': lambda x: x.sum(axis=1, keepdims=True),
    'mean': lambda x: x.mean(axis=1),
    'mean of all': lambda x: x.mean(),
    'max': lambda x: x.max(axis=1),
    'min': lambda x: x.min(),
    'norm': lambda x: x.norm(axis=1),
    'prod': lambda x: x.prod(axis=1),
    'argmax': lambda x: x.argmax(axis=1),
    'softmax': lambda x: x.softmax(),
    'log_softmax': lambda x: x.log_softmax(axis=1),
    'relu': lambda x: x.relu(),
    'sigmoid': lambda x: x.sigmoid(),
    'tanh': lambda x: x.tanh(),
    'exp': lambda x: x.exp(),
    'clip': lambda x: x.clip(-0.3, 0.3),
    'slice_axis': lambda x: x.slice_axis(1, 1, 4),
    'split': lambda x: x.split(3, axis=1),
    'take': lambda x: x.take(mx.nd.array([0, 2]), axis=1),
    'pick': lambda x: x.pick(mx.nd.array([3]), axis=1),
    'tile': lambda x: x.tile((1, 2)),
    'repeat': lambda x: x.repeat(2, axis=1),
    'broadcast': lambda x: x.broadcast_to((4, 6)),
    'astype': lambda x: x.astype('float64'),
    'astype int': lambda x: (x * 9).astype('int32'),
    'copy': lambda x: x.copy(),
    'detach': lambda x: x.detach() * x,
    'as_in_context': lambda x: x.as_in_context(mx.cpu()),
    'zeros_like': lambda x: x.zeros_like(),
    'one_hot': lambda x: x.argmax(axis=1).one_hot(6),
    'sort': lambda x: x.sort(axis=1),
    'topk': lambda x: x.topk(axis=1, k=2, ret_typ='value'),
    'dot': lambda x: mx.nd.dot(x, x.T),
    'where': lambda x: mx.nd.where(x > 0, x, -x),
    'concat': lambda x: mx.nd.concat(x, x, dim=1),
    'stack': lambda x: mx.nd.stack(x, x, axis=1),
    'maximum': lambda x: mx.nd.maximum(x, 0.1),
    'two arrays': lambda x: mx.nd.maximum(x, mx.nd.ones((1, 6)) * 0.2),
    'NDArray first': lambda x: mx.nd.ones((1, 6)) - x,
    'batch of rows': lambda x: x[0].sum(),
    'scalar result, then more': lambda x: x.sum() * x,
    'slice_like': lambda x: x.slice_like(mx.nd.ones((1, 3)), axes=(1,)),
    'flip': lambda x: x.flip(axis=1),
    'pad': lambda x: x.reshape((0, 1, 2, 3)).pad(
        mode='constant', pad_width=(0, 0, 0, 0, 1, 1, 1, 1)
    ),
}


@in_one_test('name', FUNCTIONS)
def test_function_of_a_lazy_value(name):
    net = started(nn.Dense(6, in_units=6))
    function = FUNCTIONS[name]
    assert_matches_eager(
        lambda x: function(net(x)),
        ndarrays(4, (1, 6), gradient=True),
        blocks=[net],
        schedulers=['agenda', 'unbatched'],
        hybridized=[False],
        # also of what was cast to float64; see test_operators for log_softmax
        rtol=3e-5 if name == 'log_softmax' else 1e-5,
    )


@in_one_test(
    'name',
    [
        'add',
        'slice',
        'sum',
        'softmax',
        'row index',
        'reshape zero',
        'mean of all',
        'transpose',
        'compare',
        'T',
        'dot',
    ],
)
def test_function_of_a_value_with_several_rows(name):
    net = started(nn.Dense(6, in_units=6))
    function = FUNCTIONS[name]
    samples = [mx.nd.array(np.random.RandomState(rows).randn(rows, 6)) for rows in (2, 3, 2, 1)]
    assert_matches_eager(
        lambda x: function(net(x)),
        samples,
        blocks=[net],
        hybridized=[False],
        schedulers=['agenda', 'unbatched'],
    )


def lazy(scheduler='agenda'):
    """A scope, and a value recorded in it with known contents."""
    with edb.batching(scheduler) as scope:
        value = edb.nd.identity(mx.nd.array([[1, 2, 3]])) * 2
    return scope, value


def test_is_an_ndarray_with_known_shape():
    scope, value = lazy()
    assert isinstance(value, mx.nd.NDArray) and isinstance(value, edb.LazyArray)
    assert value.shape == (1, 3) and value.ndim == 2 and value.size == 3 and len(value) == 1
    assert value.dtype is np.float32 and value.context == mx.cpu() and value.ctx == mx.cpu()
    assert value.stype == 'default'
    assert scope.report().nodes == 0, 'looking at the shape ran something'


def test_contents():
    _, value = lazy()
    assert value.asnumpy().tolist() == [[2, 4, 6]]
    assert value[0, 1].asscalar() == 4
    assert float(value.sum().asscalar()) == 12
    assert np.asarray(value.asnumpy()).sum() == 12
    assert [row.asnumpy().tolist() for row in value] == [[2, 4, 6]]
    value.wait_to_read()


def test_truth_and_numbers():
    with edb.batching() as scope:
        one = edb.nd.identity(mx.nd.array([3]))
        assert one and one.asscalar() == 3
        assert bool(one > 2) and not one < 2
    assert len(scope.report().forced) == 3


def test_repr():
    with edb.batching():
        value = edb.nd.identity(mx.nd.array([[1, 2]]))
        assert repr(value) == '<LazyArray 1x2 @cpu(0), not computed>'
        value.asnumpy()
        assert '[[1. 2.]]' in repr(value)
    assert '<NDArray 1x2 @cpu(0)>' in repr(value)


def test_copies_are_ordinary():
    _, value = lazy()
    for copied in (
        value.copy(),
        copy.copy(value),
        copy.deepcopy(value),
        pickle.loads(pickle.dumps(value)),
        value.as_in_context(mx.cpu()),
        value.astype('float32'),
        value.detach(),
    ):
        assert copied.asnumpy().tolist() == [[2, 4, 6]]
    written = value.copy()
    written[:] = 0
    assert value.asnumpy().sum() == 12


def test_save_and_load(tmp_path):
    _, value = lazy()
    mx.nd.save(str(tmp_path / 'x'), [value])
    assert mx.nd.load(str(tmp_path / 'x'))[0].asnumpy().tolist() == [[2, 4, 6]]


def test_out_argument_and_copyto():
    _, value = lazy()
    target = mx.nd.zeros((1, 3))
    value.copyto(target)
    assert target.asnumpy().tolist() == [[2, 4, 6]]
    with edb.batching():
        other = edb.nd.identity(mx.nd.array([[1, 2, 3]]))
        mx.nd.elemwise_add(other, other, out=target)
    assert target.asnumpy().tolist() == [[2, 4, 6]]


def test_after_the_scope_operators_run_at_once():
    _, value = lazy()
    result = value + 1
    assert type(result) is mx.nd.NDArray and result.asnumpy().tolist() == [[3, 5, 7]]
    assert type(value.reshape((3, 1))) is mx.nd.NDArray
    assert type(value[:, 1:]) is mx.nd.NDArray


def test_backward_of_one_value():
    x = mx.nd.array([[1, 2]])
    x.attach_grad()
    with autograd.record():
        with edb.batching():
            value = edb.nd.identity(x) ** 2
    value.backward()
    assert x.grad.asnumpy().tolist() == [[2, 4]]


def test_value_read_in_a_condition():
    net = started(nn.Dense(1, in_units=4))

    def model(x):
        score = net(x)
        return score * 2 if score.asscalar() > 0 else net(x * score)

    assert_matches_eager(model, ndarrays(8, (1, 4), gradient=True), blocks=[net])


def test_library_functions_that_make_arrays_of_the_same_class():
    net = started(nn.Dense(6, in_units=6))
    assert_matches_eager(
        lambda x: net(x) + mx.nd.ones_like(net(x)) * mx.nd.zeros((1, 6)),
        ndarrays(4, (1, 6)),
        blocks=[net],
    )
