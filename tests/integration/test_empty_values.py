"""A ragged value without values is one without rows: each result is compared with NumPy's."""

import json
import shutil
from contextlib import nullcontext

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon, nd

import gluon_edbatch as edb
import gluon_edbatch_runtime
from gluon_edbatch_core.bundle.manifest import NAME, _digest
from tests.support.lines import Line

H = 3
WAYS = ['native', 'cached', 'outside']
MIXED, ALL = (2, 0, 3, 0, 1), (0, 0)


def weights_of(x):
    return np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)


def largest(x):
    return x.max(axis=1) if x.shape[1] else np.zeros(x.shape[::2], x.dtype)


def least(x):
    return -largest(-x)


def mean(x):
    return x.sum(axis=1) / max(1, x.shape[1])


def attended(F, r, values):
    """Attention by a query that depends on no value."""
    query = F.ones((1, 1, H))
    weights = F.softmax(F.batch_dot(query, r, transpose_b=True), axis=-1)
    return F.batch_dot(weights, values)


def attended_in_numpy(x, values):
    return np.einsum('nk,nkh->nh', weights_of(x.sum(axis=2)), values)[:, None]


# In terms of MXNet, and of NumPy, where no values are an axis of length 0.
REDUCED = {
    'sum': (lambda F, r: F.sum(r + 1, axis=1), lambda x: (x + 1).sum(axis=1)),
    'mean': (lambda F, r: F.mean(r + 1, axis=1), lambda x: mean(x + 1)),
    'max': (lambda F, r: F.max(r - 5, axis=1), lambda x: largest(x - 5)),
    'min': (lambda F, r: F.min(r + 5, axis=1), lambda x: least(x + 5)),
    'norm': (lambda F, r: F.norm(r, axis=1), lambda x: np.sqrt((x * x).sum(axis=1))),
    'norm of more': (
        lambda F, r: F.norm(F.tanh(r) + 1, axis=1),
        lambda x: np.sqrt(((np.tanh(x) + 1) ** 2).sum(axis=1)),
    ),
    'prod': (lambda F, r: F.prod(r + 2, axis=1), lambda x: (x + 2).prod(axis=1)),
    'kept axis': (
        lambda F, r: F.max(r - 5, axis=1, keepdims=True),
        lambda x: largest(x - 5)[:, None],
    ),
    'of all': (lambda F, r: F.sum(r + 1).reshape((1,)), lambda x: (x + 1).sum().reshape(1)),
    'weights': (
        lambda F, r: F.sum(F.softmax(r, axis=1), axis=1),
        lambda x: weights_of(x).sum(axis=1),
    ),
    'logarithms': (
        lambda F, r: F.sum(F.log_softmax(r, axis=1), axis=1),
        lambda x: np.log(weights_of(x)).sum(axis=1),
    ),
    'attention': (lambda F, r: attended(F, r, r), lambda x: attended_in_numpy(x, x)),
    'attention to others': (
        lambda F, r: attended(F, r, r + 1),
        lambda x: attended_in_numpy(x, x + 1),
    ),
    'weighted sum': (
        lambda F, r: F.sum(F.softmax(r, axis=1) * (r + 1), axis=1),
        lambda x: (weights_of(x) * (x + 1)).sum(axis=1),
    ),
    'softmax by hand': (
        lambda F, r: F.sum(
            F.broadcast_div(F.exp(r), F.sum(F.exp(r), axis=1, keepdims=True)) * (r + 1), axis=1
        ),
        lambda x: (weights_of(x) * (x + 1)).sum(axis=1),
    ),
    'inverse of a sum': (
        lambda F, r: F.sum(
            F.broadcast_mul(r + 1, 1 / F.sum(F.exp(r), axis=1, keepdims=True)), axis=1
        ),
        lambda x: ((x + 1) / np.exp(x).sum(axis=1, keepdims=True)).sum(axis=1),
    ),
    'centred': (
        lambda F, r: F.sum(F.abs(F.broadcast_sub(r, F.mean(r, axis=1, keepdims=True))), axis=1),
        lambda x: np.abs(x - mean(x)[:, None]).sum(axis=1),
    ),
    'further axes': (
        lambda F, r: F.sum(F.mean(r + 1, axis=2), axis=1),
        lambda x: mean((x + 1).swapaxes(1, 2)).sum(axis=1),
    ),
}
KEPT = {
    'number': (lambda F, r: r + 1, lambda x: x + 1),
    'function': (lambda F, r: F.tanh(r * 2), lambda x: np.tanh(x * 2)),
    'softmax': (lambda F, r: F.softmax(r, axis=1), weights_of),
    'two': (lambda F, r: r * 2 + F.exp(r), lambda x: x * 2 + np.exp(x)),
    'columns': (lambda F, r: F.concat(r, r * 2, dim=2), lambda x: np.concatenate([x, 2 * x], 2)),
    'turned': (lambda F, r: F.transpose(r * 2, axes=(0, 2, 1)), lambda x: 2 * x.swapaxes(1, 2)),
}
NONE = {  # what has no result
    'argmax': lambda F, r: F.argmax(r, axis=1),
    'argmin': lambda F, r: F.argmin(r, axis=1),
    'topk': lambda F, r: F.topk(r, axis=1, k=1),
    'pick': lambda F, r: F.pick(r, F.zeros((1, H)), axis=1),
}


