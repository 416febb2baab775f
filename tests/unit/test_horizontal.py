"""Horizontal fusion: cells with one Dense a gate, run as if their gates were one product."""

import contextlib
import itertools
from collections import Counter

import mxnet as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mxnet import autograd, gluon
from mxnet._ctypes.ndarray import CachedOp
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.execute import weights
from gluon_edbatch.subgraph import node_type
from gluon_edbatch.subgraph.ir import Subgraph
from gluon_edbatch.subgraph.passes.horizontal import horizontal, packs
from gluon_edbatch.testing import assert_matches_eager
from tests.support.models import (
    EMBED,
    HIDDEN,
    VOCAB,
    binary_trees,
    random_trees,
    sentences,
    started,
)
from tests.support.plans import plan_of

F = mx.sym


@pytest.fixture(autouse=True)
def without_native_operators():
    """Switch native operators off: they fuse products in their own way."""
    with edb.compile_options(native=False):
        yield


# --- the pass ------------------------------------------------------------------------------------


def product(name, data, units=3, bias=True, **kwargs):
    parameters = [F.var(f'w_{name}')] + [F.var(f'b_{name}')] * bias
    return F.FullyConnected(data, *parameters, num_hidden=units, no_bias=not bias, **kwargs)


def act(x, kind):
    return F.Activation(x, act_type=kind)


def lstm():
    x, h, c = (F.var(f'edb_input{i}') for i in range(3))
    # Written in an order in which no two of the sigmoids' gates are neighbours.
    i, u, f, z, o = (product('x' + g, x) + product('h' + g, h) for g in 'iufzo')
    c = act(f, 'sigmoid') * c + act(i, 'sigmoid') * act(u, 'tanh')
    return F.Group([act(o, 'sigmoid') * act(c, 'tanh'), c, act(z, 'tanh')])


def gru():
    x, h = F.var('edb_input0'), F.var('edb_input1')
    own, other = ({g: product(n + g, data) for g in 'rnz'} for n, data in (('x', x), ('h', h)))
    r, z = (act(own[g] + other[g], 'sigmoid') for g in 'rz')
    n = act(own['n'] + r * other['n'], 'tanh')
    return (1 - z) * n + z * h


def ops(graph):
    """How often each operator occurs."""
    return Counter(graph.operators)


def fused_graph(symbol):
    return horizontal(Subgraph(symbol))


@pytest.mark.parametrize(
    'make, expected',
    [
        (lstm, {'FullyConnected': 2, 'elemwise_add': 2, 'Activation': 3}),
        (gru, {'FullyConnected': 2, 'elemwise_add': 3, 'Activation': 2}),
    ],
)
def test_gates_become_one_product_and_one_activation_of_neighbours(make, expected):
    found = ops(fused_graph(make()))
    assert {op: found[op] for op in expected} == expected


def evaluate(symbol, shapes, seed=1):
    """Outputs and gradients of a symbol by name, packs made of the parameters they stand for."""
    original = {
        name: np.random.RandomState(seed + sum(map(ord, name))).uniform(-1, 1, shape)
        for name, shape in shapes.items()
    }
    packed = packs(Subgraph(symbol))
    values = {
        **original,
        **{
            pack: np.concatenate([original[name] for name in names])
            for pack, names in packed.items()
        },
    }
    inputs = [mx.nd.array(values[name]) for name in symbol.list_inputs()]
    for array in inputs:
        array.attach_grad()
    with autograd.record():
        results = CachedOp(symbol)(*inputs)
        results = results if isinstance(results, list) else [results]
        loss = sum((index + 1) * (result * result).sum() for index, result in enumerate(results))
    loss.backward()
    gradients = {name: np.zeros(shape) for name, shape in shapes.items()}
    for name, array in zip(symbol.list_inputs(), inputs):
        ends = np.cumsum([len(original[part]) for part in packed.get(name, [name])])
        for part, rows in zip(packed.get(name, [name]), np.split(array.grad.asnumpy(), ends[:-1])):
            gradients[part] += rows
    return [result.asnumpy() for result in results], gradients


