"""All that is not a device's own kernels, on another device: nothing may be made on the default
one.

Every test has its parameters and data on ``cpu(1)``, the stand-in for a GPU (`support.device`), and
compares with eager Gluon there. Without native operators all runs as it does on a GPU; with them,
what they need goes to the same device, too.
"""

from random import Random

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn, rnn

import gluon_edbatch as edb
from benchmarks.settings import Settings
from benchmarks.systems import build_system
from benchmarks.workloads import WORKLOADS, load_workload
from gluon_edbatch.api import mixin
from gluon_edbatch.testing import assert_matches_eager
from tests.support.cases import in_one_test
from tests.support.device import OTHER, all_arrays_on
from tests.support.models import (
    CLASSES,
    EMBED,
    HIDDEN,
    MVRNN,
    VOCAB,
    BinaryTreeLSTM,
    Reader,
    TreeGRU,
    TreeLSTM,
    arrays,
    binary_trees,
    ndarrays,
    random_trees,
    sentences,
    started,
)
from tests.support.tiers import sampled

BOTH = dict(schedulers=['agenda', 'depth'])  # with native operators, and without


@pytest.fixture(params=[False, True], ids=['not native', 'native'])
def native(request):
    """Runs a test as on a GPU, and with native operators."""
    with edb.compile_options(native=request.param):
        yield request.param


def there(net, dtype='float32'):
    """The block with its parameters on the other device."""
    return started(net, dtype=dtype, ctx=OTHER)


def given(count, shape, seed=0, gradient=True, dtype='float32'):
    """Data of the other device."""
    return ndarrays(count, shape, seed, dtype, gradient, OTHER)


def assert_as_eager_there(model, samples, **options):
    """Assert that results equal eager Gluon's and lie on the other device."""
    with all_arrays_on(OTHER):
        assert_matches_eager(model, samples, **{**BOTH, **options})


def close(found, expected):
    assert found.ctx == OTHER
    np.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-4, atol=1e-6)


# --- models --------------------------------------------------------------------------------------


@in_one_test(
    'make, samples',
    [
        (TreeLSTM, random_trees(5)),
        (BinaryTreeLSTM, binary_trees(5)),
        (lambda: BinaryTreeLSTM(False), binary_trees(5)),
        (TreeGRU, random_trees(5)),
        (lambda: TreeGRU(False), binary_trees(5)),
        (MVRNN, binary_trees(4)),
        (Reader, sentences(5)),
        (lambda: Reader(rnn.GRUCell), sentences(5)),
    ],
    ids=['tree', 'binary', 'leaves', 'gru', 'gru leaves', 'matrix-vector', 'lstm', 'reader gru'],
)
def test_models(make, samples):
    """Words are Python numbers: they go where the parameters are."""
    assert_as_eager_there(there(make()), samples)


