"""Operators on whole values, whose rows depend on each other, in batches: as eager, and batched."""

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet import gluon

import gluon_edbatch as edb
from gluon_edbatch.testing import assert_matches_eager
from tests.support.cases import in_one_test
from tests.support.models import started

N = edb.nd
COUNT = 4  # samples
# name: what is computed, and the shapes of a sample's arrays; 'i5' are indices below 5
CASES = {
    'sum': (lambda x: N.sum(x), ['3,4']),
    'sum rows': (lambda x: N.sum(x, axis=0), ['3,4']),
    'sum kept': (lambda x: N.sum(x, axis=0, keepdims=True), ['3,4']),
    'sum of a vector': (lambda x: N.sum(x), ['5']),
    'sum but for': (lambda x: N.sum(x, axis=1, exclude=True), ['3,4,2']),
    'mean': (lambda x: N.mean(x, axis=(0, 2)), ['3,4,2']),
    'max': (lambda x: N.max(x, axis=0), ['3,4']),
    'min': (lambda x: N.min(x), ['3,4']),
    'prod': (lambda x: N.prod(x, axis=-2), ['3,4']),
    'norm': (lambda x: N.norm(x), ['3,4']),
    'norm rows': (lambda x: N.norm(x, axis=0), ['3,4']),
    'softmax': (lambda x: N.softmax(x, axis=0), ['3,4']),
    'softmax of a vector': (lambda x: N.softmax(x), ['4']),
    'log_softmax': (lambda x: N.log_softmax(x, axis=0), ['3,4']),
    'pick': (lambda x, i: N.pick(x, i, axis=0), ['5,4', 'i5:4']),
    'pick of a vector': (lambda x, i: N.pick(x, i), ['5', 'i5:1']),
    'argmax': (lambda x: N.argmax(x, axis=0), ['3,4']),
    'argmax of all': (lambda x: N.argmax(x), ['3,4']),
    'argsort': (lambda x: N.argsort(x, axis=0), ['3,4']),
    'sort': (lambda x: N.sort(x, axis=0), ['3,4']),
    'topk': (lambda x: N.topk(x, axis=0, k=2, ret_typ='value'), ['3,4']),
    'topk of both': (lambda x: N.topk(x, axis=0, k=2, ret_typ='both'), ['3,4']),
    'concat': (lambda x, y: N.concat(x, y, dim=0), ['3,4', '2,4']),
    'concat vectors': (lambda x, y: N.concat(x, y, dim=0), ['3', '2']),
    'stack': (lambda x, y: N.stack(x, y), ['3,4', '3,4']),
    'stack vectors': (lambda x, y: N.stack(x, y, axis=1), ['3', '3']),
    'slice': (lambda x: N.slice(x, begin=(1, 0), end=(3, 2)), ['3,4']),
    'slice steps': (lambda x: N.slice(x, begin=(None,), end=(None,), step=(-1,)), ['3,4']),
    'slice_axis': (lambda x: N.slice_axis(x, axis=0, begin=1, end=None), ['3,4']),
    'slice_like': (lambda x, y: N.slice_like(x, y), ['3,4', '2,2']),
    'index': (lambda x: (x[0], x[1:], x[-1]), ['3,4']),
    'split': (lambda x: N.split(x, num_outputs=2, axis=0), ['4,3']),
    'split squeezed': (lambda x: N.split(x, num_outputs=3, axis=0, squeeze_axis=True), ['3,4']),
    'split_v2': (lambda x: N.split_v2(x, (1, 3), axis=0), ['4,3']),
    'transpose': (lambda x: N.transpose(x), ['3,4']),
    'T': (lambda x: x.T, ['3,4,2']),
    'transpose axes': (lambda x: N.transpose(x, axes=(1, 2, 0)), ['3,4,2']),
    'swapaxes': (lambda x: N.swapaxes(x, dim1=0, dim2=1), ['3,4']),
    'expand_dims': (lambda x: N.expand_dims(x, axis=0), ['3,4']),
    'squeeze': (lambda x: N.squeeze(x, axis=0), ['1,4']),
    'squeeze all': (lambda x: N.squeeze(x), ['1,4,1']),
    'reshape': (lambda x: N.reshape(x, shape=(2, -1)), ['4,3']),
    'reshape splits': (lambda x: N.reshape(x, shape=(-4, 2, -1, 0)), ['4,3']),
    'flatten': (lambda x: N.flatten(x), ['2,3,2']),
    'broadcast_add': (lambda x, y: N.broadcast_add(x, y), ['3,4', '1,4']),
    'broadcast rows': (lambda x, y: N.broadcast_mul(x, y), ['3,1', '1,4']),
    'maximum': (lambda x, y: N.broadcast_maximum(x, y), ['3,4', '3,1']),
    'greater': (lambda x, y: N.broadcast_greater(x, y), ['3,4', '1,4']),
    'arithmetic': (lambda x, y: x * y + x - y, ['3,4', '1,4']),
    'broadcast_to': (lambda x: N.broadcast_to(x, shape=(3, 4)), ['1,4']),
    'broadcast_axis': (lambda x: N.broadcast_axis(x, axis=0, size=3), ['1,4']),
    'broadcast_like': (lambda x, y: N.broadcast_like(x, y), ['1,4', '3,4']),
    'tile': (lambda x: N.tile(x, reps=(2, 3)), ['3,4']),
    'tile vector': (lambda x: N.tile(x, reps=(2, 1)), ['3']),
    'repeat': (lambda x: N.repeat(x, repeats=2, axis=0), ['3,4']),
    'repeat all': (lambda x: N.repeat(x, repeats=2), ['3,4']),
    'reverse': (lambda x: N.reverse(x, axis=0), ['3,4']),
    'flip': (lambda x: N.flip(x, axis=(0,)), ['3,4']),
    'dot': (lambda x, y: N.dot(x, y), ['3,4', '4,2']),
    'dot of vectors': (lambda x, y: N.dot(x, y), ['4', '4']),
    'dot of matrix and vector': (lambda x, y: N.dot(x, y), ['3,4', '4']),
    'dot of vector and matrix': (lambda x, y: N.dot(x, y), ['4', '4,3']),
    'dot transposed': (lambda x, y: N.dot(x, y, transpose_a=True), ['4,3', '4,2']),
    'dot other transposed': (lambda x, y: N.dot(x, y, transpose_b=True), ['1,4', '3,4']),
    'batch_dot': (lambda x, y: N.batch_dot(x, y), ['2,3,4', '2,4,3']),
    'linalg gemm2': (lambda x, y: N.linalg_gemm2(x, y), ['2,3,4', '2,4,3']),
    'gemm2 along axis 0': (
        lambda x, y: N.linalg_gemm2(x, y, axis=0, transpose_b=True),
        ['2,3,4', '2,3,4'],
    ),
    'gemm2 along axis 1': (lambda x, y: N.linalg_gemm2(x, y, axis=1), ['1,2,3,4', '1,4,3,2']),
    'take': (lambda x, i: N.take(x, i), ['5,4', 'i5:2,3']),
    'take wrapped': (lambda x, i: N.take(x, i + 7, mode='wrap'), ['5,4', 'i5:3']),
    'take too far': (lambda x, i: N.take(x, i + 3), ['5,4', 'i5:3']),
    'where': (lambda c, x, y: N.where(c, x, y), ['i2:3,4', '3,4', '3,4']),
    'where rows': (lambda c, x, y: N.where(c, x, y), ['i2:3', '3,4', '3,4']),
    'one_hot': (lambda i: N.one_hot(i, depth=5), ['i5:3']),
    'clip': (lambda x: N.clip(x, -0.5, 0.5), ['3,4']),
    'tanh': (lambda x: N.tanh(x), ['5']),
    'LayerNorm': (lambda x, g, b: N.LayerNorm(x, g, b), ['3,4', '4', '4']),
    'mask': (lambda x, n: N.SequenceMask(x, n, use_sequence_length=True), ['5,2,3', 'i5:2']),
    'last': (lambda x, n: N.SequenceLast(x, n + 1, use_sequence_length=True), ['5,2,3', 'i5:2']),
    'reversed': (
        lambda x, n: N.SequenceReverse(x, n + 1, use_sequence_length=True),
        ['5,2,3', 'i5:2'],
    ),
    'determinant': (lambda x: N.linalg_det(x), ['3,3']),
    'inverse': (lambda x: N.linalg_inverse(x), ['2,2']),
    'log of determinant': (lambda x: N.linalg_slogdet(x), ['3,3']),
    'symmetric product': (lambda x: N.linalg_syrk(x), ['3,4']),
    'gemm': (lambda x, y, z: N.linalg_gemm(x, y, z), ['3,4', '4,2', '3,2']),
    'gemm along axis 0': (
        lambda x, y, z: N.linalg_gemm(x, y, z, axis=0),
        ['3,2,4', '4,2,2', '3,2,2'],
    ),
    'gemm along axis 2': (lambda x, y, z: N.linalg_gemm(x, y, z, axis=2), ['1,1,3,3'] * 3),
    'diagonal': (lambda x: N.linalg_extractdiag(x), ['3,3']),
    'CTC': (lambda x, i: N.CTCLoss(x, i + 1), ['6,2,7', 'i5:2,2']),
    'broadcast_plus': (lambda x, y: N.broadcast_plus(x, y), ['3,4', '1,4']),
    'smooth_l1': (lambda x: N.smooth_l1(x, scalar=1.0), ['3,4']),
    'attention': (
        lambda q, k, v: N.dot(N.softmax(N.dot(q, k, transpose_b=True)), v),
        ['2,4', '3,4', '3,5'],
    ),
}
UNBATCHED = {'LayerNorm'}  # scale and shift of each call


