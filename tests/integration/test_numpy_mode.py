"""Models of MXNet's NumPy mode: lazy values are arrays of ``mx.np``, results and gradients are
eager's, and what has an equal in ``mx.nd`` is batched as that is."""

import threading

import mxnet as mx
import numpy as onp
import pytest
from mxnet import autograd, gluon, np, npx
from mxnet.gluon import nn

import gluon_edbatch as edb
from gluon_edbatch.ops import OPS
from gluon_edbatch.testing import assert_matches_eager
from tests.support.cases import in_one_test
from tests.support.models import random_tree

HIDDEN = 4
COUNT = 3


@pytest.fixture(autouse=True)
def numpy_mode():
    """MXNet in NumPy mode, for one test."""
    npx.set_np()
    yield
    npx.reset_np()


def started(block):
    """Initialise a block with random parameters, and return it."""
    block.initialize(mx.init.Normal(0.5))
    return block


def samples(shape=(3, HIDDEN), count=COUNT, seed=0):
    """Arrays with gradients."""
    generator = onp.random.RandomState(seed)
    made = [np.array(generator.normal(size=shape), dtype='float32') for _ in range(count)]
    for array in made:
        array.attach_grad()
    return made


def recorded(model, data):
    """Values of a scope, and its report once they are computed."""
    with edb.batching() as scope:
        values = [model(sample) for sample in data]
    return edb.forward(values), scope.report()


# --- idioms --------------------------------------------------------------------------------------

