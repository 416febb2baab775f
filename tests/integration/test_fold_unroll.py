"""fold_unroll against ``cell.unroll``, for every cell of Gluon."""

from itertools import product

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import rnn

import gluon_edbatch as edb
from tests.support.cases import in_one_test
from tests.support.models import started
from tests.support.tiers import in_turn, turns

INPUT, HIDDEN = 3, 4


def sequential(kind=rnn.SequentialRNNCell):
    cell = kind()
    for inner in (rnn.LSTMCell(HIDDEN), rnn.DropoutCell(0.3), rnn.GRUCell(HIDDEN)):
        cell.add(inner)
    return cell


CELLS = {
    'rnn': lambda: rnn.RNNCell(HIDDEN),
    'lstm': lambda: rnn.LSTMCell(HIDDEN),
    'gru': lambda: rnn.GRUCell(HIDDEN, input_size=INPUT),
    'sequential': sequential,
    'hybrid sequential': lambda: sequential(rnn.HybridSequentialRNNCell),
    'dropout': lambda: rnn.DropoutCell(0.3),
    'zoneout': lambda: rnn.ZoneoutCell(rnn.LSTMCell(HIDDEN), 0.3, 0.2),
    'residual': lambda: rnn.ResidualCell(rnn.GRUCell(INPUT)),
    'bidirectional': lambda: rnn.BidirectionalCell(rnn.LSTMCell(HIDDEN), rnn.GRUCell(HIDDEN)),
    'nested': lambda: rnn.BidirectionalCell(
        rnn.ResidualCell(rnn.RNNCell(INPUT)), rnn.ZoneoutCell(rnn.GRUCell(HIDDEN), 0.5, 0.5)
    ),
}
LENGTHS = [3, 1, 4, 3]


def samples(rows, layout):
    shape = {
        'NTC': lambda length: (rows, length, INPUT),
        'TNC': lambda length: (length, rows, INPUT),
    }[layout]
    made = [mx.nd.random.uniform(-1, 1, shape(length)) for length in LENGTHS]
    for x in made:
        x.attach_grad()
    return made


def as_list(value):
    return list(value) if isinstance(value, (list, tuple)) else [value]


def eager(cell, xs, valid, layout, merge):
    """Outputs and states of each sample, one after the other."""
    results = []
    for x, lengths in zip(xs, valid):
        outputs, states = cell.unroll(
            x.shape[layout.index('T')], x, layout=layout, merge_outputs=merge, valid_length=lengths
        )
        results += as_list(outputs) + states
    return results


def folded(cell, xs, valid, layout, merge, fold):
    results = []
    for x, lengths in zip(xs, valid):
        outputs, states = edb.fold_unroll(
            cell,
            fold,
            x.shape[layout.index('T')],
            x,
            layout=layout,
            merge_outputs=merge,
            valid_length=lengths,
        )
        assert isinstance(outputs, list) is not merge and isinstance(states, list)
        results += as_list(outputs) + states
    return fold([[result] for result in results])


def total_of(results):
    return mx.nd.add_n(*[(result * (i + 1)).sum() for i, result in enumerate(results)])


def gradients(total, cell, xs):
    total.backward()
    return [x.grad.asnumpy().copy() for x in xs] + [
        parameter.grad().asnumpy().copy() for parameter in cell.collect_params().values()
    ]


SHAPES = [(1, 'NTC', False), (1, 'TNC', True), (3, 'NTC', True), (3, 'TNC', False)]


