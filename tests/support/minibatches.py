"""Random minibatches: numbers that differ by sample beside arrays of several widths."""

import random
from typing import Any, Callable

import mxnet as mx
import numpy as np
from mxnet import gluon
from mxnet.gluon import nn

import gluon_edbatch as edb
from tests.support.models import started

WIDTHS = (2, 3, 4)


class Pooled(gluon.HybridBlock):
    """Sum any number of values, weighted by an argument."""

    def hybrid_forward(self, F, x, values):
        """Return sums of (N, C) and (N, K, C)."""
        return F.sum(F.broadcast_mul(values, F.expand_dims(x, axis=1)), axis=1)


class Attended(gluon.HybridBlock):
    """Work along axis 1, with enough operators for calls to be padded."""

    def hybrid_forward(self, F, x):
        """Return a result of (1, L, C)."""
        weights = F.softmax(F.sum(F.tanh(x) * x, axis=2, keepdims=True), axis=1)
        return F.sum(F.broadcast_mul(weights, x), axis=1)


class Scaled(gluon.HybridBlock):
    """Multiply by an attribute, which a user may change, and by an argument."""

    def __init__(self, **kwargs: Any):
        super().__init__(**kwargs)
        self.times = 1.0

    def hybrid_forward(self, F, x, number):
        """Multiply an array by the attribute and the number."""
        return F.broadcast_mul(x * self.times, number)


class Blocks:
    """Layers of the minibatch of one scope."""

    def __init__(self) -> None:
        self.dense = {
            width: [started(nn.Dense(units, in_units=width, flatten=False)) for units in WIDTHS]
            for width in WIDTHS
        }
        self.cells = {
            width: started(gluon.rnn.LSTMCell(width, input_size=width)) for width in WIDTHS
        }
        self.embed = [started(nn.Embedding(9, width)) for width in WIDTHS]
        self.weights = {width: mx.nd.random.normal(shape=(3, width)) for width in WIDTHS}
        for weight in self.weights.values():
            weight.attach_grad()
        self.pooled, self.attended, self.scaled = Pooled(), Attended(), Scaled()
        self.dropout, self.loss = nn.Dropout(0.3), gluon.loss.SoftmaxCrossEntropyLoss()


def rows(y: Any) -> Any:
    """Return any value as (1, C), where C is one of `WIDTHS`."""
    y = y.reshape((1, -1))
    return y if y.shape[1] in WIDTHS else y.slice_axis(axis=1, begin=0, end=1).tile((1, 2))


def sentence(y: Any, drawn: random.Random) -> Any:
    """Return two rows or more as (1, L, C)."""
    y = rows(y)
    return mx.nd.stack(*[y * number for number in range(1, drawn.randint(3, 5))], axis=1)