@pytest.mark.parametrize('name, native', sampled(3, WORKLOADS, [False, True]), indirect=['native'])
def test_workloads(name, native):
    """Training and inference are those of the model run one by one on the default device."""
    losses, outputs = [], []
    for system, ctx in (('agenda', 'cpu:1'), ('unbatched', 'cpu')):
        chosen = Settings(
            name, 'train', system, hidden=8, embed=4, optimizer='adam', learning_rate=0.01, ctx=ctx
        )
        workload = load_workload(chosen)
        samples = workload.samples[:2]
        built = build_system(workload, chosen)
        losses.append([built.train(samples).asscalar()])  # with MXNet's own initialisation
        with all_arrays_on(OTHER) if ctx != 'cpu' else autograd.pause():
            losses[-1] += [built.train(samples).asscalar() for _ in range(2)]
            predicted = built.predict(samples)
        outputs.append(np.concatenate([array.asnumpy() for array in predicted]))
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-4)
    np.testing.assert_allclose(outputs[0], outputs[1], rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize('optimizer', ['sgd', 'adam'])
def test_trainer(optimizer, native):
    """Several steps, under each way to keep gradients; what a trainer holds is on the device."""
    kept = []
    for batched in (True, False):
        net, loss_fn = there(TreeLSTM()), gluon.loss.SoftmaxCrossEntropyLoss()
        trainer = gluon.Trainer(net.collect_params(), optimizer, {'learning_rate': 0.05})
        labels = [mx.nd.array([number % CLASSES], OTHER) for number in range(6)]
        with all_arrays_on(OTHER):
            for _ in range(3):
                with autograd.record():
                    if batched:
                        with edb.batching('agenda'):
                            losses = [
                                loss_fn(net(tree), label)
                                for tree, label in zip(random_trees(6), labels)
                            ]
                        loss = edb.stack(losses).mean()
                    else:
                        loss = mx.nd.stack(
                            *[
                                loss_fn(net(tree), label)
                                for tree, label in zip(random_trees(6), labels)
                            ]
                        ).mean()
                loss.backward()
                trainer.step(1)
            loss.wait_to_read()
        kept.append([parameter.data() for parameter in net.collect_params().values()])
    for found, expected in zip(*kept):
        close(found, expected)


@pytest.mark.parametrize('grad_req', ['add', 'null'])
def test_gradients_that_are_added_or_not_wanted(grad_req):
    net = there(nn.Dense(3, in_units=4))
    net.bias.grad_req = grad_req
    assert_as_eager_there(net, given(4, (1, 4)))


def test_deferred_initialisation(native):
    net = nn.Dense(3)
    net.initialize(mx.init.One(), ctx=OTHER)
    with edb.batching():
        values = [net(x) for x in given(4, (1, 4))]
    assert net.weight.list_ctx() == [OTHER]
    for value, x in zip(values, given(4, (1, 4))):
        close(value, net(x))


# --- operators -----------------------------------------------------------------------------------


@pytest.mark.parametrize('name', ['sigmoid', 'tanh', 'softmax', 'zeros_like', 'ones_like', 'erf'])
def test_operators(name):
    assert_as_eager_there(getattr(edb.nd, name), given(4, (1, 5)), hybridized=[False])


@in_one_test(
    'function',
    [
        lambda x: x * 2 + 1 - x / 3,
        lambda x: 1 - x**2,
        lambda x: abs(-x) % 0.7,
        lambda x: x > 0,
        lambda x: x[:, 1:3],
        lambda x: x[0],
        lambda x: x.sum(),
        lambda x: x.T,
        lambda x: x.reshape((5, 1)),
        lambda x: x.split(5, axis=1)[1:3],
        lambda x: x.astype('float64'),
        lambda x: edb.nd.concat(x, x, dim=1),
        lambda x: edb.nd.one_hot(x, depth=3),
        lambda x: edb.nd.broadcast_add(x, x.mean(axis=1, keepdims=True)),
        lambda x: edb.nd.dot(x, x, transpose_b=True),
        lambda x: edb.nd.pick(x, x[:, 0] * 0),
    ],
    ids=range(16),
)
def test_arithmetic(function):
    assert_as_eager_there(
        lambda x: function(edb.nd.identity(x)), given(4, (1, 5)), hybridized=[False]
    )


def test_another_dtype():
    assert_as_eager_there(
        there(nn.Dense(3, in_units=4, activation='tanh'), 'float64'),
        given(4, (1, 4), dtype='float64'),
        hybridized=[False],
    )


class Constants(gluon.HybridBlock):
    """Makes arrays of its own, some of which take part of all rows."""

    def hybrid_forward(self, F, x):
        places = F.arange(4)
        mask = F.broadcast_greater(F.reshape(places, (1, 4)), F.zeros((1, 1)) + 1.5)
        return F.broadcast_mul(x, mask) + F.broadcast_add(F.zeros_like(x), F.ones((1, 4)) * 2)


def test_constants_of_a_block():
    """What a block makes itself is made where its arguments are, in batches as eagerly."""
    assert_as_eager_there(Constants(), given(4, (1, 4)), hybridized=[True])


def test_random_numbers_of_a_block():
    """Drawn on the device; a mask zeroes and scales, whatever it is."""
    drop = nn.Dropout(0.5)
    with all_arrays_on(OTHER), autograd.record():
        with edb.batching():
            values = [drop(x) for x in given(8, (1, 32))]
        found = edb.concat(values)
    expected = np.concatenate([x.asnumpy() for x in given(8, (1, 32))])
    assert ((found.asnumpy() == 0) ^ np.isclose(found.asnumpy(), 2 * expected)).all()
    assert 0 < (found.asnumpy() == 0).mean() < 1


def test_running_statistics():
    norm = there(nn.BatchNorm(in_channels=4))
    assert_as_eager_there(norm, given(4, (1, 4)), training=[False])


# --- joins and ragged values ---------------------------------------------------------------------


@in_one_test(
    'join, plain',
    [
        (edb.stack, mx.nd.stack),
        (edb.add_n, mx.nd.add_n),
        (lambda values: edb.concat(values, dim=0), lambda *values: mx.nd.concat(*values, dim=0)),
        (lambda values: edb.concat(values, dim=1), lambda *values: mx.nd.concat(*values, dim=1)),
    ],
    ids=['stack', 'add_n', 'rows', 'columns'],
)
@in_one_test('inside', [False, True])
def test_joins(join, plain, inside, native):
    """Rows in any order, with ordinary arrays among them, inside a scope and after it."""
    net, xs = there(nn.Dense(4, in_units=4)), given(9, (1, 4))
    order = Random(0).sample(range(9), 9)
    found = []
    for batched in (True, False):
        net.collect_params().zero_grad()
        with all_arrays_on(OTHER), autograd.record():
            if batched:
                with edb.batching('depth'):
                    values = [net(net(x)) if i % 2 else net(x) for i, x in enumerate(xs)]
                    chosen = [values[i] for i in order] + xs[:1]
                    joined = join(chosen) if inside else None
                joined = edb.forward(joined) if inside else join(chosen)
            else:
                values = [net(net(x)) if i % 2 else net(x) for i, x in enumerate(xs)]
                joined = plain(*[values[i] for i in order], xs[0])
            (joined**2).sum().backward()
        found.append((joined, net.weight.grad().copy()))
    for one, other in zip(*found):
        close(one, other)


class Weighted(gluon.HybridBlock):
    """A sum over values that knows how many they are."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.gate = nn.Dense(4, in_units=4, flatten=False, use_bias=False)

    def hybrid_forward(self, F, x, lengths, values):
        gates = F.SequenceMask(
            self.gate(values), lengths, use_sequence_length=True, axis=1, value=-1e9
        )
        return x + F.sum(F.softmax(gates, axis=1) * values, axis=1)


class Summed(gluon.HybridBlock):
    """A sum that needs no padding."""

    def hybrid_forward(self, F, x, values):
        return F.tanh(x + F.sum(F.broadcast_mul(values, F.expand_dims(x, axis=1)), axis=1))


@pytest.mark.parametrize('fewest', [0, 1])
@pytest.mark.parametrize('segments', [False, True])
def test_ragged(fewest, segments):
    """Any number of values: padded, and as the rows that there are."""
    weighted, summed, net = there(Weighted()), Summed(), there(nn.Dense(4, in_units=4))

    def model(values):
        x, *others = [net(value) for value in values]
        children = edb.ragged(others, shape=(1, 4), dtype='float32', ctx=OTHER)
        result = summed(x, children)
        return result if not others else (result + weighted(x, children.lengths, children))

    samples = [given(count, (1, 4), seed=count) for count in range(1 + fewest, 6)]
    with edb.compile_options(segments=segments):
        assert_as_eager_there(model, samples, blocks=[weighted, summed, net])


def test_ragged_operators_outside_of_blocks():
    """The array of a ragged value, with none among them."""
    with all_arrays_on(OTHER):
        with edb.batching():
            rows = [edb.nd.tanh(x) for x in given(5, (1, 4))]
            values = [
                edb.ragged(rows[:count], shape=(1, 4), ctx=OTHER).sum(axis=1) for count in range(6)
            ]
        found = edb.concat(values)
    expected = np.cumsum(
        [np.zeros((1, 4))] + [np.tanh(x.asnumpy()) for x in given(5, (1, 4))], axis=0
    )
    np.testing.assert_allclose(found.asnumpy(), expected.reshape(6, 4), rtol=1e-5, atol=1e-6)


# --- what is computed once, or elsewhere ---------------------------------------------------------


@pytest.mark.parametrize('option', sampled(2, edb.CompileOptions.names()))
def test_with_one_optimisation_less(option):
    with edb.compile_options(**{option: False}):
        assert_as_eager_there(there(TreeLSTM()), random_trees(4), hybridized=[False])


def test_products_of_words_computed_beforehand():
    """Hoisted: what a cell does with a word it does for all words at once, or once for a word."""
    net = there(Reader())
    with all_arrays_on(OTHER), edb.batching('agenda') as scope:
        values = [net(tokens) for tokens in sentences(6)]
        found = edb.forward(values)
    for value, tokens in zip(found, sentences(6)):
        close(value, net(tokens))
    assert any('hoisting' in kind.passes for kind in scope.report().types)


@pytest.mark.parametrize('kind', ['lookup', 'recurrent'])
def test_row_sparse_gradients(kind, native):
    """Rows that a minibatch looks up, and an update of these."""
    kept = []
    for batched in (True, False):
        table = there(nn.Embedding(VOCAB, EMBED, sparse_grad=True))
        cell = there(rnn.GRUCell(HIDDEN, input_size=EMBED))
        trainer = gluon.Trainer(table.collect_params(), 'sgd', {'learning_rate': 0.5})
        begin = mx.nd.zeros((1, HIDDEN), OTHER)

        def run(tokens):
            words = [table(mx.nd.array([token], OTHER)) for token in tokens]
            if kind == 'lookup':
                return mx.nd.add_n(*words).sum()
            states = [begin]
            for word in words:
                output, states = cell(word, states)
            return output.sum()

        with all_arrays_on(OTHER), autograd.record():
            if batched:
                with edb.batching('agenda'):
                    values = [run(tokens) for tokens in sentences(4)]
                loss = edb.add_n(values)
            else:
                loss = mx.nd.add_n(*[run(tokens) for tokens in sentences(4)])
            loss.backward()
        with all_arrays_on(OTHER):
            gradient = table.weight.grad()
            assert gradient.stype == 'row_sparse' and gradient.ctx == OTHER
            trainer.step(1)
        kept.append((gradient.tostype('default'), table.weight.data()))
    for found, expected in zip(*kept):
        close(found, expected)


# --- other ways to call --------------------------------------------------------------------------


@pytest.mark.parametrize(
    'cell',
    [
        lambda: rnn.RNNCell(HIDDEN, input_size=EMBED),
        lambda: rnn.LSTMCell(HIDDEN, input_size=EMBED),
        lambda: rnn.GRUCell(HIDDEN, input_size=EMBED),
        lambda: rnn.BidirectionalCell(
            rnn.LSTMCell(HIDDEN, input_size=EMBED), rnn.GRUCell(HIDDEN, input_size=EMBED)
        ),
        lambda: rnn.ResidualCell(rnn.GRUCell(EMBED, input_size=EMBED)),
    ],
    ids=['rnn', 'lstm', 'gru', 'bidirectional', 'residual'],
)
def test_cells_are_unrolled(cell):
    """First states come from the cell, where its inputs are."""
    net = there(cell())

    def model(x):
        outputs, states = net.unroll(x.shape[1], x, layout='NTC', merge_outputs=True)
        return [outputs, *states]

    assert_as_eager_there(
        model,
        [given(1, (1, length, EMBED), length)[0] for length in (3, 1, 4)],
        blocks=[net],
        hybridized=[False],
    )


@pytest.mark.parametrize('merge', [False, True])
def test_fold_unroll(merge):
    net, fold = there(rnn.LSTMCell(HIDDEN, input_size=EMBED)), edb.Fold()
    xs = [given(1, (2, length, EMBED), length)[0] for length in (3, 1, 4)]
    with all_arrays_on(OTHER), autograd.record():
        noted = []
        for x in xs:
            outputs, states = edb.fold_unroll(net, fold, x.shape[1], x, merge_outputs=merge)
            noted += ([outputs] if merge else outputs) + states
        found = fold([[result] for result in noted])
        mx.nd.add_n(*[result.sum() for result in found]).backward()
    gradient = net.i2h_weight.grad().copy()
    with autograd.record():
        expected = []
        for x in xs:
            outputs, states = net.unroll(x.shape[1], x, merge_outputs=merge)
            expected += ([outputs] if merge else outputs) + states
        mx.nd.add_n(*[result.sum() for result in expected]).backward()
    for one, other in zip(found, expected):
        close(one, other)
    close(gradient, net.i2h_weight.grad())


def test_fold():
    """Numbers and NumPy arrays go where the fold is said to be."""
    net, fold = there(nn.Embedding(VOCAB, 4)), edb.Fold(OTHER)
    dense = there(nn.Dense(4, in_units=4))
    with all_arrays_on(OTHER):
        words = [fold.record(0, net, token) for token in (1, 5, 2)]
        scores = [fold.record(0, dense, word) for word in words]
        more = fold.record(0, dense, np.ones((1, 4), np.float32))
        found, other, labels = fold([scores, [more], [3, 1]])
    close(found, dense(net(mx.nd.array([1, 5, 2], OTHER))))
    close(other, dense(mx.nd.ones((1, 4), OTHER)))
    assert labels.asnumpy().tolist() == [3, 1]


def test_reuse(native):
    net, reuse = there(TreeLSTM()), edb.Reuse(check_every=3)
    with all_arrays_on(OTHER):
        for _ in range(3):
            values = net.batch(random_trees(5), keys=range(5), reuse=reuse)
    for value, tree in zip(values, random_trees(5)):
        close(value, net(tree))
    assert reuse.reused and reuse.checked


def test_run_concurrently(native):
    """Samples that wait for values; what is chosen by them goes on where the model is."""
    net, embed = there(rnn.GRUCell(HIDDEN, input_size=EMBED)), there(nn.Embedding(VOCAB, EMBED))
    begin = np.zeros((1, HIDDEN), np.float32)

    def walk(token):
        path, states = [], [begin]
        for _ in range(4):
            output, states = net(embed(token), states)
            seen = yield output
            token = int(np.abs(seen).argmax())
            path.append(token)
        return path, output

    with all_arrays_on(OTHER):
        with edb.batching():
            found = edb.run_concurrently([1, 4, 7], walk)
        values = edb.forward([value for _, value in found])
    with mixin.eagerly(OTHER):
        expected = edb.run_concurrently([1, 4, 7], walk)
    assert [path for path, _ in found] == [path for path, _ in expected]
    for value, (_, wanted) in zip(values, expected):
        close(value, wanted)


@pytest.mark.parametrize('scope', [dict(), dict(ctx=OTHER)])
def test_numpy_arrays_before_any_parameter(scope):
    """The scope's own context, or else that of the first block."""
    net = there(nn.Dense(3, in_units=4))
    with all_arrays_on(OTHER):
        with edb.batching(**scope):
            values = [net(x) for x in arrays(3, (1, 4))]
        found = edb.forward(values)
    for value, x in zip(found, given(3, (1, 4))):
        close(value, net(x))


def test_values_read_in_the_middle(native):
    net = there(nn.Dense(4, in_units=4))
    with all_arrays_on(OTHER), autograd.record():
        with edb.batching():
            values = given(4, (1, 4))
            for _ in range(3):
                values = [net(x) if x.sum().asscalar() > 0 else net(x) * 2 for x in values]
        edb.stack(values).sum().backward()
    found = net.weight.grad().copy()
    with autograd.record():
        values = given(4, (1, 4))
        for _ in range(3):
            values = [net(x) if x.sum().asscalar() > 0 else net(x) * 2 for x in values]
        mx.nd.stack(*values).sum().backward()
    close(found, net.weight.grad())


def test_devices_are_not_mixed():
    """An array of the default device beside a model elsewhere is an error, not a copy."""
    net = there(nn.Dense(3, in_units=4))
    with edb.batching():
        with pytest.raises(edb.RecordError, match=r'cpu\(0\)'):
            net(mx.nd.ones((1, 4)))


# --- the watch itself ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    'make',
    [
        lambda x: mx.nd.zeros((1, 2)),
        lambda x: mx.nd.array([1]),
        lambda x: x.as_in_context(mx.cpu(0)),
        lambda x: mx.nd.sparse.zeros('row_sparse', (2, 2)),
        lambda x: mx.nd.random.normal(shape=(1,)),
        lambda x: mx.np.ones(3),
    ],
    ids=['zeros', 'array', 'copy', 'sparse', 'random', 'np'],
)
def test_an_array_on_the_default_device_is_noticed(make):
    (x,) = given(1, (1, 2))
    with pytest.raises(AssertionError, match=r'arrays on cpu\(0\)'):
        with all_arrays_on(OTHER):
            make(x)


