"""Which operators batch: every rule, right or wrong, against rows that were run alone."""

import random

import mxnet as mx
import numpy as np
import pytest
from mxnet import autograd, gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.mx.symbols import registered
from gluon_edbatch.ops import OPS
from gluon_edbatch.subgraph.ir import Subgraph
from gluon_edbatch.subgraph.rowwise import Verdict, analyse
from gluon_edbatch.testing import assert_matches_eager
from tests.support.cases import in_one_test
from tests.support.models import started

S = mx.sym
PROVED, DEPENDENT = Verdict.PROVED, Verdict.DEPENDENT
# name: (function of Symbols, shapes of a row of each, verdict)
X, XY, IMAGE, CUBE = [(4,)], [(4,), (4,)], [(2, 6, 6)], [(3, 4)]
CASES = {
    # --- along other axes than 0
    'softmax': (lambda x: S.softmax(x), X, PROVED),
    'softmax -1': (lambda x: S.softmax(x, axis=-1), CUBE, PROVED),
    'softmax 0': (lambda x: S.softmax(x, axis=0), X, DEPENDENT),
    'softmax -2': (lambda x: S.softmax(x, axis=-2), X, DEPENDENT),
    'log_softmax 0': (lambda x: S.log_softmax(x, axis=0), X, DEPENDENT),
    'softmax of scalars': (lambda x: S.softmax(x), [()], DEPENDENT),
    'sum 1': (lambda x: S.sum(x, axis=1), X, PROVED),
    'sum all': (lambda x: S.sum(x), X, DEPENDENT),
    'sum 0': (lambda x: S.sum(x, axis=0), X, DEPENDENT),
    'sum -2': (lambda x: S.sum(x, axis=-2), X, DEPENDENT),
    'sum exclude 0': (lambda x: S.sum(x, axis=0, exclude=True), CUBE, PROVED),
    'sum exclude 1': (lambda x: S.sum(x, axis=1, exclude=True), CUBE, DEPENDENT),
    'mean keep': (lambda x: S.broadcast_sub(x, S.mean(x, axis=1, keepdims=True)), X, PROVED),
    'mean 0 keep': (lambda x: S.broadcast_sub(x, S.mean(x, axis=0, keepdims=True)), X, DEPENDENT),
    'max 0': (lambda x: S.broadcast_div(x, S.max(x, axis=0, keepdims=True)), X, DEPENDENT),
    'norm': (lambda x: S.norm(x, axis=1), X, PROVED),
    'norm all': (lambda x: S.norm(x), X, DEPENDENT),
    'argmax 1': (lambda x: S.argmax(x, axis=1), X, PROVED),
    'argmax 0': (lambda x: S.argmax(x, axis=0), X, DEPENDENT),
    'argmax all': (lambda x: S.argmax(x), X, DEPENDENT),
    'sort': (lambda x: S.sort(x), X, PROVED),
    'sort 0': (lambda x: S.sort(x, axis=0), X, DEPENDENT),
    'topk': (lambda x: S.topk(x, k=2, ret_typ='value'), X, PROVED),
    'topk 0': (lambda x: S.topk(x, k=2, axis=0, ret_typ='value'), X, DEPENDENT),
    'argsort 0': (lambda x: S.argsort(x, axis=0), X, DEPENDENT),
    'batch_take': (lambda x: S.batch_take(x, S.argmax(x, axis=1)), X, DEPENDENT),
    # --- shapes
    'reshape 0': (lambda x: S.reshape(x, shape=(0, 2, 2)), X, PROVED),
    'reshape -1': (lambda x: S.reshape(x, shape=(-1, 2, 2)), X, PROVED),
    'reshape rows': (lambda x: S.reshape(x, shape=(-1, 2)), X, PROVED),
    'reshape names batch': (lambda x: S.reshape(x, shape=(1, 4)), X, DEPENDENT),
    'reshape names batch inside': (lambda x: S.reshape(x, shape=(2, 2, -1)), X, DEPENDENT),
    'reshape away': (lambda x: S.reshape(x, shape=(-1,)), X, PROVED),
    'reshape merges': (lambda x: S.reshape(x, shape=(4, -1)), X, DEPENDENT),
    'reshape then mix': (lambda x: S.softmax(S.reshape(x, shape=(-1, 2)), axis=0), X, DEPENDENT),
    'transpose': (lambda x: S.transpose(x), X, DEPENDENT),
    'transpose 0': (lambda x: S.transpose(x, axes=(0, 2, 1)), CUBE, PROVED),
    'transpose away': (lambda x: S.transpose(x, axes=(1, 0, 2)), CUBE, DEPENDENT),
    'transpose and back': (lambda x: S.transpose(S.transpose(x)), X, PROVED),
    'swapaxes': (lambda x: S.SwapAxis(x, dim1=1, dim2=2), CUBE, PROVED),
    'swapaxes 0': (lambda x: S.SwapAxis(x, dim1=0, dim2=1), CUBE, DEPENDENT),
    'swapaxes default': (lambda x: S.SwapAxis(x), X, PROVED),
    'expand': (lambda x: S.expand_dims(x, axis=1), X, PROVED),
    'expand 0': (lambda x: S.expand_dims(x, axis=0), X, DEPENDENT),
    'expand -3': (lambda x: S.expand_dims(x, axis=-3), X, DEPENDENT),
    'squeeze': (lambda x: S.squeeze(x, axis=1), [(1, 4)], PROVED),
    'squeeze without axes': (lambda x: S.squeeze(x), [(1, 4)], DEPENDENT),
    'flatten': (lambda x: S.flatten(x), CUBE, PROVED),
    'flip': (lambda x: S.reverse(x, axis=1), X, PROVED),
    'flip 0': (lambda x: S.reverse(x, axis=0), X, DEPENDENT),
    'tile': (lambda x: S.tile(x, reps=(1, 2)), X, PROVED),
    'tile 0': (lambda x: S.tile(x, reps=(2, 1)), X, DEPENDENT),
    'repeat 1': (lambda x: S.repeat(x, repeats=2, axis=1), X, PROVED),
    'repeat 0': (lambda x: S.repeat(x, repeats=2, axis=0), X, DEPENDENT),
    'expand and back': (lambda x: S.squeeze(S.expand_dims(x, axis=0), axis=0), X, PROVED),
    'rows as columns': (lambda x: S.reshape(S.expand_dims(x, axis=0), shape=(-1, 4)), X, PROVED),
    # --- slices
    'slice_axis': (lambda x: S.slice_axis(x, axis=1, begin=1, end=3), X, PROVED),
    'slice_axis 0': (lambda x: S.slice_axis(x, axis=0, begin=0, end=1), X, DEPENDENT),
    'slice': (lambda x: S.slice(x, begin=(None, 1), end=(None, 3)), X, PROVED),
    'slice rows': (lambda x: S.slice(x, begin=(0, 1), end=(1, 3)), X, DEPENDENT),
    'slice rows from 1': (lambda x: S.slice(x, begin=(1,), end=(None,)), X, DEPENDENT),
    'slice rows back': (lambda x: S.slice(x, begin=(None,), end=(None,), step=(-1,)), X, DEPENDENT),
    'split': (lambda x: S.split(x, num_outputs=2)[1], X, PROVED),
    'split 0': (lambda x: S.split(x, num_outputs=1, axis=0), X, DEPENDENT),
    'slice_like other': (lambda x, y: S.slice_like(x, y, axes=(1,)), [(4,), (3,)], PROVED),
    'slice_like of more': (
        lambda x, y: S.slice_like(S.reshape(x, shape=(-1, 2)), y, axes=(0,)),
        [(4,), (3,)],
        DEPENDENT,
    ),
    # --- several inputs
    'add': (lambda x, y: x + y, XY, PROVED),
    'broadcast': (lambda x, y: S.broadcast_add(x, y), [(4,), (1,)], PROVED),
    'broadcast misaligned': (lambda x, y: S.broadcast_add(x, y), [(7, 4), (4,)], DEPENDENT),
    'concat 1': (lambda x, y: S.concat(x, y, dim=1), XY, PROVED),
    'concat 0': (lambda x, y: S.concat(x, y, dim=0), XY, DEPENDENT),
    'concat -2': (lambda x, y: S.concat(x, y, dim=-2), XY, DEPENDENT),
    'stack 1': (lambda x, y: S.stack(x, y, axis=1), XY, PROVED),
    'stack 0': (lambda x, y: S.stack(x, y, axis=0), XY, DEPENDENT),
    'dot': (lambda x, y: S.dot(x, y, transpose_b=True), XY, DEPENDENT),
    'dot x x': (lambda x: S.dot(x, x, transpose_b=True), X, DEPENDENT),
    'dot transposed': (lambda x: S.dot(x, x, transpose_a=True), X, DEPENDENT),
    'attention over rows': (
        lambda x: S.dot(S.softmax(S.dot(x, x, transpose_b=True)), x),
        X,
        DEPENDENT,
    ),
    'batch_dot': (lambda x, y: S.batch_dot(x, y, transpose_b=True), [(3, 4), (2, 4)], PROVED),
    'where': (lambda x, y: S.where(x > 0, x, y), XY, PROVED),
    'pick': (lambda x, y: S.pick(x, y, axis=1), [(4,), ()], PROVED),
    'pick 0': (lambda x, y: S.pick(x, y, axis=0), [(4,), ()], DEPENDENT),
    'take constant': (lambda x: S.take(S.var('w', shape=(5, 3)), x), [()], PROVED),
    'take batched': (lambda x, y: S.take(x, y), [(4,), ()], DEPENDENT),
    'take along 1': (lambda x: S.take(x, S.var('w', shape=(2,)), axis=1), X, PROVED),
    'take along 0 of columns': (lambda x, y: S.take(x, y, axis=1), [(4,), ()], DEPENDENT),
    'take of the transposed': (
        lambda x: S.transpose(S.take(S.transpose(x), S.var('w', shape=(3,)))),
        X,
        PROVED,
    ),
    'embedding of batched': (
        lambda x, y: S.Embedding(y, x, input_dim=7, output_dim=4),
        [(4,), ()],
        DEPENDENT,
    ),
    'gather_nd': (lambda x, y: S.gather_nd(x, y), [(4,), ()], DEPENDENT),
    # --- layers
    'dense': (lambda x: S.FullyConnected(x, num_hidden=3, name='fc'), X, PROVED),
    'dense, weights batched': (
        lambda x, y: S.FullyConnected(x, y, no_bias=True, num_hidden=7),
        XY,
        DEPENDENT,
    ),
    'convolution': (
        lambda x: S.Convolution(x, kernel=(3, 3), num_filter=2, name='c'),
        IMAGE,
        PROVED,
    ),
    'pooling': (lambda x: S.Pooling(x, kernel=(2, 2), pool_type='max'), IMAGE, PROVED),
    'upsampling': (
        lambda x: S.UpSampling(x, x * 2, scale=2, sample_type='nearest', num_args=2),
        IMAGE,
        PROVED,
    ),
    'upsampling, rows as channels': (
        lambda x: S.SwapAxis(
            S.UpSampling(
                S.SwapAxis(x, dim1=0, dim2=1),
                S.SwapAxis(x * 2, dim1=0, dim2=1),
                scale=1,
                sample_type='nearest',
                num_args=2,
            ),
            dim1=0,
            dim2=1,
        ),
        IMAGE,
        DEPENDENT,
    ),
    'layer norm': (lambda x: S.LayerNorm(x, name='n'), X, PROVED),
    'layer norm 0': (
        lambda x: S.LayerNorm(x, axis=0, gamma=S.var('g', shape=(1,)), beta=S.var('b', shape=(1,))),
        X,
        DEPENDENT,
    ),
    'l2': (lambda x: S.L2Normalization(x), X, PROVED),
    'dropout': (lambda x: S.Dropout(x), X, PROVED),
    'dropout axes': (lambda x: S.Dropout(x, axes=(1,)), X, PROVED),
    'dropout one mask': (lambda x: S.Dropout(x, axes=(0,)), X, DEPENDENT),
    'sequence mask': (
        lambda x, y: S.SequenceMask(x, y, use_sequence_length=True, axis=1),
        [(4,), ()],
        PROVED,
    ),
    'sequence mask 0': (
        lambda x, y: S.SequenceMask(S.transpose(x), y, axis=0, use_sequence_length=True),
        [(4,), ()],
        DEPENDENT,
    ),
    'sequence reverse of time first': (
        lambda x, y: S.transpose(
            S.SequenceReverse(S.transpose(x, axes=(1, 0, 2)), y, use_sequence_length=True),
            axes=(1, 0, 2),
        ),
        [(3, 4), ()],
        PROVED,
    ),
    'sequence last 0': (lambda x: S.SequenceLast(x), CUBE, DEPENDENT),
    'sequence reverse 0': (lambda x: S.SequenceReverse(x), CUBE, DEPENDENT),
    'constant result': (lambda x: S.Group([x * 2, S.ones((1, 4))]), X, DEPENDENT),
    'position as value': (
        lambda x: x + S.broadcast_like(S.arange(7).reshape((7, 1)), x),
        X,
        DEPENDENT,
    ),
    'broadcast_to': (lambda x: S.broadcast_to(x, shape=(0, 4)), [(1,)], PROVED),
    'broadcast_to batch': (lambda x: S.broadcast_to(x, shape=(7, 4)), X, DEPENDENT),
    'batch norm, training': (lambda x: S.BatchNorm(x, name='n'), X, Verdict.STATISTICS),
    'zeros_like': (lambda x: x * 2 + S.zeros_like(x), X, PROVED),
}


