"""Models written with operators alone: arrays that all calls share are weights, as with DyNet."""

import gc

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon

import gluon_edbatch as edb
from gluon_edbatch.record import remembered, shared
from gluon_edbatch.testing import assert_matches_eager
from tests.support.cases import in_one_test

N = edb.nd
RANDOM = np.random.RandomState(0)


def array(*shape, gradient=True):
    made = mx.nd.array(RANDOM.uniform(-1, 1, shape))
    if gradient:
        made.attach_grad()
    return made


def operators_of(scope, name):
    """(calls, batches) of the types of an operator."""
    kinds = [kind for kind in scope.report().types if kind.name.startswith(name)]
    return sum(kind.calls for kind in kinds), sum(kind.batches for kind in kinds)


def tree(depth, leaf):
    return leaf() if depth == 0 else (tree(depth - 1, leaf), tree(max(0, depth - 2), leaf))


class OperatorTree(edb.AutoBatchMixin, gluon.Block):
    """tanh(W [l; r] + b) of column vectors, as DyNet writes it."""

    def __init__(self, units):
        super().__init__()
        with self.name_scope():
            self.matrix = self.params.get('matrix', shape=(units, 2 * units))
            self.bias = self.params.get('bias', shape=(units,), init=mx.init.Uniform(1))

    def forward(self, node):
        if not isinstance(node, tuple):
            return N.identity(node)
        left, right = map(self, node)
        return N.tanh(N.dot(self.matrix.data(), N.concat(left, right, dim=0)) + self.bias.data())


@pytest.fixture
def net():
    made = OperatorTree(5)
    made.initialize(mx.init.Xavier())
    return made


def test_dynets_recursive_network(net):
    samples = [tree(1 + i % 4, lambda: array(5)) for i in range(8)]
    assert_matches_eager(net, samples, rtol=3e-5)
    with edb.batching('agenda') as scope:
        edb.forward([net(sample) for sample in samples])
    for name in ('dot', 'concat', 'tanh', 'broadcast_add'):
        calls, batches = operators_of(scope, name)
        assert calls > 20 and batches <= 6, scope.report()


def test_training_takes_effect_at_once(net):
    """The weights of each step are those that the step before left."""
    samples = [tree(2, lambda: array(5, gradient=False)) for _ in range(3)]
    losses = {}
    for batched in (True, False):
        for parameter in net.collect_params().values():
            parameter.set_data(mx.nd.full(parameter.shape, 0.2))
        trainer = gluon.Trainer(net.collect_params(), 'sgd', {'learning_rate': 0.1})
        losses[batched] = []
        for _ in range(4):
            with autograd.record():
                if batched:
                    with edb.batching():
                        values = [net(sample) for sample in samples]
                    loss = edb.stack(values).square().sum()
                else:
                    loss = mx.nd.stack(*[net(sample) for sample in samples]).square().sum()
            loss.backward()
            trainer.step(1)
            losses[batched].append(loss.asscalar())
    np.testing.assert_allclose(losses[True], losses[False], rtol=1e-4)
    assert losses[True][-1] < losses[True][0]


LAYERS = {
    'FullyConnected': lambda x, w, b: N.FullyConnected(x, w, b, num_hidden=6),
    'without bias': lambda x, w, b: N.FullyConnected(x, w, no_bias=True, num_hidden=6) + b,
    'dot': lambda x, w, b: N.dot(x, w, transpose_b=True) + b,
    'dot from the left': lambda x, w, b: N.dot(w, x.T).T + b,
    'dot from the left, transposed': lambda x, w, b: N.dot(w, x, transpose_b=True).T * b,
    'LayerNorm': lambda x, w, b: N.LayerNorm(N.dot(x, w.T), b, b),
    'Embedding': lambda x, w, b: N.Embedding(N.argmax(x, axis=1), w, input_dim=6, output_dim=4) + x,
    'take': lambda x, w, b: N.take(w, N.argmax(x, axis=1)) * x,
    'elementwise': lambda x, w, b: N.broadcast_mul(N.concat(x, x[:, :2], dim=1), b) - b,
    'Convolution': lambda x, w, b: N.Convolution(
        N.reshape(x, shape=(0, 1, 4)), w, b, kernel=4, num_filter=6
    ),
}


