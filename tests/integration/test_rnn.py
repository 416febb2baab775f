"""edb.rnn cells against their equations in NumPy, and gluon.rnn's cells unrolled in a scope."""

import mxnet as mx
import numpy as np
import pytest
from mxnet import gluon

import gluon_edbatch as edb
from gluon_edbatch.testing import assert_matches_eager
from tests.support.models import (
    EMBED,
    HIDDEN,
    MVRNN,
    BinaryTreeLSTM,
    TreeGRU,
    TreeLSTM,
    binary_trees,
    ndarrays,
    random_trees,
    started,
)


def sigmoid(x):
    """1 / (1 + exp(-x))"""
    return 1 / (1 + np.exp(-x))


def values(block):
    """Parameters by the ends of their names."""
    return {
        name[len(block.prefix) :]: parameter.data().asnumpy()
        for name, parameter in block.collect_params().items()
    }


def child_sum(cell, x, children):
    """Compute a child-sum Tree-LSTM (Tai et al., eq. 2-8)."""
    p = values(cell)
    total = sum([h for h, _ in children], np.zeros((1, HIDDEN)))

    def gate(name, state):
        return (
            x @ p[f'i2h_{name}_weight'].T
            + p[f'i2h_{name}_bias']
            + state @ p[f'h2h_{name}_weight'].T
        )

    c = sigmoid(gate('i', total)) * np.tanh(gate('u', total))
    for child_h, child_c in children:
        c = c + sigmoid(gate('f', child_h)) * child_c
    return sigmoid(gate('o', total)) * np.tanh(c), c


def nary(cell, x, children):
    """Compute an N-ary Tree-LSTM (Tai et al., eq. 9-14)."""
    p, size = values(cell), HIDDEN
    total = p['i2h_bias'] + (0 if x is None else x @ p['i2h_weight'].T)
    if children:
        total = total + np.concatenate([h for h, _ in children], 1) @ p['h2h_weight'].T
    total = np.broadcast_to(total, (1, 5 * size))
    i, o, u, *forget = np.split(total, 5, axis=1)
    c = sigmoid(i) * np.tanh(u)
    for f, (_, child_c) in zip(forget, children):
        c = c + sigmoid(f) * child_c
    return sigmoid(o) * np.tanh(c), c


def tree_gru(cell, x, children):
    """Compute a Tree-GRU by the formulas in the class's documentation."""
    p = values(cell)
    own = p['i2h_bias'] + (np.zeros((1, 1)) if x is None else x @ p['i2h_weight'].T)
    own_z, own_n, own_r = np.split(own, 3, axis=1)
    total = sum(children, np.zeros((1, HIDDEN)))
    z = sigmoid(own_z + total @ p['h2h_z_weight'].T)
    kept = sum(
        [sigmoid(own_r + h @ p['h2h_r_weight'].T) * h for h in children], np.zeros((1, HIDDEN))
    )
    n = np.tanh(own_n + kept @ p['h2h_n_weight'].T)
    return (1 - z) * n + z * total


def mv_rnn(cell, left, right):
    """Socher et al., eq. 2 and 3, with column vectors as there."""
    p = values(cell)
    (a, A), (b, B) = ((vector.T, matrix[0].T) for vector, matrix in (left, right))
    vector = np.tanh(
        p['vector_weight'] @ np.concatenate([B @ a, A @ b]) + p['vector_bias'][:, None]
    )
    return vector.T, (p['matrix_weight'] @ np.concatenate([A, B])).T[None]


def by_formula(net, cell, tree):
    """State of a node by its equations."""
    children = [by_formula(net, cell, child) for child in tree.children]
    word = net.embed.weight.data().asnumpy()[[tree.token]]
    if getattr(net, 'words_inside', True) is False and children:
        word = None
    return cell(net.cell, word, children)


def random_biases(net):
    """Biases start as zeros, which would hide mistakes."""
    for name, parameter in net.collect_params().items():
        if name.endswith('bias'):
            parameter.set_data(mx.nd.random.uniform(-1, 1, parameter.shape, dtype=parameter.dtype))
    return net