def symbol_of(name):
    function, rows, verdict = CASES[name]
    names = [f'x{i}' for i in range(len(rows))]
    return function(*map(S.var, names)), dict(zip(names, rows)), verdict


@in_one_test('name', CASES)
def test_verdict(name):
    symbol, rows, verdict = symbol_of(name)
    found = analyse(Subgraph(symbol), rows, training=True)
    assert found.verdict is verdict, found.reason
    assert bool(found.reason) == (verdict is not PROVED)


def evaluate(symbol, inputs, others):
    args = {name: others.get(name, inputs.get(name)) for name in symbol.list_inputs()}
    executor = symbol.bind(
        mx.cpu(),
        {n: mx.nd.array(args[n]) for n in symbol.list_arguments()},
        aux_states={n: mx.nd.array(args[n]) for n in symbol.list_auxiliary_states()},
    )
    return [out.asnumpy() for out in executor.forward(is_train=False)]


@in_one_test('name', [name for name, case in CASES.items() if case[2] is PROVED])
@in_one_test('rows', [1, 5])
def test_proved_operators_are_row_by_row(name, rows):
    symbol, shapes, _ = symbol_of(name)
    result = analyse(Subgraph(symbol), shapes, training=False)
    generator = np.random.RandomState(3)
    inputs = {key: generator.uniform(0, 3, (rows,) + shape) for key, shape in shapes.items()}
    arguments, _, auxiliary = symbol.infer_shape(**{k: v.shape for k, v in inputs.items()})
    others = {
        key: generator.uniform(-1, 1, shape)
        for key, shape in zip(symbol.list_inputs(), list(arguments) + list(auxiliary))
        if key not in inputs
    }
    together = evaluate(symbol, inputs, others)
    for row in range(rows):
        alone = evaluate(symbol, {k: v[row : row + 1] for k, v in inputs.items()}, others)
        for one, all_rows, factor in zip(alone, together, result.factors):
            np.testing.assert_allclose(
                all_rows[row * factor : (row + 1) * factor], one, rtol=1e-4, atol=1e-6
            )


