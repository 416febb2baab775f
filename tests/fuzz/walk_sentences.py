#!/usr/bin/env python3
"""Compare random models of sentences of different lengths with eager Gluon.

Each case is drawn by a seed, in turns of five kinds: blocks of layers over whole sentences, (1, L,
C) or (L, 1, C), as recurrent layers, convolutions, attention with heads, products and
normalisations, and what is left at the end; attention by operators outside of blocks, on ragged
values or on matrices with different numbers of rows; documents, which are a block for each
sentence, and attention to their values; chains of operators that move the axis of the words, cut
and order words, and reduce them, in a block or outside; operators on two sentences and on the pairs
of their words, in a block or outside. Outputs and gradients are compared by `assert_matches_eager`,
whose judge of rounding is float64, with native operators or without. The exit status says whether
there was a difference.

    python -m tests.fuzz.walk_sentences --cases 10000 --seed 1
    python -m tests.fuzz.walk_sentences --seed 1 --only 17    # one case, with its error
"""

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import gluon_edbatch as edb  # before MXNet, which new versions of NumPy need
from gluon_edbatch.testing import assert_matches_eager

import mxnet as mx  # isort: skip
from mxnet import gluon  # isort: skip
from mxnet.gluon import nn, rnn  # isort: skip

WIDTH, HEADS = 6, 2
_IN_FLOAT64 = re.compile(r'run in float64, .* by up to ([-+.e\d]+); ([-+.e\d]+) is allowed')
nd = mx.nd

# --- layers over whole sentences ----------------------------------------------------------------


def _attention(F: Any, x: Any) -> Any:
    """Attention of all words to all words of (1, L, C), by heads."""
    heads = F.transpose(F.reshape(x, shape=(0, 0, HEADS, -1)), axes=(0, 2, 1, 3))
    heads = F.reshape(heads, shape=(-3, -2))
    weights = F.softmax(F.batch_dot(heads, heads, transpose_b=True) * 0.4)
    found = F.reshape(F.batch_dot(weights, heads), shape=(-4, -1, HEADS, -2))
    return F.reshape(F.transpose(found, axes=(0, 2, 1, 3)), shape=(0, 0, -1))


PLAIN: dict[str, Callable[..., Any]] = {
    'tanh': lambda F, x: F.tanh(x * 1.5),
    'relu': lambda F, x: F.relu(x + 0.1),
    'residual': lambda F, x: x + F.sigmoid(x),
    'softmax of columns': lambda F, x: F.softmax(x, axis=-1),
}
BATCH_MAJOR: dict[str, Callable[..., Any]] = {
    'softmax of words': lambda F, x: F.softmax(x, axis=1) * x,
    'attention': _attention,
    'first word': lambda F, x: F.broadcast_sub(x, F.slice_axis(x, axis=1, begin=0, end=1)),
    'centred': lambda F, x: F.broadcast_sub(x, F.mean(x, axis=1, keepdims=True)),
    'turned twice': lambda F, x: F.swapaxes(F.tanh(F.swapaxes(x, 0, 1)), 0, 1),
}
LEFT: dict[str, Callable[..., Any]] = {
    'all': lambda F, x, axis: x,
    'first': lambda F, x, axis: F.slice_axis(x, axis=axis, begin=0, end=1),
    'last': lambda F, x, axis: F.slice_axis(x, axis=axis, begin=-1, end=None),
    'mean': lambda F, x, axis: F.mean(x, axis=axis),
    'max': lambda F, x, axis: F.max(x, axis=axis),
    'sum': lambda F, x, axis: F.sum(x, axis=axis),
}