@in_one_test('rows', [1, 3])
@in_one_test('name', LAYERS)
def test_layer_of_arrays(name, rows):
    weight, bias = array(*((6, 1, 4) if name == 'Convolution' else (6, 4))), array(6)
    samples = [array(rows, 4) for _ in range(5)]

    def model(x):
        return LAYERS[name](N.identity(x), weight, bias)

    assert_matches_eager(
        model,
        samples,
        blocks=[],
        inputs=[weight, bias],
        hybridized=[False],
        schedulers=['agenda'],
        rtol=3e-5,
    )
    with edb.batching('agenda') as scope:
        edb.forward([model(x) for x in samples])
    report = scope.report()
    assert report.batches <= len(report.types), report


def test_data_that_are_ndarrays():
    """In operators that get no lazy value; the weight's place does not matter."""
    weight = array(4, 4)
    samples = [array(4, 1, gradient=False) for _ in range(4)]
    assert_matches_eager(
        lambda x: N.dot(weight, x),
        samples,
        blocks=[],
        inputs=[weight],
        hybridized=[False],
        schedulers=['agenda'],
        rtol=3e-5,
    )
    with edb.batching('agenda') as scope:
        edb.forward([N.dot(weight, x) for x in samples])
    assert operators_of(scope, 'dot') == (4, 1)


def test_without_gradients():
    """Large arrays, and weights of layers, are shared without a gradient of their own."""
    weight = array(300, 300, gradient=False)
    samples = [array(1, 300) for _ in range(5)]
    for model in (
        lambda x: N.dot(N.identity(x), weight),
        lambda x: N.FullyConnected(N.identity(x), weight[:5], no_bias=True, num_hidden=5),
    ):
        assert_matches_eager(
            model, samples, blocks=[], hybridized=[False], rtol=3e-5, schedulers=['agenda']
        )


def test_computed_weights():
    """A weight that is itself computed, under autograd.record() outside of the scope."""
    base, gradients = array(4, 4), []
    samples = [array(1, 4, gradient=False) for _ in range(3)]
    for batched in (True, False):
        with autograd.record():
            weight = base * 2
            if batched:
                with edb.batching():
                    values = [
                        N.FullyConnected(N.identity(x), weight, no_bias=True, num_hidden=4)
                        for x in samples
                    ]
                loss = edb.stack(values).square().sum()
            else:
                loss = (
                    mx.nd.stack(
                        *[
                            mx.nd.FullyConnected(x, weight, no_bias=True, num_hidden=4)
                            for x in samples
                        ]
                    )
                    .square()
                    .sum()
                )
        loss.backward()
        gradients.append(base.grad.asnumpy())
    np.testing.assert_allclose(*gradients, rtol=1e-5)


def test_changed_between_calls():
    """Calls that wait agree in their weights, or an error is raised, as for blocks' parameters."""
    weight = array(4, 4)
    with edb.batching():
        x = N.identity(array(1, 4))
        first = N.dot(x, weight)
        before = weight.asnumpy()
        weight[:] = 1
        with pytest.raises(edb.RecordError, match='array1 of dot was changed between two'):
            N.dot(x, weight)
        edb.forward([first])
        later = N.dot(x, weight)
    assert (before != 1).any()
    np.testing.assert_allclose(later.asnumpy(), np.full((1, 4), x.asnumpy().sum()), rtol=1e-5)


def test_many_arrays_are_data():
    """A matrix for each sample, with a gradient: a type for each would never batch."""
    samples = [(array(1, 4), array(4, 3)) for _ in range(200)]

    def model(x, matrix):
        return N.dot(N.identity(x), matrix)

    assert_matches_eager(
        model, samples, unpack=True, blocks=[], hybridized=[False], schedulers=['agenda'], rtol=3e-5
    )
    with edb.batching('agenda') as scope:
        edb.forward([model(*sample) for sample in samples])
    assert operators_of(scope, 'dot')[1] < 100