AXES = (-3, -2, -1, 0, 1, 2)
# Functions of a Symbol with three axes and of a generator of attributes.
MOVERS = {
    'softmax': lambda x, draw: S.softmax(x, axis=draw.choice(AXES)),
    'sum': lambda x, draw: S.sum(x, axis=draw.choice(AXES), keepdims=draw.random() < 0.7),
    'norm': lambda x, draw: S.broadcast_div(x, S.norm(x, axis=draw.choice(AXES), keepdims=True)),
    'sort': lambda x, draw: S.sort(x, axis=draw.choice(AXES)),
    'reshape': lambda x, draw: S.reshape(
        x, shape=draw.choice([(0, -1), (-3, 0), (0, -3), (1, -1), (0, -1, 2), (-1, 0, 0), (2, -1)])
    ),
    'transpose': lambda x, draw: S.transpose(x, axes=draw.sample(range(3), 3)),
    'expand_dims': lambda x, draw: S.expand_dims(x, axis=draw.choice(AXES)),
    'reverse': lambda x, draw: S.reverse(x, axis=draw.choice([0, 1, 2])),
    'tile': lambda x, draw: S.tile(x, reps=draw.choice([(1, 2), (2, 1, 1), (1, 2, 1)])),
    'repeat': lambda x, draw: S.repeat(x, repeats=2, axis=draw.choice(AXES)),
    'slice_axis': lambda x, draw: S.slice_axis(
        x, axis=draw.choice(AXES), begin=draw.choice([0, 1, -1]), end=None
    ),
    'split': lambda x, draw: S.split(x, num_outputs=1, axis=draw.choice([0, 1, 2])),
    'concat': lambda x, draw: S.concat(x, x * 2, dim=draw.choice(AXES)),
    'stack': lambda x, draw: S.stack(x, x * 2, axis=draw.choice(AXES)),
    'batch_dot': lambda x, draw: S.batch_dot(
        x, x, transpose_a=draw.random() < 0.5, transpose_b=draw.random() < 0.5
    ),
    'take': lambda x, draw: S.take(x, S.var('at', shape=(2,)), axis=draw.choice(AXES)),
    'pick': lambda x, draw: S.pick(x, S.argmax(x, axis=2), axis=2),
    'sequence mask': lambda x, draw: S.SequenceMask(
        x,
        S.max(S.ones_like(x) * 2, axis=draw.choice([(0, 2), (1, 2)])),
        use_sequence_length=True,
        axis=draw.choice([0, 1]),
    ),
    'sequence reverse': lambda x, draw: S.SequenceReverse(x),
    'dense': lambda x, draw: S.FullyConnected(
        x, num_hidden=3, flatten=draw.random() < 0.5, name='dense'
    ),
    'layer norm': lambda x, draw: S.LayerNorm(x, axis=draw.choice(AXES), name='norm'),
    'convolution': lambda x, draw: S.Convolution(x, kernel=(3,), pad=(1,), num_filter=2, name='c'),
    'pad': lambda x, draw: S.squeeze(
        S.pad(
            S.expand_dims(x, axis=1),
            mode='constant',
            constant_value=0,
            pad_width=draw.choice([(0, 0, 0, 0, 1, 1, 0, 0), (0, 0, 0, 0, 0, 0, 1, 2)]),
        ),
        axis=1,
    ),
}


