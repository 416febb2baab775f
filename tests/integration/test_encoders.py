"""Library encoders and attention cells on whole sentences: those of one length are one batch."""

import mxnet as mx
import numpy as np
import pytest
from gluonnlp.model import attention_cell
from gluonnlp.model.bert import BERTEncoder
from gluonnlp.model.transformer import TransformerEncoder
from mxnet import gluon

import gluon_edbatch as edb
from gluon_edbatch.testing import assert_matches_eager

UNITS, HEADS = 8, 2
LENGTHS = (3, 4, 3, 3, 4, 1)


def encoder(kind):
    cls = {'transformer': TransformerEncoder, 'bert': BERTEncoder}[kind]
    net = cls(units=UNITS, hidden_size=12, num_layers=2, num_heads=HEADS, max_length=9, dropout=0.0)
    net.initialize(mx.init.Normal(0.3))
    return net


def sentences(axis, lengths=LENGTHS, seed=0):
    """Arrays (1, length, UNITS) with gradients; the length on another axis if asked."""
    draw = np.random.RandomState(seed)
    arrays = [
        mx.nd.array(np.moveaxis(draw.normal(size=(1, length, UNITS)), 1, axis))
        for length in lengths
    ]
    for array in arrays:
        array.attach_grad()
    return arrays


def batches_of(scope, name):
    return sum(entry.batches for entry in scope.report().types if entry.name.startswith(name))


@pytest.mark.parametrize('valid', ['no lengths', 'lengths', 'shorter lengths'])
@pytest.mark.parametrize('kind, axis', [('transformer', 1), ('bert', 0)])
def test_encoders_batch_by_length(kind, axis, valid):
    net = encoder(kind)
    shorter = {'no lengths': None, 'lengths': 0, 'shorter lengths': 1}[valid]

    def model(x):
        lengths = None
        if shorter is not None:
            lengths = mx.nd.array([max(1, x.shape[axis] - shorter)])
        return net(x, valid_length=lengths)[0]

    samples = sentences(axis)
    # Attention of BERT's exists in single precision only, where the gradient of the keys' bias,
    # which is zero, is what rounding leaves.
    assert_matches_eager(model, samples, blocks=[net], schedulers=['fsm'], atol=1e-5)
    with edb.batching() as scope:
        values = [model(x) for x in samples]
    edb.forward(values)
    assert batches_of(scope, type(net).__name__) == len(set(LENGTHS))


CELLS = {
    'additive': lambda: attention_cell.MLPAttentionCell(UNITS),
    'dot': lambda: attention_cell.DotProductAttentionCell(scaled=True),
    'heads': lambda: attention_cell.MultiHeadAttentionCell(
        attention_cell.DotProductAttentionCell(scaled=True), UNITS, UNITS, UNITS, HEADS
    ),
}


@pytest.mark.parametrize('masked', [False, True])
@pytest.mark.parametrize('name', CELLS)
def test_attention_cells_batch_by_length(name, masked):
    cell = CELLS[name]()
    cell.initialize(mx.init.Normal(0.3))

    def model(sample):
        query, memory = sample
        mask = None
        if masked:
            mask = mx.nd.array(np.arange(memory.shape[1]) < 2).reshape((1, 1, -1))
        return cell(query, memory, memory, mask)

    samples = list(zip(sentences(1, [1] * len(LENGTHS), seed=1), sentences(1)))
    assert_matches_eager(model, samples, blocks=[cell], schedulers=['fsm'])
    with edb.batching() as scope:
        values = [model(sample)[0] for sample in samples]
    edb.forward(values)
    assert batches_of(scope, type(cell).__name__) == len(set(LENGTHS))


class Positions(gluon.HybridBlock):
    """Adds to each element how far it is along an axis."""

    def __init__(self, axis):
        super().__init__()
        self.axis = axis

    def hybrid_forward(self, F, x):
        steps = F.contrib.arange_like(x, axis=self.axis, start=1)
        return F.broadcast_add(x, F.reshape(steps, shape=(-1, 1) if self.axis == 1 else (-1, 1, 1)))


@pytest.mark.parametrize('rows', [1, 2])
@pytest.mark.parametrize('axis', [0, 1])
def test_positions_along_an_axis(axis, rows):
    net = Positions(axis)
    samples = [mx.nd.random.normal(shape=(rows, 3, 2)) for _ in range(4)]
    assert_matches_eager(net, samples)
    with edb.batching() as scope:
        values = [net(x) for x in samples]
    edb.forward(values)
    assert batches_of(scope, 'Positions') == 1


def test_positions_of_all_elements():
    class All(gluon.HybridBlock):
        def hybrid_forward(self, F, x):
            return x + F.contrib.arange_like(x)

    assert_matches_eager(All(), [mx.nd.random.normal(shape=(2, 3)) for _ in range(4)])