class Convolution(gluon.HybridBlock):
    """A convolution over the words of (1, L, C) that keeps their number."""

    def __init__(self, size: int):
        super().__init__()
        with self.name_scope():
            self.layer = nn.Conv1D(WIDTH, size, padding=size // 2, in_channels=WIDTH)

    def hybrid_forward(self, F, x):
        return F.swapaxes(self.layer(F.swapaxes(x, 1, 2)), 1, 2)


class Layers(gluon.HybridBlock):
    """Layers, one after the other, and what is left of a sentence."""

    def __init__(self, draw: random.Random, left: Sequence[str] = tuple(LEFT)):
        super().__init__()
        self.axis, self.left = draw.randint(0, 1), draw.choice(left)
        self.names = [self._drawn(draw, f'layer{place}') for place in range(draw.randint(1, 4))]

    def _drawn(self, draw: random.Random, name: str) -> str:
        kinds = ['recurrent', 'dense', 'norm', *PLAIN]
        kinds += ['convolution', *BATCH_MAJOR] if self.axis else []
        kind = draw.choice(kinds)
        made: Any = {
            'recurrent': lambda: self._recurrent(draw),
            'dense': lambda: nn.Dense(WIDTH, 'tanh', flatten=False, in_units=WIDTH),
            'norm': lambda: nn.LayerNorm(in_channels=WIDTH),
            'convolution': lambda: Convolution(draw.choice([1, 3])),
        }.get(kind, lambda: nn.HybridLambda({**PLAIN, **BATCH_MAJOR}[kind]))
        with self.name_scope():
            setattr(self, name, made())
        self.shown = [*getattr(self, 'shown', []), kind]
        return name

    def _recurrent(self, draw: random.Random) -> gluon.HybridBlock:
        both, layers = draw.random() < 0.5, draw.randint(1, 2)
        layer = draw.choice([rnn.LSTM, rnn.GRU, rnn.RNN])
        own = dict(num_layers=layers, bidirectional=both, input_size=WIDTH)
        return layer(WIDTH // (1 + both), layout='NTC' if self.axis else 'TNC', **own)

    def hybrid_forward(self, F, x):
        for name in self.names:
            x = getattr(self, name)(x)
        return LEFT[self.left](F, x, self.axis)

    def __repr__(self) -> str:
        return f'layers {self.shown}, left {self.left}, axis of words {self.axis}'


def sentence(draw: random.Random, axis: int, least: int = 1) -> mx.nd.NDArray:
    """A sentence of up to ten words, with a gradient."""
    shape = (1, draw.randint(least, 10)) if axis else (draw.randint(least, 10), 1)
    array = nd.array(np.random.RandomState(draw.randrange(2**31)).normal(size=(*shape, WIDTH)))
    array.attach_grad()
    return array


# --- attention by operators ---------------------------------------------------------------------

STEPS: dict[str, Callable[..., Any]] = {
    'softmax': lambda s, t: nd.softmax(s, axis=-1),
    'log_softmax': lambda s, t: nd.log_softmax(s, axis=-1),
    'tanh': lambda s, t: nd.tanh(s),
    'sigmoid': lambda s, t: nd.sigmoid(s * 2),
    'numbers': lambda s, t: s * 0.3 + 0.1,
    'shares': lambda s, t: nd.broadcast_div(s, nd.sum(s.abs(), axis=-1, keepdims=True) + 1),
    'to the first scores': lambda s, t: s + t,
    'mask': lambda s, t: s * (t > 0),
    'centred': lambda s, t: nd.broadcast_sub(s, nd.mean(s, axis=-1, keepdims=True)),
}
ENDS: dict[str, Callable[..., Any]] = {
    'context': lambda s, m, dot: dot(s, m),
    'sum': lambda s, m, dot: nd.sum(s, axis=-1),
    'max': lambda s, m, dot: nd.max(s, axis=-1),
    'first': lambda s, m, dot: nd.slice_axis(s, axis=-1, begin=0, end=1),
    'weights': lambda s, m, dot: s,
    'keys': lambda s, m, dot: dot(s, nd.tanh(m * 0.5)),
    'both': lambda s, m, dot: nd.concat(dot(s, m), dot(s.tanh(), m), dim=-1),
}


class Operators(edb.AutoBatchMixin, gluon.Block):
    """Attention of a layer's result to values, all by operators."""

    def __init__(self, draw: random.Random):
        super().__init__()
        self.ragged = draw.random() < 0.5
        self.steps = [draw.choice(list(STEPS)) for _ in range(draw.randint(0, 5))]
        self.ends = [draw.choice(list(ENDS)) for _ in range(draw.randint(1, 3))]
        with self.name_scope():
            self.query = nn.Dense(WIDTH, in_units=WIDTH)

    def forward(self, sample):
        query, values = self.query(sample[0]), sample[1]
        dot = nd.dot
        if self.ragged:
            values, dot = edb.ragged(values, shape=(1, WIDTH)), nd.batch_dot
            query = query.expand_dims(axis=1)
        else:
            values = nd.concat(*values, dim=0) * 1
        first = scores = dot(query, values, transpose_b=True)
        for step in self.steps:
            scores = STEPS[step](scores, first)
        return [ENDS[end](scores, values, dot) for end in self.ends]

    def __repr__(self) -> str:
        return f'operators on {"ragged" if self.ragged else "matrices"}: {self.steps}, {self.ends}'


def vectors(draw: random.Random, least: int = 1) -> list[mx.nd.NDArray]:
    """Arrays (1, C) with gradients."""
    numbers = np.random.RandomState(draw.randrange(2**31))
    found = [nd.array(numbers.normal(size=(1, WIDTH))) for _ in range(draw.randint(least, 8))]
    for array in found:
        array.attach_grad()
    return found


# --- documents ----------------------------------------------------------------------------------


class Attention(gluon.HybridBlock):
    """Attention of a weight to any number of values."""

    def __init__(self):
        super().__init__()
        with self.name_scope():
            self.score = nn.Dense(1, flatten=False, in_units=WIDTH)

    def hybrid_forward(self, F, values):
        weights = F.softmax(self.score(F.tanh(values)), axis=1)
        return F.sum(F.broadcast_mul(weights, values), axis=1)


class Documents(edb.AutoBatchMixin, gluon.Block):
    """A block for each sentence, attention to these, and a layer."""

    def __init__(self, draw: random.Random):
        super().__init__()
        with self.name_scope():
            self.words = Layers(draw, ('mean', 'max', 'sum', 'last'))
            self.sentences = Attention()
            self.out = nn.Dense(2, in_units=WIDTH)

    def forward(self, document):
        values = [self.words(words).reshape((1, WIDTH)) for words in document]
        return self.out(self.sentences(edb.ragged(values, shape=(1, WIDTH))))

    def __repr__(self) -> str:
        return f'documents of {self.words}'


# --- operators that move the axis of the words --------------------------------------------------


def _middle(x: Any) -> Any:
    """All words of (1, L, C), and two from the middle again."""
    length = x.shape[1]
    return nd.concat(x, x[:, length // 2 : min(length, length // 2 + 2)] * 0.5, dim=1)


def _ends(x: Any) -> Any:
    """All words of (1, L, C), and the last and the first of them again."""
    return nd.concat(x, nd.take(x, nd.array([x.shape[1] - 1, 0]), axis=1), dim=1)


# What comes first outside of blocks, where the number of words is known.
FIRST: dict[str, Callable[..., Any]] = {
    'as it is': lambda x: x,
    'middle': _middle,
    'ends': _ends,
    'word': lambda x: nd.broadcast_sub(x, x[:, x.shape[1] // 2].expand_dims(1)),
    'masked': lambda x: nd.broadcast_mul(x, _given(x.shape[1], 1) % 2),
    'beside an array': lambda x: x + nd.tanh(_given(x.shape[1], WIDTH)),
    'turned': lambda x: x[:, ::-1] * x,
    'last two added': lambda x: nd.concat(x, x[:, -2:], dim=1),
    'weighed': lambda x: nd.broadcast_add(
        x, nd.batch_dot(_given(x.shape[1], 1).swapaxes(1, 2) * 0.1, x)
    ),
}


def _given(length: int, width: int) -> Any:
    """An array (1, L, C) of the user."""
    return nd.arange(length * width).reshape((1, length, width))


# By the shape of what they read and return: words are the axis that is L.
MOVES: dict[str, dict[str, tuple[str, Callable[..., Any]]]] = {
    '1LC': {
        'swapped': ('1CL', lambda F, x: F.swapaxes(x, 1, 2)),
        'turned': ('1CL', lambda F, x: F.transpose(x, axes=(0, 2, 1))),
        'heads': (
            '1HLD',
            lambda F, x: F.transpose(F.reshape(x, shape=(0, 0, HEADS, -1)), axes=(0, 2, 1, 3)),
        ),
        'dense': ('1LC', lambda F, x: F.tanh(x * 1.5)),
        'reversed': ('1LC', lambda F, x: F.reverse(x, axis=1)),
        'without the first': ('1LC', lambda F, x: F.slice_axis(x, axis=1, begin=1, end=None)),
        'without the last': ('1LC', lambda F, x: F.slice_axis(x, axis=1, begin=0, end=-1)),
        'the first before all': (
            '1LC',
            lambda F, x: F.concat(F.slice_axis(x, axis=1, begin=0, end=1), x, dim=1),
        ),
        'pairs': (
            '1LC',
            lambda F, x: (
                F.slice_axis(x, axis=1, begin=0, end=-1)
                * F.slice_axis(x, axis=1, begin=1, end=None)
            ),
        ),
        'twice': ('1LC', lambda F, x: F.concat(x, x * 0.5, dim=1)),
        'between two': (
            '1LC',
            lambda F, x: F.concat(
                F.slice_axis(x, axis=1, begin=0, end=1),
                x * 0.5,
                F.slice_axis(x, axis=1, begin=1, end=3),
                dim=1,
            ),
        ),
        'each twice': ('1LC', lambda F, x: F.repeat(x, repeats=2, axis=1) * 0.7),
        'tiled': ('1LC', lambda F, x: F.tile(x, reps=(1, 2, 1)) * 0.7),
        'stacked': ('1LC', lambda F, x: F.sum(F.stack(x, x * 0.5, axis=1), axis=1)),
        'running sum': ('1LC', lambda F, x: F.cumsum(x, axis=1) * 0.3),
        'ordered': ('1LC', lambda F, x: F.sort(x, axis=1)),
        'softmax of words': ('1LC', lambda F, x: F.softmax(x, axis=1) * x),
        'centred': ('1LC', lambda F, x: F.broadcast_sub(x, F.mean(x, axis=1, keepdims=True))),
        'chosen': ('1LC', lambda F, x: F.where(x > 0, x, F.zeros_like(x) - 0.5)),
        'of the largest': (
            '1LC',
            lambda F, x: F.broadcast_mul(
                x, F.expand_dims(F.pick(x, F.argmax(x, axis=2), axis=2), axis=2)
            ),
        ),
        'norms': ('1LC', lambda F, x: F.broadcast_div(x, F.norm(x, axis=2, keepdims=True) + 1)),
        'products': ('1LC', lambda F, x: F.batch_dot(x, F.batch_dot(x, x, transpose_a=True)) * 0.1),
        'attention': (
            '1LC',
            lambda F, x: F.batch_dot(F.softmax(F.batch_dot(x, x, transpose_b=True)), x),
        ),
        'rows': ('LC', lambda F, x: F.reshape(x, shape=(-3, 0))),
    },
    '1CL': {
        'swapped': ('1LC', lambda F, x: F.swapaxes(x, 1, 2)),
        'softmax of words': ('1CL', lambda F, x: F.softmax(x, axis=2)),
        'largest of three': (
            '1CL',
            lambda F, x: F.Pooling(x, kernel=(3,), pad=(1,), stride=(1,), pool_type='max'),
        ),
        'tanh': ('1CL', lambda F, x: F.tanh(x)),
        'twice': ('1CL', lambda F, x: F.concat(x, F.reverse(x, axis=2), dim=2)),
        'padded': (
            '1CL',
            lambda F, x: F.squeeze(
                F.pad(
                    F.expand_dims(x, axis=1),
                    mode='constant',
                    pad_width=(0, 0, 0, 0, 0, 0, 1, 1),
                    constant_value=0,
                ),
                axis=1,
            ),
        ),
        'centred': ('1CL', lambda F, x: F.broadcast_sub(x, F.mean(x, axis=2, keepdims=True))),
    },
    '1HLD': {
        'joined': (
            '1LC',
            lambda F, x: F.reshape(F.transpose(x, axes=(0, 2, 1, 3)), shape=(0, 0, -1)),
        ),
        'softmax of words': ('1HLD', lambda F, x: F.softmax(x, axis=2)),
        'sigmoid': ('1HLD', lambda F, x: F.sigmoid(x) * x),
    },
    'LC': {
        'tanh': ('LC', lambda F, x: F.tanh(x)),
        'sum of words': ('C', lambda F, x: F.sum(x, axis=0)),
    },
}
REDUCED: dict[str, Callable[..., Any]] = {
    'sum': lambda F, x, axis: F.sum(x, axis=axis),
    'mean': lambda F, x, axis: F.mean(x, axis=axis),
    'max': lambda F, x, axis: F.max(x, axis=axis),
    'norm': lambda F, x, axis: F.norm(x, axis=axis),
    'sum of all': lambda F, x, axis: F.sum(x),
    'mean of all': lambda F, x, axis: F.mean(x),
    'largest two': lambda F, x, axis: F.topk(x, k=2, axis=axis, ret_typ='value'),
    'largest two of both': lambda F, x, axis: F.topk(x, k=2, axis=axis, ret_typ='both')[0],
    'all': lambda F, x, axis: x,
}


class Chain(gluon.HybridBlock):
    """Operators, one after the other."""

    def __init__(self, draw: random.Random):
        super().__init__()
        shape, self.steps = '1LC', []
        for _ in range(draw.randint(1, 5)):
            if shape not in MOVES:
                break
            name = draw.choice(list(MOVES[shape]))
            self.steps.append((shape, name))
            shape = MOVES[shape][name][0]
        self.axis = shape.find('L')
        ends = [name for name in REDUCED if self.axis > 0 or name == 'all']
        self.end = draw.choice(ends)

    def hybrid_forward(self, F, x):
        for shape, name in self.steps:
            x = MOVES[shape][name][1](F, x)
        return REDUCED[self.end](F, x, self.axis)


class Moved(edb.AutoBatchMixin, gluon.Block):
    """A layer over a sentence, and a chain of operators in a block or outside."""

    maker: Any = Chain

    def __init__(self, draw: random.Random):
        super().__init__()
        self.in_block = draw.random() < 0.5
        with self.name_scope():
            self.layer = nn.Dense(WIDTH, flatten=False, in_units=WIDTH)
            self.chain = self.maker(draw)
        self.first = 'as it is' if self.in_block else draw.choice(list(FIRST))

    def forward(self, x):
        x = FIRST[self.first](self.layer(x))
        return self.chain(x) if self.in_block else self.chain.hybrid_forward(nd, x)

    def __repr__(self) -> str:
        where, steps = 'in a block' if self.in_block else 'outside', self.chain.steps
        names = [self.first, *[name for _, name in steps]]
        return f'moved {where}: {names}, end {self.chain.end}'


# --- two sentences ------------------------------------------------------------------------------

# What an operator reads and returns; words of the one sentence are L, of the other M, of both S.
CROSSED: dict[str, tuple[tuple[str, ...], str, Callable[..., Any]]] = {
    'scores': (('LC', 'MC'), 'LM', lambda F, x, y: F.batch_dot(x, y, transpose_b=True) * 0.5),
    'scores of itself': (('LC', 'LC'), 'LL', lambda F, x, y: F.batch_dot(x, y, transpose_b=True)),
    'softmax of L': (('LM',), 'LM', lambda F, s: F.softmax(s, axis=1)),
    'softmax of M': (('LM',), 'LM', lambda F, s: F.softmax(s, axis=2)),
    'softmax of itself': (('LL',), 'LL', lambda F, s: F.softmax(s, axis=2)),
    'tanh of pairs': (('LM',), 'LM', lambda F, s: F.tanh(s)),
    'sum of pairs': (('LM', 'LM'), 'LM', lambda F, s, t: s + t * 0.5),
    'context': (('LM', 'MC'), 'LC', lambda F, s, y: F.batch_dot(s, y)),
    'context of itself': (('LL', 'LC'), 'LC', lambda F, s, x: F.batch_dot(s, x)),
    'context back': (('LM', 'LC'), 'MC', lambda F, s, x: F.batch_dot(s, x, transpose_a=True)),
    'best of M': (('LM',), 'L', lambda F, s: F.max(s, axis=2)),
    'mean over L': (('LM',), 'M', lambda F, s: F.mean(s, axis=1)),
    'weighted': (
        ('L', 'LC'),
        'C',
        lambda F, w, x: F.reshape(
            F.batch_dot(F.expand_dims(F.softmax(w, axis=1), axis=1), x), shape=(0, -1)
        ),
    ),
    'mean of L': (('LC',), 'C', lambda F, x: F.mean(x, axis=1)),
    'max of M': (('MC',), 'C', lambda F, y: F.max(y, axis=1)),
    'and a row': (('LC', 'C'), 'LC', lambda F, x, c: F.broadcast_add(x, F.expand_dims(c, axis=1))),
    'products of L': (('LC', 'LC'), 'LC', lambda F, x, z: F.tanh(x * z)),
    'products of M': (('MC', 'MC'), 'MC', lambda F, y, z: F.sigmoid(y) * z),
    'reversed': (('MC',), 'MC', lambda F, y: F.reverse(y, axis=1)),
    'joined': (('LC', 'MC'), 'SC', lambda F, x, y: F.concat(x, y, dim=1)),
    'joined the other way': (('MC', 'LC'), 'SC', lambda F, y, x: F.concat(y, x, dim=1)),
    'sum of both': (('SC', 'SC'), 'SC', lambda F, s, t: F.tanh(s) + t),
    'attention to both': (
        ('LC', 'SC'),
        'LC',
        lambda F, x, s: F.batch_dot(F.softmax(F.batch_dot(x, s, transpose_b=True)), s),
    ),
    'softmax of both': (('SC',), 'SC', lambda F, s: F.softmax(s, axis=1) * s),
    'mean of both': (('SC',), 'C', lambda F, s: F.mean(s, axis=1)),
}


class Crossing(gluon.HybridBlock):
    """Operators on two sentences, each on what there is."""

    def __init__(self, draw: random.Random):
        super().__init__()
        shapes, self.steps = ['LC', 'MC'], []
        for _ in range(draw.randint(1, 7)):
            able = [name for name, (reads, _, _) in CROSSED.items() if {*reads} <= {*shapes}]
            name = draw.choice(able)
            reads, gives, _ = CROSSED[name]
            places = [
                draw.choice([i for i, shape in enumerate(shapes) if shape == read])
                for read in reads
            ]
            self.steps.append((name, places))
            shapes.append(gives)
        self.returned = {len(shapes) - 1, draw.randrange(len(shapes))}

    def hybrid_forward(self, F, x, y):
        values = [x, y]
        for name, places in self.steps:
            values.append(CROSSED[name][2](F, *[values[place] for place in places]))
        results = [values[place] * 1.5 for place in sorted(self.returned)]
        return results if len(results) > 1 else results[0]


class Crossed(Moved):
    """A layer over two sentences, and operators on both in a block or outside."""

    maker = Crossing

    def forward(self, pair):
        values = [self.layer(x) for x in pair]
        return self.chain(*values) if self.in_block else self.chain.hybrid_forward(nd, *values)

    def __repr__(self) -> str:
        where = 'in a block' if self.in_block else 'outside'
        return f'crossed {where}: {self.chain.steps}, of which {self.chain.returned}'


# --- cases --------------------------------------------------------------------------------------


def drawn(seed: int, number: int) -> tuple[gluon.Block, list[Any], bool]:
    """Return a model with its samples, and whether native operators run."""
    draw = random.Random(f'{seed} {number}')
    mx.random.seed(draw.randrange(2**31))
    count, kind = draw.randint(2, 6), number % 5
    if kind == 0:
        net: Any = Layers(draw)
        samples: list[Any] = [sentence(draw, net.axis) for _ in range(count)]
    elif kind == 1:
        net = Operators(draw)
        samples = [(vectors(draw, 1)[0], vectors(draw)) for _ in range(count)]
    elif kind == 3:
        net = Moved(draw)
        samples = [sentence(draw, 1, least=7) for _ in range(count)]
    elif kind == 4:
        net = Crossed(draw)
        samples = [(sentence(draw, 1), sentence(draw, 1)) for _ in range(count)]
    else:
        net = Documents(draw)
        axis = net.words.axis
        samples = [[sentence(draw, axis) for _ in range(draw.randint(1, 4))] for _ in range(count)]
    net.initialize(mx.init.Uniform(0.5))
    return net, samples, draw.random() < 0.7


def judged(seed: int, number: int) -> tuple[str, str]:
    """Return how a case ended, and what was wrong: equal, different or refused, or rounded if the
    difference is one of single precision only."""
    net, samples, native = drawn(seed, number)
    try:
        with edb.compile_options(native=native):
            assert_matches_eager(net, samples, schedulers=['fsm'])
    except AssertionError as error:
        found = _IN_FLOAT64.search(str(error))
        # A gradient that is zero by nature has no scale: the model's numbers are of order one.
        is_rounding = found is not None and float(found[1]) <= max(float(found[2]), 1e-14)
        return 'rounded' if is_rounding else 'different', f'{net}: {error}'
    except edb.EdbError as error:
        return 'refused', f'{net}: {error}'
    return 'equal', ''


def arguments(argv=None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument('--cases', type=int, default=200, help='how many (default: 200)')
    parser.add_argument('--seed', type=int, default=1, help='which (default: 1)')
    parser.add_argument('--first', type=int, default=0, help='number of the first (default: 0)')
    parser.add_argument('--only', type=int, metavar='NUMBER', help='this case only')
    return parser.parse_args(argv)


def main(argv=None) -> int:
    """Run the command line; return the exit status."""
    options = arguments(argv)
    numbers = range(options.first, options.first + options.cases)
    if options.only is not None:
        numbers = range(options.only, options.only + 1)
    outcomes: Counter[str] = Counter()
    for number in numbers:
        how, why = judged(options.seed, number)
        outcomes[how] += 1
        if why:
            again = f'python -m tests.fuzz.walk_sentences --seed {options.seed} --only {number}'
            print(f'{how}: {why}\n  again: {again}', flush=True)
        print(f'\r{sum(outcomes.values())} of {len(numbers)}', end='', file=sys.stderr)
    print(f'\n{len(numbers)} cases: {dict(outcomes)}')
    return 1 if outcomes['different'] else 0


if __name__ == '__main__':
    sys.exit(main())