def drawn(number):
    """A Symbol of ``x`` with three axes, which are moved before and after some operators."""
    draw = random.Random(number)
    x = S.transpose(S.var('x'), axes=draw.sample(range(3), 3))
    for name in draw.choices(list(MOVERS), k=draw.choice([1, 1, 2])):
        x = MOVERS[name](x, draw)
    return S.transpose(x, axes=draw.sample(range(3), 3))


def test_rows_that_are_moved():
    """What is proved of rows along any axis holds for each row alone."""
    proved = 0
    for number in range(1500):
        symbol = drawn(number)
        result = analyse(Subgraph(symbol), {'x': (3, 4)}, training=False)
        if result.verdict is not PROVED:
            continue
        proved += 1
        generator = np.random.RandomState(number)
        inputs = {'x': generator.uniform(0.1, 2, (5, 3, 4))}
        arguments, _, _ = symbol.infer_shape(x=(5, 3, 4))
        others = {
            key: generator.uniform(0, 2, shape)
            for key, shape in zip(symbol.list_arguments(), arguments)
            if key != 'x'
        }
        (together,), (factor,) = evaluate(symbol, inputs, others), result.factors
        for row in range(5):
            (alone,) = evaluate(symbol, {'x': inputs['x'][row : row + 1]}, others)
            own = together[row * factor : (row + 1) * factor]
            np.testing.assert_allclose(own, alone, rtol=1e-4, atol=1e-6, err_msg=symbol.tojson())
    assert proved > 100