def check_unchanged(symbol, **shapes):
    """The pass changes neither outputs nor gradients."""
    found, _, _ = symbol.infer_shape(**shapes)
    shapes = dict(zip(symbol.list_arguments(), found))
    for one, other in zip(evaluate(symbol, shapes), evaluate(fused_graph(symbol).symbol, shapes)):
        for key in other if isinstance(other, dict) else range(len(other)):
            np.testing.assert_allclose(one[key], other[key], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('make', [lstm, gru])
def test_results_and_gradients_stay(make):
    shapes = {f'edb_input{i}': (5, 3) for i in range(3)}
    symbol = make()
    check_unchanged(
        symbol, **{name: shapes[name] for name in symbol.list_inputs() if name in shapes}
    )


@settings(max_examples=40)
@given(st.data())
def test_random_blocks(data):
    """Products of one input or another, and elementwise operators on what there is."""
    entries, draw = {3: [], 2: []}, data.draw
    inputs = [F.var(f'edb_input{i}') for i in range(2)]
    for index in range(draw(st.integers(2, 7))):
        units = draw(st.sampled_from([3, 3, 2]))
        entries[units].append(
            product(str(index), draw(st.sampled_from(inputs)), units, bias=draw(st.booleans()))
        )
    for _ in range(draw(st.integers(0, 10))):
        width = draw(st.sampled_from([w for w in entries if entries[w]]))
        one, other = (draw(st.sampled_from(entries[width])) for _ in range(2))
        entries[width].append(
            draw(
                st.sampled_from(
                    [
                        lambda: one + other,
                        lambda: one * other,
                        lambda: act(one, 'tanh'),
                        lambda: act(one, 'sigmoid'),
                        lambda: 1 - one,
                        lambda: one * 2,
                    ]
                )
            )()
        )
    results = draw(st.lists(st.sampled_from(entries[3] + entries[2]), min_size=1, max_size=4))
    symbol = F.Group([F.identity(result) for result in results])
    shapes = {f'edb_input{i}': (4, 5) for i in range(2)}
    check_unchanged(
        symbol, **{name: shapes[name] for name in symbol.list_inputs() if name in shapes}
    )


def test_a_product_that_reads_the_results_of_a_group():
    x = F.var('edb_input0')
    first = [act(product(f'a{i}', x), 'tanh') for i in range(2)]
    both = first[0] * first[1]
    second = [product(f'b{i}', both) for i in range(2)]
    symbol = F.Group([second[0] + first[1], second[1] + first[0]])
    assert ops(fused_graph(symbol))['FullyConnected'] == 2
    check_unchanged(symbol, edb_input0=(4, 5))


def test_a_weight_that_is_used_twice():
    x, h = F.var('edb_input0'), F.var('edb_input1')
    symbol = F.Group(
        [product(name, data) for name, data in itertools.product(('one', 'two'), (x, h))]
    )
    fused = fused_graph(symbol)
    assert ops(fused)['FullyConnected'] == 2 and len(packs(fused)) == 2
    check_unchanged(symbol, edb_input0=(4, 5), edb_input1=(4, 5))


X, Y = F.var('edb_input0'), F.var('edb_input1')


@pytest.mark.parametrize(
    'symbol',
    [
        product('a', X) + product('b', Y),
        product('a', X) + product('b', X, bias=False),
        product('a', X) + product('b', X, flatten=False),
        product('a', X) + F.FullyConnected(X, Y, F.var('b'), num_hidden=3),
        F.dot(X, F.var('w')) + F.dot(X, F.var('v')),
    ],
    ids=['other input', 'no bias', 'other axis', 'weight is an input', 'dot'],
)
def test_other_products_are_left(symbol):
    graph = Subgraph(symbol)
    assert horizontal(graph) is graph


def test_gates_of_one_column():
    """Operands of other widths cannot be neighbours in the same columns."""
    x, h = F.var('edb_input0'), F.var('edb_input1')
    gated = [
        F.broadcast_mul(act(product(f'g{i}', x, units=1), 'sigmoid'), product(f's{i}', h))
        for i in range(3)
    ]
    symbol = F.Group(gated)
    found = ops(fused_graph(symbol))
    assert found['FullyConnected'] == 2 and found['Activation'] == 1
    check_unchanged(symbol, edb_input0=(4, 5), edb_input1=(4, 5))


def test_fused_again_is_the_same():
    fused = fused_graph(lstm())
    assert horizontal(fused) is fused


# --- cells that users write ----------------------------------------------------------------------


def denses(block, names, units, in_units, **kwargs):
    """Return a Dense layer for each gate."""
    for name in names:
        setattr(
            block,
            name,
            nn.Dense(units, in_units=in_units, flatten=False, prefix=f'{name}_', **kwargs),
        )


class LSTM(gluon.HybridBlock):
    """One Dense a gate."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            denses(self, ['xi', 'xu', 'xf', 'xo'], HIDDEN, EMBED)
            denses(self, ['hi', 'hu', 'hf', 'ho'], HIDDEN, HIDDEN, use_bias=False)

    def hybrid_forward(self, F, x, h, c):
        i, f, o = (F.sigmoid(getattr(self, 'x' + g)(x) + getattr(self, 'h' + g)(h)) for g in 'ifo')
        c = f * c + i * F.tanh(self.xu(x) + self.hu(h))
        return o * F.tanh(c), c


class GRU(gluon.HybridBlock):
    """One Dense a gate."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            denses(self, ['xr', 'xn', 'xz'], HIDDEN, EMBED)
            denses(self, ['hr', 'hn', 'hz'], HIDDEN, HIDDEN)

    def hybrid_forward(self, F, x, h, c):
        r, z = (F.sigmoid(getattr(self, 'x' + g)(x) + getattr(self, 'h' + g)(h)) for g in 'rz')
        n = F.tanh(self.xn(x) + r * self.hn(h))
        return (1 - z) * n + z * h, c * 0.5


class Reader(edb.AutoBatchMixin, gluon.Block):
    """The last state along a sentence."""

    def __init__(self, cell, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = nn.Embedding(VOCAB, EMBED)
            self.cell = cell()

    def forward(self, words):
        """(1, H)"""
        h = c = mx.nd.zeros((1, HIDDEN))
        for word in words:
            h, c = self.cell(self.embed(word), h, c)
        return h


class TreeLSTMCell(gluon.HybridBlock):
    """Child-sum, one Dense a gate."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            denses(self, ['xi', 'xf', 'xu', 'xo'], HIDDEN, EMBED)
            denses(self, ['hi', 'hf', 'hu', 'ho'], HIDDEN, HIDDEN)

    def hybrid_forward(self, F, x, child_h, child_c):
        total = F.sum(child_h, axis=1)
        i, o, u = (getattr(self, 'x' + g)(x) + getattr(self, 'h' + g)(total) for g in 'iou')
        f = F.sigmoid(F.broadcast_add(self.hf(child_h), F.expand_dims(self.xf(x), axis=1)))
        c = F.sigmoid(i) * F.tanh(u) + F.sum(f * child_c, axis=1)
        return F.sigmoid(o) * F.tanh(c), c


class TreeGRUCell(gluon.HybridBlock):
    """Child-sum, one Dense a gate."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            denses(self, ['xr', 'xz', 'xn'], HIDDEN, EMBED)
            denses(self, ['hr', 'hz', 'hn'], HIDDEN, HIDDEN)

    def hybrid_forward(self, F, x, child_h, child_c):
        total = F.sum(child_h, axis=1)
        z = F.sigmoid(self.xz(x) + self.hz(total))
        r = F.sigmoid(F.broadcast_add(self.hr(child_h), F.expand_dims(self.xr(x), axis=1)))
        n = F.tanh(self.xn(x) + self.hn(F.sum(r * child_h, axis=1)))
        return z * total + (1 - z) * n, F.sum(child_c, axis=1)


class MVCell(gluon.HybridBlock):
    """Vectors and matrices, one Dense for each child and for each of two gates."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            denses(self, ['left', 'left_gate', 'right', 'right_gate'], HIDDEN, HIDDEN)
            denses(self, ['left_matrix', 'right_matrix'], HIDDEN, HIDDEN, use_bias=False)

    def hybrid_forward(self, F, a, A, b, B):
        def transformed(vector, matrix):
            return F.squeeze(F.batch_dot(F.expand_dims(vector, axis=1), matrix), axis=1)

        left, right = transformed(a, B), transformed(b, A)
        gate = F.sigmoid(self.left_gate(left) + self.right_gate(right))
        return (
            gate * F.tanh(self.left(left) + self.right(right)),
            self.left_matrix(A) + self.right_matrix(B),
        )


class TreeReader(edb.AutoBatchMixin, gluon.Block):
    """States of the root of a tree with words at all nodes."""

    def __init__(self, cell, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = nn.Embedding(VOCAB, EMBED)
            self.cell = cell()

    def forward(self, tree):
        """h and c, (1, H) each."""
        states = [self(child) for child in tree.children]
        zero = mx.nd.zeros((1, HIDDEN))
        hs, cs = zip(*states) if states else ([zero], [zero])
        return self.cell(self.embed(tree.token), edb.stack(hs, axis=1), edb.stack(cs, axis=1))


class MatrixReader(edb.AutoBatchMixin, gluon.Block):
    """Vector and matrix of the root of a binary tree."""

    def __init__(self, cell, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.vector = nn.Embedding(VOCAB, HIDDEN)
            self.matrix = nn.Embedding(VOCAB, HIDDEN * HIDDEN)
            self.cell = cell()

    def forward(self, tree):
        """(1, H) and (1, H, H)"""
        if tree.children:
            return self.cell(*[state for child in tree.children for state in self(child)])
        return (self.vector(tree.token), self.matrix(tree.token).reshape((-1, HIDDEN, HIDDEN)))


CELLS = {
    'LSTM': (Reader, LSTM, sentences(5)),
    'GRU': (Reader, GRU, sentences(5)),
    'Tree-LSTM': (TreeReader, TreeLSTMCell, random_trees(4)),
    'Tree-GRU': (TreeReader, TreeGRUCell, random_trees(4)),
    'MV': (MatrixReader, MVCell, binary_trees(4)),
}


@pytest.fixture(name='packed')
def count_packs(monkeypatch):
    """The packs that are made while the test runs."""
    made, original = [], weights.Weights.pack

    def spied(self, node_type, positions):
        made.append([node_type.parameters[position].name for position in positions])
        return original(self, node_type, positions)

    monkeypatch.setattr(weights.Weights, 'pack', spied)
    return made


@pytest.mark.parametrize('name', CELLS)
def test_cells_match_eager(name, packed):
    reader, cell, samples = CELLS[name]
    assert_matches_eager(started(reader(cell)), samples, schedulers=('depth', 'fsm'))
    assert packed


def test_hoisted_products_are_one_result(packed):
    net = started(Reader(LSTM))
    plan = [plan_of(lambda: [net(sample) for sample in sentences(5)]) for _ in range(2)][-1]
    (early,) = [batch for batch in plan.batches if batch.hoisted]
    assert len(early.node_type.outputs) == 1
    inputs = {parameter.name for parameter in net.cell.collect_params('.*x._weight').values()}
    assert inputs and inputs in map(set, packed)


@pytest.fixture(name='most_rows')
def few_rows(monkeypatch):
    """Batches of more than so many rows are not fused."""
    most = 6
    monkeypatch.setattr(node_type, 'most_rows', lambda columns: most)
    return most


def test_large_batches_are_not_fused(packed, most_rows):
    net, x = started(Reader(LSTM)), mx.nd.ones((most_rows + 1, EMBED))
    state = mx.nd.zeros((most_rows + 1, HIDDEN))
    with edb.batching():
        h, _ = net.cell(x, state, state)
    h.wait_to_read()
    assert not packed


@pytest.mark.parametrize(
    'name, larger', [('GRU', [list(range(9))]), ('Tree-LSTM', random_trees(2, largest=30))]
)
def test_parameters_in_packs_and_alone_in_one_evaluation(name, larger, packed, most_rows):
    """Some batches are large, those of the larger samples are small; gradients add up."""
    reader, cell, samples = CELLS[name]
    assert_matches_eager(
        started(reader(cell)),
        samples * most_rows + larger,
        schedulers=('depth', 'agenda'),
        hybridized=(False,),
    )
    assert packed


def test_what_pays():
    assert node_type.most_rows(64) >= 256 > node_type.most_rows(256)


# --- parameters stay the users' ------------------------------------------------------------------


def twins(cell=LSTM):
    """Two nets with equal parameters, one to run in scopes and one eagerly."""
    return started(Reader(cell)), started(Reader(cell))


def by_end(net):
    """Parameters by the ends of their names."""
    return {name[len(net.prefix) :]: parameter for name, parameter in net.collect_params().items()}


def assert_same(one, other, what=lambda parameter: parameter.data()):
    others = by_end(other)
    for name, parameter in by_end(one).items():
        np.testing.assert_allclose(
            what(parameter).asnumpy(),
            what(others[name]).asnumpy(),
            rtol=2e-4,
            atol=1e-6,
            err_msg=name,
        )


def batched(net, samples):
    with edb.batching():
        results = [net(sample) for sample in samples]
    return mx.nd.concat(*results, dim=0)


def eager(net, samples):
    return mx.nd.concat(*[net(sample) for sample in samples], dim=0)


def gradients(net, run, samples):
    with autograd.record():
        loss = (run(net, samples) ** 2).sum()
    loss.backward()
    return loss


SAMPLES = sentences(5)


def assert_both_train(one, other):
    """Two steps of a batched and of an eager net give the same parameters."""
    trainers = [
        gluon.Trainer(net.collect_params(), 'adam', {'learning_rate': 0.1}) for net in (one, other)
    ]
    for _ in range(2):
        for net, run, trainer in zip((one, other), (batched, eager), trainers):
            gradients(net, run, SAMPLES)
            trainer.step(len(SAMPLES))
    assert_same(one, other)


def test_trainer(packed):
    assert_both_train(*twins())
    assert packed


def test_load_after_compiling_takes_effect(tmp_path, packed):
    net, other = twins()
    batched(net, SAMPLES).wait_to_read()
    other.initialize(mx.init.Uniform(0.3), force_reinit=True)
    other.save_parameters(str(tmp_path / 'other'))
    net.load_parameters(str(tmp_path / 'other'))
    np.testing.assert_allclose(
        batched(net, SAMPLES).asnumpy(), eager(other, SAMPLES).asnumpy(), rtol=1e-5, atol=1e-6
    )
    net.save_parameters(str(tmp_path / 'net'))
    saved = [mx.nd.load(str(tmp_path / name)) for name in ('net', 'other')]
    assert saved[0].keys() == saved[1].keys()
    assert all((saved[0][name] == saved[1][name]).asnumpy().all() for name in saved[0])
    assert packed


def test_set_data_takes_effect():
    net, other = twins()
    batched(net, SAMPLES).wait_to_read()
    for each in (net, other):
        each.cell.xi.weight.set_data(mx.nd.ones((HIDDEN, EMBED)))
    np.testing.assert_allclose(
        batched(net, SAMPLES).asnumpy(), eager(other, SAMPLES).asnumpy(), rtol=1e-5, atol=1e-6
    )


def test_values_are_those_at_the_time_of_the_call():
    net, other = twins()
    expected = eager(other, SAMPLES).asnumpy()
    with edb.batching():
        results = [net(sample) for sample in SAMPLES]
        net.cell.xi.weight.set_data(mx.nd.ones((HIDDEN, EMBED)))
    np.testing.assert_allclose(
        mx.nd.concat(*results, dim=0).asnumpy(), expected, rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    'request_of',
    [
        lambda name: 'add',
        lambda name: 'null' if 'xi' in name else 'write',
        lambda name: 'null' if 'weight' in name else 'add',
        lambda name: 'null' if 'bias' in name else 'write',
        lambda name: 'write' if 'hu' in name else 'null',
    ],
    ids=['add', 'one null', 'weights null', 'biases null', 'all null but one'],
)
def test_gradient_requests(request_of):
    one, other = twins()
    for name, parameter in by_end(one).items():
        parameter.grad_req = request_of(name)
        # Eager MXNet computes no gradient for the bias of a product whose weight needs none.
        by_end(other)[name].grad_req = 'write' if request_of(name) == 'null' else request_of(name)
    for net, run in ((one, batched), (other, eager)):
        for _ in range(2):
            gradients(net, run, SAMPLES)
    for name, parameter in by_end(one).items():
        if parameter.grad_req != 'null':
            np.testing.assert_allclose(
                parameter.grad().asnumpy(),
                by_end(other)[name].grad().asnumpy(),
                rtol=2e-4,
                atol=1e-6,
            )


def test_gradient_request_changed_after_compiling():
    one, other = twins()
    for request in ('write', 'null', 'add'):
        for net, run in ((one, batched), (other, eager)):
            net.cell.xi.weight.grad_req = request
            gradients(net, run, SAMPLES)
    assert_same(one, other, lambda parameter: parameter.grad())


def test_zero_grad():
    nets = twins()
    for net, run in zip(nets, (batched, eager)):
        net.collect_params().setattr('grad_req', 'add')
        gradients(net, run, SAMPLES)
        net.collect_params().zero_grad()
        assert all(
            (parameter.grad() == 0).asnumpy().all() for parameter in net.collect_params().values()
        )
        gradients(net, run, SAMPLES[:2])
    assert_same(*nets, lambda parameter: parameter.grad())


def cell_gradients(net, scope, dtype):
    """h after one step, under `scope`; gradients are in the parameters."""
    x, state = (mx.nd.ones((2, size), dtype=dtype) for size in (EMBED, HIDDEN))
    with autograd.record():
        with scope():
            h, _ = net.cell(x, state, state)
        loss = (h * h).sum()
    loss.backward()
    return h.asnumpy()


@pytest.mark.parametrize(
    'change, dtype',
    [
        (lambda net: net.cell.cast('float64'), 'float64'),
        (lambda net: net.collect_params().reset_ctx(mx.cpu(0)), 'float32'),
    ],
    ids=['cast', 'reset_ctx'],
)
def test_arrays_replaced_after_compiling(change, dtype, packed):
    one, other = twins()
    cell_gradients(one, edb.batching, 'float32')
    for net in (one, other):
        change(net)
    np.testing.assert_allclose(
        cell_gradients(one, edb.batching, dtype),
        cell_gradients(other, contextlib.nullcontext, dtype),
        rtol=1e-5,
    )
    assert_same(one.cell, other.cell, lambda parameter: parameter.grad())
    assert packed


class Shared(edb.AutoBatchMixin, gluon.Block):
    """Two cells that share a part of their parameters: packs of one differ from the other's."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = nn.Embedding(VOCAB, EMBED)
            self.lstm = LSTM()
            self.gru = GRU()
            self.gru.xr = nn.Dense(HIDDEN, flatten=False, params=self.lstm.xi.params)
            self.gru.xn = nn.Dense(HIDDEN, flatten=False, params=self.lstm.xu.params)

    def forward(self, words):
        """(1, H)"""
        h = c = mx.nd.zeros((1, HIDDEN))
        for word in words:
            x = self.embed(word)
            h, c = self.lstm(x, h, c)
            h, c = self.gru(x, h, c)
        return h


def test_parameters_shared_between_blocks(packed):
    assert_matches_eager(started(Shared()), SAMPLES, schedulers=('depth',))
    shared = [names for names in packed if any(name.endswith('xi_weight') for name in names)]
    assert len({len(names) for names in shared}) == 2