@pytest.mark.parametrize('turn', turns(SHAPES))
@in_one_test('number, case', enumerate(product(CELLS, [False, True])))
def test_it_is_unroll(number, case, turn):
    (name, valid), ((rows, layout, merge),) = case, in_turn(number, turn, SHAPES)
    cell, xs = started(CELLS[name]()), samples(rows, layout)
    valid = [
        mx.nd.array(np.random.randint(1, length + 1, rows)) if valid else None for length in LENGTHS
    ]
    with autograd.record(train_mode=False):
        expected = eager(cell, xs, valid, layout, merge)
        total = total_of(expected)
    expected_gradients = gradients(total, cell, xs)
    for fold in (edb.Fold(), edb.Unfold()):
        with autograd.record(train_mode=False):
            found = folded(cell, xs, valid, layout, merge, fold)
            total = total_of(found)
        assert len(found) == len(expected)
        for array, right in zip(found, expected):
            np.testing.assert_allclose(array.asnumpy(), right.asnumpy(), rtol=1e-4, atol=1e-6)
        for array, right in zip(gradients(total, cell, xs), expected_gradients):
            np.testing.assert_allclose(array, right, rtol=1e-3, atol=1e-5)


@in_one_test('name', CELLS)
def test_samples_are_batched(name):
    cell, fold = started(CELLS[name]()), edb.Fold()
    folded(cell, samples(1, 'NTC'), [None] * 4, 'NTC', False, fold)
    report = fold.scope.report()
    assert not any(kind.note for kind in report.types)
    assert report.batches < report.nodes / 2 or name == 'dropout'


def test_inputs_that_are_computed():
    cell, fold = started(rnn.LSTMCell(HIDDEN)), edb.Fold()
    embed = started(gluon.nn.Embedding(7, INPUT))
    words = [[1, 2, 3], [4], [5, 6]]
    found, begin = [], None
    for sentence in words:
        inputs = [fold.record(0, embed, mx.nd.array([word])) for word in sentence]
        outputs, begin = edb.fold_unroll(cell, fold, len(sentence), inputs, begin_state=begin)
        found.append(outputs[-1])
    whole = fold.record(0, embed, mx.nd.array([1, 2, 3])).expand_dims(0)
    merged, _ = edb.fold_unroll(cell, fold, 3, whole, merge_outputs=True)
    rows, merged = fold([found, [merged]])
    state, expected = None, []
    for sentence in words:
        outputs, state = cell.unroll(len(sentence), embed(mx.nd.array([sentence])), state)
        expected.append(outputs[-1])
    np.testing.assert_allclose(rows.asnumpy(), mx.nd.concat(*expected, dim=0).asnumpy(), rtol=1e-4)
    assert merged.shape == (1, 3, HIDDEN)
    np.testing.assert_allclose(merged[0, 2].asnumpy(), rows[0].asnumpy(), rtol=1e-4)


def test_merged_outputs_have_the_batch_axis_of_their_layout():
    cell, fold = started(rnn.GRUCell(HIDDEN)), edb.Fold()
    outputs = [
        edb.fold_unroll(
            cell, fold, 2, mx.nd.ones((2, rows, INPUT)), layout='TNC', merge_outputs=True
        )[0]
        for rows in (1, 3)
    ]
    assert fold([outputs])[0].shape == (2, 4, HIDDEN)


def test_dropout_in_training():
    cell, fold = started(rnn.DropoutCell(0.5)), edb.Fold()
    outputs, states = edb.fold_unroll(cell, fold, 2, mx.nd.ones((1, 2, 400)))
    with autograd.record():
        (found,) = fold([outputs])
    assert states == [] and 0.3 < (found.asnumpy() == 0).mean() < 0.7


def test_wrong_calls():
    cell, fold = rnn.LSTMCell(HIDDEN), edb.Fold()
    with pytest.raises(TypeError, match='takes a recurrent cell'):
        edb.fold_unroll(gluon.nn.Dense(3), fold, 2, mx.nd.ones((1, 2, 3)))
    with pytest.raises(ValueError, match="'NTC' or 'TNC'"):
        edb.fold_unroll(cell, fold, 2, mx.nd.ones((1, 2, 3)), layout='CNT')
    with pytest.raises(edb.RecordError, match='NTC, for 3 steps'):
        edb.fold_unroll(cell, fold, 3, mx.nd.ones((1, 2, 3)))
    with pytest.raises(edb.RecordError, match='1 inputs for 2 steps'):
        edb.fold_unroll(cell, fold, 2, [mx.nd.ones((1, 3))])
    assert len(fold) == 0