class Of(gluon.HybridBlock):
    """A block of one function."""

    def __init__(self, function):
        super().__init__()
        self._function = function

    def hybrid_forward(self, F, r):
        return self._function(F, r)


def scope_for(way):
    if way == 'outside':
        return nullcontext()
    return edb.batching(compile_options=edb.CompileOptions(native=way == 'native'))


def samples(lengths):
    random = np.random.RandomState(0)
    found = [[nd.array(random.uniform(0.1, 1, (1, H))) for _ in range(k)] for k in lengths]
    for value in [value for values in found for value in values]:
        value.attach_grad()
    return found


def in_numpy(values):
    return np.stack([each.asnumpy() for each in values], 1) if values else np.zeros((1, 0, H), 'f')


def ragged(values):
    return edb.ragged(values, shape=(1, H))


def called(function, by_operators):
    return (lambda r: function(nd, r)) if by_operators else Of(function)


def slopes(expected, x, step=1e-3):
    """The gradient of the sum of what NumPy computes, by differences."""
    found = np.zeros(x.shape)
    for place in np.ndindex(*x.shape):
        more, less = x.astype('float64'), x.astype('float64')
        more[place] += step
        less[place] -= step
        found[place] = (expected(more).sum() - expected(less).sum()) / (2 * step)
    return found


@pytest.mark.parametrize('lengths', [MIXED, ALL], ids=['mixed', 'all'])
@pytest.mark.parametrize('by_operators', [False, True], ids=['block', 'operators'])
@pytest.mark.parametrize('way', WAYS)
@pytest.mark.parametrize('name', REDUCED)
def test_reductions(name, way, by_operators, lengths):
    function, expected = REDUCED[name]
    model, given = called(function, by_operators), samples(lengths)
    trained = gluon.Parameter('scale', shape=(1, 1))
    trained.initialize(mx.init.One())
    with autograd.record():
        with scope_for(way):
            results = [model(ragged(values)) for values in given]
        results = edb.forward(results)
        total = nd.add_n(*[result.sum() for result in results]) + trained.data().sum()
    total.backward()
    for values, result in zip(given, results):
        x = in_numpy(values)
        np.testing.assert_allclose(result.asnumpy(), expected(x), rtol=2e-5, atol=1e-6)
        for place, slope in enumerate(np.moveaxis(slopes(expected, x), 1, 0)):
            np.testing.assert_allclose(values[place].grad.asnumpy(), slope, rtol=1e-3, atol=2e-4)