WEIGHT = onp.random.RandomState(1).normal(size=(HIDDEN, 6)).astype('float32')
BATCHED = {
    'tanh': np.tanh,
    'sigmoid': lambda x: npx.sigmoid(x),
    'relu': lambda x: npx.relu(x),
    'exp': np.exp,
    'log': lambda x: np.log(x * x + 1),
    'sqrt': lambda x: np.sqrt(abs(x) + 1),
    'activation': lambda x: npx.activation(x, act_type='softrelu'),
    'gelu': lambda x: npx.leaky_relu(x, act_type='gelu'),
    'softmax': lambda x: npx.softmax(x, axis=-1),
    'log_softmax': lambda x: npx.log_softmax(x),
    'dot': lambda x: np.dot(x, x.T),
    'dot of a matrix and a vector': lambda x: np.dot(x, x[0]),
    'dot of vectors': lambda x: np.dot(x[0], x[1]),
    'dot with no axes': lambda x: np.dot(x.sum(), x),
    '@': lambda x: x @ x.T,
    '@ of a vector': lambda x: x[0] @ x.T,
    'matmul': lambda x: np.matmul(x[None], x.T[None]),
    'batch_dot': lambda x: npx.batch_dot(x[None], x[None], transpose_b=True),
    'concatenate': lambda x: np.concatenate([x, x * 2]),
    'concatenate along the last axis': lambda x: np.concatenate([x, x * 2], axis=-1),
    'stack': lambda x: np.stack([x, x * 2]),
    'stack along axis 1': lambda x: np.stack([x, x * 2], axis=1),
    'vstack': lambda x: np.vstack([x[0], x[1]]),
    'split': lambda x: np.split(x, 2, axis=1),
    'split at': lambda x: np.split(x, (1, 3), axis=1),
    'sum': lambda x: x.sum(),
    'sum along an axis': lambda x: x.sum(axis=1),
    'sum of rows': lambda x: np.sum(x, axis=0),
    'sum with its axis kept': lambda x: x.sum(axis=1, keepdims=True),
    'sum along two axes': lambda x: x.sum((0, 1)),
    'mean': lambda x: x.mean(),
    'max': lambda x: np.max(x, axis=1),
    'min of all': lambda x: x.min(),
    'argmax': lambda x: x.argmax(axis=1),
    'argmax of all': lambda x: np.argmax(x),
    'var': lambda x: x.var(axis=1),
    'std of all': lambda x: np.std(x),
    'cumsum': lambda x: np.cumsum(x, axis=1),
    'where': lambda x: np.where(x > 0, x, x * 0.1),
    'where with a number': lambda x: np.where(x > 0, x, 0.0),
    'where of numbers': lambda x: np.where(x > 0, 1.0, 0.0),
    'where broadcast': lambda x: np.where(x > 0, x, x[0]),
    'expand_dims': lambda x: np.expand_dims(x, 1),
    'expand_dims of no axes': lambda x: np.expand_dims(x.sum(), 0),
    'reshape': lambda x: x.reshape(2, 6),
    'reshape to one axis': lambda x: x.reshape(-1),
    'reshape to a tuple': lambda x: np.reshape(x, (-1, 2)),
    'reshape to no axes': lambda x: x.sum(axis=(0, 1), keepdims=True).reshape(()),
    'npx.reshape': lambda x: npx.reshape(x, (-2, 2, -1)),
    'transpose': lambda x: np.transpose(x[None], (0, 2, 1)),
    'T': lambda x: x.T,
    'swapaxes': lambda x: x.swapaxes(0, 1),
    'squeeze': lambda x: np.squeeze(x[:1]),
    'squeeze of an axis': lambda x: x[:1].squeeze(axis=0),
    'flatten': lambda x: x.flatten(),
    'flip': lambda x: np.flip(x, 1),
    'broadcast_to': lambda x: np.broadcast_to(x[:1], (3, HIDDEN)),
    'broadcast_to more axes': lambda x: np.broadcast_to(x[0], (3, HIDDEN)),
    'a row': lambda x: x[0],
    'the last row': lambda x: x[-1],
    'an element': lambda x: x[0, 1],
    'columns': lambda x: x[:, 1:3],
    'a column': lambda x: x[:, 1],
    'a new axis': lambda x: x[None],
    'a new axis within': lambda x: x[1:, None],
    'an ellipsis': lambda x: x[..., 0],
    'with a step': lambda x: x[::2],
    'from before the first': lambda x: x[0, 1:2][-2:3],
    'to before the first': lambda x: x[1][2:-9:-1],
    'backwards': lambda x: x[:, ::-1],
    'no axes, indexed': lambda x: x.sum()[()],
    'broadcast +': lambda x: x + x[0],
    'numbers': lambda x: (1 + x * 3 - 2.5) / 4,
    'numbers before': lambda x: 2 / (1 - x * x * -1),
    'power': lambda x: x**2,
    'power of a number': lambda x: 2**x,
    'modulo': lambda x: x % 2,
    'negative': lambda x: -x,
    'comparison': lambda x: x >= x[0],
    'comparison with a number': lambda x: x != 0,
    'a mask times': lambda x: x * (x > 0),
    'a mask plus': lambda x: (x > 0) + x,
    'masks': lambda x: (x > 0) * (x < 1),
    'and, or, not': lambda x: (x > 0) & ~(x > 1) | (x < -1),
    'a sum of truth': lambda x: (x > 0).sum(),
    'a mean of truth': lambda x: (x > 0).mean(),
    'astype': lambda x: (x > 0).astype(onp.float32) * x,
    'maximum': lambda x: np.maximum(x, x[0]) + np.maximum(x, 0),
    'clip': lambda x: np.clip(x, -1, 1),
    'arithmetic of no axes': lambda x: np.tanh(x.sum() / 8) + x.mean() ** 2,
    'by no axes': lambda x: x / x.sum(),
    'comparison of no axes': lambda x: x.sum() > 0,
    'stack of no axes': lambda x: np.stack([x.sum(), x.max()]),
    'take of truth': lambda x: (x[0] > 0).take(x.argmax(axis=1), mode='clip'),
    'softmax of a stack': lambda x: npx.softmax(np.stack([x[0].sum(), x[1].sum()])),
    'sum of no axes': lambda x: x.sum().sum(),
    'axes for no axes': lambda x: x.sum().reshape(1, 1),
    'zeros_like': lambda x: np.zeros_like(x) + x,
    'full_like': lambda x: np.full_like(x, 2) * x,
    'integers': lambda x: x.argmax(axis=1) + 1,
    'integers divided': lambda x: x.argmax(axis=1) / 2,
    'a sum of integers': lambda x: x.argmax(axis=1).sum(),
    'one_hot': lambda x: npx.one_hot(x.argmax(axis=1), HIDDEN) * x,
    'pick': lambda x: npx.pick(x, x.argmax(axis=1)),
    'a NumPy number': lambda x: x + onp.float32(2),
    'copy and detach': lambda x: x.copy() * x.detach(),
    'a row of truth': lambda x: (x > 0)[1],
    'columns of vectors': lambda x: np.column_stack([x[0], x[1]]),
    'columns of matrices': lambda x: np.column_stack([x, x * 2]),
    'det': lambda x: np.linalg.det(x[:, :3]),
    'split in one': lambda x: np.split(x, 1),
    'npx.reshape from behind': lambda x: npx.reshape(x[None], (-1, 3, -2), reverse=True),
    'ufunc': lambda x: onp.tanh(x),
    "NumPy's function": lambda x: onp.concatenate([x, x]),
}
ONE_BY_ONE = {
    'norm': lambda x: np.linalg.norm(x),
    'a list of rows': lambda x: x[[0, 2]],
    'an array of rows': lambda x: x[np.array([0, 2], dtype='int32')],
    'pairs': lambda x: x[[0, 1], [1, 2]],
    'truth as index': lambda x: x[onp.array([True, False, True])],
    'take': lambda x: np.take(x, np.array([0, 2], dtype='int32'), axis=0),
    'einsum': lambda x: np.einsum('ij,kj->ik', x, x),
    'tensordot': lambda x: np.tensordot(x, x, axes=((1,), (1,))),
    'hstack': lambda x: np.hstack([x, x]),
    'tril': lambda x: np.tril(x),
    'sequence_mask': lambda x: npx.sequence_mask(x, np.array([1, 2, 3]), True, value=-1e6, axis=1),
    'arange': lambda x: x + np.arange(HIDDEN),
    'zeros': lambda x: np.zeros((3, HIDDEN)) + x,
    'arange_like': lambda x: npx.arange_like(x, axis=1) + x,
    'no rows': lambda x: x[:0],
    'none of a column': lambda x: x[1:1:2, 0],
    'stack of truth with no axes': lambda x: np.stack([x.sum() > 0, x.max() > 1]),
    'truth concatenated': lambda x: np.concatenate([x > 0, x < 1]),
    'dstack': lambda x: np.dstack([x, x]),
    'a sum of another dtype': lambda x: x.sum(axis=0, dtype='int32'),
    'an nd array': lambda x: x.as_nd_ndarray().as_np_ndarray(),
    'rows': list,
}