def samples_of(kinds, count=COUNT, seed=0):
    """Arrays of these shapes for each sample; indices without gradients."""
    random = np.random.RandomState(seed)
    samples = []
    for _ in range(count):
        sample = []
        for kind in kinds:
            below, _, shape = kind.rpartition(':')
            shape = tuple(map(int, shape.split(',')))
            if below:
                sample.append(mx.nd.array(random.randint(0, int(below[1:]), shape)))
            else:
                sample.append(
                    mx.nd.array(
                        random.permutation(int(np.prod(shape))).reshape(shape) * 0.3
                        - 1
                        + random.uniform(0, 0.1)
                    )
                )
                sample[-1].attach_grad()
        samples.append(tuple(sample))
    return samples


def lazily(function):
    """The function of values that are computed before."""
    return lambda *args: function(*[N.identity(arg) for arg in args])


@in_one_test('name', CASES)
def test_operator(name):
    function, kinds = CASES[name]
    samples = samples_of(kinds)
    assert_matches_eager(
        lazily(function),
        samples,
        unpack=True,
        blocks=[],
        hybridized=[False],
        schedulers=['agenda'],
        rtol=2e-5,
    )
    with edb.batching('agenda') as scope:
        edb.forward([lazily(function)(*sample) for sample in samples])
    report = scope.report()
    if name not in UNBATCHED:
        assert report.batches == len(report.types), report