@pytest.mark.parametrize('way', WAYS)
@pytest.mark.parametrize('name', REDUCED)
def test_gradients_before_a_reduction_are_zero(name, way):
    """A layer that only values without rows have passed gets no gradient, and no NaN."""
    function, _ = REDUCED[name]

    class Net(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.layer = gluon.nn.Dense(H, flatten=False, in_units=H, activation='tanh')

        def hybrid_forward(self, F, r):
            return function(F, self.layer(r) + 1.5)

    net, given = Net(), samples(MIXED)
    net.initialize(mx.init.Xavier())

    def gradients(of):
        with autograd.record():
            with scope_for(way):
                results = [net(ragged(values)) for values in of]
            nd.add_n(*[each.sum() for each in edb.forward(results)]).backward()
        return [each.grad().asnumpy() for each in net.collect_params().values()]

    for mixed, of_some in zip(gradients(given), gradients([each for each in given if each])):
        np.testing.assert_allclose(mixed, of_some, rtol=1e-4, atol=1e-6)
    assert all((each == 0).all() for each in gradients([[], []]))


@pytest.mark.parametrize('by_operators', [False, True], ids=['block', 'operators'])
@pytest.mark.parametrize('way', WAYS)
@pytest.mark.parametrize('name', KEPT)
def test_results_that_keep_the_values(name, way, by_operators):
    function, expected = KEPT[name]
    model, given = called(function, by_operators), samples(MIXED)
    with scope_for(way):
        results = [model(ragged(values)) for values in given]
        shapes = [result.shape for result in results]
    for values, shape, result in zip(given, shapes, edb.forward(results)):
        wanted = expected(in_numpy(values))
        assert shape == result.shape == wanted.shape
        np.testing.assert_allclose(result.asnumpy(), wanted, rtol=1e-5)


def assert_refused(model, name, by_operators):
    line = Line()
    try:  # pytest.raises() would keep the value until Python's collector runs
        line.here(), model(ragged([]))
    except edb.RecordError as error:
        text = str(error)
    assert 'no values' in text and name in text and (by_operators or line.site in text), text


@pytest.mark.parametrize('by_operators', [False, True], ids=['block', 'operators'])
@pytest.mark.parametrize('way', WAYS)
@pytest.mark.parametrize('name', NONE)
def test_what_has_no_result_names_the_line(name, way, by_operators):
    model = called(NONE[name], by_operators)
    with scope_for(way):
        for _ in range(2):  # what is known of the first call lets no other one pass
            assert_refused(model, name, by_operators)
        edb.forward(model(ragged([nd.ones((1, H))])))
        assert_refused(model, name, by_operators)


@pytest.mark.parametrize('way', WAYS)
def test_positions_are_errors(way):
    with scope_for(way):
        for position in (0, -1):
            with pytest.raises(IndexError):
                (ragged([]) + 1)[:, position]
        assert (ragged([]) * 2)[:, 0:].shape == (1, 0, H)
        assert (ragged([]) * 2)[:, :, 1:3].shape == (1, 0, 2)
        assert ragged([]).astype('float64').dtype == np.float64
        for others in ([nd.ones((1, H))], [nd.ones((1, H))] * 2):
            joined = nd.concat(ragged([]), edb.stack(others, axis=1), dim=1)
            assert joined.shape == (1, len(others), H)
        assert ragged([]).lengths.asscalar() == 0


@pytest.mark.parametrize('way', WAYS)
@pytest.mark.parametrize('bidirectional', [False, True])
def test_recurrent_layers_keep_their_states(way, bidirectional):
    class Layer(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.layer = gluon.rnn.LSTM(
                    4, input_size=H, layout='NTC', bidirectional=bidirectional
                )

        def hybrid_forward(self, F, r):
            states = [F.full((1 + bidirectional, 1, 4), number) for number in (0.5, 0.25)]
            output, (h, c) = self.layer(r, states)
            return F.sum(output + 1, axis=1), F.reshape(h, (1, -1)), F.reshape(c, (1, -1))

    net = Layer()
    net.initialize(mx.init.Uniform(0.5))
    with scope_for(way):
        results = [net(ragged(values)) for values in samples(MIXED)]
    for length, (output, h, c) in zip(MIXED, edb.forward(results)):
        if not length:
            assert (output.asnumpy() == 0).all()
            assert (h.asnumpy() == 0.5).all() and (c.asnumpy() == 0.25).all()
        else:
            assert (h.asnumpy() != 0.5).any()


@pytest.mark.parametrize('way', WAYS)
def test_convolutions_give_no_values(way):
    class Convolved(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.convolution = gluon.nn.Conv1D(4, 3, padding=1, in_channels=H)

        def hybrid_forward(self, F, r):
            found = self.convolution(F.transpose(r, axes=(0, 2, 1)))
            return F.max(found, axis=2), F.sum(found, axis=2)

    net = Convolved()
    net.initialize(mx.init.Xavier(), force_reinit=True)
    net.convolution.bias.set_data(nd.ones(4))
    with scope_for(way):
        results = [net(ragged(values)) for values in samples(MIXED)]
    for length, (most, total) in zip(MIXED, edb.forward(results)):
        assert (most.asnumpy() == 0).all() == (not length)
        assert (total.asnumpy() == 0).all() == (not length)


@pytest.mark.parametrize('way', WAYS)
def test_two_arguments_of_which_one_has_values(way):
    class Products(gluon.HybridBlock):
        def hybrid_forward(self, F, r, q):
            x = F.batch_dot(r + 1, q + 1, transpose_b=True) - 50
            return [
                F.max(x, axis=(1, 2)),
                F.norm(x, axis=(1, 2)),
                F.mean(x, axis=(1, 2)),
                F.sum(F.max(x, axis=1), axis=1),
            ]

    net, counts = Products(), [(2, 3), (0, 2), (2, 0), (0, 0), (1, 1)]
    given = [samples(each) for each in counts]
    with scope_for(way):
        results = [net(ragged(one), ragged(other)) for one, other in given]
    for values, found in zip(given, edb.forward(results)):
        x = np.einsum('nkh,nlh->nkl', *[in_numpy(each) + 1 for each in values]) - 50
        wanted = [np.zeros(1)] * 4
        if x.size:
            wanted = [x.max((1, 2)), np.sqrt((x * x).sum((1, 2))), x.mean((1, 2)), x.max(1).sum(1)]
        for result, one in zip(found, wanted):
            np.testing.assert_allclose(result.asnumpy(), one, rtol=1e-5)


@pytest.mark.parametrize('way', WAYS)
def test_loops_and_losses(way):
    """A loop keeps its state; MakeLoss makes calls run eagerly."""

    def function(F, r):
        steps = F.transpose(r, axes=(1, 0, 2))
        _, state = F.contrib.foreach(lambda x, s: (x, s + x), steps, F.sum(r * 0 + 1, axis=1) + 7)
        return state, F.MakeLoss(F.max(r - 5, axis=1))

    given = samples(MIXED)
    with autograd.record():
        with scope_for(way):
            results = [Of(function)(ragged(values)) for values in given]
    for values, (state, loss) in zip(given, edb.forward(results)):
        x = in_numpy(values)
        np.testing.assert_allclose(state.asnumpy(), x.sum(axis=1) + len(values) + 7, rtol=1e-5)
        np.testing.assert_allclose(loss.asnumpy(), largest(x - 5), rtol=1e-5)


@pytest.mark.parametrize('way', WAYS)
def test_numpy_mode(way):
    functions = {
        lambda F, r: (r + 1).sum(axis=1): lambda x: (x + 1).sum(axis=1),
        lambda F, r: (r + 1).mean(axis=1): lambda x: mean(x + 1),
        lambda F, r: (r - 5).max(axis=1): lambda x: largest(x - 5),
        lambda F, r: F.npx.softmax(r, axis=1).sum(axis=1): lambda x: weights_of(x).sum(axis=1),
        lambda F, r: F.np.prod(r + 1, axis=1): lambda x: (x + 1).prod(axis=1),
        lambda F, r: r + 1: lambda x: x + 1,
    }
    mx.npx.set_np()
    try:
        given = [[mx.np.ones((1, H)) * place for place in range(k)] for k in MIXED]
        for function, expected in functions.items():
            with scope_for(way):
                results = [Of(function)(ragged(values)) for values in given]
            for values, result in zip(given, edb.forward(results)):
                wanted = expected(in_numpy(values))
                np.testing.assert_allclose(result.asnumpy(), wanted, rtol=1e-5)
    finally:
        mx.npx.reset_np()


def test_a_value_of_one_scope_in_another():
    with edb.batching():
        before = ragged([]) * 2
    outside = ragged([])
    with edb.batching():
        results = [Of(REDUCED['prod'][0])(each) for each in (before, outside)]
    assert all((each.asnumpy() == 1).all() for each in edb.forward(results))
    assert (Of(REDUCED['prod'][0])(outside).asnumpy() == 1).all()


def test_a_hybridized_block_outside_of_scopes():
    net = Of(REDUCED['attention to others'][0])
    net.hybridize()
    assert net(ragged(samples((2,))[0])).shape == (1, 1, H)
    assert net(ragged([])).asnumpy().tolist() == [[[0] * H]]


def test_hooks_go_with_the_value():
    original = gluon.Block.__call__.__code__
    empty = ragged([])
    assert gluon.Block.__call__.__code__ is not original
    result = empty + 1
    del empty
    assert result.shape == (1, 0, H) and gluon.Block.__call__.__code__ is not original
    del result
    assert gluon.Block.__call__.__code__ is original


@pytest.mark.parametrize('rows', [1, 3])
@pytest.mark.parametrize('way', WAYS)
def test_values_of_several_rows(way, rows):
    random = np.random.RandomState(0)
    given = [[nd.array(random.randn(rows, H)) for _ in range(k)] for k in (2, 0)]
    net = Of(REDUCED['max'][0])
    with scope_for(way):
        results = [net(edb.ragged(values, shape=(rows, H))) for values in given]
    found = [result.asnumpy() for result in edb.forward(results)]
    np.testing.assert_allclose(
        found[0], np.stack([each.asnumpy() for each in given[0]]).max(0) - 5, rtol=1e-6
    )
    assert found[1].shape == (rows, H) and (found[1] == 0).all()


# --- exported cells ------------------------------------------------------------------------------

EXPORTED = 'sum', 'mean', 'max', 'weights', 'softmax by hand', 'weighted sum'


class Cells(gluon.HybridBlock):
    def __init__(self):
        super().__init__()
        with self.name_scope():
            for name in EXPORTED:
                setattr(self, name.replace(' ', '_'), Of(REDUCED[name][0]))


def test_exported_cells(tmp_path, runtime):
    """An old bundle has one value of zeros where there are none, as its manifest says."""
    net, given = Cells(), samples(MIXED)
    with edb.batching() as scope:
        for name in EXPORTED:
            getattr(net, name.replace(' ', '_'))(ragged(given[0]))
    edb.export(net, scope, tmp_path / 'new')
    path = tmp_path / 'old' / NAME
    shutil.copytree(tmp_path / 'new', tmp_path / 'old')
    manifest = json.loads(path.read_text(encoding='utf-8'))
    assert not any([entry['fills'] for entry in manifest['content']['types']])
    for entry in manifest['content']['types']:
        entry['fills'] = True
    manifest['digest'] = _digest(manifest)
    path.write_text(json.dumps(manifest), encoding='utf-8')
    for folder, padded in (('new', False), ('old', True)):
        cells = runtime.load_cells(tmp_path / folder)
        for name in EXPORTED:
            with runtime.batching():
                results = [
                    getattr(cells, name.replace(' ', '_'))(
                        runtime.ragged([each.asnumpy() for each in values], shape=(1, H))
                    )
                    for values in given
                ]
            for values, result in zip(given, runtime.forward(results)):
                x = in_numpy(values) if values or not padded else np.zeros((1, 1, H), 'f')
                np.testing.assert_allclose(result, REDUCED[name][1](x), rtol=2e-5)


@pytest.fixture
def runtime():
    return gluon_edbatch_runtime