@pytest.mark.parametrize('kind', ['cpu_shared', 'cpu_pinned'])
def test_other_memory_of_the_host(native, kind):
    """Pinned and shared memory work as the CPU's does, for data of a DataLoader and for weights."""
    memory = mx.Context(kind, 0)
    net = started(gluon.nn.Dense(3, in_units=4))
    (weight,) = ndarrays(1, (2, 3), seed=1, gradient=True, ctx=memory)
    (table,) = ndarrays(1, (1 << 15, 2), seed=2, ctx=memory)
    samples = ndarrays(5, (1, 4), gradient=True, ctx=memory)
    assert {array.ctx for array in (weight, table, *samples)} == {memory}

    def model(sample):
        hidden = mx.nd.FullyConnected(net(sample), weight, num_hidden=2, no_bias=True)
        found = mx.nd.take(table, mx.nd.argmax(hidden, axis=1))
        return hidden * found + sample.sum(axis=1, keepdims=True)

    assert_matches_eager(model, samples, **BOTH)


@pytest.mark.parametrize('size', [1, 1 << 15])
def test_other_memory_of_the_host_changed_in_place(size):
    """What was recorded counts, however large it is."""
    net = started(gluon.nn.Dense(3, in_units=4))
    given = mx.nd.ones((size, 4), mx.Context('cpu_shared', 0))
    expected = net(given.copyto(mx.cpu())).asnumpy()
    with edb.batching():
        value = net(given)
        given[:] = 7
    np.testing.assert_allclose(value.asnumpy(), expected, rtol=1e-5)