STEPS: dict[str, Callable[[Blocks, Any, Any, random.Random, int], Any]] = {
    'a number times': lambda net, y, z, drawn, n: y * n,
    'divided by a number': lambda net, y, z, drawn, n: y / n,
    'a number divided': lambda net, y, z, drawn, n: n / (y * y + 1),
    'a number less': lambda net, y, z, drawn, n: n - y,
    'a power': lambda net, y, z, drawn, n: (y * y + 1) ** (0.5 * n),
    'a remainder': lambda net, y, z, drawn, n: y % n,
    'compared': lambda net, y, z, drawn, n: y > 0.1 * n,
    'maximum': lambda net, y, z, drawn, n: mx.nd.maximum(y, 0.1 * n),
    'one column': lambda net, y, z, drawn, n: rows(y)[:, n % rows(y).shape[1]],
    'columns': lambda net, y, z, drawn, n: rows(y)[:, : n + 1],
    'one position': lambda net, y, z, drawn, n: sentence(y, drawn)[:, n % 2],
    'an axis': lambda net, y, z, drawn, n: rows(y).slice_axis(axis=1, begin=n % 2, end=n % 2 + 1),
    'axes': lambda net, y, z, drawn, n: sentence(y, drawn).slice_axis(axis=1, begin=0, end=n),
    'an element': lambda net, y, z, drawn, n: rows(y)[0, n % 2],
    'clipped': lambda net, y, z, drawn, n: y.clip(-n, n),
    'softmax': lambda net, y, z, drawn, n: mx.nd.softmax(rows(y), temperature=1.0 * n),
    'summed': lambda net, y, z, drawn, n: sentence(y, drawn).sum(axis=n % 3),
    'mean': lambda net, y, z, drawn, n: rows(y).mean(axis=1, keepdims=True),
    'over all rows': lambda net, y, z, drawn, n: sentence(y, drawn)[0].max(axis=0),
    'norm': lambda net, y, z, drawn, n: y.norm(),
    'repeated': lambda net, y, z, drawn, n: rows(y).repeat(n, axis=0),
    'transposed': lambda net, y, z, drawn, n: rows(y).T,
    'joined': lambda net, y, z, drawn, n: mx.nd.concat(rows(y), rows(z), dim=1),
    'joined rows': lambda net, y, z, drawn, n: mx.nd.concat(*[rows(y)] * (n + 1), dim=0),
    'added': lambda net, y, z, drawn, n: y + y * n,
    'dot': lambda net, y, z, drawn, n: mx.nd.dot(rows(y), net.weights[rows(y).shape[1]].T),
    'dense': lambda net, y, z, drawn, n: net.dense[rows(y).shape[1]][n % 3](rows(y)),
    'dense of a sentence': lambda net, y, z, drawn, n: net.dense[rows(y).shape[1]][n % 3](
        sentence(y, drawn)
    ),
    'a cell': lambda net, y, z, drawn, n: net.cells[rows(y).shape[1]](
        rows(y), [rows(y), rows(y) / n]
    )[0],
    'a word': lambda net, y, z, drawn, n: net.embed[n % 3](n),
    'words': lambda net, y, z, drawn, n: net.embed[n % 3](mx.nd.array([range(n + 1)])),
    'pooled': lambda net, y, z, drawn, n: net.pooled(
        rows(y), edb.ragged([rows(y)] * n, shape=rows(y).shape)
    ),
    'ragged': lambda net, y, z, drawn, n: edb.ragged([rows(y)] * (n + 1)) / n,
    'attended': lambda net, y, z, drawn, n: net.attended(sentence(y, drawn)),
    'padded': lambda net, y, z, drawn, n: net.dense[rows(y).shape[1]][0](sentence(y, drawn)) * n,
    'scaled': lambda net, y, z, drawn, n: net.scaled(y, n),
    'dropout': lambda net, y, z, drawn, n: net.dropout(y),
    'loss': lambda net, y, z, drawn, n: net.loss(rows(y), mx.nd.array([n % 2])),
    'full': lambda net, y, z, drawn, n: mx.nd.full((1, n), n),
    'whole numbers': lambda net, y, z, drawn, n: y.astype('int32') * n,
    'double': lambda net, y, z, drawn, n: y.astype('float64') / n,
    'half': lambda net, y, z, drawn, n: y.astype('float16') - n,
    'one hot': lambda net, y, z, drawn, n: mx.nd.one_hot(rows(y).argmax(axis=1), n + 1),
    'picked': lambda net, y, z, drawn, n: mx.nd.pick(rows(y), mx.nd.array([n % 2]), axis=1),
    'taken': lambda net, y, z, drawn, n: mx.nd.take(rows(y), mx.nd.array([n % 2]), axis=1),
    'detached': lambda net, y, z, drawn, n: y.detach() * n,
    'split': lambda net, y, z, drawn, n: rows(y).split(rows(y).shape[1], axis=1)[n % 2],
    'sorted': lambda net, y, z, drawn, n: rows(y).sort(axis=1) / n,
    'a gradient of its own': lambda net, y, z, drawn, n: mx.nd.make_loss(y * n),
    'random numbers': lambda net, y, z, drawn, n: y + mx.nd.random.uniform(shape=y.shape) * n,
    'written': lambda net, y, z, drawn, n: written(y * 1, n),
    'read': lambda net, y, z, drawn, n: y * float(y.sum().asscalar()) / n,
    'edb.add_n': lambda net, y, z, drawn, n: edb.add_n([y] * (n + 1)),
    'edb.stack': lambda net, y, z, drawn, n: edb.stack([y] * (n + 1)),
    'inverted': lambda net, y, z, drawn, n: mx.nd.linalg.potrf(inner(y, drawn.random() < 0.9)),
}


# Steps that eager Gluon has not, that draw noise, that are not continuous, or that may fail.
NOT_EAGER = frozenset(
    {'a word', 'scaled', 'ragged', 'pooled', 'edb.stack', 'edb.add_n'}
    | {'random numbers', 'dropout', 'half', 'sorted', 'read', 'inverted'}
)


def written(y: Any, number: int) -> Any:
    """Return a value that is written to."""
    y[:] = number
    return y


def inner(y: Any, positive: bool) -> Any:
    """Return a matrix with a Cholesky factor, or without one, which is an error of its batch."""
    y = rows(y).astype('float32')
    matrix = mx.nd.dot(y, y, transpose_a=True)
    return matrix + mx.nd.eye(y.shape[1]) if positive else -matrix - mx.nd.eye(y.shape[1])


def sample(net: Blocks, names: list[str], drawn: random.Random) -> Any:
    """Compute one sample's results: some steps, each of which reads results of others."""
    width = drawn.choice(WIDTHS)
    first = np.random.RandomState(drawn.randrange(1 << 30)).randn(1, width)
    values = [mx.nd.array(first), net.embed[drawn.randrange(3)](mx.nd.array([2]))]
    for name in names:
        y, z = values[-1], drawn.choice(values)
        values.append(STEPS[name](net, y, z, drawn, drawn.randint(1, 3)))
    return values[1:]