@pytest.mark.parametrize('scheduler', ['agenda', 'depth', 'unbatched', None])
@pytest.mark.parametrize(
    'make, formula, trees',
    [
        (TreeLSTM, child_sum, random_trees(8)),
        (BinaryTreeLSTM, nary, binary_trees(8)),
        (lambda: BinaryTreeLSTM(words_inside=False), nary, binary_trees(8)),
        (TreeGRU, tree_gru, random_trees(8)),
        (lambda: TreeGRU(words_inside=False), tree_gru, random_trees(8)),
    ],
    ids=['child-sum', 'binary', 'binary, words at leaves', 'GRU', 'GRU, words at leaves'],
)
def test_cell_follows_its_equations(make, formula, trees, scheduler):
    net = random_biases(started(make(), dtype='float64'))
    run = net.encode if isinstance(net, TreeLSTM) else net
    if scheduler is None:
        if isinstance(net, TreeLSTM):
            found = [net(tree) for tree in trees]
        else:
            found = [run(tree) for tree in trees]
    else:
        with edb.batching(scheduler):
            found = [net(tree) if isinstance(net, TreeLSTM) else run(tree) for tree in trees]
        found = edb.forward(found)
    for value, tree in zip(found, trees):
        expected = by_formula(net, formula, tree)
        if isinstance(net, TreeLSTM):
            p = values(net.score)
            expected = expected[0] @ p['weight'].T + p['bias']
        value = value if isinstance(value, (list, tuple)) else [value]
        expected = expected if isinstance(expected, tuple) else [expected]
        for one, other in zip(value, expected):
            np.testing.assert_allclose(one.asnumpy(), other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize('make', [TreeLSTM, BinaryTreeLSTM, TreeGRU])
def test_input_size_found_at_the_first_call(make):
    class Deferred(make):
        """A model whose cell infers its input size later."""

        def __init__(self):
            super().__init__()
            with self.name_scope():
                self.cell = type(self.cell)(HIDDEN)

    net = started(Deferred())
    trees = binary_trees(3)
    with edb.batching():
        values_ = [net(tree) for tree in trees]
    edb.forward(values_)
    widths = {
        parameter.shape[1]
        for name, parameter in net.cell.collect_params().items()
        if 'i2h' in name and name.endswith('weight')
    }
    assert widths == {EMBED}
    assert_matches_eager(net, trees)


def test_nary_refuses_other_numbers_of_children():
    cell = started(edb.rnn.NaryTreeLSTMCell(HIDDEN, input_size=EMBED))
    x, state = mx.nd.ones((1, EMBED)), (mx.nd.ones((1, HIDDEN)),) * 2
    with pytest.raises(ValueError, match='takes 2 children or none, not 1'):
        cell(x, [state])
    with pytest.raises(ValueError, match='needs an input or children'):
        cell(None, [])


@pytest.mark.parametrize('hybridize', [False, True])
def test_any_number_of_children_eagerly(hybridize):
    cell = started(edb.rnn.ChildSumTreeLSTMCell(HIDDEN, input_size=EMBED))
    binary = started(edb.rnn.NaryTreeLSTMCell(HIDDEN, input_size=EMBED))
    if hybridize:
        cell.hybridize()
        binary.hybridize()
    x = mx.nd.ones((1, EMBED))
    states = []
    for count in (0, 1, 3, 0, 2):
        states.append(cell(x, states[:count]))
        expected = child_sum(
            cell,
            x.asnumpy(),
            [tuple(part.asnumpy() for part in state) for state in states[:-1][:count]],
        )
        np.testing.assert_allclose(states[-1][0].asnumpy(), expected[0], rtol=1e-5)
    leaf = binary(x, [])
    inner = binary(x, [leaf, leaf])
    without = binary(None, [leaf, inner])
    expected = nary(binary, None, [[part.asnumpy() for part in state] for state in (leaf, inner)])
    np.testing.assert_allclose(without[0].asnumpy(), expected[0], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize('hybridize', [False, True])
def test_gru_without_input_eagerly(hybridize):
    cell = random_biases(started(edb.rnn.TreeGRUCell(HIDDEN, input_size=EMBED)))
    cell.hybridize(hybridize)
    leaf = cell(mx.nd.ones((1, EMBED)), [])
    expected = tree_gru(cell, None, [leaf.asnumpy()] * 2)
    np.testing.assert_allclose(cell(None, [leaf, leaf]).asnumpy(), expected, rtol=1e-5, atol=1e-7)
    with pytest.raises(ValueError, match='needs an input or children'):
        cell(None, [])


def test_matrix_vector_cell_follows_its_equations():
    net = random_biases(started(MVRNN(), dtype='float64'))
    trees = binary_trees(8)

    def state(tree):
        if tree.children:
            return mv_rnn(net.cell, *map(state, tree.children))
        return [part.asnumpy() for part in net(tree)]

    with edb.batching() as scope:
        found = [net(tree) for tree in trees]
    for ours, tree in zip(edb.forward(found), trees):
        for one, other in zip(ours, state(tree)):
            np.testing.assert_allclose(one.asnumpy(), other, rtol=1e-10, atol=1e-12)
    (kind,) = [kind for kind in scope.report().types if 'MVRNNCell' in kind.name]
    assert kind.batches == max(tree.depth() for tree in trees) - 1 < kind.calls
    assert_matches_eager(started(MVRNN()), trees)


@pytest.mark.parametrize('hybridize', [False, True])
@pytest.mark.parametrize(
    'make, formula, pairs',
    [(edb.rnn.NaryTreeLSTMCell, nary, True), (edb.rnn.TreeGRUCell, tree_gru, False)],
)
def test_cells_of_inner_nodes(make, formula, pairs, hybridize):
    cell = random_biases(started(make(HIDDEN, input_size=None)))
    assert [name for name in values(cell) if 'i2h' in name] == ['i2h_bias']
    cell.hybridize(hybridize)
    children = [ndarrays(2, (1, HIDDEN), seed) for seed in (1, 2)]
    children = children if pairs else [h for h, _ in children]
    with edb.batching():
        lazy = cell(None, children)
    expected = formula(
        cell,
        None,
        [[part.asnumpy() for part in child] if pairs else child.asnumpy() for child in children],
    )
    for found in (cell(None, children), lazy):
        for one, other in zip(found if pairs else [found], expected if pairs else [expected]):
            np.testing.assert_allclose(one.asnumpy(), other, rtol=1e-5, atol=1e-7)
    with pytest.raises(ValueError, match='made without input'):
        cell(mx.nd.ones((1, EMBED)), children)


CELLS = {'LSTM': gluon.rnn.LSTMCell, 'GRU': gluon.rnn.GRUCell, 'RNN': gluon.rnn.RNNCell}


@pytest.mark.parametrize('name', CELLS)
@pytest.mark.parametrize('merge', [True, False])
def test_unroll_in_the_scope(name, merge):
    cell = started(CELLS[name](HIDDEN, input_size=EMBED))

    def model(x):
        cell.reset()
        return cell.unroll(x.shape[1], x, layout='NTC', merge_outputs=merge)

    samples = [
        mx.nd.array(np.random.RandomState(i).randn(1, length, EMBED))
        for i, length in enumerate((3, 1, 4, 3))
    ]
    for sample in samples:
        sample.attach_grad()
    assert_matches_eager(model, samples, blocks=[cell])


def test_unrolled_samples_batch():
    cell = started(gluon.rnn.LSTMCell(HIDDEN, input_size=EMBED))
    lengths = (3, 5, 4)
    with edb.batching() as scope:
        results = []
        for length in lengths:
            inputs = [edb.nd.identity(x) for x in ndarrays(length, (1, EMBED))]
            results.append(cell.unroll(length, inputs, merge_outputs=False)[0][-1])
    edb.forward(results)
    (kind,) = [kind for kind in scope.report().types if 'LSTMCell' in kind.name]
    assert (kind.calls, kind.batches) == (sum(lengths), max(lengths))


def test_sequential_and_bidirectional_cells():
    stack = gluon.rnn.SequentialRNNCell()
    stack.add(gluon.rnn.LSTMCell(HIDDEN, input_size=EMBED))
    stack.add(gluon.rnn.GRUCell(HIDDEN, input_size=HIDDEN))
    started(stack)

    def model(x):
        return stack.unroll(x.shape[1], x, layout='NTC', merge_outputs=True)

    assert_matches_eager(model, ndarrays(3, (1, 4, EMBED)), blocks=[stack])
    both = started(
        gluon.rnn.BidirectionalCell(
            gluon.rnn.LSTMCell(HIDDEN, input_size=EMBED),
            gluon.rnn.LSTMCell(HIDDEN, input_size=EMBED),
        )
    )
    assert_matches_eager(
        lambda x: both.unroll(x.shape[1], x, layout='NTC', merge_outputs=False),
        ndarrays(3, (1, 4, EMBED)),
        blocks=[both],
        hybridized=[False],
    )


@pytest.mark.parametrize('make', [edb.rnn.ChildSumTreeLSTMCell, edb.rnn.TreeGRUCell])
def test_leaf_from_a_numpy_array(make):
    """The first call of all has no children to tell dtype and context."""
    cell = started(make(HIDDEN, 3))
    x = np.arange(3, dtype=np.float64)[None]
    with edb.batching():
        values = [cell(x, []), cell(x + 1, [])]
    for value, array in zip(edb.forward(values), (x, x + 1)):
        expected = cell(mx.nd.array(array), [])
        for found, wanted in zip(
            *[each if isinstance(each, tuple) else (each,) for each in (value, expected)]
        ):
            np.testing.assert_allclose(found.asnumpy(), wanted.asnumpy(), rtol=1e-5)