@pytest.mark.filterwarnings('ignore:ndarray.as_in_context')
@pytest.mark.parametrize('odd', [0, pytest.param(1, marks=pytest.mark.slow)])
@in_one_test('number, name', enumerate([*BATCHED, *ONE_BY_ONE]))
def test_idiom(number, name, odd):
    """Every other one runs natively, and the others with the slow tests."""
    function, native = {**BATCHED, **ONE_BY_ONE}[name], (number + odd) % 2 == 0
    dense = started(nn.Dense(HIDDEN, in_units=HIDDEN))
    with edb.compile_options(native=native):
        assert_matches_eager(
            lambda x: function(dense(x)),
            samples(),
            blocks=[dense],
            hybridized=[False],
            schedulers=['agenda'],
        )


@in_one_test('name', BATCHED)
def test_idiom_is_batched(name):
    dense = started(nn.Dense(HIDDEN, in_units=HIDDEN))
    values, report = recorded(lambda x: BATCHED[name](dense(x)), samples())
    assert report.batches * COUNT <= report.nodes
    assert all(isinstance(leaf, np.ndarray) for leaf in _leaves(values))


def _leaves(values):
    return [leaf for value in values for leaf in (value if isinstance(value, list) else [value])]


# --- models --------------------------------------------------------------------------------------