@pytest.mark.parametrize('dtype, count', [('uint8', 300), ('int8', 300), ('float16', 2100)])
def test_positions_are_counted_beyond_what_the_data_can_count(dtype, count):
    samples = [
        (mx.nd.array([i % 100, i % 90], dtype=dtype), mx.nd.array([i % 2])) for i in range(count)
    ]
    with edb.batching('agenda') as scope:
        taken = [N.take(N.identity(x), N.identity(i)) for x, i in samples]
    found = edb.concat(taken).asnumpy()
    np.testing.assert_array_equal(found, [i % (90 if i % 2 else 100) for i in range(count)])
    assert scope.report().batches == len(scope.report().types)


def test_switched_off():
    """Then calls run one by one, and the report says why."""
    samples = samples_of(['3,4'])
    with edb.compile_options(whole_values=False), edb.batching('agenda') as scope:
        edb.forward([N.sum(N.identity(x), axis=0) for (x,) in samples])
    kind = next(kind for kind in scope.report().types if kind.name.startswith('sum'))
    assert kind.batches == COUNT and 'mixes the rows' in kind.note


def test_values_of_several_lengths():
    """Each length is a type of its own; between them rows are told apart."""
    dense = started(gluon.nn.Dense(4, in_units=4, flatten=False))

    def model(x):
        scores = N.softmax(N.dot(dense(x), x, transpose_b=True))
        return N.mean(N.dot(scores, x), axis=0), x

    samples = [mx.nd.random.normal(shape=(1 + i % 3, 4)) for i in range(7)]
    assert_matches_eager(model, samples, blocks=[dense], rtol=2e-5)