def test_every_entry_is_an_operator_of_mxnet_by_the_name_that_graphs_have():
    assert set(OPS) <= registered()


class Fooling(gluon.HybridBlock):
    """A block that calls a function."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def hybrid_forward(self, F, *args):
        """Whatever."""
        return self.function(F, *args)


def samples(count=4, shape=(2, 4), seed=0):
    generator = np.random.RandomState(seed)
    made = [mx.nd.array(generator.uniform(0.1, 1, shape)) for _ in range(count)]
    for array in made:
        array.attach_grad()
    return made


ATTEMPTS = {
    'softmax 0': lambda F, x: F.softmax(x, axis=0),
    'mean 0': lambda F, x: F.mean(x, axis=0),
    'mean 0 keep': lambda F, x: F.broadcast_sub(x, F.mean(x, axis=0, keepdims=True)),
    'reshape': lambda F, x: F.softmax(F.reshape(x, shape=(4, 2)), axis=1),
    'reshape -1': lambda F, x: F.reshape(x, shape=(2, 2, -1)),
    'transpose': lambda F, x: F.transpose(x),
    'transpose twice': lambda F, x: F.transpose(F.softmax(F.transpose(x))),
    'dot x x': lambda F, x: F.dot(x, x, transpose_b=True),
    'attention': lambda F, x: F.dot(F.softmax(F.dot(x, x, transpose_b=True)), x),
    'stack 0': lambda F, x: F.stack(x, x * 2, axis=0),
    'concat 0': lambda F, x: F.concat(x, x * 2, dim=0),
    'swap': lambda F, x: F.SwapAxis(x, dim1=0, dim2=1),
    'squeeze': lambda F, x: F.squeeze(F.expand_dims(x, axis=1)),
    'take batched': lambda F, x: F.take(x, F.argmax(x, axis=1) * 0 + 1),
    'flip 0': lambda F, x: F.reverse(x, axis=0),
    'cumsum 0': lambda F, x: F.cumsum(x, axis=0),
    'cumsum of all': lambda F, x: F.cumsum(x),
    'slice rows': lambda F, x: F.slice_axis(x, axis=0, begin=0, end=1) * 2,
    'sum of all': lambda F, x: F.sum(x),
    'norm of all': lambda F, x: F.norm(x),
    'gram': lambda F, x: F.linalg_syrk(x),
    'tile': lambda F, x: F.tile(x, reps=(2, 1)),
    'repeat 0': lambda F, x: F.repeat(x, repeats=2, axis=0),
    'broadcast row': lambda F, x: F.broadcast_add(x, F.slice_axis(x, axis=0, begin=0, end=1)),
    'expand 0': lambda F, x: F.expand_dims(x, axis=0),
    'size': lambda F, x: F.broadcast_mul(x, F.cast(F.size_array(x), 'float32').reshape((1, 1))),
    'roll': lambda F, x: F.concat(
        F.slice_axis(x, axis=0, begin=1, end=None), F.slice_axis(x, axis=0, begin=0, end=1), dim=0
    ),
    'instance norm': lambda F, x: F.InstanceNorm(
        F.expand_dims(x, 0), F.ones((2,)), F.zeros((2,))
    ).reshape((-1, 4)),
    'linspace': lambda F, x: F.broadcast_add(x, F.arange(2).reshape((2, 1))),
    'arange_like': lambda F, x: F.broadcast_add(
        x, F.contrib.arange_like(x, axis=0).reshape((-1, 1))
    ),
}


FOR_TWO_ROWS = ('linspace', 'instance norm', 'reshape', 'reshape -1', 'roll')


@in_one_test('name', ATTEMPTS)
@in_one_test('shape', [(2, 4), (1, 4)])
def test_attempts_to_fool(name, shape):
    """Right, or a clear error that names block and line."""
    if shape == (1, 4) and name in FOR_TWO_ROWS:
        return
    net = Fooling(ATTEMPTS[name])
    try:
        assert_matches_eager(net, samples(shape=shape), schedulers=['agenda'], rtol=1e-4)
    except edb.RowDependenceError as error:
        message = str(error)
        assert (net.name in message and 'matches_eager.py' in message) or __file__ in message


def test_operators_without_a_rule_are_right_or_an_error_that_names_block_and_line():
    net = Fooling(lambda F, x: F.khatri_rao(x, x))
    made = samples(shape=(1, 4))
    try:
        with edb.batching() as scope:
            values = [net(x) for x in made]
        edb.forward(values)
    except edb.RowDependenceError as error:
        assert net.name in str(error) and 'khatri_rao' in str(error)
        assert 'test_rowwise.py:' in str(error)
    else:
        (kind,) = scope.report().types
        assert kind.batches == 4 and 'khatri_rao' in kind.note
        for value, x in zip(values, made):
            np.testing.assert_allclose(value.asnumpy(), net(x).asnumpy(), rtol=1e-5)


def test_batch_norm_in_training_is_refused_when_recorded():
    net = started(nn.BatchNorm(in_channels=4))
    with autograd.record():
        with pytest.raises(
            edb.RowDependenceError,
            match=r'BatchNorm\(batchnorm\d+\)(.|\n)*'
            r'test_rowwise\.py:\d+',
        ):
            with edb.batching():
                net(samples()[0])


def test_rows_that_depend_run_one_by_one_and_the_report_says_so():
    net = Fooling(lambda F, x: F.softmax(x, axis=0))
    with edb.compile_options(whole_values=False), edb.batching() as scope:
        values = [net(x) for x in samples()]
    edb.forward(values)
    (kind,) = scope.report().types
    assert (kind.calls, kind.batches) == (4, 4) and 'softmax(axis=0)' in kind.note
    assert 'one by one: softmax(axis=0)' in str(scope.report())


def test_rnn_layer():
    """gluon.rnn.LSTM takes (T, N, C): its batch axis is not axis 0."""
    net = started(gluon.rnn.LSTM(3, input_size=4))
    xs = samples(count=3, shape=(5, 1, 4))
    with edb.batching():
        values = [net(x) for x in xs]
    for value, x in zip(edb.forward(values), xs):
        np.testing.assert_allclose(value.asnumpy(), net(x).asnumpy(), rtol=1e-4, atol=1e-6)


def test_python_side_effects_are_refused():
    class Counting(gluon.HybridBlock):
        """Counts its calls."""

        def __init__(self):
            super().__init__()
            self.calls = 0

        def hybrid_forward(self, F, x):
            """x"""
            self.calls += 1
            return x * self.calls

    net = Counting()
    with pytest.raises(
        edb.RecordError,
        match=r'Counting\(counting\d+\) changes self\.calls'
        r'(.|\n)*test_rowwise\.py:\d+',
    ):
        with edb.batching():
            net(samples()[0])


def test_broadcasting_against_rows():
    """(H,) against (N, H): the arguments have different numbers of rows."""
    net = Fooling(lambda F, x, y: F.broadcast_add(x, y))
    made = samples(count=3)
    for shape in ((4,), (1, 4), (2, 1)):
        others = samples(count=3, shape=shape, seed=1)
        assert_matches_eager(net, list(zip(made, others)), unpack=True)