class Cell(gluon.HybridBlock):
    """An LSTM cell."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.i2h = nn.Dense(4 * HIDDEN, in_units=HIDDEN)
            self.h2h = nn.Dense(4 * HIDDEN, in_units=HIDDEN)

    def hybrid_forward(self, F, x, h, c):
        i, f, u, o = F.np.split(self.i2h(x) + self.h2h(h), 4, axis=1)
        c = F.npx.sigmoid(f) * c + F.npx.sigmoid(i) * F.np.tanh(u)
        return F.npx.sigmoid(o) * F.np.tanh(c), c


class TreeCell(gluon.HybridBlock):
    """A child-sum Tree-LSTM cell."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.own = nn.Dense(3 * HIDDEN, in_units=HIDDEN)
            self.inner = nn.Dense(3 * HIDDEN, in_units=HIDDEN, use_bias=False)
            self.own_forget = nn.Dense(HIDDEN, in_units=HIDDEN)
            self.forget = nn.Dense(HIDDEN, in_units=HIDDEN, use_bias=False, flatten=False)

    def hybrid_forward(self, F, x, child_h, child_c):
        i, o, u = F.np.split(self.own(x) + self.inner(F.np.sum(child_h, axis=1)), 3, axis=1)
        forget = F.npx.sigmoid(self.forget(child_h) + F.np.expand_dims(self.own_forget(x), axis=1))
        c = F.npx.sigmoid(i) * F.np.tanh(u) + F.np.sum(forget * child_c, axis=1)
        return F.npx.sigmoid(o) * F.np.tanh(c), c