class Attention(gluon.HybridBlock):
    """Attention of a value's rows to each other."""

    def __init__(self, units):
        super().__init__()
        with self.name_scope():
            self.query = gluon.nn.Dense(units, in_units=units, flatten=False)
            self.bias = self.params.get('bias', shape=(1, units), init=mx.init.Normal(1))

    def hybrid_forward(self, F, x, bias):
        scores = F.dot(self.query(x), x, transpose_b=True)
        return F.broadcast_add(F.dot(F.softmax(scores), x), bias), F.max(x, axis=0)


@pytest.mark.parametrize('dtype', ['float32', 'float64'])
def test_block_whose_rows_depend_on_each_other(dtype):
    block = started(Attention(4))
    block.cast(dtype)
    samples = [mx.nd.random.normal(shape=(2 + i % 2, 4)).astype(dtype) for i in range(8)]
    for x in samples:
        x.attach_grad()
    assert_matches_eager(block, samples, rtol=1e-10 if dtype == 'float64' else 2e-5)
    with edb.batching('agenda') as scope:
        edb.forward([block(x) for x in samples])
    assert scope.report().batches == 2


@in_one_test('layer', [gluon.rnn.LSTM, gluon.rnn.GRU, gluon.rnn.RNN])
@in_one_test('bidirectional', [False, True])
def test_recurrent_layer(layer, bidirectional):
    """(T, 2, C): its batch axis is not axis 0; sequences of all lengths run together."""
    net = layer(3, 2, bidirectional=bidirectional, input_size=4)
    net.initialize(mx.init.Uniform(0.5))
    samples = [mx.nd.random.normal(shape=(2 + i % 2, 2, 4)) for i in range(6)]
    for x in samples:
        x.attach_grad()
    assert_matches_eager(
        lambda x: net(x),
        samples,
        blocks=[net],
        hybridized=[False],
        schedulers=['agenda'],
        rtol=3e-5,
    )
    with edb.batching('agenda') as scope:
        edb.forward([net(x) for x in samples])
    assert scope.report().batches == 1, scope.report()


def test_results_are_read_as_rows_and_whole():
    """What a lifted type writes, others read in any way."""
    dense = started(gluon.nn.Dense(3, in_units=4))

    def model(x, y):
        whole = N.concat(x, y, dim=0)
        rows = dense(whole)
        return N.sum(rows, axis=0), dense(N.reverse(whole, axis=0)), whole[1:3]

    samples = [
        (mx.nd.random.normal(shape=(1 + i % 2, 4)), mx.nd.random.normal(shape=(2, 4)))
        for i in range(6)
    ]
    assert_matches_eager(model, samples, unpack=True, blocks=[dense], rtol=2e-5)


def test_what_calls_share_is_random_for_each():
    """Dropout of a whole value: each call has a mask of its own."""
    x = mx.nd.ones((40, 50))
    with mx.autograd.train_mode(), edb.batching('agenda'):
        values = [N.sum(N.Dropout(N.identity(x), p=0.5, axes=(0,)), axis=0) for _ in range(3)]
    first, second, third = [value.asnumpy() for value in values]
    assert (first != second).any() and (second != third).any()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                ['sum', 'softmax', 'T', 'dot', 'concat', 'slice', 'tanh', 'add', 'reverse', 'stack']
            ),
            st.integers(0, 1),
        ),
        min_size=1,
        max_size=6,
    ),
    st.integers(1, 3),
    st.integers(1, 3),
)
def test_random_programs(operations, rows, columns):
    def model(x):
        value = N.identity(x)
        for operation, axis in operations:
            if operation == 'sum':
                value = N.sum(value, axis=axis, keepdims=True) + value
            elif operation == 'softmax':
                value = N.softmax(value, axis=axis)
            elif operation == 'T':
                value = value.T
            elif operation == 'dot':
                value = N.dot(N.dot(value, value, transpose_b=True), value) * 0.3
            elif operation == 'concat':
                value = N.concat(value, value * 2, dim=axis)
            elif operation == 'slice':
                value = N.slice_axis(value, axis=axis, begin=0, end=1) + value
            elif operation == 'tanh':
                value = N.tanh(value)
            elif operation == 'add':
                value = value + N.mean(value)
            elif operation == 'reverse':
                value = N.reverse(value, axis=axis)
            else:
                value = N.max(N.stack(value, -value, axis=axis), axis=axis)
        return value

    samples = samples_of([f'{rows},{columns}'], 3)
    assert_matches_eager(
        model, samples, unpack=True, blocks=[], hybridized=[False], schedulers=['agenda'], rtol=1e-4
    )