def test_other_array_at_the_same_place():
    """Types know arrays by their identity: one that came later is not taken for one that went."""
    x = mx.nd.ones((1, 4))
    for number in range(6):
        weight = mx.nd.full((4, 4), number)
        weight.attach_grad()
        with edb.batching():
            value = N.dot(N.identity(x), weight)
        assert (value.asnumpy() == 4 * number).all()
        del weight, value
        gc.collect()


def test_types_that_are_not_used_go(monkeypatch):
    monkeypatch.setattr(shared, '_MOST_TYPES', 3)
    types = shared.SharedTypes()
    kept = [array(2, 2) for _ in range(5)]
    first = types.of('dot', [1], kept[:1])[1]
    for other in kept[1:]:
        types.of('dot', [1], [other])
        assert types.of('dot', [1], kept[:1])[1] is first
    assert len(types._types) == 3


def test_arrays_of_models_that_are_gone_go():
    """Types hold arrays only as long as others do."""
    types = remembered.shared_types
    weight = array(4, 4)
    with edb.batching():
        value = N.dot(N.identity(array(1, 4)), weight)
    value.asnumpy()
    key = next(key for key in types._types if id(weight) in key)
    del value, weight
    gc.collect()
    kept = array(4, 4)
    types.of('dot', [1], [kept])
    assert key not in types._types


def test_on_another_context():
    weight = mx.nd.ones((4, 4), ctx=mx.cpu(1))
    weight.attach_grad()
    with edb.batching(), pytest.raises(edb.RecordError, match=r'cpu\(1\)'):
        N.dot(N.identity(array(1, 4)), weight)


# --- what DyNet's page promises ------------------------------------------------------------------


def test_building_computes_nothing(net):
    with edb.batching() as scope:
        net(tree(3, lambda: array(5)))
    assert scope.report().batches == 0


def test_one_value_computes_what_it_needs_and_keeps_it(net):
    with edb.batching() as scope:
        first = net(tree(3, lambda: array(5)))
        other = net(tree(3, lambda: array(5)))
        value = first.asnumpy()
        batches = scope.report().batches
        assert batches > 0
        np.testing.assert_array_equal(first.asnumpy(), value)
        other.asnumpy()
        assert scope.report().batches == batches  # it came with the first

        def again():
            return N.tanh(first + other)

        later = again()  # the graph goes on, and only the difference is computed
        nodes = scope.report().nodes
        later.asnumpy()
        assert scope.report().nodes == nodes + 2
    np.testing.assert_allclose(later.asnumpy(), np.tanh(value + other.asnumpy()), rtol=1e-5)


def test_forward_of_several_computes_no_others(net):
    with edb.batching() as scope:
        first, second, _ = [net(tree(2, lambda: array(5))) for _ in range(3)]
        edb.forward([first, second])
    report = scope.report()
    assert report.evaluations == 1
    assert operators_of(scope, 'tanh')[0] == 4


def test_asking_weights_for_their_shapes_is_no_touch():
    """Models ask for shapes, as in num_hidden=len(bias)."""
    weight, bias = array(6, 4), array(6)
    with edb.batching('agenda') as scope:
        for _ in range(3):
            N.FullyConnected(N.identity(array(1, 4)), weight, bias, num_hidden=len(bias))
            assert (weight.shape, weight.size, weight.ndim) == ((6, 4), 24, 2)
            assert (weight.dtype, weight.ctx, weight.stype) == (np.float32, mx.cpu(), 'default')
        watched = scope._recording.model.parameters.values()
        assert len(watched) == 2 and all(each.copy is None for each in watched)
        bias[:] = 1
        assert [each.copy is None for each in watched].count(False) == 1