class Net(edb.AutoBatchMixin, gluon.Block):
    """What samples are read by, and a classifier."""

    def __init__(self, cell, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.embed = nn.Embedding(11, HIDDEN)
            self.cell = cell()
            self.out = nn.Dense(3)


class Attention(Net):
    """Attention of the last state of a sentence to all."""

    def forward(self, words):
        h = c = np.zeros((1, HIDDEN))
        states = []
        for word in words:
            h, c = self.cell(self.embed(word), h, c)
            states.append(h)
        memory = np.concatenate(states, axis=0)
        weights = npx.softmax(np.dot(h, memory.T) / HIDDEN**0.5, axis=-1)
        return self.out(np.concatenate([weights @ memory, h], axis=1))


class TreeLSTM(Net):
    """A Tree-LSTM from the leaves to the root."""

    def forward(self, tree):
        return self.out(self.state(tree)[0])

    def state(self, tree):
        children = [self.state(child) for child in tree.children]
        return self.cell(
            self.embed(tree.token),
            edb.ragged([h for h, _ in children], (1, HIDDEN)),
            edb.ragged([c for _, c in children], (1, HIDDEN)),
        )


class FromScratch(edb.AutoBatchMixin, gluon.Block):
    """A recurrent network of operators alone, with masked attention: all of a sample at once."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.table = self.params.get('table', shape=(11, HIDDEN))
            self.inner = self.params.get('inner', shape=(HIDDEN, HIDDEN))
            self.bias = self.params.get('bias', shape=(HIDDEN,))
            self.attend = Masked()

    def forward(self, words):
        one_hot = npx.one_hot(np.array(words), 11)
        state, states = np.zeros((1, HIDDEN)), []
        for row in one_hot:
            state = np.tanh(
                np.dot(row[None], self.table.data())
                + np.dot(state, self.inner.data())
                + self.bias.data()
            )
            states.append(state)
        padded = np.concatenate(states + [np.ones((6 - len(states), HIDDEN))], axis=0)
        return self.attend(padded[None], np.array([len(words)])).sum()


class Masked(gluon.HybridBlock):
    """Softmax over as many positions as there are, each position to all."""

    def hybrid_forward(self, F, x, length):
        scores = F.npx.batch_dot(x, x, transpose_b=True)
        scores = F.npx.sequence_mask(
            F.np.transpose(scores, (0, 2, 1)), length, True, value=-1e6, axis=1
        )
        return F.npx.batch_dot(F.npx.softmax(scores, axis=1), x)


def sentences(count=6, seed=3):
    """Lists of numbers of words."""
    generator = onp.random.RandomState(seed)
    return [generator.randint(0, 11, generator.randint(2, 6)).tolist() for _ in range(count)]


def trees(count=6, seed=4):
    """Trees."""
    generator = onp.random.RandomState(seed)
    return [random_tree(generator, int(generator.randint(1, 9))) for _ in range(count)]


MODELS = {
    'attention': (lambda: Attention(Cell), sentences),
    'tree': (lambda: TreeLSTM(TreeCell), trees),
    'from scratch': (FromScratch, sentences),
}


@pytest.mark.parametrize('native', [True, False])
@pytest.mark.parametrize('name', MODELS)
def test_model(name, native):
    model, data = MODELS[name]
    with edb.compile_options(native=native):
        assert_matches_eager(started(model()), data())


@pytest.mark.parametrize('name', ['attention', 'tree'])
def test_model_runs_natively(name):
    model, data = MODELS[name]
    net = started(model())
    _, report = recorded(net, data())
    cells = [each for each in report.types if 'Cell' in each.name]
    assert cells and all('native' in each.passes for each in cells)
    assert all(each.batches < each.calls for each in cells)


@pytest.mark.parametrize('native', [True, False])
def test_training_is_that_of_eager(native):
    def losses(batched):
        mx.random.seed(5)
        net, data = started(Attention(Cell)), sentences()
        loss = gluon.loss.SoftmaxCrossEntropyLoss()
        net(data[0])
        trainer = gluon.Trainer(net.collect_params(), 'adam', {'learning_rate': 0.05})
        found = []
        for _ in range(4):
            with autograd.record():
                if batched:
                    with edb.batching():
                        values = [loss(net(words), np.array([words[0] % 3])) for words in data]
                    total = edb.stack(values).mean()
                else:
                    total = np.stack(
                        [loss(net(words), np.array([words[0] % 3])) for words in data]
                    ).mean()
            total.backward()
            trainer.step(1)
            found.append(total.item())
        return found

    with edb.compile_options(native=native):
        onp.testing.assert_allclose(losses(True), losses(False), rtol=1e-4)


LOSSES = {
    'L2': gluon.loss.L2Loss,
    'L1': gluon.loss.L1Loss,
    'softmax': gluon.loss.SoftmaxCrossEntropyLoss,
    'sparse softmax': lambda: gluon.loss.SoftmaxCrossEntropyLoss(sparse_label=False),
    'sigmoid': gluon.loss.SigmoidBinaryCrossEntropyLoss,
}


@in_one_test('name', LOSSES)
def test_loss(name):
    loss, dense = LOSSES[name](), started(nn.Dense(3, in_units=HIDDEN))
    label = onp.array([1], 'float32') if name == 'softmax' else onp.array([[0.2, 0.3, 0.5]], 'f')
    assert_matches_eager(
        lambda x: loss(dense(x), np.array(label)),
        samples((1, HIDDEN)),
        blocks=[dense, loss],
        schedulers=['agenda'],
    )


LAYERS = {
    'Dense': (lambda: nn.Dense(3, activation='tanh'), (2, 5)),
    'LayerNorm': (nn.LayerNorm, (2, 5)),
    'Dropout': (lambda: nn.Dropout(0), (2, 5)),
    'Sequential': (lambda: _sequential(nn.Dense(4), nn.LeakyReLU(0.1), nn.Dense(2)), (2, 5)),
    'Conv2D': (lambda: _sequential(nn.Conv2D(3, 3), nn.MaxPool2D(2)), (1, 2, 6, 6)),
    'GELU': (nn.GELU, (2, 5)),
    'Swish': (nn.Swish, (2, 5)),
    'LSTM': (lambda: gluon.rnn.LSTM(4, layout='NTC'), (1, 3, 5)),
    'GRU': (lambda: gluon.rnn.GRU(4, bidirectional=True), (3, 1, 5)),
}


def _sequential(*layers):
    block = nn.HybridSequential()
    block.add(*layers)
    return block


@pytest.mark.filterwarnings('ignore:ndarray.context has been renamed')
@in_one_test('native', [True, False])
@in_one_test('name', LAYERS)
def test_layer(name, native):
    make, shape = LAYERS[name]
    block = started(make())
    with edb.compile_options(native=native):
        assert_matches_eager(block, samples(shape), schedulers=['agenda'])


# --- values --------------------------------------------------------------------------------------


def test_values_are_arrays_of_numpy_mode():
    dense = started(nn.Dense(3, in_units=HIDDEN))
    with edb.batching() as scope:
        h = dense(onp.ones((1, HIDDEN), 'float32'))
        total = h.sum()
        assert isinstance(h, np.ndarray) and isinstance(h, edb.LazyArray)
        assert h.shape == (1, 3) and total.shape == () and total.ndim == 0 and total.size == 1
        assert (
            isinstance(h.dtype, onp.dtype)
            and h.dtype == onp.float32
            and len(h) == 1
            and 'not computed' in repr(h)
            and str(h) == f'{h}' == repr(h)
        )
    assert scope.report().evaluations == 0
    expected = dense(np.ones((1, HIDDEN)))
    assert total.item() == pytest.approx(expected.sum().item()) == float(total)
    assert repr(h).startswith('array(')
    assert type(edb.forward(h)) is np.ndarray and edb.forward(total).shape == ()
    onp.testing.assert_allclose(h.tolist(), expected.tolist(), rtol=1e-5)
    assert (h == h).all()


@pytest.mark.parametrize('position', [onp.int64(1), onp.int32(-1)])
def test_row_at_a_number_of_numpy(position):
    """MXNet takes such positions, which ``onp.argmax`` returns."""
    dense = started(nn.Dense(HIDDEN, in_units=HIDDEN))
    assert_matches_eager(
        lambda x: dense(x)[position] * 2,
        samples(),
        blocks=[dense],
        hybridized=[False],
        schedulers=['agenda'],
    )


DEPENDING_ON_ROWS = {
    'squeeze': np.squeeze,
    'broadcast_to': lambda x: np.broadcast_to(x, (3, 1, HIDDEN)),
    'broadcast_arrays': lambda x: np.broadcast_arrays(x, np.ones((3, 1, HIDDEN)))[0],
}


@in_one_test('native', [True, False])
@in_one_test('name', DEPENDING_ON_ROWS)
def test_what_is_done_otherwise_of_one_row(name, native):
    """A call of one row has its own type, also after calls of more rows."""
    data = [samples((rows, 1, HIDDEN), 1)[0] for rows in (3, 1, 3, 1)]
    dense = started(nn.Dense(HIDDEN, in_units=HIDDEN, flatten=False))
    with edb.compile_options(native=native):
        assert_matches_eager(
            lambda x: DEPENDING_ON_ROWS[name](dense(x)),
            data,
            blocks=[dense],
            hybridized=[False],
            schedulers=['agenda'],
        )


def test_functions_on_values():
    dense, data = started(nn.Dense(3, in_units=HIDDEN)), samples((1, HIDDEN))

    def model(x):
        h = dense(x)
        return (
            edb.stack([h, h * 2]),
            edb.stack([h, h], axis=1),
            edb.concat([h, h * 2]),
            edb.concat([h, h], dim=1),
            edb.add_n([h, h, h]),
            edb.stack([h.sum(), h.max()]),
            edb.add_n([h.sum(), h.max()]),
        )

    assert_matches_eager(model, data, blocks=[dense], schedulers=['agenda'], hybridized=[False])
    with edb.batching():
        values = [dense(x) for x in data]
    eager = [dense(x) for x in data]
    for function in (edb.stack, edb.concat, edb.add_n):
        found, expected = function(values), function(eager)
        assert type(found) is type(expected) is np.ndarray
        onp.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-5)
    with edb.batching():
        totals = [dense(x).sum() for x in data]
    assert edb.stack(totals).shape == (COUNT,) and edb.add_n(totals).shape == ()


def test_writing():
    dense = started(nn.Dense(3, in_units=HIDDEN))

    def model(x):
        h = dense(x)
        before = h * 1
        h += 1
        h[:, 0] = 5
        h *= 2
        total = h.sum()
        total -= 3
        return before, h, total

    assert_matches_eager(
        model, samples((1, HIDDEN)), blocks=[dense], training=[False], hybridized=[False]
    )
    values, _ = recorded(dense, samples((1, HIDDEN)))
    values[0][:] = 7
    assert values[0].tolist() == [[7, 7, 7]]


@pytest.mark.parametrize('shape', [(), (1, HIDDEN)])
def test_writing_by_truth_values(shape):
    """MXNet asks whether the key's dtype is Python's `bool`, as that of its own arrays is."""
    dense = started(nn.Dense(HIDDEN, in_units=HIDDEN))

    def model(x):
        h = dense(x).sum() if not shape else dense(x)
        mask = h > 0
        assert mask.dtype == bool
        h[mask] = -h
        return h

    def written(x):
        h = dense(x).sum() if not shape else dense(x)
        mask = h > 0
        h[mask] = 7
        return h

    for each in (written,) if shape else (model, written):
        assert_matches_eager(
            each, samples((1, HIDDEN), 8), blocks=[dense], training=[False], hybridized=[False]
        )


NUMBERS = {
    '_npi_add_scalar': lambda x, number: x + number,
    '_npi_subtract_scalar': lambda x, number: x - number,
    '_npi_rsubtract_scalar': lambda x, number: number - x,
    '_npi_multiply_scalar': lambda x, number: x * number,
    '_npi_true_divide_scalar': lambda x, number: x / number,
    '_npi_rtrue_divide_scalar': lambda x, number: number / x,
    '_npi_mod_scalar': lambda x, number: x % number,
    '_npi_rmod_scalar': lambda x, number: number % x,
    '_npi_power_scalar': lambda x, number: (x * x) ** number,
    '_npi_rpower_scalar': lambda x, number: number**x,
}


def test_every_operator_with_a_number_is_tested():
    ruled = {name for name, op in OPS.items() if op.number and name.startswith('_npi_')}
    assert ruled == set(NUMBERS)


@in_one_test('native', [True, False])
@in_one_test('name', NUMBERS)
def test_numbers_in_arithmetic(name, native):
    dense = started(nn.Dense(3, in_units=HIDDEN))
    numbered = [(x, 0.5 + i) for i, x in enumerate(samples((1, HIDDEN), 4))]
    with edb.compile_options(native=native):
        assert_matches_eager(
            lambda x, number: (NUMBERS[name](dense(x), number), NUMBERS[name](dense(x).sum(), 2)),
            numbered,
            unpack=True,
            blocks=[dense],
            hybridized=[False],
            schedulers=['agenda'],
        )


def test_numbers_that_vary_share_a_batch():
    dense, data = started(nn.Dense(3, in_units=HIDDEN)), samples((1, HIDDEN), 6)

    def model(x, number):
        return dense(x) * number + number, dense(x).sum() / number

    numbered = [(x, 0.5 + i) for i, x in enumerate(data)]
    assert_matches_eager(
        model, numbered, unpack=True, blocks=[dense], hybridized=[False], schedulers=['agenda']
    )
    _, report = recorded(lambda sample: model(*sample)[0], numbered)
    assert report.batches <= 5


def test_concurrent_reused_and_batched_samples():
    net, data = started(Attention(Cell)), sentences()
    expected = [net(words).asnumpy() for words in data]

    def scores(words):
        found = yield net(words).sum(axis=0)
        total = yield net(words).sum()
        assert total.shape == ()
        return found

    reuse = edb.Reuse()
    for found in (
        net.batch(data),
        net.batch(data, keys=range(len(data)), reuse=reuse),
        net.batch(data, keys=range(len(data)), reuse=reuse),
    ):
        for value, wanted in zip(found, expected):
            assert type(value) is np.ndarray
            onp.testing.assert_allclose(value.asnumpy(), wanted, rtol=1e-5)
    with edb.batching():
        found = edb.run_concurrently(data, scores)
    for value, wanted in zip(found, expected):
        onp.testing.assert_allclose(value, wanted.sum(axis=0), rtol=1e-5)


def test_reused_values_without_axes():
    dense = started(nn.Dense(3, in_units=HIDDEN))
    x, reuse = onp.ones((1, HIDDEN), 'float32'), edb.Reuse()
    for _ in range(2):
        with edb.batching():
            total = reuse('key', lambda: dense(x).sum())
        assert total.shape == () == edb.forward(total).shape
        assert total.item() == pytest.approx(dense(np.array(x)).sum().item())


def test_large_and_trained_arrays_are_shared():
    """Large and trained arrays count as weights; a change while calls wait is noticed."""
    weight = np.array(WEIGHT)
    weight.attach_grad()
    large = np.ones((300, 300))
    dense = started(nn.Dense(HIDDEN, in_units=HIDDEN))
    with autograd.record():
        with edb.batching() as scope:
            values = [np.dot(dense(x), weight) + large.sum() * 0 for x in samples()]
        total = edb.stack(values).sum()
    total.backward()
    assert type(weight) is np.ndarray and type(large) is np.ndarray
    found = weight.grad.asnumpy().copy()
    with autograd.record():
        total = sum([np.dot(dense(x), weight).sum() for x in samples()])
    total.backward()
    onp.testing.assert_allclose(found, weight.grad.asnumpy(), rtol=1e-4)
    assert scope.report().batches <= 4


def test_parameter_that_is_set_while_calls_wait():
    dense, x = started(nn.Dense(3, in_units=HIDDEN)), np.ones((1, HIDDEN))
    expected = dense(x).asnumpy()
    with edb.batching():
        value = dense(x)
    dense.weight.set_data(dense.weight.data() * 2)
    onp.testing.assert_allclose(value.asnumpy(), expected, rtol=1e-5)
    assert type(dense.weight.data()) is np.ndarray


# --- modes, threads, errors ----------------------------------------------------------------------


def test_one_block_in_both_modes():
    dense, x = started(nn.Dense(3, in_units=HIDDEN)), onp.ones((1, HIDDEN), 'float32')
    found = []
    for numpy in (True, False, True):
        (npx.set_np if numpy else npx.reset_np)()
        with edb.batching():
            value = dense(x)
            assert isinstance(value, np.ndarray) is numpy
        found.append(value.asnumpy())
    onp.testing.assert_allclose(found[0], found[1])
    onp.testing.assert_allclose(found[0], found[2])


def test_values_outlive_the_mode_and_serve_other_threads():
    dense = started(nn.Dense(3, in_units=HIDDEN))
    x = np.ones((1, HIDDEN))
    expected = np.linalg.norm(dense(x)).item()
    with edb.batching():
        values = [np.linalg.norm(dense(x)) for _ in range(2)]
    found = []
    thread = threading.Thread(target=lambda: found.append(values[0].asnumpy()))
    thread.start()
    thread.join()
    npx.reset_np()
    found.append(values[1].asnumpy())
    assert [each.shape for each in found] == [(), ()]
    onp.testing.assert_allclose(found, [expected] * 2, rtol=1e-5)


def test_errors_name_the_line():
    dense = started(nn.Dense(3, in_units=HIDDEN))
    with edb.batching():
        h = dense(np.ones((1, HIDDEN)))
        with pytest.raises(edb.RecordError, match=r'does not accept float32\(1, 1, 3\)') as info:
            h + np.ones((2, 2, 2, 4)) * h[None]
        assert 'test_numpy_mode.py' in str(info.value)
        with pytest.raises(edb.RecordError, match='no axes'):
            edb.ragged([h.sum()])