def test_what_has_no_rule_says_so():
    """Both ways: by rows, and whole."""
    with edb.batching('agenda') as scope:
        arrays = [N.identity(x) for (x,) in samples_of(['3,4'])]
        edb.forward([N.batch_take(x, N.cast(N.argmax(x, axis=1), 'int32')) for x in arrays])
    kind = next(kind for kind in scope.report().types if 'batch_take' in kind.name)
    assert kind.batches == COUNT
    assert 'no batching rule is declared' in kind.note and 'on whole values' in kind.note


@pytest.mark.parametrize('function', [N.argmax_channel, N.sort, lambda x: N.khatri_rao(x, x)])
def test_operators_without_gradients(function):
    """MXNet cannot compile them as they are."""
    samples = samples_of(['2,3'])
    with edb.batching('agenda'):
        values = [function(N.identity(x)) for (x,) in samples]
    for (x,), value in zip(samples, values):
        np.testing.assert_array_equal(value.asnumpy(), function(x).asnumpy())


@pytest.mark.parametrize('training', [False, True])
@pytest.mark.parametrize('check_every', [1, 100])
def test_recorded_graphs_are_used_again(training, check_every):
    """Calls of whole values, and of operators with weights, in later epochs."""
    block, weight = started(Attention(4)), mx.nd.random.normal(shape=(4, 3))
    weight.attach_grad()
    samples = [mx.nd.random.normal(shape=(2 + i % 2, 4)) for i in range(4)]
    reuse = edb.Reuse(check_every=check_every)
    results = []

    def model(x):
        rows, highest = block(x)
        return N.sum(N.dot(rows, weight), axis=0), highest

    for _ in range(3):
        with mx.autograd.record() if training else mx.autograd.pause(), edb.batching():
            values = [reuse(i, model, x) for i, x in enumerate(samples)]
        results.append([value.asnumpy() for pair in values for value in pair])
    for again in results[1:]:
        for first, later in zip(results[0], again):
            np.testing.assert_allclose(first, later, rtol=1e-5)


def test_shared_array_in_the_shape_of_a_value():
    """What does not depend on a call's contents is no batch of whole values, and right all the
    same."""
    weight = mx.nd.random.normal(shape=(2, 6))
    weight.attach_grad()
    samples = samples_of(['3,4'])
    with edb.batching('agenda'):
        values = [N.reshape_like(weight, N.identity(x)) * 2 for (x,) in samples]
    for value in values:
        np.testing.assert_allclose(value.asnumpy(), weight.asnumpy().reshape(3, 4) * 2, rtol=1e-6)


def test_tile_along_three_axes_runs_alone():
    """A batch would have one axis more, of which MXNet has no gradient."""
    xs = [mx.nd.random.normal(shape=(3, 1, 2)) for _ in range(COUNT)]
    for x in xs:
        x.attach_grad()
    with mx.autograd.record():
        with edb.batching():
            values = [N.tile(N.identity(x), reps=(2, 2, 2)) for x in xs]
        loss = edb.stack(values).sum()
    loss.backward()
    for x, value in zip(xs, values):
        np.testing.assert_array_equal(value.asnumpy(), np.tile(x.asnumpy(), (2, 2, 2)))
        np.testing.assert_array_equal(x.grad.asnumpy(), np.full(x.shape, 8))


def test_a_vector_instead_of_a_matrix_runs_alone():
    """MXNet takes (1,) for a matrix, and (4, 1), which a batch would be, for none."""
    xs = [mx.nd.random.uniform(1, 2, shape=(1,)) for _ in range(COUNT)]
    with edb.batching():
        values = [N.linalg_potri(N.identity(x)) for x in xs]
    for x, value in zip(xs, values):
        np.testing.assert_allclose(value.asnumpy(), mx.nd.linalg.potri(x).asnumpy(), rtol=1e-6)
